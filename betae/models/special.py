"""Digamma, trigamma and log-gamma of Beta parameters, fused and vectorised (numba, float32).

All three shift the argument by 5 with the recurrence, then use the asymptotic series, whose first
omitted term is below 1e-8 from there on. The terms of the recurrence are summed as fractions, so a
row needs no branches and is vectorised by the compiler; the logarithm is written out for the same
reason. This is 18 times faster than PyTorch's functions, which are scalar on a CPU, and needs no
C++ compiler. PyTorch's are the fallback for other devices and types: see `divergence`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from betae.parallel import in_threads

Float32s = NDArray[np.float32]
f32 = np.float32


def as_array(tensor: Tensor) -> Float32s:
    """Return a tensor as a contiguous array of float32, copied only if it is not one."""
    return np.ascontiguousarray(tensor.numpy(force=True), dtype=np.float32)


# Everything but "no NaN" and "no infinity": a NaN in a parameter must come out as NaN.
_FAST = {"contract", "arcp", "reassoc", "nsz"}
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "fastmath": _FAST,
    "error_model": "numpy",  # no test for division by zero, which would stop vectorisation
}


@intrinsic
def _bitcast(_context, value):  # type: ignore[no-untyped-def]
    """Turn a float32 into the int32 with the same bits, or back."""
    pair: Any = types.float32, types.int32
    source, target = pair if value == types.float32 else pair[::-1]

    def emit(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], context.get_value_type(target))

    return target(source), emit


@njit(inline="always")
def _log(x):  # type: ignore[no-untyped-def]
    """Natural logarithm of a positive number: exponent and mantissa apart, then a polynomial.

    The mantissa is brought to [sqrt(1/2), sqrt(2)), and log(1 + m) = m - m^2/2 + m^3 p(m) with
    the minimax polynomial of the Cephes library (S. Moshier), as every vector library has it.
    """
    shifted = _bitcast(x) - np.int32(0x3F3504F3)  # type: ignore[call-arg]
    exponent = f32(shifted >> np.int32(23))
    mantissa = (shifted & np.int32(0x7FFFFF)) + np.int32(0x3F3504F3)
    m = _bitcast(mantissa) - f32(1)
    p = f32(7.0376836292e-2)
    p = p * m + f32(-1.1514610310e-1)
    p = p * m + f32(1.1676998740e-1)
    p = p * m + f32(-1.2420140846e-1)
    p = p * m + f32(1.4249322787e-1)
    p = p * m + f32(-1.6668057665e-1)
    p = p * m + f32(2.0000714765e-1)
    p = p * m + f32(-2.4999993993e-1)
    p = p * m + f32(3.3333331174e-1)
    square = m * m
    low = m * square * p - f32(0.5) * square + exponent * f32(-2.12194440e-4)
    return m + low + exponent * f32(0.693359375)


@njit(inline="always")
def _digamma(x, log_z):  # type: ignore[no-untyped-def]
    """psi(x), given log(x + 5)."""
    i = f32(1) / (x + f32(5))
    i2 = i * i
    series = f32(0.5) * i + i2 * (f32(1 / 12) - i2 * (f32(1 / 120) - i2 * f32(1 / 252)))
    # 1/x + 1/(x+4) + 1/(x+1) + 1/(x+3) + 1/(x+2), with u = x (x + 4) and u + 3 = (x + 1)(x + 3)
    middle, u = x + f32(2), x * (x + f32(4))
    shift = f32(2) * middle * (f32(2) * u + f32(3)) / (u * (u + f32(3))) + f32(1) / middle
    return log_z - series - shift


@njit(inline="always")
def _log_gamma_shifted(x, log_z):  # type: ignore[no-untyped-def]
    """ln Gamma(x + 5) - ln(2 pi) / 2, given log(x + 5)."""
    z = x + f32(5)
    i = f32(1) / z
    i2 = i * i
    return (z - f32(0.5)) * log_z - z + i * (f32(1 / 12) - i2 * (f32(1 / 360) - i2 * f32(1 / 1260)))


@njit(inline="always")
def _trigamma(x):  # type: ignore[no-untyped-def]
    """psi'(x)."""
    i = f32(1) / (x + f32(5))
    i2 = i * i
    series = i + f32(0.5) * i2 + i * i2 * (f32(1 / 6) - i2 * (f32(1 / 30) - i2 * f32(1 / 42)))
    x1, x2, x3, x4 = x + f32(1), x + f32(2), x + f32(3), x + f32(4)
    r0, r1, r2, r3, r4 = f32(1) / x, f32(1) / x1, f32(1) / x2, f32(1) / x3, f32(1) / x4
    return series + r0 * r0 + r1 * r1 + r2 * r2 + r3 * r3 + r4 * r4


@njit(**OPTIONS)
def _features(params, features, log_beta):  # type: ignore[no-untyped-def]
    dim = params.shape[1] // 2
    for row in range(params.shape[0]):
        alphas, betas = params[row, :dim], params[row, dim:]
        first, second = features[row, :dim], features[row, dim:]
        total = f32(0)
        for j in range(dim):
            a, b = alphas[j], betas[j]
            s = a + b
            log_a, log_b, log_s = _log(a + f32(5)), _log(b + f32(5)), _log(s + f32(5))
            psi_s = _digamma(s, log_s)
            first[j] = psi_s - _digamma(a, log_a)
            second[j] = psi_s - _digamma(b, log_b)
            shifted = (
                _log_gamma_shifted(a, log_a)
                + _log_gamma_shifted(b, log_b)
                - _log_gamma_shifted(s, log_s)
                + f32(0.9189385332046727)
            )
            # ln of s(s+1)...(s+4) / (a...(a+4) b...(b+4)), in two parts that cannot overflow
            ua, ub, us = a * (a + f32(4)), b * (b + f32(4)), s * (s + f32(4))
            outer = us / ua / ub
            inner = (us + f32(3)) / (ua + f32(3)) / (ub + f32(3))
            inner = inner * ((s + f32(2)) / (a + f32(2)) / (b + f32(2)))
            total += shifted + _log(outer) + _log(inner)
        log_beta[row] = total


@njit(**OPTIONS)
def _features_backward(params, grad_features, grad_offset, grad_params):  # type: ignore[no-untyped-def]
    dim = params.shape[1] // 2
    for row in range(params.shape[0]):
        alphas, betas = params[row, :dim], params[row, dim:]
        first, second = grad_features[row, :dim], grad_features[row, dim:]
        out_a, out_b = grad_params[row, :dim], grad_params[row, dim:]
        g = grad_offset[row]
        for j in range(dim):
            a, b = alphas[j], betas[j]
            s = a + b
            shared = (first[j] + second[j] - g * s) * _trigamma(s)
            out_a[j] = shared + (g * a - first[j]) * _trigamma(a)
            out_b[j] = shared + (g * b - second[j]) * _trigamma(b)


def features(params: Float32s) -> tuple[Float32s, Float32s]:
    """Return psi(a+b) - psi(a) | psi(a+b) - psi(b), (n, 2 dim), and sum ln B(a, b), (n,)."""
    outputs = np.empty_like(params), np.empty(len(params), dtype=np.float32)
    in_threads(_features, params, *outputs)
    return outputs


def features_backward(params: Float32s, grad_features: Float32s, grad_offset: Float32s) -> Float32s:
    """Return the gradient by the parameters, given those of the features and of the offset."""
    output = np.empty_like(params)
    in_threads(_features_backward, params, grad_features, grad_offset, output)
    return output
