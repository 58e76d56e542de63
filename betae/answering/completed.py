"""CompletedGraph: the graph with a probability for every edge that it lacks, computed row by row.

A row holds the probabilities of all tails of one (head, relation). Rows are made when they are
needed, many at a time, and kept in a cache of a fixed number of bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.answering.edges import (
    FULLNESS,
    Counts,
    EdgeProbabilities,
    Floats,
    fullness,
    weighted,
)
from betae.answering.whole import WholeQuestions
from betae.graph.edges import Adjacency, Edges
from betae.graph.graph import KnowledgeGraph

CACHE_BYTES = 2**29
ROWS_AT_ONCE = 128  # computed together: a block of scores that fits into the processor's cache


class CompletedGraph:
    """The edges of a graph that count as known, and the probabilities of all others."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        probabilities: EdgeProbabilities,
        edges: Edges = "all",
        cache_bytes: int = CACHE_BYTES,
        counts: Counts | None = None,
    ):
        self.num_entities = graph.num_entities
        self.adjacency: Adjacency = graph.adjacency(edges)
        self.probabilities, self.counts = probabilities, counts or Counts(self.adjacency)
        self.whole = WholeQuestions.of(probabilities)
        num_rows = self.num_entities * graph.num_relations
        self.capacity = max(1, min(cache_bytes // (4 * max(1, self.num_entities)), num_rows))
        # Memory is taken page by page, as rows are written.
        self._rows = np.empty((self.capacity, self.num_entities), dtype=np.float32)
        self._slots: dict[int, int] = {}  # key of a (head, relation) -> where its row is
        self._free = list(range(self.capacity))

    def rows(
        self, heads: NDArray[Any], relations: NDArray[Any]
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Return an array of rows, and which of them are those of some distinct (head, relation).

        At most `capacity` at a time. The array is the cache: the next call may change it.
        """
        assert len(heads) <= self.capacity
        keys = (relations.astype(np.int64) * self.num_entities + heads).tolist()
        missing = [place for place, key in enumerate(keys) if key not in self._slots]
        if missing:
            free = self._make_room(len(missing), keys)
            for start in range(0, len(missing), ROWS_AT_ONCE):
                places = np.array(missing[start : start + ROWS_AT_ONCE])
                slots = free[start : start + ROWS_AT_ONCE]
                self._rows[slots] = self.probabilities.rows(
                    heads[places], relations[places], self.counts, self.num_entities
                )
                self._slots.update(zip((keys[place] for place in places), slots, strict=True))
        for key in keys:  # used last: the last to go
            self._slots[key] = self._slots.pop(key)
        return self._rows, np.array([self._slots[key] for key in keys], dtype=np.int64)

    def edges_to(self, tail: int, heads: NDArray[Any], relation: int) -> Floats:
        """Return the probabilities of the edges of a relation from distinct heads to one tail."""
        found = np.empty(len(heads), dtype=np.float32)
        for start in range(0, len(heads), self.capacity):
            some = heads[start : start + self.capacity]
            rows, slots = self.rows(some, np.full(len(some), relation))
            found[start : start + self.capacity] = rows[slots, tail]
        return found

    def promise(self, relation: int) -> Floats:
        """Return how many times likelier or less likely full heads are to lack an edge, at most 1.

        One factor for each entity: 1 unless it has tails of the relation already. It says which
        sources are worth a row before any row is made.
        """
        factors = np.ones(self.num_entities, dtype=np.float32)
        heads, numbers = self.counts.heads(relation)
        weights = self.probabilities.weights.row
        of_head = np.array([weights[name] for name in FULLNESS], dtype=np.float32)
        terms = weighted(fullness(numbers, self.counts.mean(relation)), of_head)
        factors[heads] = np.exp(np.minimum(terms, 0))
        return factors

    def _make_room(self, number: int, wanted: list[int]) -> list[int]:
        """Return free slots for some rows; rows that were used long ago leave theirs."""
        lacking = number - len(self._free)
        if lacking > 0:
            kept = set(wanted)
            leaving = [key for key in self._slots if key not in kept]
            self._free += [self._slots.pop(key) for key in leaving[:lacking]]
        return [self._free.pop() for _ in range(number)]
