"""Fit the probabilities of edges on validation edges: first the order in a row, then how sure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.edges import (
    ROW,
    TAIL,
    Counts,
    EdgeProbabilities,
    EdgeWeights,
    fullness,
    log_sums,
    predictor_scores,
    row_features,
    validation_share,
)
from betae.errors import InvalidArgument
from betae.graph.edges import Adjacency
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.querysets.seeds import random_stream

EDGES = 1500  # validation edges for the order
PAIRS = 4000  # (head, relation) for the probabilities
BY_EDGES = (
    0.1  # of them are drawn by their edges: a half have tails, and those with many count more
)
BEST = 200  # tails of a row that are looked at one by one, the best by each predictor
OTHERS = 100  # a sample that stands for all other tails
ROWS_AT_ONCE = 256

Doubles = NDArray[np.float64]
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # heads, relations


@dataclass(frozen=True)
class Tails:
    """Some unknown tails of some rows, flat: the best and a sample of the others."""

    rows: NDArray[np.int64]  # which row a tail belongs to, ascending
    ids: NDArray[np.int64]
    features: Doubles  # (num_tails, num_features)
    weights: Doubles  # how many entities a tail stands for
    is_edge: NDArray[np.bool_]


def fit_edges(
    predictors: Sequence[QueryModel],
    graph: KnowledgeGraph,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> EdgeWeights:
    """Fit the weights of some predictors on the validation edges of their graph."""
    if not len(graph.splits["valid"]):
        raise InvalidArgument(
            "The probabilities of edges are fitted on validation edges, and the graph has none: "
            "ingest it with --valid 0.05, say."
        )
    random = random_stream(seed, "fitting edges")
    fit = _Fit(predictors, graph, random, progress)
    order = fit.order()
    return fit.probabilities(order)


class _Fit:
    """The two fits, with what they share."""

    def __init__(
        self,
        predictors: Sequence[QueryModel],
        graph: KnowledgeGraph,
        random: np.random.Generator,
        progress: Callable[[int, int], None],
    ):
        self.predictors, self.graph, self.random, self.progress = (
            predictors,
            graph,
            random,
            progress,
        )
        self.counts = Counts(graph.adjacency("train"))
        self.later = graph.adjacency("train+valid")
        self.limits = (
            min(model.num_entities for model in predictors),
            min(model.num_relations for model in predictors),
        )
        with torch.no_grad():
            self.tables = [model.table()[: self.limits[0]] for model in predictors]

    # ---- the order in a row ---------------------------------------------------------------------

    def order(self) -> EdgeWeights:
        """Fit s: each validation edge against the unknown tails of its row."""
        heads, relations = self._validation_pairs(EDGES)
        pieces, done = [], 0
        for block in _blocks(heads, relations):
            scores = [
                predictor_scores(model, table, *block)
                for model, table in zip(self.predictors, self.tables, strict=True)
            ]
            pieces.append(self._tails(block, scores, done))
            done += len(block[0])
            self.progress(done, EDGES + PAIRS)
        tails = _concatenate(pieces)
        if not tails.is_edge.any():
            raise InvalidArgument("The validation edges are all training edges, too.")
        scale = tails.features.std(axis=0) + 1e-9
        found = _fit_listwise(tails, len(heads), scale)
        names = [model.name for model in self.predictors]
        weights, of_tail = found[: len(names)], found[len(names) :]
        return EdgeWeights(
            dict(zip(names, weights.tolist(), strict=True)),
            dict(zip(TAIL, of_tail.tolist(), strict=True)),
            dict.fromkeys(ROW, 0.0),
        )

    def _tails(self, block: Pairs, scores: list[torch.Tensor], first_row: int) -> Tails:
        """Take the tails of a block of rows, with the scores and how full they are."""
        chosen: list[Tails] = []
        for row, (head, relation) in enumerate(zip(*(ids.tolist() for ids in block), strict=True)):
            known = self.counts.adjacency.neighbours(head, relation)
            true = np.setdiff1d(self.later.neighbours(head, relation), known)
            true = true[true < self.limits[0]]
            ids, weights = self._choose([of[row] for of in scores], known, true)
            features = [of[row].numpy()[ids] for of in scores]
            numbers = self._numbers(ids, relation ^ 1)
            ends = fullness(numbers, self.counts.mean(relation ^ 1))
            is_loop = ids == head
            columns = [*features, *ends.T, is_loop, is_loop * self.counts.log_loops(relation)]
            chosen.append(
                Tails(
                    np.full(len(ids), first_row + row),
                    ids,
                    np.stack(columns, axis=1).astype(np.float64),
                    weights,
                    np.isin(ids, true),
                )
            )
        return _concatenate(chosen)

    def _numbers(self, entities: NDArray[np.int64], relation: int) -> NDArray[np.int64]:
        """Return how many tails of a relation entities have."""
        heads, numbers = self.counts.heads(relation)
        places = np.searchsorted(heads, entities)
        places[places == len(heads)] = 0
        is_there = heads[places] == entities if len(heads) else np.zeros(len(entities), bool)
        return np.where(is_there, numbers[places] if len(heads) else 0, 0)

    def _choose(
        self, scores: list[torch.Tensor], known: NDArray[Any], true: NDArray[Any]
    ) -> tuple[NDArray[np.int64], Doubles]:
        """Choose unknown tails of one row: the best by each predictor, the true ones, some others.

        Returns their ids, and how many entities each stands for.
        """
        number = len(scores[0])
        best = [np.asarray(true, dtype=np.int64)]
        for of in scores:
            best.append(of.topk(min(number, BEST + len(known))).indices.numpy())
        sure = np.setdiff1d(np.concatenate(best), known)
        others = np.setdiff1d(self.random.integers(number, size=OTHERS), np.union1d(sure, known))
        left = number - len(sure) - len(known)
        weights = np.concatenate(
            [np.ones(len(sure)), np.full(len(others), max(1.0, left / max(1, len(others))))]
        )
        return np.concatenate([sure, others]).astype(np.int64), weights

    # ---- how sure -------------------------------------------------------------------------------

    def probabilities(self, order: EdgeWeights) -> EdgeWeights:
        """Fit p, given s: rows that have tails, with or without missing ones, and rows without."""
        edges = EdgeProbabilities(self.predictors, order)
        heads, relations = self._plausible_pairs(PAIRS)
        pieces, done = [], 0
        for block in _blocks(heads, relations):
            scores = edges.scores(*block, self.counts)
            known = self.counts.tails(*block)
            sums = log_sums(scores, known)
            of_heads = row_features(known.lengths, block[1], self.counts)
            of_rows = np.column_stack([sums, of_heads])
            tails = self._tails(block, [scores], 0)
            features = np.column_stack([tails.features[:, :1], of_rows[tails.rows]])
            pieces.append(
                Tails(tails.rows + done, tails.ids, features, tails.weights, tails.is_edge)
            )
            done += len(block[0])
            self.progress(EDGES + done, EDGES + PAIRS)
        found = _fit_logistic(_concatenate(pieces), validation_share(self.graph))
        return EdgeWeights(
            order.predictors, order.tail, dict(zip(ROW, found.tolist(), strict=True))
        )

    # ---- which rows -----------------------------------------------------------------------------

    def _validation_pairs(self, number: int) -> Pairs:
        """Return the (head, relation) of validation edges, each in a random direction."""
        edges = self.graph.splits["valid"]
        edges = edges[self.random.permutation(len(edges))[:number]].astype(np.int64)
        is_inverse = self.random.integers(2, size=len(edges))
        heads = np.where(is_inverse == 1, edges[:, 2], edges[:, 0])
        return self._learned(heads, 2 * edges[:, 1] + is_inverse)

    def _plausible_pairs(self, number: int) -> Pairs:
        """Return (head, relation) that have tails, and as many that might but do not in training.

        Of the first kind, some are the ends of random edges: questions often pass by entities with
        many. Of the second kind: an entity, and a relation of another entity that shares a relation
        with it, as a question would ask for.
        """
        adjacency = self.later
        heads = np.repeat(
            np.arange(len(adjacency.head_offsets) - 1), np.diff(adjacency.head_offsets)
        )
        by_edges = int(BY_EDGES * number)
        edges = self.random.integers(len(adjacency.tails), size=by_edges)
        ends = np.searchsorted(adjacency.tail_offsets, edges, side="right") - 1
        places = self.random.integers(len(heads), size=number // 2 - by_edges)
        places = np.concatenate([places, ends])
        with_tails = (heads[places], adjacency.relations[places].astype(np.int64))
        places = self.random.integers(len(heads), size=number)
        others = self._siblings(heads[places], adjacency.relations[places], adjacency)
        is_new = [
            not len(self.counts.adjacency.neighbours(h, r)) for h, r in zip(*others, strict=True)
        ]
        others = others[0][is_new][: number // 2], others[1][is_new][: number // 2]
        return self._learned(
            *(np.concatenate(both) for both in zip(with_tails, others, strict=True))
        )

    def _siblings(
        self, heads: NDArray[Any], relations: NDArray[Any], adjacency: Adjacency
    ) -> Pairs:
        """Return each head with a relation of another head of its relation."""
        offsets, by_relation, _ = adjacency.by_relation
        first, last = offsets[relations], offsets[relations + 1]
        siblings = by_relation[self.random.integers(first, last)]
        first, last = adjacency.head_offsets[siblings], adjacency.head_offsets[siblings + 1]
        found = adjacency.relations[self.random.integers(first, last)]
        return heads.astype(np.int64), found.astype(np.int64)

    def _learned(self, heads: NDArray[Any], relations: NDArray[Any]) -> Pairs:
        learned = (heads < self.limits[0]) & (relations < self.limits[1])
        return heads[learned].astype(np.int64), relations[learned].astype(np.int64)


def _blocks(heads: NDArray[np.int64], relations: NDArray[np.int64]) -> list[Pairs]:
    starts = range(0, len(heads), ROWS_AT_ONCE)
    return [(heads[s : s + ROWS_AT_ONCE], relations[s : s + ROWS_AT_ONCE]) for s in starts]


def _concatenate(pieces: Sequence[Tails]) -> Tails:
    names = ("rows", "ids", "features", "weights", "is_edge")
    return Tails(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in names))


def _fit_listwise(tails: Tails, num_rows: int, scale: Doubles) -> Doubles:
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


def _fit_logistic(tails: Tails, share: float) -> Doubles:
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
