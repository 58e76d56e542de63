"""Names and labels of entities and relations, memory-mapped; IRIs, short and long."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import Ids, are_below, are_offsets

Arrays = Mapping[str, NDArray[Any]]
Prefixes = Mapping[str, str]  # prefix -> beginning of IRIs
NO_PREFIXES: Prefixes = MappingProxyType({})
PARTS = ("text", "offsets", "order")
NUM_CLOSEST = 3  # suggestions for an unknown name
TEXT_BATCH = 2**22  # bytes decoded at a time


class Names(Sequence[str]):
    """Strings by id, and ids by string, without building a dictionary.

    Three flat arrays: the UTF-8 `text` of all strings in a row, the `offsets` (n + 1) where each
    begins, and the `order` (n) of the ids sorted by string, for binary search. Several ids may
    have the same string (labels do).
    """

    def __init__(
        self, text: NDArray[np.uint8], offsets: NDArray[np.int64], order: NDArray[np.int32]
    ):
        # As plain views: to take a part of a np.memmap costs several times as much.
        self.text, self.offsets, self.order = map(np.asarray, (text, offsets, order))

    @classmethod
    def from_strings(cls, strings: Sequence[str]) -> Names:
        """Build the table; string i gets id i."""
        encoded = [string.encode() for string in strings]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(piece) for piece in encoded], out=offsets[1:])
        # Sorting Python strings by code point is the order of their UTF-8 bytes.
        order = np.array(sorted(range(len(encoded)), key=encoded.__getitem__), dtype=np.int32)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets, order)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices are not needed
        return self._bytes(range(len(self))[index]).decode()

    def __iter__(self) -> Iterator[str]:
        text, bounds = self.text.tobytes(), self.offsets.tolist()
        return (text[a:b].decode() for a, b in pairwise(bounds))

    def _bytes(self, index: int) -> bytes:
        return self.text[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def find(self, string: str) -> list[int]:
        """Return the ids of `string`, ascending."""
        key = string.encode(errors="surrogatepass")  # half a surrogate pair is in no table

        def at(rank: int) -> bytes:
            return self._bytes(int(self.order[rank]))

        first = last = bisect_left(range(len(self)), key, key=at)
        while last < len(self) and at(last) == key:
            last += 1
        return sorted(self.order[first:last].tolist())

    def arrays(self, table: str) -> dict[str, NDArray[Any]]:
        """Return the parts of a store by name."""
        return {f"{table}.{part}": getattr(self, part) for part in PARTS}

    @classmethod
    def from_arrays(cls, arrays: Arrays, table: str) -> Names:
        """Take the table from the parts of a store; raise KeyError if one is missing."""
        return cls(*(arrays[f"{table}.{part}"] for part in PARTS))

    def fault(self, table: str, size: int) -> str | None:
        """Describe the first fault in the arrays of a table of `size` strings."""
        if len(self.order) != size or not are_below(self.order, size):
            return f"{table}.order is not an order of {size} names"
        if not are_offsets(self.offsets, size, len(self.text)):
            return f"{table}.offsets are out of order"
        starts = self.offsets[self.offsets < len(self.text)]
        is_inside_a_character = self.text[starts] & 0xC0 == 0x80
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for first in range(0, len(self.text), TEXT_BATCH):
                decoder.decode(self.text[first : first + TEXT_BATCH].tobytes())
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            is_inside_a_character[:] = True
        return f"{table}.text is not valid UTF-8" if is_inside_a_character.any() else None


# ---- labels -------------------------------------------------------------------------------------

ALTERNATIVE = 2


class Label(NamedTuple):
    """A label in a language ("" if none is stated)."""

    text: str
    language: str = ""
    rank: int = 0  # 0: a main label, 1: a name, 2: an alternative


def in_order(labels: Iterable[Label]) -> list[Label]:
    """Return distinct labels, the one to show first: alternatives last, plain before others.

    A plain label is in English or in no stated language. The sort is stable.
    """

    def key(label: Label) -> tuple[bool, bool, int]:
        is_plain = label.language.lower().split("-")[0] in ("", "en")
        return label.rank == ALTERNATIVE, not is_plain, label.rank

    distinct: dict[tuple[str, str], Label] = {}
    for label in sorted(labels, key=key):
        distinct.setdefault((label.text, label.language), label)
    return list(distinct.values())


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of ids: label i, in `languages[i]`, belongs to the id `owners[i]`.

    Owners ascend; the first label of each is the one to show. No `languages` at all means that
    none is stated.
    """

    texts: Names
    languages: Names
    owners: Ids

    @classmethod
    def of(cls, rows: Sequence[tuple[int, Label]]) -> Labels:
        """Build the table from (id, label), ids ascending."""
        languages = [label.language for _, label in rows]
        return cls(
            Names.from_strings([label.text for _, label in rows]),
            Names.from_strings(languages) if any(languages) else NO_NAMES,
            np.array([owner for owner, _ in rows], dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.owners)

    def of_id(self, index: int) -> list[Label]:
        """Return the labels of an id, the one to show first."""
        first, last = np.searchsorted(self.owners, [index, index + 1]).tolist()
        return [
            Label(
                self.texts[row],
                self.languages[row] if len(self.languages) else "",
                0 if row == first else ALTERNATIVE,
            )
            for row in range(first, last)
        ]

    def shown(self, index: int) -> str | None:
        """Return the label to show for an id, if it has any."""
        row = int(np.searchsorted(self.owners, index))
        return self.texts[row] if row < len(self) and self.owners[row] == index else None

    def find(self, text: str) -> list[int]:
        """Return the ids that show this label; if there are none, those that have it."""
        rows = np.array(self.texts.find(text), dtype=np.int64)
        is_shown = rows == np.searchsorted(self.owners, self.owners[rows])
        return sorted({*self.owners[rows[is_shown] if is_shown.any() else rows].tolist()})

    def arrays(self, kind: str) -> dict[str, NDArray[Any]]:
        """Return the parts of a store by name."""
        if not len(self):
            return {}
        arrays = self.texts.arrays(f"{kind}_labels") | {f"{kind}_labels.owners": self.owners}
        if len(self.languages):
            arrays |= self.languages.arrays(f"{kind}_languages")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, kind: str) -> Labels:
        """Take the table from the parts of a store; raise KeyError if one is missing."""
        table = f"{kind}_labels"
        if not any(name.startswith(f"{kind}_") for name in arrays):
            return NO_LABELS
        if f"{table}.owners" in arrays:
            owners = arrays[f"{table}.owners"]
        elif f"{kind}_all_labels.owners" in arrays:  # version 2: several labels of an id
            table = f"{kind}_all_labels"
            owners = arrays[f"{table}.owners"]
        else:  # version 1, or 2 with one label each: the name itself where there is none
            owners = np.arange(len(arrays[f"{table}.order"]), dtype=np.int32)
        has_languages = any(name.startswith(f"{kind}_languages.") for name in arrays)
        languages = Names.from_arrays(arrays, f"{kind}_languages") if has_languages else NO_NAMES
        return cls(Names.from_arrays(arrays, table), languages, owners)

    def fault(self, kind: str, size: int) -> str | None:
        """Describe the first fault in the arrays of the labels of `size` ids."""
        owners = self.owners
        if not are_below(owners, size) or (owners[1:] < owners[:-1]).any():
            return f"{kind}_labels.owners are not ids in order from 0 to {size - 1}"
        fault = self.texts.fault(f"{kind}_labels", len(owners))
        if not fault and len(self.languages):
            fault = self.languages.fault(f"{kind}_languages", len(owners))
        return fault


NO_NAMES = Names.from_strings([])
NO_LABELS = Labels(NO_NAMES, NO_NAMES, np.empty(0, np.int32))


# ---- vocabularies -------------------------------------------------------------------------------

TABLES = {"entity": "entities", "relation": "relations"}  # names of the parts of a store


@dataclass(frozen=True, eq=False)
class Vocabulary(Sequence[str]):
    """The entities or the relations of a graph: their names by id, and their labels."""

    names: Names
    labels: Labels = NO_LABELS

    @classmethod
    def of(
        cls, names: Sequence[str], labels: Mapping[str, Sequence[Label]] = MappingProxyType({})
    ) -> Vocabulary:
        """Build a vocabulary; name i gets id i. Labels are lists, the one to show first."""
        rows = [(i, label) for i, name in enumerate(names) for label in labels.get(name, ())]
        return cls(Names.from_strings(names), Labels.of(rows) if rows else NO_LABELS)

    @property
    def has_labels(self) -> bool:
        """Whether any id has a label."""
        return bool(len(self.labels))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices are not needed
        return self.names[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def label(self, index: int) -> str:
        """Return the label to show for an id, or its name."""
        shown = self.labels.shown(range(len(self))[index])
        return self.names[index] if shown is None else shown

    def labels_of(self, index: int) -> list[Label]:
        """Return every label of an id, the one to show first; [] if it has only a name."""
        found = self.labels.of_id(index)
        return [] if found == [Label(self.names[index])] else found

    def labels_by_name(self) -> dict[str, list[Label]]:
        """Return the labels of every name that has any."""
        labelled = np.unique(self.labels.owners).tolist()
        found = {self.names[index]: self.labels_of(index) for index in labelled}
        return {name: labels for name, labels in found.items() if labels}

    def find(self, text: str, prefixes: Prefixes = NO_PREFIXES) -> list[int]:
        """Return the ids with this name; else those with this label; else the shortened IRI's.

        The empty prefix may be left out with its colon: `director` for `:director`.
        """
        return (
            self.names.find(text)
            or self.labels.find(text)
            or self.names.find(expand(text, prefixes))
            or self.names.find(prefixes.get("", "") + text)
        )

    def find_alike(self, text: str, prefixes: Prefixes = NO_PREFIXES) -> list[int]:
        """Return the ids with this name or label but for case and accents, ascending.

        If there are any that show it, only they are returned.
        """
        from betae.graph.similar import without_case

        forms = {text, expand(text, prefixes), prefixes.get("", "") + text}
        rows = [row for each in forms for row in self._without_case.find(without_case(each))]
        labels = np.array(rows, dtype=np.int64) - len(self)  # of names it is negative
        owners = self.labels.owners[labels[labels >= 0]]
        is_shown = labels[labels >= 0] == np.searchsorted(self.labels.owners, owners)
        found = {*labels[labels < 0] + len(self), *owners[is_shown]} or {*owners}
        return sorted(map(int, found))

    @cached_property
    def _without_case(self) -> Names:
        """The names, then the labels, without case and accents."""
        from betae.graph.similar import without_case

        return Names.from_strings([*map(without_case, chain(self.names, self.labels.texts))])

    def closest(
        self,
        text: str,
        prefixes: Prefixes = NO_PREFIXES,
        popularity: NDArray[np.int64] | None = None,
    ) -> list[str]:
        """Return the most similar labels and names; IRIs are compared by their last part.

        Of those that are equally similar, the first are those of ids with more `popularity`.
        """
        from betae.graph.similar import fold, most_similar

        offered = [*self.names, *self.labels.texts]
        if popularity is not None:
            popularity = np.concatenate([popularity, popularity[self.labels.owners]])
        wanted = fold(local_name(expand(text, prefixes)))
        found = most_similar(wanted, [fold(local_name(each)) for each in offered], popularity)
        return list(dict.fromkeys(shorten(offered[i], prefixes) for i in found))[:NUM_CLOSEST]

    def search(self, text: str, prefixes: Prefixes = NO_PREFIXES) -> list[int]:
        """Return the ids whose name or a label contains a text, ignoring case, ascending."""
        wanted, iri = text.casefold(), expand(text, prefixes)
        found = {i for i, name in enumerate(self.names) if wanted in name.casefold() or name == iri}
        rows = zip(self.labels.owners.tolist(), self.labels.texts, strict=True)
        return sorted(found | {owner for owner, each in rows if wanted in each.casefold()})

    def take(self, ids: NDArray[Any]) -> Vocabulary:
        """Return the vocabulary of some ids, with only the label to show of each."""
        names = [self.names[index] for index in ids.tolist()]
        shown = [(row, self.labels.shown(index)) for row, index in enumerate(ids.tolist())]
        rows = [(row, Label(text)) for row, text in shown if text is not None]
        return Vocabulary(Names.from_strings(names), Labels.of(rows) if rows else NO_LABELS)

    def arrays(self, kind: str) -> dict[str, NDArray[Any]]:
        """Return the parts of a store by name; `kind` is entity or relation."""
        return self.names.arrays(TABLES[kind]) | self.labels.arrays(kind)

    @classmethod
    def from_arrays(cls, arrays: Arrays, kind: str) -> Vocabulary:
        """Take a vocabulary from the parts of a store; raise KeyError if one is missing."""
        return cls(Names.from_arrays(arrays, TABLES[kind]), Labels.from_arrays(arrays, kind))

    def fault(self, kind: str) -> str | None:
        """Describe the first fault in the arrays."""
        return self.names.fault(TABLES[kind], len(self)) or self.labels.fault(kind, len(self))


# ---- IRIs ---------------------------------------------------------------------------------------

LOCAL_NAME = re.compile(r"\w(?:[\w.-]*[\w-])?")  # may follow `schema:` without any escapes


def shorten(name: str, prefixes: Prefixes) -> str:
    """Return `schema:director` for an IRI that a prefix covers, any other name unchanged."""
    fitting = [
        (len(iri), prefix)
        for prefix, iri in prefixes.items()
        if name.startswith(iri) and LOCAL_NAME.fullmatch(name, len(iri))
    ]
    if not fitting:
        return name
    length, prefix = max(fitting)
    return f"{prefix}:{name[length:]}"


def expand(name: str, prefixes: Prefixes) -> str:
    """Return the IRI that `schema:director` abbreviates, any other name unchanged."""
    prefix, colon, local = name.partition(":")
    if not colon or prefix not in prefixes or local.startswith("//"):
        return name
    return prefixes[prefix] + local


def local_name(name: str) -> str:
    """Return the readable last part of an IRI, any other name unchanged."""
    if "://" not in name and not name.startswith("urn:"):
        return name
    return re.split(r"[/#:]", name.rstrip("/#"))[-1] or name


def printable(text: str) -> str:
    """Escape control characters and anything else that a terminal would interpret."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
