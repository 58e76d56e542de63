"""Names that came into the graph after the model was trained: their known edges stand for them."""

from __future__ import annotations

from betae.edges import View
from betae.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.queries.ast import Entity, Or, Project, Query, nodes
from betae.symbolic import answers

MOST = 32  # known answers that stand for a part of a query


def unseen_names(query: Query, model: QueryModel, graph: KnowledgeGraph) -> list[str]:
    """Return the entities and relations of a query of ids that the model has not learned."""
    names = []
    for node in nodes(query):
        if isinstance(node, Entity) and int(node.name) >= model.num_entities:
            names.append(graph.entities[int(node.name)])
        elif isinstance(node, Project) and int(node.relation) >= model.num_relations:
            names.append(graph.relations[int(node.relation) // 2])
    return list(dict.fromkeys(names))


def seen_form(query: Query, model: QueryModel, graph: KnowledgeGraph, view: View) -> Query | None:
    """Return a query that the model can embed, or None if it can only be answered by the facts.

    The set before a projection, if a name in it is new, becomes the union of its known answers: who
    lives in the capital of Newland is asked as who lives in Newtown.
    """

    def form(node: Query) -> Query | None:
        if isinstance(node, Entity):
            return node if int(node.name) < model.num_entities else None
        if isinstance(node, Project):
            if int(node.relation) >= model.num_relations:
                return None
            before = form(node.operand) or known_answers(node.operand)
            return before and Project(before, node.relation)
        operands = [form(operand) for operand in node.operands]
        return None if None in operands else node.with_operands(*operands)  # type: ignore[arg-type]

    def known_answers(node: Query) -> Query | None:
        known = answers(graph, node, view)
        known = known[known < model.num_entities][:MOST]
        anchors = [Entity(int(entity)) for entity in known]
        return Or(*anchors) if len(anchors) > 1 else next(iter(anchors), None)

    return form(query)
