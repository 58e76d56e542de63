"""Results: the answers a person gets, and the ranking of entities that they are taken from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from betae.answering.drawing import probability_bar
from betae.answering.evidence import Evidence, Reason
from betae.evaluation.results import Method
from betae.frames import text_table
from betae.graph.edges import Edges, Ids
from betae.queries.ast import Query

if TYPE_CHECKING:
    import polars as pl

MAX_PREDICTED = 0.999  # the largest probability of a missing edge, or of an answer by embedding
MAX_UNCERTAIN = 1 - 1e-6  # the largest probability of an answer that the facts do not entail

Status = Literal["known", "assumed", "predicted"]
STATUSES: dict[Status, str] = {
    "known": "follows from the facts",
    "assumed": "known unless a fact is missing",  # a negated condition rests on an absence
    "predicted": "needs a missing fact",
}
BLOCK = 1024  # values whose least is found at once
STEP_REASONS = 2  # shown for a missing edge of a derivation
ANSWER_COLUMNS = ("rank", "probability", "status", "answer")


@dataclass(frozen=True)
class Step:
    """A step of a derivation: an edge that leads to an entity, or a condition that it meets."""

    text: str  # such as "Austria located_in Europe"
    status: Literal["known", "missing", "and", "not"]
    probability: float  # of the edge or of the condition; for "and", of all conditions together
    sources: tuple[Step, ...] = ()
    edge: tuple[str, str, str] | None = field(default=None, compare=False)  # head, relation, tail
    evidence: Evidence | None = field(default=None, compare=False)  # for a missing edge

    def whole_probability(self) -> float:
        """Return the probability of the whole derivation up to this step."""
        if self.status == "and":
            return self.probability
        return self.probability * math.prod(step.whole_probability() for step in self.sources)

    def missing(self) -> list[str]:
        """Return the missing edges of the derivation."""
        found = [self.text] if self.status == "missing" else []
        return [*found, *(text for source in self.sources for text in source.missing())]


class Derived(NamedTuple):
    """How an entity is an answer: see `derivations`."""

    best: tuple[Step, ...]  # the most probable derivations, at least one
    number: int  # of all
    others: float  # what all but the best add to the probability


@dataclass(frozen=True)
class Answer:
    """An entity that answers a question."""

    entity: str
    label: str
    rank: int | None  # among the entities that the facts do not rule out; None if unknown
    probability: float | None  # None if the run has no probabilities
    status: Status
    score: float | None = None  # by embedding: the negated distance
    why: Step | None = None  # its most probable derivation
    num_derivations: int | None = None  # by facts; of a prediction, if it is explained
    further: tuple[Step, ...] = ()  # the next most probable derivations
    others: float = 0.0  # what all other derivations add to the probability
    unusual: str | None = None  # why it is an odd prediction: see `betae.answering.unusual`
    id: int | None = None  # of the entity in the graph

    def __repr__(self) -> str:
        sure = "" if self.probability is None else f", {shown_probability(self)}"
        return f"Answer(#{self.id} {self.label!r}, {self.status}{sure})"

    def _repr_html_(self) -> str:
        bar = "" if self.probability is None else f" {probability_bar(self.probability)}"
        return f"<p>{escape(repr(self))}{bar}</p>{html_derivations(self)}"

    @property
    def derivations(self) -> tuple[Step, ...]:
        """The most probable derivations, if they were asked for."""
        return (self.why, *self.further) if self.why else ()

    def rest(self) -> str:
        """Say what derivations other than those listed add; empty if there is nothing to say."""
        num_others = (self.num_derivations or 1) - len(self.derivations)
        if self.status != "predicted":
            return f"and {num_others:,} more" if num_others > 0 else ""
        if self.probability is None or (num_others <= 0 and self.others < 0.001):
            return ""
        listed, others = f"{self.probability - self.others:.1%}", f"{self.others:.1%}"
        together = "together" if self.further else "alone"
        more = f"{num_others:,} more" if num_others > 0 else "less likely ones"
        return f"{together} {listed}; {more} add {others}"


@dataclass(frozen=True)
class Answers:
    """The answers to a question, facts first."""

    query: str
    answers: tuple[Answer, ...]
    method: Method
    edges: Edges  # which edges count as known
    num_known: int  # answers that follow from these edges, assumed ones included
    num_by_all: int  # answers that follow from all edges of the graph
    num_assumed: int  # known answers that a missing fact would refute
    expected: float | None  # the expected number of answers; None without probabilities
    entropy: float | None  # of the question's embedding; None if the model has none
    notes: tuple[str, ...] = ()  # how many entities have no value for a condition

    @property
    def looks_empty(self) -> bool:
        """Whether no answer at all is likely."""
        return self.expected is not None and self.expected < 0.5

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int) -> Answer:
        return self.answers[index]

    def __repr__(self) -> str:
        columns, *rows = self.table()
        return f"{self.query}\n{self.summary()}\n{text_table(columns, rows)}"

    def table(self) -> list[list[str]]:
        """Return the columns and rows to show, all as text.

        The numbers of derivations are shown if they differ from 1.
        """
        columns = [*ANSWER_COLUMNS]
        rows = [
            [shown_rank(answer), shown_probability(answer), answer.status, shown_label(answer)]
            for answer in self.answers
        ]
        if any((answer.num_derivations or 1) > 1 for answer in self.answers):
            columns.insert(-1, "derivations")
            for row, answer in zip(rows, self.answers, strict=True):
                number = answer.num_derivations
                row.insert(-1, "-" if number is None else f"{number:,}")
        return [columns, *rows]

    def summary(self) -> str:
        """Describe the number of answers, known and expected."""
        known = f"{self.num_known:,} known answer" + ("" if self.num_known == 1 else "s")
        if self.num_assumed:
            known += f", {self.num_assumed:,} assumed"
        if self.edges != "all":
            names = "training" if self.edges == "train" else "training and validation"
            known += f" ({names} edges only)"
        parts = [known]
        if self.expected is not None:
            digits = 1 if self.expected < 10 else 0
            parts.append(f"about {self.expected:,.{digits}f} expected in all")
        if self.looks_empty:
            parts.append("probably there is none")
        return "; ".join([*parts, *self.notes])

    def to_polars(self) -> pl.DataFrame:
        """Return a data frame with a row for each answer."""
        import polars as pl

        schema = {
            "entity": pl.String,
            "label": pl.String,
            "rank": pl.Int64,
            "probability": pl.Float64,
            "status": pl.String,
            "score": pl.Float64,
            "num_derivations": pl.Int64,
            "unusual": pl.String,
        }
        rows = [[getattr(answer, column) for column in schema] for answer in self.answers]
        return pl.DataFrame(rows, schema=schema, orient="row")

    def to_json(self) -> dict[str, Any]:
        """Return the answers as plain values, derivations included."""
        answers = tuple(
            {
                **vars(answer),
                "why": None if answer.why is None else plain_step(answer.why),
                "further": tuple(map(plain_step, answer.further)),
            }
            for answer in self.answers
        )
        return {**vars(self), "answers": answers, "looks_empty": self.looks_empty}

    def _repr_html_(self) -> str:
        columns, *table = self.table()
        bar = columns.index("probability")
        rows = ""
        for (*others, label), answer in zip(table, self.answers, strict=True):
            cells = [escape(cell) for cell in others]
            if answer.probability is not None:
                cells[bar] += f"<br>{probability_bar(answer.probability)}"
            cells.append(f"{escape(label)}{html_derivations(answer)}")
            rows += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        return (
            f"<p><code>{escape(self.query)}</code><br>{escape(self.summary())}</p><table><thead>"
            f"<tr>{''.join(f'<th>{column}</th>' for column in columns)}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


def plain_step(step: Step) -> dict[str, Any]:
    """Return a step as a dict; `asdict` takes many times as long."""
    evidence = step.evidence and step.evidence.to_json()
    return {**vars(step), "sources": tuple(map(plain_step, step.sources)), "evidence": evidence}


def shown_rank(answer: Answer) -> str:
    """Return the rank of an answer as text."""
    return "-" if answer.rank is None else str(answer.rank)


def shown_label(answer: Answer) -> str:
    """Return the label of an answer, with why it is unusual."""
    return f"{answer.label} ({answer.unusual})" if answer.unusual else answer.label


def shown_probability(answer: Answer) -> str:
    """Return the probability of an answer as text; only facts have 100 %."""
    if answer.probability is None:
        return "-"
    if answer.status != "known" and answer.probability > 0.999:
        return ">99.9%"
    return f"{answer.probability:.1%}"


def as_shown(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round probabilities as far as `shown_probability` tells them apart."""
    return np.where(probabilities > 0.999, 1.0, np.round(probabilities, 3))


def shown_chance(step: Step) -> str:
    """Return the probability of a step in whole percent, never 0 % or 100 %."""
    if step.probability > 0.99:
        return ">99%"
    return "<1%" if step.probability < 0.01 else f"{step.probability:.0%}"


def titles(answer: Answer) -> list[str]:
    """Return a title for each derivation of an answer; none for the only one."""
    if not answer.further and not answer.rest():
        return [""] * len(answer.derivations)
    return [
        f"derivation {place} of {answer.num_derivations:,}"
        + (f": {step.whole_probability():.1%}" if answer.status == "predicted" else "")
        for place, step in enumerate(answer.derivations, 1)
    ]


def html_derivations(answer: Answer) -> str:
    """Draw the derivations of an answer as nested lists."""
    found = "".join(
        f"{escape(title) and f'<br>{escape(title)}'}{_html(step)}"
        for title, step in zip(titles(answer), answer.derivations, strict=True)
    )
    return f"{found}{escape(answer.rest())}"


def _html(step: Step) -> str:
    inner = "".join(map(_html, step.sources))
    if step.status == "and":
        return f"<ul>{inner}</ul>"
    sure = "" if step.status == "known" else f", {escape(shown_chance(step))}"
    reasons = "".join(
        f"<li><small>{escape(reason.text)}</small>{reason.drawing()}</li>"
        for reason in _reasons(step)
    )
    inner += f"<ul>{reasons}</ul>" if reasons else ""
    return f"<ul><li>{escape(step.text)} <i>({step.status}{sure})</i>{inner}</li></ul>"


def _reasons(step: Step) -> Sequence[Reason]:
    return step.evidence.reasons[:STEP_REASONS] if step.evidence else ()


# ---- rankings: what the answers are taken from --------------------------------------------------


class RankRequest(NamedTuple):
    """A query of ids, what the facts say about its answers, and how many others to rank."""

    query: Query
    known: Ids
    ruled_out: Ids
    k: int

    @property
    def num_first(self) -> int:
        """The number of first entities that have k others among them."""
        return self.k + len(self.known) + len(self.ruled_out)


def stable_argsort(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the indices that sort the values, ties by index.

    Value and index are packed into one integer, which NumPy sorts several times faster than it
    sorts stably.
    """
    bits = (values + np.float32(0)).view(np.int32).astype(np.int64)  # -0 becomes 0
    bits ^= (bits >> 31) & 0x7FFFFFFF  # negative floats are ordered the other way
    keys = (bits << 32) | np.arange(len(values))
    keys.sort()
    indices: NDArray[np.int64] = keys & 0xFFFFFFFF
    return indices


def smallest(values: NDArray[np.float32], k: int, also: NDArray[Any]) -> NDArray[np.int64]:
    """Return the indices of the k smallest values, of their ties, and of `also`, by value."""
    if k + len(also) >= len(values):
        return stable_argsort(values)
    limit = np.partition(_least(values, k), k - 1)[k - 1]
    is_chosen = values <= limit
    is_chosen[also] = True
    indices = np.flatnonzero(is_chosen)
    return indices[stable_argsort(values[indices])]


def _least(values: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Return values among which are the k smallest: fewer to partition, of millions."""
    num_blocks = len(values) // BLOCK
    if num_blocks < k:
        return values
    of_blocks = values[: num_blocks * BLOCK].reshape(num_blocks, BLOCK).min(axis=1)
    is_small: NDArray[np.bool_] = values <= np.partition(of_blocks, k - 1)[k - 1]
    return values[is_small]


@dataclass(frozen=True)
class Ranking:
    """The entities that a ranker found for a question, best first; the list may be truncated."""

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64] | None  # None if the run has none
    distances: NDArray[np.float32] | None = None  # by embedding
    num_ranked: int = 0  # by embedding: entities of this prefix are ranked by their index
    entropy: float | None = None
    explain: Callable[[int], Derived] | None = None  # entity -> its derivations
    rank_of: Callable[[int], int | None] | None = None  # rank of an entity outside the prefix
    rest: float = 0.0  # sum of the probabilities of all entities that are not listed

    def without(self, ids: NDArray[Any]) -> Ranking:
        """Remove entities; those behind them move up."""
        kept = ~are_among(self.ids, ids)
        return replace(
            self,
            ids=self.ids[kept],
            probabilities=None if self.probabilities is None else self.probabilities[kept],
            distances=None if self.distances is None else self.distances[kept],
            num_ranked=int(kept[: self.num_ranked].sum()),
        )


def are_among(ids: NDArray[Any], chosen: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the ids that are chosen, in a quarter of the time of `np.isin`."""
    is_chosen = np.zeros(1 + max(ids.max(initial=0), chosen.max(initial=0)), dtype=bool)
    is_chosen[chosen] = True
    found: NDArray[np.bool_] = is_chosen[ids]
    return found
