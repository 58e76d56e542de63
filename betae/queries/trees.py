"""Questions -> trees.

A formula says with variables which entities satisfy it; a tree computes them step by step from the
named entities. `to_tree` places each conjunct at the variable it constrains: the conjuncts that
mention the target become its operands, and an atom between the target and another variable becomes
a projection from the tree of that variable, built from all the conjuncts on its side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import repeat

from betae.errors import UnsupportedQuery
from betae.queries.ast import MAX_DEPTH, And, Entity, Not, Or, Project, Query, inverse, too_deep
from betae.queries.formula import (
    Atom,
    Disjunction,
    Equals,
    Formula,
    Negation,
    Question,
    Variable,
    flatten,
    only_exact,
    spell,
)


def to_tree(question: Question) -> Query:
    """Return the tree of the entities that the one variable of a question may stand for."""
    if len(question.variables) > 1:
        raise only_exact(f"several answer variables: {spell(question.variables)}")
    (target,) = question.variables
    return _tree([question.scoped(unroll=True)], target, 0)


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
        self.conjuncts = flatten(conjuncts)
        self.places: dict[Variable, list[int]] = defaultdict(list)  # where it is mentioned
        for place, conjunct in enumerate(self.conjuncts):
            if not conjunct.free:
                raise only_exact("a part between two named entities, without a variable")
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
                case Equals() if other is not None:
                    operands.append(self.tree(other, depth))
                case Equals(_, Entity() as entity):
                    operands.append(entity)
                case Equals():
                    raise only_exact(f"{target} = {target}, which holds for every entity")
                case Atom(relation, head, tail):
                    if head == tail:
                        raise only_exact(f"a cycle, a relation from {target} to itself")
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
            names = spell(frozenset().union(*left))
            raise only_exact(f"a part about {names}, which is not connected to {target}")

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
            raise only_exact(f"a part that joins {target} with several variables ({spell(others)})")
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
        return only_exact(f"the variable {variable}, which leads to no named entity")

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
    return only_exact(f"a cycle: {variable} and {other} are joined in two ways")
