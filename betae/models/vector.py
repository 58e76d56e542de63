"""GQE: a set of entities as a point."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from betae.checks import check_positive
from betae.models.base import Attention, QueryModel, mean_by, uniform
from betae.models.manhattan import manhattan
from betae.models.rows import Rows


@dataclass(frozen=True)
class VectorConfig:
    """The shape of a GQE model."""

    dim: int = 800  # twice the others': a box and a Beta have two numbers for each dimension
    span: float = 0.0325  # initial values are uniform within this: (gamma + 2) / dim, gamma = 24

    def __post_init__(self) -> None:
        check_positive("dim", self.dim, whole=True)
        check_positive("span", self.span)


class GQE(QueryModel):
    """Hamilton et al., "Embedding Logical Queries on Knowledge Graphs", 2018.

    Idea: a query is the point where its answers should be.

        project     p + t_r                                 a translation for each relation
        intersect   sum_i w_i p_i                           w by attention, for each dimension
        distance    || v - p ||_1
    """

    name = "gqe"
    metric = "L1"

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        config: VectorConfig | None = None,
        rows: Rows | None = None,
    ):
        self.config = config or VectorConfig()
        super().__init__(num_entities, num_relations, self.config.dim, rows)
        span = self.config.span
        self.entities = nn.Parameter(self.rows.new(self.dim, uniform(-span, span)))
        self.relations = nn.Parameter(torch.empty(num_relations, self.dim).uniform_(-span, span))
        self.attention = Attention(self.dim, self.dim, self.dim)

    def relation_tables(self) -> tuple[str, ...]:
        """Return the parameters with a row for each relation."""
        return ("relations",)

    def embed_entities(self, ids: Tensor) -> Tensor:
        """Return the points of entities."""
        return self.look_up(ids)

    def project(self, sets: Tensor, relations: Tensor) -> Tensor:
        """Translate."""
        return sets + nn.functional.embedding(relations, self.relations)

    def intersect(self, sets: Tensor) -> Tensor:
        """Average by attention."""
        return mean_by(self.attention(sets), sets)

    def table(self, ids: Tensor | None = None) -> Tensor:
        """Return the points of entities, (num_entities, dim)."""
        return self.entities if ids is None else self.embed_entities(ids)

    def distance(self, sets: Tensor, table: Tensor) -> Tensor:
        """Return the L1 distance."""
        return manhattan(sets, table)
