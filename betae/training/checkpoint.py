"""The state of training on disk: everything needed to resume to the bit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from betae.models.base import QueryModel
from betae.models.store import FORMAT_VERSION, load_weights, write_model
from betae.models.tensors import read_rows, read_tensors, write_tensors
from betae.storage import check_parts, read_manifest, writing_folder

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
    """Write a checkpoint, with the state of the random numbers, whole or not at all."""
    tensors = {**checkpoint.moments, **checkpoint.tensors, RANDOM: torch.get_rng_state()}
    if torch.cuda.is_available():  # then it is what training uses
        tensors[CUDA_RANDOM] = torch.cuda.get_rng_state()
    with writing_folder(folder) as partial:
        write_tensors(partial / STATE, tensors)
        more = {"progress": asdict(checkpoint.progress)}
        write_model(checkpoint.model, partial, graph_fingerprint, more)


def load_checkpoint(folder: Path, model: QueryModel, moments: dict[str, Tensor]) -> Checkpoint:
    """Put a checkpoint into `model` and `moments`, and restore the random numbers."""
    manifest = read_manifest(folder, "model", FORMAT_VERSION)
    check_parts(folder, manifest)
    load_weights(folder, model)
    tensors = read_tensors(folder / STATE, but=moments)
    for name, rows in moments.items():
        read_rows(folder / STATE, name, model.rows.start, rows)
    torch.set_rng_state(tensors.pop(RANDOM))
    of_cuda = tensors.pop(CUDA_RANDOM, None)
    if of_cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(of_cuda)
    return Checkpoint(model, tensors, Progress(**manifest["progress"]), moments)
