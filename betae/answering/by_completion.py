"""Answers from the completed graph: the truth value of an entity is its probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from betae.answering.completed import CompletedGraph
from betae.answering.derivation import derive
from betae.answering.ranking import SUREST, Found, first
from betae.answering.results import Method, Step
from betae.answering.truth import Evaluation, best_derivations, evaluate
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.execute import group_queries
from betae.queries.ast import Entity, Project, Query, nodes

VALUES_AT_ONCE = 2**21  # truth values of a node, for a batch of queries


class ByCompletion:
    """Rank all entities by the truth values of a question over the completed graph."""

    method: Method = "completed"

    def __init__(self, graph: KnowledgeGraph, completed: CompletedGraph):
        self.graph, self.completed = graph, completed

    def find_many(
        self,
        queries: Sequence[Query],
        known: Sequence[Ids],
        ruled_out: Sequence[Ids],
        numbers: Sequence[int],
    ) -> Iterator[tuple[int, Found]]:
        """Yield the place of each query of ids with its best entities, and all known ones.

        Those that the facts rule out are left out. Queries of one structure are evaluated together,
        so they come in another order.
        """
        self._make_first_rows(queries)
        for group in group_queries(queries):
            symbols, places = group.symbols.numpy().astype(np.int32), group.positions.tolist()
            at_once = queries_at_once(self.completed)
            for start in range(0, len(places), at_once):
                some = slice(start, start + at_once)
                work = evaluate(self.completed, group.structure, symbols[some])
                for row, place in enumerate(places[some]):
                    facts = known[place], ruled_out[place]
                    yield place, self._found(work.of_query(row), *facts, numbers[place])

    def _make_first_rows(self, queries: Sequence[Query]) -> None:
        """Make the rows of the entities that are named in one go, whatever the structures."""
        pairs = {
            (int(node.operand.name), int(node.relation))
            for query in queries
            for node in nodes(query)
            if isinstance(node, Project) and isinstance(node.operand, Entity)
        }
        if pairs:
            heads, relations = np.array(sorted(pairs)[: self.completed.capacity]).T
            self.completed.rows(heads, relations)

    def _found(self, work: Evaluation, known: Ids, ruled_out: Ids, number: int) -> Found:
        """Return at least a number of unknown entities for the one query that was evaluated."""
        truth = work.root.values[0]

        @cache
        def best() -> Evaluation:
            return best_derivations(self.completed, work)

        def explain(entity: int) -> Step:
            return derive(self.graph, self.completed, best(), entity)

        ids = first(-truth, number + len(known) + len(ruled_out), known)
        others = np.minimum(truth, np.float32(SUREST))
        others[ids] = others[ruled_out] = 0
        rest = float(others.sum(dtype=np.float64))
        found = Found(ids, truth[ids].astype(np.float64), explain=explain, rest=rest)
        return found.without(ruled_out)


def queries_at_once(completed: CompletedGraph) -> int:
    """Return how many queries to evaluate together."""
    return min(128, max(8, VALUES_AT_ONCE // completed.num_entities))
