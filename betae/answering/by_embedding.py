"""Answers by the distance of entities from the embedding of the whole question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.by_index import IndexSearch
from betae.answering.calibration import LAST_RANKS, Calibration
from betae.answering.ranking import Found, are_among, first
from betae.answering.results import Method
from betae.errors import UnsupportedQuery
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, embed_queries, score_blocks
from betae.models.plan import UnionForm
from betae.queries.ast import Entity, Project, Query, nodes

DISTANCES_AT_ONCE = 2**21  # of all entities from a batch of queries
CANDIDATES = LAST_RANKS[-1]  # found beside the answers asked for, to estimate their number
QUERIES_AT_ONCE = 128  # embedded together, if an index finds the entities


class ByEmbedding:
    """Rank entities by distance; with an index, the nearest ones only, found approximately.

    With an index the table of all entities is never made.
    """

    method: Method = "embedding"

    def __init__(
        self,
        graph: KnowledgeGraph,
        model: QueryModel,
        calibration: Calibration | None,
        search: IndexSearch | None = None,
        union: UnionForm = "DNF",
    ):
        self.graph, self.model, self.calibration, self.search = graph, model, calibration, search
        self.union = union
        if search is None:
            with torch.no_grad():
                self.table = model.table()

    def find_many(
        self,
        queries: Sequence[Query],
        known: Sequence[Ids],
        ruled_out: Sequence[Ids],
        numbers: Sequence[int],
    ) -> Iterator[tuple[int, Found]]:
        """Yield the place of each query of ids with its nearest entities, many found together.

        Those that the facts rule out are left out.
        """
        for query in queries:
            self._check_learned(query)
        self.model.require(queries)
        at_once = QUERIES_AT_ONCE
        if self.search is None:
            at_once = max(1, DISTANCES_AT_ONCE // self.model.num_entities)
        for start in range(0, len(queries), at_once):
            with torch.no_grad():
                embedded = embed_queries(self.model, queries[start : start + at_once], self.union)
                entropies = self._entropies(embedded)
            distances = self._distances(embedded) if self.search is None else None
            for row, rows in enumerate(embedded.rows_by_query()):
                place = start + row
                facts = known[place], ruled_out[place]
                number = numbers[place] + sum(map(len, facts))
                if distances is not None:
                    found = self._search_all(distances[row], number + CANDIDATES, *facts)
                else:
                    one = Embedded(embedded.sets[rows], torch.zeros_like(rows), 1)
                    found = self._search_index(one, number, *facts)
                yield place, replace(found, entropy=entropies[row])

    def _search_index(self, embedded: Embedded, number: int, known: Ids, ruled_out: Ids) -> Found:
        """Return near entities for a query, and how many answers there may be beside them."""
        assert self.search is not None
        found = self.search.near(embedded, number, known)
        found = self._calibrated(found.without(ruled_out), known)
        if self.calibration is None or found.probabilities is None:
            return found
        seen = np.union1d(found.ids, ruled_out)
        others, stands_for = self.search.others(embedded, seen)
        ranks = np.full(len(others), max(0, len(found.ids) - len(known)) + 1)
        chances = self.calibration.at(others, ranks)
        chances = np.minimum(chances, found.probabilities.min(initial=1))  # they never rise
        return replace(found, rest=stands_for * float(chances.sum()))

    def _calibrated(self, found: Found, known: Ids) -> Found:
        """Add the probabilities, if the run has any."""
        if self.calibration is None:
            return found
        assert found.distances is not None
        probabilities = self.calibration(found.distances, are_among(found.ids, known))
        return replace(found, probabilities=probabilities)

    def _distances(self, embedded: Embedded) -> NDArray[np.float32]:
        """Return the distances of all entities from each query, (num_queries, num_entities)."""
        with torch.no_grad():
            blocks = [block for _, block in score_blocks(self.model, embedded, self.table)]
        distances: NDArray[np.float32] = torch.cat(blocks).float().numpy(force=True)
        return distances

    def _search_all(
        self, distances: NDArray[np.float32], number: int, known: Ids, ruled_out: Ids
    ) -> Found:
        """Return at least a `number` of the nearest entities for a query, and the known ones."""
        learned = len(distances)
        known, ruled_out = known[known < learned], ruled_out[ruled_out < learned]

        def rank_behind(entity: int) -> int | None:
            if entity >= learned:
                return None
            is_before = distances < distances[entity]
            is_before[:entity] |= distances[:entity] == distances[entity]
            return 1 + int(is_before.sum()) - int(is_before[ruled_out].sum())

        ids = first(distances, number, known)
        found = Found(ids, None, distances[ids], number, rank_behind=rank_behind)
        found = self._calibrated(found.without(ruled_out), known)
        if self.calibration is None or found.probabilities is None:
            return found
        is_other = np.ones(learned, dtype=bool)
        is_other[ids] = is_other[ruled_out] = False
        least = found.probabilities.min(initial=1.0)
        return replace(found, rest=self.calibration.sum_behind(distances[is_other], least))

    def _entropies(self, embedded: Embedded) -> list[float | None]:
        """Return the entropy of each query, the largest of its branches."""
        if not self.model.has_uncertainty:
            return [None] * embedded.num_queries
        values = -embedded.best(-self.model.uncertainty(embedded.sets))
        entropies: list[float | None] = values.tolist()
        return entropies

    def _check_learned(self, query: Query) -> None:
        """Raise for entities and relations that were added to the graph after training."""
        new = []
        for node in nodes(query):
            if isinstance(node, Entity) and int(node.name) >= self.model.num_entities:
                new.append(self.graph.entities[int(node.name)])
            elif isinstance(node, Project) and int(node.relation) >= self.model.num_relations:
                new.append(self.graph.relations[int(node.relation) // 2])
        if new:
            raise UnsupportedQuery(
                f"{', '.join(dict.fromkeys(new))} came to the graph after training, so the model "
                "has no embedding of it. The completed graph answers by its known edges: use "
                "method = 'completed'."
            )
