"""ComplEx: a link predictor, which scores single edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from betae.checks import Settings
from betae.models.base import QueryModel, inner_products, normal, normal_parameter
from betae.models.rows import Rows
from betae.queries.ast import Entity, Project, Query


@dataclass(frozen=True)
class ComplexConfig(Settings):
    """The size of a ComplEx model, and its regularisation."""

    or_zero = ("n3", "relation_weight")
    dim: int = 400  # complex values per entity and relation: twice as many weights
    n3: float = 0.05  # weight of the cubed absolute values of head, relation and tail; 0: off
    relation_weight: float = 4.0  # weight of predicting the relation from head and tail; 0: off
    deviation: float = 1e-3  # of the initial weights


class ComplEx(QueryModel):
    """Trouillon et al., "Complex Embeddings for Simple Link Prediction", 2016.

    Idea: entities and relations are vectors of complex numbers; an edge (h, r, t) scores
    Re sum_i h_i r_i conj(t_i).

        project     h r                                     elementwise product
        distance    -Re sum h r conj(t)                     may be negative: only the order matters

    A row of weights holds the real parts, then the imaginary ones, so the score is a real inner
    product of rows. There is no embedding of sets: the only query is a single projection of an
    entity. The completed graph (see `betae.answering`) answers other queries from such edges.
    Trained as in Lacroix et al., "Canonical Tensor Decomposition for Knowledge Base Completion",
    2018, and Chen et al., "Relation Prediction as an Auxiliary Training Objective for Improving
    Multi-Relational Graph Representations", 2021.
    """

    name = "complex"
    metric = "inner product"
    lacks = "embed {}"
    advice = (
        "It scores single edges only. The completed graph answers any query with them: use "
        "method = 'completed'. To embed queries, train a model with name = 'betae'."
    )

    def __init__(
        self, num_entities: int, num_relations: int, config: ComplexConfig, rows: Rows | None = None
    ):
        super().__init__(num_entities, num_relations, config, rows)
        width, deviation = 2 * config.dim, config.deviation
        self.entities = nn.Parameter(self.rows.new(width, normal(0.0, deviation)))
        self.relations = normal_parameter(num_relations, width, 0.0, deviation)

    def can(self, query: Query) -> bool:
        """Whether a query is a single projection of an entity."""
        return isinstance(query, Project) and isinstance(query.operand, Entity)

    def project(self, sets: Tensor, relations: Tensor) -> Tensor:
        """Multiply by the relation, elementwise."""
        return complex_product(sets, nn.functional.embedding(relations, self.relations))

    def intersect(self, sets: Tensor) -> Tensor:  # noqa: ARG002
        """Raise UnsupportedQuery: there is no embedding of sets."""
        self._cannot("intersect")

    def distance(self, sets: Tensor, table: Tensor) -> Tensor:
        """Return the score, negated."""
        return inner_products(sets, table).neg_()

    def relation_scores(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Return the score of every relation between heads and tails: (n, num_relations)."""
        return complex_product(heads, tails, conjugate_left=True) @ self.relations.T


def complex_product(left: Tensor, right: Tensor, conjugate_left: bool = False) -> Tensor:
    """Return the products of rows of complex numbers: twice (n, 2 dim) -> (n, 2 dim)."""
    (a, b), (c, d) = left.chunk(2, dim=-1), right.chunk(2, dim=-1)
    if conjugate_left:
        b = -b
    return torch.cat([a * c - b * d, a * d + b * c], dim=-1)


def cubes(rows: Tensor) -> Tensor:
    """Return the sum of the cubed absolute values of each row: (n, 2 dim) -> (n,)."""
    real, imaginary = rows.chunk(2, dim=-1)
    return (real * real + imaginary * imaginary).pow(1.5).sum(dim=-1)
