"""Names: a read-only table of strings that opens by memory-mapping; IRIs, short and long."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTS = ("text", "offsets", "order")


class Names(Sequence[str]):
    """Strings by id, and ids by string, without a dictionary to build.

    Three flat arrays: the UTF-8 `text` of all strings in a row, the `offsets` (n + 1) where each
    begins, and the `order` (n) of the ids sorted by string, in which a string is found by binary
    search. A string may stand for several ids (labels do).
    """

    def __init__(
        self, text: NDArray[np.uint8], offsets: NDArray[np.int64], order: NDArray[np.int32]
    ):
        # As plain views: to take a part of a np.memmap costs several times as much.
        self.text, self.offsets, self.order = map(np.asarray, (text, offsets, order))

    @classmethod
    def from_strings(cls, strings: Sequence[str]) -> Names:
        """Make the table; string i gets id i."""
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
        """Return the ids of `string`, ascending; none if it is not in the table."""
        key = string.encode(errors="surrogatepass")  # half a character is in no table

        def at(rank: int) -> bytes:
            return self._bytes(int(self.order[rank]))

        first = last = bisect_left(range(len(self)), key, key=at)
        while last < len(self) and at(last) == key:
            last += 1
        return sorted(self.order[first:last].tolist())

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the parts of a store by name."""
        return {f"{prefix}.{part}": getattr(self, part) for part in PARTS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> Names | None:
        """Find the parts among those of a store; None if the table is not there."""
        if f"{prefix}.text" not in arrays:
            return None
        return cls(*(arrays[f"{prefix}.{part}"] for part in PARTS))

    def closest(self, string: str, limit: int = 3) -> list[str]:
        """Return up to `limit` distinct strings that look most like `string`."""
        strings = list(dict.fromkeys(self))
        return [strings[place] for place in closest(string, strings, limit)]


def closest(string: str, strings: Sequence[str], limit: int) -> list[int]:
    """Return the places of the strings that look most like `string`, the most alike first."""
    from rapidfuzz import fuzz, process, utils

    matches = process.extract(
        string,
        strings,
        scorer=fuzz.WRatio,
        processor=utils.default_process,
        limit=limit,
        score_cutoff=50,
    )
    return [place for _, _, place in matches]


# ---- IRIs ---------------------------------------------------------------------------------------

LOCAL_NAME = re.compile(r"\w(?:[\w.-]*[\w-])?")  # what may follow `schema:` without any escapes


def shorten(name: str, prefixes: Mapping[str, str]) -> str:
    """Return `schema:director` for an IRI that a prefix covers, any other name as it is."""
    fitting = [
        (len(iri), prefix)
        for prefix, iri in prefixes.items()
        if name.startswith(iri) and LOCAL_NAME.fullmatch(name, len(iri))
    ]
    if not fitting:
        return name
    length, prefix = max(fitting)
    return f"{prefix}:{name[length:]}"


def expand(name: str, prefixes: Mapping[str, str]) -> str:
    """Return the IRI that `schema:director` stands for, any other name as it is."""
    prefix, colon, local = name.partition(":")
    if not colon or prefix not in prefixes or local.startswith("//"):
        return name
    return prefixes[prefix] + local


def local_name(name: str) -> str:
    """Return the last part of an IRI, which people read; any other name as it is."""
    if "://" not in name and not name.startswith("urn:"):
        return name
    return re.split(r"[/#:]", name.rstrip("/#"))[-1] or name


def printable(text: str) -> str:
    """Return text without anything that a terminal would obey: such characters as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
