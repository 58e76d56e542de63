"""The thread that works with the models; waiting questions are answered as one batch."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf
from time import monotonic
from typing import Any

import torch

from betae import parallel
from betae.answering.answerer import Answerer, QuestionRequest
from betae.answering.by_completion import ByCompletion
from betae.answering.completed import CACHE_BYTES
from betae.answering.evidence import Evidence
from betae.answering.missing import complete
from betae.answering.results import Answers
from betae.answering.why import why_edge
from betae.evaluation.results import Method
from betae.exact.select import hint_of_direction
from betae.graph.edges import Edges
from betae.models.base import QueryModel
from betae.run import Run
from betae.server.browse import describe_edge
from betae.server.limits import Refused

MIN_PROBABILITY = 0.01  # of the missing edges listed
TOO_MANY_EDGES = (
    "It takes too long to look for all these missing edges: name an entity as well, or a relation "
    "with fewer edges."
)
CACHE_DIVISORS: dict[Edges, int] = {"all": 2, "train+valid": 4, "train": 4}


@dataclass(frozen=True)
class _Waiting:
    asked: QuestionRequest
    method: Method
    edges: Edges
    result: Future[dict[str, Any]] = field(default_factory=Future)


class Questions:
    """A run, and the only thread that uses its models.

    While it answers, further questions queue up. It takes up to `batch_size` of them as the next
    batch; those of one structure are evaluated together. `observe` is called with every batch size.
    """

    def __init__(self, run: Run, batch_size: int, observe: Callable[[int], None]):
        self.run, self.batch_size, self.observe = run, batch_size, observe
        self._answerers: dict[tuple[Method, Edges], Answerer] = {}
        self._waiting: deque[_Waiting] = deque()
        # Leave a core to the event loop: torch waits for the slowest of its threads.
        num_threads = max(1, parallel.num_threads() - 1)
        self._thread = ThreadPoolExecutor(1, "questions", torch.set_num_threads, (num_threads,))

    def ask(self, asked: QuestionRequest, method: Method, edges: Edges) -> Future[dict[str, Any]]:
        """Queue a question; the result is plain values."""
        waiting = _Waiting(asked, method, edges)
        self._waiting.append(waiting)
        self._thread.submit(self._answer_batch)  # does nothing if an earlier batch took it
        return waiting.result

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Queue other work with the models."""
        return self._thread.submit(function)

    def close(self) -> None:
        """End the thread after everything in the queue is done."""
        self._thread.shutdown()

    # ---- in the thread ------------------------------------------------------------------------

    @cached_property
    def model(self) -> QueryModel:
        """The run's model."""
        return self.run.model()

    def answerer(self, method: Method = "completed", edges: Edges = "all") -> Answerer:
        """Return the answerer of a method and edges, loaded once."""
        key = method, edges
        if key not in self._answerers:
            cache_bytes = CACHE_BYTES // CACHE_DIVISORS[edges]
            self._answerers[key] = self.run.answerer(edges, method=method, cache_bytes=cache_bytes)
        return self._answerers[key]

    def describe(self) -> dict[str, Any]:
        """Describe the model, and the method it answers by."""
        ranker = self.answerer().ranker
        predictors = (
            [self.model.name] if not isinstance(ranker, ByCompletion) else ranker.predictors
        )
        method = {"predictors": list(predictors), "method": ranker.method}
        if not self.run.has_model:
            return {"name": "rules", **method}
        return {
            "name": self.model.name,
            "config": asdict(self.model.config),
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "has_negation": self.model.has_complement,
            **method,
        }

    def missing_edges_of(self, entity: int, limit: int) -> list[dict[str, Any]] | None:
        """Return the most probable missing edges of an entity; None without probabilities."""
        name = self.run.graph.entities[entity]
        found = self.missing_edges(name, None, MIN_PROBABILITY)
        return None if found is None else found[:limit]

    def missing_edges(
        self, entity: str | None, relation: str | None, above: float, until: float = inf
    ) -> list[dict[str, Any]] | None:
        """Return missing edges, most probable first; None without probabilities.

        Raises Refused if it is not done at a time of the monotonic clock.
        """
        graph, ranker = self.run.graph, self.answerer().ranker
        if not isinstance(ranker, ByCompletion):
            return None

        def check_time(done: int, total: int) -> None:
            if monotonic() > until and done < total:
                raise Refused(400, TOO_MANY_EDGES)

        found = complete(
            graph,
            ranker.completed,
            entity=entity,
            relation=relation,
            above=above,
            progress=check_time,
            with_reasons=False,
        )
        return [
            {
                **describe_edge(
                    graph,
                    graph.entities.find(row["head"])[0],
                    graph.relations.find(row["relation"])[0],
                    graph.entities.find(row["tail"])[0],
                    "in" if row["tail"] == entity != row["head"] else "out",
                ),
                "probability": row["probability"],
            }
            for row in found
        ]

    def why(self, head: str, relation: str, tail: str) -> Evidence:
        """Return what speaks for an edge."""
        ranker = self.answerer().ranker
        if not isinstance(ranker, ByCompletion):
            raise Refused(400, "Without validation edges there are no probabilities to explain.")
        return why_edge(ranker.completed, head, relation, tail)

    def _answer_batch(self) -> None:
        groups: dict[tuple[Method, Edges], list[_Waiting]] = defaultdict(list)
        for _ in range(min(self.batch_size, len(self._waiting))):
            waiting = self._waiting.popleft()
            if waiting.result.set_running_or_notify_cancel():  # the client is still there
                groups[waiting.method, waiting.edges].append(waiting)
        for (method, edges), group in groups.items():
            self.observe(len(group))
            self._answer(method, edges, group)

    def _answer(self, method: Method, edges: Edges, group: Sequence[_Waiting]) -> None:
        """Answer questions, each as soon as its answers are ready."""
        try:
            answerer = self.answerer(method, edges)
            for i, answers in answerer.answer_each([waiting.asked for waiting in group]):
                group[i].result.set_result(self._plain(answers))
        except Exception as error:
            for waiting in group:
                if waiting.result.done():
                    continue
                if len(group) == 1:
                    waiting.result.set_exception(error)
                else:  # which one failed is not known: answer them one by one
                    self._answer(method, edges, [waiting])

    def _plain(self, answers: Answers) -> dict[str, Any]:
        hint = None
        if not answers.num_known:
            hint = hint_of_direction(self.run.graph, answers.query, answers.edges)
        return {**answers.to_json(), "summary": answers.summary(), "note": hint}
