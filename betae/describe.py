"""What is in a graph: counts, degrees and frequent relations, as data and as a terminal table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from betae.edges import SPLITS, Split
from betae.graph import KnowledgeGraph


@dataclass(frozen=True)
class GraphDescription:
    """The figures of `betae info`; degrees count all edges at an entity, either direction."""

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


def draw_description(description: GraphDescription, title: str) -> RenderableType:
    """Lay the figures out for the terminal."""
    facts = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    facts.add_column(justify="right")
    facts.add_column()
    labelled = " (with labels)" if description.labelled else ""
    facts.add_row(f"{description.entities:,}", f"entities{labelled}")
    facts.add_row(f"{description.relations:,}", "relations, each with its inverse")
    for split, count in description.edges.items():
        facts.add_row(f"{count:,}", f"edges in {split}")
    for name, value in description.degree.items():
        facts.add_row(f"{value:,.1f}".removesuffix(".0"), f"edges at an entity, {name}")
    if description.isolated_in_train:
        facts.add_row(f"{description.isolated_in_train:,}", "entities without a training edge")

    bars = Table(title="Frequent relations", title_justify="left", box=None, padding=(0, 2))
    bars.add_column("edges", justify="right")
    bars.add_column("relation", overflow="fold")
    bars.add_column("")
    most = max(description.frequent_relations.values(), default=1)
    for name, count in description.frequent_relations.items():
        bars.add_row(f"{count:,}", Text(name), "█" * max(1, round(24 * count / most)))
    return Group(facts, Text(), bars)
