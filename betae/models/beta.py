"""BetaE: a set of entities as a row of independent Beta distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from betae.checks import Settings
from betae.errors import InvalidArgument
from betae.models.base import Attention, QueryModel, normal, normal_parameter
from betae.models.divergence import divergence, entity_table, entropy
from betae.models.rows import Rows


@dataclass(frozen=True)
class BetaConfig(Settings):
    """The shape of a BetaE model."""

    or_zero = ("dropout",)
    dim: int = 400  # Beta distributions of an embedding
    hidden: int = 256  # width of the projection's hidden layers (why 256: docs/recipes.md)
    layers: int = 2  # hidden layers of the projection
    projection: Literal["modulated", "concatenated"] = "modulated"
    bound: Literal["smooth", "clamp"] = "smooth"
    spread: float = 0.3  # of the entities' initial log-parameters
    dropout: float = 0.0  # of anchors' parameters and hidden units

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropout >= 1:
            raise InvalidArgument(f"dropout is {self.dropout!r}; it must be below 1.")


class BetaE(QueryModel):
    """Ren & Leskovec, "Beta Embeddings for Multi-Hop Logical Reasoning in Knowledge Graphs", 2020.

    https://arxiv.org/abs/2010.11465

    Idea: a set is a density on [0, 1] in each dimension; an intersection multiplies densities and
    a complement turns dense regions into thin ones. A row holds log-parameters
    x = [ln alpha, ln beta], (n, 2 dim), in which

        project     bound(s_r x + t_r + MLP(x, r))       "modulated", MLP starting at zero
                    bound(MLP([x, r]))                   "concatenated", the reference's
        intersect   ln sum_i w_i exp(x_i)                the weighted product of the densities
        negate      -x                                   reciprocal parameters
        distance    sum KL(entity || query)              one matrix product, see `divergence`

    bound is smooth, 3 tanh(x / 3), which keeps parameters in 0.05 .. 20, or the reference's clamp
    of parameters to at least 0.05. All operators keep parameters finite and positive.
    """

    name = "betae"
    metric = "inner product"
    has_complement = True

    def __init__(
        self, num_entities: int, num_relations: int, config: BetaConfig, rows: Rows | None = None
    ):
        super().__init__(num_entities, num_relations, config, rows)
        self.entities = nn.Parameter(self.rows.new(2 * self.dim, normal(0.0, config.spread)))
        kinds = {"modulated": ModulatedProjection, "concatenated": ConcatenatedProjection}
        self.projection = kinds[config.projection](num_relations, config)
        tables = self.projection.named_parameters(recurse=False)
        self.relation_tables = tuple(f"projection.{name}" for name, _ in tables)
        self.attention = Attention(2 * self.dim, self.dim, self.dim)

    def bound(self, x: Tensor) -> Tensor:
        """Map any values to log-parameters."""
        if self.config.bound == "smooth":
            return 3 * torch.tanh(x / 3)
        return torch.log(torch.clamp(x + 1, min=0.05, max=1e9))

    def embed_entities(self, ids: Tensor) -> Tensor:
        """Return the log-parameters of entities; dropped values are 0, a uniform density."""
        x = self.bound(self.look_up(ids))
        if self.training and self.config.dropout:
            x = x * (torch.rand_like(x) >= self.config.dropout)
        return x

    def project(self, sets: Tensor, relations: Tensor) -> Tensor:
        """Apply the relation's transformation."""
        # The network may be in bfloat16; the following steps need full precision.
        return self.bound(self.projection(sets, relations).to(sets.dtype))

    def intersect(self, sets: Tensor) -> Tensor:
        """Take the weighted product of the densities: the weighted mean of the parameters."""
        weights = self.attention(sets).repeat(1, 1, 2)  # one weight for alpha and beta
        return torch.log((weights * sets.exp()).sum(dim=1))

    def negate(self, sets: Tensor) -> Tensor:
        """Take the reciprocal of the parameters."""
        return -sets

    def table(self, ids: Tensor | None = None) -> Tensor:
        """Return the inner-product form of entities, (num_entities, 2 dim + 1)."""
        return entity_table(self.bound(super().table(ids)).exp())

    def distance(self, sets: Tensor, table: Tensor) -> Tensor:
        """Return the divergence of every entity from every set."""
        return divergence(sets.exp(), table)

    def set_vectors(self, sets: Tensor) -> Tensor:
        """Return [-alpha, -beta, -1]: times [F(v), f(v)] it is c(q) less the distance."""
        params = sets.exp()
        return -torch.cat([params, torch.ones_like(params[:, :1])], dim=-1)

    def uncertainty(self, sets: Tensor) -> Tensor:
        """Return the differential entropy, summed with its sign."""
        return entropy(sets.exp())


class ModulatedProjection(nn.Module):
    """s_r x + t_r + MLP(x, r): the relation scales and shifts input and hidden layer.

    The last layer of the MLP starts at zero: at first every relation is a scale and a shift, which
    are learned fast, and the network then adds what these cannot express.
    """

    def __init__(self, num_relations: int, config: BetaConfig):
        super().__init__()
        width, hidden = 2 * config.dim, config.hidden
        self.scale = normal_parameter(num_relations, width, 1.0, 0.05)
        self.shift = normal_parameter(num_relations, width, 0.0, 0.05)
        self.hidden_scale = normal_parameter(num_relations, hidden, 1.0, 0.05)
        self.hidden_shift = normal_parameter(num_relations, hidden, 0.0, 0.05)
        self.first = nn.Linear(width, hidden)
        self.others = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(config.layers - 1))
        self.last = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor, relations: Tensor) -> Tensor:
        """Return the projections before the bound: (n, 2 dim), (n,) -> (n, 2 dim)."""
        look_up = nn.functional.embedding
        scale, shift = (look_up(relations, t) for t in (self.hidden_scale, self.hidden_shift))
        hidden = self.dropout(torch.relu(torch.addcmul(shift, self.first(x), scale)))
        for layer in self.others:
            hidden = self.dropout(torch.relu(layer(hidden)))
        scale, shift = (look_up(relations, t) for t in (self.scale, self.shift))
        change: Tensor = self.last(hidden)
        return torch.addcmul(shift, x, scale) + change


class ConcatenatedProjection(nn.Module):
    """MLP([alpha, beta, r]): one network for all relations, as in the authors' code."""

    def __init__(self, num_relations: int, config: BetaConfig):
        super().__init__()
        width = 2 * config.dim
        self.relations = normal_parameter(num_relations, config.dim, 0.0, 1 / config.dim**0.5)
        sizes = [width + config.dim, *[config.hidden] * config.layers]
        self.hidden = nn.ModuleList(map(nn.Linear, sizes[:-1], sizes[1:]))
        self.last = nn.Linear(config.hidden, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, relations: Tensor) -> Tensor:
        """Return the projections before the bound: (n, 2 dim), (n,) -> (n, 2 dim)."""
        h = torch.cat([x.exp(), nn.functional.embedding(relations, self.relations)], dim=-1)
        for layer in self.hidden:
            h = self.dropout(torch.relu(layer(h)))
        return self.last(h)  # type: ignore[no-any-return]
