"""From distances to probabilities, fitted on validation queries.

A validation query has answers that need a missing edge, and a model ranks all entities that the
smaller graph does not entail. Among those at about the same distance and rank, the share that are
answers is the probability. Ranks fall into a few classes, each with a monotone curve through the
shares at its distances (isotonic regression). Distance alone would not do: the same distance means
different things in different queries, above all for the nearest entities.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.by_index import CANDIDATES, IndexSearch
from betae.answering.ranking import are_among
from betae.errors import InvalidArgument, StoreError
from betae.evaluation.ranks import distances_of
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, embed_queries
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import sample_queries
from betae.search.nearest import nearest_of_all
from betae.storage import writing_file

QUERIES = 100  # of each structure
LAST_RANKS = (1, 3, 10, 30, 100, 1000)  # of the classes; one more holds all ranks beyond
BINS = 50  # of distances in a class, with equally many true answers
SUREST = 0.999  # a prediction is never certain
Probabilities = NDArray[np.float64]
Curve = tuple[list[float], list[float]]  # distances, ascending, and probabilities, falling


class Chunk(NamedTuple):
    """Entities of one query: their distances, and which are answers."""

    distances: NDArray[np.float32]
    is_answer: NDArray[np.bool_]
    weights: NDArray[np.float64] | None = None  # how many entities each stands for [one]


@dataclass(frozen=True)
class Calibration:
    """For each class of ranks a falling curve, straight between its points."""

    curves: tuple[Curve, ...]

    def at(self, distances: NDArray[np.float32], ranks: NDArray[np.int64]) -> Probabilities:
        """Return the probability of being an answer at distances and ascending ranks from 1."""
        probabilities = np.empty(len(ranks))
        ends = [*np.searchsorted(ranks, LAST_RANKS, side="right"), len(ranks)]
        for start, end, curve in zip([0, *ends], ends, self.curves, strict=False):
            probabilities[start:end] = np.interp(distances[start:end], *curve)
        return np.minimum(probabilities, SUREST)

    def __call__(
        self, distances: NDArray[np.float32], is_known: NDArray[np.bool_] | None = None
    ) -> Probabilities:
        """Return the probabilities of all entities of a query: 1 for known ones, never rising."""
        known = np.zeros(len(distances), dtype=bool) if is_known is None else is_known
        unknown = np.flatnonzero(~known)
        order = unknown[np.argsort(distances[unknown], kind="stable")]
        probabilities = np.ones(len(distances))
        found = self.at(distances[order], np.arange(1, len(order) + 1))
        probabilities[order] = np.minimum.accumulate(found)
        return probabilities

    def sum_behind(self, distances: NDArray[np.float32], most: float) -> float:
        """Return the sum of the probabilities of entities behind all of `LAST_RANKS`, in any order.

        None is above `most`, the probability of the last one before them.
        """
        found = np.interp(distances, *self.curves[-1])
        return float(np.minimum(found, min(most, SUREST)).sum())


def calibrate(
    model: QueryModel,
    graph: KnowledgeGraph,
    search: IndexSearch | None = None,
    seed: int = 0,
) -> Calibration:
    """Fit the curves on validation queries of all structures that the model can do.

    With an index, to the nearest entities and a sample that stands for all others.
    """
    names = [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])]
    if not len(graph.splits["valid"]):
        raise InvalidArgument(
            "Probabilities are fitted on validation edges, and the graph has none: "
            "ingest it with --valid 0.05, say."
        )
    queries = sample_queries(
        graph, dict.fromkeys(names, QUERIES), "valid", seed=seed, purpose="calibration"
    )
    queries = queries.within(model.num_entities, model.num_relations)
    if not len(queries):
        raise InvalidArgument("The validation edges give no queries to fit probabilities on.")
    if search is not None:
        chunks = [*gather_by_index(search, queries)]
        return fit(lambda: chunks)
    with torch.no_grad():
        table = model.table()
    return fit(lambda: gather(model, table, queries))


def gather(model: QueryModel, table: torch.Tensor, queries: QuerySet) -> Iterator[Chunk]:
    """Yield for each query the distances of all entities but easy answers, and which are hard."""
    for block in queries.blocks.values():
        for rows, found in distances_of(model, table, block):
            for row, of_row in zip(rows, found, strict=True):
                marks = np.zeros(len(of_row), dtype=np.bool_)
                marks[block.hard[row]] = True
                kept = np.ones(len(of_row), dtype=np.bool_)
                kept[block.easy[row]] = False
                yield Chunk(of_row[kept], marks[kept])


def gather_by_index(search: IndexSearch, queries: QuerySet) -> Iterator[Chunk]:
    """Yield as `gather` does the nearest entities, and a sample of all others.

    The nearest ones of all queries come from one pass over all entities, exactly: the index, which
    finds nearly the same, would be searched for each query by itself and take far longer.
    """
    with torch.no_grad():
        embedded = embed_queries(search.model, [query for query, _, _ in queries])
    nearest = nearest_of_all(search.model, embedded, CANDIDATES)
    of_queries = zip(queries, embedded.rows_by_query(), *nearest, strict=True)
    for (_, easy, hard), rows, distances, ids in of_queries:
        one = Embedded(embedded.sets[rows], torch.zeros_like(rows), 1)
        found = search.with_known(one, (distances, ids), hard).without(easy)
        assert found.distances is not None
        others, stands_for = search.others(one, np.union1d(found.ids, easy))
        yield Chunk(
            np.concatenate([found.distances, others]),
            np.concatenate([are_among(found.ids, hard), np.zeros(len(others), bool)]),
            np.concatenate([np.ones(len(found.ids)), np.full(len(others), stands_for)]),
        )


def fit(chunks: Callable[[], Iterable[Chunk]]) -> Calibration:
    """Fit the curves to (distances, which are answers) of some queries, read twice."""
    number = len(LAST_RANKS) + 1
    found: list[list[NDArray[np.float32]]] = [[] for _ in range(number)]
    for distances, is_answer, weights in chunks():
        classes = _classes(distances, weights)[is_answer]
        for place in np.unique(classes).tolist():
            found[place].append(distances[is_answer][classes == place])
    if not any(found):
        raise InvalidArgument("No validation query has an answer to fit probabilities on.")
    edges = []
    for pieces in found:
        of_answers = np.sort(np.concatenate(pieces)) if pieces else np.zeros(1, np.float32)
        quantiles = np.linspace(0, len(of_answers) - 1, BINS + 1).astype(int)
        edges.append(np.unique(of_answers[quantiles]))
    sums = np.zeros((number, 3, BINS + 2))  # entities, answers, distances; the last: beyond all
    for distances, is_answer, weights in chunks():
        classes = _classes(distances, weights)
        weights = np.ones(len(distances)) if weights is None else weights
        for place in range(min(number, int(classes.max(initial=-1)) + 1)):
            chosen = classes == place
            bins = np.searchsorted(edges[place], distances[chosen], side="left")
            for row, values in enumerate((1.0, is_answer[chosen], distances[chosen])):
                weighted = weights[chosen] * values
                sums[place, row] += np.bincount(bins, weighted, minlength=BINS + 2)
    return Calibration(tuple(_curve(*rows) for rows in sums))


def _classes(
    distances: NDArray[np.float32], weights: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    """Return the class of every entity of a query, by its rank."""
    ranks, order = np.empty(len(distances)), np.argsort(distances, kind="stable")
    ranks[order] = np.arange(1, len(order) + 1) if weights is None else np.cumsum(weights[order])
    return np.searchsorted(LAST_RANKS, ranks)


def _curve(
    counts: NDArray[np.float64], answers: NDArray[np.float64], sums: NDArray[np.float64]
) -> Curve:
    from scipy.optimize import isotonic_regression  # slow to import, and needed once per run

    there = counts > 0
    if not there.any():
        return [0.0], [0.0]
    counts, answers, sums = counts[there], answers[there], sums[there]
    shares = isotonic_regression(answers / counts, weights=counts, increasing=False).x
    return (sums / counts).tolist(), shares.tolist()


def write_calibration(calibration: Calibration, path: Path, model: str) -> None:
    """Write what was fitted for a model, named by its folder."""
    with writing_file(path) as partial:
        content = {"model": model, "curves": calibration.curves}
        partial.write_text(json.dumps(content), encoding="utf-8")


def read_calibration(path: Path, model: str) -> Calibration | None:
    """Read what was fitted for this model, if anything was."""
    if not path.is_file():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["model"] != model:
            return None
        curves = tuple(map(_checked_curve, content["curves"]))
        if len(curves) != len(LAST_RANKS) + 1:
            raise ValueError("it does not have a curve for each class")
        return Calibration(curves)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path} is damaged ({error}): delete it, and it is fitted again."
        ) from error


def _checked_curve(curve: Any) -> Curve:
    points = np.array(curve, dtype=float)
    if points.ndim != 2 or not points.size or not np.isfinite(points).all():
        raise ValueError("it holds no curve")
    if (np.diff(points[0]) < 0).any() or (points[1] < 0).any() or (points[1] > 1).any():
        raise ValueError("it holds no curve of probabilities")
    distances, probabilities = points.tolist()
    return distances, probabilities


def calibration_error(
    probabilities: Probabilities, is_answer: NDArray[np.bool_], bins: int = 10
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
