"""How a link predictor learns: every edge against all entities, and against all relations."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding

from betae.models.complex import ComplEx, ComplexConfig, complex_product, cubes
from betae.models.execute import with_all_symbols
from betae.training.batches import Batch


class LinkLoss(nn.Module):
    """The softmax of an edge's tail among all entities and of its relation among all relations.

    A query is a head with a relation, and its answers are the tails of its edges. An edge costs

        -ln softmax(t | h, r) - relation_weight ln softmax(r | h, t) + n3 (|h|^3 + |r|^3 + |t|^3)

    All edges of a query share one row of scores, which are most of the work. The first softmax has
    a sum over all entities. Those that answer some query of the batch are in it one by one; those
    that were sampled beside them stand for all others, in equal parts.
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
        # A product may be in bfloat16; a softmax of it is not.
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
    """Return the logarithm of how many entities each candidate stands for in a sum, (C,)."""
    is_answer = batch.is_answer.any(dim=0)
    num_answers = int(is_answer.sum())
    num_sampled, num_others = len(is_answer) - num_answers, batch.num_entities - num_answers
    weight = math.log(num_others / num_sampled) if num_sampled else 0.0
    return torch.where(is_answer, 0.0, weight)
