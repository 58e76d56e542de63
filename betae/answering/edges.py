"""The probability that an edge which the graph does not have is there all the same.

For a head h, a relation r and every entity t,

    s(t) = sum_k w_k score_k(h, r, t) + v . fullness(t, inverse of r) + u . loop(h, r) [t = h]
    p(t) = logistic(a s(t) - b ln sum_t' exp s(t') + c . fullness(h, r) + d)

over the entities that are not known tails. A score is a predictor's distance, negated, and there
may be several predictors. How full an end is says how many edges of the relation it has already,
against what entities that have any have on average: who has one capital will not get another.
An edge from an entity to itself is as likely as the relation's known edges say.

The first line is fitted listwise, each validation edge against the unknown tails of its row: this
is what the order in a row depends on. The second line, which keeps that order, is fitted as a
logistic regression: see `edge_fit`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from betae.errors import StoreError
from betae.graph.edges import Adjacency, Edges
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.models.base import QueryModel
from betae.storage import writing_file

Floats = NDArray[np.float32]

SUREST = 0.999  # a prediction is never certain
FULLNESS = ("ln(1 + n)", "n > 0", "n > 0, ln mean")  # of an end: see `fullness`
TAIL = (*FULLNESS, "t = h", "t = h, ln share")  # what tells the tails of a row apart
ROW = ("score", "ln sum exp(score)", *FULLNESS, "ln mean", "1")  # what a probability depends on


@dataclass(frozen=True)
class EdgeWeights:
    """The fitted numbers."""

    predictors: dict[str, float]  # name of the model -> factor on its score
    tail: dict[str, float]  # TAIL; the fullness is by the inverse relation
    row: dict[str, float]  # ROW; the fullness is that of the head
    whole: float | None = None  # factor on the distances of whole questions: see `whole`


def fullness(counts: NDArray[Any], mean: float | NDArray[np.float64]) -> Floats:
    """Return how full ends are that have `counts` edges of a relation, (n, len(FULLNESS)).

    `mean` is how many such edges the entities have that have any, for all ends or for each.
    """
    has_any = (counts > 0).astype(np.float32)
    columns = [np.log1p(counts), has_any, has_any * np.log(mean)]
    return np.stack(columns, axis=-1).astype(np.float32)


def weighted(features: Floats, weights: Floats) -> Floats:
    """Return the weighted sum of the features of each row: (n, k), (k,) -> (n,).

    Not by BLAS, which raises the flag of an invalid number here on some processors, for nothing.
    """
    sums: Floats = np.einsum("ij,j->i", features, weights)
    return sums


class Counts:
    """The edges that count as known: the tails of heads by relation, and how many there are."""

    def __init__(self, adjacency: Adjacency):
        self.adjacency = adjacency
        heads = np.repeat(
            np.arange(len(adjacency.head_offsets) - 1), np.diff(adjacency.head_offsets)
        )
        self._num_relations = int(adjacency.relations.max(initial=-1)) + 1
        self._keys = heads * self._num_relations + adjacency.relations  # of the pairs, ascending
        self._tails = Ragged(adjacency.tail_offsets, adjacency.tails)
        is_loop = np.repeat(heads, self._tails.lengths) == adjacency.tails
        relations = np.repeat(adjacency.relations, self._tails.lengths)
        self._loops = np.bincount(relations[is_loop], minlength=self._num_relations)

    def tails(self, heads: NDArray[Any], relations: NDArray[Any]) -> Ragged:
        """Return the known tails of each (head, relation)."""
        keys = heads.astype(np.int64) * self._num_relations + relations
        pairs = np.searchsorted(self._keys, keys)
        is_there = (pairs < len(self._keys)) & (relations < self._num_relations)
        is_there[is_there] = self._keys[pairs[is_there]] == keys[is_there]
        lengths = np.zeros(len(keys), dtype=np.int64)
        lengths[is_there] = self._tails.lengths[pairs[is_there]]
        return Ragged.from_lengths(lengths, self._tails.take(pairs[is_there]).values)

    def numbers(self, heads: NDArray[Any], relations: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many known tails each (head, relation) has."""
        return self.tails(heads, relations).lengths

    def mean(self, relation: int) -> float:
        """Return how many tails of a relation the heads have that have any."""
        means = self.adjacency.tails_of_a_head
        return max(1.0, float(means[relation])) if relation < len(means) else 1.0

    def log_loops(self, relation: int) -> float:
        """Return ln of the share of a relation's heads that have themselves for a tail.

        Half a head more has, and half a head more has not: so no share is 0.
        """
        number = len(self.heads(relation)[0])
        loops = self._loops[relation] if relation < self._num_relations else 0
        return math.log((loops + 0.5) / (number + 1))

    def heads(self, relation: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the heads that have a tail of a relation, and how many they have."""
        offsets, heads, pairs = self.adjacency.by_relation
        if relation + 1 >= len(offsets):
            return heads[:0], pairs[:0]
        chosen = slice(offsets[relation], offsets[relation + 1])
        starts = self.adjacency.tail_offsets
        return heads[chosen], starts[pairs[chosen] + 1] - starts[pairs[chosen]]


class EdgeProbabilities:
    """Probabilities of all edges of a (head, relation), from the scores of some predictors.

    Entities and relations that were added to the graph after training have no missing edges here;
    their known ones count as any other.
    """

    def __init__(
        self, predictors: Sequence[QueryModel], weights: EdgeWeights, log_odds: float = 0.0
    ):
        self.log_odds = log_odds  # added to those of every edge: see `log_odds_of_missing`
        self.predictors, self.weights = [model.eval() for model in predictors], weights
        self.num_entities = min(model.num_entities for model in predictors)
        self.num_relations = min(model.num_relations for model in predictors)
        with torch.no_grad():
            self.tables = [model.table()[: self.num_entities] for model in predictors]
        self.log_weights: Tensor | None = None  # of entities that stand for others: see `part`

    def rows(
        self, heads: NDArray[Any], relations: NDArray[Any], counts: Counts, num_entities: int
    ) -> Floats:
        """Return the probabilities of the edges of some (head, relation), (n, num_entities).

        Known edges have the probability 1.
        """
        known = counts.tails(heads, relations)
        found = np.zeros((len(heads), num_entities), dtype=np.float32)
        learned = np.flatnonzero((heads < self.num_entities) & (relations < self.num_relations))
        if len(learned):
            pairs, of_learned = (heads[learned], relations[learned]), known.take(learned)
            scores = self.scores(*pairs, counts)
            total = torch.from_numpy(log_sums(scores, of_learned, self.log_weights))
            terms = torch.from_numpy(self._row_terms(counts.numbers(*pairs), pairs[1], counts))
            terms += self.weights.row["ln sum exp(score)"] * total + self.log_odds
            scores = scores.mul_(self.weights.row["score"]).add_(terms[:, None])
            found[learned, : self.num_entities] = scores.sigmoid_().clamp_(max=SUREST).numpy()
        found[np.repeat(np.arange(len(heads)), known.lengths), known.values] = 1.0
        return found

    def scores(self, heads: NDArray[Any], relations: NDArray[Any], counts: Counts) -> Tensor:
        """Return s of every entity for some (head, relation), (n, entities learned)."""
        factors = self.weights.predictors.values()
        total: Tensor | None = None
        for scores, factor in zip(self.by_predictor(heads, relations), factors, strict=True):
            scores.mul_(factor)
            total = scores if total is None else total.add_(scores)
        assert total is not None
        for relation in np.unique(relations).tolist():
            tails, term = self._tail_term(relation, counts)
            rows = torch.from_numpy(np.flatnonzero(relations == relation))
            total[rows[:, None], torch.from_numpy(tails).long()] += torch.from_numpy(term)
            total[rows, torch.from_numpy(heads).long()[rows]] += self._loop_term(relation, counts)
        return total

    def by_predictor(self, heads: NDArray[Any], relations: NDArray[Any]) -> Iterator[Tensor]:
        """Yield each predictor's scores of every entity for some (head, relation)."""
        for model, table in zip(self.predictors, self.tables, strict=True):
            yield predictor_scores(model, table, self._ids(heads), relations)

    def _ids(self, heads: NDArray[Any]) -> NDArray[Any]:
        """Return the predictors' ids of heads."""
        return heads

    def _tail_term(self, relation: int, counts: Counts) -> tuple[NDArray[Any], Floats]:
        """Return the entities that are known tails of a relation, and what that adds to s."""
        tails, numbers = counts.heads(relation ^ 1)
        learned = tails < self.num_entities
        features = fullness(numbers[learned], counts.mean(relation ^ 1))
        weights = np.array([self.weights.tail[name] for name in FULLNESS], dtype=np.float32)
        return tails[learned], weighted(features, weights)

    def _loop_term(self, relation: int, counts: Counts) -> float:
        """Return what is added to s of the head itself."""
        weights = self.weights.tail
        return weights["t = h"] + weights["t = h, ln share"] * counts.log_loops(relation)

    def _row_terms(
        self, numbers: NDArray[np.int64], relations: NDArray[Any], counts: Counts
    ) -> Floats:
        """Return what is the same for all tails of a (head, relation), but for the sum, (n,)."""
        values = self.weights.row
        weights = np.array([values[name] for name in (*FULLNESS, "ln mean", "1")], np.float32)
        return weighted(row_features(numbers, relations, counts), weights)


def validation_share(graph: KnowledgeGraph) -> float:
    """Return the share of the validation edges among all that are held out of training."""
    valid, test = len(graph.splits["valid"]), len(graph.splits["test"])
    return valid / max(1, valid + test)


def log_odds_of_missing(graph: KnowledgeGraph, edges: Edges) -> float:
    """Return what to add to the log-odds of edges that are not among those that count as known.

    What is fitted is the probability that an edge which is not in training was held out. If
    validation edges count as known, an edge that is not among them either can only be a test edge.
    If all edges count, nobody knows how many are missing: as many as were held out, we assume.
    """
    share = validation_share(graph)
    return math.log(1 - share) if edges == "train+valid" and share < 1 else 0.0


def predictor_scores(
    model: QueryModel, table: Tensor, heads: NDArray[Any], relations: NDArray[Any]
) -> Tensor:
    """Return a predictor's score of every entity for some (head, relation), (n, entities)."""
    with torch.no_grad():
        sets = model.embed_entities(torch.from_numpy(heads).long())
        sets = model.project(sets, torch.from_numpy(relations).long())
        return -model.distance(sets, table).float()


def row_features(numbers: NDArray[np.int64], relations: NDArray[Any], counts: Counts) -> Floats:
    """Return how full heads with so many tails are, and how large the relations, (n, 5)."""
    means = np.array([counts.mean(relation) for relation in relations.tolist()])
    columns = [fullness(numbers, means), np.log(means)[:, None], np.ones((len(numbers), 1))]
    return np.concatenate(columns, axis=1).astype(np.float32)


def log_sums(scores: Tensor, known: Ragged, log_weights: Tensor | None = None) -> Floats:
    """Return ln of the sum of exp(s) over the entities that are not known tails, (n,).

    The scores of known tails become -inf. With weights, an entity counts so many times.
    """
    rows, tails = np.repeat(np.arange(len(known)), known.lengths), known.values
    is_learned = tails < scores.shape[1]
    scores[
        torch.from_numpy(rows[is_learned]), torch.from_numpy(tails[is_learned]).long()
    ] = -math.inf
    counted = scores if log_weights is None else scores + log_weights
    found: Floats = counted.logsumexp(dim=1).numpy()
    return found


def write_edge_weights(weights: EdgeWeights, path: Path, model: str) -> None:
    """Write what was fitted for a run's models, named by their folders."""
    with writing_file(path) as partial:
        content = {"model": model, **asdict(weights)}
        partial.write_text(json.dumps(content, indent=2), encoding="utf-8")


def read_edge_weights(path: Path, model: str) -> EdgeWeights | None:
    """Read what was fitted for these models, if anything was."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("model") != model or "whole" not in content:  # an earlier version's
            return None
        weights = EdgeWeights(**content)
        if tuple(weights.tail) != TAIL or tuple(weights.row) != ROW or not weights.predictors:
            raise ValueError("it does not have the weights that are needed")
        numbers = [*weights.predictors.values(), *weights.tail.values(), *weights.row.values()]
        numbers.append(0.0 if weights.whole is None else weights.whole)
        if not np.isfinite(np.array(numbers, dtype=float)).all():
            raise ValueError("a weight is not a number")
        return weights
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} is damaged ({error}): delete it, and it is fitted again."
        ) from error
