"""The nearest entities of a query, found exactly: all distances, a block at a time."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from betae.models.base import QueryModel
from betae.models.execute import Embedded, score_blocks

Nearest = tuple[NDArray[np.float32], NDArray[np.int64]]  # distances and ids, (num_queries, k)


def nearest(model: QueryModel, embedded: Embedded, table: torch.Tensor, k: int) -> Nearest:
    """Return the distances and ids of the k nearest entities of each query, nearest first."""
    with torch.no_grad():
        k = min(k, len(table))
        pieces = [_smallest(distances, k) for _, distances in score_blocks(model, embedded, table)]
        distances, ids = (torch.cat(parts).cpu() for parts in zip(*pieces, strict=True))
        return distances.float().numpy(), ids.numpy()


def nearest_of_all(model: QueryModel, embedded: Embedded, k: int) -> Nearest:
    """Do as `nearest` for all entities of a model, of whose table only a part is in memory."""
    best = np.empty((embedded.num_queries, 0), dtype=np.float32)
    ids = np.empty((embedded.num_queries, 0), dtype=np.int64)
    for first, table in model.tables():
        found = nearest(model, embedded, table, k)
        best = np.concatenate([best, found[0]], axis=1)
        ids = np.concatenate([ids, found[1] + first], axis=1)
        order = np.argsort(best, axis=1, kind="stable")[:, :k]
        best, ids = np.take_along_axis(best, order, 1), np.take_along_axis(ids, order, 1)
    return best, ids


def _smallest(distances: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k smallest of each row, ascending; ties at the cut are broken in any order."""
    if k == distances.shape[1]:
        return torch.sort(distances, dim=1, stable=True)
    return torch.topk(distances, k, largest=False)


def float32_array(vectors: torch.Tensor) -> NDArray[np.float32]:
    """Return search vectors as faiss and files of vectors take them."""
    return np.ascontiguousarray(vectors.numpy(force=True), dtype=np.float32)


def recall(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Return the share of the true ids that were found, the mean over queries."""
    shares = [np.isin(wanted, here).mean() for here, wanted in zip(found, truth, strict=True)]
    return float(np.mean(shares))
