"""Rows of probabilities by rules alone, sparse from end to end.

Most tails of a row are reached by no rule and no vote. Their probability then depends only on how
many edges of the relation they have. So a row lists the tails that something speaks for, and has
one probability for each class of the others: the entities with as many edges (see `Classes`).
Nothing is left out: these are the probabilities of `edges`, which has the formulas.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae.answering.edges import (
    FULLNESS,
    OF_HEAD,
    RULES,
    Counts,
    EdgePredictors,
    EdgeProbabilities,
    Floats,
    bent,
    fullness,
    head_features,
    to_probabilities,
    weighted,
)
from betae.graph.edges import Ids
from betae.rules.rows import features_of


class Classes(NamedTuple):
    """Entities by their number of edges to them of a relation; class 0 has none."""

    numbers: NDArray[np.int64]  # of edges, by class, ascending
    sizes: NDArray[np.int64]  # number of entities, by class
    scores: Floats  # s of a tail that no rule speaks for, by class
    tails: Ids  # the entities that are not of class 0
    of_tails: NDArray[np.int32]  # their classes


class Row(NamedTuple):
    """The probabilities of all tails of a (head, relation)."""

    tails: Ids  # ascending: the head, known tails and those that something speaks for
    classes: NDArray[np.int32]
    chances: Floats
    others: Floats  # of all other tails, by class

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""
        return sum(array.nbytes for array in self)


class ScoredRow(NamedTuple):
    """The scores s of all tails of a (head, relation) as if none were known: see `Row`."""

    tails: Ids
    classes: NDArray[np.int32]
    scores: Floats
    is_known: NDArray[np.bool_]
    log_partition: float  # over the unknown tails


class SparseProbabilities(EdgeProbabilities):
    """Probabilities of all edges of a (head, relation), by rules alone."""

    def __init__(self, predictors: EdgePredictors, counts: Counts):
        assert not predictors.models
        super().__init__(predictors, counts)
        self._classes: dict[int, Classes] = {}

    # ---- classes --------------------------------------------------------------------------------

    def classes(self, relation: int) -> Classes:
        """Return the classes of the tails of a relation, computed once."""
        if relation not in self._classes:
            tails, numbers_of_tails = self.counts.heads(relation ^ 1)
            counts = np.bincount(numbers_of_tails, minlength=1)
            counts[0] = len(self.ids) - len(tails)
            numbers = np.union1d([0], np.flatnonzero(counts))
            class_of = np.zeros(len(counts), dtype=np.int32)
            class_of[numbers] = np.arange(len(numbers))
            features = fullness(numbers, self.counts.mean(relation ^ 1))
            scores = weighted(features, FULLNESS, self.weights.of_relation(relation))
            of_tails = class_of[numbers_of_tails]
            self._classes[relation] = Classes(numbers, counts[numbers], scores, tails, of_tails)
        return self._classes[relation]

    def classes_of(self, tails: NDArray[Any], relation: int) -> NDArray[np.int32]:
        """Return the class of each of some tails."""
        numbers = self.counts.num_tails(tails, np.full(len(tails), relation ^ 1))
        return np.searchsorted(self.classes(relation).numbers, numbers).astype(np.int32)

    # ---- rows -----------------------------------------------------------------------------------

    def scored_rows(self, heads: NDArray[Any], relations: NDArray[Any]) -> list[ScoredRow]:
        """Return the scores of the tails of each (head, relation)."""
        found, weights = self.by_rules(heads, relations), self.weights.of_relations(relations)
        rows = []
        for i, (head, relation) in enumerate(zip(heads.tolist(), relations.tolist(), strict=True)):
            reached, sums = found.row(i)
            known = self.counts.adjacency.neighbours(head, relation)
            tails = np.union1d(np.append(known, np.int32(head)), reached)
            classes, of_class = self.classes_of(tails, relation), self.classes(relation)
            scores = of_class.scores[classes]
            of_rules = weights[i, : len(RULES)]
            scores[np.searchsorted(tails, reached)] += np.einsum(
                "ij,j->i", features_of(sums), of_rules
            )
            loop = np.float32(self.weights.of_loop(relation, self.counts))
            scores[np.searchsorted(tails, head)] += loop
            is_known = np.zeros(len(tails), dtype=np.bool_)
            is_known[np.searchsorted(tails, known)] = True
            sizes = of_class.sizes - np.bincount(classes, minlength=len(of_class.sizes))
            later = self.counts.later_tails(head, relation)
            of_relation = self.weights.of_relation(relation)
            before = scores[np.searchsorted(tails, later)]
            before += self.counts.gain_if_missing(later, relation, of_relation)
            listed = np.concatenate([scores[~is_known], before])
            total = _log_partition(listed, of_class.scores, sizes)
            rows.append(ScoredRow(tails, classes, scores, is_known, total))
        return rows

    def sparse_rows(self, heads: NDArray[Any], relations: NDArray[Any]) -> list[Row]:
        """Return the probabilities of the tails of each (head, relation); known edges have 1."""
        scored = self.scored_rows(heads, relations)
        slopes, terms = self._lines(heads, relations, scored)
        rows = []
        for row, relation, slope, term in zip(
            scored, relations.tolist(), slopes, terms, strict=True
        ):
            of_class = self.classes(relation).scores
            if relation < self.num_relations:
                chances = to_probabilities(self._log_odds(row.scores, slope, term))
                others = to_probabilities(self._log_odds(of_class, slope, term))
            else:  # added later: known edges only
                chances, others = np.zeros_like(row.scores), np.zeros_like(of_class)
            chances[row.is_known] = 1
            rows.append(Row(row.tails, row.classes, chances, others))
        return rows

    def _lines(
        self, heads: NDArray[Any], relations: NDArray[Any], scored: Sequence[ScoredRow]
    ) -> tuple[Floats, Floats]:
        """Return slope and intercept of the log-odds of each row, given s, before the bend."""
        weights, features = self.weights.row, head_features(self.counts, heads, relations)
        totals = np.array([row.log_partition for row in scored], dtype=np.float32)
        terms = weighted(features, OF_HEAD, weights) + weights["ln sum exp(score)"] * totals
        rates = [self.weights.rate_of(relation) for relation in relations.tolist()]
        slopes, shifts = np.array(rates, dtype=np.float32).reshape(-1, 2).T
        return slopes * np.float32(weights["score"]), slopes * terms + shifts

    def _log_odds(self, scores: Floats, slope: np.float32, term: np.float32) -> Floats:
        """Return the log-odds of a row's scores, by its line."""
        straight = slope * scores + term
        return bent(straight, *self.weights.bend) + np.float32(self.predictors.log_odds)

    def log_odds_of(self, head: int, relation: int, tail: int) -> float:
        """Return the log-odds of an edge as if it were not known."""
        pair = np.array([head]), np.array([relation])
        scored = self.scored_rows(*pair)
        slopes, terms = self._lines(*pair, scored)
        score = self.scores_at(scored[0], relation, np.array([tail]))
        return float(self._log_odds(score, slopes[0], terms[0])[0])

    def scores_at(self, row: ScoredRow, relation: int, tails: NDArray[Any]) -> Floats:
        """Return the scores of some tails of a row."""
        places = np.minimum(np.searchsorted(row.tails, tails), len(row.tails) - 1)
        of_class = self.classes(relation).scores[self.classes_of(tails, relation)]
        return np.where(row.tails[places] == tails, row.scores[places], of_class)

    def edges_above(
        self, heads: NDArray[Any], relations: NDArray[Any], above: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Return rows, tails and probabilities of the missing edges more probable than `above`."""
        indices, ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        found = [np.empty(0, np.float32)]
        rows = self.sparse_rows(heads, relations)
        for i, (row, relation) in enumerate(zip(rows, relations.tolist(), strict=True)):
            tails, chances = row.tails.astype(np.int64), row.chances
            if (row.others > above).any():
                tails, chances = np.arange(len(self.ids)), self.dense(row, relation)
            chosen = np.flatnonzero((chances > above) & (chances < 1))
            indices.append(np.full(len(chosen), i))
            ids.append(tails[chosen])
            found.append(chances[chosen])
        return np.concatenate(indices), np.concatenate(ids), np.concatenate(found)

    def dense(self, row: Row, relation: int) -> Floats:
        """Return the probabilities of all tails of a row, (num_entities,)."""
        classes = self.classes(relation)
        values = np.full(len(self.ids), row.others[0])
        values[classes.tails] = row.others[classes.of_tails]
        values[row.tails] = row.chances
        return values


def edge_probabilities(predictors: EdgePredictors, counts: Counts) -> EdgeProbabilities:
    """Return the probabilities of edges: sparse by rules alone, dense with models."""
    kind = EdgeProbabilities if predictors.models else SparseProbabilities
    return kind(predictors, counts)


def _log_partition(listed: Floats, by_class: Floats, sizes: NDArray[np.int64]) -> float:
    """Return ln sum exp(s) over the listed scores and `sizes` tails of each class."""
    is_there = sizes > 0
    log_counts = by_class[is_there].astype(np.float64) + np.log(sizes[is_there])
    terms = np.concatenate([listed, log_counts])
    largest = terms.max(initial=-math.inf)
    if np.isneginf(largest):
        return -math.inf
    return float(np.log(np.exp(terms - largest).sum()) + largest)


class RowCache:
    """Rows that were asked for, up to so many bytes; the least recently used are dropped."""

    def __init__(self, probabilities: SparseProbabilities, max_bytes: int):
        self.probabilities, self.max_bytes, self.num_bytes = probabilities, max_bytes, 0
        self._rows: OrderedDict[tuple[int, int], Row] = OrderedDict()

    def probabilities_to(self, tail: int, heads: NDArray[Any], relation: int) -> Floats:
        """Return the probabilities of the edges of a relation from distinct heads to one tail."""
        (of_tail,) = self.probabilities.classes_of(np.array([tail]), relation)
        found = np.empty(len(heads), dtype=np.float32)
        for i, row in enumerate(self.rows(heads, np.full(len(heads), relation))):
            place = min(int(np.searchsorted(row.tails, tail)), len(row.tails) - 1)
            is_listed = row.tails[place] == tail
            found[i] = row.chances[place] if is_listed else row.others[of_tail]
        return found

    def rows(self, heads: NDArray[Any], relations: NDArray[Any]) -> list[Row]:
        """Return the row of each of some distinct (head, relation)."""
        keys = [*zip(heads.tolist(), relations.tolist(), strict=True)]
        missing = np.array([i for i, key in enumerate(keys) if key not in self._rows], np.int64)
        computed = self.probabilities.sparse_rows(heads[missing], relations[missing])
        for i, row in zip(missing.tolist(), computed, strict=True):
            self._rows[keys[i]] = row
            self.num_bytes += row.num_bytes
        for key in keys:
            self._rows.move_to_end(key)
        found = [self._rows[key] for key in keys]
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._rows.popitem(last=False)[1].num_bytes
        return found


# ---- truth values -------------------------------------------------------------------------------

_of_thread = threading.local()


def _places(num_entities: int) -> Ids:
    """Return the working memory of this thread, all zero between uses."""
    places: Ids | None = getattr(_of_thread, "places", None)
    if places is None or len(places) < num_entities:
        places = _of_thread.places = np.zeros(num_entities, dtype=np.int32)
    return places


def follow_rows(
    rows: Sequence[Row], classes: Classes, truth: Floats, values: Floats, best: bool
) -> None:
    """Set the values of all tails, (num_entities,), by the edges from sources of some truth.

    The best derivation of each counts, or all by missing edges: known edges are followed later.
    """
    offsets = np.cumsum([0, *(len(row.tails) for row in rows)])
    _follow_rows(
        classes.tails,
        classes.of_tails,
        np.stack([row.others for row in rows]),
        offsets,
        np.concatenate([row.tails for row in rows]),
        np.concatenate([row.classes for row in rows]),
        np.concatenate([row.chances for row in rows]),
        truth,
        np.float32(2 if best else 1),
        best,
        values,
        _places(len(values)),
    )


@njit(nogil=True, cache=True)
def _follow_rows(  # type: ignore[no-untyped-def]
    class_tails,
    of_tails,
    others,
    offsets,
    tails,
    classes,
    chances,
    truth,
    limit,
    best,
    values,
    places,
):
    num_rows, num_classes = others.shape
    column = np.empty(num_rows, dtype=np.float32)
    by_class = np.empty(num_classes, dtype=np.float32)
    for c in range(num_classes):
        for i in range(num_rows):
            column[i] = truth[i] * others[i, c]
        by_class[c] = _combined(column, best)
    values[:] = by_class[0]
    for j in range(len(class_tails)):
        values[class_tails[j]] = by_class[of_tails[j]]
    count = 0
    first = np.empty(len(tails), dtype=np.int32)
    for j in range(len(tails)):
        if places[tails[j]] == 0:
            first[count] = j
            count += 1
            places[tails[j]] = count
    table = np.empty((count, num_rows), dtype=np.float32)
    for k in range(count):
        c = classes[first[k]]
        for i in range(num_rows):
            table[k, i] = truth[i] * others[i, c]
    for i in range(num_rows):
        for j in range(offsets[i], offsets[i + 1]):
            chance = truth[i] * chances[j] if chances[j] < limit else np.float32(0)
            table[places[tails[j]] - 1, i] = chance
    for k in range(count):
        tail = tails[first[k]]
        values[tail] = _combined(table[k], best)
        places[tail] = 0


@njit(nogil=True, cache=True)
def _combined(chances, best):  # type: ignore[no-untyped-def]
    """Return the noisy-or of derivations, or the best of them."""
    value = np.float32(0)
    for chance in chances:
        value = max(value, chance) if best else value + chance * (1 - value)
    return value
