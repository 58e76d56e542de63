"""ByParts: answers from a graph too large to complete, by completing the part around a question.

Entities are gathered step by step along the question: from each source of a step its known tails,
and the tails that the models' indexes propose for missing edges. The sources of the next step are
the most probable entities so far. The question is then evaluated over the gathered entities as over
a small graph, by the same code. Two things are approximate:

- A missing edge to an entity outside the part is left out.
- The log-partition of a row, ln sum exp s(t), is taken over the part. A random sample of all
  entities is in it, each weighted by the number of entities it represents.

The edges of an entity are counted in the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.completed import CompletedGraph
from betae.answering.derivations import Derivations
from betae.answering.edges import (
    Counts,
    EdgePredictors,
    EdgeProbabilities,
    as_triples,
    flat_ranges,
)
from betae.answering.identities import apply_identities
from betae.answering.results import Derived, Ranking, RankRequest, stable_argsort
from betae.answering.scores import project
from betae.answering.truth import NEGLIGIBLE, SOURCES, TruthTree, truth_trees
from betae.errors import UnsupportedQuery
from betae.evaluation.results import Method
from betae.graph.edges import Adjacency, Edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded
from betae.queries.ast import And, Condition, Entity, Not, Or, Project, Query, nodes
from betae.querysets.sample import random_stream
from betae.search import nearest_of_all

PART_SAMPLE = 1000  # entities of the random sample
PROPOSED_TAILS = 200  # that an index proposes for a (head, relation), beside known ones
MAX_MEMBERS = 10_000  # of a condition that is not joined with any other
MAX_KNOWN_TAILS = 10_000  # of a step; further ones are skipped
PART_CACHE_BYTES = 2**27
MANY_EDGES = 10_000  # entities with more are searched for edges by binary search

EntityIds = NDArray[np.int64]


# ---- the ranker ---------------------------------------------------------------------------------


class ByParts:
    """Rank the entities around a question by its truth values over the completed part."""

    method: Method = "completed"

    def __init__(self, large: LargeGraph):
        self.large = large

    def rank(self, requests: Sequence[RankRequest]) -> Iterator[tuple[int, Ranking]]:
        """Yield the index of each request with all gathered entities: see `QuestionRanker`."""
        queries = [apply_identities(request.query) for request in requests]
        for query in queries:
            _check_bounded(query)
        for i, query in enumerate(queries):
            part = self.large.part(self._gather(query))
            yield i, _ranking(part, _evaluated(part, query)).without(requests[i].ruled_out)

    def _gather(self, query: Query) -> EntityIds:
        """Return the entities that a query may lead to, including those on the way."""
        if isinstance(query, Entity):
            return np.array([int(query.name)])
        if isinstance(query, Condition):  # a large one only filters: see `_is_bounded`
            return (query.ids if _is_bounded(query) else query.ids[:0]).astype(np.int64)
        found = np.unique(np.concatenate([*map(self._gather, query.operands)]))
        if not isinstance(query, Project):
            return found
        if isinstance(query.operand, Entity):
            return np.union1d(found, self._tails(found, found, int(query.relation)))
        part = self.large.part(found)
        truth = _evaluated(part, query.operand).root[0]
        worth = truth * part.completed.promise(np.arange(len(truth)), int(query.relation))
        likely = np.flatnonzero(truth >= NEGLIGIBLE)
        sources = part.ids[likely[stable_argsort(-truth[likely])]]
        promising = part.ids[likely[stable_argsort(-worth[likely])[:SOURCES]]]
        return np.union1d(found, self._tails(sources, promising, int(query.relation)))

    def _tails(self, sources: EntityIds, promising: EntityIds, relation: int) -> EntityIds:
        """Return the known tails of all sources, and those proposed for the promising ones."""
        large, predictors = self.large, self.large.predictors
        tails = [large.known_tails(sources, np.full(len(sources), relation))]
        learned = promising[promising < predictors.num_entities]
        if not len(learned):
            return tails[0]
        relations = np.full(len(learned), relation)
        max_known = int(large.counts.num_tails(learned, relations).max())
        count = PROPOSED_TAILS + min(max_known, PROPOSED_TAILS)
        for model, index in zip(predictors.models, predictors.indexes, strict=True):
            if relation < model.num_relations:
                with torch.no_grad():
                    sets = project(model, learned, relations)
                    found = index.candidates(model.set_vectors(sets), count)
                tails.append(np.unique(found[(found >= 0) & (found < predictors.num_entities)]))
        return np.concatenate(tails)


def propose_tails(
    model: QueryModel, heads: NDArray[Any], relations: NDArray[Any]
) -> NDArray[np.int64]:
    """Return the nearest tails of each (head, relation), by one pass over all entities, (n, k)."""
    with torch.no_grad():
        sets = project(model, heads, relations)
    embedded = Embedded(sets, torch.arange(len(sets)), len(sets))
    return nearest_of_all(model, embedded, 2 * PROPOSED_TAILS)[1]


def _evaluated(part: Part, query: Query) -> TruthTree:
    ((_, tree),) = truth_trees(part.completed, [part.local(query)])
    return tree


def _ranking(part: Part, tree: TruthTree) -> Ranking:
    truth = tree.root[0]
    derivations = Derivations(part.graph, part.completed, tree)

    def explain(entity: int) -> Derived:
        return derivations(int(np.searchsorted(part.ids, entity)))

    order = stable_argsort(-truth)
    return Ranking(
        part.ids[order],
        truth[order].astype(np.float64),
        explain=explain,
        rest=float(truth @ (part.represents - 1)),
    )


def _check_bounded(query: Query) -> None:
    """Raise for a query that asks for nearly all entities, or for a step from them."""
    sources = [node.operand for node in nodes(query) if isinstance(node, Project)]
    for node in (query, *sources):
        if not _is_bounded(node):
            raise UnsupportedQuery(
                f"{node} holds for nearly all entities, and an index finds only some. Add a "
                "condition that is not negated, or answer without the index."
            )


def _is_bounded(query: Query) -> bool:
    match query:
        case Not():
            return False
        case Condition():
            return len(query.ids) <= MAX_MEMBERS
        case And():
            return any(map(_is_bounded, query.operands))
        case Or():
            return all(map(_is_bounded, query.operands))
    return True


# ---- parts of a graph ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Some entities of a graph and the edges among them; an entity's local id is its index."""

    ids: EntityIds  # ascending
    graph: KnowledgeGraph
    completed: CompletedGraph
    represents: NDArray[np.float64]  # number of entities that each represents, itself included

    def local(self, query: Query) -> Query:
        """Return a query with local ids of entities."""
        if isinstance(query, Entity):
            return Entity(int(np.searchsorted(self.ids, int(query.name))))
        if isinstance(query, Condition):
            is_member = np.isin(self.ids, query.ids)
            return query.with_members(np.flatnonzero(is_member).astype(np.int32))
        return query.with_operands(*map(self.local, query.operands))


class LargeGraph:
    """A graph that is completed in parts."""

    def __init__(self, graph: KnowledgeGraph, predictors: EdgePredictors, edges: Edges = "all"):
        # The embedding of a whole question would be compared with all entities.
        weights = replace(predictors.weights, whole=None)
        self.graph, self.predictors = graph, replace(predictors, weights=weights)
        self.adjacency = graph.adjacency(edges)
        self.counts = Counts(self.adjacency, fitted=graph.adjacency("train"))
        size = min(PART_SAMPLE, predictors.num_entities)
        sample = random_stream(0, "others").choice(predictors.num_entities, size, replace=False)
        self.sample = np.sort(sample)

    def known_tails(self, heads: EntityIds, relations: NDArray[Any]) -> EntityIds:
        """Return the known tails of each (head, relation), MAX_KNOWN_TAILS at most."""
        tails: list[NDArray[Any]] = [heads[:0]]
        left = MAX_KNOWN_TAILS
        for head, relation in zip(heads.tolist(), relations.tolist(), strict=True):
            if left > 0:
                tails.append(self.adjacency.neighbours(head, relation)[:left])
                left -= len(tails[-1])
        return np.concatenate(tails).astype(np.int64)

    def part(self, ids: NDArray[Any]) -> Part:
        """Return the part of these entities and of the random sample."""
        chosen = np.unique(ids).astype(np.int64)
        both = np.union1d(chosen, self.sample)
        is_sampled = np.isin(both, chosen, invert=True)
        num_learned = self.predictors.num_entities
        num_others = max(0, num_learned - int((chosen < num_learned).sum()))
        weight = max(1.0, num_others / max(1, int(is_sampled.sum())))
        represents = np.where(is_sampled, weight, 1.0)
        graph, adjacency = self.graph, _among(self.adjacency, both, self.graph.num_relations)
        nothing = np.empty((0, 3), dtype=np.int32)
        part = KnowledgeGraph(
            graph.entities.take(both),
            graph.relations,
            {"train": nothing, "valid": nothing, "test": nothing},
            {"train": adjacency},
            prefixes=graph.prefixes,
        )
        counts = _PartCounts(adjacency, self.counts, both, self.graph.num_relations)
        probabilities = EdgeProbabilities(self.predictors, counts, both, represents)
        return Part(
            both, part, CompletedGraph(part, probabilities, PART_CACHE_BYTES, graph), represents
        )


class _PartCounts(Counts):
    """Known tails in a part, with their counts in the whole graph."""

    def __init__(self, adjacency: Adjacency, whole: Counts, ids: EntityIds, num_relations: int):
        self.adjacency, self.whole, self.ids = adjacency, whole, ids
        is_same = whole.fitted is whole.adjacency
        self.fitted = adjacency if is_same else _among(whole.fitted, ids, num_relations)
        self.all_edges, self.all_fitted = whole.adjacency, whole.fitted
        self.totals, self.fitted_totals = whole.totals, whole.fitted_totals
        self.heads = cache(self.heads)  # type: ignore[method-assign]

    def num_tails(self, heads: NDArray[Any], relations: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of known tails of each (head, relation)."""
        return self.whole.num_tails(self.ids[heads], relations)

    def heads(self, relation: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the heads of a relation in the part, and their numbers of tails."""
        num_tails = self.whole.num_tails(self.ids, np.full(len(self.ids), relation))
        heads = np.flatnonzero(num_tails)
        return heads.astype(np.int32), num_tails[heads]


def _among(adjacency: Adjacency, ids: EntityIds, num_relations: int) -> Adjacency:
    """Return the edges among some entities, by local ids.

    An edge is found from an end with few edges; between two ends with many, by binary search.
    """
    degrees = adjacency.degrees(ids)
    heavy, light = np.flatnonzero(degrees > MANY_EDGES), np.flatnonzero(degrees <= MANY_EDGES)
    starts, lengths = adjacency.tail_offsets[adjacency.head_offsets[ids[light]]], degrees[light]
    indices = flat_ranges(starts, lengths)
    tails = np.minimum(np.searchsorted(ids, adjacency.tails[indices]), len(ids) - 1)
    is_inside = ids[tails] == adjacency.tails[indices]
    pairs = np.searchsorted(adjacency.tail_offsets, indices[is_inside], side="right") - 1
    heads = np.repeat(light, lengths)[is_inside]
    pieces = [np.column_stack([heads, adjacency.relations[pairs], tails[is_inside]])]
    for head in heavy.tolist():
        for pair in range(*adjacency.head_offsets[ids[head] : ids[head] + 2].tolist()):
            of_pair = adjacency.tails[slice(*adjacency.tail_offsets[pair : pair + 2].tolist())]
            found = np.searchsorted(of_pair, ids[heavy])
            tails = heavy[of_pair[np.minimum(found, len(of_pair) - 1)] == ids[heavy]]
            ends = np.full(len(tails), head), np.full(len(tails), adjacency.relations[pair])
            pieces.append(np.column_stack([*ends, tails]))
    triples = np.unique(as_triples(*np.concatenate(pieces).T).astype(np.int32), axis=0)
    return Adjacency.from_triples(triples, len(ids), num_relations // 2)
