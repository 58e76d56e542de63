"""The arguments and results of the tools for agents; the `text` of a result says it in short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from betae.answering.results import Status
from betae.server import guide

MEANING: dict[Status, str] = {
    "known": "follows from the facts",
    "assumed": "follows from the facts unless one is missing",
    "predicted": "needs a fact that the graph does not have",
}

# ---- arguments ----------------------------------------------------------------------------------


class _Arguments(BaseModel, extra="forbid"):
    model_config = ConfigDict(use_attribute_docstrings=True)


class _Page(_Arguments):
    limit: Annotated[int, Field(ge=1, le=100)] = 10
    """Most results to return (of each kind)."""
    offset: Annotated[int, Field(ge=0, le=10_000)] = 0
    """How many results to skip: next_offset of an earlier call gets the following ones."""


class NoArguments(_Arguments):
    """Nothing."""


class FindNames(_Page):
    """A text in which names are sought."""

    text: Annotated[str, Field(max_length=1_000)]
    """A name, part of one, or a question in English; "" lists the best-connected."""
    kind: Literal["any", "entity", "relation"] = "any"
    """What to look for."""


class CheckQuestion(_Arguments):
    """A question to check."""

    question: str
    """Logic text such as ?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X), or SPARQL."""


class AskQuestion(_Page):
    """A question to answer."""

    question: str
    """Logic text such as ?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X), or a SPARQL
    SELECT. Names with spaces stand in double quotes."""
    status: Literal["all", "known", "assumed", "predicted"] = "all"
    """Which answers to return."""
    min_probability: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Leave out predictions less probable than this."""
    evidence: bool = True
    """Whether to tell why: the edges that lead to each answer, and what speaks for missing ones."""


class WhyEdge(_Arguments):
    """An edge, known or missing, in the direction of the graph."""

    head: Annotated[str, Field(max_length=1_000)]
    """Name or label of the entity that the edge comes from."""
    relation: Annotated[str, Field(max_length=1_000)]
    """Name of the relation."""
    tail: Annotated[str, Field(max_length=1_000)]
    """Name or label of the entity that the edge leads to."""


class MissingEdges(_Page):
    """Where to look for missing edges."""

    entity: Annotated[str | None, Field(max_length=1_000)] = None
    """Only edges of this entity, in either direction."""
    relation: Annotated[str | None, Field(max_length=1_000)] = None
    """Only edges of this relation."""
    min_probability: Annotated[float, Field(ge=0.001, lt=1)] = 0.05
    """Leave out edges less probable than this."""


class RunSparql(_Page):
    """A SPARQL query; read-only."""

    query: str
    """SELECT, ASK, CONSTRUCT or DESCRIBE. An entity or relation is written as an IRI of its name,
    %20 for a space: SELECT ?x { <France> <borders> ?x }. No prefix needs to be declared."""


# ---- results ------------------------------------------------------------------------------------


class _Result(BaseModel):
    note: str | None = None
    """What to know about the result, or do next."""

    def lines(self) -> Iterator[str]:
        """Say the result in short, line by line."""
        yield from ()

    def text(self) -> str:
        """Say the result in short."""
        return "\n".join([*self.lines(), *([f"Note: {self.note}"] if self.note else [])])


class GraphDescribed(_Result):
    """The graph on a page."""

    entities: int
    relations: int
    edges: int
    predictions: bool
    page: Annotated[str, Field(description="Markdown.")]

    def lines(self) -> Iterator[str]:
        """Return the page."""
        yield self.page.rstrip()


class NamesFound(_Result):
    """Entities and relations with what can be asked about them."""

    entities: list[guide.EntityGuide]
    relations: list[guide.RelationGuide]
    total_entities: int
    total_relations: int
    next_offset: int | None

    def lines(self) -> Iterator[str]:
        """List the relations, then the entities."""
        if self.relations:
            yield f"Relations ({len(self.relations)} of {self.total_relations:,}):"
            yield from (f"- {each.summary()}" for each in self.relations)
        if self.entities:
            yield f"Entities ({len(self.entities)} of {self.total_entities:,}):"
            yield from (f"- {each.summary()}" for each in self.entities)
        if not self.relations and not self.entities:
            yield "Nothing was found."


class StepChecked(BaseModel):
    """A part of a question, as a question of its own."""

    text: str
    answers: Annotated[int, Field(description="Its exact answers.")]
    examples: list[str]


class QuestionChecked(_Result):
    """Whether a question can be asked, what it means, and what is wrong with it."""

    valid: bool
    predictable: Annotated[bool, Field(description="Whether predictions can answer it.")] = False
    question: Annotated[str | None, Field(description="As it was understood.")] = None
    words: str | None = None
    steps: list[StepChecked] = []
    problem: str | None = None
    fix: str | None = None
    closest: list[str] = []

    def lines(self) -> Iterator[str]:
        """Say what it means, or what is wrong."""
        if not self.valid:
            yield f"Not valid: {self.problem}"
            if self.fix:
                yield f"Fix: {self.fix}"
            return
        yield f"Valid: {self.question}"
        if self.words:
            yield f"It asks for {self.words}."
        for step in self.steps:
            such = f", such as {', '.join(step.examples)}" if step.examples else ""
            yield f"- {step.text}: {step.answers:,} exact answers{such}"


class StepTold(BaseModel):
    """An edge or condition that an answer rests on."""

    text: str
    status: Literal["known", "missing", "not"]
    probability: float
    because: Annotated[list[str], Field(description="What speaks for a missing edge.")] = []


class AnswerTold(BaseModel):
    """An answer."""

    entity: str
    label: str
    probability: float | None
    derivations: Annotated[
        int | None, Field(description="In how many ways it is an answer, if that is known.")
    ] = None
    unusual: Annotated[
        str | None, Field(description="Why it is an odd prediction, unlike what is known.")
    ] = None
    why: Annotated[
        list[StepTold], Field(description="Its most probable derivation, edge by edge.")
    ] = []
    further: Annotated[
        list[list[StepTold]], Field(description="The next most probable derivations.")
    ] = []

    def lines(self) -> Iterator[str]:
        """Say the answer and why it is one."""
        sure = "" if self.probability in (None, 1.0) else f" {_percent(self.probability)}"
        name = "" if self.entity == self.label else f" [{self.entity}]"
        ways = f" (in {self.derivations:,} ways)" if (self.derivations or 1) > 1 else ""
        odd = f" (unusual: {self.unusual})" if self.unusual else ""
        yield f"-{sure} {self.label}{name}{ways}{odd}"
        for step in self.why:
            chance = f" {_percent(step.probability)}" if step.status == "missing" else ""
            yield f"    {step.status}{chance}: {step.text}"
            yield from (f"        because {each}" for each in step.because)
        for steps in self.further:
            yield f"    or {'; '.join(f'{step.status}: {step.text}' for step in steps)}"


class QuestionAnswered(_Result):
    """Answers, facts and predictions apart."""

    question: Annotated[str, Field(description="As it was understood.")]
    words: str | None
    summary: str
    known: Annotated[list[AnswerTold], Field(description="They follow from the facts.")] = []
    assumed: Annotated[
        list[AnswerTold], Field(description="They follow unless a fact is missing.")
    ] = []
    predicted: Annotated[
        list[AnswerTold], Field(description="They need a fact that the graph does not have.")
    ] = []
    expected: Annotated[
        float | None, Field(description="Expected number of all answers, predicted ones included.")
    ] = None
    num_known: int
    num_assumed: int
    rows: Annotated[
        list[dict[str, str | None]],
        Field(description="Instead of answers, if the question has several variables."),
    ] = []
    next_offset: int | None

    def lines(self) -> Iterator[str]:
        """List the answers by status."""
        yield self.question
        if self.words:
            yield f"It asks for {self.words}."
        yield f"{self.summary}."
        numbers = {"known": self.num_known, "assumed": self.num_assumed}
        for status, meaning in MEANING.items():
            answers: list[AnswerTold] = getattr(self, status)
            if answers:
                of = f" of {numbers[status]:,}" if status in numbers else ""
                yield f"{status.capitalize()} ({meaning}), {len(answers)}{of}:"
                for each in answers:
                    yield from each.lines()
        yield from _row_lines(self.rows)


class EdgeExplained(_Result):
    """What speaks for an edge."""

    head: str
    relation: str
    tail: str
    known: bool
    probability: float
    log_odds: Annotated[float | None, Field(description="The sum of the parts below.")] = None
    reasons: list[dict[str, Any]] = []
    models: Annotated[dict[str, float], Field(description="Log-odds by model.")] = {}
    base_rate: Annotated[float | None, Field(description="Log-odds.")] = None
    details: list[str] = []

    def lines(self) -> Iterator[str]:
        """List what speaks for it, with log-odds."""
        status = "a known fact" if self.known else f"not in the graph, {_percent(self.probability)}"
        yield f"{self.head} {self.relation} {self.tail}: {status}"
        yield from self.details


class MissingEdge(BaseModel):
    """An edge that the graph does not have."""

    head: str
    head_label: str
    relation: str
    relation_label: str
    tail: str
    tail_label: str
    probability: float


class EdgesFound(_Result):
    """The most probable missing edges."""

    edges: list[MissingEdge]
    total: Annotated[int, Field(description="Missing edges that are at least so probable.")]
    next_offset: int | None

    def lines(self) -> Iterator[str]:
        """List them, most probable first."""
        yield f"{len(self.edges)} of {self.total:,} missing edges:"
        for each in self.edges:
            edge = f"{each.head_label} {each.relation_label} {each.tail_label}"
            yield f"- {_percent(each.probability)} {edge}"


class SparqlAnswered(_Result):
    """The result of a SPARQL query."""

    kind: Literal["rows", "boolean", "triples"]
    variables: list[str] = []
    rows: list[dict[str, str | None]] = []
    boolean: bool | None = None
    triples: Annotated[list[str], Field(description="N-Triples.")] = []
    next_offset: int | None = None

    def lines(self) -> Iterator[str]:
        """Return the rows, the truth or the triples."""
        match self.kind:
            case "boolean":
                yield str(self.boolean).lower()
            case "triples":
                yield from self.triples or ["no triples"]
            case "rows":
                yield from _row_lines(self.rows) if self.rows else ["no rows"]


def _percent(probability: float | None) -> str:
    """Return a probability that is neither 0 nor 1 in percent, not rounded to either."""
    if probability is None:
        return "-"
    if probability > 0.999:
        return ">99.9%"
    return "<0.1%" if probability < 0.001 else f"{probability:.1%}"


def _row_lines(rows: Sequence[dict[str, str | None]]) -> Iterator[str]:
    for row in rows:
        cells = []
        for name, value in row.items():
            label = row.get(f"{name}_label")
            if not name.endswith("_label") or name.removesuffix("_label") not in row:
                cells.append(f"{name} = {value}" + (f" ({label})" if label else ""))
        yield f"- {', '.join(cells)}"
