"""What is in the graph and what the model is, as plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from betae import __version__
from betae.answering.by_completion import ByCompletion
from betae.answering.complete import missing_edges
from betae.errors import UnknownEntity
from betae.graph.describe import Listed, describe_graph, list_entities, list_relations
from betae.graph.graph import KnowledgeGraph
from betae.server.limits import Limits
from betae.server.questions import Questions

BY_ID = re.compile(r"#(\d{1,10})")
LEAST_PROBABLE = 0.01  # of the missing edges that are listed


def entities(graph: KnowledgeGraph, search: str, limit: int) -> dict[str, Any]:
    """List entities, or search for some, those with the most edges first."""
    listed, number = list_entities(graph, search, limit)
    return {"entities": _plain(listed), "total": number}


def relations(graph: KnowledgeGraph, search: str, limit: int) -> dict[str, Any]:
    """List relations, or search for some, the most frequent first."""
    listed, number = list_relations(graph, search, limit)
    return {"relations": _plain(listed), "total": number}


def _plain(listed: Sequence[Listed]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "label": each.labels[0].text if each.labels else each.name,
            "labels": [{"text": label.text, "language": label.language} for label in each.labels],
            "edges": each.edges,
            "examples": each.examples,
        }
        for each in listed
    ]


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
    places = np.arange(min(start + offset, stop), min(start + offset + limit, stop))
    directed = adjacency.relations[first_pair + np.searchsorted(offsets, places, side="right") - 1]
    pairs = zip(directed.tolist(), adjacency.tails[places].tolist(), strict=True)
    return {
        "entity": graph.entities[entity],
        "label": graph.entity_label(entity),
        "labels": [
            {"text": label.text, "language": label.language}
            for label in graph.labels_of_entity(entity)
        ],
        "edges": [_edge(graph, entity, relation, other) for relation, other in pairs],
        "total": stop - start,
        "offset": offset,
    }


def _edge(graph: KnowledgeGraph, entity: int, directed: int, other: int) -> dict[str, Any]:
    head, tail = (other, entity) if directed % 2 else (entity, other)
    return {
        "head": graph.entities[head],
        "head_label": graph.entity_label(head),
        "relation": graph.relations[directed // 2],
        "tail": graph.entities[tail],
        "tail_label": graph.entity_label(tail),
        "direction": "in" if directed % 2 else "out",
    }


def missing_edges_of(questions: Questions, entity: int, number: int) -> list[dict[str, Any]] | None:
    """Return the most probable missing edges of an entity; None if the run has no probabilities."""
    graph, ranker = questions.run.graph, questions.answerer().ranker
    if not isinstance(ranker, ByCompletion):
        return None
    name = graph.entities[entity]
    found = missing_edges(graph, ranker.completed, entity=name, above=LEAST_PROBABLE)[:number]
    return [
        {
            **_edge_by_name(graph, name, row["head"], row["relation"], row["tail"]),
            "probability": row["probability"],
        }
        for row in found.iter_rows(named=True)
    ]


def _edge_by_name(
    graph: KnowledgeGraph, entity: str, head: str, relation: str, tail: str
) -> dict[str, Any]:
    def label(name: str) -> str:
        return graph.entity_label(graph.entities.find(name)[0])

    return {
        "head": head,
        "head_label": label(head),
        "relation": relation,
        "tail": tail,
        "tail_label": label(tail),
        "direction": "out" if head == entity else "in",
    }


def describe(graph: KnowledgeGraph, questions: Questions | None, limits: Limits) -> dict[str, Any]:
    """Return what is served: the graph, the model, and the limits."""
    model = None
    if questions is not None:
        it, ranker = questions.model, questions.answerer().ranker
        predictors = [it.name]
        if isinstance(ranker, ByCompletion):
            predictors = [each.name for each in ranker.completed.probabilities.predictors]
        model = {
            "name": it.name,
            "config": asdict(it.config),
            "parameters": sum(parameter.numel() for parameter in it.parameters()),
            "has_negation": it.has_complement,
            "predictors": predictors,
            "method": ranker.method,
        }
    graph_figures = asdict(describe_graph(graph))
    graph_figures["degree"] = {
        key: value if math.isfinite(value) else None
        for key, value in graph_figures["degree"].items()
    }
    return {
        "betae": __version__,
        "graph": {**graph_figures, "prefixes": dict(graph.prefixes)},
        "model": model,
        "limits": asdict(limits),
    }
