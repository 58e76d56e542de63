"""Mine rules: closed paths of one to three steps, and how often they hold.

    r(x, y) <- r1(x, z1), r2(z1, z2), r3(z2, y)        relations or their inverses

Bodies are found between the ends of known edges: all of one step, those of two steps by the common
neighbours of both ends, those of three by random steps from x to the neighbours of y. The most
frequent bodies of each relation are then counted from random heads x: of all ends y of the body,
how many are tails of r? Confidence is

    support / (cases + SMOOTHING)

A body is walked once for all the relations that it may predict. The edge that is to be predicted
is never part of its own body: see `walks`.

Of rules for one relation that say the same, the most confident is kept: those whose bodies lead
from some heads of the relation to exactly the same ends, such as two ways along a symmetric one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae import parallel
from betae.exact.kernels import AdjacencyArrays
from betae.graph.edges import Adjacency, Ids
from betae.querysets.sample import random_stream
from betae.rules.rule_set import NO_STEP, SMOOTHING, RuleSet
from betae.rules.walks import Steps, start_at, take_step

MINED_EDGES = 400  # of each relation, between whose ends bodies are searched
FIRST_STEPS, SECOND_STEPS = 40, 12  # random steps from x for bodies of three
MAX_NEIGHBOURS = 4096  # of an end that are considered
MAX_BODIES = 600  # of each relation that are counted, the most frequent
COUNTED_HEADS = 200  # of each first step, from which bodies are counted
MAX_RULES = 150  # of each directed relation that are kept, the most confident
MIN_CONFIDENCE = 0.005
MIN_SUPPORT = 2
COMPARED_HEADS = 32  # of each relation, from which the ends of two bodies are compared
MIN_COMPARED = 10  # ends, for two bodies to be the same


class Neighbours(NamedTuple):
    """Directed edges sorted by (head, tail, relation)."""

    offsets: NDArray[np.int64]  # (num_entities + 1,)
    tails: Ids
    relations: Ids

    @classmethod
    def of(cls, adjacency: Adjacency) -> Neighbours:
        """Sort the edges of an adjacency, one head after the other."""
        offsets = adjacency.tail_offsets[adjacency.head_offsets]
        relations = np.repeat(adjacency.relations, np.diff(adjacency.tail_offsets))
        tails = np.array(adjacency.tails)
        _sort_by_tail(offsets, tails, relations)
        return cls(np.asarray(offsets), tails, relations)


@njit(nogil=True, cache=True)
def _sort_by_tail(offsets, tails, relations):  # type: ignore[no-untyped-def]
    for head in range(len(offsets) - 1):
        first, last = offsets[head], offsets[head + 1]
        if last - first > 1:
            order = np.argsort(tails[first:last], kind="mergesort")  # relations stay ascending
            tails[first:last] = tails[first:last][order]
            relations[first:last] = relations[first:last][order]


def mine_rules(
    adjacency: Adjacency,
    num_relations: int,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> RuleSet:
    """Mine the rules of all directed relations of a graph.

    The result depends on the edges and the seed alone, not on the number of threads.
    """
    arrays, neighbours = AdjacencyArrays.of(adjacency), Neighbours.of(adjacency)
    memory = _Memory(len(arrays.head_offsets) - 1)
    num_written = num_relations // 2
    total = num_written + 2 * num_relations
    done, one_at_a_time = 0, threading.Lock()

    def advance() -> None:
        nonlocal done
        with one_at_a_time:
            done += 1
            progress(done, total)

    def search(relation: int) -> tuple[Ids, Ids]:
        found = _frequent_bodies(arrays, neighbours, memory.index, 2 * relation, seed)
        advance()
        return found

    found = parallel.map_in_threads(search, range(num_written))
    relations, bodies = _with_mirrored(found)
    candidates = _Candidates.of(relations, bodies)
    support, cases = (np.zeros(len(candidates.relations), dtype=np.int64) for _ in range(2))

    def count(first_step: int) -> None:
        heads = _sample_heads(arrays, first_step, seed)
        chosen = candidates.starting_with(first_step)
        if len(heads) and chosen.stop > chosen.start:
            _count(
                arrays,
                neighbours,
                heads,
                *candidates,
                chosen.start,
                chosen.stop,
                support,
                cases,
                memory.index,
                memory.steps,
            )
        advance()

    parallel.map_in_threads(count, range(num_relations))
    rules = _keep_confident(candidates, support, cases, num_relations)

    def compare(relation: int) -> NDArray[np.bool_]:
        heads = _sample_heads(arrays, relation, seed)[:COMPARED_HEADS]
        chosen = slice(*rules.offsets[relation : relation + 2])
        ends = _fingerprints(arrays, heads, rules.bodies[chosen], memory.steps)
        advance()
        return _is_first_of_its_kind(ends, rules.confidence[chosen])

    kept = parallel.map_in_threads(compare, range(num_relations))
    return rules.only(np.concatenate([np.empty(0, dtype=np.bool_), *kept]))


class _Memory(threading.local):
    """Working memory of each thread, as large as the graph has entities."""

    def __init__(self, num_entities: int):
        self.steps = Steps.of(num_entities)
        self.index = np.full(num_entities, -1, dtype=np.int64)  # all -1 between uses


# ---- finding bodies -----------------------------------------------------------------------------


def _frequent_bodies(
    arrays: AdjacencyArrays,
    neighbours: Neighbours,
    index: NDArray[np.int64],
    relation: int,
    seed: int,
) -> tuple[Ids, Ids]:
    """Return the most frequent bodies between the ends of a relation's edges, and the relation."""
    random = random_stream(seed, "edges of rules", relation)
    edges = _sample_edges(arrays, relation, random)
    base = len(arrays.relation_offsets)
    keys = _bodies_between(neighbours, index, edges, relation, base, int(random.integers(2**31)))
    # A body counts once for each edge.
    keys = np.unique(keys, axis=0)[:, 1]
    bodies, counts = np.unique(keys, return_counts=True)
    best = np.argsort(-counts, kind="stable")[:MAX_BODIES]
    best = best[counts[best] >= MIN_SUPPORT]
    unpacked = _unpack(bodies[best], base)
    return np.full(len(unpacked), relation, dtype=np.int32), unpacked


def _sample_edges(
    arrays: AdjacencyArrays, relation: int, random: np.random.Generator
) -> NDArray[np.int32]:
    """Return random edges of a relation, (n, 2)."""
    if relation + 1 >= len(arrays.relation_offsets):
        return np.empty((0, 2), dtype=np.int32)
    first, last = arrays.relation_offsets[relation], arrays.relation_offsets[relation + 1]
    pairs = arrays.relation_pairs[first:last]
    starts = arrays.tail_offsets[pairs]
    ends = np.cumsum(arrays.tail_offsets[pairs + 1] - starts)
    if not len(ends):
        return np.empty((0, 2), dtype=np.int32)
    total = int(ends[-1])
    chosen = np.sort(random.choice(total, min(MINED_EDGES, total), replace=False))
    rows = np.searchsorted(ends, chosen, side="right")
    before = ends[rows] - (arrays.tail_offsets[pairs[rows] + 1] - starts[rows])
    tails = arrays.tails[starts[rows] + chosen - before]
    return np.column_stack([arrays.relation_heads[first:last][rows], tails])


def _unpack(keys: NDArray[np.int64], base: int) -> Ids:
    """Return bodies, (n, 3), of packed ones: digits to the base, 0 for no step."""
    columns = [keys // base**2, keys // base % base, keys % base]
    return (np.column_stack(columns) + NO_STEP).astype(np.int32)


def _with_mirrored(found: list[tuple[Ids, Ids]]) -> tuple[Ids, Ids]:
    """Add r'(y, x) <- r3'(y, z2), ... for every rule, where ' is the inverse."""
    relations = np.concatenate([np.empty(0, np.int32), *(r for r, _ in found)])
    bodies = np.concatenate([np.empty((0, 3), np.int32), *(b for _, b in found)])
    lengths = (bodies != NO_STEP).sum(axis=1)
    mirrored = np.full_like(bodies, NO_STEP)
    for length in (1, 2, 3):
        rows = lengths == length
        mirrored[rows, :length] = bodies[rows, :length][:, ::-1] ^ 1
    return np.concatenate([relations, relations ^ 1]), np.concatenate([bodies, mirrored])


@njit(nogil=True, cache=True)
def _bodies_between(  # type: ignore[no-untyped-def]
    neighbours, index, edges, relation, base, seed
):
    """Return (edge, packed body) for the bodies found between the ends of edges, with repeats.

    `index` holds the first edge from y to each neighbour of y, and -1 for all others.
    """
    np.random.seed(seed)
    found = np.empty((1024, 2), dtype=np.int64)
    count = 0
    offsets, tails, relations = neighbours
    for edge in range(len(edges)):
        x, y = edges[edge]
        if x == y:
            continue
        first, last = offsets[y], offsets[y + 1]
        stride = 1 + (last - first - 1) // MAX_NEIGHBOURS
        for j in range(first, last, stride):
            if index[tails[j]] < 0:
                k = j
                while k > first and tails[k - 1] == tails[j]:
                    k -= 1
                index[tails[j]] = k
        own_first, own_last = offsets[x], offsets[x + 1]
        # One step, and two by common neighbours.
        own_stride = 1 + (own_last - own_first - 1) // MAX_NEIGHBOURS
        for i in range(own_first, own_last, own_stride):
            z, step = tails[i], relations[i]
            if z == y:
                if step != relation:
                    found, count = _append(found, count, edge, (step + 1) * base * base)
                continue
            if z == x:
                continue
            k = index[z]
            while 0 <= k < last and tails[k] == z:
                key = ((step + 1) * base + (relations[k] ^ 1) + 1) * base
                found, count = _append(found, count, edge, key)
                k += 1
        # Three steps: x, z1, z2, y.
        for _ in range(FIRST_STEPS):
            i = own_first + np.random.randint(own_last - own_first)
            z1, step1 = tails[i], relations[i]
            if z1 in (x, y):
                continue
            z1_first, z1_last = offsets[z1], offsets[z1 + 1]
            for _ in range(SECOND_STEPS):
                j = z1_first + np.random.randint(z1_last - z1_first)
                z2, step2 = tails[j], relations[j]
                if z2 in (x, y, z1):
                    continue
                k = index[z2]
                while 0 <= k < last and tails[k] == z2:
                    key = ((step1 + 1) * base + step2 + 1) * base + (relations[k] ^ 1) + 1
                    found, count = _append(found, count, edge, key)
                    k += 1
        for j in range(first, last, stride):
            index[tails[j]] = -1
    return found[:count]


@njit(nogil=True, cache=True)
def _append(found, count, edge, key):  # type: ignore[no-untyped-def]
    if count == len(found):
        larger = np.empty((2 * len(found), 2), dtype=np.int64)
        larger[:count] = found
        found = larger
    found[count, 0], found[count, 1] = edge, key
    return found, count + 1


# ---- counting -----------------------------------------------------------------------------------


class _Candidates(NamedTuple):
    """Distinct bodies, sorted, and the relations that each may predict."""

    bodies: Ids  # (n, 3)
    offsets: NDArray[np.int64]  # (n + 1,), into the relations
    relations: Ids

    @classmethod
    def of(cls, relations: Ids, bodies: Ids) -> _Candidates:
        both = np.unique(np.column_stack([bodies, relations]), axis=0)
        distinct, starts = np.unique(both[:, :3], axis=0, return_index=True)
        return cls(distinct, np.append(starts, len(both)), np.ascontiguousarray(both[:, 3]))

    def starting_with(self, step: int) -> slice:
        """Return the bodies whose first step is this one."""
        return slice(*np.searchsorted(self.bodies[:, 0], [step, step + 1]).tolist())


def _sample_heads(arrays: AdjacencyArrays, relation: int, seed: int) -> Ids:
    if relation + 1 >= len(arrays.relation_offsets):
        return np.empty(0, dtype=np.int32)
    first, last = arrays.relation_offsets[relation], arrays.relation_offsets[relation + 1]
    heads = arrays.relation_heads[first:last]
    random = random_stream(seed, "heads of rules", relation)
    return heads[np.sort(random.permutation(len(heads))[:COUNTED_HEADS])]


@njit(nogil=True, cache=True)
def _count(  # type: ignore[no-untyped-def]
    arrays, neighbours, heads, bodies, offsets, relations, begin, end, support, cases, index, steps
):
    """Count the ends of bodies from some heads, and those that are tails of each relation.

    `index` holds the first edge from x to each neighbour of x, and -1 for all others.
    """
    for x in heads:
        own_first, own_last = neighbours.offsets[x], neighbours.offsets[x + 1]
        for i in range(own_last - 1, own_first - 1, -1):
            index[neighbours.tails[i]] = i
        start_at(steps, x)
        for b in range(begin, end):
            depth = 3 if bodies[b, 2] >= 0 else 2 if bodies[b, 1] >= 0 else 1
            if b == begin:
                take_step(arrays, steps, 1, bodies[b, 0])
            if depth > 1 and (b == begin or bodies[b, 1] != bodies[b - 1, 1]):
                take_step(arrays, steps, 2, bodies[b, 1])
            if depth > 2:
                take_step(arrays, steps, 3, bodies[b, 2])
            size = steps.sizes[depth]
            if size == 0:
                continue
            cases[offsets[b] : offsets[b + 1]] += size
            for j in range(size):
                k = index[steps.ids[depth, j]]
                if k < 0:
                    continue
                y = neighbours.tails[k]
                while k < own_last and neighbours.tails[k] == y:
                    for c in range(offsets[b], offsets[b + 1]):
                        if relations[c] == neighbours.relations[k]:
                            support[c] += 1
                    k += 1
        for i in range(own_first, own_last):
            index[neighbours.tails[i]] = -1


def _keep_confident(
    candidates: _Candidates,
    support: NDArray[np.int64],
    cases: NDArray[np.int64],
    num_relations: int,
) -> RuleSet:
    """Return the most confident rules of each relation."""
    confidence = support / (cases + SMOOTHING)
    is_kept = (confidence >= MIN_CONFIDENCE) & (support >= MIN_SUPPORT)
    bodies = np.repeat(candidates.bodies, np.diff(candidates.offsets), axis=0)[is_kept]
    relations, support, cases = candidates.relations[is_kept], support[is_kept], cases[is_kept]
    order = np.lexsort([-confidence[is_kept], relations])
    starts = np.searchsorted(relations[order], np.arange(num_relations))
    rank = np.arange(len(order)) - starts[relations[order]]
    kept = np.sort(order[rank < MAX_RULES])
    return RuleSet.of(relations[kept], bodies[kept], support[kept], cases[kept], num_relations)


# ---- rules that say the same --------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _fingerprints(arrays, heads, bodies, steps):  # type: ignore[no-untyped-def]
    """Return the number of (head, end) pairs of each body, and the sum of their hashes."""
    found = np.zeros((len(bodies), 2), dtype=np.uint64)
    num_entities = len(arrays.head_offsets) - 1
    for head in heads:
        start_at(steps, head)
        for b in range(len(bodies)):
            depth = 3 if bodies[b, 2] >= 0 else 2 if bodies[b, 1] >= 0 else 1
            is_new = b == 0 or bodies[b, 0] != bodies[b - 1, 0]
            if is_new:
                take_step(arrays, steps, 1, bodies[b, 0])
            if depth > 1 and (is_new or bodies[b, 1] != bodies[b - 1, 1]):
                take_step(arrays, steps, 2, bodies[b, 1])
            if depth > 2:
                take_step(arrays, steps, 3, bodies[b, 2])
            found[b, 0] += np.uint64(steps.sizes[depth])
            for j in range(steps.sizes[depth]):
                found[b, 1] += _hash(np.int64(head) * num_entities + steps.ids[depth, j])
    return found


@njit(nogil=True, cache=True)
def _hash(number):  # type: ignore[no-untyped-def]
    """Return well mixed bits of a number (the finaliser of splitmix64)."""
    mixed = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _is_first_of_its_kind(
    fingerprints: NDArray[np.uint64], confidence: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Tell which bodies are the most confident of those with the same ends."""
    order = np.argsort(-confidence, kind="stable")
    is_kept = fingerprints[:, 0] < MIN_COMPARED  # too few ends to tell
    _, first = np.unique(fingerprints[order], axis=0, return_index=True)
    is_kept[order[first]] = True
    return is_kept
