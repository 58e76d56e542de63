"""L1 distances between rows, with their gradient (numba, float32).

PyTorch's `cdist` with p = 1 is several times slower on a CPU (510 rows against 1,001 at dim 400:
11 times forward, 6 times backward). It is the fallback for other devices and types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from betae.models.special import OPTIONS, Float32s, as_array, f32
from betae.parallel import in_threads

TILE = 32  # rows of the second operand that stay in the cache


@njit(**OPTIONS)
def _forward(left, right, out):  # type: ignore[no-untyped-def]
    """Process four rows of `right` at a time, so that loaded values are reused."""
    fours = len(right) // 4 * 4
    for start in range(0, fours, TILE):
        for i in range(len(left)):
            for j in range(start, min(start + TILE, fours), 4):
                a = b = c = d = f32(0)
                for k in range(left.shape[1]):
                    x = left[i, k]
                    a += abs(x - right[j, k])
                    b += abs(x - right[j + 1, k])
                    c += abs(x - right[j + 2, k])
                    d += abs(x - right[j + 3, k])
                out[i, j], out[i, j + 1], out[i, j + 2], out[i, j + 3] = a, b, c, d
    for i in range(len(left)):
        for j in range(fours, len(right)):
            a = f32(0)
            for k in range(left.shape[1]):
                a += abs(left[i, k] - right[j, k])
            out[i, j] = a


@njit(inline="always")
def nonzero(values, start, kept):  # type: ignore[no-untyped-def]
    """Write the indices of nonzero values among TILE from `start` on; return their count."""
    count = 0
    for i in range(start, min(start + TILE, len(values))):
        kept[count] = i
        count += values[i] != 0
    return count


@njit(inline="always")
def _signed(g, difference):  # type: ignore[no-untyped-def]
    return g if difference > 0 else (-g if difference < 0 else f32(0))


@njit(**OPTIONS)
def _backward(left, right, gradient, out):  # type: ignore[no-untyped-def]
    """Sum gradient[i, j] * sign(left[i] - right[j]) over j for each row i, skipping zeros."""
    out[:] = 0
    kept = np.empty(TILE, dtype=np.int64)  # rows of `right` with a gradient
    for start in range(0, len(right), TILE):
        for i in range(len(left)):
            count = nonzero(gradient[i], start, kept)
            fours = count // 4 * 4
            for at in range(0, fours, 4):
                j, u, v, w = kept[at], kept[at + 1], kept[at + 2], kept[at + 3]
                a, b, c, d = gradient[i, j], gradient[i, u], gradient[i, v], gradient[i, w]
                for k in range(left.shape[1]):
                    x = left[i, k]
                    out[i, k] += (
                        _signed(a, x - right[j, k])
                        + _signed(b, x - right[u, k])
                        + _signed(c, x - right[v, k])
                        + _signed(d, x - right[w, k])
                    )
            for at in range(fours, count):
                j = kept[at]
                a = gradient[i, j]
                for k in range(left.shape[1]):
                    out[i, k] += _signed(a, left[i, k] - right[j, k])


class _Manhattan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        a, b = as_array(left), as_array(right)
        out = np.empty((len(a), len(b)), dtype=np.float32)
        in_threads(lambda rows, result: _forward(rows, b, result), a, out)
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = map(as_array, ctx.saved_tensors)
        by_left, by_right = ctx.needs_input_grad
        g = as_array(gradient)
        return (
            _gradient(left, right, g) if by_left else None,
            _gradient(right, left, g.T) if by_right else None,
        )


def _gradient(left: Float32s, right: Float32s, gradient: Float32s) -> Tensor:
    out = np.empty_like(left)
    in_threads(lambda *rows: _backward(rows[0], right, *rows[1:]), left, gradient, out)
    return torch.from_numpy(out)


def manhattan(left: Tensor, right: Tensor) -> Tensor:
    """Return the L1 distances of all pairs of rows: (n, dim), (m, dim) -> (n, m)."""
    if left.device.type == "cpu" and left.dtype == right.dtype == torch.float32:
        result: Tensor = _Manhattan.apply(left, right)  # type: ignore[no-untyped-call]
        return result
    return torch.cdist(left, right, p=1)
