"""Walks along the steps of rules (numba): the ends of a body, without enumerating its paths.

The entities of a path are distinct. A step from a set of entities gives the set of their tails, so
a walk costs as much as the sets are large, however many paths there are; how many lead to each
entity is counted on the way. What keeps the entities of a path distinct in spite of the sets: the
start is never entered again, self-loops are not followed, and the third step to an entity leaves
out the paths whose first step led there.

Steps from many entities, or along many edges, are thinned: every n-th tail is taken, so that hubs
cost no more than others. Thinning is deterministic, and the same in mining and in answering.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae.exact.kernels import find_pair
from betae.graph.edges import Ids

WIDTH = 256  # entities of a step that the next step starts from
MAX_ENDS = 2048  # of a body, from one start
MIN_TAILS = 4  # of each entity, however many the step starts from


class Steps(NamedTuple):
    """Working memory of one thread: the entities after one, two and three steps."""

    ids: Ids  # (4, MAX_ENDS); the first row holds the start
    sizes: NDArray[np.int64]  # (4,)
    relations: NDArray[np.int64]  # (4,): of each step
    seen: NDArray[np.int32]  # (4, num_entities): the stamp of the last step that met an entity
    stamps: NDArray[np.int32]  # (4,): of each step; the first is the last stamp given
    paths: NDArray[np.float32]  # (4, num_entities): number of paths that lead to an entity
    ways_back: NDArray[np.int64]  # (WIDTH,): pairs of entities after two steps, see below
    stamps_of_ways: NDArray[np.int32]  # (1,): the stamp of the second step that these are for

    @classmethod
    def of(cls, num_entities: int) -> Steps:
        """Allocate for a graph."""
        return cls(
            np.empty((4, MAX_ENDS), dtype=np.int32),
            np.zeros(4, dtype=np.int64),
            np.zeros(4, dtype=np.int64),
            np.zeros((4, num_entities), dtype=np.int32),
            np.zeros(4, dtype=np.int32),
            np.zeros((4, num_entities), dtype=np.float32),
            np.empty(WIDTH, dtype=np.int64),
            np.zeros(1, dtype=np.int32),
        )


@njit(nogil=True, cache=True)
def start_at(steps, entity):  # type: ignore[no-untyped-def]
    """Begin walks at an entity."""
    steps.ids[0, 0] = entity
    steps.sizes[0] = 1
    steps.paths[0, entity] = 1


@njit(nogil=True, cache=True)
def take_step(adjacency, steps, depth, relation):  # type: ignore[no-untyped-def]
    """Fill `ids[depth]` with the tails by a relation of the entities in `ids[depth - 1]`."""
    steps.stamps[0] += 1
    stamp, start = steps.stamps[0], steps.ids[0, 0]
    steps.stamps[depth], steps.relations[depth] = stamp, relation
    sources, found, seen = steps.ids[depth - 1], steps.ids[depth], steps.seen[depth]
    num_sources = min(steps.sizes[depth - 1], WIDTH)
    limit = max(MIN_TAILS, MAX_ENDS // max(1, num_sources))
    if depth == 3:
        _find_ways_back(adjacency, steps, num_sources)
    count = 0
    for i in range(num_sources):
        source = sources[i]
        pair = find_pair(adjacency, source, relation)
        if pair < 0:
            continue
        paths_before = steps.paths[depth - 1, source]
        first, last = adjacency.tail_offsets[pair], adjacency.tail_offsets[pair + 1]
        for j in range(first, last, 1 + (last - first - 1) // limit):
            tail = adjacency.tails[j]
            if tail in (start, source):
                continue
            paths = paths_before
            if depth == 3 and steps.seen[1, tail] == steps.stamps[1]:
                back = steps.ways_back[i]
                if pair == back or _is_tail(adjacency, back, tail):
                    paths -= 1  # that over the tail itself
            if paths <= 0:
                continue
            if seen[tail] == stamp:
                steps.paths[depth, tail] += paths
            elif count < MAX_ENDS:
                seen[tail] = stamp
                steps.paths[depth, tail] = paths
                found[count] = tail
                count += 1
    steps.sizes[depth] = count


@njit(nogil=True, cache=True)
def _find_ways_back(adjacency, steps, num_sources):  # type: ignore[no-untyped-def]
    """Find, for each entity after two steps, its edges against the second one.

    Bodies that differ in their third step alone share them.
    """
    if steps.stamps_of_ways[0] == steps.stamps[2]:
        return
    steps.stamps_of_ways[0] = steps.stamps[2]
    for i in range(num_sources):
        steps.ways_back[i] = find_pair(adjacency, steps.ids[2, i], steps.relations[2] ^ 1)


@njit(nogil=True, cache=True)
def _is_tail(adjacency, pair, entity):  # type: ignore[no-untyped-def]
    """Tell whether an entity is among the tails of a pair."""
    low, high = adjacency.tail_offsets[pair], adjacency.tail_offsets[pair + 1]
    while low < high:
        middle = (low + high) >> 1
        if adjacency.tails[middle] < entity:
            low = middle + 1
        else:
            high = middle
    return low < adjacency.tail_offsets[pair + 1] and adjacency.tails[low] == entity
