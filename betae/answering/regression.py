"""The two regressions that give edges their probabilities: see `edge_fit`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Tails:
    """Some unknown tails of some rows, flat: the best and a sample of the others."""

    rows: NDArray[np.int64]  # which row a tail belongs to, ascending
    ids: NDArray[np.int64]
    features: Doubles  # (num_tails, num_features)
    weights: Doubles  # how many entities a tail stands for
    is_edge: NDArray[np.bool_]


def fit_listwise(tails: Tails, num_rows: int, scale: Doubles) -> Doubles:
    """Maximise the mean ln softmax of the edges in their rows; return the weights."""
    from scipy.optimize import minimize

    features, log_weights = tails.features / scale, np.log(tails.weights)
    is_edge, rows = tails.is_edge, tails.rows
    edge_counts = np.bincount(rows[is_edge], minlength=num_rows)
    starts = np.searchsorted(rows, np.arange(num_rows))

    def cost(weights: Doubles) -> tuple[float, Doubles]:
        scores = features @ weights
        shifted = scores + log_weights
        largest = np.maximum.reduceat(shifted, starts)
        shares = np.exp(shifted - largest[rows])
        sums = np.add.reduceat(shares, starts)
        shares *= (edge_counts / sums)[rows]
        loss = edge_counts @ (np.log(sums) + largest) - scores[is_edge].sum()
        gradient = shares @ features - features[is_edge].sum(axis=0)
        number = max(1, is_edge.sum())
        return loss / number + 1e-4 * weights @ weights, gradient / number + 2e-4 * weights

    found = minimize(cost, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x
    return np.asarray(found / scale)


def fit_logistic(tails: Tails, share: float) -> Doubles:
    """Fit a logistic regression of being held out, of which `share` is seen as validation edges.

    A higher score is never worse.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    scale = tails.features.std(axis=0)
    scale[scale == 0] = 1.0
    features, weights, is_edge = tails.features / scale, tails.weights, tails.is_edge
    # -ln(1 - share p) = ln(1 + exp z) - ln(1 + (1 - share) exp z), for any z
    unseen = math.log(1 - share) if share < 1 else -math.inf

    def cost(found: Doubles) -> tuple[float, Doubles]:
        logits = features @ found
        no_edge = np.logaddexp(0, logits) - np.logaddexp(0, logits + unseen)
        loss = weights @ np.where(is_edge, np.logaddexp(0, -logits), no_edge)
        slopes = expit(logits) - np.where(is_edge, 1, expit(logits + unseen))
        number = is_edge.sum() + 1
        gradient = (weights * slopes) @ features / number
        return loss / number + 1e-4 * found @ found, gradient + 2e-4 * found

    bounds = [(1e-3, None)] + [(None, None)] * (features.shape[1] - 1)
    start = np.zeros(features.shape[1])
    start[0] = 0.1
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.asarray(found / scale)
