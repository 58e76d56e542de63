"""Truth values: a query evaluated over the completed graph.

    V(entity a)     = 1 at a, else 0
    V(project r)(x) = 1 - prod_h (1 - V(h) p(h, r, x))
    V(and) = `both` of the conditions, times the complements among them
    V(or) = 1 - product of complements     V(not) = 1 - V

So an entity is reached if it is reached from any source, or by any branch of a union: they count as
independent. Conditions on one entity do not. `best_derivations` takes the best source and the best
branch alone, the largest of V(h) p(h, r, x): why an entity is an answer.

Complements are moved inward first, to entities and projections. What occurs twice counts once, and
an operand beside its own complement decides: V(a & a) = V(a), V(a & !a) = 0 and V(a | !a) = 1,
however uncertain a is. With probabilities of 0 and 1 these are the exact answers.

Of the sources h of a projection, the missing edges of the `num_sources` most promising ones are
tried, and the known edges of all. So a derivation by a missing edge of a source that was not tried
is left out; alone it would have had a truth of at most that source's, and `Truth.bound` is the
largest of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae import parallel
from betae.answering.completed import CompletedGraph
from betae.answering.edges import Floats
from betae.exact.answers import check_symbols
from betae.exact.kernels import AdjacencyArrays
from betae.graph.edges import Ids
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.queries.structures import columns_of, fill, structure_of

SOURCES = 16  # of a projection, of which missing edges are tried
NEGLIGIBLE = 1e-3  # sources of a smaller truth are not tried
INDEPENDENCE = 0.05  # of the conditions on an entity, from 0 to 1: see `both`


@dataclass(frozen=True)
class Truth:
    """The truth values of a node of a query, for each of some queries."""

    values: Floats  # (num_queries, num_entities)
    bound: Floats  # (num_queries,): no derivation that was left out had a larger truth


@dataclass
class Evaluation:
    """Queries of one structure, evaluated: the truth values of every node."""

    structure: Query  # with columns of the symbols for names
    symbols: Ids  # (num_queries, num_symbols)
    nodes: dict[Query, Truth] = field(default_factory=dict)
    sources: dict[Query, NDArray[np.int64]] = field(default_factory=dict)  # of a projection, tried

    @property
    def root(self) -> Truth:
        """The truth values of the whole query."""
        return self.nodes[self.structure]

    def of_query(self, row: int) -> Evaluation:
        """Return the evaluation of one of the queries alone."""
        one = slice(row, row + 1)
        return Evaluation(
            self.structure,
            self.symbols[one],
            {node: Truth(it.values[one], it.bound[one]) for node, it in self.nodes.items()},
            {node: sources[one] for node, sources in self.sources.items()},
        )


def evaluate(
    graph: CompletedGraph, structure: Query, symbols: Ids, num_sources: int = SOURCES
) -> Evaluation:
    """Evaluate queries of one structure, given by their symbols (num_queries, num_symbols).

    Their truth values are in memory at once, for each node (num_queries, num_entities). Those of
    the whole query have what its embedding adds: see `whole`.
    """
    check_symbols(structure, symbols, graph.num_entities)
    columns = columns_of(structure)
    tree = negations_inward(fill(columns.structure, range(len(columns.names))))
    work = Evaluation(tree, columns.expand(symbols))
    found = _Evaluator(graph, work, num_sources).visit(tree)
    if graph.whole is not None:
        work.nodes[tree] = replace(
            found, values=graph.whole.add_to(found.values, structure, symbols)
        )
    return work


def best_derivations(graph: CompletedGraph, work: Evaluation) -> Evaluation:
    """Return the truth of each entity's best derivation alone, from the sources that were tried.

    Complements stay as they are: what is negated must not be reached from any source.
    """
    best = Evaluation(work.structure, work.symbols, sources=work.sources)
    best.nodes.update((node, it) for node, it in work.nodes.items() if isinstance(node, Not))
    _Evaluator(graph, best, SOURCES, is_best=True).visit(best.structure)
    return best


def negations_inward(query: Query) -> Query:
    """Return the same query with complements of entities and projections only."""
    match query:
        case Not(Not(operand)):
            return negations_inward(operand)
        case Not(And() as inner):
            return Or(*(negations_inward(Not(operand)) for operand in inner.operands))
        case Not(Or() as inner):
            return And(*(negations_inward(Not(operand)) for operand in inner.operands))
        case Entity():
            return query
    return query.with_operands(*map(negations_inward, query.operands))


class _Evaluator:
    def __init__(
        self, graph: CompletedGraph, work: Evaluation, num_sources: int, is_best: bool = False
    ):
        self.graph, self.work, self.num_sources, self.is_best = graph, work, num_sources, is_best
        self.arrays = AdjacencyArrays.of(graph.adjacency)
        self.num_queries, self.num_entities = len(work.symbols), graph.num_entities

    def visit(self, node: Query) -> Truth:
        """Return the truth values of a node, once those of its operands are there."""
        if node in self.work.nodes:
            return self.work.nodes[node]
        match node:
            case Entity(column):
                found = self._entity(int(column))
            case Project(operand, column):
                found = self._project(node, operand, self.work.symbols[:, int(column)])
            case Not(operand):
                of = self.visit(operand)
                found = Truth(1 - of.values, of.bound)
            case _:
                found = self._and_or(node)
        self.work.nodes[node] = found
        return found

    def _entity(self, column: int) -> Truth:
        values = np.zeros((self.num_queries, self.num_entities), dtype=np.float32)
        values[np.arange(self.num_queries), self.work.symbols[:, column]] = 1
        return Truth(values, np.zeros(self.num_queries, dtype=np.float32))

    def _and_or(self, node: Query) -> Truth:
        """Combine the operands, complements last; one that is another once more adds nothing."""
        is_and = isinstance(node, And)
        operands = sorted(node.operands, key=lambda operand: isinstance(operand, Not))
        parts = [self.visit(operand) for operand in operands]
        either = np.maximum if self.is_best else _either
        values = parts[0].values
        for place in range(1, len(parts)):
            beside = np.multiply if isinstance(operands[place], Not) else both
            joined = (beside if is_and else either)(values, parts[place].values)
            is_again = self._are_equal_to_any(operands[place], operands[:place])
            values = np.where(is_again[:, None], values, joined) if is_again.any() else joined
        for operand in operands:
            if isinstance(operand, Not) and (is_and or not self.is_best):
                values[self._are_equal_to_any(operand.operand, operands)] = not is_and
        return Truth(values, np.maximum.reduce([part.bound for part in parts]))

    def _are_equal_to_any(self, query: Query, others: Sequence[Query]) -> NDArray[np.bool_]:
        found = [self._are_equal(query, other) for other in others]
        return np.asarray(np.any(found, axis=0))

    def _are_equal(self, left: Query, right: Query) -> NDArray[np.bool_]:
        """Tell for each query whether two nodes are the same once the symbols are filled in."""
        (shape, mine), (other, its) = structure_of(left), structure_of(right)
        if shape != other:
            return np.zeros(self.num_queries, dtype=bool)
        symbols = self.work.symbols
        return np.asarray((symbols[:, mine] == symbols[:, its]).all(axis=1))

    # ---- projection -----------------------------------------------------------------------------

    def _project(self, node: Query, operand: Query, relations: Ids) -> Truth:
        values = np.zeros((self.num_queries, self.num_entities), dtype=np.float32)
        if isinstance(operand, Entity):  # a single source, all of whose edges are in its row
            sources = self.work.symbols[:, [int(operand.name)]].astype(np.int64)
            self.work.sources[node] = sources
            self._follow(_best_edge, sources, np.ones(sources.shape, np.float32), relations, values)
            return Truth(values, np.zeros(self.num_queries, dtype=np.float32))
        before = self.visit(operand)
        if node not in self.work.sources:
            self.work.sources[node] = self._choose_sources(before.values, relations)
        sources = self.work.sources[node]
        truth, left_out = _split(before.values, sources)
        by_rows = _best_edge if self.is_best else _any_missing
        self._follow(by_rows, sources, truth, relations, values)
        self._follow_known(before.values, relations, values)
        return Truth(values, np.maximum(left_out, before.bound))

    def _choose_sources(self, values: Floats, relations: Ids) -> NDArray[np.int64]:
        """Return the sources of each query to try; the rest of a row is -1 if few are worth it."""
        number = min(self.num_sources, self.num_entities)
        promise = {r: self.graph.promise(r) for r in np.unique(relations).tolist()}
        sources = np.empty((self.num_queries, number), dtype=np.int64)

        def choose(row: int) -> None:
            worth = values[row] * promise[int(relations[row])]
            best = np.argpartition(-worth, number - 1)[:number]
            sources[row] = np.where(values[row][best] >= NEGLIGIBLE, best, -1)

        parallel.map_in_threads(choose, range(self.num_queries))
        return sources

    def _follow(
        self,
        by_rows: Callable[..., None],
        sources: NDArray[np.int64],
        truth: Floats,
        relations: Ids,
        values: Floats,
    ) -> None:
        """Raise the values to what the edges of the chosen sources give."""
        width = min(sources.shape[1], self.graph.capacity)
        at_once = self.graph.capacity // width  # so that all rows of a block fit into the cache
        for start in range(0, self.num_queries, at_once):
            some = slice(start, start + at_once)
            for first in range(0, sources.shape[1], width):
                block = some, slice(first, first + width)
                rows, slots = self._rows(sources[block], relations[some])
                parallel.in_threads(
                    partial(by_rows, rows), slots, np.ascontiguousarray(truth[block]), values[some]
                )

    def _rows(self, sources: NDArray[np.int64], relations: Ids) -> tuple[Floats, NDArray[np.int64]]:
        """Return an array of rows, and which of them is that of each source; -1 is none."""
        heads, number = sources.ravel(), self.num_entities
        keys = np.repeat(relations.astype(np.int64), sources.shape[1]) * number + heads
        distinct, places = np.unique(keys[heads >= 0], return_inverse=True)
        rows, found = self.graph.rows(distinct % number, distinct // number)
        slots = np.full(sources.shape, -1, dtype=np.int64)
        slots[sources >= 0] = found[places]
        return rows, slots

    def _follow_known(self, before: Floats, relations: Ids, values: Floats) -> None:
        """Raise the values to what the known edges of all sources give."""

        def follow(before: Floats, relations: Ids, values: Floats) -> None:
            _by_known(self.arrays, before, relations, values, self.is_best)

        parallel.in_threads(follow, before, relations, values)


def both(one: Any, other: Any) -> Any:
    """Return the truth of two conditions on one entity, which tend to hold or fail together.

    An entity that probably meets one condition is of the kind that meets the other, so their
    product, the truth of independent ones, would be too small. This is the copula of Ali, Mikhail
    and Haq: the product for an INDEPENDENCE of 1, larger below it, and `one` if `other` is certain.
    """
    product = one * other
    return product / (INDEPENDENCE + (1 - INDEPENDENCE) * (one + other - product))


def _either(one: Floats, other: Floats) -> Floats:
    """Return 1 - (1 - one) (1 - other), as exact for small values as for large ones."""
    return one + other * (1 - one)


def _split(values: Floats, sources: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the truth of the chosen sources, 0 where there is none, and the most of any other."""
    others = values.copy()
    truth = np.where(sources >= 0, np.take_along_axis(values, np.maximum(sources, 0), axis=1), 0)
    for row, chosen in enumerate(sources):
        others[row, chosen[chosen >= 0]] = 0
    return truth, others.max(axis=1, initial=0)


# Any source, as in `_either`, or the best one alone.


@njit(nogil=True, cache=True, fastmath={"nnan", "ninf", "nsz"}, error_model="numpy")
def _any_missing(rows, slots, truth, values):  # type: ignore[no-untyped-def]
    for query in range(len(slots)):
        of_query = values[query]
        for place in range(slots.shape[1]):
            if slots[query, place] >= 0:
                row, factor = rows[slots[query, place]], truth[query, place]
                for t in range(len(of_query)):
                    chance = factor * row[t] if row[t] < 1 else np.float32(0)
                    of_query[t] += chance * (1 - of_query[t])


@njit(nogil=True, cache=True, fastmath={"nnan", "ninf", "nsz"}, error_model="numpy")
def _best_edge(rows, slots, truth, values):  # type: ignore[no-untyped-def]
    for query in range(len(slots)):
        of_query = values[query]
        for place in range(slots.shape[1]):
            if slots[query, place] >= 0:
                row, factor = rows[slots[query, place]], truth[query, place]
                for t in range(len(of_query)):
                    of_query[t] = max(of_query[t], factor * row[t])


@njit(nogil=True, cache=True)
def _by_known(adjacency, before, relations, values, is_best):  # type: ignore[no-untyped-def]
    for query in range(len(before)):
        relation, of_query = relations[query], values[query]
        if relation + 1 >= len(adjacency.relation_offsets):
            continue
        first, last = adjacency.relation_offsets[relation], adjacency.relation_offsets[relation + 1]
        for i in range(first, last):
            truth = before[query, adjacency.relation_heads[i]]
            if truth > 0:
                pair = adjacency.relation_pairs[i]
                for j in range(adjacency.tail_offsets[pair], adjacency.tail_offsets[pair + 1]):
                    value = of_query[adjacency.tails[j]]
                    if is_best or truth == 1:
                        of_query[adjacency.tails[j]] = max(value, truth)
                    else:
                        of_query[adjacency.tails[j]] += truth * (1 - value)
