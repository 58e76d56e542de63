"""Files of tensors (safetensors), whole or a block of rows at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from betae.errors import StoreError
from betae.models.rows import blocks


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: dict[str, str] | None = None
) -> None:
    """Write tensors, and `facts` on them, to a file, without a copy of it in memory.

    Raises OSError if that fails.
    """
    path.touch()
    mode = path.stat().st_mode  # that of the user's other files; safetensors makes a private one
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, facts)
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(path)) from error
    path.chmod(mode)


def read_tensors(path: Path, but: Collection[str] = ()) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote, `but` for some; raise StoreError if it is damaged."""
    with explaining_damage(path):
        if not but:
            return load_file(path)
        with safe_open(path, "np") as file:  # a file opened for PyTorch counts as memory in use
            names = [name for name in file.keys() if name not in but]  # noqa: SIM118
            return {name: torch.from_numpy(file.get_tensor(name)) for name in names}


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a file."""
    with explaining_damage(path), safe_open(path, "np") as file:
        names = file.keys()
        return {name: tuple(file.get_slice(name).get_shape()) for name in names}


def read_rows(path: Path, name: str, first: int, into: Tensor) -> None:
    """Copy rows of a tensor of a file, from row `first` on, into a tensor, block by block."""
    with explaining_damage(path), safe_open(path, "np") as file, torch.no_grad():
        rows = file.get_slice(name)
        for block in blocks(*into.shape):
            values = rows[first + block.start : first + block.stop]
            into[block].copy_(torch.from_numpy(values))


@contextmanager
def explaining_damage(path: Path) -> Iterator[None]:
    """Turn an error of reading a file of tensors into a StoreError that names it."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise StoreError(f"{path} is damaged: {error}.") from error
