"""QueryModel: the five operations that a model defines to answer queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal, NoReturn

import torch
from torch import Tensor, nn

from betae.errors import UnsupportedQuery
from betae.models.rows import Fill, Gathered, Rows, blocks
from betae.queries.ast import Query
from betae.queries.structures import has_negation

TABLE_VALUES_PER_BLOCK = 2**22  # 16 MiB in float32


class QueryModel(nn.Module, ABC):
    """Embeddings of entities and sets of entities, (n, width), and five operations on them.

    embed_entities   ids -> singleton sets
    project          sets, relations -> sets of the relations' tails
    intersect        several sets per row -> their intersections
    negate           sets -> their complements, if the model has them
    distance         sets, entities -> distance of each entity from each set

    `table` converts entities to the form that `distance` takes, once for all queries. Unions need
    no operation: the executor rewrites them.
    """

    name: ClassVar[str]  # in recipes and on disk
    has_complement = False  # whether `negate` is defined
    entities: nn.Parameter  # (len(rows), any): a learned row for every entity of `rows`
    rows: Rows  # all, except in training by several processes
    gathered: Gathered | None = None  # rows for `look_up` that other processes hold
    relation_tables: tuple[str, ...] = ("relations",)  # parameters with a row for each relation
    metric: ClassVar[Literal["inner product", "L1"]]  # of the search vectors
    has_sparse_gradient = False  # of `entities`; set in training
    lacks = "take a complement, which {} needs"  # said of a query that it does not support
    advice = "BetaE can: train a model with name = 'betae'."  # hint appended to UnsupportedQuery

    def __init__(
        self, num_entities: int, num_relations: int, config: Any, rows: Rows | None = None
    ):
        super().__init__()
        self.num_entities, self.num_relations = num_entities, num_relations
        self.config, self.dim = config, config.dim  # the model's own frozen dataclass
        self.rows = Rows(0, num_entities, num_entities) if rows is None else rows

    def look_up(self, ids: Tensor) -> Tensor:
        """Return the learned rows of entities: (n,) -> (n, any)."""
        if self.gathered is not None:
            return self.gathered.look_up(ids)
        return nn.functional.embedding(ids, self.entities, sparse=self.has_sparse_gradient)

    def can(self, query: Query) -> bool:
        """Whether the model supports every operator of a query; unions are always supported."""
        return not query.has_conditions and (self.has_complement or not has_negation(query))

    def require(self, queries: Iterable[Query]) -> None:
        """Raise UnsupportedQuery for the first query that the model does not support."""
        for query in queries:
            if query.has_conditions:
                raise UnsupportedQuery(
                    f"Conditions and classes cannot be embedded, as in {query}: leave out "
                    "`--method embedding`, and the completed graph answers."
                )
            if not self.can(query):
                self._cannot(self.lacks.format(query))

    @property
    def has_uncertainty(self) -> bool:
        """Whether `uncertainty` is defined."""
        return type(self).uncertainty is not QueryModel.uncertainty

    def embed_entities(self, ids: Tensor) -> Tensor:
        """Return singleton sets, by default the learned rows: (n,) -> (n, width)."""
        return self.look_up(ids)

    @abstractmethod
    def project(self, sets: Tensor, relations: Tensor) -> Tensor:
        """Return the tails of relation i from set i: (n, width), (n,) -> (n, width)."""

    @abstractmethod
    def intersect(self, sets: Tensor) -> Tensor:
        """Return the intersection of the sets in each row: (n, num_sets, width) -> (n, width)."""

    def negate(self, sets: Tensor) -> Tensor:  # noqa: ARG002
        """Return the complements: (n, width) -> (n, width)."""
        self._cannot("take a complement (`!`, or a union in De Morgan form)")

    def table(self, ids: Tensor | None = None) -> Tensor:
        """Return some or all entities in the form for `distance`, by default their learned rows."""
        return self.entities if ids is None else self.look_up(ids)

    @abstractmethod
    def distance(self, sets: Tensor, table: Tensor) -> Tensor:
        """Return the distance of each entity from each set: (n, width) -> (n, num_entities)."""

    def tables(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the table of all entities in blocks, each with the id of its first entity."""
        for part in blocks(len(self.entities), self.entities.shape[1], TABLE_VALUES_PER_BLOCK):
            ids = torch.arange(part.start, part.stop, device=self.entities.device)
            yield part.start, self.table(ids)

    # Search vectors, for vector databases: ranking entity vectors by `metric` against the vector of
    # a set ranks the entities by distance.

    def entity_vectors(self, table: Tensor) -> Tensor:
        """Return the search vectors of entities of a table: (n, any) -> (n, search width)."""
        return table

    def set_vectors(self, sets: Tensor) -> Tensor:
        """Return the search vectors of sets: (n, width) -> (n, search width)."""
        return sets

    def uncertainty(self, sets: Tensor) -> Tensor:  # noqa: ARG002
        """Return a measure of the size of each set: (n, width) -> (n,)."""
        self._cannot("estimate uncertainty")

    def _cannot(self, what: str) -> NoReturn:
        raise UnsupportedQuery(f"{type(self).__name__} cannot {what}. {self.advice}")


class Attention(nn.Module):
    """Attention weights of the branches of an intersection, which sum to 1 in each dimension.

    Two layers score every branch by itself, so the order of branches does not matter.
    """

    def __init__(self, width: int, hidden: int, dim: int):
        super().__init__()
        self.hidden = nn.Linear(width, hidden)
        self.score = nn.Linear(hidden, dim)

    def forward(self, branches: Tensor) -> Tensor:
        """Return the weights: (n, num_branches, width) -> (n, num_branches, dim)."""
        return torch.softmax(self.score(torch.relu(self.hidden(branches))), dim=1)


def normal_parameter(num_rows: int, width: int, mean: float, deviation: float) -> nn.Parameter:
    """Return learned rows, (num_rows, width), initialised to normal random numbers.

    Not on the meta device, where a model is built to be loaded: PyTorch would import its compiler.
    """
    rows = torch.empty(num_rows, width)
    return nn.Parameter(rows if rows.is_meta else normal(mean, deviation)(rows))


def normal(mean: float, deviation: float) -> Fill:
    """Return an initialiser with normal random numbers."""
    return lambda rows: rows.normal_().mul_(deviation).add_(mean)


def uniform(low: float, high: float) -> Fill:
    """Return an initialiser with uniform random numbers."""
    return lambda rows: rows.uniform_(low, high)


def inner_products(queries: Tensor, table: Tensor) -> Tensor:
    """Return queries @ table.T, (num_queries, num_entities), the costliest step of ranking.

    Without gradients on a CPU it uses oneDNN, which on AMD processors takes half the time of MKL
    for a few queries, and no more for many.
    """
    is_tracked = torch.is_grad_enabled() and (queries.requires_grad or table.requires_grad)
    if _has_onednn and not is_tracked and _suits(queries) and _suits(table):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(queries, table, None, "none", [], "")
        return product
    return queries @ table.T


_has_onednn = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # not in every build of PyTorch


def _suits(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous()
