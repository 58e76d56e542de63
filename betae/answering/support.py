"""Support: in how many ways the known edges make an entity an answer.

A way gives every variable of the question an entity, and takes one branch of every union:

    n(entity a)     = 1 at a, else 0
    n(condition)    = 1 where it is known to hold, else 0
    n(project r)(x) = sum of n(h) over the known edges (h, r, x)
    n(and)          = product         n(or) = sum         n(not)(x) = 1 if n(x) = 0, else 0

An entity is an answer if there is a way. What is said twice counts once: see `identities`.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from betae.answering.edges import flat_ranges
from betae.answering.identities import apply_identities
from betae.graph.edges import Adjacency
from betae.queries.ast import Condition, Entity, Not, Or, Project, Query

MOST_WAYS = 2.0**53  # larger numbers are this one


class Ways(NamedTuple):
    """Entities, ascending, and the number of ways to each, at least 1."""

    ids: NDArray[np.int64]
    numbers: NDArray[np.float64]

    def to(self, ids: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the number of ways to each of some entities."""
        if not len(self.ids):
            return np.zeros(len(ids))
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[places] == ids, self.numbers[places], 0.0)


def count_ways(adjacency: Adjacency, query: Query) -> Ways:
    """Count the ways to every answer of a query of ids, on these edges."""
    return _count(adjacency, apply_identities(query))


def _count(adjacency: Adjacency, node: Query) -> Ways:
    match node:
        case Entity(entity):
            return Ways(np.array([entity], dtype=np.int64), np.ones(1))
        case Condition():
            return Ways(node.ids.astype(np.int64), np.ones(len(node.ids)))
        case Project(operand, relation):
            return _project(adjacency, _count(adjacency, operand), int(relation))
        case Not(operand):
            ids = np.arange(len(adjacency.head_offsets) - 1)
            ids = np.delete(ids, _count(adjacency, operand).ids)
            return Ways(ids, np.ones(len(ids)))
        case Or():
            ways = [_count(adjacency, operand) for operand in node.operands]
            ids, numbers = map(np.concatenate, zip(*ways, strict=True))
            return _added(ids, numbers, len(adjacency.head_offsets) - 1)
    operands = sorted(node.operands, key=lambda operand: isinstance(operand, Not))
    met = [_count(adjacency, each) for each in operands if not isinstance(each, Not)]
    absent = [each.operand for each in operands if isinstance(each, Not)]
    if not met:
        met = [_count(adjacency, Not(absent.pop()))]
    found = reduce(_multiplied, met)
    for each in absent:
        is_left = _count(adjacency, each).to(found.ids) == 0
        found = Ways(found.ids[is_left], found.numbers[is_left])
    return found


def _project(adjacency: Adjacency, ways: Ways, relation: int) -> Ways:
    pairs = adjacency.pairs(ways.ids, np.full(len(ways.ids), relation))
    numbers, pairs = ways.numbers[pairs >= 0], pairs[pairs >= 0]
    starts = adjacency.tail_offsets[pairs]
    lengths = adjacency.tail_offsets[pairs + 1] - starts
    tails = adjacency.tails[flat_ranges(starts, lengths)]
    numbers = np.repeat(numbers, lengths)
    return _added(tails.astype(np.int64), numbers, len(adjacency.head_offsets) - 1)


def _added(ids: NDArray[np.int64], numbers: NDArray[np.float64], num_entities: int) -> Ways:
    """Add up the numbers of each entity."""
    if len(ids) > num_entities // 8:  # faster than sorting
        sums = np.bincount(ids, numbers, minlength=num_entities)
        distinct = np.flatnonzero(sums)
        sums = sums[distinct]
    else:
        distinct, inverse = np.unique(ids, return_inverse=True)
        sums = np.bincount(inverse, numbers, minlength=len(distinct))
    return Ways(distinct, np.minimum(sums, MOST_WAYS))


def _multiplied(one: Ways, other: Ways) -> Ways:
    """Multiply the numbers of the entities in both."""
    ids, places, of_other = np.intersect1d(one.ids, other.ids, True, return_indices=True)
    products = one.numbers[places] * other.numbers[of_other]
    return Ways(ids, np.minimum(products, MOST_WAYS))
