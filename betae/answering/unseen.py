"""Names that were added to the graph after training: their known edges stand for them."""

from __future__ import annotations

from betae.exact.answers import answers
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.plan import UnionForm
from betae.queries.ast import Entity, Or, Project, Query, nodes
from betae.queries.rewrite import MAX_BRANCHES, num_branches

MOST = 32  # known answers that stand for a part of a query; fewer if there are too many branches


def unseen_names(query: Query, model: QueryModel, graph: KnowledgeGraph) -> list[str]:
    """Return the entities and relations of a query of ids that the model has not learned."""
    names = []
    for node in nodes(query):
        if isinstance(node, Entity) and int(node.name) >= model.num_entities:
            names.append(graph.entities[int(node.name)])
        elif isinstance(node, Project) and int(node.relation) >= model.num_relations:
            names.append(graph.relations[int(node.relation) // 2])
    return list(dict.fromkeys(names))


def seen_form(query: Query, model: QueryModel, graph: KnowledgeGraph, edges: Edges) -> Query | None:
    """Return a query that the model can embed, or None if it can only be answered by the facts.

    The set before a projection, if a name in it is new, becomes the union of its known answers: who
    lives in the capital of Newland is asked as who lives in Newtown.
    """
    most, limit = MOST, max(MAX_BRANCHES, num_branches(query))
    seen = _seen_form(query, model, graph, edges, most)
    while seen is not None and most > 1 and num_branches(seen) > limit:
        most //= 2
        seen = _seen_form(query, model, graph, edges, most)
    return seen


def union_of(query: Query, model: QueryModel, union: UnionForm) -> UnionForm:
    """Return the form for the unions of a seen form; those the user did not write need no `!`."""
    is_users = any(isinstance(node, Or) for node in nodes(query))
    return union if is_users or model.has_complement else "DNF"


def _seen_form(
    query: Query, model: QueryModel, graph: KnowledgeGraph, edges: Edges, most: int
) -> Query | None:
    def form(node: Query) -> Query | None:
        if isinstance(node, Entity):
            return node if int(node.name) < model.num_entities else None
        if isinstance(node, Project):
            if int(node.relation) >= model.num_relations:
                return None
            before = form(node.operand)
            if before is None:
                before = known_answers(node.operand)
            return None if before is None else Project(before, node.relation)
        operands = [form(operand) for operand in node.operands]
        return None if None in operands else node.with_operands(*operands)  # type: ignore[arg-type]

    def known_answers(node: Query) -> Query | None:
        known = answers(graph, node, edges)
        known = known[known < model.num_entities][:most]
        anchors = [Entity(int(entity)) for entity in known]
        return Or(*anchors) if len(anchors) > 1 else next(iter(anchors), None)

    return form(query)
