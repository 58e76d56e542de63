"""RunFolder: what lies where in a run's folder.

RUN/
  config.json               the effective config
  graph.json                where the graph is
  metrics.jsonl             a line for every report and every validation
  checkpoint-00001500/      everything needed to resume: model, optimizer, random state, positions
  best-00001000/            the model with the best validation MRR so far
  predictor/                the link predictor that was trained beside it: a run of its own
  edges.json                how scores of edges become probabilities, fitted at the first question
  calibration.json          how distances become probabilities, for answers by embedding
  evaluations/NAME.json     what `betae eval` measured on a query set: see evaluation/results.py
  index/                    an approximate index of the entities

Folders are written under another name and renamed when whole, and older ones are deleted after
that: the newest one is always good, and a run can be killed at any moment.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from betae import parallel
from betae.errors import InvalidArgument, StoreError
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.store import FORMAT_VERSION, TABLE, write_model
from betae.storage import explaining_disk_errors, read_manifest, writing_file, writing_folder
from betae.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from betae.training.config import TrainConfig, make_config
from betae.training.distributed import whole_table


class RunFolder:
    """The folder of one run; the methods read and write its parts."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.calibration = self.path / "calibration.json"
        self.edges = self.path / "edges.json"
        self.index = self.path / "index"
        self.predictor = self.path / "predictor"
        self._config = self.path / "config.json"
        self._graph = self.path / "graph.json"
        self._metrics = self.path / "metrics.jsonl"

    # ---- config -------------------------------------------------------------------------------

    def save_config(self, config: TrainConfig) -> None:
        """Write the effective config."""
        with explaining_disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with writing_file(self._config) as partial:
            partial.write_text(json.dumps(config.to_json(), indent=2), encoding="utf-8")

    def read_config(self) -> TrainConfig:
        """Read the config that the run was started with."""
        try:
            return make_config(json.loads(self._config.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise StoreError(f"{self.path} is not a run: it has no {self._config.name}.") from None
        except ValueError as error:
            raise StoreError(f"{self._config} is damaged: {error}.") from error

    def check_same_config(self, config: TrainConfig) -> None:
        """Raise if a run is about to be resumed with a config that is not its own."""
        before, now = _what_it_learns(self.read_config()), _what_it_learns(config)
        changed = [key for key in now if before[key] != now[key]]
        if changed:
            raise InvalidArgument(
                f"{self.path} was started with another config ({', '.join(changed)} differ). "
                "Resume with the old recipe, or choose another --out."
            )

    # ---- graph --------------------------------------------------------------------------------

    def save_graph_place(self, graph: KnowledgeGraph) -> None:
        """Write where the graph is; a graph that is not on disk is saved with the run."""
        folder = graph.folder or self.path / "graph"
        if graph.folder is None:
            graph.save(folder, overwrite=True)
        with writing_file(self._graph) as partial:
            place = os.path.relpath(folder.resolve(), self.path.resolve())
            partial.write_text(json.dumps({"folder": place}), encoding="utf-8")

    def open_graph(
        self, folder: Path | str | None = None, *, may_have_grown: bool = False
    ) -> KnowledgeGraph:
        """Open the graph of the run, from `folder` if it has moved.

        `may_have_grown` admits a graph to or from which edges were added or removed after training.
        """
        folder = self._graph_place() if folder is None else Path(folder)
        graph = KnowledgeGraph.open(folder)
        trained_on = read_manifest(self.best_model(), "model", FORMAT_VERSION)["graph"]
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

    def _graph_place(self) -> Path:
        try:
            place: str = json.loads(self._graph.read_text(encoding="utf-8"))["folder"]
            folder = self.path / place
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self.path} does not say where its graph is: give --graph."
            ) from error
        if not folder.is_dir():
            raise StoreError(
                f"The graph of {self.path} is no longer in {folder.resolve()}: "
                "say where it is with --graph."
            )
        return folder

    # ---- metrics ------------------------------------------------------------------------------

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Add a line to the metrics."""
        path = self._metrics
        with explaining_disk_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the metrics; a last line cut short by a crash is left out."""
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
        """Drop the lines after `step`, which will be reported again."""
        if not self._metrics.is_file():
            return
        kept = [line for line in self.read_metrics() if line["step"] <= step]
        with writing_file(self._metrics) as partial:
            partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    # ---- models -------------------------------------------------------------------------------

    def save_checkpoint(self, checkpoint: Checkpoint, graph_fingerprint: str) -> None:
        """Write `checkpoint-STEP`, then delete the older ones; all processes call it together."""
        target = self.path / f"checkpoint-{checkpoint.progress.step:08d}"
        if _is_missing(target):
            save_checkpoint(target, checkpoint, graph_fingerprint)
        self._keep_newest("checkpoint")

    def load_checkpoint(
        self, model: QueryModel, graph_fingerprint: str, moments: dict[str, Tensor] | None = None
    ) -> Checkpoint | None:
        """Put the newest checkpoint into `model` and `moments` and return it, if there is one."""
        folder = self.newest("checkpoint")
        if folder is None:
            return None
        if read_manifest(folder, "model", FORMAT_VERSION)["graph"] != graph_fingerprint:
            raise InvalidArgument(f"{self.path} was trained on another graph.")
        return load_checkpoint(folder, model, moments or {})

    def save_best(self, model: QueryModel, step: int, graph_fingerprint: str) -> None:
        """Write `best-STEP`, then delete the older ones; all processes call it together."""
        target = self.path / f"best-{step:08d}"
        if _is_missing(target):
            weights = {**model.state_dict(), TABLE: whole_table(model, self.path)}
            if parallel.process_number() == 0:
                with writing_folder(target) as partial:
                    write_model(model, partial, graph_fingerprint, weights=weights)
        self._keep_newest("best")

    @property
    def has_model(self) -> bool:
        """Whether there is a model to load."""
        return bool(self.newest("best") or self.newest("checkpoint"))

    def best_model(self) -> Path:
        """Return the folder of the best model, or of the last one if none was validated."""
        folder = self.newest("best") or self.newest("checkpoint")
        if folder is None:
            raise StoreError(
                f"{self.path} is not a run: it holds no model. Train one: betae train."
            )
        return folder

    def newest(self, kind: str) -> Path | None:
        """Return the newest `checkpoint` or `best` folder."""
        return max(self.path.glob(f"{kind}-[0-9]*"), default=None)

    def _keep_newest(self, kind: str) -> None:
        if parallel.process_number() > 0:
            return
        for folder in sorted(self.path.glob(f"{kind}-[0-9]*"))[:-1]:
            shutil.rmtree(folder, ignore_errors=True)


def _is_missing(folder: Path) -> bool:
    """Tell whether a folder is not there yet, as process 0 sees it."""
    return bool(parallel.same_everywhere(float(not folder.exists())))


def _what_it_learns(config: TrainConfig) -> dict[str, Any]:
    """Return a config without what may change on the way: where the table is."""
    values = config.to_json()
    for part in (values, values["predictor"]):
        if part is not None:
            del part["table"]
    return values
