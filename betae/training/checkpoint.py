"""The state of training on disk: everything needed to resume to the bit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load, save

from betae.models.base import QueryModel
from betae.models.store import FORMAT_VERSION, load_weights, write_model
from betae.storage import check_parts, read_manifest, writing_folder

STATE = "state.safetensors"


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
    tensors: dict[str, torch.Tensor]
    progress: Progress


def save_checkpoint(folder: Path, checkpoint: Checkpoint, graph_fingerprint: str) -> None:
    """Write a checkpoint, with the state of the random numbers, whole or not at all."""
    with writing_folder(folder) as partial:
        tensors = {**checkpoint.tensors, "random_state": torch.get_rng_state()}
        (partial / STATE).write_bytes(save({k: v.contiguous() for k, v in tensors.items()}))
        more = {"progress": asdict(checkpoint.progress)}
        write_model(checkpoint.model, partial, graph_fingerprint, more)


def load_checkpoint(folder: Path, model: QueryModel) -> Checkpoint:
    """Put the weights of a checkpoint into `model` and restore the random state."""
    manifest = read_manifest(folder, "model", FORMAT_VERSION)
    check_parts(folder, manifest)
    load_weights(folder, model)
    tensors = load((folder / STATE).read_bytes())
    torch.set_rng_state(tensors.pop("random_state"))
    return Checkpoint(model, tensors, Progress(**manifest["progress"]))
