"""Found: entities in the order in which a method ranks them for a question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.answering.results import Step

Probabilities = NDArray[np.float64]


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


@dataclass(frozen=True)
class Found:
    """Entities, best first. An index finds the nearest ones only; others may stand behind them."""

    ids: NDArray[np.int64]
    probabilities: Probabilities | None  # None if the run has none
    distances: NDArray[np.float32] | None = None  # by embedding
    num_ranked: int | None = None  # how many of the first have a rank [all]
    entropy: float | None = None
    explain: Callable[[int], Step] | None = None  # entity -> its best derivation

    def without(self, ids: NDArray[Any]) -> Found:
        """Leave entities out; those behind them move up."""
        ranked = len(self.ids) if self.num_ranked is None else self.num_ranked
        if not len(ids):
            return replace(self, num_ranked=ranked)
        kept = ~are_among(self.ids, ids)
        return Found(
            self.ids[kept],
            None if self.probabilities is None else self.probabilities[kept],
            None if self.distances is None else self.distances[kept],
            int(kept[:ranked].sum()),
            self.entropy,
            self.explain,
        )


def are_among(ids: NDArray[Any], chosen: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which ids are among the chosen ones, in a quarter of the time of `np.isin`."""
    is_chosen = np.zeros(1 + max(ids.max(initial=0), chosen.max(initial=0)), dtype=bool)
    is_chosen[chosen] = True
    found: NDArray[np.bool_] = is_chosen[ids]
    return found
