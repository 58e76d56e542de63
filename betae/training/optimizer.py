"""Adam for the networks and for those rows of the entity table that a step has touched.

A step looks up a few thousand entities. Dense Adam would still read and write every row and both
its moments; here the gradient of the table is sparse and only its rows are updated. A link
predictor, which has no networks, learns by Adagrad in the same way.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from betae.models.base import QueryModel
from betae.parallel import in_threads
from betae.training.config import TrainConfig

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Optimizer:
    """Steps the networks, the relation rows and the touched entity rows."""

    def __init__(self, model: QueryModel, loss: nn.Module, config: TrainConfig):
        tables = [model.get_parameter(name) for name in model.relation_tables()]
        others = [
            parameter
            for parameter in (*model.parameters(), *loss.parameters())
            if parameter is not model.entities and not any(parameter is t for t in tables)
        ]
        rate, table_rate = config.learning_rate, config.learning_rate * config.table_rate
        self.rates = [rate, table_rate]
        self.dense = torch.optim.Adam(
            [{"params": others, "lr": rate}, {"params": tables, "lr": table_rate}],
            betas=BETAS,
            eps=EPSILON,
            fused=True,
        )
        self.entities = model.entities
        self.first = model.rows.zeros_like(model.entities)
        self.second = model.rows.zeros_like(model.entities)
        self.decay = config.decay
        self.num_steps = 0

    def dense_parameters(self) -> list[Tensor]:
        """Return all parameters but the entity table."""
        return [parameter for group in self.dense.param_groups for parameter in group["params"]]

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self.dense.zero_grad()
        self.entities.grad = None

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """Update with `factor` times the learning rates."""
        for group, rate in zip(self.dense.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.dense.step()
        self.num_steps += 1
        gradient = self.entities.grad
        assert gradient is not None
        gradient = gradient.coalesce()
        correction_1 = 1 - BETAS[0] ** self.num_steps
        correction_2 = 1 - BETAS[1] ** self.num_steps
        step_rows = step_rows_compiled if self.entities.is_cpu else step_rows_anywhere
        step_rows(
            gradient.indices()[0],
            gradient.values(),
            (self.entities, self.first, self.second),
            self.rates[1] * factor / correction_1,
            correction_2,
            self.decay,
        )

    def moments(self) -> dict[str, Tensor]:
        """Return, by name, what has a row for each entity and is needed to resume."""
        return {"entities.first": self.first, "entities.second": self.second}

    def state(self) -> dict[str, Tensor]:
        """Return everything else that is needed to resume, by name."""
        tensors = {"num_steps": torch.tensor(self.num_steps)}
        for number, parameter in enumerate(self.dense_parameters()):
            for key, value in self.dense.state[parameter].items():
                tensors[f"{number}.{key}"] = value
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up a state where it was left."""
        self.num_steps = int(tensors["num_steps"])
        for number, parameter in enumerate(self.dense_parameters()):
            prefix = f"{number}."
            # All of it: fused Adam wants even the number of steps on the parameter's device.
            state = {
                name.removeprefix(prefix): tensor.to(parameter.device)
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
            if state:
                self.dense.state[parameter] = state


class LinkOptimizer:
    """Adagrad for a link predictor: all relation rows, and the touched entity rows."""

    def __init__(self, model: QueryModel, config: TrainConfig):
        self.entities = model.entities
        self.tables: list[Tensor] = [model.get_parameter(name) for name in model.relation_tables()]
        self.squares = [
            model.rows.zeros_like(self.entities),
            *(torch.zeros_like(table) for table in self.tables),
        ]
        self.rate = config.learning_rate

    def dense_parameters(self) -> list[Tensor]:
        """Return all parameters but the entity table."""
        return self.tables

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for table in (self.entities, *self.tables):
            table.grad = None

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """Update with `factor` times the learning rate."""
        rate = self.rate * factor
        of_entities = self.entities.grad
        assert of_entities is not None
        gradient = of_entities.coalesce()
        rows, values = gradient.indices()[0], gradient.values()
        squares = self.squares[0][rows].addcmul_(values, values)
        self.squares[0][rows] = squares
        self.entities.index_add_(0, rows, values / squares.sqrt().add_(EPSILON), alpha=-rate)
        for table, squares in zip(self.tables, self.squares[1:], strict=True):
            assert table.grad is not None
            squares.addcmul_(table.grad, table.grad)
            table.addcdiv_(table.grad, squares.sqrt().add_(EPSILON), value=-rate)

    def moments(self) -> dict[str, Tensor]:
        """Return, by name, what has a row for each entity and is needed to resume."""
        return {"0.squares": self.squares[0]}

    def state(self) -> dict[str, Tensor]:
        """Return everything else that is needed to resume, by name."""
        of_tables = enumerate(self.squares[1:], start=1)
        return {f"{number}.squares": squares for number, squares in of_tables}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up a state where it was left."""
        for number, squares in enumerate(self.squares[1:], start=1):
            squares.copy_(tensors[f"{number}.squares"])


AnyOptimizer = Optimizer | LinkOptimizer


def make_optimizer(model: QueryModel, loss: nn.Module, config: TrainConfig) -> AnyOptimizer:
    """Return the optimizer for a model."""
    if config.is_for_links:
        return LinkOptimizer(model, config)
    return Optimizer(model, loss, config)


Tables = tuple[Tensor, Tensor, Tensor]  # weights, mean gradients, mean squared gradients


def step_rows_anywhere(
    rows: Tensor, gradients: Tensor, tables: Tables, rate: float, correction: float, decay: float
) -> None:
    """Take Adam's step for some distinct rows of a table, on any device."""
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
    table, first, second = (tensor.detach().numpy() for tensor in tables)

    def step(rows: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
        _step_rows(rows, gradients, table, first, second, rate, 1 / correction, decay)

    in_threads(step, rows.numpy(), gradients.numpy())


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
    """Return the factor on the learning rate: up over the warm-up, then down to zero.

    `progress` is how much of the run is over, 0 to 1, by steps or by time.
    """
    return min(1.0, (step + 1) / max(warmup, 1)) * max(0.0, 1 - progress)
