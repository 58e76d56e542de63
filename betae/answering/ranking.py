"""Ranking: entities in the order of their distances from a query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ranking:
    """Entities, nearest first, behind those that have no embedding and so no distance.

    An index finds the nearest entities only. Others may be added, but have no rank, since how many
    it has missed before them is not known.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.float32]  # NaN for those without an embedding
    num_apart: int = 0  # without an embedding
    num_ranked: int = 0  # that follow them and have a rank

    @classmethod
    def of(cls, ids: NDArray[np.int64], distances: NDArray[np.float32]) -> Ranking:
        """Return the ranking of entities that were searched for; an id of -1 stands for none."""
        is_found = ids >= 0
        return cls(ids[is_found], distances[is_found], 0, int(is_found.sum()))

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, ids: NDArray[Any]) -> Ranking:
        """Leave entities out; those behind them move up."""
        is_kept = ~np.isin(self.ids, ids)
        first, last = self.num_apart, self.num_apart + self.num_ranked
        return Ranking(
            self.ids[is_kept],
            self.distances[is_kept],
            int(is_kept[:first].sum()),
            int(is_kept[first:last].sum()),
        )

    def with_missed(self, ids: NDArray[Any], distances: NDArray[np.float32]) -> Ranking:
        """Put entities that an index has missed where their distances belong."""
        farthest = self.distances.max(initial=-np.inf)
        all_ids = np.concatenate([self.ids, ids])
        all_distances = np.concatenate([self.distances, distances])
        order = np.lexsort((all_ids, all_distances))
        num_ranked = int((all_distances <= farthest).sum())
        return replace(
            self, ids=all_ids[order], distances=all_distances[order], num_ranked=num_ranked
        )

    def with_known(self, known: NDArray[Any]) -> Ranking:
        """Put known answers that are not there, since they have no embedding, before all others."""
        apart = np.setdiff1d(known, self.ids)
        return Ranking(
            np.concatenate([apart, self.ids]),
            np.concatenate([np.full(len(apart), np.nan, np.float32), self.distances]),
            self.num_apart + len(apart),
            self.num_ranked,
        )

    def rank(self, place: int) -> int | None:
        """Return the rank (from 1) of the entity at a place, if it has one."""
        rank = place - self.num_apart + 1
        return rank if 1 <= rank <= self.num_ranked else None

    def score(self, place: int) -> float | None:
        """Return the distance, negated, of the entity at a place, if it has one."""
        return None if place < self.num_apart else -float(self.distances[place])


NOTHING = Ranking(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
