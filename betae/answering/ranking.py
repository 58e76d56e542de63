"""Found: entities in the order in which a method ranks them for a question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.answering.results import Step

Probabilities = NDArray[np.float64]


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
        kept = ~are_among(self.ids, ids)
        ranked = len(self.ids) if self.num_ranked is None else self.num_ranked
        return Found(
            self.ids[kept],
            None if self.probabilities is None else self.probabilities[kept],
            None if self.distances is None else self.distances[kept],
            int(kept[:ranked].sum()),
            self.entropy,
            self.explain,
        )


def are_among(ids: NDArray[Any], chosen: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which ids are among the chosen ones, without sorting either."""
    return np.isin(ids, chosen, kind="table")
