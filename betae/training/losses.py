"""The two losses. Both take distances, (B, C): queries against the candidates of the step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, softplus

from betae import parallel
from betae.training.batches import Batch
from betae.training.config import TrainConfig

# A non-answer with a smaller share of the softmax gets no gradient: L1 distances skip those, which
# are many in a trained model. Together they have at most C / 1,000,000 of the gradient of a query.
NEGLIGIBLE = 1e-6
NONE = 0.1  # counts as the number of answers of a query without any, which has no logarithm


class SoftmaxLoss(nn.Module):
    """Each answer among the candidates against all candidates that are not answers.

    With scores s = offset - scale * distance, an answer costs ln(1 + sum_n exp(s_n - s_answer))
    over the non-answers n: the softmax of the filtered ranking that is reported. A query costs the
    mean over its answers. With all entities as candidates this is 1-vs-all.

    That does not change when a constant is added to all distances of a query, so a distance would
    mean something else in every query, and the branches of a union could not be compared. Hence a
    second cost, the square of ln(sum of exp(s) over all entities / number of answers): exp(s) then
    says how likely an entity is an answer. The candidates that are not answers stand for all
    entities that are not candidates.

    `smoothing` is the weight of another cost: the mean of -ln of the non-answers' shares among
    themselves, which is smallest if all are alike. Some of them are answers that are not known, and
    a model that tells them less sharply apart learns less by heart.

    `popularity` is for entities with many edges. They answer some query of most batches, so they
    are candidates of most, and are pushed away by all other queries more often than their share.
    In the loss their s is lower by popularity * ln(1 + number of edges), which the model makes up
    for.

    A further cost makes the uncertainty of a query say how many answers it has: the square of
    intercept + slope * uncertainty / dim - ln(number of answers).

    Scale, offset, intercept and slope are learned. Offset and intercept start one below where their
    cost of the first batch is smallest: at that point the gradient would be rounding errors only.
    """

    def __init__(self, config: TrainConfig):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(config.scale).log())
        self.offset = nn.Parameter(torch.tensor(math.nan))  # not yet known
        self.log_slope = nn.Parameter(torch.tensor(4.0).log())
        self.intercept = nn.Parameter(torch.tensor(math.nan))
        self.normalisation, self.size = config.normalisation, config.size
        self.smoothing, self.popularity = config.smoothing, config.popularity

    def forward(self, distances: Tensor, batch: Batch, uncertainty: Tensor | None = None) -> Tensor:
        """Return the loss of every query, (B,); `uncertainty` is per dimension, (B,)."""
        rows, columns = batch.is_answer.nonzero(as_tuple=True)  # few among the candidates
        counts = torch.bincount(rows, minlength=len(distances))
        scale = self.log_scale.exp()
        handicap = self.popularity * batch.degrees.to(distances).log1p()
        total, mean, answers = _split(distances, scale, handicap, batch.is_answer, rows, columns)
        zeros = torch.zeros_like(total)
        costs = zeros.index_add(0, rows, softplus(total[rows] - answers)) / counts.clamp(min=1)
        if self.smoothing:
            costs = costs + self.smoothing * (total - mean)
        if self.normalisation:
            largest = zeros.scatter_reduce(0, rows, answers.detach(), "amax", include_self=False)
            sums = zeros.index_add(0, rows, torch.exp(answers - largest[rows]))
            everything = total + math.log(batch.num_entities / distances.shape[1])
            of_answers = sums.clamp(min=1e-30).log() + largest
            everything = torch.where(
                counts > 0, torch.logaddexp(everything, of_answers), everything
            )
            excess = everything - counts.float().clamp(min=NONE).log()
            _start(self.offset, excess)
            costs = costs + self.normalisation * (self.offset + excess) ** 2
        if self.size and uncertainty is not None:
            error = (
                self.log_slope.exp() * uncertainty - batch.num_answers.float().clamp(min=NONE).log()
            )
            _start(self.intercept, error)
            costs = costs + self.size * (self.intercept + error) ** 2
        return costs


def _start(parameter: nn.Parameter, errors: Tensor) -> None:
    """Set a parameter that is not yet known to one below what makes the mean error zero."""
    if parameter.isnan():
        sums = torch.stack([errors.detach().sum(), errors.new_tensor(len(errors))])
        total, number = parallel.sum_over_processes(sums).tolist()
        nn.init.constant_(parameter, -total / number - 1)


class _Split(torch.autograd.Function):
    """(distances, scale) -> ln sum exp(s) and mean s of the non-answers, (B,); s of the answers.

    s = -scale * distance - handicap, a number for each candidate. With its gradient in closed form:
    a third of the passes over (B, C).
    """

    @staticmethod
    def forward(
        ctx: Any,
        distances: Tensor,
        scale: Tensor,
        handicap: Tensor,
        is_answer: Tensor,
        rows: Tensor,
        columns: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        scores = torch.addcmul(-handicap, distances, scale, value=-1)
        answers = scores[rows, columns]
        number = (~is_answer).sum(dim=1)
        sums = scores.sum(dim=1).index_add(0, rows, answers, alpha=-1)
        scores.masked_fill_(is_answer, float("-inf"))
        # Where all candidates are answers the sum is empty; a finite number for its logarithm.
        total = scores.logsumexp(dim=1).clamp(min=torch.finfo(scores.dtype).min)
        mean = torch.where(number > 0, sums / number, total)
        shares = torch.threshold_(scores.sub_(total.unsqueeze(1)).exp_(), NEGLIGIBLE, 0.0)
        ctx.save_for_backward(distances, scale, shares, number, rows, columns)
        ctx.set_materialize_grads(False)  # the mean is used with `smoothing` only
        return total, mean, answers

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_total: Tensor, grad_mean: Tensor | None, grad_answers: Tensor
    ) -> tuple[Tensor, Tensor, None, None, None, None]:
        distances, scale, shares, number, rows, columns = ctx.saved_tensors
        gradient = shares * grad_total.unsqueeze(1)
        if grad_mean is not None:
            gradient += (grad_mean / number).unsqueeze(1)
        gradient[rows, columns] = grad_answers
        by_scale = -torch.linalg.vecdot(gradient, distances).sum()
        return gradient.mul_(-scale), by_scale, None, None, None, None


def _split(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs: tuple[Tensor, Tensor, Tensor] = _Split.apply(*inputs)  # type: ignore[no-untyped-call]
    return outputs


class MarginLoss(nn.Module):
    """The paper's loss: one answer within the margin, k non-answers of its own beyond it.

        -ln sigma(margin - d(answer)) - mean_j ln sigma(d(negative_j) - margin), halved

    Each query is weighted by 1 / sqrt(4 + number of its answers); the weights of a batch average 1.
    """

    def __init__(self, config: TrainConfig):
        super().__init__()
        self.margin = config.margin

    def forward(
        self,
        distances: Tensor,
        batch: Batch,
        uncertainty: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return the loss of every query, (B,)."""
        answer = distances.gather(1, batch.positive.unsqueeze(1)).squeeze(1)
        negatives = distances.gather(1, batch.negatives)
        costs = logsigmoid(self.margin - answer) + logsigmoid(negatives - self.margin).mean(dim=1)
        return -costs * batch.weights / 2


def make_loss(config: TrainConfig) -> SoftmaxLoss | MarginLoss:
    """Return the loss that the config names."""
    return SoftmaxLoss(config) if config.loss == "softmax" else MarginLoss(config)
