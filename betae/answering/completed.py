"""CompletedGraph: known edges with probability 1, and a probability for every missing edge.

A row holds the probabilities of all tails of one (head, relation). Rows are computed when they are
needed, in batches, and kept in a cache of limited size.

`adjust_by_embedding` adds what the embedding of a whole question says. An answer that needs three
missing edges has the product of three small probabilities, which says little; the embedding,
learned from such questions, says more. Its softmax distributes the expected number n of missing
answers over the entities:

    V'(x) = V(x) + (1 - V(x)) w n share(x)     n = min(1, sum of V over uncertain entities)
    share(x) = exp(-scale distance(x)) / sum_y exp(-scale distance(y))

This is a noisy-or with one more derivation of x. It matters where no derivation is likely; what is
impossible or certain stays so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.calibration import candidates_of
from betae.answering.edges import FULLNESS, EdgeProbabilities, Floats, fullness, weighted
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Group, embed_queries, score_blocks
from betae.queries.ast import Project, Query, nodes
from betae.queries.structures import STRUCTURES, limits_of
from betae.querysets.sample import sample_queries

CACHE_BYTES = 2**29
CACHED_ROWS_PER_BATCH = 128  # scores of a batch fit into the processor's cache

MIN_EDGES = 3  # of a question, for its embedding to count
WEIGHT = 0.5  # w
MAX_SCALE = 10.0
SCALE_QUERIES = {"3p": 100, "3i": 100, "pi": 100, "ip": 100}  # validation queries for the scale


class CompletedGraph:
    """A graph with the probabilities of its missing edges."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        probabilities: EdgeProbabilities,
        cache_bytes: int = CACHE_BYTES,
        whole: KnowledgeGraph | None = None,
    ):
        self.whole = graph if whole is None else whole  # the graph that this is a part of
        self.num_entities = graph.num_entities
        self.probabilities, self.counts = probabilities, probabilities.counts
        self.adjacency = self.counts.adjacency
        num_rows = self.num_entities * graph.num_relations
        self.capacity = max(1, min(cache_bytes // (4 * max(1, self.num_entities)), num_rows))
        # Memory is taken page by page, as rows are written.
        self._rows = np.empty((self.capacity, self.num_entities), dtype=np.float32)
        self._slots: dict[int, int] = {}  # key of a (head, relation) -> index of its row
        self._free = list(range(self.capacity))

    def rows(
        self, heads: NDArray[Any], relations: NDArray[Any]
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Return the cache, and the index of the row of each (head, relation) in it.

        The pairs are distinct, and at most `capacity`. The next call may overwrite the rows.
        """
        assert len(heads) <= self.capacity
        keys = (relations.astype(np.int64) * self.num_entities + heads).tolist()
        missing = [i for i, key in enumerate(keys) if key not in self._slots]
        if missing:
            free = self._make_room(len(missing), keys)
            for start in range(0, len(missing), CACHED_ROWS_PER_BATCH):
                batch = np.array(missing[start : start + CACHED_ROWS_PER_BATCH])
                slots = free[start : start + CACHED_ROWS_PER_BATCH]
                self._rows[slots] = self.probabilities.rows(heads[batch], relations[batch])
                self._slots.update(zip((keys[i] for i in batch), slots, strict=True))
        for key in keys:  # most recently used last
            self._slots[key] = self._slots.pop(key)
        return self._rows, np.array([self._slots[key] for key in keys], dtype=np.int64)

    def probabilities_to(self, tail: int, heads: NDArray[Any], relation: int) -> Floats:
        """Return the probabilities of the edges of a relation from distinct heads to one tail."""
        found = [np.empty(0, dtype=np.float32)]
        for start in range(0, len(heads), self.capacity):
            batch = heads[start : start + self.capacity]
            rows, slots = self.rows(batch, np.full(len(batch), relation))
            found.append(rows[slots, tail])
        return np.concatenate(found)

    def promise(self, relation: int) -> Floats:
        """Return how promising each entity is as the source of a missing edge, at most 1.

        This is the factor by which its known tails lower the odds: 1 for an entity without any. It
        ranks sources before any row is computed.
        """
        factors = np.ones(self.num_entities, dtype=np.float32)
        heads, num_tails = self.counts.heads(relation)
        features = fullness(num_tails, self.counts.mean(relation))
        terms = weighted(features, FULLNESS, self.probabilities.weights.row)
        factors[heads] = np.exp(np.minimum(terms, 0))
        return factors

    def _make_room(self, num_rows: int, wanted: list[int]) -> list[int]:
        """Return free slots; the least recently used rows that are not wanted are dropped."""
        lacking = num_rows - len(self._free)
        if lacking > 0:
            kept = set(wanted)
            dropped = [key for key in self._slots if key not in kept]
            self._free += [self._slots.pop(key) for key in dropped[:lacking]]
        return [self._free.pop() for _ in range(num_rows)]


# ---- embeddings of whole questions --------------------------------------------------------------


def adjust_by_embedding(
    probabilities: EdgeProbabilities, values: Floats, structure: Query, symbols: Ids
) -> Floats:
    """Return truth values V' of queries of one structure, given V, (n, num_entities).

    The first model that scores edges embeds the queries, if a scale was fitted for it. Entities and
    relations that were added after training have no embedding: queries that name them are left
    unchanged, and such entities gain nothing.
    """
    scale = probabilities.weights.whole
    if scale is None:
        return values
    model, table = probabilities.predictors.models[0], probabilities.tables[0]
    num_edges = sum(isinstance(node, Project) for node in nodes(structure))
    limits = limits_of(structure, model.num_entities, model.num_relations)
    learned = np.flatnonzero((symbols < limits).all(axis=1))
    if num_edges < MIN_EDGES or not model.can(structure) or not len(learned):
        return values
    values = values.copy()
    of_learned = values[:, : len(table)]
    ids = torch.from_numpy(symbols[learned]).long()
    with torch.no_grad():
        embedded = embed_queries(model, [Group(structure, ids, torch.arange(len(ids)))])
        for rows, distances in score_blocks(model, embedded, table):
            shares = distances.float().mul_(-scale).softmax(dim=1).numpy()
            before = of_learned[learned[rows]]
            uncertain = np.where(before < 1, before, 0)
            expected = np.minimum(uncertain.sum(axis=1, keepdims=True), 1)
            gained = (1 - before) * (WEIGHT * expected) * shares
            of_learned[learned[rows]] += np.where(before > 0, gained, 0)
    return values


def fit_scale(model: QueryModel, graph: KnowledgeGraph) -> float | None:
    """Fit the scale of distances by maximum likelihood of the hard answers of validation queries.

    None if the model cannot embed such queries, or the graph has none.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and needed once

    counts = {name: count for name, count in SCALE_QUERIES.items() if model.can(STRUCTURES[name])}
    if not counts:
        return None
    queries = sample_queries(graph, counts, "valid", purpose="whole questions")
    queries = queries.within(model.num_entities, model.num_relations).with_hard_answers()
    found = [
        (distances[is_answer].astype(np.float64), distances.astype(np.float64))
        for distances, is_answer, _ in candidates_of(model, queries)
    ]
    if not found:
        return None

    def cost(log_scale: float) -> float:
        scale = -math.exp(log_scale)
        costs = [(np.logaddexp.reduce(scale * all_) - scale * hard).mean() for hard, all_ in found]
        return float(np.mean(costs))

    best = minimize_scalar(cost, bounds=(math.log(1e-4), math.log(MAX_SCALE)), method="bounded")
    return math.exp(best.x)
