"""What a run keeps on disk, so that it can be killed at any moment and go on as if it had not.

RUN/
  config.json               the effective config
  graph.json                where the graph is that it learns
  metrics.jsonl             a line for every report and every validation
  checkpoint-00001500/      everything needed to go on: model, optimizer, random state, positions
  best-00001000/            the model with the best validation MRR so far

Folders are written under another name and renamed when whole; older ones are deleted after that. So
the newest one there is always good.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from betae.errors import InvalidArgument, StoreError
from betae.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.files import load_weights, save_model, write_model
from betae.storage import (
    check_parts,
    explaining_disk_errors,
    read_manifest,
    writing_file,
    writing_folder,
)
from betae.training.config import TrainConfig, make_config

FORMAT_VERSION = 1
STATE = "state.safetensors"
GRAPH = "graph.json"


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


def save_checkpoint(
    run: Path,
    model: QueryModel,
    tensors: dict[str, torch.Tensor],
    progress: Progress,
    graph_fingerprint: str,
) -> None:
    """Write `checkpoint-STEP`, then delete the older ones."""
    target = run / f"checkpoint-{progress.step:08d}"
    if not target.exists():
        with writing_folder(target) as partial:
            tensors = {**tensors, "random_state": torch.get_rng_state()}
            (partial / STATE).write_bytes(save({k: v.contiguous() for k, v in tensors.items()}))
            write_model(model, partial, graph_fingerprint, {"progress": asdict(progress)})
    _keep_newest(run, "checkpoint-")


def load_checkpoint(
    run: Path, model: QueryModel, graph_fingerprint: str
) -> tuple[Progress, dict[str, torch.Tensor]] | None:
    """Put the newest checkpoint's weights into `model`; return its progress and tensors, if any."""
    folder = newest(run, "checkpoint-")
    if folder is None:
        return None
    manifest = read_manifest(folder, "model", FORMAT_VERSION)
    check_parts(folder, manifest)
    if manifest["graph"] != graph_fingerprint:
        raise InvalidArgument(f"{run} was trained on another graph.")
    load_weights(folder, model)
    tensors = load((folder / STATE).read_bytes())
    torch.set_rng_state(tensors.pop("random_state"))
    return Progress(**manifest["progress"]), tensors


def save_best(run: Path, model: QueryModel, step: int, graph_fingerprint: str) -> None:
    """Write `best-STEP`, then delete the older ones."""
    target = run / f"best-{step:08d}"
    if not target.exists():
        save_model(model, target, graph_fingerprint)
    _keep_newest(run, "best-")


def newest(run: Path, prefix: str) -> Path | None:
    """Return the newest folder of that kind."""
    return max(run.glob(f"{prefix}[0-9]*"), default=None)


def best_model(run: Path | str) -> Path:
    """Return the folder of a run's best model, or of its last if none was validated."""
    run = Path(run)
    folder = newest(run, "best-") or newest(run, "checkpoint-")
    if folder is None:
        raise StoreError(f"{run} is not a run: it holds no model. Train one: betae train.")
    return folder


def _keep_newest(run: Path, prefix: str) -> None:
    for folder in sorted(run.glob(f"{prefix}[0-9]*"))[:-1]:
        shutil.rmtree(folder, ignore_errors=True)


def save_config(run: Path, config: TrainConfig) -> None:
    """Write the effective config."""
    with explaining_disk_errors(run):
        run.mkdir(parents=True, exist_ok=True)
    with writing_file(run / "config.json") as partial:
        partial.write_text(json.dumps(config.to_json(), indent=2), encoding="utf-8")


def save_place_of(graph: KnowledgeGraph, run: Path) -> None:
    """Write where the graph is; one that is nowhere on disk is saved with the run."""
    folder = graph.folder or run / "graph"
    if graph.folder is None:
        graph.save(folder, overwrite=True)
    with writing_file(run / GRAPH) as partial:
        place = os.path.relpath(folder.resolve(), run.resolve())
        partial.write_text(json.dumps({"folder": place}), encoding="utf-8")


def open_graph(
    run: Path | str, folder: Path | None = None, *, may_have_grown: bool = False
) -> KnowledgeGraph:
    """Open the graph of a run, from `folder` if it has moved.

    `may_have_grown` admits a graph to which edges were added after training.
    """
    run = Path(run)
    if folder is None:
        try:
            folder = run / json.loads((run / GRAPH).read_text(encoding="utf-8"))["folder"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{run} does not say where its graph is: give --graph.") from error
        if not folder.is_dir():
            raise StoreError(
                f"The graph of {run} is not in {folder.resolve()} any more: "
                "say where it is with --graph."
            )
    graph = KnowledgeGraph.open(folder)
    trained_on = read_manifest(best_model(run), "model", FORMAT_VERSION)["graph"]
    if trained_on in graph.ancestors and not may_have_grown:
        raise InvalidArgument(
            f"{folder} has got more edges since {run} was trained. It still answers questions; "
            "for anything else train a run on the graph as it is now."
        )
    if trained_on not in (graph.fingerprint, *graph.ancestors):
        raise InvalidArgument(
            f"{run} was trained on another graph than {folder} "
            f"({trained_on[:12]}…, this one is {graph.fingerprint[:12]}…)."
        )
    return graph


def read_config(run: Path) -> TrainConfig:
    """Read the config that a run was started with."""
    try:
        return make_config(json.loads((run / "config.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise StoreError(f"{run} is not a run: it has no config.json.") from None
    except ValueError as error:
        raise StoreError(f"{run / 'config.json'} is damaged: {error}.") from error


def check_same_config(run: Path, config: TrainConfig) -> None:
    """Raise if a run is to go on with another config than it has."""
    before, now = read_config(run).to_json(), config.to_json()
    changed = [key for key in now if before[key] != now[key]]
    if changed:
        raise InvalidArgument(
            f"{run} was started with another config ({', '.join(changed)} differ). "
            "Resume with the old recipe, or choose another --out."
        )


def append_metrics(run: Path, line: dict[str, Any]) -> None:
    """Add a line to the run's metrics."""
    path = run / "metrics.jsonl"
    with explaining_disk_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the run's metrics; a last line cut short by a crash is left out."""
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise StoreError(f"{run} has no metrics.jsonl: is it a run?")
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def cut_metrics(run: Path, step: int) -> None:
    """Drop what was reported after `step`: it will be reported again."""
    if not (run / "metrics.jsonl").is_file():
        return
    kept = [line for line in read_metrics(run) if line["step"] <= step]
    with writing_file(run / "metrics.jsonl") as partial:
        partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
