"""Rows of entities that satisfy a formula: several variables, cycles, paths of any length.

The conjuncts are put in an order, cheapest first; each then filters the rows that the ones before
it left, or extends them, piece by piece, so that rows come out long before all are found. A
variable that nothing needs any more is dropped, and what is left is made distinct before it goes
on. A negation or a disjunction is solved for the values that its variables have so far.

Every variable ranges over the entities of the graph, and a negation is that of first-order logic:
a row stays if the negated part does not hold for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.errors import UnsupportedQuery
from betae.exact.tables import (
    CHUNK,
    UNIT,
    Pairs,
    Table,
    concatenate,
    extend,
    is_in,
    join,
)
from betae.graph.edges import EDGES, Edges
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import PLACEHOLDER, Entity, Name
from betae.queries.formula import (
    Atom,
    Conjunction,
    Disjunction,
    Equals,
    Exists,
    Formula,
    Negation,
    Question,
    Reach,
    Term,
    Variable,
    flatten,
    fresh,
    walk,
)
from betae.queries.names import entity_id, relation_id
from betae.queries.structures import unfilled

MAX_NESTED = 60  # negations and disjunctions within one another; Python limits nested calls
MANY = 64  # sources of a path from which on all its steps are found at once
GUESS = 50.0  # how many entities a path leads to from one
Variables = frozenset[Variable]


@dataclass(frozen=True)
class Everything:
    """A step that binds a variable to every entity."""

    variable: Variable


Step = Formula | Everything


class Joins:
    """Find the rows of formulas on some edges of a graph."""

    def __init__(self, graph: KnowledgeGraph, edges: Edges):
        self.graph, self.num_entities = graph, graph.num_entities
        self.splits = [graph.splits[split] for split in EDGES[edges]]
        self.relations: dict[int, Pairs] = {}

    def rows(self, question: Question) -> Iterator[Table]:
        """Yield the rows of a question, each once, piece by piece."""
        formula = question.scoped(unroll=False)
        return self._solve([formula], UNIT, frozenset(question.variables))

    def check(self, question: Question) -> None:
        """Raise if a name is not in the graph, or the formula is wrong or nested too deeply."""
        for part, depth in walk(question.scoped(unroll=False)):
            if depth > MAX_NESTED:
                raise UnsupportedQuery(
                    f"This question has more than {MAX_NESTED} negations, disjunctions or paths "
                    "within one another: ask for a part of it first."
                )
            terms: list[Term] = []
            match part:
                case Atom(relation, head, tail):
                    terms = [head, tail]
                    _check_filled(relation)
                    relation_id(relation, self.graph)
                case Equals(_, other):
                    terms = [other]
                case Reach(_, head, tail):
                    terms = [head, tail]
            for term in terms:
                if isinstance(term, Entity):
                    _check_filled(term.name)
                    entity_id(term.name, self.graph)

    def pairs(self, relation: Name) -> Pairs:
        """Return the edges of a directed relation."""
        number = relation_id(relation, self.graph)
        if number not in self.relations:
            of_it = [split[split[:, 1] == number // 2] for split in self.splits]
            heads, _, tails = np.concatenate(of_it).T
            forward = Pairs(heads, tails, self.num_entities)
            self.relations[number & ~1] = forward
            self.relations[number | 1] = forward.inverse
        return self.relations[number]

    # ---- a conjunction --------------------------------------------------------------------------

    def _solve(
        self, conjuncts: Sequence[Formula], given: Table, wanted: Variables
    ) -> Iterator[Table]:
        """Yield each row of `wanted` once that extends one of `given` so that all conjuncts hold.

        The rows of `given` are distinct, and `wanted` includes its columns.
        """
        steps = self._order(flatten(conjuncts), frozenset(given.columns), wanted)
        later = [wanted]  # the variables that are needed after each step
        for step in reversed(steps[1:]):
            later.append(later[-1] | _binds(step))
        bound, table, start = frozenset(given.columns), given, 0
        for place, (step, needed) in enumerate(zip(steps, reversed(later), strict=False)):
            bound |= _binds(step)
            if bound - needed:
                bound &= needed
                table = self._gather(self._run(steps[start : place + 1], table), bound)
                start = place + 1
        yield from self._run(steps[start:], table)

    def _run(self, steps: Sequence[Step], table: Table) -> Iterator[Table]:
        """Yield what the steps make of a table, depth first, so that pieces come out early."""
        running = [table.pieces()]
        while running:
            piece = next(running[-1], None)
            if piece is None:
                running.pop()
            elif len(running) > len(steps):
                yield piece
            else:
                running.append(self._apply(steps[len(running) - 1], piece))

    def _gather(self, pieces: Iterator[Table], variables: Variables) -> Table:
        """Return all rows, each once, of these columns."""
        order = _sorted(variables)
        empty = Table(0, {variable: np.empty(0, dtype=np.int32) for variable in order})
        found, waiting = empty, [empty]
        size = 0
        for piece in pieces:
            waiting.append(piece.keep(order).distinct(self.num_entities))
            size += waiting[-1].size
            if size > max(16 * CHUNK, found.size):
                found = concatenate([found, *waiting]).distinct(self.num_entities)
                waiting, size = [empty], 0
        return concatenate([found, *waiting]).distinct(self.num_entities)

    def _order(self, conjuncts: list[Formula], bound: Variables, wanted: Variables) -> list[Step]:
        """Return the conjuncts in the order in which to take them, with what binds the rest."""
        steps: list[Step] = []
        left = list(conjuncts)
        costs: dict[tuple[int, Variables], float] = {}

        def cost(conjunct: Formula) -> float:
            key = id(conjunct), conjunct.free & bound
            if key not in costs:
                costs[key] = self._cost(conjunct, bound)
            return costs[key]

        while left:
            step = min(left, key=cost)
            left = [conjunct for conjunct in left if conjunct is not step]
            if isinstance(step, Negation):
                steps += [Everything(variable) for variable in _sorted(step.free - bound)]
            elif isinstance(step, Equals) and step.other in step.free and not step.free & bound:
                steps.append(Everything(step.variable))
            steps.append(step)
            bound |= step.free
        return [*steps, *(Everything(variable) for variable in _sorted(wanted - bound))]

    def _cost(self, step: Formula, bound: Variables) -> float:
        """Guess how many rows a conjunct makes of one."""
        match step:
            case Equals(variable, other):
                free = isinstance(other, Variable) and not {variable, other} & bound
                return self.num_entities if free else 0.0
            case Atom(relation, head, tail):
                return self._cost_of_atom(self.pairs(relation), head, tail, bound)
            case Reach(_, head, tail):
                ends = sum(isinstance(end, Entity) or end in bound for end in (head, tail))
                return (float(self.num_entities) * GUESS, GUESS, 0.8)[ends]
            case Conjunction(parts):
                return min(self._cost(part, bound) for part in parts) if parts else 0.0
            case Disjunction(parts):
                return sum(self._cost(part, bound) for part in parts) + 0.7
            case Exists(_, part):
                return self._cost(part, bound)
            case Negation():
                return 0.9 if step.free <= bound else 1e9 * self.num_entities

    def _cost_of_atom(self, pairs: Pairs, head: Term, tail: Term, bound: Variables) -> float:
        is_head, is_tail = (isinstance(end, Entity) or end in bound for end in (head, tail))
        if is_head and is_tail:
            return 0.1
        if not is_head and not is_tail:
            return float(len(pairs))
        if is_tail:
            pairs, head = pairs.inverse, tail
        if isinstance(head, Entity):
            first, last = pairs.tails_of(np.array([entity_id(head.name, self.graph)]))
            return float(last[0] - first[0])
        return len(pairs) / max(pairs.num_heads, 1)

    # ---- a step ---------------------------------------------------------------------------------

    def _apply(self, step: Step, table: Table) -> Iterator[Table]:
        """Yield the rows of a table, filtered or extended by a step."""
        match step:
            case Everything(variable):
                everything = np.arange(self.num_entities, dtype=np.int32)
                none = np.zeros(table.size, dtype=np.int64)
                yield from extend(table, none, none + self.num_entities, {variable: everything})
            case Equals(variable, other):
                yield from self._equate(table, variable, other)
            case Atom(relation, head, tail):
                yield from self._follow(self.pairs(relation), head, tail, table)
            case Reach(_, head, tail):
                yield from self._follow(self._reached(step, table), head, tail, table)
            case Negation(part):
                holds = self._nested([part], table, step.free)
                yield table.take(~is_in(table, holds, self.num_entities))
            case Disjunction(parts):
                branches = [self._nested([part], table, step.free) for part in parts]
                either = concatenate(branches).distinct(self.num_entities)
                yield from join(table, either, self.num_entities)

    def _nested(self, conjuncts: Sequence[Formula], table: Table, wanted: Variables) -> Table:
        given = table.keep(_sorted(wanted)).distinct(self.num_entities)
        return self._gather(self._solve(conjuncts, given, wanted), wanted)

    def _value(self, term: Term, table: Table) -> NDArray[Any] | None:
        """Return the ids that a term has in each row, or None if it is not bound."""
        if isinstance(term, Entity):
            return np.full(table.size, entity_id(term.name, self.graph), dtype=np.int32)
        return table.columns.get(term)

    def _equate(self, table: Table, variable: Variable, other: Term) -> Iterator[Table]:
        one, two = self._value(variable, table), self._value(other, table)
        if one is not None and two is not None:
            yield table.take(one == two)
        elif two is not None:
            yield Table(table.size, {**table.columns, variable: two})
        elif one is not None and isinstance(other, Variable):
            yield Table(table.size, {**table.columns, other: one})

    def _follow(self, pairs: Pairs, head: Term, tail: Term, table: Table) -> Iterator[Table]:
        """Yield the rows that have an edge from head to tail, with the end that was not bound."""
        heads, tails = self._value(head, table), self._value(tail, table)
        if heads is not None and tails is not None:
            yield table.take(pairs.has(heads, tails))
        elif heads is not None and isinstance(tail, Variable):
            yield from extend(table, *pairs.tails_of(heads), {tail: pairs.tails})
        elif tails is not None and isinstance(head, Variable):
            backward = pairs.inverse
            yield from extend(table, *backward.tails_of(tails), {head: backward.tails})
        elif isinstance(head, Variable) and isinstance(tail, Variable):
            added = {head: pairs.heads, tail: pairs.tails}
            if head == tail:
                added = {head: pairs.heads[pairs.heads == pairs.tails]}
            none = np.zeros(table.size, dtype=np.int64)
            yield from extend(table, none, none + len(added[head]), added)

    # ---- paths of any length --------------------------------------------------------------------

    def _reached(self, path: Reach, table: Table) -> Pairs:
        """Return the ends of all paths from the heads, or to the tails, that a table has."""
        start, stop = fresh("start"), fresh("stop")
        sources = self._value(path.head, table)
        if is_backward := sources is None:
            sources, start, stop = self._value(path.tail, table), stop, start
        formula = path.step(stop, start) if is_backward else path.step(start, stop)
        if sources is None:
            sources = np.arange(self.num_entities, dtype=np.int32)
        sources = np.unique(sources).astype(np.int32)

        def steps_from(nodes: NDArray[Any] | None) -> Pairs:
            ends = frozenset([start, stop])
            known = UNIT if nodes is None else Table(len(nodes), {start: nodes})
            found = self._gather(self._solve([formula], known, ends), ends)
            return Pairs(found.columns[start], found.columns[stop], self.num_entities)

        all_steps = steps_from(None) if len(sources) > MANY else None
        frontier = Pairs(sources, sources, self.num_entities)
        found = frontier.keys if path.least == 0 else frontier.keys[:0]
        hops = 0
        while len(frontier) and (path.most is None or hops < path.most):
            hops += 1
            steps = steps_from(np.unique(frontier.tails)) if all_steps is None else all_steps
            first, last = steps.tails_of(frontier.tails)
            origin, end = fresh("origin"), fresh("end")
            old = Table(len(frontier), {origin: frontier.heads})
            keys = [
                Pairs(piece.columns[origin], piece.columns[end], self.num_entities).keys
                for piece in extend(old, first, last, {end: steps.tails})
            ]
            new = np.setdiff1d(np.unique(np.concatenate([found[:0], *keys])), found)
            found = np.union1d(found, new)
            heads, tails = np.divmod(new, self.num_entities)
            frontier = Pairs(heads, tails, self.num_entities)
        heads, tails = np.divmod(found, self.num_entities)
        reached = Pairs(heads, tails, self.num_entities)
        return reached.inverse if is_backward else reached


def _binds(step: Step) -> Variables:
    return frozenset([step.variable]) if isinstance(step, Everything) else step.free


def _sorted(variables: Variables) -> list[Variable]:
    return sorted(variables, key=lambda variable: (variable.name, variable.scope))


def _check_filled(name: Name) -> None:
    if name == PLACEHOLDER:
        raise unfilled()
