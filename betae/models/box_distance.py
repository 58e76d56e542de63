"""Distances of points from boxes, with their gradient (numba, float32).

One pass over boxes, points and dimensions, where sums of three L1 distances would take three, and
one pass for the gradients of centres, half-widths and points together. Other devices and types use
those sums.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from betae.models.manhattan import TILE, as_array, manhattan, nonzero
from betae.models.special import OPTIONS, Float32s, f32
from betae.parallel import in_threads, map_in_threads, num_threads


@njit(**OPTIONS)
def _forward(centres, offsets, points, inside, out):  # type: ignore[no-untyped-def]
    """Take four points at a time, so that a number is used often; the rest one by one."""
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
    """Return the gradient by e = centre - point; at the centre itself any one within the range."""
    t = g if abs(e) > o else g * inside
    return t if e > 0 else -t


@njit(inline="always")
def _beyond(e, o, g):  # type: ignore[no-untyped-def]
    return g if abs(e) > o else f32(0)


@njit(**OPTIONS)
def _backward(  # type: ignore[no-untyped-def]
    centres, offsets, points, inside, gradient, by_centres, by_offsets, by_points
):
    """Add up the gradients over all pairs but those with none of their own.

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
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        c, o, v = map(as_array, ctx.saved_tensors)
        g = as_array(gradient)
        by_centres, by_offsets = np.zeros_like(c), np.zeros_like(o)
        bounds = np.linspace(0, len(c), num_threads() + 1).astype(int)

        def work(block: slice) -> Float32s:
            by_points = np.zeros_like(v)  # one for each thread, which all write to every point
            _backward(
                c[block], o[block], v, ctx.inside, g[block],
                by_centres[block], by_offsets[block], by_points,
            )  # fmt: skip
            return by_points

        parts = map_in_threads(work, [slice(*pair) for pair in pairwise(bounds)])
        by_offsets *= f32(1) - ctx.inside
        return (
            torch.from_numpy(by_centres),
            torch.from_numpy(by_offsets),
            torch.from_numpy(sum(parts)),
            None,
        )


def box_distance(centres: Tensor, offsets: Tensor, points: Tensor, inside: float) -> Tensor:
    """Return the distance of every point from every box: twice (n, dim), (m, dim) -> (n, m).

    It is || relu(|v - c| - o) ||_1 + inside || min(|v - c|, o) ||_1, for half-widths o >= 0.
    """
    tensors = (centres, offsets, points)
    if all(each.device.type == "cpu" and each.dtype == torch.float32 for each in tensors):
        result: Tensor = _BoxDistance.apply(*tensors, inside)  # type: ignore[no-untyped-call]
        return result
    # relu(|x| - o) = (|x - o| + |x + o|) / 2 - o  and  min(|x|, o) = |x| - relu(|x| - o)
    to_sides = manhattan(centres - offsets, points) + manhattan(centres + offsets, points)
    outside = to_sides / 2 - offsets.sum(dim=-1, keepdim=True)
    return (1 - inside) * outside + inside * manhattan(centres, points)
