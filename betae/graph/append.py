"""Edges added to a graph: its ids stay, new names come after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.graph.convert import labels_by_name
from betae.graph.edges import SPLITS, Packing, distinct
from betae.graph.graph import KnowledgeGraph
from betae.graph.labels import Label, in_order
from betae.graph.names import Names
from betae.graph.rdf import BLANK
from betae.graph.triples import Triples, read_triples


def append_triples(graph: KnowledgeGraph, added: Any) -> KnowledgeGraph:
    """Return the graph with more training edges; it remembers the fingerprint of `graph`.

    An added edge that was held out for validation or test is a training edge from now on. Blank
    nodes that come from RDF are none of the graph's own, though they may be written alike.
    """
    if not isinstance(added, Triples):
        added = read_triples(added)
    added = _with_new_blank_nodes(graph, added)
    entities, entity_ids = _merge(graph.entities, added.entities)
    relations, relation_ids = _merge(graph.relations, added.relations)
    packing = Packing.of(len(entities), len(relations))
    keys = {split: packing.pack(*triples.T) for split, triples in graph.splits.items()}
    heads, between, tails = added.splits["train"].T
    fresh = packing.pack(entity_ids[heads], relation_ids[between], entity_ids[tails])
    keys = {split: here[~np.isin(here, fresh)] for split, here in keys.items()}
    keys["train"] = np.sort(np.concatenate([keys["train"], distinct(fresh)]))
    all_labels = _merged_labels(graph, added)
    appended = KnowledgeGraph.from_triples(
        replace(
            added,
            entities=entities,
            relations=relations,
            splits={split: np.stack(packing.unpack(keys[split]), axis=1) for split in SPLITS},
            labels={name: labels[0].text for name, labels in all_labels.items()},
            all_labels=all_labels,
            prefixes={**added.prefixes, **graph.prefixes},
        )
    )
    has_grown = appended.fingerprint != graph.fingerprint
    appended.ancestors = (*graph.ancestors, graph.fingerprint) if has_grown else graph.ancestors
    return appended


def _with_new_blank_nodes(graph: KnowledgeGraph, added: Triples) -> Triples:
    """Rename the blank nodes that were read, so that none has the name of one in the graph."""
    number, names = 1, added.blank_nodes
    while any(graph.entities.find(_numbered(name, number)) for name in names):
        number += 1
    renamed = {name: _numbered(name, number) for name in names}
    return replace(
        added,
        entities=[renamed.get(name, name) for name in added.entities],
        labels={renamed.get(name, name): label for name, label in added.labels.items()},
        all_labels={renamed.get(name, name): given for name, given in added.all_labels.items()},
        blank_nodes=frozenset(renamed.values()),
    )


def _numbered(blank_node: str, number: int) -> str:
    return f"{BLANK}append{number}.{blank_node.removeprefix(BLANK)}"


def _merge(names: Names, more: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names followed by the new ones of `more`, and the id of each of `more`."""
    merged = list(names)
    ids = {name: number for number, name in enumerate(merged)}
    for name in more:
        if name not in ids:
            ids[name] = len(merged)
            merged.append(name)
    return merged, np.array([ids[name] for name in more], dtype=np.int64)


def _merged_labels(graph: KnowledgeGraph, added: Triples) -> dict[str, list[Label]]:
    """Return all labels by name; of two that are as good, the added one is shown."""
    merged = labels_by_name(graph)
    for name, shown in added.labels.items():
        merged[name] = in_order(
            [*added.all_labels.get(name, [Label(shown)]), *merged.get(name, ())]
        )
    return merged
