"""Rows: what the rules say about every tail of a (head, relation), sparse.

What speaks for a tail t that at least one rule or vote leads to:

    short, long    sum of -ln(1 - confidence) (1 + ln paths) over the rules whose body leads from h
                   to t by so many paths, bodies of one or two steps apart from those of three
    best           the largest of these confidences
    like head      sum of -ln(1 - share) over what h has: of the other entities that have it too,
                   the share that has t as a tail of the relation
    like tails     sum of -ln(1 - share) over what t has: of the entities that have it, the share
                   that are known tails of (h, relation)

The last two are votes: rules with a constant, r(x, t) <- r1(x, d) and r(h, y) <- r1(y, d), counted
when they are needed. "Known" in "like tails" means known when the probabilities were fitted, if any
tail was: in a row that has become nearly complete since, the few entities that are left would seem
too likely. Each kind k enters the fit of probabilities as two features, ln(1 + k) and
ln(1 + 10 k), so that its weight may be smaller where it is strong; a tail without any has zeros.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae import parallel
from betae.exact.kernels import AdjacencyArrays, find_pair
from betae.graph.edges import Adjacency, Ids
from betae.rules.rule_set import SMOOTHING, RuleSet
from betae.rules.walks import Steps, start_at, take_step

KINDS = ("short", "long", "best", "like head", "like tails")
SHORT, LONG, BEST, LIKE_HEAD, LIKE_TAILS = range(len(KINDS))
SCALES = (1, 10)
FEATURES = tuple(f"ln(1 + {scale} {kind})" for kind in KINDS for scale in SCALES)

VOTERS = 64  # properties (relation, entity) of an end that vote
PEERS = 128  # entities with a property that are asked
PEER_TAILS = 64  # of each
TAILS = 32  # known ones, whose properties vote
TAIL_PROPERTIES = 128  # of all of them, the most telling


class RuleArrays(NamedTuple):
    """The arrays of a RuleSet that rows need."""

    offsets: NDArray[np.int64]
    bodies: Ids
    confidence: NDArray[np.float32]


class SparseRows(NamedTuple):
    """Rows of entities and what speaks for them: row i is `offsets[i] : offsets[i + 1]`."""

    offsets: NDArray[np.int64]
    tails: Ids  # ascending in each row
    sums: NDArray[np.float32]  # (n, len(KINDS))

    def row(self, i: int) -> tuple[Ids, NDArray[np.float32]]:
        """Return the tails of a row and their sums."""
        part = slice(self.offsets[i], self.offsets[i + 1])
        return self.tails[part], self.sums[part]


def features_of(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the FEATURES of sums: (n, len(KINDS)) -> (n, len(FEATURES))."""
    scaled = sums[:, :, None] * np.array(SCALES, dtype=np.float32)
    found: NDArray[np.float32] = np.log1p(scaled).reshape(len(sums), len(FEATURES))
    return found


class Scratch(NamedTuple):
    """Working memory of one thread."""

    sums: NDArray[np.float32]  # (num_entities, len(KINDS)), all zero between rows
    touched: Ids  # (num_entities,)
    counts: NDArray[np.int32]  # (num_entities,), all zero between votes
    counted: Ids  # (num_entities,)

    @classmethod
    def of(cls, num_entities: int) -> Scratch:
        """Allocate for a graph."""
        return cls(
            np.zeros((num_entities, len(KINDS)), dtype=np.float32),
            np.empty(num_entities, dtype=np.int32),
            np.zeros(num_entities, dtype=np.int32),
            np.empty(num_entities, dtype=np.int32),
        )


class RuleRows:
    """Computes rows over the known edges of a graph, on all cores.

    The probabilities were `fitted` with fewer known edges, if these are given.
    """

    def __init__(self, rules: RuleSet, adjacency: Adjacency, fitted: Adjacency | None = None):
        self.rules, self.arrays = rules, AdjacencyArrays.of(adjacency)
        self.fitted = AdjacencyArrays.of(fitted or adjacency)
        self.rule_arrays = RuleArrays(rules.offsets, rules.bodies, rules.confidence)
        self._of_thread = threading.local()

    def memory(self) -> tuple[Steps, Scratch]:
        """Return the working memory of this thread."""
        if not hasattr(self._of_thread, "memory"):
            num_entities = len(self.arrays.head_offsets) - 1
            self._of_thread.memory = Steps.of(num_entities), Scratch.of(num_entities)
        memory: tuple[Steps, Scratch] = self._of_thread.memory
        return memory

    def rows(self, heads: NDArray[Any], relations: NDArray[Any]) -> SparseRows:
        """Return what speaks for the tails of each (head, relation), known ones included.

        Relations that have no rules yet, since they were added later, have empty rows.
        """

        def row(pair: tuple[int, int]) -> tuple[Ids, NDArray[np.float32]]:
            if pair[1] >= self.rules.num_relations:
                return np.empty(0, np.int32), np.empty((0, len(KINDS)), np.float32)
            found: tuple[Ids, NDArray[np.float32]] = _row(
                self.arrays, self.fitted, self.rule_arrays, *self.memory(), *pair
            )
            return found

        pairs = zip(heads.tolist(), relations.tolist(), strict=True)
        found = parallel.map_in_threads(row, pairs)
        lengths = np.array([len(tails) for tails, _ in found], dtype=np.int64)
        tails = np.concatenate([np.empty(0, np.int32), *(tails for tails, _ in found)])
        none = np.empty((0, len(KINDS)), np.float32)
        sums = np.concatenate([none, *(sums for _, sums in found)])
        return SparseRows(np.concatenate([[0], np.cumsum(lengths)]), tails, sums)


@njit(nogil=True, cache=True)
def by_paths(count):  # type: ignore[no-untyped-def]
    """Return how much more many paths of a rule say than one."""
    return 1 + np.log(count)


@njit(nogil=True, cache=True)
def _row(arrays, fitted, rules, steps, scratch, head, relation):  # type: ignore[no-untyped-def]
    """Return the tails of one row, ascending, and their sums."""
    count = _follow_rules(arrays, rules, steps, scratch, head, relation)
    if relation + 1 < len(arrays.relation_offsets):
        count = _votes_of_peers(arrays, scratch, count, head, relation)
        voters = fitted if find_pair(fitted, head, relation) >= 0 else arrays
        count = _votes_of_tails(voters, scratch, count, head, relation)
    tails = np.sort(scratch.touched[:count])
    sums = np.empty((count, scratch.sums.shape[1]), dtype=np.float32)
    for i in range(count):
        sums[i] = scratch.sums[tails[i]]
        scratch.sums[tails[i]] = 0
    return tails, sums


@njit(nogil=True, cache=True)
def _touch(scratch, count, tail):  # type: ignore[no-untyped-def]
    """List a tail that nothing spoke for yet; return the new length."""
    sums = scratch.sums[tail]
    if sums[SHORT] == 0 and sums[LONG] == 0 and sums[LIKE_HEAD] == 0 and sums[LIKE_TAILS] == 0:
        scratch.touched[count] = tail
        return count + 1
    return count


@njit(nogil=True, cache=True)
def _follow_rules(arrays, rules, steps, scratch, head, relation):  # type: ignore[no-untyped-def]
    """Walk the bodies of a relation's rules, each first step once."""
    count = 0
    start_at(steps, head)
    begin, bodies = rules.offsets[relation], rules.bodies
    for i in range(begin, rules.offsets[relation + 1]):
        depth = 3 if bodies[i, 2] >= 0 else 2 if bodies[i, 1] >= 0 else 1
        is_new = i == begin or bodies[i, 0] != bodies[i - 1, 0]
        if is_new:
            take_step(arrays, steps, 1, bodies[i, 0])
        if depth > 1 and (is_new or bodies[i, 1] != bodies[i - 1, 1]):
            take_step(arrays, steps, 2, bodies[i, 1])
        if depth > 2:
            take_step(arrays, steps, 3, bodies[i, 2])
        confidence = rules.confidence[i]
        weight = -np.log1p(-confidence)
        column = LONG if depth > 2 else SHORT
        for j in range(steps.sizes[depth]):
            tail = steps.ids[depth, j]
            count = _touch(scratch, count, tail)
            sums = scratch.sums[tail]
            sums[column] += weight * by_paths(steps.paths[depth, tail])
            sums[BEST] = max(sums[BEST], confidence)
    return count


@njit(nogil=True, cache=True)
def properties(arrays, entity, limit):  # type: ignore[no-untyped-def]
    """Return the pairs (shared entity, inverse relation) of some edges of an entity.

    The tails of such a pair are the entities that have the property, this one included.
    """
    first, last = arrays.head_offsets[entity], arrays.head_offsets[entity + 1]
    begin, end = arrays.tail_offsets[first], arrays.tail_offsets[last]
    stride = 1 + max(0, end - begin - 1) // limit
    found = np.empty((max(0, end - begin - 1) // stride + 1, 2), dtype=np.int64)
    count, due = 0, begin
    for pair in range(first, last):
        while due < arrays.tail_offsets[pair + 1]:
            if arrays.tails[due] != entity:
                found[count, 0], found[count, 1] = arrays.tails[due], arrays.relations[pair] ^ 1
                count += 1
            due += stride
    return found[:count]


@njit(nogil=True, cache=True)
def _votes_of_peers(arrays, scratch, count, head, relation):  # type: ignore[no-untyped-def]
    """Let the entities vote that have a property of the head."""
    for shared, inverse in properties(arrays, head, VOTERS):
        peers = find_pair(arrays, shared, inverse)
        asked = num_counted = 0
        first, last = arrays.tail_offsets[peers], arrays.tail_offsets[peers + 1]
        for i in range(first, last, 1 + (last - first - 1) // PEERS):
            if arrays.tails[i] == head:
                continue
            asked += 1
            pair = find_pair(arrays, arrays.tails[i], relation)
            if pair < 0:
                continue
            begin, end = arrays.tail_offsets[pair], arrays.tail_offsets[pair + 1]
            for j in range(begin, end, 1 + (end - begin - 1) // PEER_TAILS):
                tail = arrays.tails[j]
                if scratch.counts[tail] == 0:
                    scratch.counted[num_counted] = tail
                    num_counted += 1
                scratch.counts[tail] += 1
        for i in range(num_counted):
            tail = scratch.counted[i]
            if tail != head:
                count = _touch(scratch, count, tail)
                share = scratch.counts[tail] / (asked + SMOOTHING)
                scratch.sums[tail, LIKE_HEAD] += -np.log1p(-share)
            scratch.counts[tail] = 0
    return count


@njit(nogil=True, cache=True)
def telling_properties(arrays, head, relation):  # type: ignore[no-untyped-def]
    """Return the properties of the known tails that tell most, as pairs, and their shares.

    The share is that of known tails among the entities that have the property.
    """
    own = find_pair(arrays, head, relation)
    if own < 0:
        return np.empty((0, 2), np.int64), np.empty(0, np.float64)
    first, last = arrays.tail_offsets[own], arrays.tail_offsets[own + 1]
    stride = 1 + (last - first - 1) // TAILS
    keys = np.empty(TAILS * VOTERS, dtype=np.int64)
    num_keys, base = 0, len(arrays.relation_offsets)
    for i in range(first, last, stride):
        for shared, inverse in properties(arrays, arrays.tails[i], VOTERS):
            if not (shared == head and inverse == relation):
                keys[num_keys] = shared * base + inverse
                num_keys += 1
    keys = np.sort(keys[:num_keys])
    shares = np.empty(num_keys, dtype=np.float64)
    pairs = np.empty((num_keys, 2), dtype=np.int64)
    count = i = 0
    while i < num_keys:
        j = i
        while j < num_keys and keys[j] == keys[i]:
            j += 1
        pairs[count] = keys[i] // base, keys[i] % base
        pair = find_pair(arrays, pairs[count, 0], pairs[count, 1])
        holders = arrays.tail_offsets[pair + 1] - arrays.tail_offsets[pair]
        shares[count] = min((j - i) * stride, holders) / (holders + SMOOTHING)
        count += 1
        i = j
    best = np.argsort(-shares[:count], kind="mergesort")[:TAIL_PROPERTIES]
    return pairs[best], shares[best]


@njit(nogil=True, cache=True)
def _votes_of_tails(arrays, scratch, count, head, relation):  # type: ignore[no-untyped-def]
    """Let the properties of the known tails vote for others that have them."""
    pairs, shares = telling_properties(arrays, head, relation)
    for k in range(len(pairs)):
        weight = -np.log1p(-shares[k])
        pair = find_pair(arrays, pairs[k, 0], pairs[k, 1])
        begin, end = arrays.tail_offsets[pair], arrays.tail_offsets[pair + 1]
        for i in range(begin, end, 1 + (end - begin - 1) // PEERS):
            tail = arrays.tails[i]
            if tail != head:
                count = _touch(scratch, count, tail)
                scratch.sums[tail, LIKE_TAILS] += weight
    return count
