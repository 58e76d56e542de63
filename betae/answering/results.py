"""Answers: what comes back from a question, as objects, table, JSON or HTML."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from betae.graph.edges import Edges

if TYPE_CHECKING:
    import polars as pl

Method = Literal["completed", "embedding"]
Status = Literal["known", "assumed", "predicted"]
STATUSES: dict[Status, str] = {
    "known": "follows from the facts",
    "assumed": "known unless a fact is missing",  # a negated condition rests on an absence
    "predicted": "needs a missing fact",
}


@dataclass(frozen=True)
class Step:
    """Why an entity is in a set: an edge from another entity, or a condition that it meets."""

    text: str  # such as "Austria located_in Europe"
    status: Literal["known", "missing", "and", "not"]
    probability: float  # that the edge holds, or the condition; for "and", that all do
    sources: tuple[Step, ...] = ()
    edge: tuple[str, str, str] | None = field(default=None, compare=False)  # head, relation, tail

    def whole_probability(self) -> float:
        """Return the probability that everything on the way holds."""
        if self.status == "and":
            return self.probability
        return self.probability * math.prod(step.whole_probability() for step in self.sources)

    def missing(self) -> list[str]:
        """Return the edges on the way that are missing in the graph."""
        found = [self.text] if self.status == "missing" else []
        return [*found, *(text for source in self.sources for text in source.missing())]


@dataclass(frozen=True)
class Answer:
    """An entity that answers a question."""

    entity: str
    label: str
    rank: int | None  # among all that the facts do not rule out; None if an index has missed it
    probability: float | None  # of being an answer; None if the run has no probabilities
    status: Status
    score: float | None = None  # by embedding: the distance, negated
    why: Step | None = None


@dataclass(frozen=True)
class Answers:
    """The answers of one question, facts first, and what can be said of the question."""

    query: str
    answers: tuple[Answer, ...]
    method: Method
    edges: Edges  # which edges count as known
    num_known: int  # that follow from these edges, those that a missing fact may refute included
    num_by_all: int  # the same, if all edges of the graph counted
    num_assumed: int  # of the known ones: a missing fact may refute them
    expected: float | None  # number of answers; None without probabilities
    entropy: float | None  # of the query's embedding; None if the model has no such thing

    @property
    def looks_empty(self) -> bool:
        """Whether no answer at all is likely."""
        return self.expected is not None and self.expected < 0.5

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, place: int) -> Answer:
        return self.answers[place]

    def __repr__(self) -> str:
        lines = [self.query, self.summary()]
        for answer in self.answers:
            how = f"{shown_probability(answer):>6}  {answer.status:<9}"
            lines.append(f"{shown_rank(answer):>6}  {how}  {answer.label}")
        return "\n".join(lines)

    def summary(self) -> str:
        """Say how many answers there are, known and expected."""
        known = f"{self.num_known:,} known"
        if self.edges != "all":
            known = f"{self.num_known:,} of {self.num_by_all:,} known: {self.edges} edges only"
        if self.num_assumed:
            some = "" if self.num_assumed == self.num_known else f"{self.num_assumed:,} of them "
            known += f", {some}unless a fact is missing"
        parts = [known]
        if self.expected is not None:
            parts.append(f"about {self.expected:,.1f} expected")
        if self.looks_empty:
            parts.append("it looks as if there is none")
        return "; ".join(parts)

    def to_polars(self) -> pl.DataFrame:
        """Return a table, one row for each answer."""
        import polars as pl

        schema = {
            "entity": pl.String,
            "label": pl.String,
            "rank": pl.Int64,
            "probability": pl.Float64,
            "status": pl.String,
            "score": pl.Float64,
        }
        rows = [[getattr(answer, column) for column in schema] for answer in self.answers]
        return pl.DataFrame(rows, schema=schema, orient="row")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        answers = tuple(
            {**vars(answer), "why": None if answer.why is None else _plain(answer.why)}
            for answer in self.answers
        )
        return {**vars(self), "answers": answers, "looks_empty": self.looks_empty}

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{shown_rank(answer)}</td><td>{shown_probability(answer)}</td>"
            f"<td>{answer.status}</td>"
            f"<td>{escape(answer.label)}{_html(answer.why) if answer.why else ''}</td></tr>"
            for answer in self.answers
        )
        return (
            f"<p><code>{escape(self.query)}</code><br>{escape(self.summary())}</p><table><thead>"
            "<tr><th>rank</th><th>probability</th><th></th><th>answer</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


def _plain(step: Step) -> dict[str, Any]:
    """Return a step as a dict; `asdict` takes many times as long."""
    return {**vars(step), "sources": tuple(map(_plain, step.sources))}


def shown_rank(answer: Answer) -> str:
    """Return the rank of an answer as a person reads it."""
    return "-" if answer.rank is None else str(answer.rank)


def shown_probability(answer: Answer) -> str:
    """Return the probability of an answer as a person reads it; 100 % is for facts alone."""
    if answer.probability is None:
        return "-"
    if answer.status != "known" and answer.probability > 0.999:
        return ">99.9%"
    return f"{answer.probability:.1%}"


def shown_chance(step: Step) -> str:
    """Return the probability of a step in whole percent; what is not a fact is never certain."""
    if step.probability > 0.99:
        return ">99%"
    return "<1%" if step.probability < 0.01 else f"{step.probability:.0%}"


def _html(step: Step) -> str:
    inner = "".join(map(_html, step.sources))
    if step.status == "and":
        return f"<ul>{inner}</ul>"
    sure = "" if step.status == "known" else f", {escape(shown_chance(step))}"
    return f"<ul><li>{escape(step.text)} <i>({step.status}{sure})</i>{inner}</li></ul>"
