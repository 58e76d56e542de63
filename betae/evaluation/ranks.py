"""Filtered ranks by counting.

A hard answer is ranked against all entities that are not answers, easy or hard: its rank is one
more than the number of those that are closer. A tie counts half, the mean of its best and its worst
order, so a model that scores everything alike looks as bad as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from betae import parallel
from betae.evaluation.results import Metrics
from betae.models.base import QueryModel
from betae.models.execute import SCORES_AT_ONCE, Group, UnionForm, embed_queries, score_blocks
from betae.querysets.query_set import QueryBlock

Doubles = NDArray[np.float64]
QUERIES_AT_ONCE = 2048  # embedded together; distances are computed in smaller blocks


@njit(nogil=True, cache=True)
def _count_rows(  # type: ignore[no-untyped-def]
    distances, first, easy_offsets, easy, hard_offsets, hard, limits, counts
):
    num_entities = distances.shape[1]
    is_answer = np.zeros(num_entities, dtype=np.bool_)
    answers = np.empty(num_entities, dtype=np.int32)
    for row in range(len(distances)):
        known = easy[easy_offsets[row] : easy_offsets[row + 1]]
        wanted = hard[hard_offsets[row] : hard_offsets[row + 1]]
        count = 0
        for ids in (known, wanted):
            for entity in ids:
                place = entity - first
                if 0 <= place < num_entities and not is_answer[place]:
                    is_answer[place] = True
                    answers[count] = place
                    count += 1
        of_answers = distances[row][answers[:count]]
        for i in range(hard_offsets[row], hard_offsets[row + 1]):
            closer, ties = _count(distances[row], limits[i])
            closer_answers, tied_answers = _count(of_answers, limits[i])
            counts[i] = closer - closer_answers + (ties - tied_answers) / 2
        is_answer[answers[:count]] = False


@njit(nogil=True, cache=True)
def _count(distances, limit):  # type: ignore[no-untyped-def]
    """Return how many distances are below a limit, and how many are equal to it.

    NaN counts as infinite: a model that has diverged must not look good.
    """
    closer, ties = 0, 0
    for i in range(len(distances)):  # by index, so that the compiler vectorises it
        if distances[i] < limit:
            closer += 1
        if distances[i] == limit:
            ties += 1
    if not limit < np.inf:
        closer = 0
        for i in range(len(distances)):
            if distances[i] < np.inf:
                closer += 1
        ties = len(distances) - closer
    return closer, ties


def rank_rows(distances: NDArray[np.float32], block: QueryBlock) -> Doubles:
    """Return the rank of every hard answer, in order, given the distances of the block's queries.

    `distances` is (num_queries, num_entities); the result is as long as `block.hard.values`.
    """
    _, limits = answers_within(distances, 0, block)
    return 1 + count_closer(distances, 0, block, limits)


def answers_within(
    distances: NDArray[np.float32], first: int, block: QueryBlock
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return which hard answers are among some entities, and their distances.

    The entities are those from number `first` on; `distances` is (num_queries, num_some).
    """
    queries = np.repeat(np.arange(len(block)), block.hard.lengths)
    columns = block.hard.values.astype(np.int64) - first
    places = np.flatnonzero((columns >= 0) & (columns < distances.shape[1]))
    return places, distances[queries[places], columns[places]]


def count_closer(
    distances: NDArray[np.float32], first: int, block: QueryBlock, limits: NDArray[np.float32]
) -> Doubles:
    """Return how many of some entities are closer than each hard answer, whose distance is given.

    Answers do not count, and ties count half.
    """

    def run(rows: NDArray[np.int64]) -> Doubles:
        part = block.take(rows)
        counts = np.empty(len(part.hard.values))
        _count_rows(
            distances[rows[0] : rows[-1] + 1],
            first,
            part.easy.offsets,
            part.easy.values,
            part.hard.offsets,
            part.hard.values,
            limits[block.hard.offsets[rows[0]] : block.hard.offsets[rows[-1] + 1]],
            counts,
        )
        return counts

    parts = np.array_split(np.arange(len(block)), parallel.num_threads())
    counts = parallel.map_in_threads(run, [rows for rows in parts if len(rows)])
    return np.concatenate([np.empty(0), *counts])


def distances_of(
    model: QueryModel,
    table: torch.Tensor,
    block: QueryBlock,
    union: UnionForm = "DNF",
    scores_at_once: int = SCORES_AT_ONCE,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yield rows of a block with their distances to all entities, (n, num_entities), in order."""
    with torch.no_grad():
        for start in range(0, len(block), QUERIES_AT_ONCE):
            rows = np.arange(start, min(start + QUERIES_AT_ONCE, len(block)))
            embedded = embed_queries(model, [as_group(block, rows)], union)
            for part, distances in score_blocks(model, embedded, table, scores_at_once):
                yield rows[part], distances.float().cpu().numpy()


def as_group(block: QueryBlock, rows: NDArray[np.int64]) -> Group:
    """Return some queries of a block as the executor takes them."""
    symbols = torch.from_numpy(block.symbols[rows]).long()
    return Group(block.structure, symbols, torch.arange(len(rows)))


def rank_block(
    model: QueryModel, table: torch.Tensor, block: QueryBlock, union: UnionForm = "DNF"
) -> Doubles:
    """Return the rank of every hard answer of a block, in the order of `block.hard.values`."""
    pieces = [
        rank_rows(distances, block.take(rows))
        for rows, distances in distances_of(model, table, block, union)
    ]
    return np.concatenate([np.empty(0), *pieces])


def per_query(values: Doubles, offsets: NDArray[np.int64]) -> Doubles:
    """Return the mean of the values of each query."""
    return np.add.reduceat(values, offsets[:-1]) / np.diff(offsets)


def summarise(ranks: Doubles, offsets: NDArray[np.int64]) -> Metrics:
    """Turn the ranks of the hard answers of some queries into metrics."""

    def percent(values: Doubles) -> float:
        return 100 * float(per_query(values, offsets).mean())

    one, three, ten = (percent((ranks <= k).astype(np.float64)) for k in (1, 3, 10))
    return Metrics(percent(1 / ranks), one, three, ten, len(offsets) - 1)


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN if there are no values."""
    return float(np.mean(values)) if len(values) else float("nan")
