"""ComplEx: a link predictor, which knows single edges and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from betae.checks import check_positive
from betae.models.base import QueryModel, normal, normal_parameter
from betae.models.products import inner_products
from betae.models.rows import Rows
from betae.queries.ast import Entity, Project, Query


@dataclass(frozen=True)
class ComplexConfig:
    """The size of a ComplEx model, and the two costs that keep it from over-fitting."""

    dim: int = 400  # complex numbers of an entity or a relation: twice as many weights
    n3: float = 0.05  # weight of the cubed absolute values of head, relation and tail; 0: off
    relation_weight: float = 4.0  # weight of predicting the relation from head and tail; 0: off
    deviation: float = 1e-3  # of the initial weights

    def __post_init__(self) -> None:
        check_positive("dim", self.dim, whole=True)
        check_positive("deviation", self.deviation)
        check_positive("n3", self.n3, or_zero=True)
        check_positive("relation_weight", self.relation_weight, or_zero=True)


class ComplEx(QueryModel):
    """Trouillon et al., "Complex Embeddings for Simple Link Prediction", 2016.

    Idea: entities and relations are vectors of complex numbers; an edge (h, r, t) scores
    Re sum_i h_i r_i conj(t_i).

        project     h r                                     product, number by number
        distance    -Re sum h r conj(t)                     may be negative: only its order counts

    A row of weights holds the real parts, then the imaginary ones, so the score is a plain inner
    product of rows. Nothing here stands for a set, so the only query is a single step from an
    entity; over the completed graph (see `betae.answering`) all others are made of such steps.
    Trained as in Lacroix et al., "Canonical Tensor Decomposition for Knowledge Base Completion",
    2018, and Chen et al., "Relation Prediction as an Auxiliary Training Objective for Improving
    Multi-Relational Graph Representations", 2021.
    """

    name = "complex"
    metric = "inner product"
    advice = (
        "It knows single edges only. The completed graph answers any query with them: use "
        "method = 'completed'. To embed queries, train a model with name = 'betae'."
    )

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        config: ComplexConfig | None = None,
        rows: Rows | None = None,
    ):
        self.config = config or ComplexConfig()
        super().__init__(num_entities, num_relations, self.config.dim, rows)
        width, deviation = 2 * self.dim, self.config.deviation
        self.entities = nn.Parameter(self.rows.new(width, normal(0.0, deviation)))
        self.relations = normal_parameter(num_relations, width, 0.0, deviation)

    def can(self, query: Query) -> bool:
        """Tell whether a query is a single step from an entity."""
        return isinstance(query, Project) and isinstance(query.operand, Entity)

    def _what_it_lacks(self, query: Query) -> str:
        return f"embed {query}"

    def relation_tables(self) -> tuple[str, ...]:
        """Return the parameters with a row for each relation."""
        return ("relations",)

    def embed_entities(self, ids: Tensor) -> Tensor:
        """Return the vectors of entities."""
        return self.look_up(ids)

    def project(self, sets: Tensor, relations: Tensor) -> Tensor:
        """Multiply by the relation, number by number."""
        return complex_product(sets, nn.functional.embedding(relations, self.relations))

    def intersect(self, sets: Tensor) -> Tensor:  # noqa: ARG002
        """Raise UnsupportedQuery: a product of numbers stands for no set."""
        self._cannot("intersect")

    def table(self, ids: Tensor | None = None) -> Tensor:
        """Return the vectors of entities, (num_entities, 2 dim)."""
        return self.entities if ids is None else self.embed_entities(ids)

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
