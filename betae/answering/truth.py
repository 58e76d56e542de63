"""Truth values: evaluate queries over the completed graph.

    V(entity a)     = 1 at a, else 0
    V(condition)    = 1 where it is known to hold, else 0
    V(project r)(x) = `together` of V(h) p(h, r, x)         over the sources h
    V(and)          = `both` of the operands, times the complements and conditions among them
    V(or)           = 1 - product of complements            noisy-or
    V(not)          = 1 - V

Branches count as independent; sources (see `together`) and conditions on one entity (see `both`) do
not. Queries are simplified first (see `identities`), so what is said twice counts once, and nothing
is both in a set and in its complement. With probabilities of 0 and 1 the values are the exact
answers. Operands are combined in the order given: another order changes values by rounding only,
about 1e-7.

`best_derivations` takes the best source and the best branch instead of the noisy-or, which explains
why an entity is an answer.

Missing edges are followed from the `num_sources` most promising sources of a projection, known
edges from all. A derivation that is left out has at most the truth of its source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae import parallel
from betae.answering.completed import CompletedGraph
from betae.answering.edges import Floats
from betae.answering.identities import apply_identities
from betae.answering.sparse import RowCache, follow_rows
from betae.exact.answers import check_symbols
from betae.exact.kernels import AdjacencyArrays
from betae.graph.edges import Ids
from betae.queries.ast import And, Condition, Entity, Not, Project, Query
from betae.queries.structures import by_structure, fill

SOURCES = 16  # of a projection, whose missing edges are followed
NEGLIGIBLE = 1e-3  # missing edges of sources of a smaller truth are not followed
INDEPENDENCE = 0.05  # of the conditions on an entity, from 0 to 1: see `both`
OTHERS = 0.1  # what all sources but the best can add to an entity's truth: see `together`
VALUES_PER_BATCH = 2**21  # truth values of a node


@dataclass
class TruthTree:
    """Truth values of every node of a batch of queries of one structure."""

    structure: Query  # its names are columns of the symbols
    symbols: Ids  # (num_queries, num_symbols)
    nodes: dict[Query, Floats] = field(default_factory=dict)  # (num_queries, num_entities)
    sources: dict[Query, NDArray[np.int64]] = field(default_factory=dict)  # tried, by projection

    @property
    def root(self) -> Floats:
        """The truth values of the whole query."""
        return self.nodes[self.structure]

    def of_query(self, row: int) -> TruthTree:
        """Return the tree of one of the queries alone."""
        one = slice(row, row + 1)
        return TruthTree(
            self.structure,
            self.symbols[one],
            {node: values[one] for node, values in self.nodes.items()},
            {node: sources[one] for node, sources in self.sources.items()},
        )


def truth_trees(
    completed: CompletedGraph, queries: Sequence[Query], num_sources: int = SOURCES
) -> Iterator[tuple[NDArray[np.int64], TruthTree]]:
    """Evaluate queries of ids; yield the positions of some of one structure, and their tree.

    The root includes what the embedding of the whole query adds: see `adjust_by_embedding`.
    """
    batch = queries_per_batch(completed)
    for structure, ids, positions in by_structure([*map(apply_identities, queries)]):
        symbols = ids.astype(np.int32)
        check_symbols(structure, symbols, completed.num_entities)
        for start in range(0, len(positions), batch):
            rows = slice(start, start + batch)
            tree = _evaluate(completed, structure, symbols[rows], num_sources)
            yield positions[rows], tree


def queries_per_batch(completed: CompletedGraph) -> int:
    """Return how many queries to evaluate together."""
    return min(128, max(8, VALUES_PER_BATCH // completed.num_entities))


def _evaluate(
    completed: CompletedGraph, structure: Query, symbols: Ids, num_sources: int
) -> TruthTree:
    tree = TruthTree(fill(structure, range(symbols.shape[1])), symbols)
    values = _Evaluator(completed, tree, num_sources).visit(tree.structure)
    if completed.probabilities.weights.whole is not None:
        from betae.answering.whole import adjust_by_embedding  # imports torch

        values = adjust_by_embedding(completed.probabilities, values, structure, symbols)
        tree.nodes[tree.structure] = values
    return tree


def best_derivations(completed: CompletedGraph, tree: TruthTree) -> TruthTree:
    """Return the truth of each entity's best derivation, from the sources that were tried.

    Complements keep their values: a negated set must not be reached from any source.
    """
    best = TruthTree(tree.structure, tree.symbols, sources=tree.sources)
    best.nodes |= {node: values for node, values in tree.nodes.items() if isinstance(node, Not)}
    _Evaluator(completed, best, SOURCES, is_best=True).visit(best.structure)
    return best


class _Evaluator:
    """Fills a tree with truth values."""

    def __init__(
        self, completed: CompletedGraph, tree: TruthTree, num_sources: int, is_best: bool = False
    ):
        self.graph, self.tree = completed, tree
        self.num_sources, self.is_best = num_sources, is_best
        self.arrays = AdjacencyArrays.of(completed.adjacency)
        self.num_queries, self.num_entities = len(tree.symbols), completed.num_entities

    def visit(self, node: Query) -> Floats:
        """Return the truth values of a node, computed once, (num_queries, num_entities)."""
        if node not in self.tree.nodes:
            match node:
                case Entity(column):
                    found = np.zeros((self.num_queries, self.num_entities), dtype=np.float32)
                    found[np.arange(self.num_queries), self.tree.symbols[:, int(column)]] = 1
                case Condition():
                    found = np.zeros((self.num_queries, self.num_entities), dtype=np.float32)
                    found[:, node.ids] = 1
                case Project():
                    found = self._project(node)
                case Not(operand):
                    found = 1 - self.visit(operand)
                case _:
                    found = self._and_or(node)
            self.tree.nodes[node] = found
        return self.tree.nodes[node]

    def _and_or(self, node: Query) -> Floats:
        """Combine the operands, complements and conditions last."""
        operands = sorted(node.operands, key=is_factor)
        values, *others = map(self.visit, operands)
        for operand, other in zip(operands[1:], others, strict=True):
            if not isinstance(node, And):
                values = (np.maximum if self.is_best else either)(values, other)
            elif is_factor(operand):
                values = values * other
            else:
                values = both(values, other)
        return values

    # ---- projection -----------------------------------------------------------------------------

    def _relations(self, node: Project) -> Ids:
        return self.tree.symbols[:, int(node.relation)]

    def _project(self, node: Project) -> Floats:
        relations = self._relations(node)
        values = np.zeros((self.num_queries, self.num_entities), dtype=np.float32)
        if isinstance(node.operand, Entity):  # the only source; its row has known edges, too
            sources = self.tree.symbols[:, [int(node.operand.name)]].astype(np.int64)
            self.tree.sources[node] = sources
            self._follow(_best_edge, sources, np.ones(sources.shape, np.float32), relations, values)
            return values
        self._by_sources(node, self.is_best, values)
        if not self.is_best:
            best = np.zeros_like(values)
            self._by_sources(node, True, best)
            parallel.in_threads(_together, best, values)
        return values

    def _by_sources(self, node: Project, is_best: bool, values: Floats) -> None:
        """Raise the values, all zero, to the best source of each entity or the noisy-or of all."""
        relations, of_operand = self._relations(node), self.visit(node.operand)
        if node not in self.tree.sources:
            self.tree.sources[node] = self._choose_sources(of_operand, relations)
        sources = self.tree.sources[node]
        truth = np.take_along_axis(of_operand, np.maximum(sources, 0), axis=1)  # -1 is skipped
        kernel = _best_edge if is_best else _any_missing_edge
        self._follow(kernel, sources, truth, relations, values)
        follow_known = partial(_known_edges, self.arrays, is_best)
        parallel.in_threads(follow_known, of_operand, relations, values)

    def _choose_sources(self, values: Floats, relations: Ids) -> NDArray[np.int64]:
        """Return the most promising sources of each query, (num_queries, n); -1 is none."""
        count = min(self.num_sources, self.num_entities)
        sources = np.full((self.num_queries, count), -1, dtype=np.int64)

        def choose(row: int) -> None:
            likely = np.flatnonzero(values[row] >= NEGLIGIBLE)
            worth = values[row][likely] * self.graph.promise(likely, int(relations[row]))
            if count < len(likely):
                likely = likely[np.argpartition(-worth, count - 1)[:count]]
            sources[row, : len(likely)] = likely

        parallel.map_in_threads(choose, range(self.num_queries))
        return sources

    def _follow(
        self,
        kernel: Callable[..., None],
        sources: NDArray[np.int64],
        truth: Floats,
        relations: Ids,
        values: Floats,
    ) -> None:
        """Raise the values, all zero, by the edges of the chosen sources, whose truth is given."""
        if self.graph.sparse is not None:
            best = kernel is _best_edge
            self._follow_sparse(self.graph.sparse, best, sources, truth, relations, values)
            return
        width = min(sources.shape[1], self.graph.capacity)
        batch = self.graph.capacity // width  # so that all rows of a batch fit into the cache
        for start in range(0, self.num_queries, batch):
            queries = slice(start, start + batch)
            for first in range(0, sources.shape[1], width):
                block = queries, slice(first, first + width)
                rows, slots = self._rows(sources[block], relations[queries])
                of_block = np.ascontiguousarray(truth[block])
                parallel.in_threads(partial(kernel, rows), slots, of_block, values[queries])

    def _follow_sparse(
        self,
        cache: RowCache,
        best: bool,
        sources: NDArray[np.int64],
        truth: Floats,
        relations: Ids,
        values: Floats,
    ) -> None:
        """Do the same by sparse rows, computed together."""
        queries, columns = np.nonzero(sources >= 0)
        if not len(queries):
            return
        heads, n = sources[queries, columns], self.num_entities
        keys = relations[queries].astype(np.int64) * n + heads
        distinct, inverse = np.unique(keys, return_inverse=True)
        rows = cache.rows(distinct % n, distinct // n)
        classes = {r: cache.probabilities.classes(r) for r in np.unique(relations).tolist()}

        def follow(query: int) -> None:
            chosen = np.flatnonzero(queries == query)
            if len(chosen):
                of_query = [rows[i] for i in inverse[chosen].tolist()]
                of_sources = truth[query, columns[chosen]]
                relation = int(relations[query])
                follow_rows(of_query, classes[relation], of_sources, values[query], best)

        parallel.map_in_threads(follow, range(self.num_queries))

    def _rows(self, sources: NDArray[np.int64], relations: Ids) -> tuple[Floats, NDArray[np.int64]]:
        """Return rows of probabilities, and the index of the row of each source; -1 is none."""
        heads, n = sources.ravel(), self.num_entities
        keys = np.repeat(relations.astype(np.int64), sources.shape[1]) * n + heads
        distinct, inverse = np.unique(keys[heads >= 0], return_inverse=True)
        rows, found = self.graph.rows(distinct % n, distinct // n)
        slots = np.full(sources.shape, -1, dtype=np.int64)
        slots[sources >= 0] = found[inverse]
        return rows, slots


def is_factor(operand: Query) -> bool:
    """Whether an operand of an intersection multiplies the truth of the others."""
    return isinstance(operand, Not | Condition)


def both(one: Any, other: Any) -> Any:
    """Return the truth of two conditions on one entity, by the copula of Ali, Mikhail and Haq.

    Conditions on one entity are positively correlated, so the product would be too small. The
    copula is the product for an INDEPENDENCE of 1, larger below it, and `one` if `other` is 1.
    https://doi.org/10.1016/0047-259X(78)90063-5
    """
    product = one * other
    return product / (INDEPENDENCE + (1 - INDEPENDENCE) * (one + other - product))


def either(one: Any, other: Any) -> Any:
    """Return the noisy-or 1 - (1 - one) (1 - other), without cancellation for small values."""
    return one + other * (1 - one)


def together(chances: Sequence[float]) -> float:
    """Return the truth of an entity by derivations through different sources.

    The best one counts in full. The others, which often rest on the same missing edge, make up for
    at most a share OTHERS of what is left; while they are unlikely, this is the noisy-or. Without
    the limit, an entity that many unlikely paths lead to would be all but certain.
    """
    best = max(chances)
    left = math.prod(1 - chance for chance in chances)
    if best == 0 or best == 1:
        return best
    added = -math.log(left / (1 - best)) if left else math.inf
    return 1 - (1 - best) * (1 + OTHERS * math.expm1(-added / OTHERS))


# ---- kernels: noisy-or over the sources, or the best source alone -------------------------------


@njit(nogil=True, cache=True, fastmath={"nnan", "ninf", "nsz"}, error_model="numpy")
def _any_missing_edge(rows, slots, truth, values):  # type: ignore[no-untyped-def]
    for query in range(len(slots)):
        of_query = values[query]
        for i in range(slots.shape[1]):
            if slots[query, i] >= 0:
                row, factor = rows[slots[query, i]], truth[query, i]
                for t in range(len(of_query)):
                    chance = factor * row[t] if row[t] < 1 else np.float32(0)
                    of_query[t] += chance * (1 - of_query[t])


@njit(nogil=True, cache=True)
def _together(best, values):  # type: ignore[no-untyped-def]
    """Replace the noisy-or of all sources: see `together`."""
    for query in range(len(values)):
        for t in range(values.shape[1]):
            first, all_ = best[query, t], values[query, t]
            if 0 < first < all_ and first < 1:
                added = np.log1p(-first) - np.log1p(-all_)
                values[query, t] = 1 - (1 - first) * (1 + OTHERS * np.expm1(-added / OTHERS))


@njit(nogil=True, cache=True, fastmath={"nnan", "ninf", "nsz"}, error_model="numpy")
def _best_edge(rows, slots, truth, values):  # type: ignore[no-untyped-def]
    for query in range(len(slots)):
        of_query = values[query]
        for i in range(slots.shape[1]):
            if slots[query, i] >= 0:
                row, factor = rows[slots[query, i]], truth[query, i]
                for t in range(len(of_query)):
                    of_query[t] = max(of_query[t], factor * row[t])


@njit(nogil=True, cache=True)
def _known_edges(adjacency, is_best, sources, relations, values):  # type: ignore[no-untyped-def]
    for query in range(len(sources)):
        relation, of_query = relations[query], values[query]
        if relation + 1 >= len(adjacency.relation_offsets):
            continue
        first, last = adjacency.relation_offsets[relation], adjacency.relation_offsets[relation + 1]
        for i in range(first, last):
            truth = sources[query, adjacency.relation_heads[i]]
            if truth > 0:
                pair = adjacency.relation_pairs[i]
                for j in range(adjacency.tail_offsets[pair], adjacency.tail_offsets[pair + 1]):
                    value = of_query[adjacency.tails[j]]
                    if is_best or truth == 1:
                        of_query[adjacency.tails[j]] = max(value, truth)
                    else:
                        of_query[adjacency.tails[j]] += truth * (1 - value)
