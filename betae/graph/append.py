"""Edges added to a graph: its ids stay, new names come after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import SPLITS, Packing, distinct
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import Names
from betae.graph.triples import Triples


def append_triples(graph: KnowledgeGraph, added: Triples) -> KnowledgeGraph:
    """Return the graph with more training edges; it remembers the fingerprint of `graph`.

    An added edge that was held out for validation or test is a training edge from now on.
    """
    entities, entity_ids = _merge(graph.entities, added.entities)
    relations, relation_ids = _merge(graph.relations, added.relations)
    packing = Packing.of(len(entities), len(relations))
    keys = {split: packing.pack(*triples.T) for split, triples in graph.splits.items()}
    heads, between, tails = added.splits["train"].T
    fresh = packing.pack(entity_ids[heads], relation_ids[between], entity_ids[tails])
    keys = {split: here[~np.isin(here, fresh)] for split, here in keys.items()}
    keys["train"] = np.sort(np.concatenate([keys["train"], distinct(fresh)]))
    appended = KnowledgeGraph.from_triples(
        replace(
            added,
            entities=entities,
            relations=relations,
            splits={split: np.stack(packing.unpack(keys[split]), axis=1) for split in SPLITS},
            labels={**_labels(graph), **added.labels},
        )
    )
    has_grown = appended.fingerprint != graph.fingerprint
    appended.ancestors = (*graph.ancestors, graph.fingerprint) if has_grown else graph.ancestors
    return appended


def _merge(names: Names, more: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names followed by the new ones of `more`, and the id of each of `more`."""
    merged = list(names)
    ids = {name: number for number, name in enumerate(merged)}
    for name in more:
        if name not in ids:
            ids[name] = len(merged)
            merged.append(name)
    return merged, np.array([ids[name] for name in more], dtype=np.int64)


def _labels(graph: KnowledgeGraph) -> dict[str, str]:
    """Return the labels of a graph by name, as a reader of triples gives them."""
    tables = [(graph.entities, graph.entity_labels), (graph.relations, graph.relation_labels)]
    return {
        name: label
        for names, labels in tables
        if labels is not None
        for name, label in zip(names, labels, strict=True)
        if name != label
    }
