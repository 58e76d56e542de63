"""GQE: a set of entities as a point."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from betae.checks import Settings
from betae.models.base import Attention, QueryModel, uniform
from betae.models.manhattan import manhattan
from betae.models.rows import Rows


@dataclass(frozen=True)
class GQEConfig(Settings):
    """The shape of a GQE model."""

    dim: int = 800  # twice the others', which have two values per dimension
    span: float = 0.0325  # of uniform initial values: (gamma + 2) / dim, gamma = 24


class GQE(QueryModel):
    """Hamilton et al., "Embedding Logical Queries on Knowledge Graphs", 2018.

    https://arxiv.org/abs/1806.01445. Idea: a query is a point near its answers.

        project     p + t_r                                 a translation for each relation
        intersect   sum_i w_i p_i                           w by attention, for each dimension
        distance    || v - p ||_1
    """

    name = "gqe"
    metric = "L1"

    def __init__(
        self, num_entities: int, num_relations: int, config: GQEConfig, rows: Rows | None = None
    ):
        super().__init__(num_entities, num_relations, config, rows)
        span = config.span
        self.entities = nn.Parameter(self.rows.new(self.dim, uniform(-span, span)))
        self.relations = nn.Parameter(torch.empty(num_relations, self.dim).uniform_(-span, span))
        self.attention = Attention(self.dim, self.dim, self.dim)

    def project(self, sets: Tensor, relations: Tensor) -> Tensor:
        """Translate."""
        return sets + nn.functional.embedding(relations, self.relations)

    def intersect(self, sets: Tensor) -> Tensor:
        """Average by attention."""
        return torch.sum(self.attention(sets) * sets, dim=1)

    def distance(self, sets: Tensor, table: Tensor) -> Tensor:
        """Return the L1 distance."""
        return manhattan(sets, table)
