"""Edges removed from a graph: its names and ids stay, whether or not they have an edge left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.errors import InvalidArgument, UnresolvedName
from betae.graph.convert import labels_by_name
from betae.graph.edges import SPLITS, Ids, Packing, Split
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import Names
from betae.graph.triples import Triples, read_triples

MOST_EXPLAINED = 5  # unknown names for which the closest ones are looked up


@dataclass
class RemovalReport:
    """What became of the edges to remove."""

    removed: dict[Split, int] = field(default_factory=dict)
    absent: int = 0  # edges that the graph does not have
    unknown: list[str] = field(default_factory=list)  # why not: sentences on names it does not have
    num_unknown: int = 0  # names that it does not have


def remove_triples(graph: KnowledgeGraph, removed: Any) -> tuple[KnowledgeGraph, RemovalReport]:
    """Return the graph without these edges, in whichever split they are, and what was there.

    The graph remembers the fingerprint of `graph`. An edge that is not there changes nothing.
    """
    if not isinstance(removed, Triples):
        removed = read_triples(removed)
    if removed.blank_nodes:
        raise InvalidArgument(
            f"A blank node of an RDF file ({min(removed.blank_nodes)}) is none of the graph's. "
            "Name it as the graph does, in a TSV or CSV file: `betae export` shows how."
        )
    report = RemovalReport()
    asked = _asked(graph, removed, report)
    packing = Packing.of(graph.num_entities, len(graph.relations))
    gone = packing.pack(*asked.T)
    splits: dict[Split, Ids] = {}
    for split in SPLITS:
        stays = ~np.isin(packing.pack(*graph.splits[split].T), gone)
        splits[split] = graph.splits[split][stays]
        report.removed[split] = int((~stays).sum())
    report.absent = len(removed.splits["train"]) - sum(report.removed.values())
    if not len(splits["train"]):
        raise InvalidArgument("No training edge would be left, so nothing was removed.")
    labels = labels_by_name(graph)
    smaller = KnowledgeGraph.from_triples(
        Triples(
            list(graph.entities),
            list(graph.relations),
            splits,
            {name: given[0].text for name, given in labels.items()},
            all_labels=labels,
            prefixes=graph.prefixes,
        )
    )
    has_changed = smaller.fingerprint != graph.fingerprint
    smaller.ancestors = (*graph.ancestors, graph.fingerprint) if has_changed else graph.ancestors
    return smaller, report


def _asked(graph: KnowledgeGraph, removed: Triples, report: RemovalReport) -> Ids:
    """Return the edges to remove by the graph's ids, (n, 3); those of unknown names left out."""
    heads, relations, tails = removed.splits["train"].T
    entity_ids = _ids(removed.entities, graph.entities, graph.entity_id, report)
    relation_ids = _ids(removed.relations, graph.relations, graph.relation_id, report)
    asked = np.stack([entity_ids[heads], relation_ids[relations], entity_ids[tails]], axis=1)
    return asked[(asked >= 0).all(axis=1)].astype(np.int32)


def _ids(
    asked: Sequence[str],
    names: Names,
    look_up: Callable[[str], int],
    report: RemovalReport,
) -> NDArray[np.int64]:
    """Return the id of each name, -1 for one that the graph does not have."""
    numbers = {name: number for number, name in enumerate(names)}
    for name in asked:
        if name in numbers:
            continue
        report.num_unknown += 1
        if len(report.unknown) < MOST_EXPLAINED:
            try:
                look_up(name)
            except UnresolvedName as error:
                report.unknown.append(str(error))
            else:
                report.unknown.append(f"{name!r} is a label: edges are removed by name.")
    return np.array([numbers.get(name, -1) for name in asked], dtype=np.int64)
