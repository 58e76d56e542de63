"""A graph in other forms: files, polars, networkx."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from betae.errors import InvalidArgument
from betae.graph.columns import COLUMNS
from betae.graph.edges import Split
from betae.graph.formats import write_table
from betae.graph.labels import Label

if TYPE_CHECKING:
    import networkx

    from betae.graph.graph import KnowledgeGraph


def to_polars(graph: KnowledgeGraph, splits: Sequence[Split]) -> pl.DataFrame:
    """Return the edges of some splits by name: a frame of head, relation and tail."""
    triples = np.concatenate([graph.splits[split] for split in splits])
    entities, relations = pl.Series(list(graph.entities)), pl.Series(list(graph.relations))
    columns = zip(COLUMNS, (entities, relations, entities), triples.T, strict=True)
    return pl.DataFrame({column: names[ids] for column, names, ids in columns})


def to_networkx(graph: KnowledgeGraph, splits: Sequence[Split]) -> networkx.MultiDiGraph:
    """Return a networkx graph: nodes by name with their `label`, relations as edge keys."""
    try:
        import networkx
    except ImportError:
        raise InvalidArgument("networkx is not installed: pip install networkx") from None
    result = networkx.MultiDiGraph()
    for entity, name in enumerate(graph.entities):
        result.add_node(name, label=graph.entity_label(entity))
    result.add_edges_from(
        (head, tail, relation) for head, relation, tail in to_polars(graph, splits).iter_rows()
    )
    return result


def export_graph(
    graph: KnowledgeGraph, path: Path, splits: Sequence[Split], format: str | None
) -> None:
    """Write the edges of some splits by name to a file, or to standard output (`-`)."""
    suffix = None if format is None else f".{format.lower().lstrip('.')}"
    if str(path) == "-" and suffix is None:
        suffix = ".tsv"
    write_table(to_polars(graph, splits), path, labels_by_name(graph), graph.prefixes, suffix)


def labels_by_name(graph: KnowledgeGraph) -> dict[str, list[Label]]:
    """Return the labels of every entity and relation that has any."""
    found: dict[str, list[Label]] = {}
    if graph.entity_labels is not None:
        found |= {name: graph.labels_of_entity(i) for i, name in enumerate(graph.entities)}
    if graph.relation_labels is not None:
        found |= {name: graph.labels_of_relation(i) for i, name in enumerate(graph.relations)}
    return {name: labels for name, labels in found.items() if labels}
