"""Labels: what entities and relations are called, in any number of words and languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import Ids
from betae.graph.names import Names


class Label(NamedTuple):
    """A label in a language ("" if none is stated); the lower the rank, the better it names."""

    text: str
    language: str = ""
    rank: int = 0  # 0: a main label, 1: a name, 2: an alternative

    @property
    def is_plain(self) -> bool:
        """Whether it is in English or in no stated language."""
        return self.language.lower().split("-")[0] in ("", "en")


ALTERNATIVE = 2


def in_order(labels: Sequence[Label]) -> list[Label]:
    """Return distinct labels, the one to show first: alternatives last, plain ones before others.

    Of two that are as good, the first given comes first.
    """
    best_first = sorted(
        labels, key=lambda each: (each.rank == ALTERNATIVE, not each.is_plain, each.rank)
    )
    distinct: dict[tuple[str, str], Label] = {}
    for label in best_first:
        distinct.setdefault((label.text, label.language), label)
    return list(distinct.values())


@dataclass(frozen=True)
class AllLabels:
    """Every label of every id: label i, `texts[i]` in `languages[i]`, is of the id `owners[i]`.

    Labels stand in the order of their owners, the one to show first.
    """

    texts: Names
    languages: Names
    owners: Ids

    @classmethod
    def of(cls, names: Sequence[str], labels: Mapping[str, Sequence[Label]]) -> AllLabels | None:
        """Gather the labels of names; None if no name has more than one without a language."""
        rows = [(owner, each) for owner, name in enumerate(names) for each in labels.get(name, ())]
        owners = np.array([owner for owner, _ in rows], dtype=np.int32)
        if len(set(owners.tolist())) == len(rows) and not any(each.language for _, each in rows):
            return None
        texts = Names.from_strings([label.text for _, label in rows])
        return cls(texts, Names.from_strings([label.language for _, label in rows]), owners)

    def find(self, text: str) -> list[int]:
        """Return the ids that have this label, ascending."""
        return sorted(set(self.owners[self.texts.find(text)].tolist()))

    def of_id(self, owner: int) -> list[Label]:
        """Return the labels of an id, the one to show first."""
        first, last = np.searchsorted(self.owners, [owner, owner + 1]).tolist()
        return [
            Label(self.texts[i], self.languages[i], 0 if i == first else ALTERNATIVE)
            for i in range(first, last)
        ]

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the parts of a store by name."""
        return {
            **self.texts.arrays(f"{prefix}_all_labels"),
            **self.languages.arrays(f"{prefix}_languages"),
            f"{prefix}_all_labels.owners": self.owners,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> AllLabels | None:
        """Find the parts among those of a store."""
        texts = Names.from_arrays(arrays, f"{prefix}_all_labels")
        languages = Names.from_arrays(arrays, f"{prefix}_languages")
        if texts is None or languages is None:
            return None
        return cls(texts, languages, arrays[f"{prefix}_all_labels.owners"])


def label_names(names: Sequence[str], labels: Mapping[str, str]) -> Names | None:
    """Return a label for every name (the name itself where it has none), or None if none has."""
    if not labels or not any(name in labels for name in names):
        return None
    return Names.from_strings([labels.get(name, name) for name in names])


def labels_of(
    number: int, names: Names, labels: Names | None, all_labels: AllLabels | None
) -> list[Label]:
    """Return every label of an id, the one to show first; none if it has only a name."""
    found = [] if all_labels is None else all_labels.of_id(number)
    if found or labels is None or labels[number] == names[number]:
        return found
    return [Label(labels[number])]
