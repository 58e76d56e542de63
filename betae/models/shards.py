"""Shards: what has a row for each entity, in several files that each hold some of the rows.

Several processes write a checkpoint so, each its own rows, and any number of them reads it. The
manifest lists the files with their rows; a stamp, in the manifest and in every file, says that
they belong together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from betae.errors import StoreError
from betae.models.rows import Rows
from betae.models.tensors import explaining_damage, read_rows, write_tensors

SHARDS, STAMP = "shards", "stamp"  # keys of a manifest


def write_shard(folder: Path, name: str, tensors: Mapping[str, Tensor], stamp: str) -> None:
    """Write the rows of this process; raise StoreError if the folder is not there."""
    if not folder.is_dir():
        raise StoreError(
            f"{folder} is not there for this process. All processes must see the folder of the "
            "run under the same name: choose one that the machines share."
        )
    write_tensors(folder / name, tensors, {STAMP: stamp})


def shard_of(name: str, rows: Rows) -> dict[str, Any]:
    """Describe a shard for the manifest."""
    return {"file": name, "start": rows.start, "stop": rows.stop}


def check_shards(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise StoreError unless all shards are there and of this very checkpoint."""
    for shard in manifest.get(SHARDS, []):
        path = folder / shard["file"]
        if not path.is_file():
            raise StoreError(
                f"{path} is missing: it holds the rows of entities {shard['start']:,} to "
                f"{shard['stop'] - 1:,}. Put it back; without it this checkpoint cannot be used, "
                "and training must begin anew in another folder."
            )
        with explaining_damage(path), safe_open(path, "np") as file:
            stamp = (file.metadata() or {}).get(STAMP)
        if stamp != manifest[STAMP]:
            raise StoreError(
                f"{path} is of another run or step ({stamp}) than the rest of {folder} "
                f"({manifest[STAMP]}): shards were mixed. Put back the one that was written with "
                "the others."
            )


def read_table(
    folder: Path, manifest: Mapping[str, Any], file: str, name: str, rows: Rows, into: Tensor
) -> None:
    """Copy rows of what has one for each entity: from the shards, or from `file` without any."""
    whole = [{"file": file, "start": 0, "stop": manifest["entities"]}]
    for shard in manifest.get(SHARDS, whole):
        first, last = max(shard["start"], rows.start), min(shard["stop"], rows.stop)
        if first < last:
            part = into[first - rows.start : last - rows.start]
            read_rows(folder / shard["file"], name, first - shard["start"], part)
