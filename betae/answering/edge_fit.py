"""Fit the probabilities of edges on validation edges: first the order in a row, then how sure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    row_features,
    validation_share,
)
from betae.answering.part import LargeGraph, Part, likely_tails
from betae.answering.regression import Doubles, Tails, fit_listwise, fit_logistic
from betae.answering.whole import fit_scale
from betae.errors import InvalidArgument
from betae.graph.edges import Adjacency
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.querysets.seeds import random_stream

EDGES = 1500  # validation edges for the order
PAIRS = 4000  # (head, relation) for the probabilities
# Of these, so many are drawn by their edges: a half have tails, and those with many count more.
BY_EDGES = 0.1
BEST = 200  # tails of a row that are looked at one by one, the best by each predictor
OTHERS = 100  # a sample that stands for all other tails
ROWS_AT_ONCE = 256
SCORES_AT_ONCE = 2**25  # so fewer rows for many entities
ROWS_OF_A_PART = 64

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # heads, relations


@dataclass(frozen=True)
class _Rows:
    """Some (head, relation), and the entities of their rows: all, or a part by its own numbers."""

    heads: NDArray[np.int64]
    relations: NDArray[np.int64]
    probabilities: EdgeProbabilities
    counts: Counts
    part: Part | None = None

    def id(self, head: int) -> int:
        """Return the id of a head."""
        return head if self.part is None else int(self.part.ids[head])

    def places(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Return where entities are in a row."""
        return ids if self.part is None else np.searchsorted(self.part.ids, ids)


def fit_edges(
    predictors: Sequence[QueryModel],
    graph: KnowledgeGraph,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda *_: None,
    in_parts: bool = False,
) -> EdgeWeights:
    """Fit the weights of some predictors on the validation edges of their graph.

    In parts, for answers by indexes: a row has the tails that the predictors propose, and a sample.
    """
    if not len(graph.splits["valid"]):
        raise InvalidArgument(
            "The probabilities of edges are fitted on validation edges, and the graph has none: "
            "ingest it with --valid 0.05, say."
        )
    random = random_stream(seed, "fitting edges")
    fit = _Fit(predictors, graph, random, progress, in_parts)
    weights = fit.probabilities(fit.order())
    # It takes a table of all entities, and parts of a graph do without.
    whole = None if in_parts else fit_scale(predictors[0], graph)
    return replace(weights, whole=whole)


class _Fit:
    """The two fits, with what they share."""

    def __init__(
        self,
        predictors: Sequence[QueryModel],
        graph: KnowledgeGraph,
        random: np.random.Generator,
        progress: Callable[[int, int], None],
        in_parts: bool,
    ):
        self.predictors, self.graph, self.random = predictors, graph, random
        self.progress, self.in_parts = progress, in_parts
        self.known = graph.adjacency("train")
        self.later = graph.adjacency("train+valid")
        self.limits = (
            min(model.num_entities for model in predictors),
            min(model.num_relations for model in predictors),
        )

    def _rows(
        self, heads: NDArray[np.int64], relations: NDArray[np.int64], weights: EdgeWeights
    ) -> Iterator[_Rows]:
        """Yield the rows of some (head, relation), a block of them at a time."""
        if not self.in_parts:
            probabilities = EdgeProbabilities(self.predictors, weights)
            counts = Counts(self.known)
            at_once = max(1, min(ROWS_AT_ONCE, SCORES_AT_ONCE // max(1, self.limits[0])))
            for first in range(0, len(heads), at_once):
                rows = slice(first, first + at_once)
                yield _Rows(heads[rows], relations[rows], probabilities, counts)
            return
        large = LargeGraph(self.graph, self.predictors, weights, edges="train")
        proposed = [likely_tails(model, heads, relations) for model in self.predictors]
        for first in range(0, len(heads), ROWS_OF_A_PART):
            rows = slice(first, first + ROWS_OF_A_PART)
            block = heads[rows], relations[rows]
            pairs = zip(*(ids.tolist() for ids in block), strict=True)
            found = [block[0], large.known_tails(*block), *(of[rows].ravel() for of in proposed)]
            found += [self._held_out(*pair) for pair in pairs]
            part = large.part(np.concatenate(found))
            completed = part.completed
            places = np.searchsorted(part.ids, block[0])
            yield _Rows(places, block[1], completed.probabilities, completed.counts, part)

    def _held_out(self, head: int, relation: int) -> NDArray[Any]:
        """Return the validation edges of a (head, relation), by their tails."""
        known, later = (of.neighbours(head, relation) for of in (self.known, self.later))
        true = np.setdiff1d(later, known)
        return true[true < self.limits[0]]

    # ---- the order in a row ---------------------------------------------------------------------

    def order(self) -> EdgeWeights:
        """Fit s: each validation edge against the unknown tails of its row."""
        heads, relations = self._validation_pairs(EDGES)
        pieces, done = [], 0
        names = [model.name for model in self.predictors]
        unfitted = EdgeWeights(dict.fromkeys(names, 1.0), dict.fromkeys(TAIL, 0.0), {})
        for rows in self._rows(heads, relations, unfitted):
            scores = [*rows.probabilities.by_predictor(rows.heads, rows.relations)]
            pieces.append(self._tails(rows, scores, done))
            done += len(rows.heads)
            self.progress(done, EDGES + PAIRS)
        tails = _concatenate(pieces)
        if not tails.is_edge.any():
            raise InvalidArgument("The validation edges are all training edges, too.")
        scale = tails.features.std(axis=0) + 1e-9
        found = fit_listwise(tails, len(heads), scale)
        weights, of_tail = found[: len(names)], found[len(names) :]
        return EdgeWeights(
            dict(zip(names, weights.tolist(), strict=True)),
            dict(zip(TAIL, of_tail.tolist(), strict=True)),
            dict.fromkeys(ROW, 0.0),
        )

    def _tails(self, rows: _Rows, scores: list[torch.Tensor], first_row: int) -> Tails:
        """Take the tails of a block of rows, with the scores and how full they are."""
        chosen: list[Tails] = []
        counts, block = rows.counts, (rows.heads.tolist(), rows.relations.tolist())
        for row, (head, relation) in enumerate(zip(*block, strict=True)):
            known = counts.adjacency.neighbours(head, relation)
            true = rows.places(self._held_out(rows.id(head), relation))
            ids, weights = self._choose([of[row] for of in scores], known, true, rows.part)
            features = [of[row].numpy()[ids] for of in scores]
            numbers = _numbers(counts, ids, relation ^ 1)
            ends = fullness(numbers, counts.mean(relation ^ 1))
            is_loop = ids == head
            columns = [*features, *ends.T, is_loop, is_loop * counts.log_loops(relation)]
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

    def _choose(
        self,
        scores: list[torch.Tensor],
        known: NDArray[Any],
        true: NDArray[Any],
        part: Part | None,
    ) -> tuple[NDArray[np.int64], Doubles]:
        """Choose unknown tails of one row: the best by each predictor, the true ones, some others.

        Returns their ids, and how many entities each stands for.
        """
        number = len(scores[0])
        best = [np.asarray(true, dtype=np.int64)]
        for of in scores:
            best.append(of.topk(min(number, BEST + len(known))).indices.numpy())
        sure = np.setdiff1d(np.concatenate(best), known)
        if part is None:
            others = self.random.integers(number, size=OTHERS)
        else:
            number = self.limits[0]
            others = part.sample[self.random.integers(len(part.sample), size=OTHERS)]
        others = np.setdiff1d(others, np.union1d(sure, known))
        left = number - len(sure) - len(known)
        weights = np.concatenate(
            [np.ones(len(sure)), np.full(len(others), max(1.0, left / max(1, len(others))))]
        )
        return np.concatenate([sure, others]).astype(np.int64), weights

    # ---- how sure -------------------------------------------------------------------------------

    def probabilities(self, order: EdgeWeights) -> EdgeWeights:
        """Fit p, given s: rows that have tails, with or without missing ones, and rows without."""
        heads, relations = self._plausible_pairs(PAIRS)
        pieces, done = [], 0
        for rows in self._rows(heads, relations, order):
            block, counts = (rows.heads, rows.relations), rows.counts
            scores = rows.probabilities.scores(*block, counts)
            sums = log_sums(scores, counts.tails(*block), rows.probabilities.log_weights)
            of_heads = row_features(counts.numbers(*block), block[1], counts)
            of_rows = np.column_stack([sums, of_heads])
            tails = self._tails(rows, [scores], 0)
            features = np.column_stack([tails.features[:, :1], of_rows[tails.rows]])
            pieces.append(
                Tails(tails.rows + done, tails.ids, features, tails.weights, tails.is_edge)
            )
            done += len(block[0])
            self.progress(EDGES + done, EDGES + PAIRS)
        found = fit_logistic(_concatenate(pieces), validation_share(self.graph))
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
        is_new = [not len(self.known.neighbours(h, r)) for h, r in zip(*others, strict=True)]
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


def _numbers(counts: Counts, entities: NDArray[np.int64], relation: int) -> NDArray[np.int64]:
    """Return how many tails of a relation entities have."""
    heads, numbers = counts.heads(relation)
    places = np.searchsorted(heads, entities)
    places[places == len(heads)] = 0
    is_there = heads[places] == entities if len(heads) else np.zeros(len(entities), bool)
    return np.where(is_there, numbers[places] if len(heads) else 0, 0)


def _concatenate(pieces: Sequence[Tails]) -> Tails:
    names = ("rows", "ids", "features", "weights", "is_edge")
    return Tails(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in names))
