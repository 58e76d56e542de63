"""The state of training on disk: everything needed to resume to the bit."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from uuid import uuid4

import torch
from torch import Tensor

from betae import parallel
from betae.models.base import QueryModel
from betae.models.shards import SHARDS, STAMP, read_table, shard_of, write_shard
from betae.models.store import (
    FORMAT_VERSION,
    TABLE,
    check_model_parts,
    load_weights,
    write_model,
)
from betae.models.tensors import read_tensors, write_tensors
from betae.storage import describe_part, explaining_disk_errors, read_manifest, writing_folder

STATE = "state.safetensors"
RANDOM, CUDA_RANDOM = "random_state", "cuda_random_state"


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0  # steps done
    seconds: float = 0.0  # of training so far, over all sessions
    best_mrr: float = -1.0
    best_step: int = 0
    validations_since_best: int = 0
    losses: list[float] = field(default_factory=list)  # since the last report
    positions: dict[str, list[int]] = field(default_factory=dict)  # of the query streams


@dataclass(frozen=True)
class Checkpoint:
    """A model in training, the tensors of its optimizer and loss, and where the run stands."""

    model: QueryModel
    tensors: dict[str, Tensor]
    progress: Progress
    moments: dict[str, Tensor] = field(default_factory=dict)  # those with a row per entity


def save_checkpoint(folder: Path, checkpoint: Checkpoint, graph_fingerprint: str) -> None:
    """Write a checkpoint, with the state of the random numbers, whole or not at all.

    Of several processes each writes the rows that it holds, and the first one all else.
    """
    tensors = {**checkpoint.tensors, RANDOM: torch.get_rng_state()}
    if torch.cuda.is_available():  # then it is what training uses
        tensors[CUDA_RANDOM] = torch.cuda.get_rng_state()
    if parallel.num_processes() > 1:
        _save_shards(folder, checkpoint, tensors, graph_fingerprint)
        return
    with writing_folder(folder) as partial:
        write_tensors(partial / STATE, {**checkpoint.moments, **tensors})
        more = {"progress": asdict(checkpoint.progress)}
        write_model(checkpoint.model, partial, graph_fingerprint, more)


def _save_shards(
    folder: Path, checkpoint: Checkpoint, tensors: dict[str, Tensor], graph_fingerprint: str
) -> None:
    """Write the rows of every process to a file of its own, with their moments."""
    model, progress = checkpoint.model, checkpoint.progress
    number, size = parallel.process_number(), parallel.num_processes()
    with writing_folder(folder) if number == 0 else nullcontext() as mine:
        stamp = f"step {progress.step}, {uuid4().hex[:12]}"
        partial, stamp = parallel.from_all((mine or folder, stamp))[0]
        name = f"rows-{number + 1:04d}-of-{size:04d}.safetensors"
        with explaining_disk_errors(partial / name):
            rows = {TABLE: model.entities.detach(), **checkpoint.moments}
            write_shard(partial, name, rows, stamp)
            described = describe_part(partial / name)
        shards, parts = zip(
            *parallel.from_all((shard_of(name, model.rows), described)), strict=True
        )
        if number == 0:
            write_tensors(partial / STATE, tensors)
            others = {name: t for name, t in model.state_dict().items() if name != TABLE}
            more = {"progress": asdict(progress), SHARDS: shards, STAMP: stamp}
            files = {shard["file"]: part for shard, part in zip(shards, parts, strict=True)}
            write_model(model, partial, graph_fingerprint, more, others, files)


def load_checkpoint(folder: Path, model: QueryModel, moments: dict[str, Tensor]) -> Checkpoint:
    """Put a checkpoint into `model` and `moments`, and restore the random numbers."""
    manifest = read_manifest(folder, "model", FORMAT_VERSION)
    check_model_parts(folder, manifest)
    load_weights(folder, manifest, model)
    tensors = read_tensors(folder / STATE, but=moments)
    for name, rows in moments.items():
        read_table(folder, manifest, STATE, name, model.rows, rows)
    torch.set_rng_state(tensors.pop(RANDOM))
    of_cuda = tensors.pop(CUDA_RANDOM, None)
    if of_cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(of_cuda)
    return Checkpoint(model, tensors, Progress(**manifest["progress"]), moments)
