"""Edges added to a graph or removed from it; ids stay, fingerprints before are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from betae.errors import InvalidArgument, UnresolvedName
from betae.graph.edges import SPLITS, Ids, Packing, Split, distinct
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import Literals
from betae.graph.names import Vocabulary, in_order
from betae.graph.rdf import BLANK
from betae.graph.source import TripleSource
from betae.graph.triples import Triples, read_triples, split_triples

MAX_EXPLAINED = 5  # unknown names with suggestions


def append_triples(graph: KnowledgeGraph, added: Triples | TripleSource) -> KnowledgeGraph:
    """Return the graph with more training edges; new names come after the old ones.

    An added edge that was held out becomes a training edge. Blank nodes of RDF files are new
    nodes, whatever they are called.
    """
    added = added if isinstance(added, Triples) else read_triples(added)
    renamed = _new_blank_nodes(graph, added)
    fresh_entities = [renamed.get(name, name) for name in added.entities]
    entities, entity_ids = _merged_names(graph.entities, fresh_entities)
    relations, relation_ids = _merged_names(graph.relations, added.relations)
    packing = Packing.of(len(entities), len(relations))
    heads, between, tails = added.splits["train"].T
    fresh = packing.pack(entity_ids[heads], relation_ids[between], entity_ids[tails])
    keys = {split: packing.pack(*triples.T) for split, triples in graph.written_ids.items()}
    keys = {split: here[~np.isin(here, fresh)] for split, here in keys.items()}
    keys["train"] = np.sort(np.concatenate([keys["train"], distinct(fresh)]))
    literals = added.literals.with_columns(pl.col("subject").replace(renamed))
    labels = graph.labels_by_name()
    for name, more in added.labels.items():  # of two that are as good, the added one is shown
        name = renamed.get(name, name)
        labels[name] = in_order([*more, *labels.get(name, ())])
    appended = KnowledgeGraph(
        Vocabulary.of(entities, labels),
        Vocabulary.of(relations, labels),
        {split: np.stack(packing.unpack(keys[split]), axis=1) for split in SPLITS},
        prefixes={**added.prefixes, **graph.prefixes},
        literals=Literals.of(
            pl.concat([graph.literals.named(graph.entities, graph.relations), literals]),
            entities,
            relations,
        ),
    )
    return _descendant(appended, graph)


def _descendant(changed: KnowledgeGraph, graph: KnowledgeGraph) -> KnowledgeGraph:
    has_changed = changed.fingerprint != graph.fingerprint
    changed.ancestors = (*graph.ancestors, graph.fingerprint) if has_changed else graph.ancestors
    return changed


def _new_blank_nodes(graph: KnowledgeGraph, added: Triples) -> dict[str, str]:
    """Return new names for the blank nodes that were read, none of which the graph has."""
    number = 0
    while True:
        number += 1
        start = f"{BLANK}append{number}."
        renamed = {name: start + name.removeprefix(BLANK) for name in added.blank_nodes}
        if not any(graph.entities.names.find(name) for name in renamed.values()):
            return renamed


def _merged_names(names: Sequence[str], more: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names followed by the new ones of `more`, and the id of each of `more`."""
    merged = list(names)
    ids = {name: index for index, name in enumerate(merged)}
    for name in more:
        if name not in ids:
            ids[name] = len(merged)
            merged.append(name)
    return merged, np.array([ids[name] for name in more], dtype=np.int64)


def hold_out(graph: KnowledgeGraph, valid: float, seed: int = 0) -> KnowledgeGraph:
    """Return the graph with a fraction of its training edges as validation edges.

    Every entity and relation keeps a training edge; ids and names stay.
    """
    train, held_out, _ = split_triples(graph.written_ids["train"], valid, 0.0, seed=seed)
    splits = {**graph.written_ids, "train": train, "valid": held_out}
    return _held_out(graph, splits, graph.ancestors)


def hold_out_again(graph: KnowledgeGraph, before: KnowledgeGraph) -> KnowledgeGraph:
    """Return a changed graph with the edges held out that were held out before, if still there."""
    packing = Packing.of(graph.num_entities, len(graph.relations))
    train = graph.written_ids["train"]
    is_valid = np.isin(packing.pack(*train.T), packing.pack(*before.written_ids["valid"].T))
    splits = {**graph.written_ids, "train": train[~is_valid], "valid": train[is_valid]}
    return _held_out(graph, splits, (*before.ancestors, before.fingerprint))


def _held_out(
    graph: KnowledgeGraph, splits: dict[Split, Ids], ancestors: Sequence[str]
) -> KnowledgeGraph:
    found = KnowledgeGraph(
        graph.entities,
        graph.relations,
        splits,
        ancestors=ancestors,
        prefixes=graph.prefixes,
        literals=graph.literals,
    )
    found.held_out_of, found.source = graph.fingerprint, graph.folder
    return found


# ---- removal ------------------------------------------------------------------------------------


@dataclass
class RemovalReport:
    """What became of the edges to remove."""

    removed: dict[Split, int] = field(default_factory=dict)
    absent: int = 0  # edges that the graph does not have
    unknown: list[str] = field(default_factory=list)  # messages on unknown names
    num_unknown: int = 0  # unknown names
    literals: int = 0  # removed


def remove_triples(
    graph: KnowledgeGraph, removed: Triples | TripleSource
) -> tuple[KnowledgeGraph, RemovalReport]:
    """Return the graph without these edges, whichever split they are in, and a report.

    Names and ids stay, with or without edges. Edges that the graph does not have are only counted.
    """
    removed = removed if isinstance(removed, Triples) else read_triples(removed)
    if removed.blank_nodes:
        raise InvalidArgument(
            f"A blank node of an RDF file ({min(removed.blank_nodes)}) is not in the graph. "
            "Use the graph's name for it in a TSV or CSV file: `betae export` shows it."
        )
    report = RemovalReport()
    packing = Packing.of(graph.num_entities, len(graph.relations))
    heads, relations, tails = removed.splits["train"].T
    entity_ids = _ids(removed.entities, graph.entities, graph.entity_id, report)
    relation_ids = _ids(removed.relations, graph.relations, graph.relation_id, report)
    edges = np.stack([entity_ids[heads], relation_ids[relations], entity_ids[tails]])
    keys = packing.pack(*edges[:, (edges >= 0).all(axis=0)])
    splits: dict[Split, Ids] = {}
    for split in SPLITS:
        stays = ~np.isin(packing.pack(*graph.written_ids[split].T), keys)
        splits[split] = graph.written_ids[split][stays]
        report.removed[split] = int((~stays).sum())
    report.absent = len(removed.splits["train"]) - sum(report.removed.values())
    if not len(splits["train"]):
        raise InvalidArgument("No training edge would be left, so nothing was removed.")
    literals = graph.literals.named(graph.entities, graph.relations)
    left = literals.join(removed.literals, on=literals.columns, how="anti")
    report.literals = len(literals) - len(left)
    smaller = KnowledgeGraph(
        graph.entities,
        graph.relations,
        splits,
        prefixes=graph.prefixes,
        literals=Literals.of(left, graph.entities, graph.relations),
    )
    return _descendant(smaller, graph), report


def _ids(
    wanted: Sequence[str],
    names: Sequence[str],
    look_up: Callable[[str], int],
    report: RemovalReport,
) -> NDArray[np.int64]:
    """Return the id of each name, -1 for an unknown one."""
    ids = {name: index for index, name in enumerate(names)}
    for name in wanted:
        if name in ids:
            continue
        report.num_unknown += 1
        if len(report.unknown) < MAX_EXPLAINED:
            try:
                look_up(name)
            except UnresolvedName as error:
                report.unknown.append(str(error))
            else:
                report.unknown.append(f"{name!r} is a label: edges are removed by name.")
    return np.array([ids.get(name, -1) for name in wanted], dtype=np.int64)
