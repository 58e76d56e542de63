"""Answers by the distance of entities from the embedding of the whole question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from betae.answering.calibration import Calibration
from betae.answering.ranking import Found, are_among, ascending
from betae.answering.results import Method
from betae.errors import UnsupportedQuery
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, embed_queries, score_blocks
from betae.models.plan import UnionForm
from betae.queries.ast import Entity, Project, Query, nodes
from betae.search.approximate import Index

DISTANCES_AT_ONCE = 2**21  # of all entities from a batch of queries
CANDIDATES = 1000  # that an index finds beside the answers asked for, to estimate their number


class ByEmbedding:
    """Rank entities by distance; with an index, the nearest ones only, found approximately."""

    method: Method = "embedding"

    def __init__(
        self,
        graph: KnowledgeGraph,
        model: QueryModel,
        calibration: Calibration | None,
        index: Index | None = None,
        union: UnionForm = "DNF",
    ):
        self.graph, self.model, self.calibration, self.index = graph, model, calibration, index
        self.union = union
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
        at_once = max(1, DISTANCES_AT_ONCE // len(self.table))
        for start in range(0, len(queries), at_once):
            with torch.no_grad():
                embedded = embed_queries(self.model, queries[start : start + at_once], self.union)
                entropies = self._entropies(embedded)
            ranked = self._rank_all(embedded) if self.index is None else None
            for row, rows in enumerate(embedded.rows_by_query()):
                place = start + row
                if ranked is not None:
                    found = ranked[row]
                else:
                    one = Embedded(embedded.sets[rows], torch.zeros_like(rows), 1)
                    number = numbers[place] + len(known[place]) + len(ruled_out[place])
                    found = self._search_index(one, number, known[place])
                found = replace(found, entropy=entropies[row]).without(ruled_out[place])
                yield place, self._calibrated(found, known[place])

    def _calibrated(self, found: Found, known: Ids) -> Found:
        """Add the probabilities, if the run has any."""
        if self.calibration is None:
            return found
        assert found.distances is not None
        probabilities = self.calibration(found.distances, are_among(found.ids, known))
        return replace(found, probabilities=probabilities)

    def _rank_all(self, embedded: Embedded) -> list[Found]:
        """Rank all entities for each query."""
        with torch.no_grad():
            blocks = [block for _, block in score_blocks(self.model, embedded, self.table)]
        distances = torch.cat(blocks).float().numpy(force=True)
        orders = map(ascending, distances)
        return [Found(ids, None, row[ids]) for ids, row in zip(orders, distances, strict=True)]

    def _entropies(self, embedded: Embedded) -> list[float | None]:
        """Return the entropy of each query, the largest of its branches."""
        if not self.model.has_uncertainty:
            return [None] * embedded.num_queries
        values = -embedded.best(-self.model.uncertainty(embedded.sets))
        entropies: list[float | None] = values.tolist()
        return entropies

    def _search_index(self, embedded: Embedded, number: int, known: Ids) -> Found:
        """Return some `number` of near entities for a query, and the known ones that were missed.

        These have their place by distance, but no rank: how many were missed before them is not
        known.
        """
        number += CANDIDATES
        assert self.index is not None
        distances, ids = self.index.nearest(self.model, embedded, self.table, number)
        near, ids = distances[0][ids[0] >= 0], ids[0][ids[0] >= 0]
        missed = np.setdiff1d(known[known < len(self.table)], ids)
        with torch.no_grad():
            theirs = self.model.distance(embedded.sets, self.table[missed]).amin(dim=0)
        both = np.concatenate([near, theirs.numpy(force=True)])
        num_ranked = int((both <= near.max(initial=-np.inf)).sum())
        ids = np.concatenate([ids, missed])
        order = np.lexsort((ids, both))
        return Found(ids[order], None, both[order], num_ranked)

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
