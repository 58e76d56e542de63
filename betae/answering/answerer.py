"""Answerer: a trained run and its graph, ready for questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from betae.answering.ranking import SUREST, Found, are_among
from betae.answering.results import STATUSES, Answer, Answers, Method, Status
from betae.checks import check_choice, check_positive
from betae.errors import InvalidArgument
from betae.exact.answers import answers, answers_batch, refuted
from betae.graph.edges import EDGES, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Not, Query
from betae.queries.names import resolve, unresolve
from betae.queries.read import as_query, read_question
from betae.queries.structures import has_negation, structure_of
from betae.queries.trees import to_tree

TOP = 10  # answers unless another number is asked for


class Ranker(Protocol):
    """A way to rank entities: by the completed graph, or by embedding."""

    method: Method

    def find_many(
        self,
        queries: Sequence[Query],
        known: Sequence[Ids],
        ruled_out: Sequence[Ids],
        numbers: Sequence[int],
    ) -> Iterator[tuple[int, Found]]:
        """Rank entities for queries of ids; for each at least a number that are neither.

        Each comes with its place among the queries, in any order.
        """


class Asked(NamedTuple):
    """A question, and which of its answers are wanted: see `Answerer.answer`."""

    question: str | Query
    k: int | None = None
    status: Status | None = None
    threshold: float = 0.0
    explain: bool = False


class Answerer:
    """Answer questions of any shape: which entities, how probable, known or predicted, and why.

    `Run.answerer` makes one. `edges` says which edges of the graph count as known facts: all, or
    those of training, or those of training and validation.
    """

    def __init__(self, graph: KnowledgeGraph, ranker: Ranker, edges: Edges = "all"):
        check_choice("edges", edges, EDGES)
        self.graph, self.ranker, self.edges = graph, ranker, edges

    def answer(
        self,
        question: str | Query,
        k: int | None = None,
        *,
        status: Status | None = None,
        threshold: float = 0.0,
        explain: bool = False,
    ) -> Answers:
        """Return the k best answers to a question: logic text, SPARQL, or a tree.

        Without k, it is the LIMIT of SPARQL, or 10. Facts come first. `status` keeps only known,
        assumed or predicted ones, `threshold` only those that are at least that probable.
        """
        return self.answer_many([Asked(question, k, status, threshold, explain)])[0]

    def answer_many(self, asked: Sequence[Asked]) -> list[Answers]:
        """Return the answers to many questions, those of one structure found together."""
        results = dict(self.answer_each(asked))
        return [results[place] for place in range(len(asked))]

    def answer_each(self, asked: Sequence[Asked]) -> Iterator[tuple[int, Answers]]:
        """Yield the place of each question with its answers, as they are found, in any order."""
        if not asked:
            return
        queries, numbers = zip(*map(self._read, asked), strict=True)
        known = list(answers_batch(self.graph, queries, self.edges))
        ruled_out = [refuted(self.graph, query, self.edges) for query in queries]
        for place, found in self.ranker.find_many(queries, known, ruled_out, numbers):
            facts, k = known[place], numbers[place]
            yield place, self._answers(asked[place], queries[place], k, facts, found)

    def _answers(self, asked: Asked, query: Query, k: int, known: Ids, found: Found) -> Answers:
        """Choose the answers that are wanted of those that were found."""
        certain = known  # whatever facts are missing
        if has_negation(query):
            certain = refuted(self.graph, Not(query), self.edges)
        listed, expected = _list(found, known, certain), None
        if found.probabilities is not None:
            expected = float(listed.probabilities.sum()) + found.rest
        wanted = listed.wanted(k, asked.status, asked.threshold)
        by_all = known if self.edges == "all" else answers(self.graph, query, "all")
        return Answers(
            query=str(unresolve(query, self.graph)),
            answers=tuple(self._answer(listed, place, found, asked.explain) for place in wanted),
            method=self.ranker.method,
            edges=self.edges,
            num_known=len(known),
            num_by_all=len(by_all),
            num_assumed=len(known) - len(certain),
            expected=expected,
            entropy=found.entropy,
        )

    def _read(self, asked: Asked) -> tuple[Query, int]:
        """Return a question as a query of ids, and how many answers are wanted."""
        question, limit = asked.question, None
        if isinstance(question, str):
            read = read_question(question, self.graph.prefixes)
            question, limit = to_tree(read), read.limit
        query = resolve(as_query(question), self.graph)
        structure_of(query)  # raises if it has placeholders
        k = asked.k if asked.k is not None else TOP if limit is None else limit
        _check_arguments(k, asked.status, asked.threshold)
        return query, k

    def _answer(self, listed: _Listed, place: int, found: Found, explain: bool) -> Answer:
        entity, probability = int(listed.ids[place]), float(listed.probabilities[place])
        rank, distance = int(listed.ranks[place]) or None, float(listed.distances[place])
        if rank is None and found.rank_behind is not None:
            rank = found.rank_behind(entity)
        return Answer(
            self.graph.entities[entity],
            self.graph.entity_label(entity),
            rank,
            None if np.isnan(probability) else probability,
            tuple(STATUSES)[listed.statuses[place]],
            None if np.isnan(distance) else -distance,
            found.explain(entity) if explain and found.explain else None,
        )


class _Listed:
    """The entities that were found, facts first, as columns."""

    def __init__(
        self,
        ids: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        distances: NDArray[np.float64],
        ranks: NDArray[np.int64],
        statuses: NDArray[np.int8],
    ):
        order = np.argsort(statuses, kind="stable")
        self.ids, self.probabilities = ids[order], probabilities[order]
        self.distances, self.ranks, self.statuses = distances[order], ranks[order], statuses[order]

    def wanted(self, k: int, status: Status | None, threshold: float) -> list[int]:
        """Return the places of the first k entities that are asked for."""
        is_wanted = ~(self.probabilities < threshold)
        # By embedding, a calibrated probability of 0 still has a rank.
        is_wanted &= ~((self.probabilities == 0) & np.isnan(self.distances))
        if status is not None:
            is_wanted &= self.statuses == list(STATUSES).index(status)
        places: list[int] = np.flatnonzero(is_wanted)[:k].tolist()
        return places


def _list(found: Found, known: Ids, certain: Ids) -> _Listed:
    """Put known answers before predicted ones; those that the method did not find come in front."""
    missed = known[~are_among(known, found.ids)]
    ids, number = np.concatenate([missed, found.ids]), len(found.ids)
    statuses = np.full(len(ids), 2, dtype=np.int8)
    statuses[are_among(ids, known)] = 1
    statuses[are_among(ids, certain)] = 0

    def column(values: NDArray[np.floating] | None) -> NDArray[np.float64]:
        values = np.full(number, np.nan) if values is None else values
        return np.concatenate([np.full(len(missed), np.nan), values])

    probabilities = column(found.probabilities)
    if found.probabilities is not None:
        probabilities[np.isnan(probabilities)] = 1.0  # known answers that an index has missed
        probabilities = np.where(statuses == 0, 1.0, np.minimum(probabilities, SUREST))
    num_ranked = number if found.num_ranked is None else found.num_ranked
    places = np.arange(1, number + 1)
    ranks = np.concatenate([np.zeros(len(missed), np.int64), places * (places <= num_ranked)])
    listed = _Listed(ids, probabilities, column(found.distances), ranks, statuses)
    if found.distances is None:  # the order of the list is the order of the method
        listed.ranks = np.arange(1, len(ids) + 1)
    return listed


def _check_arguments(k: int, status: Status | None, threshold: float) -> None:
    check_positive("k", k, whole=True)
    if status is not None:
        check_choice("status", status, STATUSES)
    if not 0 <= threshold <= 1:
        raise InvalidArgument(f"threshold is {threshold!r}; it must be from 0 to 1.")
