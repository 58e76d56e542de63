"""Answerer: a trained model and its graph, ready for questions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.calibration import Calibration, Probabilities
from betae.answering.explain import Explainer
from betae.answering.ranking import NOTHING, Ranking
from betae.answering.results import Answer, Answers, Status
from betae.answering.unseen import seen_form, union_of, unseen_names
from betae.checks import check_choice, check_positive
from betae.errors import InvalidArgument
from betae.exact.answers import answers, refuted
from betae.graph.edges import EDGES, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, embed_queries
from betae.models.plan import UnionForm
from betae.queries.ast import Query
from betae.queries.names import resolve, unresolve
from betae.queries.read import as_query
from betae.queries.structures import structure_of
from betae.search.approximate import Index
from betae.search.nearest import nearest

EMPTY_BELOW = 0.5  # expected answers
CANDIDATES = 1000  # that an index finds beside the answers asked for, to estimate their number


class Answerer:
    """Answer questions of any shape: which entities, how probable, known or predicted, and why.

    `Run.answerer` makes one. `edges` says which edges of the graph count as known facts: those that
    the model was trained on, or also the validation edges, or all. With an `index` the search is
    approximate.
    """

    def __init__(
        self,
        model: QueryModel,
        graph: KnowledgeGraph,
        calibration: Calibration,
        edges: Edges = "train",
        index: Index | None = None,
    ):
        check_choice("edges", edges, EDGES)
        self.model, self.graph, self.calibration = model.eval(), graph, calibration
        self.edges, self.index = edges, index
        with torch.no_grad():
            self.table = model.table()

    def answer(
        self,
        question: str | Query,
        k: int = 10,
        *,
        status: Status | None = None,
        threshold: float = 0.0,
        union: UnionForm = "DNF",
        explain: bool = False,
    ) -> Answers:
        """Return the k best answers to a question: logic text, SPARQL, or a tree.

        `status` keeps only the known or only the predicted ones, `threshold` only those that are at
        least that probable.
        """
        _check_arguments(k, status, threshold)
        query = self._read(question)
        known = answers(self.graph, query, self.edges)
        ruled_out = refuted(self.graph, query, self.edges)
        embedded = self._embed(query, union)
        found = NOTHING
        if embedded is not None:
            found = self._search(embedded, k + len(ruled_out) + len(known), known)
        ranking = found.without(ruled_out).with_known(known)
        is_known = np.isin(ranking.ids, known)
        probabilities = self.calibration(ranking.distances, is_known)
        expected = float(probabilities.sum()) if len(found) else None
        is_wanted = probabilities >= threshold
        if status is not None:
            is_wanted &= is_known == (status == "known")
        places = np.flatnonzero(is_wanted)[:k].tolist()
        explainer = self._explainer(union) if explain else None
        return Answers(
            str(unresolve(query, self.graph)),
            self._list(places, ranking, probabilities, is_known, query, explainer),
            len(known),
            expected,
            self._uncertainty(embedded),
            expected is not None and expected < EMPTY_BELOW,
            tuple(unseen_names(query, self.model, self.graph)),
        )

    def _read(self, question: str | Query) -> Query:
        """Return a question as a query of ids."""
        query = resolve(as_query(question), self.graph)
        structure_of(query)  # raises if it has placeholders
        return query

    def _embed(self, query: Query, union: UnionForm) -> Embedded | None:
        """Embed a query, or return None if only the facts can answer it."""
        seen = seen_form(query, self.model, self.graph, self.edges)
        if seen is None:
            return None
        with torch.no_grad():
            return embed_queries(self.model, [seen], union_of(query, self.model, union))

    def _uncertainty(self, embedded: Embedded | None) -> float | None:
        if embedded is None or not self.model.has_uncertainty:
            return None
        with torch.no_grad():
            return float(self.model.uncertainty(embedded.sets).max())

    def _search(self, embedded: Embedded, number: int, known: Ids) -> Ranking:
        """Rank all entities that are embedded; by an index, some `number` and the known ones."""
        if self.index is None:
            distances, ids = nearest(self.model, embedded, self.table, len(self.table))
            return Ranking.of(ids[0], distances[0])
        number += CANDIDATES
        distances, ids = self.index.nearest(self.model, embedded, self.table, number)
        ranking = Ranking.of(ids[0], distances[0])
        missed = np.setdiff1d(known[known < len(self.table)], ranking.ids)
        if not len(missed):
            return ranking
        with torch.no_grad():
            theirs = self.model.distance(embedded.sets, self.table[missed]).amin(dim=0)
        return ranking.with_missed(missed, theirs.numpy(force=True))

    def _explainer(self, union: UnionForm) -> Explainer:
        return Explainer(self.model, self.table, self.graph, self.edges, self.calibration, union)

    def _list(
        self,
        places: list[int],
        ranking: Ranking,
        probabilities: Probabilities,
        is_known: NDArray[np.bool_],
        query: Query,
        explainer: Explainer | None,
    ) -> tuple[Answer, ...]:
        """Return the entities at some places of a ranking as answers."""
        entities = ranking.ids[places].tolist()
        return tuple(
            Answer(
                self.graph.entities[entity],
                self.graph.entity_label(entity),
                ranking.rank(place),
                ranking.score(place),
                float(probabilities[place]),
                "known" if is_known[place] else "predicted",
                explainer.explain(query, entity) if explainer else None,
            )
            for place, entity in zip(places, entities, strict=True)
        )


def _check_arguments(k: int, status: Status | None, threshold: float) -> None:
    check_positive("k", k, whole=True)
    if status is not None:
        check_choice("status", status, ("known", "predicted"))
    if not 0 <= threshold <= 1:
        raise InvalidArgument(f"threshold is {threshold!r}; it must be from 0 to 1.")
