"""RunFolder: the files of a run; checkpoints that resume to the bit.

RUN/
  config.json               all settings
  graph.json                path of the graph
  metrics.jsonl             a line per report and per validation
  checkpoint-00001500/      to resume from: model, optimizer, random state, stream positions
  best-00001000/            the model with the best validation MRR so far
  rules/                    rules mined from the training edges
  predictor/                the link predictor trained beside the model, a run of its own
  edges.json                calibration of edge scores, fitted at the first question
  calibration.json          calibration of distances, for answers by embedding
  evaluations/NAME.json     results of `betae eval`: see evaluation/results.py
  index/                    an approximate index of the entities

Folders are written under a temporary name, renamed when complete, and older ones deleted last: the
newest is always intact, and a run can be killed at any moment.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from betae import parallel
from betae.errors import InvalidArgument, StoreError
from betae.graph.graph import KnowledgeGraph
from betae.storage import (
    MANIFEST,
    describe_part,
    explaining_disk_errors,
    read_manifest,
    writing_file,
    writing_folder,
)

if TYPE_CHECKING:  # a run of rules is opened without torch
    from torch import Tensor

    from betae.models.base import QueryModel
    from betae.training.config import TrainConfig

STATE = "state.safetensors"
RANDOM, CUDA_RANDOM = "random_state", "cuda_random_state"


@dataclass
class Progress:
    """The position of a run."""

    step: int = 0  # steps done
    seconds: float = 0.0  # of training, over all sessions
    best_mrr: float = -1.0
    best_step: int = 0
    validations_since_best: int = 0
    losses: list[float] = field(default_factory=list)  # since the last report
    positions: dict[str, list[int]] = field(default_factory=dict)  # of the query streams


@dataclass(frozen=True)
class Checkpoint:
    """A model in training, the state of its optimizer and loss, and the run's progress."""

    model: QueryModel
    tensors: dict[str, Tensor]
    progress: Progress
    moments: dict[str, Tensor] = field(default_factory=dict)  # state with a row per entity


def _save_shards(
    folder: Path, checkpoint: Checkpoint, tensors: dict[str, Tensor], graph_fingerprint: str
) -> None:
    """Write each process's rows, with their moments, to its own file; process 0 the rest."""
    from betae.models.store import SHARDS, STAMP, TABLE, write_model, write_shard, write_tensors

    model, progress = checkpoint.model, checkpoint.progress
    rank, size = parallel.process_index(), parallel.num_processes()
    with writing_folder(folder) if rank == 0 else nullcontext() as mine:
        stamp = f"step {progress.step}, {uuid4().hex[:12]}"
        partial, stamp = parallel.from_all((mine or folder, stamp))[0]
        name = f"rows-{rank + 1:04d}-of-{size:04d}.safetensors"
        with explaining_disk_errors(partial / name):
            rows = {TABLE: model.entities.detach(), **checkpoint.moments}
            write_shard(partial, name, rows, stamp)
            described = describe_part(partial / name)
        shard = {"file": name, "start": model.rows.start, "stop": model.rows.stop}
        shards, parts = zip(*parallel.from_all((shard, described)), strict=True)
        if rank == 0:
            write_tensors(partial / STATE, tensors)
            others = {name: t for name, t in model.state_dict().items() if name != TABLE}
            more = {"progress": asdict(progress), SHARDS: shards, STAMP: stamp}
            files = {each["file"]: part for each, part in zip(shards, parts, strict=True)}
            write_model(model, partial, graph_fingerprint, more, others, files)


class RunFolder:
    """The folder of a run; the methods read and write its parts."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.calibration = self.path / "calibration.json"
        self.edges = self.path / "edges.json"
        self.index = self.path / "index"
        self.predictor = self.path / "predictor"
        self.rules = self.path / "rules"
        self._config = self.path / "config.json"
        self._graph = self.path / "graph.json"
        self._metrics = self.path / "metrics.jsonl"

    # ---- config -------------------------------------------------------------------------------

    def save_config(self, config: TrainConfig) -> None:
        """Write all settings."""
        with explaining_disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with writing_file(self._config) as partial:
            partial.write_text(json.dumps(config.to_json(), indent=2), encoding="utf-8")

    def read_config(self) -> TrainConfig:
        """Read the settings that the run was started with."""
        from betae.training.config import MOVED, TrainConfig

        try:
            values = json.loads(self._config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise StoreError(f"{self.path} is not a run: it has no {self._config.name}.") from None
        except ValueError as error:
            raise StoreError(f"{self._config} is damaged: {error}.") from error
        if not isinstance(values, dict):
            raise StoreError(f"{self._config} is damaged: it does not hold settings.")
        if any(name in MOVED for name in values):
            raise StoreError(
                f"{self._config} was written by an earlier version of betae; train the run again."
            )
        try:
            return TrainConfig.from_json(values)
        except InvalidArgument as error:
            raise StoreError(f"{self._config} is damaged: {error}") from error

    def check_same_config(self, config: TrainConfig) -> None:
        """Raise InvalidArgument unless a run is resumed with its own settings."""
        before, now = (dict(_flatten(each.to_json())) for each in (self.read_config(), config))
        changed = sorted(key for key in before.keys() | now if before.get(key) != now.get(key))
        if changed:
            raise InvalidArgument(
                f"{self.path} was started with another config ({', '.join(changed)} differ). "
                "Resume with the old recipe, or choose another --out."
            )

    # ---- graph --------------------------------------------------------------------------------

    def save_graph_path(self, graph: KnowledgeGraph) -> None:
        """Write the path of the graph; a graph in memory is saved with the run."""
        folder = graph.folder or self.path / "graph"
        if graph.folder is None:
            graph.save(folder, overwrite=True)
        places = (
            {"folder": folder}
            if graph.source is None
            else {"folder": folder, "source": graph.source}
        )
        here = self.path.resolve()
        relative = {name: os.path.relpath(path.resolve(), here) for name, path in places.items()}
        with writing_file(self._graph) as partial:
            partial.write_text(json.dumps(relative), encoding="utf-8")

    def open_graph(
        self, folder: Path | str | None = None, *, may_have_grown: bool = False
    ) -> KnowledgeGraph:
        """Open the graph of the run, from `folder` if it has moved.

        `may_have_grown` allows a graph whose edges were changed after training.
        """
        graph = self._open_held_out(folder)
        if graph is None:
            folder = self._graph_path() if folder is None else Path(folder)
            graph = KnowledgeGraph.open(folder)
        if self.has_rules and not self.has_model:
            trained_on = read_manifest(self.rules, "rules")["graph"]
        else:
            trained_on = read_manifest(self.best_model(), "model")["graph"]
        folder = graph.source or graph.folder
        if trained_on in graph.ancestors and not may_have_grown:
            raise InvalidArgument(
                f"{folder} has gained or lost edges since {self.path} was trained. The run still "
                "answers questions; for anything else, train a new run on the graph as it is now."
            )
        if trained_on not in (graph.fingerprint, *graph.ancestors):
            raise InvalidArgument(
                f"{self.path} was trained on another graph than {folder} "
                f"({trained_on[:12]}…, this one is {graph.fingerprint[:12]}…)."
            )
        return graph

    @property
    def holds_out(self) -> bool:
        """Whether the run has a copy of its graph, with validation edges held out."""
        return "source" in self._places()

    def _places(self) -> dict[str, str]:
        """Return the paths in graph.json; none if it cannot be read."""
        try:
            found = json.loads(self._graph.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _open_held_out(self, moved: Path | str | None) -> KnowledgeGraph | None:
        """Open the copy with held-out edges, made anew if its graph has changed; None without one.

        The copy is enough if the graph is gone.
        """
        places = self._places()
        if "source" not in places:
            return None
        folder = self.path / places["folder"]
        graph = KnowledgeGraph.open(folder)
        source = self.path / places["source"] if moved is None else Path(moved)
        graph.source = source
        if moved is None and not (source / MANIFEST).is_file():
            return graph
        manifest = read_manifest(source, "graph")
        now = manifest["fingerprint"]
        if now in (graph.held_out_of, graph.fingerprint):
            return graph
        if graph.held_out_of not in manifest.get("ancestors", ()):
            raise InvalidArgument(
                f"{self.path} was trained on another graph than {source} "
                f"({str(graph.held_out_of)[:12]}…, this one is {now[:12]}…)."
            )
        from betae.graph.change import hold_out_again  # imports polars, which questions do not need

        fresh = hold_out_again(KnowledgeGraph.open(source), graph)
        if folder.resolve() == (self.path / "graph").resolve():  # never write elsewhere
            with suppress(StoreError):  # of a read-only run, it is made each time
                fresh.save(folder, overwrite=True)
                fresh.folder = folder.resolve()
        return fresh

    def _graph_path(self) -> Path:
        try:
            relative: str = json.loads(self._graph.read_text(encoding="utf-8"))["folder"]
            folder = self.path / relative
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self._graph} is missing or damaged: give the graph's folder with --graph."
            ) from error
        if not folder.is_dir():
            raise StoreError(
                f"The graph of {self.path} is no longer in {folder.resolve()}: "
                "give its folder with --graph."
            )
        return folder

    # ---- metrics ------------------------------------------------------------------------------

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Append a line to the metrics."""
        path = self._metrics
        with explaining_disk_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the metrics, without a last line truncated by a crash."""
        if not self._metrics.is_file():
            raise StoreError(f"{self.path} has no {self._metrics.name}: is it a run?")
        lines = []
        for text in self._metrics.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
        return lines

    def cut_metrics(self, step: int) -> None:
        """Drop the lines after `step`, which will be repeated."""
        if not self._metrics.is_file():
            return
        kept = [line for line in self.read_metrics() if line["step"] <= step]
        with writing_file(self._metrics) as partial:
            partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    # ---- models -------------------------------------------------------------------------------

    def save_checkpoint(self, checkpoint: Checkpoint, graph_fingerprint: str) -> None:
        """Write `checkpoint-STEP`, then delete the older ones; all processes call it together."""
        import torch

        from betae.models.store import write_model, write_tensors

        target = self.path / f"checkpoint-{checkpoint.progress.step:08d}"
        tensors = {**checkpoint.tensors, RANDOM: torch.get_rng_state()}
        if torch.cuda.is_available():  # training then uses it
            tensors[CUDA_RANDOM] = torch.cuda.get_rng_state()
        if _is_missing(target):
            if parallel.num_processes() > 1:
                _save_shards(target, checkpoint, tensors, graph_fingerprint)
            else:
                with writing_folder(target) as partial:
                    write_tensors(partial / STATE, {**checkpoint.moments, **tensors})
                    more = {"progress": asdict(checkpoint.progress)}
                    write_model(checkpoint.model, partial, graph_fingerprint, more)
        self._keep_newest("checkpoint")

    def load_checkpoint(
        self, model: QueryModel, graph_fingerprint: str, moments: dict[str, Tensor]
    ) -> Checkpoint | None:
        """Load the newest checkpoint, if any, into `model` and `moments`, with the random state."""
        import torch

        from betae.models.store import (
            check_model_parts,
            load_weights,
            read_entity_rows,
            read_tensors,
        )

        folder = self.newest("checkpoint")
        if folder is None:
            return None
        manifest = read_manifest(folder, "model")
        if manifest["graph"] != graph_fingerprint:
            raise InvalidArgument(f"{self.path} was trained on another graph.")
        try:
            progress = msgspec.convert(manifest.get("progress"), Progress)
        except msgspec.ValidationError as error:
            raise StoreError(
                f"{folder} is damaged: its progress cannot be read ({error})."
            ) from error
        check_model_parts(folder, manifest)
        load_weights(folder, manifest, model)
        tensors = read_tensors(folder / STATE, exclude=moments)
        for name, rows in moments.items():
            read_entity_rows(folder, manifest, STATE, name, model.rows, rows)
        torch.set_rng_state(tensors.pop(RANDOM))
        of_cuda = tensors.pop(CUDA_RANDOM, None)
        if of_cuda is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(of_cuda)
        return Checkpoint(model, tensors, progress, moments)

    def save_best(self, model: QueryModel, step: int, graph_fingerprint: str) -> None:
        """Write `best-STEP`, then delete the older ones; all processes call it together."""
        from betae.models.store import TABLE, write_model
        from betae.training.distributed import whole_table

        target = self.path / f"best-{step:08d}"
        if _is_missing(target):
            weights = {**model.state_dict(), TABLE: whole_table(model, self.path)}
            if parallel.process_index() == 0:
                with writing_folder(target) as partial:
                    write_model(model, partial, graph_fingerprint, weights=weights)
        self._keep_newest("best")

    @property
    def has_model(self) -> bool:
        """Whether the run has a model yet."""
        return bool(self.newest("best") or self.newest("checkpoint"))

    @property
    def has_rules(self) -> bool:
        """Whether rules were mined for the run."""
        return self.rules.is_dir()

    def best_model(self) -> Path:
        """Return the folder of the best model, or of the last if none was validated."""
        folder = self.newest("best") or self.newest("checkpoint")
        if folder is None and self.has_rules:
            raise InvalidArgument(f"{self.path} has rules, but no model: train one.")
        if folder is None:
            raise StoreError(
                f"{self.path} is not a run: it holds no model. Train one: betae train."
            )
        return folder

    def newest(self, kind: str) -> Path | None:
        """Return the newest `checkpoint` or `best` folder."""
        return max(self.path.glob(f"{kind}-[0-9]*"), default=None)

    def _keep_newest(self, kind: str) -> None:
        if parallel.process_index() > 0:
            return
        for folder in sorted(self.path.glob(f"{kind}-[0-9]*"))[:-1]:
            shutil.rmtree(folder, ignore_errors=True)


def _is_missing(folder: Path) -> bool:
    """Whether a folder does not exist yet, as process 0 sees it."""
    return bool(parallel.same_everywhere(float(not folder.exists())))


def _flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting, by dotted name, except `table`, which may change when a run resumes."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif name != "table":
            yield prefix + name, value
