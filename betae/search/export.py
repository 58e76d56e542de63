"""Entity vectors for a vector database."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.search.nearest import float32_array
from betae.storage import check_file, writing_file


def export_vectors(
    model: QueryModel, table: torch.Tensor, graph: KnowledgeGraph, path: Path
) -> int:
    """Write the search vectors of all entities, with id, name and label (.parquet) or alone (.npy).

    A database that ranks them by the model's metric against `model.set_vectors` of an embedded
    query answers the query. Returns the width of a vector.
    """
    if path.suffix not in (".parquet", ".npy"):
        raise InvalidArgument(f"{path} is neither .parquet nor .npy.")
    check_file(path)
    vectors = float32_array(model.entity_vectors(table))
    width = int(vectors.shape[1])
    with writing_file(path) as partial:
        if path.suffix == ".npy":
            with partial.open("wb") as file:
                np.save(file, vectors)
            return width
        import polars as pl

        ids = range(len(vectors))
        names = {
            "id": ids,
            "entity": [graph.entities[entity] for entity in ids],
            "label": [graph.entity_label(entity) for entity in ids],
        }
        column = pl.Series("vector", vectors, dtype=pl.Array(pl.Float32, width))
        pl.DataFrame(names).with_columns(column).write_parquet(partial)
    return width
