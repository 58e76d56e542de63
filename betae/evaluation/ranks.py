"""Rankers, filtered ranks and metrics.

A hard answer is ranked against all entities that are not answers, easy or hard: its rank is one
plus the number of those that are closer. A tie counts half, so a model that scores all entities
alike gets the middle rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from betae import parallel
from betae.evaluation.results import Method, RankMetrics
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, Group, embed_queries, score_blocks
from betae.queries.ast import And, Or, Project, Query, nodes
from betae.queries.rewrite import UnionForm, normal_form
from betae.queries.structures import columns_of
from betae.querysets.query_set import QueryBlock

Doubles = NDArray[np.float64]
Scored = tuple[NDArray[np.int64], NDArray[np.float32]]  # rows of a block, their distances
FREQUENCY_BATCH = 256  # queries ranked together by the baseline
EMBED_BATCH = 2048  # queries embedded together; distances are computed in smaller blocks


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
                column = entity - first
                if 0 <= column < num_entities and not is_answer[column]:
                    is_answer[column] = True
                    answers[count] = column
                    count += 1
        of_answers = distances[row][answers[:count]]
        for i in range(hard_offsets[row], hard_offsets[row + 1]):
            closer, ties = _count(distances[row], limits[i])
            closer_answers, tied_answers = _count(of_answers, limits[i])
            counts[i] = closer - closer_answers + (ties - tied_answers) / 2
        is_answer[answers[:count]] = False


@njit(nogil=True, cache=True)
def _count(distances, limit):  # type: ignore[no-untyped-def]
    """Return the numbers of distances below a limit and equal to it.

    NaN counts as infinite: a model that has diverged must not look good.
    """
    closer, ties = 0, 0
    if not limit < np.inf:
        for i in range(len(distances)):
            closer += distances[i] < np.inf
        return closer, len(distances) - closer
    for i in range(len(distances)):  # by index, so that the compiler vectorises it
        closer += distances[i] < limit
        ties += distances[i] == limit
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
    """Return the indices of the hard answers inside a slice of the entities, and their distances.

    `distances` (num_queries, n) are those of the entities `first` to `first + n - 1`.
    """
    queries = np.repeat(np.arange(len(block)), block.hard.lengths)
    columns = block.hard.values.astype(np.int64) - first
    inside = np.flatnonzero((columns >= 0) & (columns < distances.shape[1]))
    return inside, distances[queries[inside], columns[inside]]


def count_closer(
    distances: NDArray[np.float32], first: int, block: QueryBlock, limits: NDArray[np.float32]
) -> Doubles:
    """Count the entities of a slice that are closer than each hard answer, answers left out.

    `limits` are the distances of the hard answers; ties count half.
    """

    easy, hard = block.easy, block.hard
    counts = np.empty(len(hard.values))

    def run(bounds: tuple[int, int]) -> None:
        start, stop = bounds
        _count_rows(
            distances[start:stop],
            first,
            easy.offsets[start : stop + 1],
            easy.values,
            hard.offsets[start : stop + 1],
            hard.values,
            limits,
            counts,
        )

    bounds = np.linspace(0, len(block), parallel.num_threads() + 1, dtype=np.int64)
    parallel.map_in_threads(run, pairwise(bounds.tolist()))
    return counts


class Ranker(Protocol):
    """Scores every entity for every query: one method of answering, ready to be evaluated."""

    method: Method

    @property
    def models(self) -> Sequence[QueryModel]:
        """The models that it scores with; uncertainty is measured for the first."""
        ...

    @property
    def predictors(self) -> Sequence[str]:
        """The names of what it scores with: models, rules."""
        ...

    def can(self, structure: Query) -> bool:
        """Tell whether queries of this structure can be scored."""
        ...

    def union_forms(self, structure: Query) -> Sequence[UnionForm]:
        """Return the forms of the structure's unions that may rank entities differently."""
        ...

    def score(self, block: QueryBlock, union: UnionForm) -> Iterator[Scored]:
        """Yield rows of the block, in order, with their distances, (n, num_entities)."""
        ...


class EmbeddingRanker:
    """Ranks entities by their distance from the embedded query, as in the paper."""

    method: Method = "embedding"

    def __init__(self, model: QueryModel):
        self.models = [model.eval()]
        self.predictors = [model.name]

    @cached_property
    def table(self) -> torch.Tensor:
        """The table of all entities."""
        with torch.no_grad():
            return self.models[0].table()

    def can(self, structure: Query) -> bool:
        """Tell whether the model has the operators of the structure."""
        return self.models[0].can(structure)

    def union_forms(self, structure: Query) -> Sequence[UnionForm]:
        """Return both forms for a model with complements; a De Morgan form as it is written."""
        if _has_union(structure):
            return ("DNF", "DM") if self.models[0].has_complement else ("DNF",)
        return ("DM",) if _has_union(normal_form(structure)) else ("DNF",)

    def score(self, block: QueryBlock, union: UnionForm = "DNF") -> Iterator[Scored]:
        """Yield rows of the block, in order, with their distances, (n, num_entities)."""
        (model,) = self.models
        with torch.no_grad():
            for rows, embedded in embed_block(model, block, union):
                for part, distances in score_blocks(model, embedded, self.table):
                    yield rows[part], distances.float().cpu().numpy()


def _has_union(structure: Query) -> bool:
    return any(isinstance(node, Or) for node in nodes(structure))


def embed_block(
    model: QueryModel, block: QueryBlock, union: UnionForm = "DNF"
) -> Iterator[tuple[NDArray[np.int64], Embedded]]:
    """Yield rows of a block, in order, with their embeddings."""
    for start in range(0, len(block), EMBED_BATCH):
        rows = np.arange(start, min(start + EMBED_BATCH, len(block)))
        yield rows, embed_queries(model, [as_group(block, rows)], union)


def as_group(block: QueryBlock, rows: NDArray[np.int64]) -> Group:
    """Return some queries of a block as a group for the executor."""
    symbols = torch.from_numpy(block.symbols[rows]).long()
    return Group(block.structure, symbols, torch.arange(len(rows)))


def rank_block(ranker: Ranker, block: QueryBlock, union: UnionForm = "DNF") -> Doubles:
    """Return the rank of every hard answer of a block, in the order of `block.hard.values`."""
    pieces = [
        rank_rows(distances, block.take(rows)) for rows, distances in ranker.score(block, union)
    ]
    return np.concatenate([np.empty(0), *pieces])


def per_query(values: Doubles, offsets: NDArray[np.int64]) -> Doubles:
    """Return the mean of the values of each query."""
    return np.add.reduceat(values, offsets[:-1]) / np.diff(offsets)


def summarise(ranks: Doubles, offsets: NDArray[np.int64]) -> RankMetrics:
    """Compute metrics from the ranks of all hard answers."""

    def percent(values: Doubles) -> float:
        return 100 * float(per_query(values, offsets).mean())

    one, three, ten = (percent((ranks <= k).astype(np.float64)) for k in (1, 3, 10))
    return RankMetrics(percent(1 / ranks), one, three, ten, len(offsets) - 1)


# ---- the frequency baseline ---------------------------------------------------------------------


def rank_by_frequency(graph: KnowledgeGraph, block: QueryBlock) -> Doubles:
    """Return the rank of every hard answer of a block by the frequency baseline.

    An entity is ranked by how often it is the tail of the query's last relation in training; for an
    intersection or a union, the counts of all their last relations are added. Nothing else of the
    query counts, and complements are ignored.
    """
    from scipy import sparse  # slow to import

    heads, relations, tails = graph.written_ids["train"].T
    directed = np.concatenate([2 * relations, 2 * relations + 1])
    ends = np.concatenate([tails, heads])
    shape = (graph.num_relations, graph.num_entities)
    counts = sparse.csr_array((np.ones(len(ends), np.float32), (directed, ends)), shape)
    symbols = columns_of(block.structure).expand(block.symbols)
    last = _last_relations(normal_form(block.structure))
    pieces = [np.empty(0)]
    for start in range(0, len(block), FREQUENCY_BATCH):
        rows = np.arange(start, min(start + FREQUENCY_BATCH, len(block)))
        distances = np.zeros((len(rows), graph.num_entities), dtype=np.float32)
        for column in last:
            distances -= counts[symbols[rows, column]].toarray()
        pieces.append(rank_rows(distances, block.take(rows)))
    return np.concatenate(pieces)


def _last_relations(query: Query) -> list[int]:
    match query:
        case Project(_, relation):
            return [int(relation)]
        case And() | Or():
            return [column for operand in query.operands for column in _last_relations(operand)]
    return []
