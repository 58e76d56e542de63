"""Formulas with variables, and the trees they make.

Logic text and SPARQL are both read as a `Question`: which entities its variables may stand for so
that its formula holds, in first-order logic. If it has one variable and its formula is connected
and free of cycles, `Question.tree` is the equivalent tree: the conjuncts that mention the target
become its operands, and an atom between the target and another variable becomes a projection from
the tree of that variable, built from all conjuncts on its side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, pairwise, repeat

from betae.errors import UnsupportedQuery
from betae.queries.ast import (
    MAX_DEPTH,
    And,
    Condition,
    Entity,
    Name,
    Not,
    Or,
    Project,
    Query,
    too_deep,
)

MAX_NESTING = 2 * MAX_DEPTH  # a quantifier and its conjunction are two levels but one operator
MAX_HOPS = 3  # in a tree, a path of any length is the union of these lengths
MAX_NODES = 100_000  # of a tree that a formula makes: unions on a path multiply


@dataclass(frozen=True, order=True)
class Variable:
    """A variable, written `?name`; `scope` distinguishes variables of the same name."""

    name: str
    scope: int = 0

    def __str__(self) -> str:
        return f"?{self.name}"


Term = Variable | Entity
_SCOPES = count(1)


def fresh(name: str) -> Variable:
    """Return a new variable."""
    return Variable(name, next(_SCOPES))


# ---- formulas -----------------------------------------------------------------------------------


class _Formula:
    """Base of all formulas; `free` are the variables that it does not bind itself."""

    free: frozenset[Variable]

    def __post_init__(self) -> None:
        match self:
            case Atom(_, one, two) | Reach(_, one, two) | Equals(one, two):
                free = frozenset(term for term in (one, two) if isinstance(term, Variable))
            case Meets(_, term):
                free = frozenset([term] if isinstance(term, Variable) else [])
            case Conjunction(parts) | Disjunction(parts):
                free = frozenset().union(*(part.free for part in parts))
            case Negation(part):
                free = part.free
            case Exists(variables, part):
                free = part.free.difference(variables)
        object.__setattr__(self, "free", free)


@dataclass(frozen=True)
class Atom(_Formula):
    """`relation(head, tail)`."""

    relation: Name
    head: Term
    tail: Term


@dataclass(frozen=True)
class Equals(_Formula):
    """`one = two`, of which at least one is a variable."""

    one: Term
    two: Term


@dataclass(frozen=True)
class Meets(_Formula):
    """`term` meets a condition: `Class(term)`, or `property(term) < 200`."""

    condition: Condition
    term: Term


@dataclass(frozen=True)
class Conjunction(_Formula):
    """All parts hold."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class SameValue(Conjunction):
    """All parts, conditions on one property of one term, hold for the same value of it."""


@dataclass(frozen=True)
class Disjunction(_Formula):
    """At least one part holds."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Negation(_Formula):
    """The part does not hold."""

    part: Formula


@dataclass(frozen=True)
class Exists(_Formula):
    """The part holds for some entities of the variables."""

    variables: tuple[Variable, ...]
    part: Formula


@dataclass(frozen=True)
class Reach(_Formula):
    """A path from head to tail of `least` to `most` steps (None: of any length).

    `step(start, stop)` makes the formula of one step.
    """

    step: Callable[[Term, Term], Formula]
    head: Term
    tail: Term
    least: int
    most: int | None

    def unrolled(self) -> Formula:
        """Return the union of the paths of each length, up to MAX_HOPS."""
        paths: list[Formula] = []
        if self.least == 0:
            if not self.free:
                raise only_exact("a path between two named entities, without a variable")
            paths.append(Equals(self.head, self.tail))
        for length in range(max(self.least, 1), (self.most or MAX_HOPS) + 1):
            middles = [fresh(f"_:hop{hop}") for hop in range(1, length)]
            ends = pairwise([self.head, *middles, self.tail])
            paths.append(exists(middles, [self.step(start, stop) for start, stop in ends]))
        return any_of(paths)


Formula = Atom | Equals | Meets | Conjunction | Disjunction | Negation | Exists | Reach


def walk(formula: Formula) -> Iterator[tuple[Formula, int]]:
    """Iterate over a formula and its parts; with each, count the `|`, `!` and paths around it."""
    waiting = [(formula, 0)]
    while waiting:
        part, depth = waiting.pop()
        yield part, depth
        depth += isinstance(part, Disjunction | Negation | Reach)
        match part:
            case Conjunction(parts) | Disjunction(parts):
                waiting += [(inner, depth) for inner in parts]
            case Exists(_, inner) | Negation(inner):
                waiting.append((inner, depth))
            case Reach(step, head, tail):
                waiting.append((step(head, tail), depth))


def flatten(conjuncts: Iterable[Formula]) -> list[Formula]:
    """Split conjunctions and drop quantifiers, whose variables must be distinct."""
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


def exists(variables: Iterable[Variable], formulas: Sequence[Formula]) -> Formula:
    """Return the conjunction, quantifying the variables that are free in it."""
    formula = all_of(formulas)
    used = tuple(variable for variable in variables if variable in formula.free)
    return Exists(used, formula) if used else formula


def all_of(formulas: Sequence[Formula]) -> Formula:
    """Return the conjunction of formulas, or the only one."""
    return Conjunction(tuple(formulas)) if len(formulas) != 1 else formulas[0]


def same_value(formulas: Sequence[Formula]) -> Formula:
    """Return the conjunction of conditions on the same value, or the only one."""
    return SameValue(tuple(formulas)) if len(formulas) != 1 else formulas[0]


def any_of(formulas: Sequence[Formula]) -> Formula:
    """Return the disjunction of formulas, or the only one."""
    return Disjunction(tuple(formulas)) if len(formulas) > 1 else formulas[0]


# ---- questions ----------------------------------------------------------------------------------


class Question:
    """Which entities `variables` may stand for so that `formula` holds; `limit`: SPARQL's LIMIT.

    Names are as written, or ids once `betae.queries.read.read_question` has resolved them.
    """

    limit: int | None = None
    notes: tuple[str, ...] = ()  # names that were read as others
    max_nodes = MAX_NODES  # of `tree`

    def __init__(self, variables: Iterable[Variable], formula: Formula) -> None:
        self.variables, self.formula = tuple(variables), formula
        if unbound := formula.free.difference(self.variables):
            names = spell(unbound)
            target = "target" if len(self.variables) == 1 else "targets"
            use = f", or use the {target} {spell(self.variables)}" if self.variables else ""
            raise UnsupportedQuery(
                f"{names} is not bound: write `exists {names} : …` before the formula{use}."
            )
        for variable in self.variables:
            if variable not in formula.free:
                raise UnsupportedQuery(f"The target {variable} does not occur in the formula.")

    @classmethod
    def from_tree(cls, tree: Query) -> Question:
        """Ask for the entities of a tree; they are the variable ?X."""
        question = cls.__new__(cls)
        question.variables, question.tree = (TARGET,), tree
        return question

    @cached_property
    def formula(self) -> Formula:
        """The formula of a question that was given as a tree."""
        return to_formula(self.tree)

    @cached_property
    def tree(self) -> Query:
        """The equivalent tree; paths of any length have at most MAX_HOPS steps in it.

        Raises UnsupportedQuery if there is no such tree, or if it has more than `max_nodes` nodes.
        """
        if len(self.variables) > 1:
            raise only_exact(f"several answer variables: {spell(self.variables)}")
        left = self.max_nodes

        def spend(num_parts: int) -> None:
            """Count parts before they are made: nested paths and unions grow exponentially."""
            nonlocal left
            left -= num_parts
            if left < 0:
                raise UnsupportedQuery(
                    f"This question grows to more than {self.max_nodes:,} parts, since its unions "
                    "or paths multiply: ask for a part of it first."
                )

        return _Walk([self.scoped(spend)], spend).build(self.variables[0], 0)

    def scoped(self, spend: Callable[[int], None] | None = None) -> Formula:
        """Return the formula with distinct variables for every quantifier.

        With `spend`, paths become unions of fixed lengths; it is called for every part made.
        """
        scope = {variable: variable for variable in self.variables}

        def renamed(term: Term) -> Term:
            return scope[term] if isinstance(term, Variable) else term

        def scoped(formula: Formula) -> Formula:
            if spend is not None:
                spend(1)
            match formula:
                case Atom(relation, head, tail):
                    return Atom(relation, renamed(head), renamed(tail))
                case Equals(one, two):
                    return Equals(renamed(one), renamed(two))
                case Meets(condition, term):
                    return Meets(condition, renamed(term))
                case Reach() if spend is not None:
                    return scoped(formula.unrolled())
                case Reach(step, head, tail, least, most):
                    return Reach(step, renamed(head), renamed(tail), least, most)
                case Conjunction(parts) | Disjunction(parts):
                    return type(formula)(tuple(map(scoped, parts)))
                case Negation(part):
                    return Negation(scoped(part))
                case Exists(variables, part):
                    for variable in variables:
                        if variable in scope:
                            raise UnsupportedQuery(f"{variable} is bound twice: rename one.")
                        if variable not in part.free:
                            raise UnsupportedQuery(
                                f"{variable} is bound but never used: leave it out."
                            )
                        scope[variable] = fresh(variable.name)
                    body = scoped(part)
                    return Exists(tuple([scope.pop(variable) for variable in variables]), body)

        return scoped(self.formula)


def spell(variables: Iterable[Variable]) -> str:
    """Write variables for a message."""
    return ", ".join(sorted(map(str, variables)))


def only_exact(part: str) -> UnsupportedQuery:
    """Build the error for a question that has exact answers but no tree."""
    return UnsupportedQuery(
        f"This question has {part}. It has exact answers (`betae query`, in Python "
        "`graph.select`), but no predictions: those need a tree with one answer variable."
    )


# ---- formula -> tree ----------------------------------------------------------------------------


class _Walk:
    """A walk over conjuncts from the target outward that visits each once."""

    def __init__(self, conjuncts: Sequence[Formula], spend: Callable[[int], None]):
        self.conjuncts, self.spend = flatten(conjuncts), spend
        spend(len(self.conjuncts))
        self.mentions: dict[Variable, list[int]] = defaultdict(list)  # indices of conjuncts
        for i, conjunct in enumerate(self.conjuncts):
            if not conjunct.free:
                raise only_exact("a part between two named entities, without a variable")
            for variable in conjunct.free:
                self.mentions[variable].append(i)
        self.is_visited = [False] * len(self.conjuncts)
        self.reached: set[Variable] = set()

    def build(self, target: Variable, depth: int) -> Query:
        """Return the tree of `target` under all conjuncts; other variables are existential.

        `depth` counts the operators around it.
        """
        tree = self.tree(target, depth)
        if not all(self.is_visited):
            left = zip(self.conjuncts, self.is_visited, strict=True)
            names = spell(frozenset().union(*(part.free for part, visited in left if not visited)))
            raise only_exact(f"a part about {names}, which is not connected to {target}")
        return tree

    def tree(self, target: Variable, depth: int) -> Query:
        """Return the tree of a variable from the conjuncts not yet visited.

        One function rather than several, since Python limits nested calls.
        """
        if depth > MAX_DEPTH:
            raise too_deep()
        here = [self.conjuncts[i] for i in self._visit(target)]
        if not here:
            others = [self.conjuncts[i].free - {target} for i in self.mentions[target]]
            if len(others) > 1:  # reached through one conjunct while another led to it as well
                raise _cycle(target, min(others[0].union(*others), key=str))
            raise only_exact(f"the variable {target}, which leads to no named entity")
        depth += len(here) > 1  # the And
        operands: list[Query] = []
        for conjunct in here:
            other = self._other_variable(conjunct, target)
            match conjunct:
                case Equals() if other is not None:
                    operands.append(self.tree(other, depth))
                case Equals(Entity() as entity, _) | Equals(_, Entity() as entity):
                    operands.append(entity)
                case Equals():
                    raise only_exact(f"{target} = {target}, which holds for every entity")
                case Atom(relation, head, tail):
                    if head == tail:
                        raise only_exact(f"a cycle, a relation from {target} to itself")
                    is_inverse, source = (False, head) if tail == target else (True, tail)
                    operand = source if isinstance(source, Entity) else self.tree(source, depth + 1)
                    operands.append(Project(operand, relation, is_inverse))
                case Meets(condition):
                    operands.append(condition)
                case Negation(part):
                    operands.append(Not(_Walk([part], self.spend).build(target, depth + 1)))
                case Disjunction(parts):
                    side = self._side(other)
                    walks = (_Walk([part, *side], self.spend) for part in parts)
                    operands.append(Or(*[walk.build(target, depth + 1) for walk in walks]))
        return And(*operands) if len(operands) > 1 else operands[0]

    def _visit(self, variable: Variable) -> list[int]:
        """Visit the conjuncts that mention a variable; return the indices of the new ones."""
        self.reached.add(variable)
        new = [i for i in self.mentions[variable] if not self.is_visited[i]]
        for i in new:
            self.is_visited[i] = True
        return new

    def _other_variable(self, conjunct: Formula, target: Variable) -> Variable | None:
        """Return the one variable that a conjunct joins with the target, if any."""
        others = conjunct.free - {target}
        if others and isinstance(conjunct, Negation):
            names = spell(others)
            raise only_exact(
                f"a negation of {names} and {target} together (to say that no {names} leads to "
                f"{target}, put all conditions on {names} inside: !(exists {names} : …))"
            )
        if len(others) > 1:
            raise only_exact(f"a part that joins {target} with several variables ({spell(others)})")
        for other in others:
            if other in self.reached:
                raise _cycle(other, target)
            return other
        return None

    def _side(self, variable: Variable | None) -> list[Formula]:
        """Visit and return, in order, all conjuncts connected to a variable."""
        found: list[int] = []
        waiting = [] if variable is None else [variable]
        while waiting:
            for i in self._visit(waiting.pop()):
                found.append(i)
                waiting.extend(self.conjuncts[i].free - self.reached)
        return [self.conjuncts[i] for i in sorted(found)]


def _cycle(variable: Variable, other: Variable) -> UnsupportedQuery:
    return only_exact(f"a cycle: {variable} and {other} are joined in two ways")


# ---- tree -> formula ----------------------------------------------------------------------------

TARGET = Variable("X")


def to_formula(tree: Query) -> Formula:
    """Return the formula that holds for ?X exactly if the tree contains it."""
    return exists(*_conjuncts(tree, TARGET, (Variable(f"V{i}") for i in count(1))))


def _conjuncts(
    query: Query, variable: Variable, names: Iterator[Variable]
) -> tuple[list[Variable], list[Formula]]:
    """Return the variables to bind and the conjuncts of "`variable` is in `query`"."""
    match query:
        case Entity():
            return [], [Equals(variable, query)]
        case Condition():
            return [], [Meets(query, variable)]
        case Project(operand, relation, is_inverse):
            source = operand if isinstance(operand, Entity) else next(names)
            ends = (variable, source) if is_inverse else (source, variable)
            atom = Atom(relation, *ends)
            if isinstance(source, Entity):
                return [], [atom]
            bound, parts = _conjuncts(operand, source, names)
            return [source, *bound], [*parts, atom]
        case And():
            pieces = [*map(_conjuncts, query.operands, repeat(variable), repeat(names))]
            return [v for bound, _ in pieces for v in bound], [p for _, of in pieces for p in of]
        case Or():
            pieces = [*map(_conjuncts, query.operands, repeat(variable), repeat(names))]
            return [], [Disjunction(tuple(exists(*piece) for piece in pieces))]
        case Not(operand):
            return [], [Negation(exists(*_conjuncts(operand, variable, names)))]
    raise AssertionError(query)
