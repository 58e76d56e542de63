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
from betae.answering.by_completion import ByCompletion
from betae.answering.by_embedding import ByEmbedding
from betae.answering.by_index import IndexSearch
from betae.answering.by_parts import ByParts
from betae.answering.complete import missing_edges
from betae.answering.completed import CACHE_BYTES, CompletedGraph
from betae.answering.edges import EdgeProbabilities, EdgeWeights, log_odds_of_missing
from betae.answering.evaluation import evaluate_on
from betae.answering.fitted import fitted_calibration, fitted_edges
from betae.answering.part import LargeGraph
from betae.answering.results import Method
from betae.checks import check_choice
from betae.cluster import Cluster
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
from betae.remote import address_of, local_folder, write_back
from betae.search.approximate import KINDS, Index, Kind, build_index
from betae.search.export import export_vectors
from betae.search.measure import Speed, measure_all, typical_queries
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
        """Open a run, from a folder or address; `graph` is that of its graph, if that has moved."""
        run = cls(local_folder(folder), None if graph is None else local_folder(graph))
        run._parts.best_model()  # raises if there is none
        return run

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the places of its folders, for processes that open it there."""
        graph = self._moved_graph and address_of(Path(self._moved_graph))
        return Run.open, (address_of(self.folder), graph)

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
        cluster: Cluster | None = None,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> Evaluation:
        """Evaluate the model on a query set, and keep the result under a name.

        `queries` may be a folder, with a query set or with a release's pickles, of which `split` is
        read; the result is named after it unless a name is given. By `method` entities are ranked
        by their distance from the embedded query, as in the paper, or by the truth of the query
        over the completed graph, in which training edges alone count as known. `empty_queries` of
        each kind are sampled to test whether queries without answers are recognised. On a
        `cluster`, its workers do the ranking. `progress` is told what is being done, how much, and
        of how much.
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
            cached = CACHE_BYTES if cluster else EVALUATION_CACHE  # of each worker
            completed = partial(self.completed_graph, "train", cache_bytes=cached)
            evaluation = evaluate_on(
                cluster,
                self.model if method == "embedding" else completed,
                graph,
                queries,
                empty_queries=empty_queries,
                progress=progress,
            )
            if parallel.process_number() == 0:
                save_evaluation(evaluation, self.folder, name)
                write_back(evaluation_file(self.folder, name))
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
        the embedded question: then `union` is the form of its unions. With `use_index` the entities
        to rank are those that the indexes of `build_index` find. Without validation edges nothing
        can be fitted: answers are ranked by embedding, without. `say` is told what takes long.
        """
        check_choice("edges", edges, EDGES)
        check_choice("method", method, METHODS)
        check_choice("union", union, get_args(UnionForm))
        if method == "completed" and len(self.graph.splits["valid"]):
            if use_index:
                models, indexes, weights, log_odds = self._predictors(edges, say, use_index)
                large = LargeGraph(self.graph, models, weights, log_odds, edges)
                return Answerer(self.graph, ByParts(large, indexes), edges)
            completed = self.completed_graph(edges, cache_bytes=cache_bytes, say=say)
            return Answerer(self.graph, ByCompletion(self.graph, completed), edges)
        # Looked up once: a training that still goes on may write a better model meanwhile.
        folder = self.model_folder
        index = Index.open(self._parts.index, folder.name) if use_index else None
        model, path = load_model(folder, check_rows=not use_index), self._parts.calibration
        search = IndexSearch(model, index) if index else None
        calibration = fitted_calibration(path, folder.name, model, self.graph, search, say)
        ranker = ByEmbedding(self.graph, model, calibration, search, union)
        return Answerer(self.graph, ranker, edges)

    def completed_graph(
        self,
        edges: Edges = "all",
        *,
        cache_bytes: int = CACHE_BYTES,
        say: Callable[[str], None] = lambda _: None,
    ) -> CompletedGraph:
        """Return the graph with a probability for every edge that is not among the known ones."""
        models, _, weights, log_odds = self._predictors(edges, say)
        probabilities = EdgeProbabilities(models, weights, log_odds)
        return CompletedGraph(self.graph, probabilities, edges, cache_bytes)

    def _predictors(
        self, edges: Edges, say: Callable[[str], None], use_index: bool = False
    ) -> tuple[list[QueryModel], list[Index], EdgeWeights, float]:
        """Return the models that predict edges, their indexes, and what was fitted for them."""
        # Looked up once: a training that still goes on may write a better model meanwhile.
        runs = [run for run in (self, self.predictor) if run is not None]
        folders = [run.model_folder for run in runs]
        places = zip(runs, folders, strict=True) if use_index else ()
        indexes = [Index.open(run._parts.index, folder.name) for run, folder in places]
        models = [load_model(folder, check_rows=not use_index) for folder in folders]
        name = "+".join(folder.name for folder in folders)
        weights = fitted_edges(self._parts.edges, name, models, self.graph, say, use_index)
        return models, indexes, weights, log_odds_of_missing(self.graph, edges)

    def missing_edges(
        self,
        *,
        relation: str | None = None,
        entity: str | None = None,
        above: float = 0.5,
        edges: Edges = "all",
        cluster: Cluster | None = None,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> pl.DataFrame:
        """Return the most probable edges that the graph lacks: see `betae.answering.complete`."""
        load = partial(self.completed_graph, edges)
        search = partial(missing_edges, self.graph, load(), cluster=cluster, load=load)
        return search(relation=relation, entity=entity, above=above, progress=progress)

    @property
    def index(self) -> Index:
        """The approximate index of the entities that `build_index` made, read anew each time."""
        return Index.open(self._parts.index, self.model_folder.name)

    def build_index(
        self, kind: Kind | None = None, say: Callable[[str], None] = lambda _: None
    ) -> Index:
        """Build an approximate index of the entities and keep it with the run.

        If there is a link predictor, it gets one too, of this kind if it can.
        """
        check_place(self._parts.index)
        folder = self.model_folder
        model = load_model(folder)
        queries = typical_queries(model, self.graph)
        index = build_index(model, queries, folder.name, kind, say)
        index.save(self._parts.index)
        if beside := self.predictor:
            beside.build_index(kind if kind in KINDS[beside.model().metric] else None, say)
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
    from betae.training.loop import INTERRUPTED, fit  # a question needs neither
    from betae.training.warm_start import earlier_runs

    parts = RunFolder(folder)
    beside = config.predictor if len(graph.splits["valid"]) else None
    earlier = earlier_predictor = None
    if from_run is not None:
        place = from_run.folder if isinstance(from_run, Run) else from_run
        earlier, earlier_predictor = earlier_runs(place, config, beside, graph)
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
