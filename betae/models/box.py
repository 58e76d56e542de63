"""Query2Box: a set of entities as a box; distances from boxes, compiled (numba, float32)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from betae.checks import Settings
from betae.errors import InvalidArgument
from betae.models.base import Attention, QueryModel, uniform
from betae.models.manhattan import TILE, manhattan, nonzero
from betae.models.rows import Rows
from betae.models.special import OPTIONS, Float32s, as_array, f32
from betae.parallel import in_threads, map_in_threads, num_threads


@njit(**OPTIONS)
def _forward(centres, offsets, points, inside, out):  # type: ignore[no-untyped-def]
    """Process four points at a time, so that loaded values are reused; the rest one by one."""
    outside = f32(1) - inside
    fours = len(points) // 4 * 4
    for start in range(0, fours, TILE):
        for i in range(len(centres)):
            for j in range(start, min(start + TILE, fours), 4):
                a = b = c = d = f32(0)  # to the centre
                p = q = r = s = f32(0)  # to the box
                for k in range(centres.shape[1]):
                    x, o = centres[i, k], offsets[i, k]
                    e, f = abs(x - points[j, k]), abs(x - points[j + 1, k])
                    g, h = abs(x - points[j + 2, k]), abs(x - points[j + 3, k])
                    a, b, c, d = a + e, b + f, c + g, d + h
                    p, q = p + max(e - o, f32(0)), q + max(f - o, f32(0))
                    r, s = r + max(g - o, f32(0)), s + max(h - o, f32(0))
                out[i, j], out[i, j + 1] = outside * p + inside * a, outside * q + inside * b
                out[i, j + 2], out[i, j + 3] = outside * r + inside * c, outside * s + inside * d
    for i in range(len(centres)):
        for j in range(fours, len(points)):
            a = p = f32(0)
            for k in range(centres.shape[1]):
                e = abs(centres[i, k] - points[j, k])
                a += e
                p += max(e - offsets[i, k], f32(0))
            out[i, j] = outside * p + inside * a


@njit(inline="always")
def _slope(e, o, g, inside):  # type: ignore[no-untyped-def]
    """Return the gradient by e = centre - point; at the centre, any subgradient."""
    t = g if abs(e) > o else g * inside
    return t if e > 0 else -t


@njit(inline="always")
def _beyond(e, o, g):  # type: ignore[no-untyped-def]
    return g if abs(e) > o else f32(0)


@njit(**OPTIONS)
def _backward(  # type: ignore[no-untyped-def]
    centres, offsets, points, inside, gradient, by_centres, by_offsets, by_points
):
    """Sum the gradients over all pairs with a nonzero gradient.

    `by_offsets` lacks the factor 1 - inside.
    """
    kept = np.empty(TILE, dtype=np.int64)
    for start in range(0, len(points), TILE):
        for i in range(len(centres)):
            count = nonzero(gradient[i], start, kept)
            fours = count // 4 * 4
            for at in range(0, fours, 4):
                j, u, v, w = kept[at], kept[at + 1], kept[at + 2], kept[at + 3]
                a, b, c, d = gradient[i, j], gradient[i, u], gradient[i, v], gradient[i, w]
                for k in range(centres.shape[1]):
                    x, o = centres[i, k], offsets[i, k]
                    e, f = x - points[j, k], x - points[u, k]
                    g, h = x - points[v, k], x - points[w, k]
                    p, q = _slope(e, o, a, inside), _slope(f, o, b, inside)
                    r, s = _slope(g, o, c, inside), _slope(h, o, d, inside)
                    by_points[j, k] -= p
                    by_points[u, k] -= q
                    by_points[v, k] -= r
                    by_points[w, k] -= s
                    by_centres[i, k] += p + q + r + s
                    by_offsets[i, k] -= (
                        _beyond(e, o, a) + _beyond(f, o, b) + _beyond(g, o, c) + _beyond(h, o, d)
                    )
            for at in range(fours, count):
                j = kept[at]
                a = gradient[i, j]
                for k in range(centres.shape[1]):
                    o = offsets[i, k]
                    e = centres[i, k] - points[j, k]
                    p = _slope(e, o, a, inside)
                    by_points[j, k] -= p
                    by_centres[i, k] += p
                    by_offsets[i, k] -= _beyond(e, o, a)


class _BoxDistance(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, centres: Tensor, offsets: Tensor, points: Tensor, inside: float
    ) -> Tensor:
        ctx.save_for_backward(centres, offsets, points)
        ctx.inside = f32(inside)
        c, o, v = map(as_array, (centres, offsets, points))
        out = np.empty((len(c), len(v)), dtype=np.float32)
        in_threads(lambda *rows: _forward(*rows[:2], v, ctx.inside, rows[2]), c, o, out)
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        c, o, v = map(as_array, ctx.saved_tensors)
        g = as_array(gradient)
        by_centres, by_offsets = np.zeros_like(c), np.zeros_like(o)
        bounds = np.linspace(0, len(c), num_threads() + 1).astype(int)

        def work(block: slice) -> Float32s:
            by_points = np.zeros_like(v)  # per thread: all threads write to every point
            _backward(
                c[block], o[block], v, ctx.inside, g[block],
                by_centres[block], by_offsets[block], by_points,
            )  # fmt: skip
            return by_points

        parts = map_in_threads(work, [slice(*pair) for pair in pairwise(bounds)])
        by_offsets *= f32(1) - ctx.inside
        return *map(torch.from_numpy, (by_centres, by_offsets, sum(parts))), None


def box_distance(centres: Tensor, offsets: Tensor, points: Tensor, inside: float) -> Tensor:
    """Return the distance of every point from every box: twice (n, dim), (m, dim) -> (n, m).

    || relu(|v - c| - o) ||_1 + inside || min(|v - c|, o) ||_1, for half-widths o >= 0: one pass
    forward and one for all gradients on a CPU in float32, otherwise three L1 distances.
    """
    tensors = (centres, offsets, points)
    if all(each.device.type == "cpu" and each.dtype == torch.float32 for each in tensors):
        result: Tensor = _BoxDistance.apply(*tensors, inside)  # type: ignore[no-untyped-call]
        return result
    # relu(|x| - o) = (|x - o| + |x + o|) / 2 - o  and  min(|x|, o) = |x| - relu(|x| - o)
    to_sides = manhattan(centres - offsets, points) + manhattan(centres + offsets, points)
    outside = to_sides / 2 - offsets.sum(dim=-1, keepdim=True)
    return (1 - inside) * outside + inside * manhattan(centres, points)


@dataclass(frozen=True)
class Query2BoxConfig(Settings):
    """The shape of a Query2Box model."""

    or_zero = ("inside",)
    dim: int = 400
    span: float = 0.065  # of uniform initial values: (gamma + 2) / dim, gamma = 24
    inside: float = 0.02  # weight of the distance within the box

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inside > 1:
            raise InvalidArgument(f"inside is {self.inside!r}; it must be from 0 to 1.")


class Query2Box(QueryModel):
    """Ren, Hu, Leskovec, "Query2box: Reasoning over Knowledge Graphs in Vector Space", 2020.

    https://arxiv.org/abs/2002.05969

    Idea: a query is a box, a centre c and half-widths o >= 0, around its answers. A set is the
    row [c, o], (n, 2 dim); an entity is a box of no width.

        project     c + c_r,  o + |o_r|
        intersect   centres averaged by attention; the smallest o, times a gate below 1
        distance    || relu(|v - c| - o) ||_1 + inside || min(|v - c|, o) ||_1

    For vector databases the distance is a sum of three L1 distances: see `box_distance`.
    """

    name = "query2box"
    metric = "L1"
    relation_tables = ("centres", "offsets")

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        config: Query2BoxConfig,
        rows: Rows | None = None,
    ):
        super().__init__(num_entities, num_relations, config, rows)
        dim, span = config.dim, config.span
        self.entities = nn.Parameter(self.rows.new(dim, uniform(-span, span)))
        self.centres = nn.Parameter(torch.empty(num_relations, dim).uniform_(-span, span))
        self.offsets = nn.Parameter(torch.empty(num_relations, dim).uniform_(0, span))
        self.attention = Attention(dim, dim, dim)
        self.gate_hidden, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

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
        centre = (self.attention(centres) * centres).sum(dim=1)
        hidden = torch.relu(self.gate_hidden(offsets)).mean(dim=1)
        offset = offsets.amin(dim=1) * torch.sigmoid(self.gate(hidden))
        return torch.cat([centre, offset], dim=-1)

    def distance(self, sets: Tensor, table: Tensor) -> Tensor:
        """Return the distance outside the box plus `inside` times the distance within it."""
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
