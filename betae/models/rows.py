"""Rows: the part of the entity table that a process holds, in memory or in mapped files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from betae.storage import existing_folder, explaining_disk_errors

Fill = Callable[[Tensor], Tensor]  # gives rows their first values, in place, and returns them
NUMBERS_AT_ONCE = 2**20  # of a table that is worked through in blocks: 4 MiB in float32


@dataclass(frozen=True)
class Rows:
    """The rows `start` to `stop` of a table of `total` rows.

    With a `folder` they are in files that are mapped into memory, so a table may be larger than
    memory. The files have no name: their space is free again when the process ends, however it
    ends.
    """

    start: int
    stop: int
    total: int
    folder: Path | None = None

    @property
    def number(self) -> int:
        """How many rows there are."""
        return self.stop - self.start

    def new(self, width: int, fill: Fill) -> Tensor:
        """Return rows, (number, width), with the values they have if the whole table is filled."""
        rows = self.allocate(width)
        if rows.is_meta:
            return rows
        for block in blocks(self.total, width):
            first, last = max(block.start, self.start), min(block.stop, self.stop)
            if (first, last) == (block.start, block.stop):
                fill(rows[first - self.start : last - self.start])
                continue
            filled = fill(torch.empty(block.stop - block.start, width))  # to take its numbers
            if first < last:
                mine = filled[first - block.start : last - block.start]
                rows[first - self.start : last - self.start] = mine
        return rows

    def zeros_like(self, rows: Tensor) -> Tensor:
        """Return as many rows of zeros, such as those of an optimizer."""
        if self.folder is None:
            return torch.zeros_like(rows)
        return self.allocate(rows.shape[1])  # new files hold zeros

    def allocate(self, width: int) -> Tensor:
        """Return rows, (number, width), with any values."""
        if self.folder is None or not self.number * width:
            return torch.empty(self.number, width)
        with explaining_disk_errors(self.folder):
            place = existing_folder(self.folder / "table")
            with tempfile.TemporaryFile(dir=place) as file:
                # All of it now: a disk that is full later would end the process without a word.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, 4 * self.number * width)
                mapped = np.memmap(file, np.float32, "r+", shape=(self.number, width))
        return torch.from_numpy(mapped)


@dataclass(frozen=True)
class Gathered:
    """The rows of some entities, taken from wherever they are."""

    ids: Tensor  # (n,): ascending, distinct
    values: Tensor  # (n, width)

    def look_up(self, ids: Tensor) -> Tensor:
        """Return the rows of entities that are among them."""
        return nn.functional.embedding(torch.searchsorted(self.ids, ids), self.values)


def all_rows(number: int) -> Rows:
    """Return the whole of a table, in memory."""
    return Rows(0, number, number)


def blocks(number: int, width: int, at_once: int = NUMBERS_AT_ONCE) -> Iterator[slice]:
    """Yield slices that cover the rows of a table in order, of some 4 MiB each.

    Random numbers that fill them one after the other are those that fill all rows at once: PyTorch
    makes normal ones 16 at a time, so all blocks but the last have a multiple of 16 rows, and the
    last is not the smallest.
    """
    rows = 16 * max(1, at_once // (16 * max(1, width)))
    last = max(0, number // rows - 1)
    for place in range(last + 1):
        yield slice(place * rows, number if place == last else (place + 1) * rows)
