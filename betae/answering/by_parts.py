"""Answers from the completed graph where that is too large: from the part of it around a question.

Entities are gathered step by step, as the question leads. For each source of a step, its known
tails, and those that the predictors' indexes propose for the missing edges. The sources of the next
step are the most probable of what was gathered so far. The question is then evaluated over these
entities as over a small graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import torch

from betae.answering.derivation import derive
from betae.answering.part import TAILS, Entities, LargeGraph, Part, numbers, projected
from betae.answering.ranking import Found, ascending
from betae.answering.results import Method, Step
from betae.answering.truth import (
    NEGLIGIBLE,
    SOURCES,
    Evaluation,
    best_derivations,
    evaluate,
    negations_inward,
)
from betae.errors import UnsupportedQuery
from betae.graph.edges import Ids
from betae.queries.ast import And, Entity, Not, Or, Project, Query, nodes
from betae.queries.structures import structure_of
from betae.search.approximate import Index


class ByParts:
    """Rank the entities around a question by its truth values over the completed graph."""

    method: Method = "completed"

    def __init__(self, large: LargeGraph, indexes: Sequence[Index]):
        self.large, self.indexes = large, indexes  # an index for each predictor

    def find_many(
        self,
        queries: Sequence[Query],
        known: Sequence[Ids],  # noqa: ARG002
        ruled_out: Sequence[Ids],
        numbers: Sequence[int],  # noqa: ARG002
    ) -> Iterator[tuple[int, Found]]:
        """Yield the place of each query of ids with the entities around it, best first."""
        for query in queries:
            _check_bounded(query)
        for place, query in enumerate(queries):
            part = self.large.part(self._gather(query))
            yield place, self._found(part, _evaluated(part, query)).without(ruled_out[place])

    def _found(self, part: Part, work: Evaluation) -> Found:
        truth = work.root.values[0]

        @cache
        def best() -> Evaluation:
            return best_derivations(part.completed, work)

        def explain(entity: int) -> Step:
            place = int(np.searchsorted(part.ids, entity))
            return derive(part.graph, part.completed, best(), place)

        order = ascending(-truth)
        return Found(
            part.ids[order],
            truth[order].astype(np.float64),
            explain=explain,
            rest=float(truth @ (part.stands_for - 1)),
        )

    # ---- gathering ------------------------------------------------------------------------------

    def _gather(self, query: Query) -> Entities:
        """Return the entities that a query may lead to, those on the way included."""
        if isinstance(query, Entity):
            return np.array([int(query.name)])
        found = np.unique(np.concatenate([*map(self._gather, query.operands)]))
        if not isinstance(query, Project):
            return found
        if isinstance(query.operand, Entity):
            return np.union1d(found, self._step(found, found, int(query.relation)))
        part = self.large.part(found)
        values = _evaluated(part, query.operand).root.values[0]
        worth = values * part.completed.promise(int(query.relation))
        likely = np.flatnonzero(values >= NEGLIGIBLE)
        chosen = likely[ascending(-worth[likely])[:SOURCES]]
        sources = part.ids[likely[ascending(-values[likely])]]
        return np.union1d(found, self._step(part.ids[chosen], sources, int(query.relation)))

    def _step(self, chosen: Entities, sources: Entities, relation: int) -> Entities:
        """Return known tails of sources, and those proposed for the missing edges of some."""
        tails = [self.large.known_tails(sources, np.full(len(sources), relation))]
        learned = chosen[chosen < self.large.num_learned]
        if not len(learned):
            return tails[0]
        relations = np.full(len(learned), relation)
        most = int(numbers(self.large.adjacency, learned, relations).max())
        for model, index in zip(self.large.predictors, self.indexes, strict=True):
            if relation < model.num_relations:
                with torch.no_grad():
                    sets = projected(model, learned, relations)
                    found = index.candidates(model.set_vectors(sets), TAILS + min(most, TAILS))
                tails.append(np.unique(found[(found >= 0) & (found < self.large.num_learned)]))
        return np.concatenate(tails)


def _evaluated(part: Part, query: Query) -> Evaluation:
    structure, symbols = structure_of(part.local(query))
    return evaluate(part.completed, structure, np.array([symbols], dtype=np.int32))


def _check_bounded(query: Query) -> None:
    """Raise for a query that asks for nearly all entities, or for what they lead to."""
    query = negations_inward(query)
    sources = [node.operand for node in nodes(query) if isinstance(node, Project)]
    for node in (query, *sources):
        if not _is_bounded(node):
            raise UnsupportedQuery(
                f"{node} holds of nearly all entities, of which an index finds some alone. Add a "
                "condition that is not negated, or leave out the index."
            )


def _is_bounded(query: Query) -> bool:
    match query:
        case Not():
            return False
        case And():
            return any(map(_is_bounded, query.operands))
        case Or():
            return all(map(_is_bounded, query.operands))
    return True
