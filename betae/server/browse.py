"""What is in the graph, as plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from betae.errors import UnknownEntity
from betae.graph.describe import Listed, describe_graph, list_entities, list_relations
from betae.graph.graph import KnowledgeGraph

BY_ID = re.compile(r"#(\d{1,10})")


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


def describe(graph: KnowledgeGraph) -> dict[str, Any]:
    """Return the figures of a graph and its prefixes."""
    figures = asdict(describe_graph(graph))
    figures["degree"] = {
        key: value if math.isfinite(value) else None for key, value in figures["degree"].items()
    }
    return {**figures, "prefixes": dict(graph.prefixes)}
