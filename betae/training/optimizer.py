"""Adam for the networks, and for the rows of the entity table that a step has touched.

A step looks up a few thousand entities. Dense Adam would still read and write every row and both
its moments; here the gradient of the table is sparse and only its rows are updated.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from betae.models.base import QueryModel
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
        self.first = torch.zeros_like(model.entities)
        self.second = torch.zeros_like(model.entities)
        self.num_steps = 0

    def dense_parameters(self) -> list[Tensor]:
        """Return all parameters but the entity table."""
        return [parameter for group in self.dense.param_groups for parameter in group["params"]]

    def zero_grad(self) -> None:
        """Forget the gradients."""
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
        rows, values = gradient.indices()[0], gradient.values()
        first = self.first[rows].lerp_(values, 1 - BETAS[0])
        second = self.second[rows].mul_(BETAS[1]).addcmul_(values, values, value=1 - BETAS[1])
        self.first[rows], self.second[rows] = first, second
        correction_1 = 1 - BETAS[0] ** self.num_steps
        correction_2 = 1 - BETAS[1] ** self.num_steps
        scale = second.div_(correction_2).sqrt_().add_(EPSILON)
        change = first.div_(scale).mul_(-self.rates[1] * factor / correction_1)
        self.entities.index_add_(0, rows, change)

    def state(self) -> dict[str, Tensor]:
        """Return everything that is needed to go on, by name."""
        tensors = {
            "entities.first": self.first,
            "entities.second": self.second,
            "num_steps": torch.tensor(self.num_steps),
        }
        for number, parameter in enumerate(self.dense_parameters()):
            for key, value in self.dense.state[parameter].items():
                tensors[f"{number}.{key}"] = value
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from a state."""
        self.first.copy_(tensors["entities.first"])
        self.second.copy_(tensors["entities.second"])
        self.num_steps = int(tensors["num_steps"])
        for number, parameter in enumerate(self.dense_parameters()):
            prefix = f"{number}."
            state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if state:
                self.dense.state[parameter] = state


def rate_factor(step: int, progress: float, warmup: int) -> float:
    """Return the part of the learning rate to use: up over the warm-up, then down to zero.

    `progress` is how much of the run is over, 0 to 1, by steps or by time.
    """
    return min(1.0, (step + 1) / max(warmup, 1)) * max(0.0, 1 - progress)
