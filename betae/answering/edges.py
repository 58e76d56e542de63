"""Probabilities of missing edges, from the scores of models and how full both ends are.

For a head h, a relation r and every entity t that is not a known tail,

    s(t) = sum_k w_k score_k(h, r, t) + v . fullness(t, inverse of r) + u . loop(r) [t = h]
    p(t) = logistic(a s(t) + b ln sum_t' exp s(t') + c . fullness(h, r) + d)

A score is the negated distance of one of the models. The fullness of an end compares its number of
edges of the relation with the mean over entities that have any: a country with a capital will not
get another. A loop, t = h, is as likely as the relation's known edges say.

`edge_fit` fits the weights: w, v and u listwise, since they decide the order of a row, the others,
which keep that order, by logistic regression. A further predictor is one more score in s(t).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from betae.answering.results import MAX_PREDICTED
from betae.graph.edges import Adjacency, Edges, Ragged
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.search import Index

Floats = NDArray[np.float32]

FULLNESS = ("ln(1 + n)", "n > 0", "n > 0, ln mean")  # features of an end: see `fullness`
TAIL = (*FULLNESS, "t = h", "t = h, ln share")  # features of a tail, in s
OF_HEAD = (*FULLNESS, "ln mean", "1")  # features of a (head, relation): see `head_features`
ROW = ("score", "ln sum exp(score)", *OF_HEAD)  # features of p

COUNT_BATCH = 2**22  # (head, relation) pairs that are counted together


@dataclass(frozen=True)
class EdgeWeights:
    """The fitted weights of the features, by name."""

    predictors: dict[str, float]  # by the name of the model
    tail: dict[str, float]  # TAIL; the fullness is that of the tail, by the inverse relation
    row: dict[str, float]  # ROW; the fullness is that of the head
    whole: float | None = None  # scale of distances from whole questions: see `completed`

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EdgeWeights:
        """Check and build the weights; raises ValueError or TypeError if they are not complete."""
        weights = cls(**content)
        if tuple(weights.tail) != TAIL or tuple(weights.row) != ROW or not weights.predictors:
            raise ValueError("it does not have the weights that are needed")
        values = [*weights.predictors.values(), *weights.tail.values(), *weights.row.values()]
        values.append(0.0 if weights.whole is None else weights.whole)
        if not np.isfinite(np.array(values, dtype=float)).all():
            raise ValueError("a weight is not a finite number")
        return weights


@dataclass(frozen=True)
class EdgePredictors:
    """The models that score edges, and how their scores become probabilities."""

    models: Sequence[QueryModel]
    weights: EdgeWeights
    log_odds: float = 0.0  # added for every missing edge: see `log_odds_of_missing`
    indexes: Sequence[Index] = ()  # of the models' entities, for graphs completed in parts

    @property
    def num_entities(self) -> int:
        """The number of entities that all models have learned."""
        return min(model.num_entities for model in self.models)

    @property
    def num_relations(self) -> int:
        """The number of directed relations that all models have learned."""
        return min(model.num_relations for model in self.models)


def validation_share(graph: KnowledgeGraph) -> float:
    """Return the share of validation edges among the held-out edges."""
    valid, test = len(graph.splits["valid"]), len(graph.splits["test"])
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
    """Return the features OF_HEAD of each (head, relation), (n, 5)."""
    means = np.array([counts.mean(relation) for relation in relations.tolist()])
    ends = fullness(counts.num_tails(heads, relations), means)
    columns = [ends, np.log(means)[:, None], np.ones((len(heads), 1))]
    return np.concatenate(columns, axis=1).astype(np.float32)


def weighted(features: Floats, names: Sequence[str], weights: Mapping[str, float]) -> Floats:
    """Return the weighted sums of named features: (n, num_names) -> (n,).

    Not by BLAS, which raises a spurious invalid-value flag here on some processors.
    """
    values = np.array([weights[name] for name in names], dtype=np.float32)
    sums: Floats = np.einsum("ij,j->i", features, values)
    return sums


def mask_known(scores: Tensor, known: Ragged) -> None:
    """Set the scores of known tails to -inf, in place."""
    rows, tails = np.repeat(np.arange(len(known)), known.lengths), known.values
    is_learned = tails < scores.shape[1]
    scores[
        torch.from_numpy(rows[is_learned]), torch.from_numpy(tails[is_learned]).long()
    ] = -math.inf


def log_partition(scores: Tensor, log_weights: Tensor | None = None) -> Floats:
    """Return ln sum exp(s) of each row, (n,); with weights, an entity counts so many times."""
    weighed = scores if log_weights is None else scores + log_weights
    found: Floats = weighed.logsumexp(dim=1).numpy()
    return found


class Counts:
    """The known edges: tails by head and relation, and their counts."""

    def __init__(self, adjacency: Adjacency):
        self.adjacency = adjacency
        self.totals = _count_by_relation(adjacency)

    def tails(self, heads: NDArray[Any], relations: NDArray[Any]) -> Ragged:
        """Return the known tails of each (head, relation)."""
        starts, lengths = _tail_ranges(self.adjacency, heads, relations)
        return Ragged.from_lengths(lengths, self.adjacency.tails[flat_ranges(starts, lengths)])

    def num_tails(self, heads: NDArray[Any], relations: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of known tails of each (head, relation)."""
        return _tail_ranges(self.adjacency, heads, relations)[1]

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
        num_heads, num_edges, _ = self._totals_of(relation)
        return num_edges / num_heads if num_heads else 1.0

    def log_loops(self, relation: int) -> float:
        """Return ln of the share of a relation's heads with a loop, by add-half smoothing."""
        num_heads, _, num_loops = self._totals_of(relation)
        return math.log((num_loops + 0.5) / (num_heads + 1))

    def _totals_of(self, relation: int) -> list[int]:
        if relation >= self.totals.shape[1]:  # without known edges
            return [0, 0, 0]
        totals: list[int] = self.totals[:, relation].tolist()
        return totals


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
        learned = None if ids is None else torch.from_numpy(ids[: self.num_learned])
        with torch.no_grad():
            tables = [model.eval().table(learned) for model in predictors.models]
        self.tables = [table[: self.num_learned] for table in tables]
        self.log_weights: Tensor | None = None
        if represents is not None:
            log_weights = np.log(represents[: self.num_learned]).astype(np.float32)
            self.log_weights = torch.from_numpy(log_weights)

    @property
    def sample(self) -> NDArray[np.int64]:
        """The learned entities that represent others; all, if none does."""
        if self.log_weights is not None and (self.log_weights > 0).any():
            return self.log_weights.numpy().nonzero()[0]
        return np.arange(self.num_learned)

    def rows(self, heads: NDArray[Any], relations: NDArray[Any]) -> Floats:
        """Return the probabilities of all tails of each (head, relation), (n, num_entities).

        Known edges have probability 1.
        """
        known = self.counts.tails(heads, relations)
        rows = np.zeros((len(heads), len(self.ids)), dtype=np.float32)
        learned = np.flatnonzero((heads < self.num_learned) & (relations < self.num_relations))
        if len(learned):
            pairs = heads[learned], relations[learned]
            scores = self.scores(*pairs)
            mask_known(scores, known.take(learned))
            total = torch.from_numpy(log_partition(scores, self.log_weights))
            weights, features = self.weights.row, head_features(self.counts, *pairs)
            terms = torch.from_numpy(weighted(features, OF_HEAD, weights))
            terms += weights["ln sum exp(score)"] * total + self.predictors.log_odds
            scores = scores.mul_(weights["score"]).add_(terms[:, None])
            scores = scores.sigmoid_().clamp_(max=MAX_PREDICTED)
            rows[learned, : self.num_learned] = scores.numpy()
        rows[np.repeat(np.arange(len(heads)), known.lengths), known.values] = 1.0
        return rows

    def scores(self, heads: NDArray[Any], relations: NDArray[Any]) -> Tensor:
        """Return s of every learned entity for each (head, relation), (n, num_learned)."""
        factors = self.weights.predictors.values()
        total: Tensor | None = None
        for scores, factor in zip(self.by_predictor(heads, relations), factors, strict=True):
            scores.mul_(factor)
            total = scores if total is None else total.add_(scores)
        assert total is not None
        of_tail = self.weights.tail
        for relation in np.unique(relations).tolist():
            tails, num_heads = self.counts.heads(relation ^ 1)
            is_learned = tails < self.num_learned
            features = fullness(num_heads[is_learned], self.counts.mean(relation ^ 1))
            term = torch.from_numpy(weighted(features, FULLNESS, of_tail))
            loop = of_tail["t = h"] + of_tail["t = h, ln share"] * self.counts.log_loops(relation)
            rows = torch.from_numpy(np.flatnonzero(relations == relation))
            total[rows[:, None], torch.from_numpy(tails[is_learned]).long()] += term
            total[rows, torch.from_numpy(heads).long()[rows]] += loop
        return total

    def by_predictor(self, heads: NDArray[Any], relations: NDArray[Any]) -> Iterator[Tensor]:
        """Yield each model's scores of every learned entity, (n, num_learned)."""
        for model, table in zip(self.predictors.models, self.tables, strict=True):
            with torch.no_grad():
                yield -model.distance(project(model, self.ids[heads], relations), table).float()


def project(model: QueryModel, heads: NDArray[Any], relations: NDArray[Any]) -> Tensor:
    """Embed the sets that relations lead to from entities, (n, width)."""
    sets = model.embed_entities(torch.from_numpy(heads).long())
    return model.project(sets, torch.from_numpy(relations).long())
