"""Filtered ranks by counting.

A hard answer is ranked against all entities that are no answers, easy or hard: its rank is one more
than the number of those that are closer. Entities at exactly the same distance count half, the mean
of the best and the worst order of a tie, so a model that scores everything alike looks as bad as it
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from betae.models.base import QueryModel
from betae.models.execute import Group, Union, embed_queries, score_blocks
from betae.queries.files import QueryBlock

QUERIES_AT_ONCE = 2048  # embedded together; the distances are blocked further


@njit(nogil=True, cache=True)
def _rank_rows(distances, easy_offsets, easy, hard_offsets, hard, ranks):  # type: ignore[no-untyped-def]
    num_entities = distances.shape[1]
    is_answer = np.zeros(num_entities, dtype=np.bool_)
    for row in range(len(distances)):
        row_distances = distances[row].copy()
        for entity in range(num_entities):
            if np.isnan(row_distances[entity]):  # a broken model must not look good
                row_distances[entity] = np.inf
        known = easy[easy_offsets[row] : easy_offsets[row + 1]]
        wanted = hard[hard_offsets[row] : hard_offsets[row + 1]]
        for entity in known:
            is_answer[entity] = True
        for entity in wanted:
            is_answer[entity] = True
        order = np.argsort(row_distances[wanted])
        ordered = row_distances[wanted][order]
        # closer[i]: entities between wanted answers i - 1 and i; level[i]: as far as i
        closer = np.zeros(len(wanted) + 1, dtype=np.int64)
        level = np.zeros(len(wanted) + 1, dtype=np.int64)
        for entity in range(num_entities):
            if not is_answer[entity] and row_distances[entity] <= ordered[-1]:
                place = np.searchsorted(ordered, row_distances[entity])
                if ordered[place] == row_distances[entity]:
                    level[place] += 1
                else:
                    closer[place] += 1
        before = 0
        for i in range(len(wanted)):
            before += closer[i]
            if i > 0 and ordered[i] == ordered[i - 1]:
                level[i] = level[i - 1]  # the first of equals got the count
            elif i > 0:
                before += level[i - 1]
            ranks[hard_offsets[row] - hard_offsets[0] + order[i]] = 1 + before + level[i] / 2
        for entity in known:
            is_answer[entity] = False
        for entity in wanted:
            is_answer[entity] = False


def rank_rows(distances: NDArray[np.float32], block: QueryBlock) -> NDArray[np.float64]:
    """Return the rank of every hard answer, in order, given the distances of the block's queries.

    `distances` is (num_queries, num_entities); the result is as long as `block.hard.values`.
    """
    ranks = np.empty(len(block.hard.values))
    _rank_rows(
        distances,
        block.easy.offsets,
        block.easy.values,
        block.hard.offsets,
        block.hard.values,
        ranks,
    )
    return ranks


def rank_block(
    model: QueryModel, table: torch.Tensor, block: QueryBlock, union: Union = "DNF"
) -> NDArray[np.float64]:
    """Return the rank of every hard answer of a block, in the order of `block.hard.values`."""
    pieces = [np.empty(0)]
    with torch.no_grad():
        for start in range(0, len(block), QUERIES_AT_ONCE):
            rows = np.arange(start, min(start + QUERIES_AT_ONCE, len(block)))
            symbols = torch.from_numpy(block.symbols[rows]).long()
            group = Group(block.structure, symbols, torch.arange(len(rows)))
            embedded = embed_queries(model, [group], union)
            for part, distances in score_blocks(model, embedded, table):
                pieces.append(rank_rows(distances.float().cpu().numpy(), block.take(rows[part])))
    return np.concatenate(pieces)


@dataclass(frozen=True)
class Metrics:
    """Means over the hard answers of a query, then over queries, in percent."""

    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    num_queries: int


def per_query(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of the values of each query."""
    return np.add.reduceat(values, offsets[:-1]) / np.diff(offsets)


def summarise(ranks: NDArray[np.float64], offsets: NDArray[np.int64]) -> Metrics:
    """Turn the ranks of the hard answers of some queries into metrics."""

    def percent(values: NDArray[np.float64]) -> float:
        return 100 * float(per_query(values, offsets).mean())

    one, three, ten = (percent((ranks <= k).astype(np.float64)) for k in (1, 3, 10))
    return Metrics(percent(1 / ranks), one, three, ten, len(offsets) - 1)


def mean(values: Sequence[float]) -> float:
    """Return the plain mean; NaN of nothing."""
    return float(np.mean(values)) if len(values) else float("nan")
