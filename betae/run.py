"""Run: a trained model in its folder, and everything that can be done with it.

run = train(graph, "run")
run.answer("?X . capital(France, ?X)", explain=True)
run.complete(relation="capital", above=0.3)

run = Run.open("run")
run.evaluate(graph.sample("1p", "2in", split="test"))
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from betae import parallel
from betae.answering.answerer import Answerer, open_answerer, open_completed_graph
from betae.answering.by_completion import ByCompletion
from betae.answering.completed import CACHE_BYTES, CompletedGraph
from betae.answering.evidence import Evidence
from betae.answering.missing import MissingEdges, complete
from betae.answering.results import Answers, Status
from betae.answering.verdict import Verdict
from betae.answering.why import why_edge
from betae.checks import check_choice
from betae.cluster import Cluster
from betae.errors import BetaeError, InvalidArgument
from betae.evaluation.results import (
    Evaluation,
    Method,
    evaluation_file,
    read_evaluations,
    save_evaluation,
)
from betae.exact.select import Selection
from betae.graph.edges import EDGES, Edges
from betae.graph.graph import MINED, KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.rewrite import UnionForm
from betae.querysets.query_set import QuerySet
from betae.remote import address_of, local_folder, write_back
from betae.rules.rule_set import RuleSet
from betae.storage import MANIFEST, check_parent, read_manifest
from betae.training.folder import RunFolder

if TYPE_CHECKING:  # a run of rules answers without torch
    from betae.evaluation.ranks import Ranker
    from betae.models.base import QueryModel
    from betae.search import Index, IndexKind, Speed
    from betae.training.config import TrainConfig
    from betae.training.loop import Outcome

METHODS: tuple[Method, ...] = get_args(Method)
HELD_OUT = 0.05  # of the edges of a graph without validation edges
MAX_CHANGED = 0.1  # of the edges of a graph, until its rules are mined again
EVALUATION_CACHE = 2**31  # bytes, for rows of the completed graph


class Run:
    """A trained run: open one with `Run.open`, or make one with `train`."""

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
        self._answerers: dict[tuple[Edges, Method], Answerer] = {}
        self._completed: dict[Edges, CompletedGraph] = {}  # for `why`

    @classmethod
    def open(cls, folder: Path | str, graph: Path | str | None = None) -> Run:
        """Open a run from a folder or address; `graph` says where its graph is if it has moved."""
        run = cls(local_folder(folder), None if graph is None else local_folder(graph))
        if not run._parts.has_rules:
            run._parts.best_model()  # raises if there is none
        return run

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by address, for processes that open the run there."""
        graph = self._moved_graph and address_of(Path(self._moved_graph))
        return Run.open, (address_of(self.folder), graph)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self._predictors()})"

    def _repr_html_(self) -> str:
        told = f"<p>{escape(repr(self))}</p>"
        with suppress(BetaeError):  # its graph may have moved
            told += self.graph._repr_html_()
        return told

    def _predictors(self) -> str:
        """Say what it predicts by."""
        try:
            found = (
                [read_manifest(self.model_folder, "model")["model"]["name"]]
                if self.has_model
                else []
            )
            found += ["complex"] if RunFolder(self._parts.predictor).has_model else []
            found += [f"{len(self.rules):,} rules"] if self.rules is not None else []
        except BetaeError as error:
            return f"damaged: {error}"
        return " + ".join(found) or "nothing yet"

    # ---- what it is ---------------------------------------------------------------------------

    @cached_property
    def config(self) -> TrainConfig:
        """The settings of its training."""
        return self._parts.read_config()

    @cached_property
    def graph(self) -> KnowledgeGraph:
        """The graph of its training, with edges appended since; opened once."""
        return self._parts.open_graph(self._moved_graph, may_have_grown=True)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl: one for every report and validation."""
        return self._parts.read_metrics()

    @property
    def model_folder(self) -> Path:
        """The folder of the best model, or of the last one if none was validated."""
        return self._parts.best_model()

    @property
    def has_model(self) -> bool:
        """Whether it has a model that embeds questions, beside rules."""
        return self._parts.has_model

    @cached_property
    def rules(self) -> RuleSet | None:
        """The rules mined from its graph, if there are any."""
        return RuleSet.open(self._parts.rules) if self._parts.has_rules else None

    def model(self) -> QueryModel:
        """Load the best model; each call loads it anew."""
        from betae.models.store import load_model

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
        method: Method = "completed",
        split: str = "test",
        empty_queries: int = 1000,
        cluster: Cluster | None = None,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> Evaluation:
        """Evaluate the run on a query set: MRR, Hits@k, uncertainty. The result is kept in the run.

        Args:
            queries: a query set, or a folder with one or with a release's pickles.
            name: of the result; by default that of the folder, or the split.
            method: "completed" ranks entities by the truth of the query over the completed graph,
                in which training edges alone are known; "embedding" by their distance from the
                embedded query, as the paper does. Without validation edges nothing tells how
                probable an edge is: the method is then "embedding".
            split: which queries of a release to read.
            empty_queries: by embedding, unanswerable queries per structure, for ROC-AUC.
            cluster: Ray workers that do the ranking.
            progress: called with (what, done, total).
        """
        from betae.evaluation.evaluate import evaluate

        check_choice("method", method, METHODS)
        graph = self._parts.open_graph(self._moved_graph)
        if not len(graph.written_ids["valid"]) and self._parts.has_model:
            method = "embedding"
        if not isinstance(queries, QuerySet):
            from betae.datasets.release import open_queries

            folder, queries = Path(queries), open_queries(graph, queries, split)
            name = name or folder.resolve().name + ("" if queries.split == "test" else "-valid")
        name = (name or queries.split) + ("" if method == "embedding" else "-completed")
        check_parent(evaluation_file(self.folder, name))
        with parallel.joined("Evaluate again."):
            cached = CACHE_BYTES if cluster else EVALUATION_CACHE  # of each worker
            open_ranker = partial(self.ranker, method, cache_bytes=cached)
            evaluation = evaluate(
                open_ranker(),
                graph,
                queries,
                empty_queries=empty_queries,
                cluster=cluster,
                open_ranker=open_ranker,
                progress=progress,
            )
            evaluation = replace(evaluation, run=self.folder.resolve().name, name=name)
            if parallel.process_index() == 0:
                write_back(save_evaluation(evaluation, self.folder))
        return evaluation

    def ranker(self, method: Method, *, cache_bytes: int = CACHE_BYTES) -> Ranker:
        """Load the ranker of an evaluation, for which training edges alone are known."""
        if method == "embedding":
            from betae.evaluation.ranks import EmbeddingRanker

            return EmbeddingRanker(self.model())
        completed = self.completed_graph("train", cache_bytes=cache_bytes)
        return ByCompletion(self.graph, completed)

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations kept so far."""
        return read_evaluations(self.folder)

    # ---- questions ----------------------------------------------------------------------------

    def answer(
        self,
        question: str | Query | tuple[Any, ...],
        k: int | None = None,
        *,
        edges: Edges = "all",
        method: Method = "completed",
        status: Status | None = None,
        threshold: float = 0.0,
        explain: bool = False,
    ) -> Answers:
        """Answer a question: ranked entities, known or predicted, with probabilities.

        Args:
            question: logic text, a SPARQL SELECT, a tree, or a release's tuples.
            k: number of answers; by default SPARQL's LIMIT, or 10.
            edges: the edges that count as known facts.
            method: "completed" evaluates the question over the completed graph; "embedding" ranks
                entities by their distance from the embedded question, as the paper does.
            status: keep only "known", "assumed" or "predicted" answers.
            threshold: keep only answers at least this probable.
            explain: add the best derivation of each answer.

        The first call fits probabilities on validation edges, and loads the models.
        """
        answerer = self._kept_answerer(edges, method)
        return answerer.answer(question, k, status=status, threshold=threshold, explain=explain)

    def ask(self, question: str, *, edges: Edges = "all") -> Verdict:
        """Answer a yes/no question: whether the facts entail it, or else how probable it is.

        Args:
            question: logic text without an answer variable, such as "capital(France, Paris)" or
                "exists ?X : borders(France, ?X) & borders(?X, Austria)"; with one, it asks whether
                there is an answer. Or SPARQL's ASK, of which the facts alone decide.
            edges: the edges that count as known facts.

        The verdict is true if the facts say yes.
        """
        return self._kept_answerer(edges, "completed").ask(question)

    def _kept_answerer(self, edges: Edges, method: Method) -> Answerer:
        if (edges, method) not in self._answerers:
            self._answerers[edges, method] = self.answerer(edges, method=method)
        return self._answerers[edges, method]

    def sparql(self, text: str, edges: Edges = "all") -> Selection:
        """Answer a SPARQL SELECT from the completed graph, with ?probability and ?status.

        Its pattern must be a tree around one variable; filters on ?probability and ?status, and
        ORDER BY, LIMIT and so on, are evaluated on its 1,000 most probable answers. Exact answers
        of all of SPARQL: `run.graph.sparql`.

        Args:
            text: such as "SELECT ?x ?probability { <France> <capital> ?x }".
            edges: the edges that count as known facts.
        """
        return self._kept_answerer(edges, "completed").sparql(text)

    def answerer(
        self,
        edges: Edges = "all",
        *,
        method: Method = "completed",
        use_index: bool = False,
        union: UnionForm = "DNF",
        cache_bytes: int = CACHE_BYTES,
        notify: Callable[[str], None] = lambda _: None,
    ) -> Answerer:
        """Load the models to answer many questions with one set of options: see `answer`.

        Args:
            use_index: rank only entities that the indexes of `build_index` find.
            union: by embedding, how unions are computed: disjunctive normal form or De Morgan.
            cache_bytes: for rows of the completed graph.
            notify: called with a line of text before slow steps.

        Without validation edges nothing can be fitted: answers are then ranked by embedding, and
        have no probabilities.
        """
        check_choice("edges", edges, EDGES)
        check_choice("method", method, METHODS)
        check_choice("union", union, get_args(UnionForm))
        return open_answerer(
            self._parts,
            self.graph,
            edges,
            method=method,
            use_index=use_index,
            union=union,
            cache_bytes=cache_bytes,
            notify=notify,
        )

    def completed_graph(
        self,
        edges: Edges = "all",
        *,
        cache_bytes: int = CACHE_BYTES,
        notify: Callable[[str], None] = lambda _: None,
    ) -> CompletedGraph:
        """Return the graph with a probability for every edge that is not known."""
        return open_completed_graph(self._parts, self.graph, edges, cache_bytes, notify)

    def complete(
        self,
        *,
        relation: str | None = None,
        entity: str | None = None,
        above: float = 0.5,
        edges: Edges = "all",
        cluster: Cluster | None = None,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> MissingEdges:
        """Return the missing edges of the graph that are more probable than `above`.

        Those of one `relation` or `entity` only, if given; `edges` count as known.
        """
        load = partial(self.completed_graph, edges)
        search = partial(
            complete, self.graph, load(), cluster=cluster, load=load if cluster else None
        )
        return search(relation=relation, entity=entity, above=above, progress=progress)

    def why(self, head: str, relation: str, tail: str, *, edges: Edges = "all") -> Evidence:
        """Return what speaks for an edge: rules with their paths, votes, models, the base rate.

        Their log-odds add up to the probability. An edge that is among `edges` is known; its
        reasons are those of the other facts, without log-odds.
        """
        if edges not in self._completed:
            self._completed[edges] = self.completed_graph(edges)
        return why_edge(self._completed[edges], head, relation, tail)

    @property
    def index(self) -> Index:
        """The approximate index of the entities that `build_index` made, read anew each time."""
        from betae.search import Index

        return Index.open(self._parts.index, self.model_folder.name)

    def build_index(
        self, kind: IndexKind | None = None, notify: Callable[[str], None] = lambda _: None
    ) -> Index:
        """Build an approximate index of the entities and keep it with the run.

        If there is a link predictor, it gets one too, of this kind if it can.
        """
        from betae.search import INDEX_KINDS, build_index, typical_queries

        check_parent(self._parts.index)
        folder, model = self.model_folder, self.model()
        queries = typical_queries(model, self.graph)
        index = build_index(model, queries, folder.name, kind, notify)
        index.save(self._parts.index)
        if beside := self.predictor:
            beside.build_index(kind if kind in INDEX_KINDS[beside.model().metric] else None, notify)
        return index

    def bench_indexes(self, notify: Callable[[str], None] = lambda _: None) -> list[Speed]:
        """Measure exact search and every kind of index for the model: speed and recall@10."""
        from betae.search import measure_all

        return measure_all(self.model(), self.graph, self.model_folder.name, notify)

    def export_vectors(self, file: Path | str) -> tuple[QueryModel, int]:
        """Write the search vectors of all entities; return the model and the vectors' width."""
        from betae.search import export_vectors

        model = self.model()
        return model, export_vectors(model, model.table(), self.graph, Path(file))


def mine(
    graph: KnowledgeGraph,
    folder: Path | str,
    *,
    seed: int = 0,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Run:
    """Mine rules from a graph: a run that predicts edges and says why, without training.

    Args:
        folder: of the run, new or empty.
        seed: of the edges and heads that are sampled.
        overwrite: replace the rules of an earlier run that has no model.
        progress: called with (done, total).

    A graph without validation edges has some of its edges held out for the run, to fit
    probabilities on. In answers they count as known.
    """
    from betae.rules.mining import mine_rules

    parts = RunFolder(folder)
    if not overwrite and parts.path.is_dir() and any(parts.path.iterdir()):
        raise InvalidArgument(
            f"{folder} is not empty. Choose another folder, or replace it: --overwrite, in Python "
            "overwrite=True."
        )
    if parts.has_model:
        raise InvalidArgument(f"{folder} holds a trained model: choose another folder.")
    check_parent(parts.rules)
    if not len(graph.written_ids["valid"]):
        from betae.graph.change import hold_out  # imports polars, which questions do not need

        graph = hold_out(graph, HELD_OUT)
        if not len(graph.written_ids["valid"]):
            raise InvalidArgument(
                "The graph is too small to predict edges: none can be held out without losing an "
                "entity or a relation. Ask for exact answers: betae query."
            )
    rules = mine_rules(graph.adjacency("train"), graph.num_relations, seed, progress)
    parts.path.mkdir(parents=True, exist_ok=True)
    parts.edges.unlink(missing_ok=True)  # fitted for earlier rules
    parts.save_graph_path(graph)
    _save_rules(rules, parts, graph)
    return Run(folder)


def open_or_mine(
    folder: Path | str,
    graph: Path | str | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Run:
    """Open a run, or mine the rules of a graph, once, into the folder `mined` inside it.

    They are mined again when the graph has a new relation, or another tenth of its edges.
    """
    folder = local_folder(folder)
    if not (folder / MANIFEST).is_file():
        return Run.open(folder, graph)
    mined = folder / MINED
    if not RunFolder(mined).has_rules or _is_outdated(mined, folder):
        mine(KnowledgeGraph.open(folder), mined, overwrite=True, progress=progress)
    return Run.open(mined)


def _save_rules(rules: RuleSet, parts: RunFolder, graph: KnowledgeGraph) -> None:
    rules.save(parts.rules, graph.fingerprint, sum(map(len, graph.written_ids.values())))


def _is_outdated(mined: Path, graph: Path) -> bool:
    """Whether a graph has changed so much that its rules should be mined again."""
    then, now = read_manifest(mined / "rules", "rules"), read_manifest(graph, "graph")
    num_edges = sum(now["edges"].values())
    if then.get("relations", now["relations"]) != now["relations"]:
        return True
    return bool(abs(num_edges - then.get("edges", num_edges)) > MAX_CHANGED * num_edges)


def train(
    graph: KnowledgeGraph,
    folder: Path | str,
    config: TrainConfig | None = None,
    *,
    queries: QuerySet | None = None,
    valid: QuerySet | None = None,
    minutes: float | None = None,
    resume: bool = False,
    from_run: Run | Path | str | None = None,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Run:
    """Train a model on a graph; checkpoints, metrics and the best model go to `folder`.

    Args:
        config: settings; by default those of `from_run`, or chosen by the size of the graph.
        queries: training queries; by default sampled on the fly.
        valid: validation queries; by default sampled from the validation edges.
        minutes: time limit over all sessions, half of it for the link predictor if there is one;
            the learning rate then falls with time instead of steps.
        resume: continue the run in `folder` from its last checkpoint.
        from_run: a run on this graph before edges were added: start from its weights; new entities
            and relations start from those of their neighbours.
        report: called with every line of the metrics.
        progress: called with (done, total) while rules are mined.

    A link predictor, if the config has one, is trained after the model, into `folder/predictor`,
    and rules are mined last. A graph without validation edges has some of its edges held out for
    the run, unless query sets are given; in answers they count as known.
    """
    from betae.rules.mining import mine_rules  # a question needs none of them
    from betae.training.loop import INTERRUPTED, fit
    from betae.training.warm_start import earlier_runs

    parts = RunFolder(folder)
    before = from_run.folder if isinstance(from_run, Run) else from_run
    if queries is None and valid is None:
        earlier_run = None if before is None else RunFolder(before)
        graph = _with_validation(graph, parts if resume else None, earlier_run)
    if config is None:
        config = _choose_config(graph, parts if resume else None, before)
    beside = config.predictor if len(graph.written_ids["valid"]) else None
    earlier = earlier_predictor = None
    if before is not None:
        earlier, earlier_predictor = earlier_runs(before, config, beside, graph)
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
    is_complete = outcome.why != INTERRUPTED and len(graph.written_ids["valid"])
    if is_complete and parallel.process_index() == 0 and not parts.has_rules:
        rules = mine_rules(graph.adjacency("train"), graph.num_relations, progress=progress)
        _save_rules(rules, parts, graph)
    return Run(folder, outcome=outcome)


def _with_validation(
    graph: KnowledgeGraph, resumed: RunFolder | None, before: RunFolder | None
) -> KnowledgeGraph:
    """Hold edges out of a graph without validation edges, those that the earlier run held out."""
    from betae.graph.change import hold_out, hold_out_again  # as above

    if len(graph.written_ids["valid"]):
        return graph
    if resumed is not None and resumed.path.is_dir() and any(resumed.path.iterdir()):
        return resumed.open_graph(graph.folder) if resumed.holds_out else graph
    if before is not None and before.holds_out:
        return hold_out_again(graph, before.open_graph(graph.folder, may_have_grown=True))
    return hold_out(graph, HELD_OUT)


def _choose_config(
    graph: KnowledgeGraph, resumed: RunFolder | None, before: Path | str | None
) -> TrainConfig:
    """Return the settings of the run to resume, of the run to start from, or by size."""
    from betae.training.config import default_config

    if resumed is not None and resumed.path.is_dir() and any(resumed.path.iterdir()):
        return resumed.read_config()
    return default_config(graph) if before is None else RunFolder(before).read_config()
