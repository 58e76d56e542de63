"""Names <-> ids of a query, on a graph."""

from __future__ import annotations

from betae.errors import UnknownEntity, UnknownRelation
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import PLACEHOLDER, Entity, Project, Query, rebuild


def resolve(query: Query, graph: KnowledgeGraph) -> Query:
    """Replace every name by its id; check the ids that are already there; keep placeholders."""

    num_entities, num_relations = graph.num_entities, graph.num_relations

    def to_ids(node: Query) -> Query:
        if isinstance(node, Entity):
            if node.name == PLACEHOLDER:
                return node
            if isinstance(node.name, str):
                return Entity(graph.entity_id(node.name))
            if node.name >= num_entities:
                raise UnknownEntity(f"#{node.name}", [f"#0 to #{num_entities - 1}"])
        elif isinstance(node, Project):
            if node.relation == PLACEHOLDER:
                return node
            if isinstance(node.relation, str):
                return Project(node.operand, graph.relation_id(node.relation))
            if node.relation >= num_relations:
                raise UnknownRelation(f"#{node.relation}", [f"#0 to #{num_relations - 1}"])
        return node

    return rebuild(query, to_ids)


def unresolve(query: Query, graph: KnowledgeGraph) -> Query:
    """Replace every id by its name, for people."""

    def to_names(node: Query) -> Query:
        if isinstance(node, Entity) and isinstance(node.name, int):
            return Entity(graph.entities[node.name])
        if isinstance(node, Project) and isinstance(node.relation, int):
            return Project(node.operand, graph.relation_name(node.relation))
        return node

    return rebuild(query, to_names)
