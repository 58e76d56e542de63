"""Ragged: many lists of ids of different lengths in two flat arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import Ids


class Ragged(Sequence[Ids]):
    """Row i is `values[offsets[i] : offsets[i + 1]]`."""

    def __init__(self, offsets: NDArray[np.int64], values: Ids):
        self.offsets, self.values = offsets, values

    @classmethod
    def from_rows(cls, rows: Sequence[Iterable[int]]) -> Ragged:
        """Copy rows into one table."""
        arrays = [np.fromiter(row, dtype=np.int32) for row in rows]
        return cls.from_lengths(
            np.array([len(row) for row in arrays], dtype=np.int64),
            np.concatenate([np.empty(0, dtype=np.int32), *arrays]),
        )

    @classmethod
    def from_lengths(cls, lengths: NDArray[np.int64], values: Ids) -> Ragged:
        """Make a table of rows of these lengths."""
        return cls(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), values)

    @classmethod
    def concatenate(cls, tables: Sequence[Ragged]) -> Ragged:
        """Put tables below one another."""
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
