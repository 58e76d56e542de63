"""How many entities a condition cannot judge, since nothing is known of them.

A condition does not hold for an entity without a value: it is left out, or kept if the condition is
negated. So the notes of an answer say how many of the entities that meet the other conditions have
no value: "412 of 1,203 entities have no date".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from betae.exact.joins import Joins
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import shorten
from betae.graph.values import kind_of
from betae.queries.ast import Where
from betae.queries.formula import (
    Conjunction,
    Disjunction,
    Exists,
    Formula,
    Meets,
    Negation,
    Question,
    Variable,
    exists,
    flatten,
    walk,
)


def unknown_values(graph: KnowledgeGraph, question: Question, edges: Edges) -> tuple[str, ...]:
    """Return a note for each condition on a value that some entities lack.

    Counted are the entities that meet the conditions around it, on these edges.
    """
    notes: dict[str, None] = {}
    found = _conditions(question.scoped(), ()) if _has_values(question) else ()
    for condition, variable, others in found:
        bound = frozenset[Variable]().union(*(other.free for other in others))
        entities = np.arange(graph.num_entities, dtype=np.int32)
        if variable in bound:
            rest = Question((variable,), exists(sorted(bound - {variable}), others))
            entities = np.concatenate([entities[:0, None], *Joins(graph, edges).ids(rest)])[:, 0]
        property = graph.property_id(condition.property)
        missing = np.setdiff1d(entities, graph.literals.having(property, condition.value))
        if len(missing):
            name = shorten(condition.property, graph.prefixes)
            if np.isin(missing, graph.literals.having(property)).any():
                name += f" that is a {kind_of(condition.value)}".replace("a text", "text")
            have = "entity " if len(entities) == 1 else "entities "
            have += "has" if len(missing) == 1 else "have"
            notes[f"{len(missing):,} of {len(entities):,} {have} no {name}"] = None
    return tuple(notes)


def _has_values(question: Question) -> bool:
    parts = (part for part, _ in walk(question.formula))
    return any(isinstance(part, Meets) and isinstance(part.condition, Where) for part in parts)


def _conditions(
    formula: Formula, context: Sequence[Formula]
) -> Iterator[tuple[Where, Variable, list[Formula]]]:
    """Yield each condition on a value with its variable and the conjuncts around it."""
    match formula:
        case Meets(Where() as condition, Variable() as variable):
            yield condition, variable, [each for each in context if each is not formula]
        case Exists(_, part) | Negation(part):
            yield from _conditions(part, context)
        case Conjunction():
            parts = flatten([formula])
            for part in parts:
                yield from _conditions(
                    part, [*context, *(each for each in parts if each is not part)]
                )
        case Disjunction(parts):
            for part in parts:
                yield from _conditions(part, context)
