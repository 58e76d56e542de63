"""Probabilities of missing edges, by rules, by the scores of models, and by how full both ends are.

For a head h, a relation r and every entity t that is not a known tail,

    s(t) = sum_k w_k score_k(h, r, t) + q . rules(h, r, t)
           + v . fullness(t, inverse of r) + u . loop(r) [t = h]
    l(t) = a s(t) + b ln sum_t' exp s(t') + c . fullness(h, r) + d
    p(t) = logistic(bent(slope_r l(t) + shift_r))

A score is the negated distance of one of the models; there may be none. `rules` are the features
of `betae.rules.rows`, zero for a tail that no rule leads to. The fullness of an end compares its
number of edges of the relation with the mean over entities that have any: a country with a capital
will not get another. A loop, t = h, is as likely as the relation's known edges say, and out of the
question (`NO_LOOP`) if none of them is one.

`edge_fit` fits the weights: w, q, v and u listwise, since they decide the order of a row, the
others, which keep that order, by logistic regression. Those of s are fitted for each relation, near
the common ones, and so are slope and shift, near 1 and 0. Where the fit is too sure of edges that
it has not seen, log-odds are `bent`: they grow more slowly from a knee on.
The sum over t' is over the tails that were unknown in the fit: when more edges are known, the tails
that are left do not gain by it. A further predictor is one more score in s(t). Entities that were
added after training have no scores: their edges are predicted by rules alone, with weights of their
own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae.answering.results import MAX_PREDICTED
from betae.exact.kernels import AdjacencyArrays, find_pair
from betae.graph.edges import Adjacency, Edges, Ids, Ragged
from betae.graph.graph import KnowledgeGraph
from betae.rules.rows import FEATURES, RuleRows, SparseRows, features_of
from betae.rules.rule_set import RuleSet

if TYPE_CHECKING:  # rules need no torch
    from betae.answering.scores import ModelScores
    from betae.models.base import QueryModel
    from betae.search import Index

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

FULLNESS = ("ln(1 + n)", "n > 0", "n > 0, ln mean")  # features of an end: see `fullness`
LOOP = ("t = h", "t = h, ln share")  # features of a loop
TAIL = (*FULLNESS, *LOOP)  # features of a tail, in s
OF_HEAD = (*FULLNESS, "ln mean", "1")  # features of a (head, relation): see `head_features`
ROW = ("score", "ln sum exp(score)", *OF_HEAD)  # features of p

RULES = FEATURES  # features of a tail by rules, in s

NO_LOOP = -20.0  # in s, for a loop of a relation that has none
UNLIMITED = 2**31 - 1
COUNT_BATCH = 2**22  # (head, relation) pairs that are counted together


@dataclass(frozen=True)
class EdgeWeights:
    """The fitted weights of the features, by name."""

    predictors: dict[str, float]  # by the name of the model; none, by rules alone
    tail: dict[str, float]  # TAIL; the fullness is that of the tail, by the inverse relation
    row: dict[str, float]  # ROW; the fullness is that of the head
    whole: float | None = None  # scale of distances from whole questions: see `completed`
    rules: dict[str, float] = field(default_factory=dict)  # RULES, or none without rules
    alone: EdgeWeights | None = None  # of rules without the models, for entities added later
    by_relation: dict[str, list[float]] = field(default_factory=dict)  # of s, where they differ
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)  # slope and shift
    bend: tuple[float, float] = (0.0, 1.0)  # the knee of log-odds, and their slope from there on

    @property
    def in_s(self) -> dict[str, float]:
        """The common weights of s: predictors, rules, TAIL."""
        return {**self.predictors, **self.rules, **self.tail}

    def of_relation(self, relation: int) -> dict[str, float]:
        """Return the weights of s for a directed relation."""
        found = self.by_relation.get(str(relation))
        return dict(zip(self.in_s, found, strict=True)) if found else self.in_s

    @cached_property
    def _rows(self) -> tuple[NDArray[np.int64], Floats]:
        """The relations with weights of their own, ascending, and all weights, the common last."""
        relations = np.array(sorted(map(int, self.by_relation)), dtype=np.int64)
        rows = [self.by_relation[str(relation)] for relation in relations.tolist()]
        return relations, np.array([*rows, [*self.in_s.values()]], dtype=np.float32)

    def rate_of(self, relation: int) -> tuple[float, float]:
        """Return the slope and the shift of a relation."""
        slope, shift = self.rates.get(str(relation), (1.0, 0.0))
        return slope, shift

    def of_loop(self, relation: int, counts: Counts) -> float:
        """Return the term of s for the tail that is the head."""
        if not counts.has_loops(relation):
            return NO_LOOP
        weights = self.of_relation(relation)
        return weights["t = h"] + weights["t = h, ln share"] * counts.log_loops(relation)

    def of_relations(self, relations: NDArray[Any]) -> Floats:
        """Return the weights of s for each of many relations, (n, len(in_s))."""
        own, weights = self._rows
        places = np.searchsorted(own, relations)
        has_own = np.append(own, -1)[places] == relations
        return weights[np.where(has_own, places, len(own))]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EdgeWeights:
        """Check and build the weights; raises ValueError or TypeError if they are not complete."""
        weights = cls(**content)
        if weights.alone is not None:
            weights = replace(weights, alone=cls.from_json(cast(Any, weights.alone)))
        if (
            tuple(weights.tail) != TAIL
            or tuple(weights.row) != ROW
            or tuple(weights.rules) not in ((), RULES)
            or not (weights.predictors or weights.rules)
        ):
            raise ValueError("it does not have the weights that are needed")
        values = [*weights.predictors.values(), *weights.tail.values(), *weights.row.values()]
        values += [*weights.rules.values(), 0.0 if weights.whole is None else weights.whole]
        for relation, found in weights.by_relation.items():
            if not relation.isdecimal() or len(found) != len(weights.in_s):
                raise ValueError("it does not have the weights that are needed")
            values += found
        for relation, rate in weights.rates.items():
            if not relation.isdecimal() or len(rate) != 2 or rate[0] <= 0:
                raise ValueError("it does not have the weights that are needed")
            values += rate
        knee, slope = weights.bend
        if not 0 < slope <= 1:
            raise ValueError("it does not have the weights that are needed")
        if not np.isfinite(np.array([*values, knee], dtype=float)).all():
            raise ValueError("a weight is not a finite number")
        return weights


@dataclass(frozen=True)
class EdgePredictors:
    """The models and rules that predict edges, and how they become probabilities."""

    models: Sequence[QueryModel]
    weights: EdgeWeights
    log_odds: float = 0.0  # added for every missing edge: see `log_odds_of_missing`
    indexes: Sequence[Index] = ()  # of the models' entities, for graphs completed in parts
    rules: RuleSet | None = None

    @property
    def num_entities(self) -> int:
        """The number of entities that all models have learned; without models, unlimited."""
        return min((model.num_entities for model in self.models), default=UNLIMITED)

    @property
    def num_relations(self) -> int:
        """The number of directed relations that all predictors have learned."""
        limits = [model.num_relations for model in self.models]
        return min([*limits, *([self.rules.num_relations] if self.rules else [])])

    def rules_alone(self) -> EdgePredictors | None:
        """Return the rules as the only predictor, for entities that the models do not know."""
        if self.rules is None or self.weights.alone is None or not self.models:
            return None
        return EdgePredictors((), self.weights.alone, self.log_odds, rules=self.rules)


def validation_share(graph: KnowledgeGraph) -> float:
    """Return the share of validation edges among the held-out edges."""
    valid, test = len(graph.written_ids["valid"]), len(graph.written_ids["test"])
    return valid / max(1, valid + test)


def log_odds_of_missing(graph: KnowledgeGraph, edges: Edges) -> float:
    """Return what to add to fitted log-odds when these edges are known.

    The fit gives the probability that an edge outside training was held out. Once validation edges
    are known too, only test edges are missing. With all edges known, the number of missing ones is
    unknown, and taken to be that of the held-out ones.
    """
    share = validation_share(graph)
    return math.log(1 - share) if edges == "train+valid" and share < 1 else 0.0


# ---- features -----------------------------------------------------------------------------------


def fullness(num_edges: NDArray[Any], mean: float | NDArray[np.float64]) -> Floats:
    """Return the features FULLNESS of ends with `num_edges` of a relation, (n, 3).

    `mean` is the mean over entities with at least one, for all ends or for each.
    """
    has_any = (num_edges > 0).astype(np.float32)
    columns = [np.log1p(num_edges), has_any, has_any * np.log(mean)]
    return np.stack(columns, axis=-1).astype(np.float32)


def head_features(counts: Counts, heads: NDArray[Any], relations: NDArray[Any]) -> Floats:
    """Return the features OF_HEAD of each (head, relation), (n, 5).

    Where a relation has become fuller since the weights were fitted, heads count as if it had not:
    that more of their edges are known does not mean that more are missing.
    """
    means = np.array([counts.fitted_mean(relation) for relation in relations.tolist()])
    now = np.array([counts.mean(relation) for relation in relations.tolist()])
    ends = fullness(counts.num_tails(heads, relations) * (means / now), means)
    columns = [ends, np.log(means)[:, None], np.ones((len(heads), 1))]
    return np.concatenate(columns, axis=1).astype(np.float32)


def weighted(features: Floats, names: Sequence[str], weights: Mapping[str, float]) -> Floats:
    """Return the weighted sums of named features: (n, num_names) -> (n,).

    Not by BLAS, which raises a spurious invalid-value flag here on some processors.
    """
    values = np.array([weights[name] for name in names], dtype=np.float32)
    sums: Floats = np.einsum("ij,j->i", features, values)
    return sums


def known_cells(known: Ragged, num_learned: int) -> tuple[NDArray[np.int64], Ids]:
    """Return the rows and columns of known tails in a table of scores."""
    rows, tails = np.repeat(np.arange(len(known)), known.lengths), known.values
    is_learned = tails < num_learned
    return rows[is_learned], tails[is_learned]


def mask_known(scores: Floats, known: Ragged) -> None:
    """Set the scores of known tails to -inf, in place."""
    scores[known_cells(known, scores.shape[1])] = -math.inf


def log_partition(scores: Floats, log_weights: Floats | None = None) -> Floats:
    """Return ln sum exp(s) of each row, (n,); with weights, an entity counts so many times."""
    weighed = scores if log_weights is None else scores + log_weights
    largest = weighed.max(axis=1, initial=-math.inf, keepdims=True)
    largest[np.isneginf(largest)] = 0  # of a row without unknown tails
    shares = weighed - largest
    np.exp(shares, out=shares)
    with np.errstate(divide="ignore"):
        found: Floats = np.log(shares.sum(axis=1)) + largest[:, 0]
    return found


class Counts:
    """The known edges: tails by head and relation, and their counts.

    The weights were `fitted` with fewer known edges, if these are given.
    """

    def __init__(self, adjacency: Adjacency, fitted: Adjacency | None = None):
        self.adjacency = self.all_edges = adjacency  # of the whole graph, if this is a part of one
        self.fitted = self.all_fitted = fitted or adjacency
        self.totals = self.fitted_totals = _count_by_relation(adjacency)
        if self.fitted is not adjacency:
            self.fitted_totals = _count_by_relation(self.fitted)

    def later_tails(self, head: int, relation: int) -> NDArray[np.int32]:
        """Return the known tails that were unknown when the weights were fitted."""
        if self.fitted is self.adjacency:
            return np.empty(0, dtype=np.int32)
        before = self.fitted.neighbours(head, relation)
        return np.setdiff1d(self.adjacency.neighbours(head, relation), before)

    def gain_if_missing(
        self, tails: NDArray[Any], relation: int, weights: Mapping[str, float]
    ) -> Floats:
        """Return how much s of known tails would gain if their edges were missing, by fullness."""
        numbers = self.num_tails(tails, np.full(len(tails), relation ^ 1))
        mean = self.mean(relation ^ 1)
        ends = fullness(numbers - 1, mean) - fullness(numbers, mean)
        return weighted(ends, FULLNESS, weights)

    def tails(self, heads: NDArray[Any], relations: NDArray[Any]) -> Ragged:
        """Return the known tails of each (head, relation)."""
        starts, lengths = _tail_ranges(self.adjacency, heads, relations)
        return Ragged.from_lengths(lengths, self.adjacency.tails[flat_ranges(starts, lengths)])

    def num_tails(self, heads: NDArray[Any], relations: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of known tails of each (head, relation)."""
        found = np.empty(len(heads), dtype=np.int64)
        _count_tails(self._arrays, heads.astype(np.int64), relations.astype(np.int64), found)
        return found

    @cached_property
    def _arrays(self) -> AdjacencyArrays:
        return AdjacencyArrays.of(self.adjacency)

    def heads(self, relation: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the heads of a relation, and their numbers of tails."""
        offsets, heads, pairs = self.adjacency.by_relation
        if relation + 1 >= len(offsets):
            return heads[:0], pairs[:0]
        chosen = slice(offsets[relation], offsets[relation + 1])
        starts = self.adjacency.tail_offsets
        return heads[chosen], starts[pairs[chosen] + 1] - starts[pairs[chosen]]

    def mean(self, relation: int) -> float:
        """Return the mean number of tails over heads with at least one; 1 if there are none."""
        return _mean(self.totals, relation) or 1.0

    def fitted_mean(self, relation: int) -> float:
        """Return what the mean was when the weights were fitted; of a later relation, the mean."""
        return _mean(self.fitted_totals, relation) or self.mean(relation)

    def has_loops(self, relation: int) -> bool:
        """Whether a known edge of the relation is a loop."""
        return _totals_of(self.totals, relation)[2] > 0

    def log_loops(self, relation: int) -> float:
        """Return ln of the share of a relation's heads with a loop, by add-half smoothing."""
        num_heads, _, num_loops = _totals_of(self.totals, relation)
        return math.log((num_loops + 0.5) / (num_heads + 1))


def _mean(totals: NDArray[np.int64], relation: int) -> float:
    """Return the mean number of tails over heads with at least one; 0 if there are none."""
    num_heads, num_edges, _ = _totals_of(totals, relation)
    return num_edges / num_heads if num_heads else 0.0


def _totals_of(totals: NDArray[np.int64], relation: int) -> list[int]:
    if relation >= totals.shape[1]:  # without known edges
        return [0, 0, 0]
    found: list[int] = totals[:, relation].tolist()
    return found


@njit(nogil=True, cache=True)
def _count_tails(arrays, heads, relations, found):  # type: ignore[no-untyped-def]
    for i in range(len(heads)):
        pair = find_pair(arrays, heads[i], relations[i])
        found[i] = arrays.tail_offsets[pair + 1] - arrays.tail_offsets[pair] if pair >= 0 else 0


def _count_by_relation(adjacency: Adjacency) -> NDArray[np.int64]:
    """Count the heads, edges and loops of each relation, (3, num_relations)."""
    num_relations = int(adjacency.relations.max(initial=-1)) + 1
    totals = np.zeros((3, num_relations), dtype=np.int64)
    for start in range(0, len(adjacency.relations), COUNT_BATCH):
        end = min(start + COUNT_BATCH, len(adjacency.relations))
        offsets, relations = adjacency.tail_offsets[start : end + 1], adjacency.relations[start:end]
        lengths = np.diff(offsets)
        heads = np.searchsorted(adjacency.head_offsets, np.arange(start, end), side="right") - 1
        is_loop = np.repeat(heads, lengths) == adjacency.tails[offsets[0] : offsets[-1]]
        of_edges = np.repeat(relations, lengths)
        for row, values in enumerate((relations, of_edges, of_edges[is_loop])):
            totals[row] += np.bincount(values, minlength=num_relations)
    return totals


def _tail_ranges(
    adjacency: Adjacency, heads: NDArray[Any], relations: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where in `adjacency.tails` those of each (head, relation) start, and how many."""
    pairs, offsets = adjacency.pairs(heads, relations), adjacency.tail_offsets
    starts = offsets[np.maximum(pairs, 0)]
    return starts, np.where(pairs >= 0, offsets[pairs + 1] - starts, 0)


def flat_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate ranges of integers."""
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())


def as_triples(heads: NDArray[Any], relations: NDArray[Any], tails: NDArray[Any]) -> NDArray[Any]:
    """Return directed edges as triples in their written direction, (n, 3)."""
    is_inverse = relations % 2 == 1
    ends = np.where(is_inverse, tails, heads), np.where(is_inverse, heads, tails)
    return np.column_stack([ends[0], relations // 2, ends[1]])


# ---- probabilities ------------------------------------------------------------------------------


class EdgeProbabilities:
    """Probabilities of all edges of a (head, relation).

    Entities and relations that were added to the graph after training have known edges only. The
    entities of a part of a graph (see `by_parts`) are indices into `ids`, ascending; each counts in
    the log-partition as often as it `represents` others, itself included.
    """

    def __init__(
        self,
        predictors: EdgePredictors,
        counts: Counts,
        ids: NDArray[np.int64] | None = None,
        represents: NDArray[np.float64] | None = None,
    ):
        self.predictors, self.counts, self.weights = predictors, counts, predictors.weights
        self.num_relations = predictors.num_relations
        self.ids = np.arange(len(counts.adjacency.head_offsets) - 1) if ids is None else ids
        self.num_learned = int(np.searchsorted(self.ids, predictors.num_entities))
        self.model_scores: ModelScores | None = None
        if predictors.models:
            from betae.answering.scores import ModelScores  # imports torch

            learned = None if ids is None else ids[: self.num_learned]
            self.model_scores = ModelScores(predictors.models, self.num_learned, learned)
        self.rule_rows: RuleRows | None = None
        if predictors.rules:
            self.rule_rows = RuleRows(predictors.rules, counts.all_edges, counts.all_fitted)
        alone = predictors.rules_alone()
        is_needed = alone is not None and self.num_learned < len(self.ids)
        self.alone = EdgeProbabilities(alone, counts, ids) if alone and is_needed else None
        self.log_weights: Floats | None = None
        if represents is not None:
            self.log_weights = np.log(represents[: self.num_learned]).astype(np.float32)

    def sample(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw learned entities, of those that represent others; of all, if none does."""
        if self.log_weights is not None and (self.log_weights > 0).any():
            others = self.log_weights.nonzero()[0]
            return others[random.integers(len(others), size=count)]
        return random.integers(self.num_learned, size=count)

    def rows(self, heads: NDArray[Any], relations: NDArray[Any]) -> Floats:
        """Return the probabilities of all tails of each (head, relation), (n, num_entities).

        Known edges have probability 1.
        """
        known = self.counts.tails(heads, relations)
        rows = np.zeros((len(heads), len(self.ids)), dtype=np.float32)
        learned = np.flatnonzero((heads < self.num_learned) & (relations < self.num_relations))
        if len(learned):
            pairs = heads[learned], relations[learned]
            rows[learned, : self.num_learned] = to_probabilities(self.log_odds(*pairs))
        if self.alone is not None:
            by_rules = self.alone.rows(heads, relations)
            rows[:, self.num_learned :] = by_rules[:, self.num_learned :]
            is_new = heads >= self.num_learned
            rows[is_new] = by_rules[is_new]
        rows[np.repeat(np.arange(len(heads)), known.lengths), known.values] = 1.0
        return rows

    def log_odds(self, heads: NDArray[Any], relations: NDArray[Any]) -> Floats:
        """Return the log-odds of every learned tail as if it were not known, (n, num_learned)."""
        scores = self.scores(heads, relations)
        known = known_cells(self.counts.tails(heads, relations), self.num_learned)
        of_known, scores[known] = scores[known], -math.inf
        self._restore_later(scores, known, of_known, heads, relations)
        total = log_partition(scores, self.log_weights)
        total[np.isneginf(total)] = 0  # all tails are known
        scores[known] = of_known
        weights, features = self.weights.row, head_features(self.counts, heads, relations)
        terms = weighted(features, OF_HEAD, weights) + weights["ln sum exp(score)"] * total
        rates = [self.weights.rate_of(relation) for relation in relations.tolist()]
        slopes, shifts = np.array(rates, dtype=np.float32).reshape(-1, 2).T
        scores *= np.float32(weights["score"]) * slopes[:, None]
        scores += (slopes * terms + shifts)[:, None]
        scores = bent(scores, *self.weights.bend)
        scores += np.float32(self.predictors.log_odds)
        return scores

    def _restore_later(
        self,
        scores: Floats,
        known: tuple[NDArray[np.int64], Ids],
        of_known: Floats,
        heads: NDArray[Any],
        relations: NDArray[Any],
    ) -> None:
        """Give the tails that became known later the scores that they had before, in place."""
        for row, (head, relation) in enumerate(
            zip(heads.tolist(), relations.tolist(), strict=True)
        ):
            later = self.counts.later_tails(head, relation)
            later = later[later < self.num_learned]
            if len(later):
                mine = slice(*np.searchsorted(known[0], [row, row + 1]))
                before = of_known[mine][np.isin(known[1][mine], later)]
                of_relation = self.weights.of_relation(relation)
                gain = self.counts.gain_if_missing(later, relation, of_relation)
                scores[row, later] = before + gain

    def slope_at(self, relation: int, log_odds: float) -> float:
        """Return how much the log-odds of an edge, where they are so large, grow with s."""
        knee, slope = self.weights.bend
        is_bent = log_odds - self.predictors.log_odds > knee
        factor = self.weights.row["score"] * self.weights.rate_of(relation)[0]
        return factor * slope if is_bent else factor

    def log_odds_of(self, head: int, relation: int, tail: int) -> float:
        """Return the log-odds of an edge as if it were not known."""
        return float(self.log_odds(np.array([head]), np.array([relation]))[0, tail])

    def edges_above(
        self, heads: NDArray[Any], relations: NDArray[Any], above: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Return rows, tails and probabilities of the missing edges more probable than `above`."""
        rows = self.rows(heads, relations)
        indices, tails = np.nonzero((rows > above) & (rows < 1))
        return indices, tails, rows[indices, tails]

    def scores(self, heads: NDArray[Any], relations: NDArray[Any]) -> Floats:
        """Return s of every learned entity for each (head, relation), (n, num_learned)."""
        weights = self.weights.of_relations(relations)
        total = np.zeros((len(heads), self.num_learned), dtype=np.float32)
        for i, scores in enumerate(self.by_predictor(heads, relations)):
            scores *= weights[:, i : i + 1]
            total += scores
        if self.rule_rows is not None:
            found = self.by_rules(heads, relations)
            indices = np.repeat(np.arange(len(heads)), np.diff(found.offsets))
            first = len(self.predictors.models)
            of_rules = weights[indices, first : first + len(RULES)]
            said = np.einsum("ij,ij->i", features_of(found.sums), of_rules)
            total[indices, found.tails] += said
        for relation in np.unique(relations).tolist():
            of_tail = self.weights.of_relation(relation)
            tails, num_heads = self.counts.heads(relation ^ 1)
            is_learned = tails < self.num_learned
            features = fullness(num_heads[is_learned], self.counts.mean(relation ^ 1))
            term = weighted(features, FULLNESS, of_tail)
            rows = np.flatnonzero(relations == relation)
            total[rows[:, None], tails[is_learned]] += term
            total[rows, heads[rows]] += np.float32(self.weights.of_loop(relation, self.counts))
        return total

    def by_rules(self, heads: NDArray[Any], relations: NDArray[Any]) -> SparseRows:
        """Return what the rules say about learned entities, with local ids."""
        assert self.rule_rows is not None
        found = self.rule_rows.rows(self.ids[heads], relations)
        tails = np.minimum(np.searchsorted(self.ids, found.tails), max(0, self.num_learned - 1))
        is_here = self.ids[tails] == found.tails
        before = np.concatenate([[0], np.cumsum(is_here)])
        return SparseRows(before[found.offsets], tails[is_here], found.sums[is_here])

    def by_predictor(self, heads: NDArray[Any], relations: NDArray[Any]) -> Iterator[Floats]:
        """Yield each model's scores of every learned entity, (n, num_learned)."""
        if self.model_scores is not None:
            yield from self.model_scores.rows(self.ids[heads], relations)


def bent(log_odds: NDArray[Any], knee: float, slope: float) -> NDArray[Any]:
    """Return log-odds that grow by `slope`, at most 1, from the knee on."""
    return np.minimum(log_odds, knee + slope * (log_odds - knee)) if slope < 1 else log_odds


def to_probabilities(log_odds: Floats) -> Floats:
    """Return the probabilities of missing edges, in place of their log-odds."""
    np.negative(log_odds, out=log_odds)
    with np.errstate(over="ignore"):
        np.exp(log_odds, out=log_odds)
    log_odds += 1
    np.reciprocal(log_odds, out=log_odds)
    return np.minimum(log_odds, np.float32(MAX_PREDICTED), out=log_odds)
