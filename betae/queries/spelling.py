"""Questions in the words of a graph: ids as labels, which read back to the same ids."""

from __future__ import annotations

from betae.graph.graph import KnowledgeGraph
from betae.graph.names import Vocabulary, shorten
from betae.queries.ast import Condition, Entity, Project, Query, rebuild
from betae.queries.read import unresolve
from betae.queries.syntax import spell_name
from betae.queries.to_sparql import to_sparql


def labelled(query: Query, graph: KnowledgeGraph) -> Query:
    """Replace every id in a tree by its label if no other has it, else by its name."""

    def to_labels(node: Query) -> Query:
        if isinstance(node, Entity) and isinstance(node.name, int):
            return Entity(_own_label(graph.entities, graph, node.name))
        if isinstance(node, Condition):
            return node.with_members(None)
        if isinstance(node, Project) and isinstance(node.relation, int):
            relation, is_inverse = divmod(node.relation, 2)
            label = _own_label(graph.relations, graph, relation)
            return Project(node.operand, label, bool(is_inverse))
        return node

    return rebuild(query, to_labels)


def spell_query(graph: KnowledgeGraph, query: Query) -> str:
    """Write a query of ids as logic text, by labels."""
    return str(labelled(query, graph))


def spell_sparql(graph: KnowledgeGraph, query: Query) -> str:
    """Write a query of ids as SPARQL, entities by their labels where those are theirs alone."""

    def spelled(node: Query) -> Query:
        if not isinstance(node, Entity) or not isinstance(node.name, int):
            return node
        label = graph.entities.label(node.name)
        is_own = graph.entities.find(label) == [node.name]
        return Entity(label if is_own else graph.entities[node.name])

    return to_sparql(unresolve(rebuild(query, spelled), graph))


def spell_entity(graph: KnowledgeGraph, entity: int) -> str:
    """Write an entity as in a question: by its label, if no other has it."""
    return spell_name(_own_label(graph.entities, graph, entity))


def spell_relation(graph: KnowledgeGraph, relation: int) -> str:
    """Write a relation as in a question; its id is that of the vocabulary, without direction."""
    return spell_name(_own_label(graph.relations, graph, relation))


def spell_atom(graph: KnowledgeGraph, relation: int, start: str, end: str) -> str:
    """Write the edges of a directed relation, from one term to another."""
    head, tail = (end, start) if relation % 2 else (start, end)
    return f"{spell_relation(graph, relation // 2)}({head}, {tail})"


def _own_label(names: Vocabulary, graph: KnowledgeGraph, index: int) -> str:
    """Return the label of an id if no other has it, else its name."""
    label = shorten(names.label(index), graph.prefixes)
    is_own = names.find(label, graph.prefixes) == [index]
    return label if is_own else shorten(names[index], graph.prefixes)
