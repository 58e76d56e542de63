"""From distances to probabilities, by what became of validation queries.

A validation query has answers that need a missing edge, and a model ranks all entities that the
smaller graph does not give. Among those at about the same distance, the share that are answers is
the probability; a monotone curve through those shares (isotonic regression) gives it for any
distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from betae.errors import InvalidArgument
from betae.evaluation.ranks import distances_of
from betae.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.queries.files import QuerySet
from betae.queries.sample import sample_queries
from betae.queries.structures import EPFO, NEGATION, STRUCTURES

QUERIES = 100  # of each structure
BINS = 400  # of distances, each with as many true answers as the others
SUREST = 0.999  # a prediction is never certain
Floats = NDArray[np.float64]
Chunk = tuple[NDArray[np.float32], NDArray[np.bool_]]


@dataclass(frozen=True)
class Calibration:
    """A falling curve through (distance, probability) points, straight between them."""

    distances: list[float]
    probabilities: list[float]

    def __call__(self, distances: NDArray[np.float32]) -> Floats:
        """Return the probability of being an answer at each distance."""
        return np.minimum(np.interp(distances, self.distances, self.probabilities), SUREST)


def calibrate(
    model: QueryModel, graph: KnowledgeGraph, table: torch.Tensor, seed: int = 0
) -> Calibration:
    """Fit the curve on validation queries of all structures that the model can do."""
    names = [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])]
    if not len(graph.splits["valid"]):
        raise InvalidArgument(
            "Probabilities are fitted on validation edges, and the graph has none: "
            "ingest it with --valid 0.05, say."
        )
    queries = sample_queries(graph, dict.fromkeys(names, QUERIES), "valid", seed=seed + 2)
    queries = queries.within(model.num_entities, model.num_relations)
    if not len(queries):
        raise InvalidArgument("The validation edges give no queries to fit probabilities on.")
    return fit(lambda: gather(model, table, queries))


def gather(model: QueryModel, table: torch.Tensor, queries: QuerySet) -> Iterator[Chunk]:
    """Yield, for each query, the distances of all entities but easy answers; which are hard."""
    for block in queries.blocks.values():
        for rows, found in distances_of(model, table, block):
            for row, of_row in zip(rows, found, strict=True):
                marks = np.zeros(len(of_row), dtype=np.bool_)
                marks[block.hard[row]] = True
                kept = np.ones(len(of_row), dtype=np.bool_)
                kept[block.easy[row]] = False
                yield of_row[kept], marks[kept]


def fit(chunks: Callable[[], Iterable[Chunk]]) -> Calibration:
    """Fit a falling curve to (distances, which are answers); goes through the chunks twice."""
    found = [distances[is_answer] for distances, is_answer in chunks()]
    of_answers = np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.float32)
    if not len(of_answers):
        raise InvalidArgument("No validation query has an answer to fit probabilities on.")
    edges = np.unique(of_answers[np.linspace(0, len(of_answers) - 1, BINS + 1).astype(int)])
    counts, answers, sums = np.zeros((3, len(edges) + 1))  # the last: beyond all answers
    for distances, is_answer in chunks():
        bins = np.searchsorted(edges, distances, side="left")
        counts += np.bincount(bins, minlength=len(counts))
        answers += np.bincount(bins, is_answer, minlength=len(counts))
        sums += np.bincount(bins, distances, minlength=len(counts))
    there = counts > 0
    shares = answers[there] / counts[there]
    curve = isotonic_regression(shares, weights=counts[there], increasing=False).x
    return Calibration((sums[there] / counts[there]).tolist(), curve.tolist())


def calibration_error(
    probabilities: Floats, is_answer: NDArray[np.bool_], bins: int = 10
) -> tuple[float, list[tuple[float, float, int]]]:
    """Return the expected calibration error, and (mean probability, share, number) of each bin."""
    places = np.minimum((probabilities * bins).astype(int), bins - 1)
    rows = []
    for place in range(bins):
        chosen = places == place
        if chosen.any():
            share = float(is_answer[chosen].mean())
            rows.append((float(probabilities[chosen].mean()), share, int(chosen.sum())))
    total = sum(number for _, _, number in rows)
    error = sum(number * abs(p - share) for p, share, number in rows) / max(1, total)
    return error, rows
