"""A question's computation tree, to be drawn: what each node holds, and how it is embedded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from betae.exact.answers import answers_batch
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Entity, Project, Query, nodes
from betae.queries.names import unresolve

if TYPE_CHECKING:  # a graph is served without torch
    from betae.models.base import QueryModel

EXAMPLES = 6  # entities that are named at each node


def describe_tree(
    graph: KnowledgeGraph, query: Query, edges: Edges, model: QueryModel | None, dims: int
) -> dict[str, Any]:
    """Return the nodes of a query of ids, operands before the nodes that use them."""
    every = list(dict.fromkeys(nodes(query)))  # a part that occurs twice is one node
    number = {node: place for place, node in enumerate(every)}
    described = [
        {
            "id": number[node],
            **_operator(graph, node),
            "text": str(unresolve(node, graph)),
            "operands": [number[operand] for operand in node.operands],
            "num_answers": len(found),
            "examples": [
                {"entity": graph.entities[entity], "label": graph.entity_label(entity)}
                for entity in found[:EXAMPLES].tolist()
            ],
        }
        for node, found in zip(every, answers_batch(graph, every, edges), strict=True)
    ]
    if model is not None:
        for node, embeddings in zip(described, _embeddings(model, every, dims), strict=True):
            node["embeddings"] = embeddings
    return {
        "query": str(unresolve(query, graph)),
        "edges": edges,
        "model": None if model is None else model.name,
        "root": number[query],
        "nodes": described,
    }


def _operator(graph: KnowledgeGraph, node: Query) -> dict[str, Any]:
    if isinstance(node, Entity):
        entity = int(node.name)
        name, label = graph.entities[entity], graph.entity_label(entity)
        return {"operator": "entity", "entity": name, "label": label}
    if isinstance(node, Project):
        relation, is_inverse = divmod(int(node.relation), 2)
        labels = graph.labels_of_relation(relation)
        name = graph.relations[relation]
        label = ("~" if is_inverse else "") + (labels[0].text if labels else name)
        return {
            "operator": "project",
            "relation": name,
            "inverse": bool(is_inverse),
            "label": label,
        }
    operator = type(node).__name__.lower()
    return {"operator": operator, "label": operator}


def _embeddings(
    model: QueryModel, queries: Sequence[Query], dims: int
) -> list[list[dict[str, Any]]]:
    """Return for each query the embeddings of the branches of its disjunctive normal form.

    There is none where the model lacks an operator, or was trained before an entity was added.
    """
    import torch

    from betae.models.beta import BetaE
    from betae.models.execute import embed_queries

    can = [place for place, query in enumerate(queries) if _can_embed(model, query)]
    found: list[list[dict[str, Any]]] = [[] for _ in queries]
    if not can:
        return found
    with torch.no_grad():
        embedded = embed_queries(model, [queries[place] for place in can])
        entropies = model.uncertainty(embedded.sets).tolist() if model.has_uncertainty else None
        parameters = embedded.sets.exp() if isinstance(model, BetaE) else None
    for row, owner in enumerate(embedded.owners.tolist()):
        values: dict[str, Any] = {}
        if parameters is not None:
            values["alpha"] = parameters[row, :dims].tolist()
            values["beta"] = parameters[row, model.dim : model.dim + dims].tolist()
        if entropies is not None:
            values["entropy"] = entropies[row]
        found[can[owner]].append(values)
    return found


def _can_embed(model: QueryModel, query: Query) -> bool:
    if not model.can(query):
        return False
    return all(
        int(node.name) < model.num_entities
        if isinstance(node, Entity)
        else not isinstance(node, Project) or int(node.relation) < model.num_relations
        for node in nodes(query)
    )
