"""Learner: what a step changes, and the two halves of a step, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from betae import parallel
from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.complex import ComplexConfig
from betae.models.execute import anchors_of, embed_queries
from betae.models.store import build_model
from betae.training import distributed
from betae.training.batches import Batch
from betae.training.config import TrainConfig
from betae.training.links import LinkLoss
from betae.training.losses import MarginLoss, SoftmaxLoss, make_loss
from betae.training.optimizer import AnyOptimizer, make_optimizer

LOSS = "loss."  # before the names of the loss's tensors in a checkpoint


@dataclass(frozen=True)
class Learner:
    """A model with its loss, which has learned numbers of its own, and their optimizer."""

    config: TrainConfig
    model: QueryModel
    loss: SoftmaxLoss | MarginLoss | LinkLoss
    optimizer: AnyOptimizer
    device: torch.device

    def forward(self, batch: Batch) -> Tensor:
        """Return this process's part of the mean loss over a batch."""
        model, share = self.model, distributed.share_of(batch).to(self.device)
        if parallel.num_processes() > 1:
            anchors = anchors_of(share.groups, model.num_entities).to(self.device)
            ids = torch.cat([share.candidates, anchors])
            model.gathered = distributed.borrow(model, ids)
        with matrix_precision(self.config.precision, self.device):
            if isinstance(self.loss, LinkLoss):
                costs: Tensor = self.loss(model, share, batch)
                return costs.sum() / len(batch)
            embedded = embed_queries(model, share.groups)
            distances = embedded.best(model.distance(embedded.sets, model.table(share.candidates)))
        uncertainty = None
        if self.config.loss == "softmax" and self.config.size and model.has_uncertainty:
            largest = -embedded.best(-model.uncertainty(embedded.sets))
            uncertainty = largest.float() / model.dim
        costs = self.loss(distances.float(), share, uncertainty)
        return costs.sum() / len(batch)

    def backward(self, loss: Tensor) -> float:
        """Compute the gradients, those of all processes together; return the whole loss."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        distributed.sum_gradients(self.model, self.optimizer)
        self.model.gathered = None
        return float(parallel.sum_over_processes(loss.detach()))

    def state(self) -> dict[str, Tensor]:
        """Return, by name, what is needed to resume beside the model and `optimizer.moments()`."""
        of_loss = {LOSS + name: tensor for name, tensor in self.loss.state_dict().items()}
        return {**self.optimizer.state(), **of_loss}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up such a state."""
        of_loss = {name: tensor for name, tensor in tensors.items() if name.startswith(LOSS)}
        self.loss.load_state_dict({name.removeprefix(LOSS): t for name, t in of_loss.items()})
        self.optimizer.restore({name: t for name, t in tensors.items() if name not in of_loss})


def make_learner(graph: KnowledgeGraph, config: TrainConfig, folder: Path = Path()) -> Learner:
    """Build a fresh model for a graph, on the GPU if there is one, with this process's rows.

    A table on disk is in the `folder` of the run, or in the nearest one above that is there.
    """
    torch.manual_seed(config.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    is_on_disk = config.table == "disk"
    if is_on_disk and device.type == "cuda":
        raise InvalidArgument(
            "table = 'disk' is for training on CPUs. Set CUDA_VISIBLE_DEVICES= to hide the GPU, or "
            "leave it out."
        )
    number, place = parallel.process_number(), folder if is_on_disk else None
    rows = distributed.rows_of(number, graph.num_entities, place)
    model = build_model(config.model, graph.num_entities, graph.num_relations, rows).to(device)
    model.has_sparse_gradient = True
    loss = LinkLoss(config.model) if isinstance(config.model, ComplexConfig) else make_loss(config)
    return Learner(config, model, loss.to(device), make_optimizer(model, loss, config), device)


def matrix_precision(precision: str, device: torch.device) -> torch.autocast:
    """Use bfloat16 for matrix products where the hardware is fast at it, or as asked."""
    wanted = precision == "bfloat16" or (precision == "auto" and has_fast_bfloat16())
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted)


def has_fast_bfloat16() -> bool:
    """Tell whether bfloat16 products are faster than float32 ones here."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
