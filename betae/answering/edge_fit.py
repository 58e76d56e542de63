"""Fit the probabilities of missing edges on validation edges: see `edges` for the model.

Regressions on rows of (head, relation), with validation edges among the unknown tails:

1. `_fit_listwise` fits s(t), which decides the order of a row: the softmax of each validation edge
   against the unknown tails of its row.
2. `_Rates` fits the log-odds of a tail given s(t), on rows with tails and on plausible rows
   without.
3. `_fit_bend` makes up for over-fitting. What is fitted on some edges is surer of these than of
   others, so 1 and 2 are also done with either half of the validation edges, and compared with the
   other half. Log-odds that turn out too large are bent.

Of a row, the best-scored unknown tails are used, and a weighted random sample of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from betae.answering.edges import (
    LOOP,
    ROW,
    RULES,
    TAIL,
    Counts,
    Doubles,
    EdgePredictors,
    EdgeProbabilities,
    EdgeWeights,
    Floats,
    bent,
    fullness,
    head_features,
    log_partition,
    mask_known,
    validation_share,
)
from betae.answering.sparse import ScoredRow, SparseProbabilities, edge_probabilities
from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.querysets.sample import random_stream
from betae.rules.rows import SparseRows, features_of
from betae.rules.rule_set import RuleSet

if TYPE_CHECKING:  # rules need no torch
    from betae.models.base import QueryModel

FIT_ROWS = 5000  # (head, relation) of validation edges for the order
FIT_ROWS_OF_RELATION = 100  # at most
RELATION_PRIOR = 1.0  # keeps the weights of a relation near the common ones
LOOP_PRIOR = 0.05  # keeps the weights of loops, of which there are few, near 0 or the common ones
RATE_PRIOR = 1.0  # keeps slope and shift of a relation near 1 and 0
BEND_PRIOR = 1.0  # keeps the slope from the knee on near 1
KNEES = (-4.0, -3.0, -2.0, -1.0, 0.0)  # log-odds, of which one is the knee
FIT_PAIRS = 4000  # (head, relation) for the probabilities, half of them with tails
SHARE_BY_EDGES = 0.3  # of these pairs, drawn in proportion to their number of edges
BEST_TAILS = 200  # of a row, by each model
SAMPLED_TAILS = 100  # of a row, representing all others
ROWS_PER_FIT_BATCH = 256
SCORES_PER_BATCH = 2**25  # fewer rows for many entities
ROWS_PER_PART = 64

HeadsRelations = tuple[NDArray[np.int64], NDArray[np.int64]]


def fit_edges(
    models: Sequence[QueryModel],
    graph: KnowledgeGraph,
    in_parts: bool = False,
    rules: RuleSet | None = None,
) -> EdgeWeights:
    """Fit the weights of models, rules or both on the validation edges of their graph.

    `in_parts` is for answers by indexes: a row then has the tails that the models propose and a
    sample of the others, and the embedding of whole questions, which needs all entities, is left
    out.
    """
    if not len(graph.written_ids["valid"]):
        raise InvalidArgument(
            "The probabilities of edges are fitted on validation edges, and the graph has none: "
            "ingest it with --valid 0.05, say."
        )
    weights = _Fit(models, graph, in_parts, rules).fit()
    if not models:
        return weights
    from betae.answering.whole import fit_scale  # imports torch

    return replace(
        weights,
        whole=None if in_parts else fit_scale(models[0], graph),
        alone=_Fit((), graph, False, rules).fit() if rules and not in_parts else None,
    )


@dataclass(frozen=True)
class _Tails:
    """Unknown tails of some rows, flat: the best and a sample of the others."""

    rows: NDArray[np.int64]  # index of the row of each tail, ascending
    features: Doubles  # (num_tails, num_features)
    weights: Doubles  # number of entities that each tail represents
    halves: NDArray[np.int8]  # of the validation edges, 1 or 2; 0 if the tail is not one

    @property
    def is_edge(self) -> NDArray[np.bool_]:
        return self.halves > 0

    @classmethod
    def concatenate(cls, pieces: Sequence[_Tails]) -> _Tails:
        columns = zip(*(vars(piece).values() for piece in pieces), strict=True)
        return cls(*map(np.concatenate, columns))

    def of_rows(self, is_chosen: NDArray[np.bool_]) -> tuple[_Tails, int]:
        """Return the tails of some rows, and the number of these rows."""
        of_rows = self.where(is_chosen[self.rows])
        rows = (np.cumsum(is_chosen) - 1)[of_rows.rows]
        return replace(of_rows, rows=rows), int(is_chosen.sum())

    def where(self, is_kept: NDArray[np.bool_]) -> _Tails:
        """Return some of the tails."""
        return _Tails(*(column[is_kept] for column in vars(self).values()))


class _Fit:
    """The two fits, and how their rows are chosen and scored."""

    def __init__(
        self,
        models: Sequence[QueryModel],
        graph: KnowledgeGraph,
        in_parts: bool,
        rules: RuleSet | None,
    ):
        self.models, self.rules, self.graph, self.in_parts = models, rules, graph, in_parts
        self.random = random_stream(0, "fitting edges")
        self.train, self.with_valid = graph.adjacency("train"), graph.adjacency("train+valid")
        names = [model.name for model in models]
        of_rules = dict.fromkeys(RULES, 1.0) if rules else {}
        self.unfitted = EdgeWeights(
            dict.fromkeys(names, 1.0), dict.fromkeys(TAIL, 0.0), {}, rules=of_rules
        )
        limits = EdgePredictors(models, self.unfitted, rules=rules)
        self.num_entities = min(limits.num_entities, graph.num_entities)
        self.num_relations = limits.num_relations

    def fit(self) -> EdgeWeights:
        """Fit the order in a row, then the probabilities."""
        order, *of_halves = self.fit_orders()
        return self.fit_probabilities(order, of_halves)

    def _batches(
        self, heads: NDArray[np.int64], relations: NDArray[np.int64], weights: EdgeWeights
    ) -> Iterator[tuple[EdgeProbabilities, HeadsRelations]]:
        """Yield the pairs in batches, each with the probabilities of its rows.

        In parts, these are of the entities of a part, and the heads are local ids.
        """
        predictors = EdgePredictors(self.models, weights, rules=self.rules)
        if not self.in_parts:
            probabilities = edge_probabilities(predictors, Counts(self.train))
            size = max(1, min(ROWS_PER_FIT_BATCH, SCORES_PER_BATCH // max(1, self.num_entities)))
            for first in range(0, len(heads), size):
                rows = slice(first, first + size)
                yield probabilities, (heads[rows], relations[rows])
            return
        from betae.answering.by_parts import LargeGraph, propose_tails  # imports torch

        large = LargeGraph(self.graph, predictors, "train")
        proposed = [propose_tails(model, heads, relations) for model in self.models]
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

    def fit_orders(self) -> list[EdgeWeights]:
        """Fit s by all validation edges, by the first half of them, and by the second."""
        heads, relations = self._validation_pairs()
        pieces, done = [], 0
        for probabilities, pairs in self._batches(heads, relations, self.unfitted):
            scores = [list(map(_DenseRow, rows)) for rows in probabilities.by_predictor(*pairs)]
            by_rules = probabilities.by_rules(*pairs) if self.rules else None
            pieces.append(self._tails(probabilities, pairs, scores, done, by_rules))
            done += len(pairs[0])
        tails = _Tails.concatenate(pieces)
        if not tails.is_edge.any():
            raise InvalidArgument("All validation edges are training edges, too.")
        parts = [tails, *(tails.where(tails.halves != other) for other in (2, 1))]
        return [self._order(part, relations) for part in parts]

    def _order(self, tails: _Tails, relations: NDArray[np.int64]) -> EdgeWeights:
        """Fit s: each validation edge against the unknown tails of its row."""
        scale = tails.features.std(axis=0)
        scale[scale < 1e-6] = 1.0  # of a feature that is the same everywhere
        found = _fit_listwise(tails, len(relations), scale)
        by_relation = {
            str(relation): _fit_listwise(*tails.of_rows(relations == relation), scale, found)
            for relation in np.unique(relations).tolist()
        }
        names = [*self.unfitted.predictors, *self.unfitted.rules, *TAIL]
        fitted = dict(zip(names, found.tolist(), strict=True))
        return EdgeWeights(
            {name: fitted[name] for name in self.unfitted.predictors},
            {name: fitted[name] for name in TAIL},
            dict.fromkeys(ROW, 0.0),
            rules={name: fitted[name] for name in self.unfitted.rules},
            by_relation={relation: own.tolist() for relation, own in by_relation.items()},
        )

    def _tails(
        self,
        probabilities: EdgeProbabilities,
        pairs: HeadsRelations,
        scores: Sequence[Sequence[_RowScores]],
        first_row: int,
        by_rules: SparseRows | None = None,
    ) -> _Tails:
        """Choose tails of a batch of rows; their features are the scores, RULES and TAIL."""
        chosen: list[_Tails] = []
        counts, all_ids = probabilities.counts, probabilities.ids
        for row, (head, relation) in enumerate(zip(*(ids.tolist() for ids in pairs), strict=True)):
            known = counts.adjacency.neighbours(head, relation)
            held_out = np.searchsorted(all_ids, self._held_out(int(all_ids[head]), relation))
            of_row = [each[row] for each in scores]
            num_best = BEST_TAILS + len(known)
            best: list[NDArray[Any]] = [each.largest(num_best) for each in of_row]
            if by_rules is not None:
                reached, said = by_rules.row(row)
                best.append(reached[_largest(said.sum(axis=1), num_best)])
            if not counts.has_loops(relation):  # then a loop is out of the question
                known = np.union1d(known, [head])
            ids, weights = self._choose(probabilities, best, known, held_out)
            num_heads = counts.num_tails(ids, np.full(len(ids), relation ^ 1))
            ends = fullness(num_heads, counts.mean(relation ^ 1))
            is_loop = ids == head
            columns = [each.at(ids) for each in of_row]
            if by_rules is not None:
                columns += [*features_of(_look_up(reached, said, ids)).T]
            columns += [*ends.T, is_loop, is_loop * counts.log_loops(relation)]
            rows = np.full(len(ids), first_row + row)
            features: Doubles = np.stack(columns, axis=1).astype(np.float64)
            halves = np.isin(ids, held_out) * _halves(all_ids[head], all_ids[ids])
            chosen.append(_Tails(rows, features, weights, halves.astype(np.int8)))
        return _Tails.concatenate(chosen)

    def _choose(
        self,
        probabilities: EdgeProbabilities,
        best_of_each: list[NDArray[Any]],
        known: NDArray[Any],
        held_out: NDArray[Any],
    ) -> tuple[NDArray[np.int64], Doubles]:
        """Choose unknown tails of a row: the best by each score, those held out, a sample.

        Return their ids, and the number of entities that each represents.
        """
        best = np.setdiff1d(np.concatenate([held_out, *best_of_each]), known)
        others = probabilities.sample(self.random, SAMPLED_TAILS)
        others = np.setdiff1d(others, np.union1d(best, known))
        num_others = self.num_entities - len(best) - len(known)
        represents = max(1.0, num_others / max(1, len(others)))
        weights = np.concatenate([np.ones(len(best)), np.full(len(others), represents)])
        return np.concatenate([best, others]).astype(np.int64), weights

    # ---- how sure -------------------------------------------------------------------------------

    def fit_probabilities(
        self, order: EdgeWeights, of_halves: Sequence[EdgeWeights]
    ) -> EdgeWeights:
        """Fit p, given s, on rows with tails and on plausible rows without."""
        heads, relations = self._plausible_pairs(FIT_PAIRS)
        share = validation_share(self.graph)
        tails = self._tails_of_rows(heads, relations, order)
        rates = _Rates.fit(tails, relations[tails.rows], Shares(0, share))
        # The same by one half of the edges alone, compared with the other half.
        compared, logits = [], []
        for half, of_half in enumerate(of_halves, 1):
            some = slice(half - 1, None, 2)  # of the rows, for speed
            tails = self._tails_of_rows(heads[some], relations[some], of_half)
            only = replace(tails, halves=tails.halves * (tails.halves == half))
            by_half = _Rates.fit(only, relations[some][tails.rows], Shares(0, share / 2))
            others = tails.where(tails.halves != half)
            compared.append(others)
            logits.append(by_half.logits(others, relations[some][others.rows]))
        tails, shares = _Tails.concatenate(compared), Shares(share / 2, share / 2)
        bend = _fit_bend(np.concatenate(logits), tails.weights, tails.is_edge, shares)
        row = dict(zip(ROW, rates.row.tolist(), strict=True))
        return replace(order, row=row, rates=rates.by_relation, bend=bend)

    def _tails_of_rows(
        self, heads: NDArray[np.int64], relations: NDArray[np.int64], order: EdgeWeights
    ) -> _Tails:
        """Choose tails of rows; their features are ROW."""
        pieces, done = [], 0
        for probabilities, pairs in self._batches(heads, relations, order):
            scores, partition = _all_scores(probabilities, pairs)
            of_rows = np.column_stack([partition, head_features(probabilities.counts, *pairs)])
            tails = self._tails(probabilities, pairs, scores, 0)
            features = np.column_stack([tails.features[:, :1], of_rows[tails.rows]])
            pieces.append(replace(tails, rows=tails.rows + done, features=features))
            done += len(pairs[0])
        return _Tails.concatenate(pieces)

    # ---- which rows -----------------------------------------------------------------------------

    def _validation_pairs(self) -> HeadsRelations:
        """Return the (head, relation) of validation edges, some of each directed relation."""
        heads, relations, tails = self.graph.written_ids["valid"].astype(np.int64).T
        ends, directed = np.concatenate([heads, tails]), np.concatenate([relations, relations])
        directed = 2 * directed + np.repeat([0, 1], len(heads))
        order = self.random.permutation(len(ends))
        pairs = np.unique(np.column_stack([directed, ends])[order], axis=0, return_index=True)[1]
        order = order[np.sort(pairs)]  # distinct, in random order
        by_relation = order[np.argsort(directed[order], kind="stable")]
        starts = np.searchsorted(directed[by_relation], directed[by_relation])
        turn = np.arange(len(by_relation)) - starts  # the first of each relation, then the second
        chosen = by_relation[turn < FIT_ROWS_OF_RELATION]
        turn = turn[turn < FIT_ROWS_OF_RELATION]
        chosen = chosen[np.argsort(turn, kind="stable")][:FIT_ROWS]
        return self._learned(ends[chosen], directed[chosen])

    def _plausible_pairs(self, count: int) -> HeadsRelations:
        """Return (head, relation) pairs, half of them with tails, half without training tails.

        Of the first half, some are those of random edges, since questions often pass entities with
        many. The second half are heads with a relation of a sibling, an entity that shares another
        relation with them: pairs that a question might ask for.
        """
        adjacency = self.train
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
        adjacency = self.train
        offsets, by_relation, _ = adjacency.by_relation
        first, last = offsets[relations], offsets[relations + 1]
        siblings = by_relation[self.random.integers(first, last)]
        first, last = adjacency.head_offsets[siblings], adjacency.head_offsets[siblings + 1]
        found = adjacency.relations[self.random.integers(first, last)]
        return heads.astype(np.int64), found.astype(np.int64)

    def _learned(self, heads: NDArray[Any], relations: NDArray[Any]) -> HeadsRelations:
        learned = (heads < self.num_entities) & (relations < self.num_relations)
        return heads[learned].astype(np.int64), relations[learned].astype(np.int64)


# ---- scores of a row ----------------------------------------------------------------------------


class _RowScores(Protocol):
    """Scores of all tails of a row."""

    def largest(self, count: int) -> NDArray[Any]:
        """Return the tails of the largest scores, known ones may be missing."""
        ...

    def at(self, ids: NDArray[np.int64]) -> Floats:
        """Return the scores of some tails."""
        ...


@dataclass(frozen=True)
class _DenseRow:
    scores: Floats

    def largest(self, count: int) -> NDArray[Any]:
        return _largest(self.scores, count)

    def at(self, ids: NDArray[np.int64]) -> Floats:
        return self.scores[ids]


@dataclass(frozen=True)
class _SparseRow:
    """Of the tails that nothing speaks for, only the best by fullness are among the largest."""

    probabilities: SparseProbabilities
    row: ScoredRow
    relation: int
    best_others: NDArray[Any]

    def largest(self, count: int) -> NDArray[Any]:
        unknown = self.row.tails[~self.row.is_known]
        ids = np.union1d(unknown, np.setdiff1d(self.best_others, self.row.tails))
        return ids[_largest(self.at(ids), count)]

    def at(self, ids: NDArray[np.int64]) -> Floats:
        return self.probabilities.scores_at(self.row, self.relation, ids)


def _all_scores(
    probabilities: EdgeProbabilities, pairs: HeadsRelations
) -> tuple[Sequence[Sequence[_RowScores]], Floats]:
    """Return s of all tails of some rows, as the only predictor, and the log-partitions."""
    if not isinstance(probabilities, SparseProbabilities):
        scores = probabilities.scores(*pairs)
        mask_known(scores, probabilities.counts.tails(*pairs))
        return [list(map(_DenseRow, scores))], log_partition(scores, probabilities.log_weights)
    scored, best_others = probabilities.scored_rows(*pairs), {}
    for relation in np.unique(pairs[1]).tolist():
        classes = probabilities.classes(relation)
        of_tails = classes.scores[classes.of_tails]
        best_others[relation] = classes.tails[_largest(of_tails, 2 * BEST_TAILS)]
    rows = [
        _SparseRow(probabilities, row, relation, best_others[relation])
        for row, relation in zip(scored, pairs[1].tolist(), strict=True)
    ]
    return [rows], np.array([row.log_partition for row in scored], dtype=np.float32)


def _largest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the indices of the largest values, in no order."""
    if count >= len(values):
        return np.arange(len(values))
    return np.argpartition(-values, count)[:count]


def _look_up(ids: NDArray[Any], values: Floats, wanted: NDArray[np.int64]) -> Floats:
    """Return the values of the wanted ids, zero for those that are not among `ids`, ascending."""
    found = np.zeros((len(wanted), values.shape[1]), dtype=np.float32)
    if len(ids):
        places = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        is_there = ids[places] == wanted
        found[is_there] = values[places[is_there]]
    return found


# ---- the regressions ----------------------------------------------------------------------------


class Shares(NamedTuple):
    """Of the held-out edges, the share left out, since s was fitted on them, and the share seen."""

    used: float
    seen: float


def _fit_listwise(
    tails: _Tails, num_rows: int, scale: Doubles, common: Doubles | None = None
) -> Doubles:
    """Maximise the mean log-softmax of the edges in their rows; return the weights.

    They are kept near zero, or near the `common` ones the more, the fewer edges there are.
    """
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
        away = weights - start
        return loss / count + float(prior @ away**2), gradient / count + 2 * prior * away

    count = max(1, is_edge.sum())
    start = np.zeros(features.shape[1]) if common is None else common * scale
    prior = np.full(len(start), 1e-4 if common is None else RELATION_PRIOR / count)
    prior[-len(LOOP) :] += LOOP_PRIOR / scale[-len(LOOP) :] ** 2 / count
    options = {"maxiter": 200 if common is None else 50}
    found = minimize(cost, start, jac=True, method="L-BFGS-B", options=options).x
    return np.asarray(found / scale)


def _fit_logistic(tails: _Tails, shares: Shares) -> Doubles:
    """Fit a logistic regression of being held out, when only some of the held-out edges are seen.

    The weight of the first feature, the score, is bounded to be positive.
    """
    from scipy.optimize import minimize

    scale = tails.features.std(axis=0)
    scale[scale == 0] = 1.0
    features, weights, is_edge = tails.features / scale, tails.weights, tails.is_edge

    def cost(found: Doubles) -> tuple[float, Doubles]:
        loss, slopes = _loss_of_logits(features @ found, weights, is_edge, shares)
        count = is_edge.sum() + 1
        gradient = slopes @ features / count
        return loss / count + 1e-4 * found @ found, gradient + 2e-4 * found

    bounds = [(1e-3, None)] + [(None, None)] * (features.shape[1] - 1)
    start = np.zeros(features.shape[1])
    start[0] = 0.1
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.asarray(found / scale)


def _fit_rate(
    logits: Doubles, weights: Doubles, is_edge: NDArray[np.bool_], shares: Shares
) -> tuple[float, float]:
    """Fit the slope and the shift of the log-odds of one relation."""
    from scipy.optimize import minimize

    def cost(rate: Doubles) -> tuple[float, Doubles]:
        loss, slopes = _loss_of_logits(rate[0] * logits + rate[1], weights, is_edge, shares)
        away = rate - [1.0, 0.0]
        gradient = np.array([slopes @ logits, slopes.sum()])
        return loss + RATE_PRIOR * float(away @ away), gradient + 2 * RATE_PRIOR * away

    bounds = [(0.2, 5.0), (None, None)]
    slope, shift = minimize(cost, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=bounds).x
    return float(slope), float(shift)


@dataclass(frozen=True)
class _Rates:
    """Log-odds before the bend: by the features ROW, then a slope and shift by relation."""

    row: Doubles
    by_relation: dict[str, tuple[float, float]]

    @classmethod
    def fit(cls, tails: _Tails, relations: NDArray[np.int64], shares: Shares) -> _Rates:
        """Fit them to tails, each of one of the relations."""
        rates = cls(_fit_logistic(tails, shares), {})
        logits = rates.logits(tails, relations)
        for relation in np.unique(relations).tolist():
            of = relations == relation
            columns = logits[of], tails.weights[of], tails.is_edge[of]
            rates.by_relation[str(relation)] = _fit_rate(*columns, shares)
        return rates

    def logits(self, tails: _Tails, relations: NDArray[np.int64]) -> Doubles:
        """Return the log-odds of tails."""
        logits: Doubles = tails.features @ self.row
        for relation, (slope, shift) in self.by_relation.items():
            of = relations == int(relation)
            logits[of] = slope * logits[of] + shift
        return logits


def _fit_bend(
    logits: Doubles, weights: Doubles, is_edge: NDArray[np.bool_], shares: Shares
) -> tuple[float, float]:
    """Fit a knee, and the slope from there on, at most 1, of all log-odds."""
    from scipy.optimize import minimize_scalar

    def loss(slope: float, knee: float) -> float:
        of_tails, _ = _loss_of_logits(bent(logits, knee, slope), weights, is_edge, shares)
        return of_tails + BEND_PRIOR * (1 - slope) ** 2

    found = []
    for knee in KNEES:
        best = minimize_scalar(loss, (0.05, 1.0), (0.05, 1.0), args=(knee,), method="bounded")
        found.append((best.fun, knee, float(best.x)))
    _, knee, slope = min(found)
    return knee, slope


def _loss_of_logits(
    logits: Doubles, weights: Doubles, is_edge: NDArray[np.bool_], shares: Shares
) -> tuple[float, Doubles]:
    """Return the logistic loss when some of the held-out edges are seen, and its derivative.

    The likelihood of a tail that is not left out is p / (1 - used p) if it is seen to be an edge,
    else (1 - used p - seen p) / (1 - used p).
    """
    from scipy.special import expit

    # ln(1 - share p) = ln(1 + (1 - share) exp z) - ln(1 + exp z), for any z
    def log_rest(share: float) -> float:
        return math.log(1 - share) if share < 1 else -math.inf

    left, unseen = log_rest(shares.used), log_rest(shares.used + shares.seen)
    of_tails = np.where(is_edge, logits, np.logaddexp(0, logits + unseen))
    loss = float(weights @ (np.logaddexp(0, logits + left) - of_tails))
    slopes = expit(logits + left) - np.where(is_edge, 1, expit(logits + unseen))
    return loss, weights * slopes


def _halves(heads: NDArray[Any], tails: NDArray[Any]) -> NDArray[np.int8]:
    """Divide edges into two halves, 1 and 2, the same for both directions of an edge."""
    mixed = (heads.astype(np.uint64) + 1) * (tails.astype(np.uint64) + 1)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    halves: NDArray[np.int8] = (1 + (mixed >> np.uint64(63))).astype(np.int8)
    return halves
