"""Rows: the part of the entity table that a process holds, in memory or memory-mapped."""

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

Fill = Callable[[Tensor], Tensor]  # initialises rows in place and returns them
VALUES_PER_BLOCK = 2**20  # 4 MiB in float32


@dataclass(frozen=True)
class Rows:
    """The rows `start` to `stop` of a table of `total` rows.

    With a `folder` they are memory-mapped, so a table may be larger than memory. The files are
    unlinked: their space is freed when the process ends, however it ends.
    """

    start: int
    stop: int
    total: int
    folder: Path | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    def new(self, width: int, fill: Fill) -> Tensor:
        """Return rows, (n, width), with the values of a whole table initialised by `fill`."""
        rows = self.allocate(width)
        if rows.is_meta:
            return rows
        for block in blocks(self.total, width):
            # All rows, not only its own, to consume as many random numbers.
            filled = fill(torch.empty(block.stop - block.start, width))
            first, last = max(block.start, self.start), min(block.stop, self.stop)
            if first < last:
                mine = filled[first - block.start : last - block.start]
                rows[first - self.start : last - self.start] = mine
        return rows

    def zeros_like(self, rows: Tensor) -> Tensor:
        """Return rows of zeros, such as the moments of an optimizer."""
        if self.folder is None:
            return torch.zeros_like(rows)
        return self.allocate(rows.shape[1])  # new files hold zeros

    def allocate(self, width: int) -> Tensor:
        """Return uninitialised rows, (n, width)."""
        if self.folder is None or not len(self) * width:
            return torch.empty(len(self), width)
        with explaining_disk_errors(self.folder):
            parent = existing_folder(self.folder / "table")
            with tempfile.TemporaryFile(dir=parent) as file:
                # Reserve all space now: a full disk would later kill the process with SIGBUS.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, 4 * len(self) * width)
                mapped = np.memmap(file, np.float32, "r+", shape=(len(self), width))
        return torch.from_numpy(mapped)


@dataclass(frozen=True)
class Gathered:
    """Copies of the rows of some entities."""

    ids: Tensor  # (n,): ascending, distinct
    values: Tensor  # (n, width)

    def look_up(self, ids: Tensor) -> Tensor:
        """Return the rows of entities, which must be among `ids`."""
        return nn.functional.embedding(torch.searchsorted(self.ids, ids), self.values)


def blocks(num_rows: int, width: int, values: int = VALUES_PER_BLOCK) -> Iterator[slice]:
    """Yield slices that cover the rows of a table in order, of about `values` values each.

    Filling blocks with random numbers must equal filling all rows at once. PyTorch samples normal
    numbers 16 at a time, so all blocks but the last have a multiple of 16 rows, and the last is not
    the smallest.
    """
    rows = 16 * max(1, values // (16 * max(1, width)))
    last = max(0, num_rows // rows - 1)
    for i in range(last + 1):
        yield slice(i * rows, num_rows if i == last else (i + 1) * rows)
