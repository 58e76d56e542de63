"""Tables of entity ids with a column for each variable, and the joins between them, in NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import Ids
from betae.queries.formula import Variable

CHUNK = 1 << 16  # rows of a piece of a table
LARGEST_KEY = 2**62
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Table:
    """Rows of ids, (size,) for each variable."""

    size: int
    columns: dict[Variable, Ids]

    def take(self, rows: NDArray[Any]) -> Table:
        """Return some rows, by number or by mask."""
        columns = {variable: ids[rows] for variable, ids in self.columns.items()}
        size = int(rows.sum()) if rows.dtype == np.bool_ else len(rows)
        return Table(size, columns)

    def keep(self, variables: Iterable[Variable]) -> Table:
        """Return these columns only, of those that there are; rows may repeat."""
        columns = {name: self.columns[name] for name in variables if name in self.columns}
        return Table(self.size, columns)

    def distinct(self, num_entities: int) -> Table:
        """Return each row once."""
        if not self.columns:
            return Table(min(self.size, 1), {})
        (keys,) = joint_keys([self], list(self.columns), num_entities)
        return self.take(np.unique(keys, return_index=True)[1])

    def pieces(self) -> Iterator[Table]:
        """Yield the rows, up to CHUNK at a time."""
        for start in range(0, self.size, CHUNK):
            size = min(CHUNK, self.size - start)
            part = slice(start, start + size)
            yield Table(size, {name: ids[part] for name, ids in self.columns.items()})


UNIT = Table(1, {})  # one row that says nothing


def concatenate(tables: Sequence[Table]) -> Table:
    """Put tables of the same columns one below the other."""
    if len(tables) == 1:
        return tables[0]
    columns = {
        variable: np.concatenate([table.columns[variable] for table in tables])
        for variable in tables[0].columns
    }
    return Table(sum(table.size for table in tables), columns)


def joint_keys(
    tables: Sequence[Table], variables: Sequence[Variable], num_entities: int
) -> list[Indices]:
    """Return one integer for each row, equal for rows that agree on the variables."""
    keys = [np.zeros(table.size, dtype=np.int64) for table in tables]
    largest = 1
    for variable in variables:
        if largest * num_entities > LARGEST_KEY:  # number the keys that there are
            ends = np.cumsum([len(key) for key in keys])[:-1]
            numbers = np.unique(np.concatenate(keys), return_inverse=True)[1]
            keys, largest = np.split(numbers, ends), len(numbers)
        keys = [
            key * num_entities + table.columns[variable]
            for key, table in zip(keys, tables, strict=True)
        ]
        largest *= num_entities
    return keys


def is_in(table: Table, other: Table, num_entities: int) -> NDArray[np.bool_]:
    """Mark the rows of `table` that `other` has, on the columns of `other`."""
    if not other.columns:
        return np.full(table.size, other.size > 0)
    keys, others = joint_keys([table, other], list(other.columns), num_entities)
    return np.isin(keys, others)


def join(table: Table, other: Table, num_entities: int) -> Iterator[Table]:
    """Yield the rows of `table` extended by all rows of `other` that agree with them."""
    shared = [variable for variable in other.columns if variable in table.columns]
    keys, others = joint_keys([table, other], shared, num_entities)
    order = np.argsort(others, kind="stable")
    added = {name: ids[order] for name, ids in other.columns.items() if name not in shared}
    others = others[order]
    first = np.searchsorted(others, keys, side="left")
    yield from extend(table, first, np.searchsorted(others, keys, side="right"), added)


def extend(
    table: Table, first: Indices, last: Indices, added: dict[Variable, Ids]
) -> Iterator[Table]:
    """Yield each row i of a table with the entries first[i] to last[i] of the added columns."""
    counts = last - first
    ends = np.cumsum(counts)
    start = done = 0
    while start < table.size:
        stop = max(start + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
        size = int(ends[stop - 1]) - done
        if size:
            rows = np.repeat(np.arange(start, stop), counts[start:stop])
            entries = np.arange(size) + np.repeat(
                first[start:stop] - (ends[start:stop] - counts[start:stop] - done),
                counts[start:stop],
            )
            columns = {variable: ids[entries] for variable, ids in added.items()}
            yield Table(size, {**table.take(rows).columns, **columns})
        start, done = stop, int(ends[stop - 1])


class Pairs:
    """The edges of a relation in one direction, sorted."""

    def __init__(self, heads: Ids, tails: Ids, num_entities: int):
        keys = np.sort(heads.astype(np.int64) * num_entities + tails)
        self.keys, self.num_entities = keys, num_entities
        self.heads = (keys // num_entities).astype(np.int32)
        self.tails = (keys % num_entities).astype(np.int32)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def inverse(self) -> Pairs:
        """The same edges, from tail to head."""
        return Pairs(self.tails, self.heads, self.num_entities)

    @cached_property
    def num_heads(self) -> int:
        """Number of distinct heads."""
        return len(np.unique(self.heads))

    def tails_of(self, heads: NDArray[Any]) -> tuple[Indices, Indices]:
        """Return where the tails of each head begin and end in `tails`."""
        return (
            np.searchsorted(self.heads, heads, side="left"),
            np.searchsorted(self.heads, heads, side="right"),
        )

    def has(self, heads: NDArray[Any], tails: NDArray[Any]) -> NDArray[np.bool_]:
        """Mark the pairs of a head and a tail that there are."""
        wanted = heads.astype(np.int64) * self.num_entities + tails
        places = np.searchsorted(self.keys, wanted)
        places[places == len(self.keys)] = 0
        return self.keys[places] == wanted if len(self.keys) else np.zeros(len(wanted), dtype=bool)
