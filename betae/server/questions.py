"""Questions to a run, answered by one thread: those that wait are answered together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import torch

from betae import parallel
from betae.answering.answerer import Answerer, Asked
from betae.answering.completed import CACHE_BYTES
from betae.answering.results import Answers, Method
from betae.exact.direction import hint_of_direction
from betae.graph.edges import Edges
from betae.models.base import QueryModel
from betae.run import Run

SHARES: dict[Edges, int] = {"all": 2, "train+valid": 4, "train": 4}  # of the cache: 1/2, 1/4, 1/4


@dataclass(frozen=True)
class _Waiting:
    asked: Asked
    method: Method
    edges: Edges
    result: Future[dict[str, Any]]


@dataclass(frozen=True)
class _Call:
    function: Callable[[], Any]
    result: Future[Any]


class Questions:
    """A run with the thread that alone works with its models.

    While it answers, further questions queue up; it takes up to `at_once` of them as the next
    batch, in which those of one structure are evaluated as one. `observe` is told every size.
    """

    def __init__(self, run: Run, at_once: int, observe: Callable[[int], None]):
        self.run, self.at_once, self.observe = run, at_once, observe
        self._answerers: dict[tuple[Method, Edges], Answerer] = {}
        self._queue: SimpleQueue[_Waiting | _Call | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="betae-questions", daemon=True)
        self._thread.start()

    @cached_property
    def model(self) -> QueryModel:
        """The run's model by itself; for use in the thread."""
        return self.run.model()

    def answerer(self, method: Method = "completed", edges: Edges = "all") -> Answerer:
        """Return the answerer of a method and edges, loaded once; for use in the thread."""
        key = method, edges
        if key not in self._answerers:
            cache_bytes = CACHE_BYTES // SHARES[edges]
            self._answerers[key] = self.run.answerer(edges, method=method, cache_bytes=cache_bytes)
        return self._answerers[key]

    def ask(self, asked: Asked, method: Method, edges: Edges) -> Future[dict[str, Any]]:
        """Queue a question up; the result is plain values."""
        result: Future[dict[str, Any]] = Future()
        self._queue.put(_Waiting(asked, method, edges, result))
        return result

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Queue other work with the models up."""
        result: Future[Any] = Future()
        self._queue.put(_Call(function, result))
        return result

    def close(self) -> None:
        """End the thread once everything in the queue is done."""
        self._queue.put(None)
        self._thread.join()

    # ---- in the thread ------------------------------------------------------------------------

    def _work(self) -> None:
        # A core is left for the requests: torch waits for the slowest of its threads.
        torch.set_num_threads(max(1, parallel.num_threads() - 1))
        while (first := self._queue.get()) is not None:
            batch, last = [first], False
            while len(batch) < self.at_once and not last:
                try:
                    item = self._queue.get_nowait()
                except Empty:
                    break
                if item is None:
                    last = True
                else:
                    batch.append(item)
            self._do(batch)
            if last:
                return

    def _do(self, batch: Sequence[_Waiting | _Call]) -> None:
        groups: dict[tuple[Method, Edges], list[_Waiting]] = defaultdict(list)
        for item in batch:
            if not item.result.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            if isinstance(item, _Call):
                _fulfil(item.result, item.function)
            else:
                groups[item.method, item.edges].append(item)
        for key, waiting in groups.items():
            self.observe(len(waiting))
            self._answer(key, waiting)

    def _answer(self, key: tuple[Method, Edges], waiting: Sequence[_Waiting]) -> None:
        """Answer questions, each as soon as its answers are there."""
        try:
            for place, answers in self.answerer(*key).answer_each([each.asked for each in waiting]):
                _fulfil(waiting[place].result, partial(self._plain, answers))
        except Exception:  # of one of them: the others are not to blame
            for each in waiting:
                if not each.result.done():
                    _fulfil(each.result, partial(self._answer_one, key, each))

    def _answer_one(self, key: tuple[Method, Edges], waiting: _Waiting) -> dict[str, Any]:
        return self._plain(self.answerer(*key).answer_many([waiting.asked])[0])

    def _plain(self, answers: Answers) -> dict[str, Any]:
        hint = None
        if not answers.num_known:
            hint = hint_of_direction(self.run.graph, answers.query, answers.edges)
        return {**answers.to_json(), "summary": answers.summary(), "note": hint}


def _fulfil(result: Future[Any], function: Callable[[], Any]) -> None:
    try:
        result.set_result(function())
    except Exception as error:
        result.set_exception(error)
