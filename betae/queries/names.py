"""Names <-> ids of a query, on a graph."""

from __future__ import annotations

from betae.errors import UnknownEntity, UnknownRelation
from betae.graph.graph import INVERSE, KnowledgeGraph
from betae.queries.ast import (
    PLACEHOLDER,
    Entity,
    Name,
    Project,
    Query,
    escape,
    rebuild,
    unescape,
)


def resolve(query: Query, graph: KnowledgeGraph) -> Query:
    """Replace every name by its id; check the ids that are already there; keep placeholders."""

    def to_ids(node: Query) -> Query:
        if isinstance(node, Entity) and node.name != PLACEHOLDER:
            entity = entity_id(node.name, graph)
            return node if entity is node.name else Entity(entity)
        if isinstance(node, Project) and node.relation != PLACEHOLDER:
            relation = relation_id(node.relation, graph)
            return node if relation is node.relation else Project(node.operand, relation)
        return node

    return rebuild(query, to_ids)


def unresolve(query: Query, graph: KnowledgeGraph) -> Query:
    """Replace every id by its name, for people."""

    def to_names(node: Query) -> Query:
        if isinstance(node, Entity) and isinstance(node.name, int):
            return Entity(escape(graph.entities[node.name], "entity"))
        if isinstance(node, Project) and isinstance(node.relation, int):
            name = escape(graph.relations[node.relation // 2], "relation")
            return Project(node.operand, INVERSE + name if node.relation % 2 else name)
        return node

    return rebuild(query, to_names)


def entity_id(spelled: Name, graph: KnowledgeGraph) -> int:
    """Return the id of an entity as a tree spells it; raise if the graph has none."""
    if isinstance(spelled, int):
        if spelled >= graph.num_entities:
            raise UnknownEntity(f"#{spelled}", [f"#0 to #{graph.num_entities - 1}"])
        return spelled
    return graph.entity_id(unescape(spelled, "entity"))


def relation_id(spelled: Name, graph: KnowledgeGraph) -> int:
    """Return the id of a directed relation as a tree spells it; raise if the graph has none."""
    if isinstance(spelled, int):
        if spelled >= graph.num_relations:
            raise UnknownRelation(f"#{spelled}", [f"#0 to #{graph.num_relations - 1}"])
        return spelled
    is_inverse = spelled.startswith(INVERSE)
    name = unescape(spelled.removeprefix(INVERSE) if is_inverse else spelled, "relation")
    found = graph.relation_id(name)
    if found % 2:  # the graph took the ~ of a name for an inverse
        raise UnknownRelation(name, [graph.relations[found // 2]])
    return found ^ is_inverse
