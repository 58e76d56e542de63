"""ByEmbedding: rank entities by their distance from the embedding of the whole question.

With an index, only the nearest entities are found, approximately, and the table of all entities is
never built. Other entities are then approximated by a fixed random sample: their distances tell how
many answers the index may have left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.calibration import (
    LAST_RANKS,
    Calibration,
    Candidates,
    candidates_of,
    fit_curves,
)
from betae.answering.results import Ranking, RankRequest, are_among, smallest
from betae.errors import InvalidArgument, UnsupportedQuery
from betae.evaluation.ranks import EmbeddingRanker
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, embed_queries, score_blocks
from betae.queries.ast import Entity, Project, Query, nodes
from betae.queries.rewrite import UnionForm
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import random_stream, sample_queries
from betae.search import Index, Nearest, distances_to, nearest_of_all

DISTANCES_PER_BATCH = 2**21  # of all entities from a batch of queries
QUERIES_PER_BATCH = 128  # embedded together, with an index
CALIBRATED_RANKS = LAST_RANKS[-1]  # ranked beyond k, so that all others are of the last class
INDEX_CANDIDATES = 1000  # found by an index beyond the answers asked for
INDEX_SAMPLE = 1000  # entities of the random sample
CALIBRATION_QUERIES = 100  # of each structure


class ByEmbedding(EmbeddingRanker):
    """Rank entities by distance; with `search`, the nearest that an index finds.

    It answers questions, and can be evaluated as the `EmbeddingRanker` that it is.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        model: QueryModel,
        calibration: Calibration | None,
        search: IndexSearch | None = None,
        union: UnionForm = "DNF",
    ):
        super().__init__(model)
        self.graph, self.model, self.calibration = graph, model, calibration
        self.search, self.union = search, union

    def rank(self, requests: Sequence[RankRequest]) -> Iterator[tuple[int, Ranking]]:
        """Yield the index of each request with its nearest entities: see `QuestionRanker`."""
        queries = [request.query for request in requests]
        for query in queries:
            self._check_learned(query)
        self.model.require(queries)
        batch = QUERIES_PER_BATCH
        if self.search is None:
            batch = max(1, DISTANCES_PER_BATCH // self.model.num_entities)
        for start in range(0, len(queries), batch):
            with torch.no_grad():
                embedded = embed_queries(self.model, queries[start : start + batch], self.union)
                entropies: list[float | None] = [None] * embedded.num_queries
                if self.model.has_uncertainty:  # the largest of a query's branches
                    entropies = (-embedded.best(-self.model.uncertainty(embedded.sets))).tolist()
                if self.search is None:
                    blocks = score_blocks(self.model, embedded, self.table)
                    distances = torch.cat([block for _, block in blocks]).float().numpy(force=True)
            for row, rows in enumerate(embedded.rows_by_query()):
                request = requests[start + row]
                if self.search is None:
                    ranking = self._rank_all(distances[row], request)
                else:
                    ranking = self._rank_by_index(self.search, embedded.sets[rows], request)
                yield start + row, replace(ranking, entropy=entropies[row])

    def _rank_all(self, distances: NDArray[np.float32], request: RankRequest) -> Ranking:
        """Rank the nearest entities of a query, and the known ones, by the distances of all."""
        num_learned = len(distances)
        known, ruled_out = (ids[ids < num_learned] for ids in (request.known, request.ruled_out))

        def rank_of(entity: int) -> int | None:
            if entity >= num_learned:
                return None
            is_before = distances < distances[entity]
            is_before[:entity] |= distances[:entity] == distances[entity]
            return 1 + int(is_before.sum()) - int(is_before[ruled_out].sum())

        count = request.num_first + CALIBRATED_RANKS
        ids = smallest(distances, count, known)
        ranking = Ranking(ids, None, distances[ids], count, rank_of=rank_of).without(ruled_out)
        others = np.delete(distances, np.concatenate([ids, ruled_out]))
        return self._calibrated(ranking, known, others, LAST_RANKS[-1] + 1)

    def _rank_by_index(
        self, search: IndexSearch, sets: torch.Tensor, request: RankRequest
    ) -> Ranking:
        """Rank the near entities of a query; estimate the number of other answers."""
        known, ruled_out = request.known, request.ruled_out
        ranking = search.rank_near(sets, request.num_first, known).without(ruled_out)
        others, represents = search.distances_of_others(sets, np.union1d(ranking.ids, ruled_out))
        first_rank = max(0, len(ranking.ids) - len(known)) + 1
        return self._calibrated(ranking, known, others, first_rank, represents)

    def _calibrated(
        self,
        ranking: Ranking,
        known: Ids,
        others: NDArray[np.float32],
        rank_of_others: int,
        represents: float = 1.0,
    ) -> Ranking:
        """Add the probabilities, if the run has any; `others` are distances of the rest."""
        if self.calibration is None or ranking.distances is None:
            return ranking
        found = self.calibration(ranking.distances, are_among(ranking.ids, known))
        rest = self.calibration.at(others, np.full(len(others), rank_of_others))
        rest = np.minimum(rest, found.min(initial=1.0))  # probabilities fall by rank
        return replace(ranking, probabilities=found, rest=represents * float(rest.sum()))

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


class IndexSearch:
    """The nearest entities by an index, and a random sample that represents the others.

    A query is given by the sets of its branches, (num_branches, width).
    """

    def __init__(self, model: QueryModel, index: Index):
        self.model, self.index = model, index
        size = min(INDEX_SAMPLE, model.num_entities)
        sample = random_stream(0, "others").choice(model.num_entities, size, replace=False)
        self._sample = np.sort(sample)
        with torch.no_grad():
            self._table = model.table(torch.from_numpy(self._sample).to(model.entities.device))

    def rank_near(self, sets: torch.Tensor, count: int, known: Ids) -> Ranking:
        """Rank about `count` near entities of a query, and the known ones."""
        embedded = Embedded(sets, torch.zeros(len(sets), dtype=torch.long, device=sets.device), 1)
        distances, ids = self.index.nearest(self.model, embedded, count + INDEX_CANDIDATES)
        return self.rank_with_known(sets, (distances[0], ids[0]), known)

    def rank_with_known(self, sets: torch.Tensor, nearest: Nearest, known: Ids) -> Ranking:
        """Rank the nearest entities of a query, (k,) each, and the known ones not among them.

        Beyond the nearest, known entities are in order but have no rank: the index may have missed
        others before them.
        """
        is_found = nearest[1] >= 0
        near, ids = nearest[0][is_found], nearest[1][is_found]
        missed = np.setdiff1d(known[known < self.model.num_entities], ids).astype(np.int64)
        both = np.concatenate([near, distances_to(self.model, sets, missed)])
        num_ranked = int((both <= near.max(initial=-np.inf)).sum())
        ids = np.concatenate([ids, missed])
        order = np.lexsort((ids, both))
        return Ranking(ids[order], None, both[order], num_ranked)

    def distances_of_others(
        self, sets: torch.Tensor, excluded: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], float]:
        """Return distances of sampled entities, and the number of entities each represents."""
        is_other = ~are_among(self._sample, excluded)
        with torch.no_grad():
            distances = self.model.distance(sets, self._table).amin(dim=0)
        num_others = max(0, self.model.num_entities - len(excluded))
        return distances.numpy(force=True)[is_other], num_others / max(1, int(is_other.sum()))


# ---- calibration --------------------------------------------------------------------------------


def calibrate(
    model: QueryModel, graph: KnowledgeGraph, search: IndexSearch | None = None
) -> Calibration:
    """Fit probabilities on validation queries of all structures that the model can embed.

    With an index, on the nearest entities and a sample that represents the others.
    """
    names = [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])]
    counts = dict.fromkeys(names, CALIBRATION_QUERIES)
    queries = sample_queries(graph, counts, "valid", purpose="calibration")
    queries = queries.within(model.num_entities, model.num_relations)
    if not len(queries):
        raise InvalidArgument("The validation edges give no queries to fit probabilities on.")
    if search is None:
        return fit_curves(lambda: candidates_of(model, queries))
    candidates = [*_candidates_by_index(search, queries)]
    return fit_curves(lambda: candidates)


def _candidates_by_index(search: IndexSearch, queries: QuerySet) -> Iterator[Candidates]:
    """Yield the nearest entities of each query and a sample of the others, without easy answers.

    The nearest entities come from one exact pass over all entities: the index finds nearly the
    same ones, but searching it for each query takes far longer.
    """
    with torch.no_grad():
        embedded = embed_queries(search.model, [query for query, _, _ in queries])
    nearest = nearest_of_all(search.model, embedded, INDEX_CANDIDATES)
    of_queries = zip(queries, embedded.rows_by_query(), *nearest, strict=True)
    for (_, easy, hard), rows, distances, ids in of_queries:
        sets = embedded.sets[rows]
        near = search.rank_with_known(sets, (distances, ids), hard).without(easy)
        assert near.distances is not None
        others, represents = search.distances_of_others(sets, np.union1d(near.ids, easy))
        yield Candidates(
            np.concatenate([near.distances, others]),
            np.concatenate([are_among(near.ids, hard), np.zeros(len(others), bool)]),
            np.concatenate([np.ones(len(near.ids)), np.full(len(others), represents)]),
        )
