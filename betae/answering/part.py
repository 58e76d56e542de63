"""The completed graph around a question: some entities of a large graph, as a graph of their own.

All that is computed over it is exact but for two things. A row has the entities of the part alone,
so a missing edge to any other is left out. And ln sum exp s(t) over all entities, on which the
probabilities of a row depend, is taken over the part: a random sample of all entities is in it, of
whom each stands for as many others as there are for one.

How many edges of a relation an entity has is counted in the whole graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.completed import CompletedGraph
from betae.answering.edges import Counts, EdgeProbabilities, EdgeWeights
from betae.graph.edges import Adjacency, Edges
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import Names
from betae.models.base import QueryModel
from betae.models.execute import Embedded
from betae.queries.ast import Entity, Query
from betae.querysets.seeds import random_stream
from betae.search.nearest import nearest_of_all

OTHERS = 1000  # entities of the sample
TAILS = 200  # that a predictor proposes for a (head, relation), beside known ones
KNOWN = 10_000  # tails of a step that are taken, the first of them if there are more
CACHE_BYTES = 2**27  # for rows of a part
PAIRS_AT_ONCE = 2**22  # of a graph that is worked through in blocks
HEAVY = 10_000  # edges of an entity that are not all looked at

Entities = NDArray[np.int64]  # ids, ascending


@dataclass(frozen=True)
class Part:
    """Some entities of a graph, numbered anew in the order of their ids, and what is among them."""

    ids: Entities
    graph: KnowledgeGraph
    completed: CompletedGraph
    stands_for: NDArray[np.float64]  # how many entities, itself included

    @property
    def sample(self) -> Entities:
        """The places of the sample, who stand for others; all, if there are no others."""
        stand = np.flatnonzero(self.stands_for > 1)
        return stand if len(stand) else np.arange(self.completed.probabilities.num_entities)

    def local(self, query: Query) -> Query:
        """Return a query with the entities' numbers in the part."""
        if isinstance(query, Entity):
            return Entity(int(np.searchsorted(self.ids, int(query.name))))
        return query.with_operands(*map(self.local, query.operands))


class LargeGraph:
    """A graph and what completes it, too large to be completed but in parts."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        predictors: Sequence[QueryModel],
        weights: EdgeWeights,
        log_odds: float = 0.0,
        edges: Edges = "all",
    ):
        self.graph, self.edges, self.adjacency = graph, edges, graph.adjacency(edges)
        self.predictors, self.weights, self.log_odds = predictors, weights, log_odds
        self.num_learned = min(model.num_entities for model in predictors)
        self.num_heads, self.num_tails, self.num_loops = _by_relation(self.adjacency)
        size = min(OTHERS, self.num_learned)
        sample = random_stream(0, "others").choice(self.num_learned, size, replace=False)
        self.others = np.sort(sample)

    def known_tails(self, heads: Entities, relations: NDArray[Any]) -> Entities:
        """Return the known tails of some (head, relation), or as many of them as are taken."""
        tails: list[NDArray[Any]] = [heads[:0]]
        number = 0
        for head, relation in zip(heads.tolist(), relations.tolist(), strict=True):
            if number < KNOWN:
                tails.append(self.adjacency.neighbours(head, relation)[: KNOWN - number])
                number += len(tails[-1])
        return np.concatenate(tails).astype(np.int64)

    def part(self, ids: NDArray[Any]) -> Part:
        """Return the part with some entities, and with the sample of all others."""
        chosen = np.unique(ids).astype(np.int64)
        both = np.union1d(chosen, self.others)
        is_sampled = np.isin(both, chosen, invert=True)
        num_others = max(0, self.num_learned - int((chosen < self.num_learned).sum()))
        weight = max(1.0, num_others / max(1, int(is_sampled.sum())))
        stands_for = np.where(is_sampled, weight, 1.0)
        graph, adjacency = self.graph, _among(self.adjacency, both, self.graph.num_relations)
        nothing = np.empty((0, 3), dtype=np.int32)
        part = KnowledgeGraph(
            Names.from_strings([graph.entities[entity] for entity in both.tolist()]),
            graph.relations,
            {"train": nothing, "valid": nothing, "test": nothing},
            {"train": adjacency},
            Names.from_strings([graph.entity_labels[entity] for entity in both.tolist()])
            if graph.entity_labels is not None
            else None,
            graph.relation_labels,
            prefixes=graph.prefixes,
        )
        probabilities = _PartProbabilities(self, both, stands_for)
        counts = _PartCounts(self, both, adjacency)
        completed = CompletedGraph(part, probabilities, "train", CACHE_BYTES, counts)
        return Part(both, part, completed, stands_for)


class _PartProbabilities(EdgeProbabilities):
    """As of the whole graph, for the entities of a part."""

    def __init__(self, large: LargeGraph, ids: Entities, stands_for: NDArray[np.float64]):
        self.log_odds, self.predictors = large.log_odds, [*large.predictors]
        self.weights = replace(large.weights, whole=None)  # that takes all entities
        self.ids = ids
        self.num_entities = int(np.searchsorted(ids, large.num_learned))  # those come first
        self.num_relations = min(model.num_relations for model in large.predictors)
        learned = torch.from_numpy(ids[: self.num_entities])
        with torch.no_grad():
            self.tables = [model.table(learned) for model in large.predictors]
        log_weights = np.log(stands_for[: self.num_entities]).astype(np.float32)
        self.log_weights = torch.from_numpy(log_weights)

    def _ids(self, heads: NDArray[Any]) -> NDArray[Any]:
        ids: Entities = self.ids[heads]
        return ids


class _PartCounts(Counts):
    """Which tails in a part are known, and how many there are in the whole graph."""

    def __init__(self, large: LargeGraph, ids: Entities, adjacency: Adjacency):
        super().__init__(adjacency)
        self.large, self.ids = large, ids
        self.heads = cache(self.heads)  # type: ignore[method-assign]

    def numbers(self, heads: NDArray[Any], relations: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many known tails each (head, relation) has."""
        return numbers(self.large.adjacency, self.ids[heads], relations)

    def mean(self, relation: int) -> float:
        """Return how many tails of a relation the heads have that have any."""
        if relation >= len(self.large.num_heads) or not self.large.num_heads[relation]:
            return 1.0
        return float(self.large.num_tails[relation] / self.large.num_heads[relation])

    def log_loops(self, relation: int) -> float:
        """Return ln of the share of a relation's heads that have themselves for a tail."""
        is_there = relation < len(self.large.num_heads)
        number = self.large.num_heads[relation] if is_there else 0
        loops = self.large.num_loops[relation] if is_there else 0
        return math.log((loops + 0.5) / (number + 1))

    def heads(self, relation: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the heads in the part that have a tail of a relation, and how many they have."""
        found = self.numbers(np.arange(len(self.ids)), np.full(len(self.ids), relation))
        heads = np.flatnonzero(found)
        return heads.astype(np.int32), found[heads]


def projected(model: QueryModel, heads: Entities, relations: NDArray[Any]) -> torch.Tensor:
    """Return the sets that relations lead to from entities."""
    sets = model.embed_entities(torch.from_numpy(heads))
    return model.project(sets, torch.from_numpy(relations).long())


def likely_tails(model: QueryModel, heads: Entities, relations: NDArray[Any]) -> NDArray[np.int64]:
    """Return the best tails of each (head, relation), (n, up to 2 TAILS), by one pass over all."""
    with torch.no_grad():
        sets = projected(model, heads, relations)
    embedded = Embedded(sets, torch.arange(len(sets)), len(sets))
    return nearest_of_all(model, embedded, 2 * TAILS)[1]


def numbers(
    adjacency: Adjacency, heads: NDArray[Any], relations: NDArray[Any]
) -> NDArray[np.int64]:
    """Return how many tails each (head, relation) has."""
    pairs = adjacency.pairs(heads, relations)
    offsets = adjacency.tail_offsets
    return np.where(pairs >= 0, offsets[pairs + 1] - offsets[np.maximum(pairs, 0)], 0)


def _among(adjacency: Adjacency, ids: Entities, num_relations: int) -> Adjacency:
    """Return the edges among some entities, numbered anew.

    Edges are found from one of their ends: that of the two with few edges, if there is one.
    """
    starts = adjacency.tail_offsets[adjacency.head_offsets[ids]]
    lengths = adjacency.tail_offsets[adjacency.head_offsets[ids + 1]] - starts
    heavy, light = np.flatnonzero(lengths > HEAVY), np.flatnonzero(lengths <= HEAVY)
    starts, lengths = starts[light], lengths[light]
    places = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    tails = np.minimum(np.searchsorted(ids, adjacency.tails[places]), len(ids) - 1)
    is_here = ids[tails] == adjacency.tails[places]
    pairs = np.searchsorted(adjacency.tail_offsets, places[is_here], side="right") - 1
    edges = [np.repeat(light, lengths)[is_here], adjacency.relations[pairs], tails[is_here]]
    pieces = [np.stack(edges, axis=1)]
    for head in heavy.tolist():
        for pair in range(*adjacency.head_offsets[ids[head] : ids[head] + 2].tolist()):
            of_pair = adjacency.tails[slice(*adjacency.tail_offsets[pair : pair + 2].tolist())]
            found = np.searchsorted(of_pair, ids[heavy])
            tails = heavy[of_pair[np.minimum(found, len(of_pair) - 1)] == ids[heavy]]
            relation = int(adjacency.relations[pair])
            pieces.append(np.array([(head, relation, tail) for tail in tails]).reshape(-1, 3))
    heads, relations, tails = np.concatenate(pieces).T
    is_inverse = relations % 2 == 1
    written = [np.where(is_inverse, tails, heads), relations // 2]
    triples = np.stack([*written, np.where(is_inverse, heads, tails)], axis=1)
    triples = np.unique(triples.astype(np.int32), axis=0)
    return Adjacency.from_triples(triples, len(ids), num_relations // 2)


def _by_relation(adjacency: Adjacency) -> NDArray[np.int64]:
    """Return how many heads, edges and loops each relation has, (3, num_relations)."""
    number = int(adjacency.relations.max(initial=-1)) + 1
    found = np.zeros((3, number), dtype=np.int64)
    for start in range(0, len(adjacency.relations), PAIRS_AT_ONCE):
        pairs = slice(start, min(start + PAIRS_AT_ONCE, len(adjacency.relations)))
        relations = adjacency.relations[pairs]
        offsets = adjacency.tail_offsets[pairs.start : pairs.stop + 1]
        lengths = np.diff(offsets)
        heads = np.searchsorted(
            adjacency.head_offsets, np.arange(pairs.start, pairs.stop), side="right"
        )
        is_loop = np.repeat(heads - 1, lengths) == adjacency.tails[offsets[0] : offsets[-1]]
        found[0] += np.bincount(relations, minlength=number)
        found[1] += np.bincount(relations, lengths, minlength=number).astype(np.int64)
        found[2] += np.bincount(np.repeat(relations, lengths)[is_loop], minlength=number)
    return found
