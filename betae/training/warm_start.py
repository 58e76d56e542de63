"""Warm start: initialise a model for a graph that has grown with the weights of an earlier run.

Known entities and relations keep their rows. A new entity starts as the mean of its neighbours, a
new relation as the mean of the relations of the same entities; without any, as the mean of all
known rows. The optimizer starts anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models.store import TABLE, config_to_json, load_model, read_tensors
from betae.storage import read_manifest
from betae.training.config import TrainConfig
from betae.training.folder import STATE, RunFolder
from betae.training.learner import LOSS, Learner

Neighbours = tuple[NDArray[np.int64], NDArray[np.int64]]  # pairs (id, neighbouring id)


def check_earlier(run: RunFolder, config: TrainConfig, graph: KnowledgeGraph) -> None:
    """Raise unless a run has the same kind of model, trained on this graph or an earlier state."""
    manifest = read_manifest(run.best_model(), "model")
    if manifest["graph"] not in (graph.fingerprint, *graph.ancestors):
        raise InvalidArgument(
            f"{run.path} was trained on another graph. Continue from a run on this graph as it is, "
            "or as it was before `betae ingest --append`."
        )
    before, now = manifest["model"], config_to_json(config.model)
    differ = [name for name in now if before.get(name) != now[name]]
    if differ:
        raise InvalidArgument(
            f"The model of {run.path} has another {', '.join(differ)} than the recipe's. They must "
            "be the same: leave out the recipe, or change it."
        )


def earlier_runs(
    folder: Path | str, config: TrainConfig, beside: TrainConfig | None, graph: KnowledgeGraph
) -> tuple[RunFolder, RunFolder | None]:
    """Check and return the run to start from and, if needed, that of its predictor."""
    earlier = RunFolder(folder)
    check_earlier(earlier, config, graph)
    predictor = RunFolder(earlier.predictor)
    if beside is None or not predictor.has_model:
        return earlier, None
    check_earlier(predictor, beside, graph)
    return earlier, predictor


@torch.no_grad()
def start_from(run: RunFolder, learner: Learner, graph: KnowledgeGraph) -> None:
    """Copy the weights of a run's best model, and the parameters of its loss, to a learner."""
    model, known = learner.model, load_model(run.best_model()).state_dict()
    neighbours = dict.fromkeys(model.relation_tables, _relation_neighbours)
    neighbours[TABLE] = _entity_neighbours
    for name, tensor in model.state_dict().items():
        before = known[name].to(tensor.device)
        num_rows = model.num_entities if name == TABLE else len(tensor)
        if name in neighbours and len(before) < num_rows:
            before = torch.cat([before, _means(before, neighbours[name](graph), num_rows)])
        tensor.copy_(before[model.rows.start : model.rows.stop] if name == TABLE else before)
    # Only checkpoints hold the parameters of the loss.
    checkpoint = run.newest("checkpoint")
    if checkpoint is None or not (checkpoint / STATE).is_file():
        return
    tensors = read_tensors(checkpoint / STATE)
    for name, tensor in learner.loss.state_dict().items():
        found = tensors.get(LOSS + name)
        if found is not None and found.shape == tensor.shape:
            tensor.copy_(found)


def _entity_neighbours(graph: KnowledgeGraph) -> Neighbours:
    """Return the two entities of every training edge, in both directions."""
    heads, _, tails = graph.written_ids["train"].T.astype(np.int64)
    return np.concatenate([heads, tails]), np.concatenate([tails, heads])


def _relation_neighbours(graph: KnowledgeGraph) -> Neighbours:
    """Return pairs of directed relations of the same entity, once per entity."""
    heads, relations, tails = graph.written_ids["train"].T.astype(np.int64)
    starts = np.concatenate([heads, tails])
    directed = np.concatenate([2 * relations, 2 * relations + 1])
    pairs = pl.DataFrame({"start": starts, "left": directed}).unique().sort("start", "left")
    others = pairs.rename({"left": "right"})
    found = pairs.join(others, on="start", maintain_order="left_right")
    return found["left"].to_numpy(writable=True), found["right"].to_numpy(writable=True)


def _means(known: Tensor, neighbours: Neighbours, num_rows: int) -> Tensor:
    """Return the new rows, of `num_rows` in all: means of neighbouring rows.

    `known` are the first rows. Rows spread from neighbour to neighbour; those never reached get the
    mean of all known rows.
    """
    rows = torch.cat([known, known.new_zeros(num_rows - len(known), *known.shape[1:])])
    has_row = torch.arange(num_rows, device=rows.device) < len(known)
    left, right = (torch.from_numpy(ids).to(rows.device) for ids in neighbours)
    while True:
        usable = ~has_row[left] & has_row[right]
        news = torch.unique(left[usable])
        if not len(news):
            break
        sums = torch.zeros_like(rows).index_add_(0, left[usable], rows[right[usable]])
        counts = torch.bincount(left[usable], minlength=num_rows)
        rows[news] = sums[news] / counts[news].unsqueeze(1)
        has_row[news] = True
    rows[~has_row] = known.mean(dim=0) if len(known) else 0
    return rows[len(known) :]
