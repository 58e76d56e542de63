"""Whether a question has no answers because a relation is used the wrong way round."""

from __future__ import annotations

from betae.exact.joins import Joins
from betae.exact.select import marks, to_exact_tree
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import shorten
from betae.queries.ast import Entity, Kind, Project, Query, escape, nodes
from betae.queries.formula import Atom, Question, Variable, walk
from betae.queries.names import entity_id, relation_id
from betae.queries.read import as_query, read_question
from betae.queries.syntax import spell_name


def hint_of_direction(
    graph: KnowledgeGraph, question: str | Query, edges: Edges = "all"
) -> str | None:
    """Return how to turn a relation round that leads nowhere as it is used, but would otherwise.

    For a question without answers: `lives_in(Paris, ?X)`, where Paris is only ever a tail.
    """
    joins = Joins(graph, edges)
    read = read_question(question, graph.prefixes) if isinstance(question, str) else None
    tree = to_exact_tree(read or as_query(question), graph)
    steps = _steps(tree) if tree is not None else _steps_of_formula(read, graph) if read else []
    for step in steps:
        sources = marks(joins, step.operand)
        pairs = joins.pairs(step.relation)
        if not sources[pairs.heads].any() and sources[pairs.inverse.heads].any():
            return _hint(step, graph)
    return None


def _steps(tree: Query) -> list[Project]:
    """Return the projections of a tree, operands first."""
    return [node for node in nodes(tree) if isinstance(node, Project)]


def _steps_of_formula(question: Question, graph: KnowledgeGraph) -> list[Project]:
    """Return the steps from named entities in a formula."""
    steps = []
    for part, _ in walk(question.formula):
        if isinstance(part, Atom):
            relation = relation_id(part.relation, graph)
            ends = [(part.head, part.tail, relation), (part.tail, part.head, relation ^ 1)]
            steps += [
                Project(Entity(entity_id(start.name, graph)), direction)
                for start, stop, direction in ends
                if isinstance(start, Entity) and isinstance(stop, Variable)
            ]
    return steps


def _hint(step: Project, graph: KnowledgeGraph) -> str:
    is_inverse, number = int(step.relation) % 2, int(step.relation) // 2
    relation = _spell(graph.relations[number], "relation", graph)
    wanted, there = ("tail", "head") if is_inverse else ("head", "tail")
    if isinstance(step.operand, Entity):
        entity = int(step.operand.name)
        start = _spell(graph.entities[entity], "entity", graph)
        fact = f"{graph.entity_label(entity)} is never a {wanted} of {relation}, only a {there}"
    else:
        start = "?V"
        fact = f"What a step starts from is never among the {wanted}s of {relation}, only among "
        fact += f"the {there}s"
    if is_inverse:
        return f"{fact}: write {relation}({start}, ?X)."
    return f"{fact}: write {relation}(?X, {start}), or ~{relation}({start}, ?X)."


def _spell(name: str, kind: Kind, graph: KnowledgeGraph) -> str:
    """Return a name as it is written in logic text, with a prefix of the graph if one fits."""
    return spell_name(escape(shorten(name, graph.prefixes), kind), kind)
