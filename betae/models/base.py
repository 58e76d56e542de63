"""QueryModel: the five operations that a model must define to answer any query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal, NoReturn

import torch
from torch import Tensor, nn

from betae.errors import UnsupportedQuery
from betae.models.rows import Fill, Gathered, Rows, all_rows, blocks
from betae.queries.ast import Query
from betae.queries.structures import has_negation

TABLE_AT_ONCE = 2**22  # numbers of a part of a table: 16 MiB in float32


class QueryModel(nn.Module, ABC):
    """Entities and sets of entities as rows of numbers, (n, width), and five operations on them.

    embed_entities   ids -> the sets of one entity
    project          sets and relations -> the sets that the relations lead to
    intersect        several sets each -> their intersections
    negate           sets -> their complements, if the model has them
    distance         sets against entities -> how far each entity is from being an answer

    `table` brings entities into the form that `distance` takes; to rank all entities it is made
    once. A union needs no operation: the executor rewrites it.
    """

    name: ClassVar[str]  # in recipes and on disk
    config: Any  # the model's own frozen dataclass
    has_complement = False  # whether `negate` is defined
    entities: nn.Parameter  # (rows.number, any): a learned row for every entity of `rows`
    rows: Rows  # all, but in training by several processes
    gathered: Gathered | None = None  # where `look_up` finds rows that others hold
    metric: ClassVar[Literal["inner product", "L1"]]  # of the search vectors
    has_sparse_gradient = False  # of `entities`: training sets it, since a step touches few rows
    advice = "BetaE can: train a model with name = 'betae'."  # to who asks for what it cannot do

    def __init__(self, num_entities: int, num_relations: int, dim: int, rows: Rows | None = None):
        super().__init__()
        self.num_entities, self.num_relations, self.dim = num_entities, num_relations, dim
        self.rows = rows or all_rows(num_entities)

    def look_up(self, ids: Tensor) -> Tensor:
        """Return the learned rows of entities: (n,) -> (n, any)."""
        if self.gathered is not None:
            return self.gathered.look_up(ids)
        return nn.functional.embedding(ids, self.entities, sparse=self.has_sparse_gradient)

    def can(self, query: Query) -> bool:
        """Tell whether the model has every operator of a query; unions are always possible."""
        return self.has_complement or not has_negation(query)

    def require(self, queries: Iterable[Query]) -> None:
        """Raise UnsupportedQuery, with the first such query, unless `can` holds for all of them."""
        for query in queries:
            if not self.can(query):
                self._cannot(self._what_it_lacks(query))

    def _what_it_lacks(self, query: Query) -> str:
        return f"take a complement, which {query} needs"

    @property
    def has_uncertainty(self) -> bool:
        """Whether `uncertainty` is defined."""
        return type(self).uncertainty is not QueryModel.uncertainty

    @abstractmethod
    def relation_tables(self) -> tuple[str, ...]:
        """Return the names of the parameters with a row for each relation."""

    @abstractmethod
    def embed_entities(self, ids: Tensor) -> Tensor:
        """Return the sets of one entity each: (n,) -> (n, width)."""

    @abstractmethod
    def project(self, sets: Tensor, relations: Tensor) -> Tensor:
        """Return where relation i leads from set i: (n, width), (n,) -> (n, width)."""

    @abstractmethod
    def intersect(self, sets: Tensor) -> Tensor:
        """Return the intersection of the sets in each row: (n, num_sets, width) -> (n, width)."""

    def negate(self, sets: Tensor) -> Tensor:  # noqa: ARG002
        """Return the complements: (n, width) -> (n, width)."""
        self._cannot("take a complement (`!`, or a union in De Morgan form)")

    @abstractmethod
    def table(self, ids: Tensor | None = None) -> Tensor:
        """Return some entities, or all, as `distance` takes them: (num_entities, any)."""

    @abstractmethod
    def distance(self, sets: Tensor, table: Tensor) -> Tensor:
        """Return the distance of each entity from each set: (n, width) -> (n, num_entities)."""

    def tables(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the table of all entities in parts, each with the id of its first entity."""
        for part in blocks(len(self.entities), self.entities.shape[1], TABLE_AT_ONCE):
            yield (
                part.start,
                self.table(torch.arange(part.start, part.stop, device=self.entities.device)),
            )

    # For vector databases: by `metric`, the vectors nearest to that of a set are those of the
    # entities at the smallest distance from it.

    def entity_vectors(self, table: Tensor) -> Tensor:
        """Return the search vectors of entities of a table: (n, any) -> (n, search width)."""
        return table

    def set_vectors(self, sets: Tensor) -> Tensor:
        """Return the search vectors of sets: (n, width) -> (n, search width)."""
        return sets

    def uncertainty(self, sets: Tensor) -> Tensor:  # noqa: ARG002
        """Return a number for each set that grows with its size: (n, width) -> (n,)."""
        self._cannot("tell its uncertainty")

    def _cannot(self, what: str) -> NoReturn:
        raise UnsupportedQuery(f"{type(self).__name__} cannot {what}. {self.advice}")


class Attention(nn.Module):
    """Weights for the branches of an intersection: in each dimension they sum to 1.

    Two layers score every branch by itself, so the order of the branches does not matter.
    """

    def __init__(self, width: int, hidden: int, dim: int):
        super().__init__()
        self.hidden = nn.Linear(width, hidden)
        self.score = nn.Linear(hidden, dim)

    def forward(self, branches: Tensor) -> Tensor:
        """Return the weights: (n, num_branches, width) -> (n, num_branches, dim)."""
        return torch.softmax(self.score(torch.relu(self.hidden(branches))), dim=1)


def mean_by(weights: Tensor, branches: Tensor) -> Tensor:
    """Return the weighted mean of branches: twice (n, num_branches, dim) -> (n, dim)."""
    return (weights * branches).sum(dim=1)


def normal_parameter(num_rows: int, width: int, mean: float, deviation: float) -> nn.Parameter:
    """Return learned rows, (num_rows, width), that start as normal random numbers.

    On the meta device, where a model is built to be loaded, they are not sampled: PyTorch would
    import its compiler for that, which takes longer than loading.
    """
    rows = torch.empty(num_rows, width)
    return nn.Parameter(rows if rows.is_meta else normal(mean, deviation)(rows))


def normal(mean: float, deviation: float) -> Fill:
    """Return what fills rows with normal random numbers."""
    return lambda rows: rows.normal_().mul_(deviation).add_(mean)


def uniform(low: float, high: float) -> Fill:
    """Return what fills rows with uniform random numbers."""
    return lambda rows: rows.uniform_(low, high)
