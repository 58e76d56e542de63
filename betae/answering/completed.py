"""CompletedGraph: known edges with probability 1, and a probability for every missing edge.

A row holds the probabilities of all tails of one (head, relation). Rows are computed when they are
needed, in batches, and kept in a cache of limited size. They are sparse by rules alone, else dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.answering.edges import FULLNESS, EdgeProbabilities, Floats, fullness, weighted
from betae.answering.sparse import RowCache, SparseProbabilities
from betae.graph.graph import KnowledgeGraph

CACHE_BYTES = 2**29
CACHED_ROWS_PER_BATCH = 128  # scores of a batch fit into the processor's cache


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
        self.sparse: RowCache | None = None  # instead of dense rows
        num_rows = self.num_entities * graph.num_relations
        if isinstance(probabilities, SparseProbabilities):
            self.sparse, num_rows = RowCache(probabilities, cache_bytes), 1
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
        if self.sparse is not None:
            return self.sparse.probabilities_to(tail, heads, relation)
        found = [np.empty(0, dtype=np.float32)]
        for start in range(0, len(heads), self.capacity):
            batch = heads[start : start + self.capacity]
            rows, slots = self.rows(batch, np.full(len(batch), relation))
            found.append(rows[slots, tail])
        return np.concatenate(found)

    def prefetch(self, heads: NDArray[Any], relations: NDArray[Any]) -> None:
        """Compute the rows of distinct (head, relation) together, as many as the cache holds."""
        if self.sparse is None:
            self.rows(heads[: self.capacity], relations[: self.capacity])
            return
        for start in range(0, len(heads), CACHED_ROWS_PER_BATCH):
            batch = slice(start, start + CACHED_ROWS_PER_BATCH)
            self.sparse.rows(heads[batch], relations[batch])

    def promise(self, entities: NDArray[Any], relation: int) -> Floats:
        """Return how promising entities are as the source of a missing edge, at most 1.

        This is the factor by which their known tails lower the odds: 1 for an entity without any.
        It ranks sources before any row is computed.
        """
        num_tails = self.counts.num_tails(entities, np.full(len(entities), relation))
        features = fullness(num_tails, self.counts.mean(relation))
        terms = weighted(features, FULLNESS, self.probabilities.weights.row)
        factors: Floats = np.exp(np.minimum(terms, 0))
        return factors

    def _make_room(self, num_rows: int, wanted: list[int]) -> list[int]:
        """Return free slots; the least recently used rows that are not wanted are dropped."""
        lacking = num_rows - len(self._free)
        if lacking > 0:
            kept = set(wanted)
            dropped = [key for key in self._slots if key not in kept]
            self._free += [self._slots.pop(key) for key in dropped[:lacking]]
        return [self._free.pop() for _ in range(num_rows)]
