"""Calibration: from distances and ranks to probabilities, fitted on validation queries.

Among entities at about the same distance and rank, the share of answers is the probability. Ranks
fall into a few classes, and each class has a falling curve of the share over the distance, fitted
by isotonic regression. Distance alone would not do: the same distance means different things in
different queries, above all for the nearest entities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from betae.answering.results import MAX_PREDICTED
from betae.errors import InvalidArgument
from betae.evaluation.ranks import Doubles, EmbeddingRanker
from betae.models.base import QueryModel
from betae.querysets.query_set import QuerySet

LAST_RANKS = (1, 3, 10, 30, 100, 1000)  # of the classes; one more class holds all ranks beyond
BINS = 50  # of distances in a class, with equally many true answers
Curve = tuple[list[float], list[float]]  # distances, ascending, and probabilities, falling


class Candidates(NamedTuple):
    """Entities of one query: distances, and a mask of answers."""

    distances: NDArray[np.float32]
    is_answer: NDArray[np.bool_]
    represents: Doubles | None = None  # number of entities that each represents [one]


def candidates_of(model: QueryModel, queries: QuerySet) -> Iterator[Candidates]:
    """Yield all entities of each query except easy answers; the hard ones are the answers."""
    ranker = EmbeddingRanker(model)
    for block in queries.blocks.values():
        for rows, found in ranker.score(block):
            for row, distances in zip(rows, found, strict=True):
                is_answer = np.zeros(len(distances), dtype=np.bool_)
                is_answer[block.hard[row]] = True
                easy = block.easy[row]
                yield Candidates(np.delete(distances, easy), np.delete(is_answer, easy))


@dataclass(frozen=True)
class Calibration:
    """For each class of ranks a falling curve, linear between its points."""

    curves: tuple[Curve, ...]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Calibration:
        """Check and build the curves; raises ValueError if they are not probabilities."""
        curves = tuple(map(_checked_curve, content["curves"]))
        if len(curves) != len(LAST_RANKS) + 1:
            raise ValueError("it does not have a curve for each class")
        return cls(curves)

    def at(self, distances: NDArray[np.float32], ranks: NDArray[np.int64]) -> Doubles:
        """Return the probabilities at distances and ascending ranks, from 1."""
        pieces = np.split(distances, np.searchsorted(ranks, LAST_RANKS, side="right"))
        curves = zip(pieces, self.curves, strict=True)
        found: list[Doubles] = [np.empty(0)]
        found += [np.interp(piece, *curve) for piece, curve in curves if len(piece)]
        return np.minimum(np.concatenate(found), MAX_PREDICTED)

    def __call__(
        self, distances: NDArray[np.float32], is_known: NDArray[np.bool_] | None = None
    ) -> Doubles:
        """Return the probabilities of all entities of a query: 1 if known, and falling by rank."""
        order = np.argsort(distances, kind="stable")
        if is_known is not None:
            order = order[~is_known[order]]
        probabilities = np.ones(len(distances))
        found = self.at(distances[order], np.arange(1, len(order) + 1))
        probabilities[order] = np.minimum.accumulate(found)
        return probabilities


def fit_curves(read: Callable[[], Iterable[Candidates]]) -> Calibration:
    """Fit a curve for each class of ranks to the candidates of many queries, which are read twice.

    The bins of a class have equally many answers each; one more is beyond all answers.
    """
    num_classes = len(LAST_RANKS) + 1
    of_answers: list[list[NDArray[np.float32]]] = [[] for _ in range(num_classes)]
    for distances, is_answer, represents in read():
        classes = _classes(distances, represents)[is_answer]
        for i in np.unique(classes).tolist():
            of_answers[i].append(distances[is_answer][classes == i])
    if not any(of_answers):
        raise InvalidArgument("No validation query has an answer to fit probabilities on.")
    edges = []
    for pieces in of_answers:
        ordered = np.sort(np.concatenate(pieces)) if pieces else np.zeros(1, np.float32)
        quantiles = np.linspace(0, len(ordered) - 1, BINS + 1).astype(int)
        edges.append(np.unique(ordered[quantiles]))
    counts, answers, sums = np.zeros((3, num_classes, BINS + 2))  # sums of distances
    for distances, is_answer, represents in read():
        classes = _classes(distances, represents)
        weights = np.ones(len(distances)) if represents is None else represents
        columns = (counts, weights), (answers, weights * is_answer), (sums, weights * distances)
        for i in np.unique(classes).tolist():
            of_class = classes == i
            bins = np.searchsorted(edges[i], distances[of_class], side="left")
            for totals, values in columns:
                totals[i] += np.bincount(bins, values[of_class], minlength=BINS + 2)
    return Calibration(tuple(map(_curve, counts, answers, sums)))


def _classes(distances: NDArray[np.float32], represents: Doubles | None) -> NDArray[np.int64]:
    """Return the class of the rank of every entity of a query."""
    ranks, order = np.empty(len(distances)), np.argsort(distances, kind="stable")
    ranks[order] = np.arange(1, len(order) + 1)
    if represents is not None:
        ranks[order] = np.cumsum(represents[order])
    return np.searchsorted(LAST_RANKS, ranks)


def _curve(counts: Doubles, answers: Doubles, sums: Doubles) -> Curve:
    """Return the mean distance and the smoothed share of answers of each bin."""
    from scipy.optimize import isotonic_regression  # slow to import, and needed once per run

    is_filled = counts > 0
    if not is_filled.any():
        return [0.0], [0.0]
    counts, answers, sums = counts[is_filled], answers[is_filled], sums[is_filled]
    shares = isotonic_regression(answers / counts, weights=counts, increasing=False).x
    return (sums / counts).tolist(), shares.tolist()


def _checked_curve(curve: Any) -> Curve:
    points = np.array(curve, dtype=float)
    if points.ndim != 2 or not points.size or not np.isfinite(points).all():
        raise ValueError("it holds no curve")
    if (np.diff(points[0]) < 0).any() or (points[1] < 0).any() or (points[1] > 1).any():
        raise ValueError("it holds no curve of probabilities")
    distances, probabilities = points.tolist()
    return distances, probabilities
