"""Formulas with variables -> trees: what logic text and SPARQL have in common.

A formula says which entities satisfy it with variables; a tree computes them step by step from the
named entities. `to_tree` places each conjunct at the variable it constrains: the conjuncts that
mention the target become its operands, and an atom between the target and another variable becomes
a projection from the tree of that variable, built of all the conjuncts on its side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from betae.errors import UnsupportedQuery
from betae.queries.ast import And, Entity, Name, Not, Or, Project, Query, inverse


@dataclass(frozen=True)
class Variable:
    """A variable, written `?name`; `scope` tells apart those of the same name."""

    name: str
    scope: int = 0

    def __str__(self) -> str:
        return f"?{self.name}"


Term = Variable | Entity


@dataclass(frozen=True)
class Atom:
    """`relation(head, tail)`."""

    relation: Name
    head: Term
    tail: Term


@dataclass(frozen=True)
class Equals:
    """`variable = entity`."""

    variable: Variable
    entity: Entity


@dataclass(frozen=True)
class Conjunction:
    """All parts hold."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Disjunction:
    """Some part holds."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Negation:
    """The part does not hold."""

    part: Formula


@dataclass(frozen=True)
class Exists:
    """There are entities for the variables so that the part holds."""

    variables: tuple[Variable, ...]
    part: Formula


Formula = Atom | Equals | Conjunction | Disjunction | Negation | Exists


def to_tree(formula: Formula, target: Variable) -> Query:
    """Return the tree of the entities that `target` may stand for."""
    _check_variables(formula, target)
    return _tree([_with_scopes(formula, {}, count(1))], target)


def free_variables(formula: Formula) -> frozenset[Variable]:
    """Return the variables of a formula that it does not quantify itself."""
    match formula:
        case Atom(_, head, tail):
            return frozenset(term for term in (head, tail) if isinstance(term, Variable))
        case Equals(variable, _):
            return frozenset([variable])
        case Conjunction(parts) | Disjunction(parts):
            return frozenset().union(*map(free_variables, parts))
        case Negation(part):
            return free_variables(part)
        case Exists(variables, part):
            return free_variables(part) - frozenset(variables)


def _check_variables(formula: Formula, target: Variable) -> None:
    """Raise UnsupportedQuery for a variable that is unbound, unused or quantified twice."""
    unbound = free_variables(formula) - {target}
    if unbound:
        names = ", ".join(sorted(map(str, unbound)))
        raise UnsupportedQuery(
            f"{names} is not bound: write `exists {names} : …` before the formula, or use the "
            f"target {target}."
        )
    if target not in free_variables(formula):
        raise UnsupportedQuery(f"The target {target} does not occur in the formula.")
    _check_quantifiers(formula, frozenset([target]))


def _check_quantifiers(formula: Formula, outer: frozenset[Variable]) -> None:
    match formula:
        case Exists(variables, part):
            for variable in variables:
                if variable in outer:
                    raise UnsupportedQuery(f"{variable} is bound twice: rename the inner one.")
                if variable not in free_variables(part):
                    raise UnsupportedQuery(f"{variable} is bound but never used: leave it out.")
            _check_quantifiers(part, outer | frozenset(variables))
        case Conjunction(parts) | Disjunction(parts):
            for part in parts:
                _check_quantifiers(part, outer)
        case Negation(part):
            _check_quantifiers(part, outer)


def _with_scopes(
    formula: Formula, scoped: Mapping[Variable, Variable], scopes: Iterator[int]
) -> Formula:
    """Give every quantifier its own variables, so that it can be taken away."""

    def inner(part: Formula) -> Formula:
        return _with_scopes(part, scoped, scopes)

    def term(term: Term) -> Term:
        return scoped.get(term, term) if isinstance(term, Variable) else term

    match formula:
        case Atom(relation, head, tail):
            return Atom(relation, term(head), term(tail))
        case Equals(variable, entity):
            return Equals(scoped.get(variable, variable), entity)
        case Conjunction(parts):
            return Conjunction(tuple(map(inner, parts)))
        case Disjunction(parts):
            return Disjunction(tuple(map(inner, parts)))
        case Negation(part):
            return Negation(inner(part))
        case Exists(variables, part):
            scope = next(scopes)
            fresh = {variable: Variable(variable.name, scope) for variable in variables}
            body = _with_scopes(part, {**scoped, **fresh}, scopes)
            return Exists(tuple(fresh.values()), body)


def _tree(conjuncts: Sequence[Formula], target: Variable) -> Query:
    """Return the tree of `target` under all conjuncts; every other variable is existential."""
    conjuncts = _flatten(conjuncts)
    if any(not free_variables(conjunct) for conjunct in conjuncts):
        raise UnsupportedQuery("A part between two named entities has no variable to answer for.")
    here = [conjunct for conjunct in conjuncts if target in free_variables(conjunct)]
    elsewhere = [conjunct for conjunct in conjuncts if target not in free_variables(conjunct)]
    if not here:
        raise UnsupportedQuery(f"{target} leads to no named entity: nothing constrains it.")
    sides: list[list[Formula]] = []
    used: set[Variable] = set()
    for conjunct in here:
        others = free_variables(conjunct) - {target}
        if len(others) > 1:
            names = ", ".join(sorted(map(str, others)))
            raise UnsupportedQuery(f"A part joins {target} with several variables ({names}).")
        side: list[Formula] = []
        for variable in others:
            if variable in used:
                raise _cycle(variable, target)
            side = _connected(variable, elsewhere)
            reached = {variable}.union(*map(free_variables, side))
            if reached & used:
                raise _cycle(variable, target)
            used |= reached
            elsewhere = [conjunct for conjunct in elsewhere if conjunct not in side]
        sides.append(side)
    if elsewhere:
        lost = frozenset().union(*map(free_variables, elsewhere))
        names = ", ".join(sorted(map(str, lost)))
        raise UnsupportedQuery(f"{names} is not connected to {target}.")
    operands = [
        _operand(conjunct, target, side) for conjunct, side in zip(here, sides, strict=True)
    ]
    return And(*operands) if len(operands) > 1 else operands[0]


def _cycle(variable: Variable, target: Variable) -> UnsupportedQuery:
    return UnsupportedQuery(
        f"{variable} and {target} are joined in two ways, which makes a cycle; betae answers "
        "queries that form a tree."
    )


def _flatten(conjuncts: Sequence[Formula]) -> list[Formula]:
    """Take conjunctions and quantifiers apart; scopes keep the variables distinct."""
    flat: list[Formula] = []
    for conjunct in conjuncts:
        match conjunct:
            case Conjunction(parts):
                flat.extend(_flatten(parts))
            case Exists(_, part):
                flat.extend(_flatten([part]))
            case _:
                flat.append(conjunct)
    return flat


def _connected(variable: Variable, conjuncts: Sequence[Formula]) -> list[Formula]:
    """Return the conjuncts that hang together with `variable`, in their order."""
    reached, size = {variable}, 0
    while size != len(reached):
        size = len(reached)
        for conjunct in conjuncts:
            if free_variables(conjunct) & reached:
                reached |= free_variables(conjunct)
    return [conjunct for conjunct in conjuncts if free_variables(conjunct) & reached]


def _operand(conjunct: Formula, target: Variable, side: Sequence[Formula]) -> Query:
    """Return the operand for one conjunct; `side` is what constrains its other variable."""
    match conjunct:
        case Equals(_, entity):
            return entity
        case Atom(relation, head, tail):
            if head == tail:
                raise UnsupportedQuery(f"A relation from {target} to itself makes a cycle.")
            source = head if tail == target else tail
            step = relation if tail == target else inverse(relation)
            operand = source if isinstance(source, Entity) else _tree(side, source)
            return Project(operand, step)
        case Negation(part):
            return Not(_tree([part, *side], target))
        case Disjunction(parts):
            return Or(*(_tree([part, *side], target) for part in parts))
    raise AssertionError(conjunct)
