"""What is in a graph: counts, degrees and frequent relations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from betae.graph.edges import SPLITS, Split
from betae.graph.graph import KnowledgeGraph


@dataclass(frozen=True)
class GraphDescription:
    """The figures of `betae info`; degrees count the edges at an entity in either direction."""

    entities: int
    relations: int
    labelled: bool
    edges: dict[Split, int]
    degree: dict[str, float]  # min, median, mean, max over the entities, all splits
    isolated_in_train: int  # entities without a training edge
    frequent_relations: dict[str, int]  # edges of all splits, most frequent first
    fingerprint: str


def describe_graph(graph: KnowledgeGraph, num_frequent: int = 10) -> GraphDescription:
    """Gather the figures."""
    degrees = graph.adjacency("all").degrees()
    frequencies = np.zeros(len(graph.relations), dtype=np.int64)
    for split in SPLITS:
        frequencies += np.bincount(graph.splits[split][:, 1], minlength=len(frequencies))
    frequent = np.argsort(-frequencies, kind="stable")[:num_frequent]
    return GraphDescription(
        entities=graph.num_entities,
        relations=len(graph.relations),
        labelled=graph.entity_labels is not None,
        edges={split: len(graph.splits[split]) for split in SPLITS},
        degree={
            "min": int(degrees.min()),
            "median": float(np.median(degrees)),
            "mean": float(degrees.mean()),
            "max": int(degrees.max()),
        },
        isolated_in_train=int((graph.adjacency("train").degrees() == 0).sum()),
        frequent_relations={graph.relations[r]: int(frequencies[r]) for r in frequent},
        fingerprint=graph.fingerprint,
    )
