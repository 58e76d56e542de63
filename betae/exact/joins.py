"""Rows of entities that satisfy a formula: several variables, cycles, negations of rows.

This evaluates one question in NumPy; `answers` evaluates many trees with compiled loops. There are
two since a single question should not wait for numba to load and compile, and since a tree can do
without rows. SPARQL, with its paths of any length, is evaluated by pyoxigraph instead.

The conjuncts are ordered by estimated cost. Each then filters the rows so far, or extends them,
piece by piece, so that the first rows come out long before all are found. A variable that nothing
needs any more is dropped, and the remaining rows are made distinct. A negation or a disjunction is
solved for the current values of its variables.

Every variable ranges over the entities of the graph, and a negation is that of first-order logic:
a row stays if the negated part does not hold for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.errors import UnsupportedQuery
from betae.graph.edges import EDGES, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Entity
from betae.queries.formula import (
    Atom,
    Disjunction,
    Equals,
    Formula,
    Meets,
    Negation,
    Question,
    Reach,
    Term,
    Variable,
    flatten,
    walk,
)

MAX_NESTED = 60  # negations and disjunctions within one another; Python limits nested calls
PIECE_ROWS = 1 << 16
MAX_KEY = 2**62
Indices = NDArray[np.int64]
VariableSet = frozenset[Variable]


class Joins:
    """Finds the rows of resolved questions on some edges of a graph."""

    def __init__(self, graph: KnowledgeGraph, edges: Edges):
        self.num_entities = graph.num_entities
        self.splits = [graph.written_ids[split] for split in EDGES[edges]]
        self.relations: dict[int, EdgePairs] = {}  # in the direction written

    def ids(self, question: Question) -> Iterator[Ids]:
        """Iterate over pieces of the distinct rows, (n, num_variables); of one variable, by id."""
        variables = question.variables
        pieces = self.rows(question)
        if len(variables) == 1:
            pieces = self._gather(pieces, frozenset(variables)).pieces()
        for piece in pieces:
            if piece.size:
                yield np.stack([piece.columns[variable] for variable in variables], axis=1)

    def rows(self, question: Question) -> Iterator[Bindings]:
        """Iterate over the distinct rows of a question, piece by piece.

        Raises now, not at the first piece, if the question is nested too deeply.
        """
        formula = question.scoped()
        assert not any(isinstance(part, Reach) for part, _ in walk(formula))
        if any(depth > MAX_NESTED for _, depth in walk(formula)):
            raise UnsupportedQuery(
                f"This question has more than {MAX_NESTED} negations or disjunctions within one "
                "another: ask for a part of it first."
            )
        return self._solve(formula, UNIT, frozenset(question.variables))

    def pairs(self, relation: int) -> EdgePairs:
        """Return the edges of a directed relation."""
        written, is_inverse = divmod(relation, 2)
        if written not in self.relations:
            found = [split[split[:, 1] == written] for split in self.splits]
            heads, _, tails = np.concatenate(found).T
            self.relations[written] = EdgePairs.of(heads, tails, self.num_entities)
        return self.relations[written].inverse if is_inverse else self.relations[written]

    # ---- a conjunction --------------------------------------------------------------------------

    def _solve(self, formula: Formula, given: Bindings, wanted: VariableSet) -> Iterator[Bindings]:
        """Iterate over the distinct rows of `wanted` that extend `given` and satisfy the formula.

        The rows of `given` are distinct, and `wanted` includes its columns.
        """
        steps = self._order(flatten([formula]), frozenset(given.columns), wanted)
        last = {variable: i for i, step in enumerate(steps) for variable in step.free}
        bound, table, start = frozenset(given.columns), given, 0
        for i, step in enumerate(steps):
            bound |= step.free
            if unneeded := {each for each in step.free if last[each] == i} - wanted:
                bound -= unneeded
                table = self._gather(self._run(steps[start : i + 1], table), bound)
                start = i + 1
        yield from self._run(steps[start:], table)

    def _run(self, steps: Sequence[Formula], table: Bindings) -> Iterator[Bindings]:
        """Apply steps to a table depth first, so that pieces come out early."""
        running = [table.pieces()]
        while running:
            piece = next(running[-1], None)
            if piece is None:
                running.pop()
            elif len(running) > len(steps):
                yield piece
            else:
                running.append(self._apply(steps[len(running) - 1], piece))

    def _gather(self, pieces: Iterator[Bindings], variables: VariableSet) -> Bindings:
        """Collect the distinct rows of these columns."""
        order = sorted(variables)
        found = Bindings(0, {variable: np.empty(0, dtype=np.int32) for variable in order})
        waiting, size = list[Bindings](), 0
        for piece in pieces:
            waiting.append(piece.keep(order).distinct(self.num_entities))
            size += waiting[-1].size
            if size > max(16 * PIECE_ROWS, found.size):
                found = concatenate([found, *waiting]).distinct(self.num_entities)
                waiting, size = [], 0
        return concatenate([found, *waiting]).distinct(self.num_entities)

    def _order(self, left: list[Formula], bound: VariableSet, wanted: VariableSet) -> list[Formula]:
        """Order the conjuncts, cheapest first; insert `v = v` for variables they leave unbound."""
        steps: list[Formula] = []
        costs: dict[tuple[int, VariableSet], float] = {}

        def cost(conjunct: Formula) -> float:
            key = id(conjunct), conjunct.free & bound
            if key not in costs:
                costs[key] = self._cost(conjunct, bound)
            return costs[key]

        while left:
            step = min(left, key=cost)
            left = [conjunct for conjunct in left if conjunct is not step]
            if isinstance(step, Negation):
                steps += [Equals(variable, variable) for variable in sorted(step.free - bound)]
            steps.append(step)
            bound |= step.free
        return [*steps, *(Equals(variable, variable) for variable in sorted(wanted - bound))]

    def _cost(self, step: Formula, bound: VariableSet) -> float:
        """Estimate how many rows a conjunct makes of one."""

        def is_known(term: Term) -> bool:
            return isinstance(term, Entity) or term in bound

        match step:
            case Equals(one, two):
                return 0.0 if is_known(one) or is_known(two) else self.num_entities
            case Atom(relation, head, tail):
                pairs = self.pairs(int(relation))
                if is_known(head) and is_known(tail):
                    return 0.1
                if is_known(tail):
                    pairs, head = pairs.inverse, tail
                if isinstance(head, Entity):
                    first, last = pairs.tails_of(np.array([int(head.name)]))
                    return float(last[0] - first[0])
                return len(pairs) / max(pairs.num_heads, 1) if head in bound else len(pairs)
            case Meets(condition, term):
                return 0.1 if is_known(term) else float(len(condition.ids))
            case Disjunction(parts):
                branches = ([self._cost(each, bound) for each in flatten([part])] for part in parts)
                return sum(min(costs, default=0.0) for costs in branches) + 0.7
        # A negation filters: its variables are bound first.
        return 0.9 if step.free <= bound else 1e9 * self.num_entities

    # ---- a step ---------------------------------------------------------------------------------

    def _apply(self, step: Formula, table: Bindings) -> Iterator[Bindings]:
        """Filter or extend the rows of a table by a step."""
        match step:
            case Equals(one, two):
                yield from self._equate(one, two, table)
            case Atom(relation, head, tail):
                yield from self._follow(self.pairs(int(relation)), head, tail, table)
            case Meets(condition, term):
                values = self._value(term, table)
                if values is not None:
                    yield table.take(np.isin(values, condition.ids))
                elif isinstance(term, Variable):
                    yield from cross(table, {term: condition.ids})
            case Negation(part):
                holds = self._nested(part, table, step.free)
                yield table.take(~is_in(table, holds, self.num_entities))
            case Disjunction(parts):
                branches = [self._nested(part, table, step.free) for part in parts]
                either = concatenate(branches).distinct(self.num_entities)
                yield from join(table, either, self.num_entities)

    def _nested(self, formula: Formula, table: Bindings, wanted: VariableSet) -> Bindings:
        given = table.keep(sorted(wanted)).distinct(self.num_entities)
        return self._gather(self._solve(formula, given, wanted), wanted)

    def _value(self, term: Term, table: Bindings) -> NDArray[Any] | None:
        """Return the ids of a term in each row, None if it is unbound."""
        if isinstance(term, Entity):
            return np.full(table.size, int(term.name), dtype=np.int32)
        return table.columns.get(term)

    def _equate(self, one: Term, two: Term, table: Bindings) -> Iterator[Bindings]:
        """Keep the rows where both are the same entity, adding the unbound ones."""
        ones, twos = self._value(one, table), self._value(two, table)
        if ones is not None and twos is not None:
            yield table.take(ones == twos)
        elif ones is not None and isinstance(two, Variable):
            yield Bindings(table.size, {**table.columns, two: ones})
        elif twos is not None:
            yield from self._equate(two, one, table)
        elif isinstance(one, Variable) and isinstance(two, Variable):
            everything = np.arange(self.num_entities, dtype=np.int32)
            yield from cross(table, {one: everything, two: everything})

    def _follow(
        self, pairs: EdgePairs, head: Term, tail: Term, table: Bindings
    ) -> Iterator[Bindings]:
        """Keep the rows with an edge from head to tail, adding the unbound ends."""
        heads, tails = self._value(head, table), self._value(tail, table)
        if heads is not None and tails is not None:
            yield table.take(pairs.has(heads, tails))
        elif heads is not None and isinstance(tail, Variable):
            yield from extend(table, *pairs.tails_of(heads), {tail: pairs.tails})
        elif tails is not None and isinstance(head, Variable):
            yield from self._follow(pairs.inverse, tail, head, table)
        elif isinstance(head, Variable) and isinstance(tail, Variable):
            added = {head: pairs.heads, tail: pairs.tails}
            if head == tail:
                added = {head: pairs.heads[pairs.heads == pairs.tails]}
            yield from cross(table, added)


# ---- bindings and edges -------------------------------------------------------------------------


@dataclass(frozen=True)
class Bindings:
    """Rows of ids: a column (size,) for each variable."""

    size: int
    columns: dict[Variable, Ids]

    def take(self, rows: NDArray[Any]) -> Bindings:
        """Select rows by index or by mask."""
        columns = {variable: ids[rows] for variable, ids in self.columns.items()}
        size = int(rows.sum()) if rows.dtype == np.bool_ else len(rows)
        return Bindings(size, columns)

    def keep(self, variables: Iterable[Variable]) -> Bindings:
        """Select columns, skipping missing ones; rows may repeat."""
        columns = {name: self.columns[name] for name in variables if name in self.columns}
        return Bindings(self.size, columns)

    def distinct(self, num_entities: int) -> Bindings:
        """Drop duplicate rows."""
        (keys,) = joint_keys([self], list(self.columns), num_entities)
        return self.take(np.unique(keys, return_index=True)[1])

    def pieces(self) -> Iterator[Bindings]:
        """Iterate over pieces of up to PIECE_ROWS rows."""
        for start in range(0, self.size, PIECE_ROWS):
            size = min(PIECE_ROWS, self.size - start)
            part = slice(start, start + size)
            yield Bindings(size, {name: ids[part] for name, ids in self.columns.items()})


UNIT = Bindings(1, {})  # one row without columns


def concatenate(tables: Sequence[Bindings]) -> Bindings:
    """Stack tables with the same columns."""
    columns = {
        variable: np.concatenate([table.columns[variable] for table in tables])
        for variable in tables[0].columns
    }
    return Bindings(sum(table.size for table in tables), columns)


def joint_keys(
    tables: Sequence[Bindings], variables: Sequence[Variable], num_entities: int
) -> list[Indices]:
    """Return an integer key per row, equal for rows that agree on the variables."""
    keys = [np.zeros(table.size, dtype=np.int64) for table in tables]
    largest = 1
    for variable in variables:
        if largest * num_entities > MAX_KEY:  # compress the keys
            ends = np.cumsum([len(key) for key in keys])[:-1]
            numbers = np.unique(np.concatenate(keys), return_inverse=True)[1]
            keys, largest = np.split(numbers, ends), len(numbers)
        keys = [
            key * num_entities + table.columns[variable]
            for key, table in zip(keys, tables, strict=True)
        ]
        largest *= num_entities
    return keys


def is_in(table: Bindings, other: Bindings, num_entities: int) -> NDArray[np.bool_]:
    """Mask of the rows of `table` that occur in `other`, on the columns of `other`."""
    keys, others = joint_keys([table, other], list(other.columns), num_entities)
    return np.isin(keys, others)


def join(table: Bindings, other: Bindings, num_entities: int) -> Iterator[Bindings]:
    """Extend the rows of `table` by all matching rows of `other` (natural join)."""
    shared = [variable for variable in other.columns if variable in table.columns]
    keys, others = joint_keys([table, other], shared, num_entities)
    order = np.argsort(others, kind="stable")
    added = {name: ids[order] for name, ids in other.columns.items() if name not in shared}
    others = others[order]
    first = np.searchsorted(others, keys, side="left")
    yield from extend(table, first, np.searchsorted(others, keys, side="right"), added)


def cross(table: Bindings, added: dict[Variable, Ids]) -> Iterator[Bindings]:
    """Extend each row by every entry of the added columns."""
    first = np.zeros(table.size, dtype=np.int64)
    return extend(table, first, first + len(next(iter(added.values()))), added)


def extend(
    table: Bindings, first: Indices, last: Indices, added: dict[Variable, Ids]
) -> Iterator[Bindings]:
    """Extend each row i by the entries first[i] to last[i] of the added columns."""
    counts = last - first
    ends = np.cumsum(counts)
    start = done = 0
    while start < table.size:
        stop = max(start + 1, int(np.searchsorted(ends, done + PIECE_ROWS, side="right")))
        size = int(ends[stop - 1]) - done
        if size:
            rows = np.repeat(np.arange(start, stop), counts[start:stop])
            entries = np.arange(size) + np.repeat(
                first[start:stop] - (ends[start:stop] - counts[start:stop] - done),
                counts[start:stop],
            )
            columns = {variable: ids[entries] for variable, ids in added.items()}
            yield Bindings(size, {**table.take(rows).columns, **columns})
        start, done = stop, int(ends[stop - 1])


class EdgePairs:
    """The edges of a relation in one direction, as sorted keys head * num_entities + tail."""

    def __init__(self, sorted_keys: Indices, num_entities: int):
        self.keys, self.num_entities = sorted_keys, num_entities
        self.heads = (sorted_keys // num_entities).astype(np.int32)
        self.tails = (sorted_keys % num_entities).astype(np.int32)

    @classmethod
    def of(cls, heads: Ids, tails: Ids, num_entities: int) -> EdgePairs:
        """Sort edges."""
        return cls(np.sort(heads.astype(np.int64) * num_entities + tails), num_entities)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def inverse(self) -> EdgePairs:
        """The same edges, from tail to head."""
        return EdgePairs.of(self.tails, self.heads, self.num_entities)

    @cached_property
    def num_heads(self) -> int:
        """Number of distinct heads."""
        return len(np.unique(self.heads))

    def tails_of(self, heads: NDArray[Any]) -> tuple[Indices, Indices]:
        """Return the start and end of each head's tails in `tails`."""
        first = np.searchsorted(self.heads, heads, side="left")
        return first, np.searchsorted(self.heads, heads, side="right")

    def has(self, heads: NDArray[Any], tails: NDArray[Any]) -> NDArray[np.bool_]:
        """Mask of (head, tail) pairs that exist."""
        wanted = heads.astype(np.int64) * self.num_entities + tails
        found = np.searchsorted(self.keys, wanted)
        found[found == len(self.keys)] = 0
        return self.keys[found] == wanted if len(self.keys) else np.zeros(len(wanted), dtype=bool)
