"""Verdicts: the answers to yes/no questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from betae.answering.results import Answer, Step, html_derivations, plain_step
from betae.errors import InvalidArgument, UnsupportedQuery
from betae.exact.answers import refuted
from betae.exact.select import select
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.queries.closed import about_an_entity, read_closed
from betae.queries.formula import Exists, Question
from betae.queries.read import is_sparql

if TYPE_CHECKING:
    from betae.answering.answerer import Answerer

VerdictStatus = Literal["known", "assumed", "predicted", "refuted", "unknown"]
VERDICTS: dict[VerdictStatus, str] = {
    "known": "yes: it follows from the facts",
    "assumed": "yes, unless a fact is missing",
    "predicted": "it does not follow from the facts",
    "refuted": "no: the facts rule it out",
    "unknown": "it does not follow from the facts, and has no prediction",
}
assert tuple(VERDICTS) == get_args(VerdictStatus)
EXACT_ONLY = "such a question has exact answers only"


@dataclass(frozen=True)
class Verdict:
    """The answer to a yes/no question; it is true if the facts say yes."""

    question: str
    status: VerdictStatus
    probability: float | None  # that it holds; None if it cannot be predicted
    answer: Answer | None = None  # the entity it is about, with derivations
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.status in ("known", "assumed")

    def summary(self) -> str:
        """Return the verdict in a line."""
        text = VERDICTS[self.status]
        if self.status in ("assumed", "predicted"):
            assert self.probability is not None
            percent = ">99.9%" if self.probability > 0.999 else f"{self.probability:.1%}"
            text += f"; {'<0.1%' if self.probability < 0.001 else percent} probable"
        odd = [f"unusual: {self.answer.unusual}"] if self.answer and self.answer.unusual else []
        return "; ".join([text, *odd, *self.notes])

    def __repr__(self) -> str:
        return f"{self.question}\n{self.summary()}"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values, derivations included."""
        found = self.answer
        return {
            "question": self.question,
            "status": self.status,
            "holds": bool(self),
            "probability": self.probability,
            "derivations": [plain_step(step) for step in found.derivations] if found else [],
            "num_derivations": found.num_derivations if found else None,
            "unusual": found.unusual if found else None,
            "notes": self.notes,
        }

    def _repr_html_(self) -> str:
        derivations = html_derivations(self.answer) if self.answer else ""
        return (
            f"<p><code>{escape(self.question)}</code><br>{escape(self.summary())}</p>{derivations}"
        )


def give_verdict(answerer: Answerer, text: str) -> Verdict:
    """Answer a yes/no question: see `Run.ask`.

    It is asked about each entity that it names. The probability is the largest of these, as that of
    an edge is the larger one of both ends.
    """
    graph, edges = answerer.graph, answerer.edges
    if isinstance(text, str) and is_sparql(text):
        found = graph.sparql(text, edges)
        if not isinstance(found, bool):
            raise InvalidArgument("This is no yes/no question: write ASK, or call `answer`.")
        return _exact(text, found, ())
    closed = read_closed(text, graph, edges)
    best: Verdict | None = None
    for entity, question in about_an_entity(closed):
        try:
            tree = question.tree
        except UnsupportedQuery:
            continue
        found_answers = answerer.answer(tree, 1, explain=True)
        notes = (*closed.notes, *found_answers.notes)
        if not len(found_answers):
            is_refuted = entity in refuted(graph, [tree], edges)[0]
            verdict = Verdict(text, "refuted" if is_refuted else "predicted", 0.0, None, notes)
        else:
            answer = _without_itself(found_answers[0])
            verdict = Verdict(text, answer.status, answer.probability, answer, notes)
        if verdict or verdict.status == "refuted":
            return verdict
        if best is None or (verdict.probability or 0) > (best.probability or 0):
            best = verdict
    if best is not None:
        return best
    return _exact(text, _holds(graph, closed, edges), closed.notes)


def _without_itself(answer: Answer) -> Answer:
    """Leave out of the derivations that the entity is the entity."""

    def shortened(step: Step) -> Step:
        if step.status != "and":
            return step
        left = tuple(each for each in step.sources if each.edge or each.text != answer.label)
        return left[0] if len(left) == 1 else replace(step, sources=left)

    why = answer.why and shortened(answer.why)
    return replace(answer, why=why, further=tuple(map(shortened, answer.further)))


def _exact(text: str, holds: bool, notes: tuple[str, ...]) -> Verdict:
    if holds:
        return Verdict(text, "known", 1.0, None, notes)
    return Verdict(text, "unknown", None, None, (*notes, EXACT_ONLY))


def _holds(graph: KnowledgeGraph, closed: Question, edges: Edges) -> bool:
    """Whether a formula that is no tree follows from the facts."""
    question = next((each for _, each in about_an_entity(closed)), None)
    if question is None:
        if not isinstance(closed.formula, Exists):
            raise UnsupportedQuery("This question names no entity: begin it with exists.")
        question = Question(closed.formula.variables, closed.formula.part)
    found = select(graph, question, edges, limit=1)
    return any(len(np.atleast_2d(piece)) for piece in found.ids())
