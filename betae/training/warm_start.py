"""A warm start: a model for a graph that has grown begins with the weights of an earlier run.

What the earlier run knows keeps its row. An entity that is new begins as the mean of its
neighbours, a relation that is new as the mean of the relations that lead from the same entities;
those that have neither, as the mean of all that are known. The optimizer begins anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.store import FORMAT_VERSION, TABLE, config_to_json, load_model
from betae.models.tensors import read_tensors
from betae.storage import read_manifest
from betae.training.checkpoint import STATE
from betae.training.config import TrainConfig
from betae.training.folder import RunFolder
from betae.training.learner import LOSS, Learner

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # who is beside whom


def check_earlier(run: RunFolder, config: TrainConfig, graph: KnowledgeGraph) -> None:
    """Raise unless a run has such a model, trained on this graph or before edges were added."""
    manifest = read_manifest(run.best_model(), "model", FORMAT_VERSION)
    if manifest["graph"] not in (graph.fingerprint, *graph.ancestors):
        raise InvalidArgument(
            f"{run.path} was trained on another graph. Continue from a run on this graph as it is, "
            "or as it was before `betae ingest --append` added to it."
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
    """Return a run to begin from and that of its predictor, if needed, once they are checked."""
    earlier = RunFolder(folder)
    check_earlier(earlier, config, graph)
    predictor = RunFolder(earlier.predictor)
    if beside is None or not predictor.has_model:
        return earlier, None
    check_earlier(predictor, beside, graph)
    return earlier, predictor


def start_from(run: RunFolder, learner: Learner, graph: KnowledgeGraph) -> None:
    """Give a fresh learner the weights of the best model of a run, and what its loss learned."""
    check_earlier(run, learner.config, graph)
    with torch.no_grad():
        _copy_weights(load_model(run.best_model()), learner.model, graph)
        _copy_loss(run, learner)


def _copy_weights(earlier: QueryModel, model: QueryModel, graph: KnowledgeGraph) -> None:
    known = earlier.state_dict()
    beside = {
        TABLE: _entities_beside,
        **dict.fromkeys(model.relation_tables(), _relations_beside),
    }
    for name, tensor in model.state_dict().items():
        before = known[name].to(tensor.device)
        number = model.num_entities if name == TABLE else len(tensor)
        if name in beside and len(before) < number:
            before = torch.cat([before, _means(before, beside[name](graph), number)])
        tensor.copy_(before[model.rows.start : model.rows.stop] if name == TABLE else before)


def _copy_loss(run: RunFolder, learner: Learner) -> None:
    """Copy the learned scale and offset of the loss, which only checkpoints hold."""
    checkpoint = run.newest("checkpoint")
    if checkpoint is None or not (checkpoint / STATE).is_file():
        return
    tensors = read_tensors(checkpoint / STATE)
    for name, tensor in learner.loss.state_dict().items():
        before = tensors.get(LOSS + name)
        if before is not None and before.shape == tensor.shape:
            tensor.copy_(before)


def _entities_beside(graph: KnowledgeGraph) -> Pairs:
    """Return every entity of a training edge, and the other one: the edges in both directions."""
    heads, _, tails = graph.splits["train"].T.astype(np.int64)
    return np.concatenate([heads, tails]), np.concatenate([tails, heads])


def _relations_beside(graph: KnowledgeGraph) -> Pairs:
    """Return pairs of directed relations that lead from the same entity, once for each entity."""
    heads, relations, tails = graph.splits["train"].T.astype(np.int64)
    starts = np.concatenate([heads, tails])
    directed = np.concatenate([2 * relations, 2 * relations + 1])
    found = np.unique(np.stack([starts, directed], axis=1), axis=0)
    starts, directed = found.T
    counts = np.bincount(starts)
    firsts = np.cumsum(counts) - counts
    # Each relation of an entity beside each of them.
    of_start = counts[starts]
    left = np.repeat(directed, of_start)
    offsets = np.arange(len(left)) - np.repeat(np.cumsum(of_start) - of_start, of_start)
    right = directed[np.repeat(firsts[starts], of_start) + offsets]
    return left, right


def _means(known: Tensor, beside: Pairs, number: int) -> Tensor:
    """Return rows for what is new: the mean of the rows beside it, known or found before it.

    `known` has the first rows, of `number` in all. What is beside nothing known gets its row when
    something beside it has one, and the mean of all if nothing ever has.
    """
    rows = torch.cat([known, known.new_zeros(number - len(known), *known.shape[1:])])
    has_row = torch.arange(number, device=rows.device) < len(known)
    left, right = (torch.from_numpy(ids).to(rows.device) for ids in beside)
    while True:
        counts = ~has_row[left] & has_row[right]
        news = torch.unique(left[counts])
        if not len(news):
            break
        sums = torch.zeros_like(rows).index_add_(0, left[counts], rows[right[counts]])
        numbers = torch.bincount(left[counts], minlength=number)
        rows[news] = sums[news] / numbers[news].unsqueeze(1)
        has_row[news] = True
    rows[~has_row] = known.mean(dim=0) if len(known) else 0
    return rows[len(known) :]
