"""Answerer: answer questions with a ranker; and open the rankers of a run's folder.

The first time that a run is asked, its probabilities are fitted and kept in the folder, in
`edges.json` and `calibration.json`. They are fitted again for another model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from betae.answering.by_completion import ByCompletion
from betae.answering.completed import CACHE_BYTES, CompletedGraph
from betae.answering.edges import (
    Counts,
    EdgePredictors,
    EdgeWeights,
    log_odds_of_missing,
)
from betae.answering.results import (
    MAX_UNCERTAIN,
    STATUSES,
    Answer,
    Answers,
    Derived,
    Ranking,
    RankRequest,
    Status,
    are_among,
    as_shown,
)
from betae.answering.sparse import edge_probabilities
from betae.answering.support import Ways, count_ways
from betae.answering.unusual import KnownTails
from betae.checks import check_choice, check_positive
from betae.errors import InvalidArgument, StoreError
from betae.evaluation.results import Method
from betae.exact.answers import answers, answers_batch, refuted, sure_answers
from betae.exact.select import Selection
from betae.exact.unknown import unknown_values
from betae.graph.edges import EDGES, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.formula import Question
from betae.queries.read import read_question
from betae.queries.rewrite import UnionForm
from betae.queries.spelling import spell_query
from betae.queries.structures import has_negation
from betae.rules.rule_set import RuleSet
from betae.storage import read_checked_json, write_checked_json
from betae.training.folder import RunFolder

if TYPE_CHECKING:  # rules need no torch
    from betae.answering.by_embedding import ByEmbedding
    from betae.answering.calibration import Calibration
    from betae.answering.verdict import Verdict

DEFAULT_K = 10
PREDICTED = list(STATUSES).index("predicted")

Explain = Callable[[int], Derived]
Fitted = TypeVar("Fitted", "EdgeWeights", "Calibration")


class QuestionRanker(Protocol):
    """Ranks entities for questions; for evaluation there is `betae.evaluation.ranks.Ranker`."""

    method: Method

    def rank(self, requests: Sequence[RankRequest]) -> Iterator[tuple[int, Ranking]]:
        """Yield the index of each request with its ranking, in any order.

        A ranking has the known answers and at least k others, if there are as many, but none of the
        entities that the facts rule out.
        """
        ...


class QuestionRequest(NamedTuple):
    """A question, and which of its answers to return: see `Answerer.answer`."""

    question: str | Query | tuple[Any, ...]
    k: int | None = None
    status: Status | None = None
    threshold: float = 0.0
    explain: bool = False
    notes: tuple[str, ...] = ()  # of whoever read the question


class Answerer:
    """Answers questions: entities with status, probability and derivation.

    `edges` are the edges of the graph that count as known.
    """

    def __init__(self, graph: KnowledgeGraph, ranker: QuestionRanker, edges: Edges = "all"):
        check_choice("edges", edges, EDGES)
        self.graph, self.ranker, self.edges = graph, ranker, edges
        self._known_tails = KnownTails(graph, edges)

    def __repr__(self) -> str:
        return f"Answerer({self.graph!r}, method={self.ranker.method!r}, edges={self.edges!r})"

    def _repr_html_(self) -> str:
        how = f"Answerer: method {self.ranker.method}, known edges {self.edges}"
        return f"<p>{escape(how)}</p>{self.graph._repr_html_()}"

    def answer(
        self,
        question: str | Query | tuple[Any, ...],
        k: int | None = None,
        *,
        status: Status | None = None,
        threshold: float = 0.0,
        explain: bool = False,
    ) -> Answers:
        """Return the k best answers to a question: logic text, SPARQL, or a tree.

        k defaults to the LIMIT of SPARQL, or 10. Facts come first. `status` keeps only known,
        assumed or predicted answers, `threshold` only those at least as probable, and `explain`
        adds the best derivations.
        """
        return self.answer_many([QuestionRequest(question, k, status, threshold, explain)])[0]

    def ask(self, question: str) -> Verdict:
        """Answer a yes/no question: see `Run.ask`."""
        from betae.answering.verdict import give_verdict

        return give_verdict(self, question)

    def sparql(self, text: str) -> Selection:
        """Answer a SPARQL SELECT with ?probability and ?status: see `Run.sparql`."""
        from betae.exact.predicted import MAX_ANSWERS, AnswerRow, finish, read_predicted

        question = read_predicted(text, self.graph, self.edges)
        (found,) = self.answer_many([QuestionRequest(question.tree, MAX_ANSWERS)])
        rows: list[AnswerRow] = [(each.entity, each.probability, each.status) for each in found]
        solutions = finish(text, self.graph, question.variables[0].name, rows)
        return Selection(self.graph, solutions, self.edges, sys.maxsize)

    def answer_many(self, requests: Sequence[QuestionRequest]) -> list[Answers]:
        """Answer many questions; those of one structure are evaluated together."""
        results = dict(self.answer_each(requests))
        return [results[i] for i in range(len(requests))]

    def answer_each(self, requests: Sequence[QuestionRequest]) -> Iterator[tuple[int, Answers]]:
        """Yield the index of each question with its answers, as they are found, in any order."""
        if not requests:
            return
        questions, counts = zip(*map(self._read, requests), strict=True)
        queries = [question.tree for question in questions]
        known = answers_batch(self.graph, queries, self.edges)
        ruled_out = refuted(self.graph, queries, self.edges)
        to_rank = [*map(RankRequest, queries, known, ruled_out, counts)]
        for i, ranking in self.ranker.rank(to_rank):
            found = self._choose(requests[i], to_rank[i], ranking)
            notes = *requests[i].notes, *questions[i].notes, *found.notes
            yield i, replace(found, notes=notes)

    def _read(self, request: QuestionRequest) -> tuple[Question, int]:
        """Check a request; return its question and the number of answers it asks for."""
        question = read_question(request.question, self.graph, edges=self.edges)
        limit = DEFAULT_K if question.limit is None else question.limit
        k = limit if request.k is None else request.k
        check_positive("k", k, whole=True)
        if request.status is not None:
            check_choice("status", request.status, STATUSES)
        if not 0 <= request.threshold <= 1:
            raise InvalidArgument(f"threshold is {request.threshold!r}; it must be from 0 to 1.")
        return question, k

    def _choose(self, request: QuestionRequest, ranked: RankRequest, ranking: Ranking) -> Answers:
        """Choose the requested answers of a ranking."""
        query, known = ranked.query, ranked.known
        certain = known  # without a negation, no missing fact can refute a known answer
        if has_negation(query):
            certain = sure_answers(self.graph, [query], self.edges)[0]
        by_all_edges = known if self.edges == "all" else answers(self.graph, query, "all")
        ways = count_ways(self.graph.adjacency(self.edges), query)
        listed, expected = _Listed.of(ranking, known, certain, ways), None
        if ranking.probabilities is not None:
            expected = float(listed.probabilities.sum()) + ranking.rest
        chosen = listed.choose(ranked.k, request.status, request.threshold)
        explain = ranking.explain if request.explain else None
        return Answers(
            query=spell_query(self.graph, query),
            answers=tuple(self._describe(query, listed, i, ranking, explain) for i in chosen),
            method=self.ranker.method,
            edges=self.edges,
            num_known=len(known),
            num_by_all=len(by_all_edges),
            num_assumed=len(known) - len(certain),
            expected=expected,
            entropy=ranking.entropy,
            notes=unknown_values(self.graph, Question.from_tree(query), self.edges),
        )

    def _describe(
        self, query: Query, listed: _Listed, i: int, ranking: Ranking, explain: Explain | None
    ) -> Answer:
        entity, probability = int(listed.ids[i]), float(listed.probabilities[i])
        rank, distance = int(listed.ranks[i]) or None, float(listed.distances[i])
        if rank is None and ranking.rank_of is not None:
            rank = ranking.rank_of(entity)
        derived = explain(entity) if explain else None
        number = int(listed.num_ways[i]) or (derived and derived.number)
        is_predicted = listed.statuses[i] == PREDICTED
        return Answer(
            self.graph.entities[entity],
            self.graph.entity_label(entity),
            rank,
            None if np.isnan(probability) else probability,
            tuple(STATUSES)[listed.statuses[i]],
            None if np.isnan(distance) else -distance,
            derived.best[0] if derived else None,
            number,
            derived.best[1:number] if derived else (),
            derived.others if derived else 0.0,
            self._known_tails.unusual(query, entity) if is_predicted else None,
            entity,
        )


@dataclass(frozen=True)
class _Listed:
    """Columns of entities, facts first: those of a ranking, and known ones that are not in it."""

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]  # NaN if the run has none
    distances: NDArray[np.float64]  # NaN over the completed graph
    ranks: NDArray[np.int64]  # 0 if unknown
    statuses: NDArray[np.int8]  # indices into STATUSES
    num_ways: NDArray[np.float64]  # in how many the facts make it an answer

    @classmethod
    def of(cls, ranking: Ranking, known: Ids, certain: Ids, ways: Ways) -> _Listed:
        """List a ranking; known answers that are not in it come first.

        Over the completed graph, facts that are as probable, as it is shown, are ordered by the
        number of ways to them.
        """
        missed = known[~are_among(known, ranking.ids)]
        ids = np.concatenate([missed, ranking.ids])
        statuses = np.full(len(ids), PREDICTED, dtype=np.int8)
        statuses[are_among(ids, known)] = 1
        statuses[are_among(ids, certain)] = 0
        num_ways = np.where(statuses < PREDICTED, ways.to(ids), 0)
        probabilities, distances = np.full((2, len(ids)), np.nan)
        if ranking.probabilities is not None:
            probabilities[: len(missed)] = 1.0
            probabilities[len(missed) :] = ranking.probabilities
            probabilities = np.where(statuses == 0, 1.0, np.minimum(probabilities, MAX_UNCERTAIN))
        keys: list[NDArray[Any]] = [statuses]
        if ranking.distances is None:
            is_fact = statuses < PREDICTED
            shown = np.where(is_fact, as_shown(probabilities), 0)
            keys = [-num_ways, -shown, statuses]
        order = np.lexsort(keys)
        ranks = np.zeros(len(ids), dtype=np.int64)
        if ranking.distances is None:
            ranks[order] = np.arange(1, len(ids) + 1)
        else:
            distances[len(missed) :] = ranking.distances
            places = np.arange(1, len(ranking.ids) + 1)
            ranks[len(missed) :] = places * (places <= ranking.num_ranked)
        numbers = probabilities[order], distances[order]
        return cls(ids[order], *numbers, ranks[order], statuses[order], num_ways[order])

    def choose(self, k: int, status: Status | None, threshold: float) -> list[int]:
        """Return the indices of the first k entities of a status and above a threshold."""
        is_chosen = ~(self.probabilities < threshold)
        # Over the completed graph, 0 is no answer; by embedding, it is still ranked.
        is_chosen &= (self.probabilities != 0) | ~np.isnan(self.distances)
        if status is not None:
            is_chosen &= self.statuses == list(STATUSES).index(status)
        indices: list[int] = np.flatnonzero(is_chosen)[:k].tolist()
        return indices


# ---- opening a run ------------------------------------------------------------------------------


def open_answerer(
    folder: RunFolder,
    graph: KnowledgeGraph,
    edges: Edges,
    *,
    method: Method,
    use_index: bool,
    union: UnionForm,
    cache_bytes: int,
    notify: Callable[[str], None],
) -> Answerer:
    """Load the models of a run to answer questions: see `Run.answerer`.

    Without validation edges nothing can be fitted, and answers are ranked by embedding.
    """
    ranker: QuestionRanker
    is_fitted = len(graph.written_ids["valid"]) or not folder.has_model
    if method == "embedding" or not is_fitted:
        ranker = _open_by_embedding(folder, graph, use_index, union, notify)
    elif use_index:
        from betae.answering.by_parts import ByParts, LargeGraph  # imports torch

        predictors = _open_predictors(folder, graph, edges, use_index, notify)
        ranker = ByParts(LargeGraph(graph, predictors, edges))
    else:
        completed = open_completed_graph(folder, graph, edges, cache_bytes, notify)
        ranker = ByCompletion(graph, completed)
    return Answerer(graph, ranker, edges)


def open_completed_graph(
    folder: RunFolder,
    graph: KnowledgeGraph,
    edges: Edges,
    cache_bytes: int = CACHE_BYTES,
    notify: Callable[[str], None] = lambda _: None,
) -> CompletedGraph:
    """Load the models of a run to complete its graph, of which `edges` are known."""
    predictors = _open_predictors(folder, graph, edges, False, notify)
    counts = Counts(graph.adjacency(edges), fitted=graph.adjacency("train"))
    probabilities = edge_probabilities(predictors, counts)
    return CompletedGraph(graph, probabilities, cache_bytes)


def _open_predictors(
    folder: RunFolder,
    graph: KnowledgeGraph,
    edges: Edges,
    use_index: bool,
    notify: Callable[[str], None],
) -> EdgePredictors:
    """Load the model of a run and its link predictor, if there is one, and their weights."""
    folders = [each for each in (folder, RunFolder(folder.predictor)) if each.has_model]
    # Looked up once: training may go on, and replace the best model.
    best = [each.best_model() for each in folders]
    rules = RuleSet.open(folder.rules) if folder.has_rules else None
    if rules is None and not best:
        folder.best_model()  # raises
    indexes, models = [], []
    if best:
        from betae.models.store import load_model  # imports torch
        from betae.search import Index

        pairs = zip(folders, best, strict=True) if use_index else ()
        indexes = [Index.open(each.index, model.name) for each, model in pairs]
        models = [load_model(model, check_rows=not use_index) for model in best]

    def fit() -> EdgeWeights:
        from betae.answering.edge_fit import fit_edges  # needed once

        notify("Fitting the probabilities of edges on validation edges, once")
        return fit_edges(models, graph, use_index, rules)

    names = "+".join([*(["rules"] if rules else []), *(model.name for model in best)])
    weights = _fit_once(folder.edges, names, EdgeWeights.from_json, fit)
    return EdgePredictors(models, weights, log_odds_of_missing(graph, edges), indexes, rules)


def _open_by_embedding(
    folder: RunFolder,
    graph: KnowledgeGraph,
    use_index: bool,
    union: UnionForm,
    notify: Callable[[str], None],
) -> ByEmbedding:
    from betae.answering.by_embedding import ByEmbedding, IndexSearch, calibrate
    from betae.answering.calibration import Calibration
    from betae.models.store import load_model
    from betae.search import Index

    best = folder.best_model()  # looked up once: see `_open_predictors`
    index = Index.open(folder.index, best.name) if use_index else None
    model = load_model(best, check_rows=not use_index)
    search = IndexSearch(model, index) if index else None

    def fit() -> Calibration:
        notify("Fitting probabilities on validation queries, once")
        return calibrate(model, graph, search)

    calibration = None
    if len(graph.written_ids["valid"]):
        calibration = _fit_once(folder.calibration, best.name, Calibration.from_json, fit)
    return ByEmbedding(graph, model, calibration, search, union)


def _fit_once(
    path: Path,
    model: str,
    from_json: Callable[[Mapping[str, Any]], Fitted],
    fit: Callable[[], Fitted],
) -> Fitted:
    """Read what was fitted for a model, or fit it and keep it."""
    remedy = "delete it, and it is fitted again"
    content = read_checked_json(path, remedy)  # None also for a file of an earlier version
    if content is not None and content.pop("model", None) == model:
        try:
            return from_json(content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path} is damaged ({error}): {remedy}.") from error
    found = fit()
    with suppress(StoreError):  # a read-only run is fitted again each time
        write_checked_json(path, {"model": model, **asdict(found)})
    return found
