"""Found: entities in the order in which a method ranks them for a question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.answering.results import Step

Probabilities = NDArray[np.float64]
SUREST = 1 - 1e-6  # what is not a fact is never certain


def ascending(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the places of values in ascending order; of equal ones, the first comes first.

    A float and its place become one integer, since NumPy sorts those several times as fast as it
    finds a stable order.
    """
    bits = (values + np.float32(0)).view(np.int32).astype(np.int64)  # there is one zero then
    bits ^= (bits >> 31) & 0x7FFFFFFF  # those of negative numbers run the other way
    keys = (bits << 32) | np.arange(len(values))
    keys.sort()
    places: NDArray[np.int64] = keys & 0xFFFFFFFF
    return places


def first(values: NDArray[np.float32], number: int, also: NDArray[Any]) -> NDArray[np.int64]:
    """Return the places of the smallest values, at least a number, and those of `also`.

    They are in ascending order, as by `ascending`, but most values are never sorted.
    """
    if number + len(also) >= len(values):
        return ascending(values)
    is_chosen = values <= np.partition(values, number - 1)[number - 1]
    is_chosen[also] = True
    places = np.flatnonzero(is_chosen)
    return places[ascending(values[places])]


@dataclass(frozen=True)
class Found:
    """Entities, best first. Others may stand behind them, and between the last known ones."""

    ids: NDArray[np.int64]
    probabilities: Probabilities | None  # None if the run has none
    distances: NDArray[np.float32] | None = None  # by embedding
    num_ranked: int | None = None  # how many of the first have a rank [all]
    entropy: float | None = None
    explain: Callable[[int], Step] | None = None  # entity -> its best derivation
    rank_behind: Callable[[int], int | None] | None = None  # entity -> its rank, if not so
    rest: float = 0.0  # the sum of the probabilities of all that are not here, or an estimate of it

    def without(self, ids: NDArray[Any]) -> Found:
        """Leave entities out; those behind them move up."""
        ranked = len(self.ids) if self.num_ranked is None else self.num_ranked
        if not len(ids):
            return replace(self, num_ranked=ranked)
        kept = ~are_among(self.ids, ids)
        return replace(
            self,
            ids=self.ids[kept],
            probabilities=None if self.probabilities is None else self.probabilities[kept],
            distances=None if self.distances is None else self.distances[kept],
            num_ranked=int(kept[:ranked].sum()),
        )


def are_among(ids: NDArray[Any], chosen: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which ids are among the chosen ones, in a quarter of the time of `np.isin`."""
    is_chosen = np.zeros(1 + max(ids.max(initial=0), chosen.max(initial=0)), dtype=bool)
    is_chosen[chosen] = True
    found: NDArray[np.bool_] = is_chosen[ids]
    return found
