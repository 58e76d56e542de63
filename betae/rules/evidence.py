"""Evidence: the rules and votes that speak for one edge, and paths that the rules follow.

What `rows` sums up for a tail, by kind, is listed here one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numba import njit

from betae.exact.kernels import find_pair
from betae.graph.edges import Adjacency
from betae.rules.rows import (
    KINDS,
    LONG,
    PEER_TAILS,
    PEERS,
    SHORT,
    VOTERS,
    RuleRows,
    by_paths,
    properties,
    telling_properties,
)
from betae.rules.rule_set import SMOOTHING, Rule
from betae.rules.walks import start_at, take_step

SHOWN_PATHS = 3  # of a rule
MAX_TRIED = 2000  # entities on the way that are tried for them


@dataclass(frozen=True)
class RuleEvidence:
    """A rule whose body leads from the head to the tail."""

    rule: Rule
    num_paths: int
    paths: tuple[tuple[int, ...], ...]  # some of them: the entities from head to tail
    amount: float  # its part of the sum

    @property
    def kind(self) -> str:
        """The kind that it is counted with."""
        return KINDS[LONG if len(self.rule.body) > 2 else SHORT]


@dataclass(frozen=True)
class VoteEvidence:
    """A property, an edge to a shared entity, whose holders vote.

    "like head": of `asked` others that have this property of the head, `votes` have the tail.
    "like tails": of `asked` entities that have this property of the tail, `votes` are known tails.
    """

    kind: str
    relation: int  # directed, from the entity that has the property
    shared: int
    votes: int
    asked: int
    amount: float


def rules_for(
    rows: RuleRows, adjacency: Adjacency, head: int, relation: int, tail: int
) -> list[RuleEvidence]:
    """Return the rules that lead from a head to a tail, strongest first."""
    if relation >= rows.rules.num_relations:
        return []
    steps, _ = rows.memory()
    first = int(rows.rules.offsets[relation])
    counts = _paths_by_rule(rows.arrays, rows.rule_arrays, steps, head, relation, tail)
    found = []
    for i in np.flatnonzero(counts).tolist():
        rule = rows.rules.rule(first + i)
        weight = -np.log1p(-rows.rules.confidence[first + i])
        paths = tuple(islice(_paths(adjacency, rule.body, head, tail), SHOWN_PATHS))
        amount = float(weight * by_paths(float(counts[i])))
        found.append(RuleEvidence(rule, int(counts[i]), paths, amount))
    return sorted(found, key=lambda each: -each.amount)


@njit(nogil=True, cache=True)
def _paths_by_rule(arrays, rules, steps, head, relation, tail):  # type: ignore[no-untyped-def]
    """Return the number of paths of each rule of a relation from a head to a tail."""
    begin, end = rules.offsets[relation], rules.offsets[relation + 1]
    counts = np.zeros(end - begin, dtype=np.float32)
    start_at(steps, head)
    for i in range(begin, end):
        depth = 0
        while depth < 3 and rules.bodies[i, depth] >= 0:
            depth += 1
            take_step(arrays, steps, depth, rules.bodies[i, depth - 1])
        for j in range(steps.sizes[depth]):
            if steps.ids[depth, j] == tail:
                counts[i - begin] = steps.paths[depth, tail]
    return counts


def _paths(
    adjacency: Adjacency, body: tuple[int, ...], head: int, tail: int
) -> Iterator[tuple[int, ...]]:
    """Yield paths along a body from a head to a tail, with distinct entities."""
    last = adjacency.neighbours(tail, body[-1] ^ 1)  # the entities before the tail
    if len(body) == 1:
        if head in last:
            yield head, tail
        return
    after = adjacency.neighbours(head, body[0])
    if len(body) == 2:
        for entity in np.intersect1d(after, last, assume_unique=True).tolist():
            if entity not in (head, tail):
                yield head, entity, tail
        return
    for one in after[:MAX_TRIED].tolist():
        if one in (head, tail):
            continue
        for other in np.intersect1d(
            adjacency.neighbours(one, body[1]), last, assume_unique=True
        ).tolist():
            if other not in (head, tail, one):
                yield head, one, other, tail


def votes_for(rows: RuleRows, head: int, relation: int, tail: int) -> list[VoteEvidence]:
    """Return the votes for a tail, strongest first."""
    if relation + 1 >= len(rows.arrays.relation_offsets):
        return []
    pairs, votes, asked = _peer_votes(rows.arrays, head, relation, tail)
    found = []
    for (shared, inverse), yes, of in zip(
        pairs.tolist(), votes.tolist(), asked.tolist(), strict=True
    ):
        amount = float(-np.log1p(-yes / (of + SMOOTHING)))
        found.append(VoteEvidence("like head", inverse ^ 1, shared, yes, of, amount))
    pairs, shares, asked = _tail_votes(rows.arrays, rows.fitted, head, relation, tail)
    for (shared, inverse), share, of in zip(
        pairs.tolist(), shares.tolist(), asked.tolist(), strict=True
    ):
        yes = round(share * (of + SMOOTHING))
        amount = float(-np.log1p(-share))
        found.append(VoteEvidence("like tails", inverse ^ 1, shared, yes, of, amount))
    return sorted(found, key=lambda each: -each.amount)


@njit(nogil=True, cache=True)
def _peer_votes(arrays, head, relation, tail):  # type: ignore[no-untyped-def]
    """Return the properties of the head whose holders have the tail, votes and voters."""
    pairs = properties(arrays, head, VOTERS)
    votes = np.zeros(len(pairs), dtype=np.int64)
    asked = np.zeros(len(pairs), dtype=np.int64)
    for k in range(len(pairs)):
        peers = find_pair(arrays, pairs[k, 0], pairs[k, 1])
        first, last = arrays.tail_offsets[peers], arrays.tail_offsets[peers + 1]
        for i in range(first, last, 1 + (last - first - 1) // PEERS):
            if arrays.tails[i] == head:
                continue
            asked[k] += 1
            pair = find_pair(arrays, arrays.tails[i], relation)
            if pair < 0:
                continue
            begin, end = arrays.tail_offsets[pair], arrays.tail_offsets[pair + 1]
            for j in range(begin, end, 1 + (end - begin - 1) // PEER_TAILS):
                votes[k] += arrays.tails[j] == tail
    has_votes = votes > 0
    return pairs[has_votes], votes[has_votes], asked[has_votes]


@njit(nogil=True, cache=True)
def _tail_votes(arrays, fitted, head, relation, tail):  # type: ignore[no-untyped-def]
    """Return the properties of the known tails that the tail has too, shares and holders."""
    arrays = fitted if find_pair(fitted, head, relation) >= 0 else arrays
    pairs, shares = telling_properties(arrays, head, relation)
    has_tail = np.zeros(len(pairs), dtype=np.bool_)
    holders = np.zeros(len(pairs), dtype=np.int64)
    for k in range(len(pairs)):
        pair = find_pair(arrays, pairs[k, 0], pairs[k, 1])
        begin, end = arrays.tail_offsets[pair], arrays.tail_offsets[pair + 1]
        holders[k] = end - begin
        for i in range(begin, end, 1 + (end - begin - 1) // PEERS):
            has_tail[k] |= arrays.tails[i] == tail
    return pairs[has_tail], shares[has_tail], holders[has_tail]
