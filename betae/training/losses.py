"""The two losses. Both take distances, (B, C): queries against the candidates of the step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, softplus

from betae.training.config import TrainConfig
from betae.training.data import Batch


class SoftmaxLoss(nn.Module):
    """Each answer among the candidates against all the candidates that are no answers.

    With scores s = -scale * distance, an answer costs ln(1 + sum_n exp(s_n - s_answer)) over the
    non-answers n: the softmax of the filtered ranking that is reported. A query costs the mean over
    its answers. With all entities as candidates this is 1-vs-all. The scale is learned.
    """

    def __init__(self, config: TrainConfig):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(config.scale).log())

    def forward(self, distances: Tensor, batch: Batch) -> Tensor:
        """Return the loss of every query, (B,)."""
        costs: Tensor = _SoftmaxCosts.apply(distances, self.log_scale.exp(), batch.is_answer)  # type: ignore[no-untyped-call]
        return costs


class _SoftmaxCosts(torch.autograd.Function):
    """The costs with their gradient in closed form, in half the passes over (B, C).

    With t = ln sum_n exp(s_n), an answer's slope is -sigma(t - s_answer), and the non-answers
    share the opposite of it in proportion to exp(s_n).
    """

    @staticmethod
    def forward(ctx: Any, distances: Tensor, scale: Tensor, is_answer: Tensor) -> Tensor:
        scores = -scale * distances
        rows, columns = is_answer.nonzero(as_tuple=True)  # few beside the others
        answers = scores[rows, columns]
        scores.masked_fill_(is_answer, float("-inf"))
        # Where all candidates are answers the sum is empty; a finite number for its logarithm.
        total = scores.logsumexp(dim=1).clamp(min=torch.finfo(scores.dtype).min)
        behind, weights = total[rows] - answers, 1 / is_answer.sum(dim=1)[rows]
        slopes = weights * torch.sigmoid(behind)
        zeros = torch.zeros_like(total)
        gradient = scores.sub_(total.unsqueeze(1)).exp_()
        gradient.mul_(zeros.index_add(0, rows, slopes).unsqueeze(1))
        gradient[rows, columns] = -slopes
        ctx.save_for_backward(scale, gradient, torch.linalg.vecdot(gradient, distances))
        return zeros.index_add(0, rows, weights * softplus(behind))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        scale, gradient, by_scale = ctx.saved_tensors
        return gradient * (-scale * grad).unsqueeze(1), -(by_scale @ grad), None


class MarginLoss(nn.Module):
    """The paper's: one answer within the margin, k non-answers of its own beyond it.

        -ln sigma(margin - d(answer)) - mean_j ln sigma(d(negative_j) - margin), halved

    Each query is weighted by 1 / sqrt(4 + number of its answers); the weights of a batch average 1.
    """

    def __init__(self, config: TrainConfig):
        super().__init__()
        self.margin = config.margin

    def forward(self, distances: Tensor, batch: Batch) -> Tensor:
        """Return the loss of every query, (B,)."""
        answer = distances.gather(1, batch.positive.unsqueeze(1)).squeeze(1)
        negatives = distances.gather(1, batch.negatives)
        costs = logsigmoid(self.margin - answer) + logsigmoid(negatives - self.margin).mean(dim=1)
        return -costs * batch.weights / 2


def make_loss(config: TrainConfig) -> SoftmaxLoss | MarginLoss:
    """Return the loss that the config names."""
    return SoftmaxLoss(config) if config.loss == "softmax" else MarginLoss(config)
