"""Run: a trained model with its folder, and everything that can be done with it.

run = train(graph, TrainConfig(model=BetaConfig(dim=64)), "run")
run.answerer().answer("?X . capital(France, ?X)")

run = Run.open("run")
run.evaluate("test-queries")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from betae import parallel
from betae.answering.answerer import Answerer
from betae.answering.by_completion import ByCompletion, distances_of
from betae.answering.by_embedding import ByEmbedding
from betae.answering.complete import missing_edges
from betae.answering.completed import CACHE_BYTES, CompletedGraph
from betae.answering.edges import EdgeProbabilities, log_odds_of_missing
from betae.answering.fitted import fitted_calibration, fitted_edges
from betae.answering.results import Method
from betae.checks import check_choice
from betae.evaluation.evaluate import evaluate
from betae.evaluation.results import (
    Evaluation,
    KeptEvaluation,
    evaluation_file,
    read_evaluations,
    save_evaluation,
)
from betae.graph.edges import EDGES, Edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.plan import UnionForm
from betae.models.store import load_model
from betae.querysets.query_set import QuerySet
from betae.search.approximate import (
    Index,
    Kind,
    Speed,
    build_index,
    measure_all,
    typical_queries,
)
from betae.search.export import export_vectors
from betae.storage import check_place
from betae.training.config import TrainConfig
from betae.training.folder import RunFolder

if TYPE_CHECKING:
    import polars as pl

    from betae.training.loop import Outcome

METHODS: tuple[Method, ...] = get_args(Method)
EVALUATION_CACHE = 2**31  # bytes, for rows of the completed graph


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

    @property
    def predictor(self) -> Run | None:
        """The run of the link predictor that was trained beside the model, if there is one."""
        folder = self._parts.predictor
        has_model = RunFolder(folder).has_model  # not before its first checkpoint
        return Run.open(folder, self._moved_graph) if has_model else None

    # ---- evaluation ---------------------------------------------------------------------------

    def evaluate(
        self,
        queries: QuerySet | Path | str,
        name: str | None = None,
        *,
        method: Method = "embedding",
        split: str = "test",
        empty_queries: int = 1000,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> Evaluation:
        """Evaluate the model on a query set, and keep the result under a name.

        `queries` may be a folder, with a query set or with a release's pickles, of which `split` is
        read; the result is named after it unless a name is given. By `method` entities are ranked
        by their distance from the embedded query, as in the paper, or by the truth of the query
        over the completed graph, in which training edges alone count as known. `empty_queries` of
        each kind are sampled to test whether queries without answers are recognised. `progress` is
        told what is being done, how much of it is done, and how much there is.
        """
        check_choice("method", method, METHODS)
        graph = self._parts.open_graph(self._moved_graph)
        if not isinstance(queries, QuerySet):
            from betae.datasets.release_queries import open_queries

            folder, queries = Path(queries), open_queries(graph, queries, split)
            name = name or folder.resolve().name + ("" if queries.split == "test" else "-valid")
        name = (name or queries.split) + ("" if method == "embedding" else "-completed")
        check_place(evaluation_file(self.folder, name))
        with parallel.joined("Evaluate again."):
            if method == "embedding":
                evaluation = evaluate(
                    self.model(), graph, queries, empty_queries=empty_queries, progress=progress
                )
            else:
                completed = self.completed_graph("train", cache_bytes=EVALUATION_CACHE)
                models = completed.probabilities.predictors
                evaluation = evaluate(
                    models[0],
                    graph,
                    queries,
                    score=partial(distances_of, completed),
                    predictors=[model.name for model in models],
                    progress=progress,
                )
            if parallel.process_number() == 0:
                save_evaluation(evaluation, self.folder, name)
        return evaluation

    @property
    def evaluations(self) -> list[KeptEvaluation]:
        """The evaluations kept so far."""
        return read_evaluations(self.folder)

    # ---- questions ----------------------------------------------------------------------------

    def answerer(
        self,
        edges: Edges = "all",
        *,
        method: Method = "completed",
        use_index: bool = False,
        union: UnionForm = "DNF",
        cache_bytes: int = CACHE_BYTES,
        say: Callable[[str], None] = lambda _: None,
    ) -> Answerer:
        """Load the run to answer questions; the first time, fit the probabilities.

        `edges` says which edges of the graph count as known facts. By `method` answers come from
        the completed graph, of which `cache_bytes` are kept, or are ranked by their distance from
        the embedded question: then `use_index` searches by the index that `build_index` made, and
        `union` is the form of its unions. Without validation edges there is nothing to fit
        probabilities on: answers are ranked by embedding, without. `say` is told what takes long.
        """
        check_choice("edges", edges, EDGES)
        check_choice("method", method, METHODS)
        check_choice("union", union, get_args(UnionForm))
        if method == "completed" and not use_index and len(self.graph.splits["valid"]):
            completed = self.completed_graph(edges, cache_bytes=cache_bytes, say=say)
            return Answerer(self.graph, ByCompletion(self.graph, completed), edges)
        # Looked up once: a training that still goes on may write a better model meanwhile.
        folder = self.model_folder
        index = Index.open(self._parts.index, folder.name) if use_index else None
        model, path = load_model(folder), self._parts.calibration
        calibration = fitted_calibration(path, folder.name, model, self.graph, say)
        ranker = ByEmbedding(self.graph, model, calibration, index, union)
        return Answerer(self.graph, ranker, edges)

    def completed_graph(
        self,
        edges: Edges = "all",
        *,
        cache_bytes: int = CACHE_BYTES,
        say: Callable[[str], None] = lambda _: None,
    ) -> CompletedGraph:
        """Return the graph with a probability for every edge that is not among the known ones."""
        # Looked up once: a training that still goes on may write a better model meanwhile.
        beside = self.predictor
        folders = [self.model_folder, *([beside.model_folder] if beside else [])]
        name = "+".join(folder.name for folder in folders)
        models = [load_model(folder) for folder in folders]
        weights = fitted_edges(self._parts.edges, name, models, self.graph, say)
        log_odds = log_odds_of_missing(self.graph, edges)
        probabilities = EdgeProbabilities(models, weights, log_odds)
        return CompletedGraph(self.graph, probabilities, edges, cache_bytes)

    def missing_edges(
        self,
        *,
        relation: str | None = None,
        entity: str | None = None,
        above: float = 0.5,
        edges: Edges = "all",
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> pl.DataFrame:
        """Return the most probable edges that the graph lacks: see `betae.answering.complete`."""
        completed = self.completed_graph(edges)
        return missing_edges(
            self.graph,
            completed,
            relation=relation,
            entity=entity,
            above=above,
            progress=progress,
        )

    @property
    def index(self) -> Index:
        """The approximate index of the entities that `build_index` made, read anew each time."""
        return Index.open(self._parts.index, self.model_folder.name)

    def build_index(
        self, kind: Kind | None = None, say: Callable[[str], None] = lambda _: None
    ) -> Index:
        """Build an approximate index of the entities and keep it with the run."""
        check_place(self._parts.index)
        folder = self.model_folder
        model = load_model(folder)
        queries = typical_queries(model, self.graph)
        index = build_index(model, model.table(), queries, folder.name, kind, say)
        index.save(self._parts.index)
        return index

    def bench_indexes(self, say: Callable[[str], None] = lambda _: None) -> list[Speed]:
        """Measure exact search and every kind of index for the model: speed and recall@10."""
        return measure_all(self.model(), self.graph, self.model_folder.name, say)

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
    from_run: Run | Path | str | None = None,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Run:
    """Train a model on a graph; checkpoints, metrics and the best model go to `folder`.

    Training queries come from `queries`, else they are sampled on the fly; validation queries from
    `valid`, else they are sampled from the validation edges. A link predictor that the config asks
    for is trained after the model, from the edges themselves, into the folder's `predictor`; not if
    there are no validation edges, which its scores would need to become probabilities.
    `minutes` limits the time (over all sessions of a run that is resumed), half of it for each of
    the two; the learning rate then falls with the time, not the steps. `report` is told every line
    of the metrics.

    `from_run` is a run on this graph before edges were added to it: model and predictor begin with
    its weights, and what is new to the graph with those of its neighbours.
    """
    from betae.training.loop import INTERRUPTED, fit  # a question does not need it

    parts = RunFolder(folder)
    beside = config.predictor if len(graph.splits["valid"]) else None
    earlier, earlier_predictor = _earlier(from_run, config, beside, graph)
    if minutes is not None and beside:
        minutes /= 2
    outcome = fit(
        graph,
        config,
        parts,
        queries=queries,
        valid=valid,
        minutes=minutes,
        resume=resume,
        earlier=earlier,
        report=report,
    )
    if beside and outcome.why != INTERRUPTED:
        of_predictor = fit(
            parts.open_graph() if graph.folder is None else graph,
            beside,
            RunFolder(parts.predictor),
            minutes=minutes,
            resume=resume,
            earlier=earlier_predictor,
            report=lambda line: report({"predictor": True, **line}),
        )
        why = INTERRUPTED if of_predictor.why == INTERRUPTED else outcome.why
        outcome = replace(outcome, why=why, predictor=of_predictor)
    return Run(folder, outcome=outcome)


def _earlier(
    run: Run | Path | str | None,
    config: TrainConfig,
    beside: TrainConfig | None,
    graph: KnowledgeGraph,
) -> tuple[RunFolder | None, RunFolder | None]:
    """Return the folders to begin from, of a model and of its predictor, once they are checked."""
    if run is None:
        return None, None
    from betae.training.warm_start import check_earlier

    earlier = RunFolder(run.folder if isinstance(run, Run) else run)
    check_earlier(earlier, config, graph)
    predictor = RunFolder(earlier.predictor)
    if beside is None or not predictor.has_model:
        return earlier, None
    check_earlier(predictor, beside, graph)
    return earlier, predictor
