"""Served: a graph, or a run with its graph, and what answers from it."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from betae import __version__
from betae.answering.answerer import Asked
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.names import resolve
from betae.queries.read import read_question
from betae.queries.structures import structure_of
from betae.queries.trees import to_tree
from betae.server import browse
from betae.server.facts import Facts
from betae.server.limits import Limits
from betae.server.metrics import Metrics
from betae.server.refusals import OF_THE_QUESTION, Refused, refusal
from betae.server.requests import Question, Wanted, to_query

if TYPE_CHECKING:  # a graph is served without torch
    from betae.run import Run
    from betae.server.questions import Questions

NO_MODEL = (
    "This server has a graph and no model, so it predicts nothing: ask POST /query, which answers "
    "from the facts. For predictions start it with a run: betae serve RUN."
)


class Served:
    """What is served: a graph, and the run that was trained on it, if there is one."""

    def __init__(self, source: Run | KnowledgeGraph, limits: Limits):
        self.limits, self.metrics = limits, Metrics()
        self.run = None if isinstance(source, KnowledgeGraph) else source
        self.graph = source if isinstance(source, KnowledgeGraph) else source.graph
        self._questions: Questions | None = None
        self._facts: Facts | None = None

    def open(self) -> None:
        """Load the run and start the processes and the thread, unless that is done."""
        if self._facts is not None:
            return
        if self.run is not None:
            from betae.server.questions import Questions

            questions = Questions(self.run, self.limits.at_once, self.metrics.batches.observe)
            try:
                questions.call(questions.answerer).result()
            except BaseException:
                questions.close()
                raise
            self._questions = questions
        self._facts = Facts(self.graph, self.limits)

    def close(self) -> None:
        """End them."""
        if self._questions is not None:
            self._questions.close()
        if self._facts is not None:
            self._facts.close()

    @property
    def facts(self) -> Facts:
        """The processes that find exact answers."""
        assert self._facts is not None
        return self._facts

    @property
    def questions(self) -> Questions:
        """The run, for questions; refused if there is none."""
        if self._questions is None:
            raise Refused(400, NO_MODEL)
        return self._questions

    @property
    def has_model(self) -> bool:
        """Whether there is a run."""
        return self.run is not None

    @cache  # noqa: B019  # one of these lives as long as the server
    def description(self) -> dict[str, Any]:
        """Return what `GET /model` says; with a run, for use in its thread."""
        model = None
        if self._questions is not None:
            from betae.server.models import describe_model

            model = describe_model(self._questions)
        return {
            "betae": __version__,
            "graph": browse.describe(self.graph),
            "model": model,
            "limits": asdict(self.limits),
        }

    def text_or_tree(self, question: Question) -> str | Query:
        """Return a question as the library takes it, if it is not too large."""
        try:
            if isinstance(question, str):
                self.limits.check_text(question)
                return question
            tree = to_query(question)
            self.limits.check_tree(tree)
            return tree
        except OF_THE_QUESTION as error:
            raise refusal(error) from None

    def read(self, question: Question) -> tuple[Query, int | None]:
        """Read a question into a tree of ids that is not too large, and its LIMIT."""
        tree, limit = self.text_or_tree(question), None
        try:
            if isinstance(tree, str):
                asked = read_question(tree, self.graph.prefixes)
                tree, limit = to_tree(asked), asked.limit
                self.limits.check_tree(tree)
            tree = resolve(tree, self.graph)
            structure_of(tree)  # raises if it has placeholders
        except OF_THE_QUESTION as error:
            raise refusal(error) from None
        return tree, limit

    def asked(self, question: Question, wanted: Wanted) -> Asked:
        """Read a question to the run."""
        tree, limit = self.read(question)
        k = wanted.k if wanted.k is not None else limit
        if k is not None and k > self.limits.answers:
            raise Refused(400, f"k is {k:,}; {self.limits.answers:,} are the most.")
        return Asked(tree, k, wanted.only, wanted.threshold, wanted.explain)
