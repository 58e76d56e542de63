"""Answers by the distance of entities from the embedding of the whole question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from betae.answering.calibration import Calibration
from betae.answering.ranking import Found
from betae.answering.results import Method
from betae.errors import UnsupportedQuery
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, embed_queries
from betae.models.plan import UnionForm
from betae.queries.ast import Entity, Project, Query, nodes
from betae.search.approximate import Index
from betae.search.nearest import nearest

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
        """Yield the place of each query of ids with its nearest entities, one after another."""
        for place, asked in enumerate(zip(queries, known, ruled_out, numbers, strict=True)):
            yield place, self._find(*asked)

    def _find(self, query: Query, known: Ids, ruled_out: Ids, number: int) -> Found:
        """Return entities for a query of ids that the facts do not rule out, nearest first."""
        self._check_learned(query)
        self.model.require([query])
        with torch.no_grad():
            embedded = embed_queries(self.model, [query], self.union)
            uncertain = self.model.has_uncertainty
            entropy = float(self.model.uncertainty(embedded.sets).max()) if uncertain else None
        found = self._search(embedded, number + len(known) + len(ruled_out), known)
        found = replace(found, entropy=entropy).without(ruled_out)
        if self.calibration is None:
            return found
        assert found.distances is not None
        probabilities = self.calibration(found.distances, np.isin(found.ids, known))
        return replace(found, probabilities=probabilities)

    def _search(self, embedded: Embedded, number: int, known: Ids) -> Found:
        """Rank all entities; by an index, some `number` and the known ones that it has missed.

        These have their place by distance, but no rank: how many were missed before them is not
        known.
        """
        if self.index is None:
            distances, ids = nearest(self.model, embedded, self.table, len(self.table))
            return Found(ids[0], None, distances[0])
        number += CANDIDATES
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
