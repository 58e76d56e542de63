"""Divergence and entropy of rows of independent Beta distributions.

Parameters are (n, 2 dim): the alphas of a row, then its betas. For an entity v and a query q

    KL(v || q) = ln B(a_q, b_q) - ln B(a_v, b_v) + (a_v - a_q) psi(a_v) + (b_v - b_q) psi(b_v)
                 + (a_q - a_v + b_q - b_v) psi(a_v + b_v)

summed over the dimensions is affine in the query's parameters, with coefficients that depend on the
entity alone:

    Dist(v; q) = c(q) + f(v) + < [a_q ; b_q], F(v) >
    F(v) = [psi(a_v + b_v) - psi(a_v) ; psi(a_v + b_v) - psi(b_v)]
    c(q) = sum ln B(a_q, b_q),    f(v) = -c(v) - < [a_v ; b_v], F(v) >

So a precomputed table [F(v), f(v)] of all entities ranks them by one matrix product. The signed
differential entropy is -(f(v) + sum F(v)).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from betae.models import special
from betae.models.base import inner_products
from betae.models.special import as_array


class _BetaFeatures(torch.autograd.Function):
    """(params) -> (F, c, f), with a closed-form gradient that needs only trigamma."""

    @staticmethod
    def forward(ctx: Any, params: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if _has_kernel(params):
            features, log_beta = map(torch.from_numpy, special.features(as_array(params)))
        else:
            a, b = params.chunk(2, dim=-1)
            features = torch.digamma(a + b).repeat(1, 2) - torch.digamma(params)
            log_beta = (torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)).sum(dim=-1)
        offset = -log_beta - torch.linalg.vecdot(params, features)
        ctx.save_for_backward(params, features)
        ctx.set_materialize_grads(False)
        return features, log_beta, offset

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Tensor | None:
        params, features = ctx.saved_tensors
        grad_features, grad_log_beta, grad_offset = grads
        result = None
        if grad_features is not None and grad_offset is not None:  # both or neither are used
            if _has_kernel(params):
                arrays = map(as_array, (params, grad_features, grad_offset))
                result = torch.from_numpy(special.features_backward(*arrays))
            else:
                a, b = params.chunk(2, dim=-1)
                first, second = grad_features.chunk(2, dim=-1)
                g = grad_offset.unsqueeze(-1)
                shared = (first + second - g * (a + b)) * torch.polygamma(1, a + b)
                by_params = (g * params - grad_features) * torch.polygamma(1, params)
                result = shared.repeat(1, 2) + by_params
        if grad_log_beta is not None:  # d ln B / da = psi(a) - psi(a + b) = -F
            through_log_beta = features * -grad_log_beta.unsqueeze(-1)
            result = through_log_beta if result is None else result + through_log_beta
        return result


def _has_kernel(params: Tensor) -> bool:
    return params.device.type == "cpu" and params.dtype == torch.float32


def _beta_features(params: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    result: tuple[Tensor, Tensor, Tensor] = _BetaFeatures.apply(params)  # type: ignore[no-untyped-call]
    return result


def entity_table(params: Tensor) -> Tensor:
    """Return [F(v), f(v)], (n, 2 dim + 1), for parameters (n, 2 dim)."""
    features, _, offset = _beta_features(params)
    return torch.cat([features, offset.unsqueeze(-1)], dim=-1)


def divergence(queries: Tensor, table: Tensor) -> Tensor:
    """Return Dist(v; q), (num_queries, num_entities): parameters against an entity table."""
    _, log_beta, _ = _beta_features(queries)
    with_one = torch.cat([queries, queries.new_ones(len(queries), 1)], dim=1)
    return inner_products(with_one, table).add_(log_beta.unsqueeze(-1))


def entropy(params: Tensor) -> Tensor:
    """Return the sum of the differential entropies, with their sign, (n,)."""
    features, _, offset = _beta_features(params)
    return -(offset + features.sum(dim=-1))
