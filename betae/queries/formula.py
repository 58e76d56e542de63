"""Formulas with variables -> trees: what logic text and SPARQL have in common.

A formula says which entities satisfy it with variables; a tree computes them step by step from the
named entities. `to_tree` places each conjunct at the variable it constrains: the conjuncts that
mention the target become its operands, and an atom between the target and another variable becomes
a projection from the tree of that variable, built from all the conjuncts on its side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat

from betae.errors import UnsupportedQuery
from betae.queries.ast import (
    MAX_DEPTH,
    And,
    Entity,
    Name,
    Not,
    Or,
    Project,
    Query,
    inverse,
    too_deep,
)

MAX_NESTING = 2 * MAX_DEPTH  # a quantifier and its conjunction are two levels but one operator


@dataclass(frozen=True)
class Variable:
    """A variable, written `?name`; `scope` tells apart those of the same name."""

    name: str
    scope: int = 0

    def __str__(self) -> str:
        return f"?{self.name}"


Term = Variable | Entity


class _Formula:
    """A formula; `free` are its variables that it does not quantify itself, found only once."""

    free: frozenset[Variable] = frozenset()

    def _set_free(self, free: Iterable[Variable]) -> None:
        object.__setattr__(self, "free", frozenset(free))


@dataclass(frozen=True)
class Atom(_Formula):
    """`relation(head, tail)`."""

    relation: Name
    head: Term
    tail: Term

    def __post_init__(self) -> None:
        self._set_free(term for term in (self.head, self.tail) if isinstance(term, Variable))


@dataclass(frozen=True)
class Equals(_Formula):
    """`variable = entity`."""

    variable: Variable
    entity: Entity

    def __post_init__(self) -> None:
        self._set_free([self.variable])


@dataclass(frozen=True)
class Conjunction(_Formula):
    """All parts hold."""

    parts: tuple[Formula, ...]

    def __post_init__(self) -> None:
        self._set_free(frozenset().union(*(part.free for part in self.parts)))


@dataclass(frozen=True)
class Disjunction(_Formula):
    """Some part holds."""

    parts: tuple[Formula, ...]

    def __post_init__(self) -> None:
        self._set_free(frozenset().union(*(part.free for part in self.parts)))


@dataclass(frozen=True)
class Negation(_Formula):
    """The part does not hold."""

    part: Formula

    def __post_init__(self) -> None:
        self._set_free(self.part.free)


@dataclass(frozen=True)
class Exists(_Formula):
    """There are entities for the variables so that the part holds."""

    variables: tuple[Variable, ...]
    part: Formula

    def __post_init__(self) -> None:
        self._set_free(self.part.free.difference(self.variables))


Formula = Atom | Equals | Conjunction | Disjunction | Negation | Exists


def to_tree(formula: Formula, target: Variable) -> Query:
    """Return the tree of the entities that `target` may stand for."""
    unbound = formula.free - {target}
    if unbound:
        names = _spell(unbound)
        raise UnsupportedQuery(
            f"{names} is not bound: write `exists {names} : …` before the formula, or use the "
            f"target {target}."
        )
    if target not in formula.free:
        raise UnsupportedQuery(f"The target {target} does not occur in the formula.")
    return _tree([_with_scopes(formula, {target: target}, count(1))], target, 0)


def _spell(variables: Iterable[Variable]) -> str:
    return ", ".join(sorted(map(str, variables)))


def _with_scopes(
    formula: Formula, scoped: dict[Variable, Variable], scopes: Iterator[int]
) -> Formula:
    """Give every quantifier its own variables, so that it can be dropped.

    Raises UnsupportedQuery for a variable that is unused or bound twice.
    """
    match formula:
        case Atom(relation, head, tail):
            head, tail = (
                scoped[term] if isinstance(term, Variable) else term for term in (head, tail)
            )
            return Atom(relation, head, tail)
        case Equals(variable, entity):
            return Equals(scoped[variable], entity)
        case Conjunction(parts) | Disjunction(parts):
            inner = tuple(map(_with_scopes, parts, repeat(scoped), repeat(scopes)))
            return Conjunction(inner) if isinstance(formula, Conjunction) else Disjunction(inner)
        case Negation(part):
            return Negation(_with_scopes(part, scoped, scopes))
        case Exists(variables, part):
            scope = next(scopes)
            for variable in variables:
                if variable in scoped:
                    raise UnsupportedQuery(f"{variable} is bound twice: rename the inner one.")
                if variable not in part.free:
                    raise UnsupportedQuery(f"{variable} is bound but never used: leave it out.")
            for variable in variables:
                scoped[variable] = Variable(variable.name, scope)
            body = _with_scopes(part, scoped, scopes)
            return Exists(tuple(scoped.pop(variable) for variable in variables), body)


def _tree(conjuncts: Sequence[Formula], target: Variable, depth: int) -> Query:
    """Return the tree of `target` under all conjuncts; every other variable is existential.

    `depth` counts the operators around it.
    """
    walk = _Walk(conjuncts)
    tree = walk.tree(target, depth)
    walk.check_connected(target)
    return tree


class _Walk:
    """A walk over conjuncts, from the target outward, that passes each of them once."""

    def __init__(self, conjuncts: Sequence[Formula]):
        self.conjuncts = _flatten(conjuncts)
        self.places: dict[Variable, list[int]] = defaultdict(list)  # where it is mentioned
        for place, conjunct in enumerate(self.conjuncts):
            if not conjunct.free:
                raise UnsupportedQuery(
                    "A part between two named entities has no variable to answer for."
                )
            for variable in conjunct.free:
                self.places[variable].append(place)
        self.is_passed = [False] * len(self.conjuncts)
        self.reached: set[Variable] = set()

    def tree(self, target: Variable, depth: int) -> Query:
        """Return the tree of a variable from the conjuncts that lead away from it.

        One function for all of it, since Python limits the calls within calls.
        """
        if depth > MAX_DEPTH:
            raise too_deep()
        here = [self.conjuncts[place] for place in self._pass(target)]
        if not here:
            raise self._dead_end(target)
        depth += len(here) > 1  # the And
        operands: list[Query] = []
        for conjunct in here:
            other = self._other_variable(conjunct, target)
            match conjunct:
                case Equals(_, entity):
                    operands.append(entity)
                case Atom(relation, head, tail):
                    if head == tail:
                        raise UnsupportedQuery(f"A relation from {target} to itself makes a cycle.")
                    step, source = (relation, head) if tail == target else (inverse(relation), tail)
                    operand = source if isinstance(source, Entity) else self.tree(source, depth + 1)
                    operands.append(Project(operand, step))
                case Negation(part):
                    operands.append(Not(_tree([part, *self._side(other)], target, depth + 1)))
                case Disjunction(parts):
                    side = self._side(other)
                    branches = ([part, *side] for part in parts)
                    operands.append(Or(*map(_tree, branches, repeat(target), repeat(depth + 1))))
        return And(*operands) if len(operands) > 1 else operands[0]

    def check_connected(self, target: Variable) -> None:
        """Raise if the walk from the target has left out a conjunct."""
        left = [self.conjuncts[i].free for i, passed in enumerate(self.is_passed) if not passed]
        if left:
            names = _spell(frozenset().union(*left))
            raise UnsupportedQuery(f"{names} is not connected to {target}.")

    def _pass(self, variable: Variable) -> list[int]:
        """Pass the conjuncts that mention a variable; return the places of the new ones."""
        self.reached.add(variable)
        places = [place for place in self.places[variable] if not self.is_passed[place]]
        for place in places:
            self.is_passed[place] = True
        return places

    def _other_variable(self, conjunct: Formula, target: Variable) -> Variable | None:
        """Return the one variable that a conjunct joins with the target, if any."""
        others = conjunct.free - {target}
        if len(others) > 1:
            raise UnsupportedQuery(
                f"A part joins {target} with several variables ({_spell(others)})."
            )
        for other in others:
            if other in self.reached:
                raise _cycle(other, target)
            return other
        return None

    def _dead_end(self, variable: Variable) -> UnsupportedQuery:
        """Return the error for a variable from which no conjunct leads on."""
        passed = [self.conjuncts[place].free - {variable} for place in self.places[variable]]
        if len(passed) > 1:  # it was reached by one, and another led to it as well
            return _cycle(variable, min(passed[0].union(*passed), key=str))
        return UnsupportedQuery(f"{variable} leads to no named entity: nothing constrains it.")

    def _side(self, variable: Variable | None) -> list[Formula]:
        """Pass and return all conjuncts that hang together with a variable, in their order."""
        places: list[int] = []
        waiting = [] if variable is None else [variable]
        while waiting:
            for place in self._pass(waiting.pop()):
                places.append(place)
                waiting.extend(self.conjuncts[place].free - self.reached)
        return [self.conjuncts[place] for place in sorted(places)]


def _cycle(variable: Variable, other: Variable) -> UnsupportedQuery:
    return UnsupportedQuery(
        f"{variable} and {other} are joined in two ways, which makes a cycle; betae answers "
        "queries that form a tree."
    )


def _flatten(conjuncts: Iterable[Formula]) -> list[Formula]:
    """Take conjunctions and quantifiers apart; scopes keep the variables distinct."""
    flat: list[Formula] = []
    waiting = list(conjuncts)[::-1]
    while waiting:
        match waiting.pop():
            case Conjunction(parts):
                waiting.extend(reversed(parts))
            case Exists(_, part):
                waiting.append(part)
            case conjunct:
                flat.append(conjunct)
    return flat
