"""Yes/no questions: formulas without an answer variable.

`r(a, b)` holds if b answers `?X . r(a, ?X) & ?X = b`. In the same way, any entity that a formula
names can take the place of an answer variable, which leads to a tree, and so to a probability.
"""

from __future__ import annotations

from collections.abc import Iterator

from betae.errors import InvalidArgument
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Entity
from betae.queries.formula import (
    Atom,
    Conjunction,
    Disjunction,
    Equals,
    Exists,
    Formula,
    Meets,
    Negation,
    Question,
    Term,
    Variable,
    fresh,
    walk,
)
from betae.queries.read import resolve_question
from betae.queries.syntax import parse_closed


def read_closed(text: str, graph: KnowledgeGraph, edges: Edges = "all") -> Question:
    """Read a yes/no question as one without variables, its names resolved.

    A question with answer variables asks whether it has any answers.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgument(f"{text!r} is not a question: write capital(France, Paris), say.")
    return resolve_question(Question((), parse_closed(text)), graph, edges=edges)


def about_an_entity(closed: Question) -> Iterator[tuple[int, Question]]:
    """Yield entities, each with a question that it answers exactly if the formula holds.

    The last ones come first: of an edge, the tail.
    """
    named = [term.name for part, _ in walk(closed.formula) for term in _terms(part)]
    for entity in dict.fromkeys(int(name) for name in named[::-1]):
        variable = fresh("X")
        formula = _replaced(closed.formula, entity, variable)
        yield (
            entity,
            Question((variable,), Conjunction((formula, Equals(variable, Entity(entity))))),
        )


def _terms(part: Formula) -> list[Entity]:
    match part:
        case Atom(_, one, two) | Equals(one, two):
            return [term for term in (one, two) if isinstance(term, Entity)]
        case Meets(_, Entity() as term):
            return [term]
    return []


def _replaced(formula: Formula, entity: int, variable: Variable) -> Formula:
    """Return a formula with a variable wherever it names an entity."""

    def term(each: Term) -> Term:
        return variable if isinstance(each, Entity) and each.name == entity else each

    def replaced(part: Formula) -> Formula:
        match part:
            case Atom(relation, head, tail):
                return Atom(relation, term(head), term(tail))
            case Equals(one, two):
                return Equals(term(one), term(two))
            case Meets(condition, each):
                return Meets(condition, term(each))
            case Conjunction(parts) | Disjunction(parts):
                return type(part)(tuple(map(replaced, parts)))
            case Negation(inner):
                return Negation(replaced(inner))
            case Exists(variables, inner):
                return Exists(variables, replaced(inner))
        raise AssertionError(part)  # logic text has no paths

    return replaced(formula)
