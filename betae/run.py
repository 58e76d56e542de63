"""Run: a trained model with its folder, and everything that can be done with it.

run = train(graph, TrainConfig(model=BetaConfig(dim=64)), "run")
run.answerer().answer("?X . capital(France, ?X)")

run = Run.open("run")
run.evaluate("test-queries")
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from betae import parallel
from betae.answering.answerer import Answerer
from betae.answering.calibration import calibrate, read_calibration, write_calibration
from betae.checks import check_choice
from betae.errors import StoreError
from betae.evaluation.evaluate import evaluate
from betae.evaluation.results import (
    Evaluation,
    KeptEvaluation,
    read_evaluations,
    save_evaluation,
)
from betae.graph.edges import EDGES, Edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.store import load_model
from betae.querysets.query_set import QuerySet
from betae.search.approximate import (
    KINDS,
    Index,
    Kind,
    Speed,
    build_index,
    measure,
    typical_queries,
)
from betae.search.export import export_vectors
from betae.training.config import TrainConfig
from betae.training.folder import RunFolder
from betae.training.loop import Outcome, fit


class Run:
    """A run that has a model: open one with `Run.open`, or make one with `train`."""

    def __init__(
        self,
        folder: Path | str,
        graph: Path | str | None = None,
        outcome: Outcome | None = None,
    ):
        self.folder = Path(folder)
        self.outcome = outcome  # how training ended; None for a run that was opened
        self._parts = RunFolder(folder)
        self._moved_graph = graph

    @classmethod
    def open(cls, folder: Path | str, graph: Path | str | None = None) -> Run:
        """Open a run; `graph` is the folder of its graph, if that has moved since training."""
        run = cls(folder, graph)
        run._parts.best_model()  # raises if there is none
        return run

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    # ---- what it is ---------------------------------------------------------------------------

    @cached_property
    def config(self) -> TrainConfig:
        """The config that it was trained with."""
        return self._parts.read_config()

    @cached_property
    def graph(self) -> KnowledgeGraph:
        """The graph that it was trained on, with edges that were appended since; opened once."""
        return self._parts.open_graph(self._moved_graph, may_have_grown=True)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What training has reported so far: a dictionary for every report and validation."""
        return self._parts.read_metrics()

    @property
    def model_folder(self) -> Path:
        """The folder of the best model, or of the last one if none was validated."""
        return self._parts.best_model()

    def model(self) -> QueryModel:
        """Load the best model, ready to score queries; each call loads it anew."""
        return load_model(self.model_folder)

    # ---- evaluation ---------------------------------------------------------------------------

    def evaluate(
        self,
        queries: QuerySet | Path | str,
        name: str | None = None,
        *,
        split: str = "test",
        empty_queries: int = 1000,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> Evaluation:
        """Evaluate the model on a query set, and keep the result under a name.

        `queries` may be a folder, with a query set or with a release's pickles, of which `split` is
        read; the result is named after it unless a name is given. `empty_queries` of each kind are
        sampled to test whether queries without answers are recognised. `progress` is told what is
        being done, how much of it is done, and how much there is.
        """
        graph = self._parts.open_graph(self._moved_graph)
        if not isinstance(queries, QuerySet):
            from betae.datasets.release_queries import open_queries

            folder, queries = Path(queries), open_queries(graph, queries, split)
            name = name or folder.resolve().name + ("" if queries.split == "test" else "-valid")
        with parallel.joined("Evaluate again."):
            evaluation = evaluate(
                self.model(), graph, queries, empty_queries=empty_queries, progress=progress
            )
            if parallel.process_number() == 0:
                save_evaluation(evaluation, self.folder, name or queries.split)
        return evaluation

    @property
    def evaluations(self) -> list[KeptEvaluation]:
        """The evaluations kept so far."""
        return read_evaluations(self.folder)

    # ---- questions ----------------------------------------------------------------------------

    def answerer(
        self,
        edges: Edges = "train",
        *,
        use_index: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> Answerer:
        """Load the best model to answer questions; the first time, fit the probabilities.

        `edges` says which edges of the graph count as known facts. `use_index` searches by the
        index that `build_index` made, not exactly. `say` is told what takes long.
        """
        check_choice("edges", edges, EDGES)
        # Looked up once: a training that still goes on may write a better model meanwhile.
        folder = self.model_folder
        index = Index.open(self._parts.index, folder.name) if use_index else None
        model = load_model(folder)
        calibration = read_calibration(self._parts.calibration, folder.name)
        if calibration is None:
            say("Fitting probabilities on validation queries, once")
            calibration = calibrate(model, self.graph, model.table())
            with suppress(StoreError):  # a read-only run is fitted again each time
                write_calibration(calibration, self._parts.calibration, folder.name)
        return Answerer(model, self.graph, calibration, edges, index)

    @property
    def index(self) -> Index:
        """The approximate index of the entities that `build_index` made, read anew each time."""
        return Index.open(self._parts.index, self.model_folder.name)

    def build_index(
        self, kind: Kind | None = None, say: Callable[[str], None] = lambda _: None
    ) -> Index:
        """Build an approximate index of the entities and keep it with the run."""
        folder = self.model_folder
        model = load_model(folder)
        queries = typical_queries(model, self.graph)
        index = build_index(model, model.table(), queries, folder.name, kind, say)
        index.save(self._parts.index)
        return index

    def bench_indexes(self, say: Callable[[str], None] = lambda _: None) -> list[Speed]:
        """Measure exact search and every kind of index for the model: speed and recall@10."""
        model, name = self.model(), self.model_folder.name
        table, queries = model.table(), typical_queries(model, self.graph)
        indexes = [
            build_index(model, table, queries, name, kind, say) for kind in KINDS[model.metric]
        ]
        say("Searching")
        fresh = typical_queries(model, self.graph, seed=1)  # the effort was tuned on the others
        return measure(model, table, fresh, indexes)

    def export_vectors(self, file: Path | str) -> tuple[QueryModel, int]:
        """Write the search vectors of all entities; return the model and the vectors' width."""
        model = self.model()
        return model, export_vectors(model, model.table(), self.graph, Path(file))


def train(
    graph: KnowledgeGraph,
    config: TrainConfig,
    folder: Path | str,
    *,
    queries: QuerySet | None = None,
    valid: QuerySet | None = None,
    minutes: float | None = None,
    resume: bool = False,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Run:
    """Train a model on a graph; checkpoints, metrics and the best model go to `folder`.

    Training queries come from `queries`, else they are sampled on the fly; validation queries from
    `valid`, else they are sampled from the validation edges. `minutes` limits the time (over all
    sessions of a run that is resumed); the learning rate then falls with the time, not the steps.
    `report` is told every line of the metrics.
    """
    outcome = fit(
        graph,
        config,
        RunFolder(folder),
        queries=queries,
        valid=valid,
        minutes=minutes,
        resume=resume,
        report=report,
    )
    return Run(folder, outcome=outcome)
