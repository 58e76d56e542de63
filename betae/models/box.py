"""Query2Box: a set of entities as a box."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from betae.checks import check_positive
from betae.errors import InvalidArgument
from betae.models.base import Attention, QueryModel, mean_by, uniform
from betae.models.box_distance import box_distance
from betae.models.rows import Rows


@dataclass(frozen=True)
class BoxConfig:
    """The shape of a Query2Box model."""

    dim: int = 400
    span: float = 0.065  # initial values are uniform within this: (gamma + 2) / dim, gamma = 24
    inside: float = 0.02  # weight of the distance within the box

    def __post_init__(self) -> None:
        check_positive("dim", self.dim, whole=True)
        check_positive("span", self.span)
        check_positive("inside", self.inside, or_zero=True)
        if self.inside > 1:
            raise InvalidArgument(f"inside is {self.inside!r}; it must be from 0 to 1.")


class Query2Box(QueryModel):
    """Ren, Hu, Leskovec, "Query2box: Reasoning over Knowledge Graphs in Vector Space", 2020.

    Idea: a query is a box, a centre c and half-widths o >= 0, around its answers. A set is the
    row [c, o], (n, 2 dim); an entity is a box of no width.

        project     c + c_r,  o + |o_r|
        intersect   centres averaged by attention; the smallest o, times a gate below 1
        distance    || relu(|v - c| - o) ||_1 + inside || min(|v - c|, o) ||_1

    For vector databases the distance is a sum of three L1 distances, since for o >= 0

        relu(|x| - o) = (|x - o| + |x + o|) / 2 - o    and    min(|x|, o) = |x| - relu(|x| - o)
    """

    name = "query2box"
    metric = "L1"

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        config: BoxConfig | None = None,
        rows: Rows | None = None,
    ):
        self.config = config or BoxConfig()
        super().__init__(num_entities, num_relations, self.config.dim, rows)
        dim, span = self.dim, self.config.span
        self.entities = nn.Parameter(self.rows.new(dim, uniform(-span, span)))
        self.centres = nn.Parameter(torch.empty(num_relations, dim).uniform_(-span, span))
        self.offsets = nn.Parameter(torch.empty(num_relations, dim).uniform_(0, span))
        self.attention = Attention(dim, dim, dim)
        self.gate_hidden, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def relation_tables(self) -> tuple[str, ...]:
        """Return the parameters with a row for each relation."""
        return ("centres", "offsets")

    def embed_entities(self, ids: Tensor) -> Tensor:
        """Return boxes of no width."""
        centres = self.look_up(ids)
        return torch.cat([centres, torch.zeros_like(centres)], dim=-1)

    def project(self, sets: Tensor, relations: Tensor) -> Tensor:
        """Translate and widen."""
        centre = nn.functional.embedding(relations, self.centres)
        offset = nn.functional.embedding(relations, self.offsets).abs()
        return sets + torch.cat([centre, offset], dim=-1)

    def intersect(self, sets: Tensor) -> Tensor:
        """Average the centres by attention and shrink the smallest half-widths."""
        centres, offsets = sets.chunk(2, dim=-1)
        centre = mean_by(self.attention(centres), centres)
        hidden = torch.relu(self.gate_hidden(offsets)).mean(dim=1)
        offset = offsets.amin(dim=1) * torch.sigmoid(self.gate(hidden))
        return torch.cat([centre, offset], dim=-1)

    def table(self, ids: Tensor | None = None) -> Tensor:
        """Return the points of entities, (num_entities, dim)."""
        return self.entities if ids is None else self.look_up(ids)

    def distance(self, sets: Tensor, table: Tensor) -> Tensor:
        """Return the distance outside the box plus a share of that inside it."""
        centre, offset = sets.chunk(2, dim=-1)
        return box_distance(centre, offset, table, self.config.inside)

    # The three L1 distances are one, of vectors three times as wide.

    def entity_vectors(self, table: Tensor) -> Tensor:
        """Return [w v, w v, inside v] with w = (1 - inside) / 2."""
        inside = self.config.inside
        weight = (1 - inside) / 2
        return torch.cat([weight * table, weight * table, inside * table], dim=-1)

    def set_vectors(self, sets: Tensor) -> Tensor:
        """Return [w (c - o), w (c + o), inside c]."""
        centre, offset = sets.chunk(2, dim=-1)
        inside = self.config.inside
        weight = (1 - inside) / 2
        return torch.cat(
            [weight * (centre - offset), weight * (centre + offset), inside * centre], dim=-1
        )

    def uncertainty(self, sets: Tensor) -> Tensor:
        """Return the size of the box: the sum of its half-widths."""
        return sets.chunk(2, dim=-1)[1].sum(dim=-1)
