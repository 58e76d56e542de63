"""Formulas with variables: what logic text and SPARQL have in common.

A `Question` asks which entities its variables may stand for so that its formula holds. If it has
one variable and its formula hangs together without cycles, `to_tree` makes a tree of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise, repeat

from betae.errors import UnsupportedQuery
from betae.queries.ast import MAX_DEPTH, Entity, Name

MAX_NESTING = 2 * MAX_DEPTH  # a quantifier and its conjunction are two levels but one operator
MAX_HOPS = 3  # a path of any length is a union of these lengths in a tree


@dataclass(frozen=True)
class Variable:
    """A variable, written `?name`; `scope` tells apart those of the same name."""

    name: str
    scope: int = 0

    def __str__(self) -> str:
        return f"?{self.name}"


Term = Variable | Entity
_SCOPES = count(1)


def fresh(name: str) -> Variable:
    """Return a variable that is none of those made before."""
    return Variable(name, next(_SCOPES))


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
    """`variable = entity`, or `variable = variable`."""

    variable: Variable
    other: Term

    def __post_init__(self) -> None:
        others = [self.other] if isinstance(self.other, Variable) else []
        self._set_free([self.variable, *others])


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
    """The part does not hold.

    A tree reads it as a complement, which is the same for one variable. An `operator`, such as
    NOT EXISTS, has a meaning of its own for several: a tree cannot say it.
    """

    part: Formula
    operator: str = ""

    def __post_init__(self) -> None:
        self._set_free(self.part.free)


@dataclass(frozen=True)
class Exists(_Formula):
    """There are entities for the variables so that the part holds."""

    variables: tuple[Variable, ...]
    part: Formula

    def __post_init__(self) -> None:
        self._set_free(self.part.free.difference(self.variables))


@dataclass(frozen=True)
class Reach(_Formula):
    """From head to tail in `least` to `most` steps, or any number of them.

    `step(start, stop)` makes the formula of a single one.
    """

    step: Callable[[Term, Term], Formula]
    head: Term
    tail: Term
    least: int
    most: int | None

    def __post_init__(self) -> None:
        self._set_free(term for term in (self.head, self.tail) if isinstance(term, Variable))

    def unrolled(self) -> Formula:
        """Return the union of paths of each length, up to MAX_HOPS."""
        lengths = range(max(self.least, 1), (self.most or MAX_HOPS) + 1)
        paths = [self._of_length(length) for length in lengths]
        if self.least == 0:
            ends = (self.head, self.tail)
            if isinstance(self.head, Entity):
                ends = (self.tail, self.head)
            if not isinstance(ends[0], Variable):
                raise UnsupportedQuery(
                    "A part between two named entities has no variable to answer for."
                )
            paths.insert(0, Equals(ends[0], ends[1]))
        return Disjunction(tuple(paths)) if len(paths) > 1 else paths[0]

    def _of_length(self, length: int) -> Formula:
        middles = tuple(fresh(f"_:hop{number}") for number in range(1, length))
        steps = (self.step(*ends) for ends in pairwise((self.head, *middles, self.tail)))
        path = Conjunction(tuple(steps))
        return Exists(middles, path) if middles else path


Formula = Atom | Equals | Conjunction | Disjunction | Negation | Exists | Reach


@dataclass(frozen=True)
class Question:
    """Which entities `variables` may stand for so that `formula` holds; `limit`: how many."""

    variables: tuple[Variable, ...]
    formula: Formula
    limit: int | None = None

    def __post_init__(self) -> None:
        """Raise if a variable is neither asked for nor bound, or is not in the formula."""
        if unbound := self.formula.free.difference(self.variables):
            names = spell(unbound)
            one = len(self.variables) == 1
            raise UnsupportedQuery(
                f"{names} is not bound: write `exists {names} : …` before the formula, or use the "
                f"target{'' if one else 's'} {spell(self.variables)}."
            )
        for variable in self.variables:
            if variable not in self.formula.free:
                raise UnsupportedQuery(f"The target {variable} does not occur in the formula.")

    def scoped(self, unroll: bool) -> Formula:
        """Return the formula with other variables for every quantifier, so that it can be dropped.

        With `unroll`, paths of any length become unions, and what a tree cannot say is refused.
        """
        own = {variable: variable for variable in self.variables}
        return _with_scopes(self.formula, own, count(1), unroll)


def spell(variables: Iterable[Variable]) -> str:
    """Return variables as they are written, for messages."""
    return ", ".join(sorted(map(str, variables)))


def _with_scopes(
    formula: Formula, scoped: dict[Variable, Variable], scopes: Iterator[int], unroll: bool
) -> Formula:
    """Give every quantifier its own variables.

    Raises UnsupportedQuery for a variable that is unused or bound twice.
    """
    match formula:
        case Atom(relation, head, tail):
            return Atom(relation, _renamed(head, scoped), _renamed(tail, scoped))
        case Equals(variable, other):
            return Equals(scoped[variable], _renamed(other, scoped))
        case Reach() if unroll:
            return _with_scopes(formula.unrolled(), scoped, scopes, unroll)
        case Reach(step, head, tail, least, most):
            return Reach(step, _renamed(head, scoped), _renamed(tail, scoped), least, most)
        case Conjunction(parts) | Disjunction(parts):
            rest = repeat(scoped), repeat(scopes), repeat(unroll)
            inner = tuple(map(_with_scopes, parts, *rest))
            return Conjunction(inner) if isinstance(formula, Conjunction) else Disjunction(inner)
        case Negation(part, operator):
            if unroll and operator and len(formula.free) > 1:
                raise only_exact(
                    f"a {operator} on several variables at once ({spell(formula.free)}): a tree has"
                    " a complement of the entities of one variable only"
                )
            return Negation(_with_scopes(part, scoped, scopes, unroll), operator)
        case Exists(variables, part):
            scope = next(scopes)
            for variable in variables:
                if variable in scoped:
                    raise UnsupportedQuery(f"{variable} is bound twice: rename the inner one.")
                if variable not in part.free:
                    raise UnsupportedQuery(f"{variable} is bound but never used: leave it out.")
            for variable in variables:
                scoped[variable] = Variable(variable.name, scope)
            body = _with_scopes(part, scoped, scopes, unroll)
            return Exists(tuple(scoped.pop(variable) for variable in variables), body)


def _renamed(term: Term, scoped: dict[Variable, Variable]) -> Term:
    return scoped[term] if isinstance(term, Variable) else term


def walk(formula: Formula) -> Iterator[tuple[Formula, int]]:
    """Yield a formula and all its parts, each with the operators around it that are no `and`."""
    waiting = [(formula, 0)]
    while waiting:
        part, depth = waiting.pop()
        yield part, depth
        match part:
            case Conjunction(parts):
                waiting += [(inner, depth) for inner in parts]
            case Disjunction(parts):
                waiting += [(inner, depth + 1) for inner in parts]
            case Exists(_, inner):
                waiting.append((inner, depth))
            case Negation(inner):
                waiting.append((inner, depth + 1))
            case Reach():
                waiting.append((part.step(part.head, part.tail), depth + 1))


def flatten(conjuncts: Iterable[Formula]) -> list[Formula]:
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


def only_exact(part: str) -> UnsupportedQuery:
    """Return the error for a question that can be answered, but not by a tree."""
    return UnsupportedQuery(
        f"This question has {part}. Only `betae query` (in Python, `select`) answers it, from the "
        "facts: predictions need a tree with one answer variable."
    )
