"""Scores of edges by models: the only predictors that need torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from betae.models.base import QueryModel

EDGES_PER_BATCH = 256

Floats = NDArray[np.float32]


class ModelScores:
    """Scores of the edges to some entities, by each of several models: negated distances."""

    def __init__(self, models: Sequence[QueryModel], num_entities: int, ids: NDArray[Any] | None):
        self.models = models
        chosen = None if ids is None else torch.from_numpy(ids)
        with torch.no_grad():
            tables = [model.eval().table(chosen) for model in models]
        self.tables = [table[:num_entities] for table in tables]

    def rows(self, heads: NDArray[Any], relations: NDArray[Any]) -> Iterator[Floats]:
        """Yield each model's scores of all tails of each (head, relation), (n, num_entities)."""
        for model, table in zip(self.models, self.tables, strict=True):
            with torch.no_grad():
                distances = model.distance(project(model, heads, relations), table)
                yield (-distances).float().numpy()

    def of_edges(
        self, heads: NDArray[Any], relations: NDArray[Any], tails: NDArray[Any]
    ) -> Iterator[Floats]:
        """Yield each model's score of each edge, (n,)."""
        for model, table in zip(self.models, self.tables, strict=True):
            found = [np.empty(0, dtype=np.float32)]
            for start in range(0, len(heads), EDGES_PER_BATCH):
                batch = slice(start, start + EDGES_PER_BATCH)
                with torch.no_grad():
                    sets = project(model, heads[batch], relations[batch])
                    distances = model.distance(sets, table[torch.from_numpy(tails[batch])])
                    found.append(-distances.diagonal().float().numpy())
            yield np.concatenate(found)


def project(model: QueryModel, heads: NDArray[Any], relations: NDArray[Any]) -> Tensor:
    """Embed the sets that relations lead to from entities, (n, width)."""
    sets = model.embed_entities(torch.from_numpy(heads).long())
    return model.project(sets, torch.from_numpy(relations).long())
