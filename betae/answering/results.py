"""Answers: what comes back from a question, as objects, table, JSON or HTML."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import polars as pl

Status = Literal["known", "predicted"]


@dataclass(frozen=True)
class Step:
    """Why an entity is in a set: an edge from another entity, or a condition that it meets."""

    text: str  # such as "Austria located_in Europe"
    status: Literal["known", "missing", "and", "not"]
    probability: float  # that the edge, or the condition, holds
    sources: tuple[Step, ...] = ()

    def whole_probability(self) -> float:
        """Return the probability that everything on the way holds."""
        below = math.prod(source.whole_probability() for source in self.sources)
        return below if self.status == "and" else self.probability * below

    def missing(self) -> list[str]:
        """Return the edges on the way that are missing in the graph."""
        found = [self.text] if self.status == "missing" else []
        return [*found, *(text for source in self.sources for text in source.missing())]


@dataclass(frozen=True)
class Answer:
    """An entity that answers a question, known by the facts or predicted."""

    entity: str
    label: str
    rank: int | None  # by distance, among all that the facts do not rule out; None if unknown
    score: float | None  # the distance, negated: higher is better; None if it is not embedded
    probability: float  # of being an answer; 1 if it is known
    status: Status
    why: Step | None = None


@dataclass(frozen=True)
class Answers:
    """The answers of one question, best first, and what the model says of the question."""

    query: str
    answers: tuple[Answer, ...]
    num_known: int  # by the facts alone
    expected: float | None  # number of answers; None if the model cannot say
    entropy: float | None  # of the query's embedding; None if the model has no such thing
    looks_empty: bool
    not_embedded: tuple[str, ...] = ()  # names in the question that the model has not learned

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, place: int) -> Answer:
        return self.answers[place]

    def __repr__(self) -> str:
        lines = [self.query, self.summary()]
        for answer in self.answers:
            how = f"{answer.probability:6.1%}  {answer.status:<9}"
            lines.append(f"{shown_rank(answer):>6}  {how}  {answer.label}")
        return "\n".join(lines)

    def summary(self) -> str:
        """Say how many answers there are, known and expected."""
        parts = [f"{self.num_known:,} known"]
        if self.expected is not None:
            parts.append(f"about {self.expected:,.1f} expected")
        if self.looks_empty:
            parts.append("it looks as if there is none")
        if self.not_embedded:
            so = "predicted from their known edges" if self.expected is not None else "known only"
            parts.append(f"the model has not learned {', '.join(self.not_embedded)}: {so}")
        return "; ".join(parts)

    def to_polars(self) -> pl.DataFrame:
        """Return a table, one row for each answer."""
        import polars as pl

        columns = ("entity", "label", "rank", "score", "probability", "status")
        rows = [[getattr(answer, column) for column in columns] for answer in self.answers]
        schema = dict(
            zip(
                columns,
                (pl.String, pl.String, pl.Int64, pl.Float64, pl.Float64, pl.String),
                strict=True,
            )
        )
        return pl.DataFrame(rows, schema=schema, orient="row")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{shown_rank(answer)}</td><td>{answer.probability:.1%}</td><td>{answer.status}</td>"
            f"<td>{escape(answer.label)}{_html(answer.why) if answer.why else ''}</td></tr>"
            for answer in self.answers
        )
        return (
            f"<p><code>{escape(self.query)}</code><br>{escape(self.summary())}</p><table><thead>"
            "<tr><th>rank</th><th>probability</th><th></th><th>answer</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


def shown_rank(answer: Answer) -> str:
    """Return the rank of an answer as a person reads it."""
    return "-" if answer.rank is None else str(answer.rank)


def _html(step: Step) -> str:
    inner = "".join(map(_html, step.sources))
    if step.status == "and":
        return f"<ul>{inner}</ul>"
    sure = "" if step.status == "known" else f", {step.probability:.0%}"
    return f"<ul><li>{escape(step.text)} <i>({step.status}{sure})</i>{inner}</li></ul>"
