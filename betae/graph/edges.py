"""Edges as integers: splits, triples packed into sortable keys, adjacency, ragged tables of ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from betae.errors import InvalidArgument

Split = Literal["train", "valid", "test"]
Edges = Literal["train", "train+valid", "all"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
EDGES: dict[Edges, tuple[Split, ...]] = {
    "train": ("train",),
    "train+valid": ("train", "valid"),
    "all": SPLITS,
}

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Packing:
    """Triples as single integers, in the order of (head, relation, tail)."""

    entity_bits: int
    relation_bits: int

    @classmethod
    def of(cls, num_entities: int, num_relations: int) -> Packing:
        """Choose as many bits as the ids need."""
        packing = cls(num_entities.bit_length(), num_relations.bit_length())
        if 2 * packing.entity_bits + packing.relation_bits > 63:
            raise InvalidArgument(
                f"{num_entities:,} entities with {num_relations:,} relations are too many: "
                "two entity ids and a relation id must fit in 63 bits."
            )
        return packing

    def pack(
        self, heads: NDArray[Any], relations: NDArray[Any], tails: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Return the keys (n,) of triples."""
        keys = heads.astype(np.int64)
        keys <<= self.relation_bits
        keys |= relations
        keys <<= self.entity_bits
        keys |= tails
        return keys

    def unpack(self, keys: NDArray[np.int64]) -> tuple[Ids, Ids, Ids]:
        """Return the heads, relations and tails, each (n,)."""
        entity_mask, relation_mask = 2**self.entity_bits - 1, 2**self.relation_bits - 1
        return (
            (keys >> (self.entity_bits + self.relation_bits)).astype(np.int32),
            ((keys >> self.entity_bits) & relation_mask).astype(np.int32),
            (keys & entity_mask).astype(np.int32),
        )


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct keys, sorted; faster than `np.unique` on millions."""
    keys = np.sort(keys)
    return keys[_is_first(keys)]


def _is_first(sorted_keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the first key of each run of equal keys."""
    first = np.ones(len(sorted_keys), dtype=bool)
    np.not_equal(sorted_keys[1:], sorted_keys[:-1], out=first[1:])
    return first


@dataclass(frozen=True)
class Adjacency:
    """Directed edges sorted by (head, relation, tail), in compressed form.

    The distinct (head, relation) pairs of head h are `head_offsets[h] : head_offsets[h + 1]`; pair
    p has relation `relations[p]` and the tails `tails[tail_offsets[p] : tail_offsets[p + 1]]`.
    """

    head_offsets: NDArray[np.int64]  # (num_entities + 1,)
    relations: Ids  # (num_pairs,)
    tail_offsets: NDArray[np.int64]  # (num_pairs + 1,)
    tails: Ids  # (num_directed_edges,)

    @classmethod
    def from_triples(cls, triples: Ids, num_entities: int, num_relations: int) -> Adjacency:
        """Build from triples (n, 3) in their written direction, adding every inverse."""
        packing = Packing.of(num_entities, 2 * num_relations)
        heads, relations, tails = triples.T
        keys = np.empty(2 * len(triples), dtype=np.int64)
        keys[: len(triples)] = packing.pack(heads, 2 * relations, tails)
        keys[len(triples) :] = packing.pack(tails, 2 * relations + 1, heads)
        keys.sort()
        starts = np.flatnonzero(_is_first(keys >> packing.entity_bits))
        pair_heads, pair_relations, _ = packing.unpack(keys[starts])
        return cls(
            head_offsets=np.searchsorted(pair_heads, np.arange(num_entities + 1)),
            relations=pair_relations,
            tail_offsets=np.append(starts, len(keys)),
            tails=packing.unpack(keys)[2],
        )

    def neighbours(self, head: int, relation: int) -> Ids:
        """Return the tails of (head, relation), ascending."""
        first, last = self.head_offsets[head], self.head_offsets[head + 1]
        pair = first + np.searchsorted(self.relations[first:last], relation)
        if pair == last or self.relations[pair] != relation:
            return self.tails[:0]
        return self.tails[self.tail_offsets[pair] : self.tail_offsets[pair + 1]]

    def pairs(self, heads: NDArray[Any], relations: NDArray[Any]) -> NDArray[np.int64]:
        """Return the index of each (head, relation) pair, -1 if it has no tails."""
        low, high = self.head_offsets[heads], self.head_offsets[heads + 1]
        ends = high
        while (low < high).any():  # all binary searches at once
            middle = (low + high) // 2
            is_open = low < high
            is_below = is_open.copy()
            is_below[is_open] = self.relations[middle[is_open]] < relations[is_open]
            low = np.where(is_below, middle + 1, low)
            high = np.where(is_open & ~is_below, middle, high)
        exists = low < ends
        exists[exists] = self.relations[low[exists]] == relations[exists]
        return np.where(exists, low, -1)

    @cached_property
    def by_relation(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """The pairs sorted by (relation, head): offsets of the relations, heads, pair indices."""
        pairs = np.argsort(self.relations, kind="stable")
        num_relations = int(self.relations.max(initial=-1)) + 1
        heads = np.repeat(
            np.arange(len(self.head_offsets) - 1, dtype=np.int32), np.diff(self.head_offsets)
        )
        offsets = np.searchsorted(self.relations[pairs], np.arange(num_relations + 1))
        return offsets, heads[pairs], pairs

    @cached_property
    def tails_of_a_head(self) -> NDArray[np.float64]:
        """Mean number of tails of each relation, over heads with at least one."""
        pairs = np.bincount(self.relations)
        return np.bincount(self.relations, np.diff(self.tail_offsets)) / np.maximum(pairs, 1)

    def degrees(self, entities: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """Return the number of edges of each entity, or of some, in either direction."""
        first, last = self.head_offsets[:-1], self.head_offsets[1:]
        if entities is not None:
            first, last = first[entities], last[entities]
        return self.tail_offsets[last] - self.tail_offsets[first]

    def fault(self, name: str, num_entities: int, num_relations: int) -> str | None:
        """Describe the first fault in the arrays: compiled kernels trust offsets and ids."""
        if not are_offsets(self.head_offsets, num_entities, len(self.relations)):
            return f"{name}.head_offsets are out of order"
        # A pair without tails would send a random walk to the tails of another.
        if not are_offsets(self.tail_offsets, len(self.relations), len(self.tails), least=1):
            return f"{name}.tail_offsets are out of order"
        if not are_below(self.relations, num_relations):
            return f"{name}.relations has an id that is not from 0 to {num_relations - 1}"
        if not are_below(self.tails, num_entities):
            return f"{name}.tails has an id that is not from 0 to {num_entities - 1}"
        return None


def are_offsets(offsets: NDArray[Any], num_pieces: int, end: int, least: int = 0) -> bool:
    """Tell whether offsets cut 0 .. `end` into pieces of at least `least` (0 or 1) each."""
    if len(offsets) != num_pieces + 1 or offsets[0] != 0 or offsets[-1] != end:
        return False
    lengths_ok = offsets[1:] > offsets[:-1] if least else offsets[1:] >= offsets[:-1]
    return bool(lengths_ok.all())


def are_below(ids: NDArray[Any], limit: int) -> bool:
    """Tell whether ids are from 0 to `limit` - 1."""
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < limit)


class Ragged(Sequence[Ids]):
    """Rows of ids of different lengths: row i is `values[offsets[i] : offsets[i + 1]]`."""

    def __init__(self, offsets: NDArray[np.int64], values: Ids):
        self.offsets, self.values = offsets, values

    @classmethod
    def from_rows(cls, rows: Sequence[Iterable[int]]) -> Ragged:
        """Build a table of some rows."""
        arrays = [np.fromiter(row, dtype=np.int32) for row in rows]
        return cls.from_lengths(
            np.array([len(row) for row in arrays], dtype=np.int64),
            np.concatenate([np.empty(0, dtype=np.int32), *arrays]),
        )

    @classmethod
    def from_lengths(cls, lengths: NDArray[np.int64], values: Ids) -> Ragged:
        """Build a table of rows of these lengths."""
        return cls(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), values)

    @classmethod
    def concatenate(cls, tables: Sequence[Ragged]) -> Ragged:
        """Concatenate tables by rows."""
        lengths = np.concatenate([np.empty(0, np.int64), *(table.lengths for table in tables)])
        values = np.concatenate([np.empty(0, np.int32), *(table.values for table in tables)])
        return cls.from_lengths(lengths, values)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of every row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:  # type: ignore[override]  # `take` selects rows
        row = range(len(self))[row]
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Return the table of these rows, in this order."""
        lengths = self.lengths[rows]
        taken = Ragged.from_lengths(lengths, np.empty(0, np.int32))
        shift = np.repeat(self.offsets[:-1][rows] - taken.offsets[:-1], lengths)
        taken.values = self.values[np.arange(taken.offsets[-1]) + shift]
        return taken
