"""The graph and computation trees as plain values for JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from betae.errors import UnknownEntity
from betae.exact.answers import answers_batch
from betae.graph.describe import Listed, list_entities, list_relations
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import Label
from betae.queries.ast import Condition, Entity, Project, Query, nodes
from betae.queries.spelling import spell_query
from betae.queries.syntax import spell_condition

if TYPE_CHECKING:  # a graph is served without torch
    from betae.models.base import QueryModel

BY_ID = re.compile(r"#(\d{1,10})")
NODE_EXAMPLES = 6  # entities named at each node


def find_entities(graph: KnowledgeGraph, search: str, limit: int) -> dict[str, Any]:
    """List or search entities, those with the most edges first."""
    listed, total = list_entities(graph, search, limit)
    return {"entities": _plain(listed), "total": total}


def find_relations(graph: KnowledgeGraph, search: str, limit: int) -> dict[str, Any]:
    """List or search relations, the most frequent first."""
    listed, total = list_relations(graph, search, limit)
    return {"relations": _plain(listed), "total": total}


def _plain(listed: Sequence[Listed]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "label": each.labels[0].text if each.labels else each.name,
            "labels": _labels(each.labels),
            "edges": each.edges,
            "examples": each.examples,
            "symmetric": each.is_symmetric,
        }
        for each in listed
    ]


def _labels(labels: Sequence[Label]) -> list[dict[str, str]]:
    return [{"text": label.text, "language": label.language} for label in labels]


def find_entity(graph: KnowledgeGraph, name: str) -> int:
    """Return the id of an entity by its name or label, or `#id`."""
    try:
        return graph.entity_id(name)
    except UnknownEntity:
        by_id = BY_ID.fullmatch(name)
        if by_id is None or int(by_id[1]) >= graph.num_entities:
            raise
        return int(by_id[1])


def edges_of(graph: KnowledgeGraph, entity: int, offset: int, limit: int) -> dict[str, Any]:
    """Return a page of the known edges of an entity, in both directions."""
    adjacency = graph.adjacency("all")
    first_pair, last_pair = adjacency.head_offsets[entity : entity + 2].tolist()
    offsets = adjacency.tail_offsets[first_pair : last_pair + 1]
    start, stop = int(offsets[0]), int(offsets[-1])
    positions = np.arange(min(start + offset, stop), min(start + offset + limit, stop))
    directed = adjacency.relations[
        first_pair + np.searchsorted(offsets, positions, side="right") - 1
    ]
    pairs = zip(directed.tolist(), adjacency.tails[positions].tolist(), strict=True)
    return {
        "entity": graph.entities[entity],
        "label": graph.entity_label(entity),
        "labels": _labels(graph.entities.labels_of(entity)),
        "values": [literal._asdict() for literal in graph.literals.of_subject(entity)],
        "edges": [
            describe_edge(graph, head, directed // 2, tail, "in" if directed % 2 else "out")
            for directed, other in pairs
            for head, tail in [(other, entity) if directed % 2 else (entity, other)]
        ],
        "total": stop - start,
        "offset": offset,
    }


def describe_edge(
    graph: KnowledgeGraph, head: int, relation: int, tail: int, direction: str
) -> dict[str, Any]:
    """Describe an edge by names and labels."""
    return {
        "head": graph.entities[head],
        "head_label": graph.entity_label(head),
        "relation": graph.relations[relation],
        "relation_label": graph.relation_label(2 * relation),
        "tail": graph.entities[tail],
        "tail_label": graph.entity_label(tail),
        "direction": direction,
    }


# ---- computation trees -------------------------------------------------------------------------


def describe_tree(graph: KnowledgeGraph, query: Query, edges: Edges) -> dict[str, Any]:
    """Describe the nodes of a query of ids, operands before the nodes that use them."""
    index = {node: i for i, node in enumerate(dict.fromkeys(nodes(query)))}
    described = [
        {
            "id": index[node],
            **_operator(graph, node),
            "text": spell_query(graph, node),
            "operands": [index[operand] for operand in node.operands],
            "num_answers": len(found),
            "examples": [
                {"entity": graph.entities[entity], "label": graph.entity_label(entity)}
                for entity in found[:NODE_EXAMPLES].tolist()
            ],
        }
        for node, found in zip(index, answers_batch(graph, list(index), edges), strict=True)
    ]
    root = index[query]
    text = described[root]["text"]
    return {"query": text, "edges": edges, "model": None, "root": root, "nodes": described}


def _operator(graph: KnowledgeGraph, node: Query) -> dict[str, Any]:
    if isinstance(node, Entity):
        entity = int(node.name)
        name, label = graph.entities[entity], graph.entity_label(entity)
        return {"operator": "entity", "entity": name, "label": label}
    if isinstance(node, Project):
        relation, is_inverse = divmod(int(node.relation), 2)
        labels, name = graph.relations.labels_of(relation), graph.relations[relation]
        label = ("~" if is_inverse else "") + (labels[0].text if labels else name)
        inverse = bool(is_inverse)
        return {"operator": "project", "relation": name, "inverse": inverse, "label": label}
    if isinstance(node, Condition):
        return {"operator": "condition", "label": spell_condition(node, "?")}
    operator = type(node).__name__.lower()
    return {"operator": operator, "label": operator}


def add_embeddings(tree: dict[str, Any], query: Query, model: QueryModel, dims: int) -> None:
    """Add to each node of a description the embeddings of its disjunctive normal form's branches.

    None where the model lacks an operator, or was trained before an entity was added.
    """
    import torch

    from betae.models.beta import BetaE
    from betae.models.execute import embed_queries

    tree["model"] = model.name
    described = dict(zip(dict.fromkeys(nodes(query)), tree["nodes"], strict=True))
    for node in described.values():
        node["embeddings"] = []
    queries = [node for node in described if _can_embed(model, node)]
    if not queries:
        return
    with torch.no_grad():
        embedded = embed_queries(model, queries)
        entropies = model.uncertainty(embedded.sets).tolist() if model.has_uncertainty else None
        parameters = embedded.sets.exp() if isinstance(model, BetaE) else None
    for row, owner in enumerate(embedded.owners.tolist()):
        values: dict[str, Any] = {}
        if parameters is not None:
            values["alpha"] = parameters[row, :dims].tolist()
            values["beta"] = parameters[row, model.dim : model.dim + dims].tolist()
        if entropies is not None:
            values["entropy"] = entropies[row]
        described[queries[owner]]["embeddings"].append(values)


def _can_embed(model: QueryModel, query: Query) -> bool:
    return model.can(query) and all(
        int(node.name) < model.num_entities
        if isinstance(node, Entity)
        else not isinstance(node, Project) or int(node.relation) < model.num_relations
        for node in nodes(query)
    )
