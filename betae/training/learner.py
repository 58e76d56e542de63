"""One training step: forward, backward, and an optimizer with sparse updates of the entity table.

A step looks up a few thousand entities. A dense optimizer would read and write every row of the
table and of its moments; here the gradient of the table is sparse and only its rows are updated.

Networks and relation rows are updated by PyTorch's Adam or, for ComplEx, Adagrad. The entity rows
are updated here: PyTorch's SparseAdam has no weight decay and allocates its moments in memory, and
its Adagrad with sparse gradients rounds differently and takes 7 to 30 % longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from betae import parallel
from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import anchors_of, embed_queries
from betae.models.store import build_model
from betae.parallel import in_threads
from betae.training import distributed
from betae.training.batches import Batch
from betae.training.config import AdagradConfig, AdamConfig, SoftmaxConfig, TrainConfig
from betae.training.losses import LinkLoss, MarginLoss, SoftmaxLoss, build_loss

BETAS, EPSILON = (0.9, 0.999), 1e-8
LOSS = "loss."  # prefix of the loss's tensors in a checkpoint


# ---- optimizer ----------------------------------------------------------------------------------


class Optimizer:
    """Adam or Adagrad for all parameters, with sparse updates of the entity table."""

    def __init__(self, model: QueryModel, loss: nn.Module, config: AdamConfig | AdagradConfig):
        self.config, self.entities = config, model.entities
        tables = [model.get_parameter(name) for name in model.relation_tables]
        parameters, apart = (*model.parameters(), *loss.parameters()), {model.entities, *tables}
        others = [parameter for parameter in parameters if parameter not in apart]
        self.dense: torch.optim.Optimizer
        if isinstance(config, AdamConfig):
            self.rates = [config.learning_rate, config.learning_rate * config.table_rate]
            groups = [{"params": others}, {"params": tables}]
            self.dense = torch.optim.Adam(groups, betas=BETAS, eps=EPSILON, fused=True)
            names = ["entities.first", "entities.second"]
        else:
            self.rates = [config.learning_rate]
            self.dense = torch.optim.Adagrad([*others, *tables], eps=EPSILON, foreach=False)
            names = ["entities.sum"]
        # State with a row for each entity, by name; `state` returns all other state.
        self.moments = {name: model.rows.zeros_like(model.entities) for name in names}
        self.num_steps = 0

    def dense_parameters(self) -> list[Tensor]:
        """Return all parameters except the entity table."""
        return [parameter for group in self.dense.param_groups for parameter in group["params"]]

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self.dense.zero_grad()
        self.entities.grad = None

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """Update all parameters at `factor` times the learning rates."""
        for group, rate in zip(self.dense.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.dense.step()
        self.num_steps += 1
        assert self.entities.grad is not None
        gradient = self.entities.grad.coalesce()
        rows, values, rate = gradient.indices()[0], gradient.values(), self.rates[-1] * factor
        if isinstance(self.config, AdagradConfig):
            (total,) = self.moments.values()
            sums = total[rows].addcmul_(values, values)
            total[rows] = sums
            self.entities.index_add_(0, rows, values / sums.sqrt().add_(EPSILON), alpha=-rate)
            return
        correction_1, correction_2 = (1 - beta**self.num_steps for beta in BETAS)
        first, second = self.moments.values()
        step_rows = step_rows_compiled if self.entities.is_cpu else step_rows_anywhere
        tables, decay = (self.entities, first, second), self.config.weight_decay
        step_rows(rows, values, tables, rate / correction_1, correction_2, decay)

    def state(self) -> dict[str, Tensor]:
        """Return the state, by name, except `moments`."""
        tensors = {"num_steps": torch.tensor(self.num_steps)}
        for i, parameter in enumerate(self.dense_parameters()):
            for key, value in self.dense.state[parameter].items():
                tensors[f"{i}.{key}"] = value
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.num_steps = int(tensors["num_steps"])
        for i, parameter in enumerate(self.dense_parameters()):
            prefix = f"{i}."
            # Fused Adam needs even its step count on the parameter's device.
            state = {
                name.removeprefix(prefix): tensor.to(parameter.device)
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
            if state:
                self.dense.state[parameter] = state


Tables = tuple[Tensor, Tensor, Tensor]  # weights, mean gradients, mean squared gradients


def step_rows_anywhere(
    rows: Tensor, gradients: Tensor, tables: Tables, rate: float, correction: float, decay: float
) -> None:
    """Apply Adam to distinct rows of a table, on any device."""
    table, first, second = tables
    gradients = gradients + decay * table[rows]
    new_first = first[rows].lerp_(gradients, 1 - BETAS[0])
    new_second = second[rows].mul_(BETAS[1]).addcmul_(gradients, gradients, value=1 - BETAS[1])
    first[rows], second[rows] = new_first, new_second
    scale = new_second.div_(correction).sqrt_().add_(EPSILON)
    table.index_add_(0, rows, new_first.div_(scale).mul_(-rate))


def step_rows_compiled(
    rows: Tensor, gradients: Tensor, tables: Tables, rate: float, correction: float, decay: float
) -> None:
    """Do the same on a CPU in one pass instead of twelve."""
    rest = *(tensor.detach().numpy() for tensor in tables), rate, 1 / correction, decay
    in_threads(lambda *some: _step_rows(*some, *rest), rows.numpy(), gradients.numpy())


@njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
def _step_rows(  # type: ignore[no-untyped-def]
    rows, gradients, table, first, second, rate, boost, decay
):
    decay = np.float32(decay)
    rate, boost, epsilon = np.float32(rate), np.float32(boost), np.float32(EPSILON)
    share_1, beta_2 = np.float32(1 - BETAS[0]), np.float32(BETAS[1])
    share_2 = np.float32(1 - BETAS[1])
    for i in range(len(rows)):
        row = rows[i]
        gradient, weights, m, v = gradients[i], table[row], first[row], second[row]
        for j in range(len(gradient)):
            g = gradient[j] + decay * weights[j]
            m[j] += share_1 * (g - m[j])
            v[j] = beta_2 * v[j] + share_2 * g * g
            weights[j] -= rate * m[j] / (np.sqrt(v[j] * boost) + epsilon)


def rate_factor(step: int, progress: float, warmup: int) -> float:
    """Return the factor on the learning rate: linear warm-up, then linear decay to zero.

    `progress` is the share of the run that is done, 0 to 1, by steps or by time.
    """
    return min(1.0, (step + 1) / max(warmup, 1)) * max(0.0, 1 - progress)


# ---- a step -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learner:
    """A model, its loss (which has learned parameters of its own) and their optimizer."""

    config: TrainConfig
    model: QueryModel
    loss: SoftmaxLoss | MarginLoss | LinkLoss
    optimizer: Optimizer
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
        uncertainty, loss = None, self.config.loss
        has_cost = isinstance(loss, SoftmaxConfig) and loss.cardinality_weight
        if has_cost and model.has_uncertainty:
            largest = -embedded.best(-model.uncertainty(embedded.sets))
            uncertainty = largest.float() / model.dim
        costs = self.loss(distances.float(), share, uncertainty)
        return costs.sum() / len(batch)

    def backward(self, loss: Tensor) -> float:
        """Compute the gradients, summed over processes; return the loss of the whole batch."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        distributed.sum_gradients(self.model, self.optimizer.dense_parameters())
        self.model.gathered = None
        return float(parallel.sum_over_processes(loss.detach()))

    def state(self) -> dict[str, Tensor]:
        """Return, by name, the state to resume from, except the model and `optimizer.moments`."""
        of_loss = {LOSS + name: tensor for name, tensor in self.loss.state_dict().items()}
        return {**self.optimizer.state(), **of_loss}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        of_loss = {name: tensor for name, tensor in tensors.items() if name.startswith(LOSS)}
        self.loss.load_state_dict({name.removeprefix(LOSS): t for name, t in of_loss.items()})
        self.optimizer.restore({name: t for name, t in tensors.items() if name not in of_loss})


def make_learner(graph: KnowledgeGraph, config: TrainConfig, folder: Path = Path()) -> Learner:
    """Build a fresh model for a graph, on the GPU if there is one, with this process's rows.

    A table on disk is in the run's `folder`, or in its nearest existing parent.
    """
    torch.manual_seed(config.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    is_on_disk = config.table == "disk"
    if is_on_disk and device.type == "cuda":
        raise InvalidArgument(
            "table = 'disk' is for training on CPUs. Set CUDA_VISIBLE_DEVICES= to hide the GPU, or "
            "leave it out."
        )
    rows = distributed.rows_of(
        parallel.process_index(), graph.num_entities, folder if is_on_disk else None
    )
    model = build_model(config.model, graph.num_entities, graph.num_relations, rows).to(device)
    model.has_sparse_gradient = True
    loss = build_loss(config)
    optimizer = Optimizer(model, loss, config.optimizer)
    return Learner(config, model, loss.to(device), optimizer, device)


def matrix_precision(precision: str, device: torch.device) -> torch.autocast:
    """Use bfloat16 for matrix products if asked for, or if "auto" where it is fast."""
    if torch.cuda.is_available():
        is_fast = torch.cuda.is_bf16_supported()
    else:
        capabilities = torch.cpu.get_capabilities()
        is_fast = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    wanted = precision == "bfloat16" or (precision == "auto" and is_fast)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted)
