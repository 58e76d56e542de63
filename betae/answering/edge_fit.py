"""Fit the probabilities of missing edges on validation edges: see `edges` for the model.

Two regressions on rows of (head, relation), with validation edges among the unknown tails:

1. `_fit_listwise` fits s(t), which decides the order of a row: the softmax of each validation edge
   against the unknown tails of its row.
2. `_fit_logistic` fits p(t) given s(t), on rows with tails and on plausible rows without.

Of a row, the best-scored unknown tails are used, and a weighted random sample of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.by_parts import PROPOSED_TAILS, LargeGraph
from betae.answering.completed import fit_scale
from betae.answering.edges import (
    ROW,
    TAIL,
    Counts,
    EdgePredictors,
    EdgeProbabilities,
    EdgeWeights,
    fullness,
    head_features,
    log_partition,
    mask_known,
    project,
    validation_share,
)
from betae.errors import InvalidArgument
from betae.evaluation.ranks import Doubles
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded
from betae.querysets.sample import random_stream
from betae.search import nearest_of_all

FIT_EDGES = 1500  # validation edges for the order
FIT_PAIRS = 4000  # (head, relation) for the probabilities, half of them with tails
SHARE_BY_EDGES = 0.1  # of these pairs, drawn in proportion to their number of edges
BEST_TAILS = 200  # of a row, by each model
SAMPLED_TAILS = 100  # of a row, representing all others
ROWS_PER_FIT_BATCH = 256
SCORES_PER_BATCH = 2**25  # fewer rows for many entities
ROWS_PER_PART = 64

HeadsRelations = tuple[NDArray[np.int64], NDArray[np.int64]]


def fit_edges(
    models: Sequence[QueryModel], graph: KnowledgeGraph, in_parts: bool = False
) -> EdgeWeights:
    """Fit the weights of some models on the validation edges of their graph.

    `in_parts` is for answers by indexes: a row then has the tails that the models propose and a
    sample of the others, and the embedding of whole questions, which needs all entities, is left
    out.
    """
    if not len(graph.splits["valid"]):
        raise InvalidArgument(
            "The probabilities of edges are fitted on validation edges, and the graph has none: "
            "ingest it with --valid 0.05, say."
        )
    fit = _Fit(models, graph, in_parts)
    weights = fit.fit_probabilities(fit.fit_order())
    return replace(weights, whole=None if in_parts else fit_scale(models[0], graph))


@dataclass(frozen=True)
class _Tails:
    """Unknown tails of some rows, flat: the best and a sample of the others."""

    rows: NDArray[np.int64]  # index of the row of each tail, ascending
    features: Doubles  # (num_tails, num_features)
    weights: Doubles  # number of entities that each tail represents
    is_edge: NDArray[np.bool_]

    @classmethod
    def concatenate(cls, pieces: Sequence[_Tails]) -> _Tails:
        columns = zip(*(vars(piece).values() for piece in pieces), strict=True)
        return cls(*map(np.concatenate, columns))


class _Fit:
    """The two fits, and how their rows are chosen and scored."""

    def __init__(self, models: Sequence[QueryModel], graph: KnowledgeGraph, in_parts: bool):
        self.models, self.graph, self.in_parts = models, graph, in_parts
        self.random = random_stream(0, "fitting edges")
        self.train, self.with_valid = graph.adjacency("train"), graph.adjacency("train+valid")
        self.num_entities = min(model.num_entities for model in models)
        self.num_relations = min(model.num_relations for model in models)

    def _batches(
        self, heads: NDArray[np.int64], relations: NDArray[np.int64], weights: EdgeWeights
    ) -> Iterator[tuple[EdgeProbabilities, HeadsRelations]]:
        """Yield the pairs in batches, each with the probabilities of its rows.

        In parts, these are of the entities of a part, and the heads are local ids.
        """
        predictors = EdgePredictors(self.models, weights)
        if not self.in_parts:
            probabilities = EdgeProbabilities(predictors, Counts(self.train))
            size = max(1, min(ROWS_PER_FIT_BATCH, SCORES_PER_BATCH // max(1, self.num_entities)))
            for first in range(0, len(heads), size):
                rows = slice(first, first + size)
                yield probabilities, (heads[rows], relations[rows])
            return
        large = LargeGraph(self.graph, predictors, "train")
        proposed = []  # the nearest tails of each pair by one pass over all entities, (n, k)
        for model in self.models:
            with torch.no_grad():
                sets = project(model, heads, relations)
            embedded = Embedded(sets, torch.arange(len(sets)), len(sets))
            proposed.append(nearest_of_all(model, embedded, 2 * PROPOSED_TAILS)[1])
        for first in range(0, len(heads), ROWS_PER_PART):
            rows = slice(first, first + ROWS_PER_PART)
            block = heads[rows], relations[rows]
            found = [block[0], large.known_tails(*block)]
            found += [tails[rows].ravel() for tails in proposed]
            found += map(self._held_out, *(ids.tolist() for ids in block))
            part = large.part(np.concatenate(found))
            local = np.searchsorted(part.ids, block[0])
            yield part.completed.probabilities, (local, block[1])

    def _held_out(self, head: int, relation: int) -> NDArray[Any]:
        """Return the tails of the validation edges of a (head, relation)."""
        known = self.train.neighbours(head, relation)
        held_out = np.setdiff1d(self.with_valid.neighbours(head, relation), known)
        return held_out[held_out < self.num_entities]

    # ---- the order in a row ---------------------------------------------------------------------

    def fit_order(self) -> EdgeWeights:
        """Fit s: each validation edge against the unknown tails of its row."""
        heads, relations = self._validation_pairs(FIT_EDGES)
        pieces, done = [], 0
        names = [model.name for model in self.models]
        unfitted = EdgeWeights(dict.fromkeys(names, 1.0), dict.fromkeys(TAIL, 0.0), {})
        for probabilities, pairs in self._batches(heads, relations, unfitted):
            scores = [*probabilities.by_predictor(*pairs)]
            pieces.append(self._tails(probabilities, pairs, scores, done))
            done += len(pairs[0])
        tails = _Tails.concatenate(pieces)
        if not tails.is_edge.any():
            raise InvalidArgument("All validation edges are training edges, too.")
        scale = tails.features.std(axis=0) + 1e-9
        found = _fit_listwise(tails, len(heads), scale).tolist()
        return EdgeWeights(
            dict(zip(names, found[: len(names)], strict=True)),
            dict(zip(TAIL, found[len(names) :], strict=True)),
            dict.fromkeys(ROW, 0.0),
        )

    def _tails(
        self,
        probabilities: EdgeProbabilities,
        pairs: HeadsRelations,
        scores: list[torch.Tensor],
        first_row: int,
    ) -> _Tails:
        """Choose tails of a batch of rows; their features are the scores and TAIL."""
        chosen: list[_Tails] = []
        counts, all_ids = probabilities.counts, probabilities.ids
        for row, (head, relation) in enumerate(zip(*(ids.tolist() for ids in pairs), strict=True)):
            known = counts.adjacency.neighbours(head, relation)
            held_out = np.searchsorted(all_ids, self._held_out(int(all_ids[head]), relation))
            of_row = [each[row] for each in scores]
            ids, weights = self._choose(probabilities, of_row, known, held_out)
            num_heads = np.zeros(len(all_ids), dtype=np.int64)
            linked, num_linked = counts.heads(relation ^ 1)
            num_heads[linked] = num_linked
            ends = fullness(num_heads[ids], counts.mean(relation ^ 1))
            is_loop = ids == head
            columns = [each.numpy()[ids] for each in of_row]
            columns += [*ends.T, is_loop, is_loop * counts.log_loops(relation)]
            rows, features = np.full(len(ids), first_row + row), np.stack(columns, axis=1)
            features = features.astype(np.float64)
            chosen.append(_Tails(rows, features, weights, np.isin(ids, held_out)))
        return _Tails.concatenate(chosen)

    def _choose(
        self,
        probabilities: EdgeProbabilities,
        scores: list[torch.Tensor],
        known: NDArray[Any],
        held_out: NDArray[Any],
    ) -> tuple[NDArray[np.int64], Doubles]:
        """Choose unknown tails of a row: the best by each score, those held out, a sample.

        Return their ids, and the number of entities that each represents.
        """
        found = [held_out]
        for each in scores:
            found.append(each.topk(min(len(each), BEST_TAILS + len(known))).indices.numpy())
        best = np.setdiff1d(np.concatenate(found), known)
        sample = probabilities.sample
        others = sample[self.random.integers(len(sample), size=SAMPLED_TAILS)]
        others = np.setdiff1d(others, np.union1d(best, known))
        num_others = self.num_entities - len(best) - len(known)
        represents = max(1.0, num_others / max(1, len(others)))
        weights = np.concatenate([np.ones(len(best)), np.full(len(others), represents)])
        return np.concatenate([best, others]).astype(np.int64), weights

    # ---- how sure -------------------------------------------------------------------------------

    def fit_probabilities(self, order: EdgeWeights) -> EdgeWeights:
        """Fit p, given s, on rows with tails and on plausible rows without."""
        heads, relations = self._plausible_pairs(FIT_PAIRS)
        pieces, done = [], 0
        for probabilities, pairs in self._batches(heads, relations, order):
            scores = probabilities.scores(*pairs)
            mask_known(scores, probabilities.counts.tails(*pairs))
            partition = log_partition(scores, probabilities.log_weights)
            of_rows = np.column_stack([partition, head_features(probabilities.counts, *pairs)])
            tails = self._tails(probabilities, pairs, [scores], 0)
            features = np.column_stack([tails.features[:, :1], of_rows[tails.rows]])
            pieces.append(replace(tails, rows=tails.rows + done, features=features))
            done += len(pairs[0])
        found = _fit_logistic(_Tails.concatenate(pieces), validation_share(self.graph))
        return replace(order, row=dict(zip(ROW, found.tolist(), strict=True)))

    # ---- which rows -----------------------------------------------------------------------------

    def _validation_pairs(self, count: int) -> HeadsRelations:
        """Return the (head, relation) of validation edges, each in a random direction."""
        edges = self.graph.splits["valid"]
        edges = edges[self.random.permutation(len(edges))[:count]].astype(np.int64)
        is_inverse = self.random.integers(2, size=len(edges))
        heads = np.where(is_inverse == 1, edges[:, 2], edges[:, 0])
        return self._learned(heads, 2 * edges[:, 1] + is_inverse)

    def _plausible_pairs(self, count: int) -> HeadsRelations:
        """Return (head, relation) pairs, half of them with tails, half without training tails.

        Of the first half, some are those of random edges, since questions often pass entities with
        many. The second half are heads with a relation of a sibling, an entity that shares another
        relation with them: pairs that a question might ask for.
        """
        adjacency = self.with_valid
        heads = np.repeat(
            np.arange(len(adjacency.head_offsets) - 1), np.diff(adjacency.head_offsets)
        )
        by_edges = int(SHARE_BY_EDGES * count)
        edges = self.random.integers(len(adjacency.tails), size=by_edges)
        of_edges = np.searchsorted(adjacency.tail_offsets, edges, side="right") - 1
        pairs = self.random.integers(len(heads), size=count // 2 - by_edges)
        pairs = np.concatenate([pairs, of_edges])
        with_tails = (heads[pairs], adjacency.relations[pairs].astype(np.int64))
        pairs = self.random.integers(len(heads), size=count)
        others = self._siblings(heads[pairs], adjacency.relations[pairs])
        is_new = [not len(self.train.neighbours(h, r)) for h, r in zip(*others, strict=True)]
        others = others[0][is_new][: count // 2], others[1][is_new][: count // 2]
        return self._learned(
            *(np.concatenate(both) for both in zip(with_tails, others, strict=True))
        )

    def _siblings(self, heads: NDArray[Any], relations: NDArray[Any]) -> HeadsRelations:
        """Return each head with a random relation of a random head of its relation."""
        adjacency = self.with_valid
        offsets, by_relation, _ = adjacency.by_relation
        first, last = offsets[relations], offsets[relations + 1]
        siblings = by_relation[self.random.integers(first, last)]
        first, last = adjacency.head_offsets[siblings], adjacency.head_offsets[siblings + 1]
        found = adjacency.relations[self.random.integers(first, last)]
        return heads.astype(np.int64), found.astype(np.int64)

    def _learned(self, heads: NDArray[Any], relations: NDArray[Any]) -> HeadsRelations:
        learned = (heads < self.num_entities) & (relations < self.num_relations)
        return heads[learned].astype(np.int64), relations[learned].astype(np.int64)


# ---- the regressions ----------------------------------------------------------------------------


def _fit_listwise(tails: _Tails, num_rows: int, scale: Doubles) -> Doubles:
    """Maximise the mean log-softmax of the edges in their rows; return the weights."""
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
        count = max(1, is_edge.sum())
        return loss / count + 1e-4 * weights @ weights, gradient / count + 2e-4 * weights

    found = minimize(cost, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x
    return np.asarray(found / scale)


def _fit_logistic(tails: _Tails, share: float) -> Doubles:
    """Fit a logistic regression of being held out, when only a `share` of held-out edges is seen.

    The weight of the first feature, the score, is bounded to be positive.
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
        count = is_edge.sum() + 1
        gradient = (weights * slopes) @ features / count
        return loss / count + 1e-4 * found @ found, gradient + 2e-4 * found

    bounds = [(1e-3, None)] + [(None, None)] * (features.shape[1] - 1)
    start = np.zeros(features.shape[1])
    start[0] = 0.1
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.asarray(found / scale)
