"""The two losses. Both take distances, (B, C): queries against the candidates of the step."""

from __future__ import annotations

import torch
from torch import Tensor, nn
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
        scores = -self.log_scale.exp() * distances
        others = scores.masked_fill(batch.is_answer, float("-inf")).logsumexp(dim=1, keepdim=True)
        rows, columns = batch.is_answer.nonzero(as_tuple=True)  # few: not worth a whole matrix
        costs = softplus(others[rows, 0] - scores[rows, columns])
        sums = scores.new_zeros(len(scores)).index_add(0, rows, costs)
        return sums / batch.is_answer.sum(dim=1)


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
