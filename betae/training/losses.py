"""The losses: softmax and margin of distances, (B, C), and the loss of a link predictor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, embedding, logsigmoid, softplus

from betae import parallel
from betae.models.complex import ComplEx, ComplexConfig, complex_product, cubes
from betae.models.execute import with_all_symbols
from betae.training.batches import Batch
from betae.training.config import MarginConfig, SoftmaxConfig, TrainConfig

# Non-answers with a smaller share of the softmax get no gradient, so that L1 distances can skip
# them. In a trained model they are many, with at most C / 1,000,000 of the gradient in all.
NEGLIGIBLE_SHARE = 1e-6
UNANSWERABLE = 0.1  # taken as the number of answers of a query that has none, for its logarithm


class SoftmaxLoss(nn.Module):
    """Each answer among the candidates against all candidates that are not answers.

    With scores s = offset - scale * distance, an answer costs ln(1 + sum_n exp(s_n - s_answer))
    over the non-answers n: the softmax of the filtered ranking that is reported. A query costs the
    mean over its answers. With all entities as candidates this is 1-vs-all.

    This is invariant to adding a constant to all distances of a query, so distances of different
    queries, and branches of a union, would not be comparable. `log_partition_weight` is the weight
    of the squared log-partition error, ln(sum of exp(s) over all entities / number of answers):
    exp(s) then estimates the probability that an entity is an answer. In the sum, the sampled
    non-answers are weighted to represent all entities outside the candidates.

    `smoothing` is the weight of the cross-entropy of the non-answers' softmax with the uniform
    distribution. Some non-answers are answers that the graph lacks.

    `degree_correction`: entities with many edges answer some query of most batches, so they are
    candidates, and hence negatives, more often than others. In the loss their s is lowered by
    degree_correction * ln(1 + degree), which the model learns to offset.

    `cardinality_weight` is the weight of the squared error of intercept + slope * uncertainty / dim
    as an estimate of ln(number of answers).

    Scale, offset, intercept and slope are learned. Offset and intercept start one below the optimum
    for the first batch: at the optimum, gradients would be rounding errors only.
    """

    def __init__(self, config: SoftmaxConfig):
        super().__init__()
        self.config = config
        self.log_scale = nn.Parameter(torch.tensor(config.initial_scale).log())
        self.offset = nn.Parameter(torch.tensor(math.nan))  # set by the first batch
        self.log_slope = nn.Parameter(torch.tensor(4.0).log())
        self.intercept = nn.Parameter(torch.tensor(math.nan))

    def forward(self, distances: Tensor, batch: Batch, uncertainty: Tensor | None = None) -> Tensor:
        """Return the loss of every query, (B,); `uncertainty` is per dimension, (B,)."""
        config = self.config
        rows, columns = batch.is_answer.nonzero(as_tuple=True)  # few among the candidates
        counts = torch.bincount(rows, minlength=len(distances))
        scale = self.log_scale.exp()
        handicap = config.degree_correction * batch.degrees.to(distances).log1p()
        split: tuple[Tensor, Tensor, Tensor] = _Split.apply(  # type: ignore[no-untyped-call]
            distances, scale, handicap, batch.is_answer, rows, columns
        )
        total, mean, answers = split
        zeros = torch.zeros_like(total)
        costs = zeros.index_add(0, rows, softplus(total[rows] - answers)) / counts.clamp(min=1)
        if config.smoothing:
            costs = costs + config.smoothing * (total - mean)
        if config.log_partition_weight:
            largest = zeros.scatter_reduce(0, rows, answers.detach(), "amax", include_self=False)
            sums = zeros.index_add(0, rows, torch.exp(answers - largest[rows]))
            everything = total + math.log(batch.num_entities / distances.shape[1])
            of_answers = sums.clamp(min=1e-30).log() + largest
            everything = torch.where(
                counts > 0, torch.logaddexp(everything, of_answers), everything
            )
            excess = everything - counts.float().clamp(min=UNANSWERABLE).log()
            _start(self.offset, excess)
            costs = costs + config.log_partition_weight * (self.offset + excess) ** 2
        if config.cardinality_weight and uncertainty is not None:
            error = (
                self.log_slope.exp() * uncertainty
                - batch.num_answers.float().clamp(min=UNANSWERABLE).log()
            )
            _start(self.intercept, error)
            costs = costs + config.cardinality_weight * (self.intercept + error) ** 2
        return costs


def _start(parameter: nn.Parameter, errors: Tensor) -> None:
    """Initialise an unset parameter to one below the value that makes the mean error zero."""
    if parameter.isnan():
        sums = torch.stack([errors.detach().sum(), errors.new_tensor(len(errors))])
        total, count = parallel.sum_over_processes(sums).tolist()
        nn.init.constant_(parameter, -total / count - 1)


class _Split(torch.autograd.Function):
    """(distances, scale) -> ln sum exp(s) and mean s of the non-answers, (B,); s of the answers.

    s = -scale * distance - handicap, with one handicap per candidate. The closed-form gradient
    takes a third of the passes over (B, C).
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
        num_others = (~is_answer).sum(dim=1)
        sums = scores.sum(dim=1).index_add(0, rows, answers, alpha=-1)
        scores.masked_fill_(is_answer, float("-inf"))
        # If all candidates are answers the sum is empty: its logarithm is clamped.
        total = scores.logsumexp(dim=1).clamp(min=torch.finfo(scores.dtype).min)
        mean = torch.where(num_others > 0, sums / num_others, total)
        shares = torch.threshold_(scores.sub_(total.unsqueeze(1)).exp_(), NEGLIGIBLE_SHARE, 0.0)
        ctx.save_for_backward(distances, scale, shares, num_others, rows, columns)
        ctx.set_materialize_grads(False)  # only `smoothing` uses the mean
        return total, mean, answers

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_total: Tensor, grad_mean: Tensor | None, grad_answers: Tensor
    ) -> tuple[Tensor, Tensor, None, None, None, None]:
        distances, scale, shares, num_others, rows, columns = ctx.saved_tensors
        gradient = shares * grad_total.unsqueeze(1)
        if grad_mean is not None:
            gradient += (grad_mean / num_others).unsqueeze(1)
        gradient[rows, columns] = grad_answers
        by_scale = -torch.linalg.vecdot(gradient, distances).sum()
        return gradient.mul_(-scale), by_scale, None, None, None, None


class MarginLoss(nn.Module):
    """The paper's loss: one answer within the margin, k non-answers of its own beyond it.

        -ln sigma(margin - d(answer)) - mean_j ln sigma(d(negative_j) - margin), halved

    A query is weighted by 1 / sqrt(4 + number of answers); the weights of a batch average 1.
    """

    def __init__(self, config: MarginConfig):
        super().__init__()
        self.margin = config.margin

    def forward(self, distances: Tensor, batch: Batch, _: Tensor | None = None) -> Tensor:
        """Return the loss of every query, (B,)."""
        answer = distances.gather(1, batch.positive.unsqueeze(1)).squeeze(1)
        negatives = distances.gather(1, batch.negatives)
        costs = logsigmoid(self.margin - answer) + logsigmoid(negatives - self.margin).mean(dim=1)
        return -costs * batch.weights / 2


class LinkLoss(nn.Module):
    """The softmax of an edge's tail among all entities and of its relation among all relations.

    A query is a head with a relation, and its answers are the tails of its edges. An edge costs

        -ln softmax(t | h, r) - relation_weight ln softmax(r | h, t) + n3 (|h|^3 + |r|^3 + |t|^3)

    All edges of a query share one row of scores, the most expensive part. In the first softmax, the
    sampled entities that answer no query of the batch are weighted to represent all such entities.
    """

    def __init__(self, config: ComplexConfig):
        super().__init__()
        self.config = config

    def forward(self, model: ComplEx, share: Batch, batch: Batch) -> Tensor:
        """Return the loss of every query of this process's share of a batch, (B,).

        Their mean over the whole batch is the mean over its edges.
        """
        symbols = torch.cat([with_all_symbols(group).symbols for group in share.groups])
        head_ids, relation_ids = symbols.to(share.candidates.device).T
        heads, candidates = model.look_up(head_ids), model.look_up(share.candidates)
        relations = embedding(relation_ids, model.relations)
        # The product may be in bfloat16; the softmax must not be.
        scores = (complex_product(heads, relations) @ candidates.T).to(heads)
        sums = (scores + log_weights(batch).to(scores)).logsumexp(dim=1)
        rows, columns = share.is_answer.nonzero(as_tuple=True)  # the edges
        tails = candidates[columns]
        costs = sums[rows] - scores[rows, columns]
        of_relations = model.relation_scores(heads[rows], tails).to(heads)
        costs = costs + self.config.relation_weight * cross_entropy(
            of_relations, relation_ids[rows], reduction="none"
        )
        sizes = cubes(heads) + cubes(relations)
        costs = costs + self.config.n3 * (sizes[rows] + cubes(tails))
        of_queries = costs.new_zeros(len(share)).index_add(0, rows, costs)
        return of_queries / batch.num_answers.float().mean().to(costs)


def log_weights(batch: Batch) -> Tensor:
    """Return the log-weight of each candidate in a sum over all entities, (C,)."""
    is_answer = batch.is_answer.any(dim=0)
    num_answers = int(is_answer.sum())
    num_sampled, num_others = len(is_answer) - num_answers, batch.num_entities - num_answers
    weight = math.log(num_others / num_sampled) if num_sampled else 0.0
    return torch.where(is_answer, 0.0, weight)


def build_loss(config: TrainConfig) -> SoftmaxLoss | MarginLoss | LinkLoss:
    """Build the loss of a config."""
    if isinstance(config.model, ComplexConfig):
        return LinkLoss(config.model)
    if isinstance(config.loss, MarginConfig):
        return MarginLoss(config.loss)
    assert isinstance(config.loss, SoftmaxConfig)
    return SoftmaxLoss(config.loss)
