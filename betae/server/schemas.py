"""The bodies of requests and responses, for validation and OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    JsonValue,
    Tag,
    model_validator,
)

from betae.answering.evidence import Reason
from betae.answering.results import Answer, Status
from betae.errors import InvalidArgument
from betae.evaluation.results import Method
from betae.graph.edges import Edges
from betae.graph.values import EXAMPLES, Value, kind_of, read_value, spell_value
from betae.queries.ast import And, Entity, IsA, Not, Or, Project, Query, Where

CAPITALS = "?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)"
PAIRS = "?C, ?X . located_in(?C, Europe) & capital(?C, ?X)"
COUNTRIES: JsonValue = {"relation": "~located_in", "of": {"entity": "Europe"}}
BY_TREE: JsonValue = {"question": {"relation": "capital", "of": COUNTRIES}}
MAX_FIELDS = 20  # of an object in a request
EdgesField = Annotated[Edges, Field(description="The edges that count as known.")]


def _examples(*bodies: JsonValue) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


class _Body(BaseModel, extra="forbid"):
    @model_validator(mode="before")
    @classmethod
    def _check_size(cls, value: Any) -> Any:
        """Raise one error for a flood of unknown fields, not one for each."""
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise ValueError(f"more than {MAX_FIELDS} fields")
        return value


# ---- questions ----------------------------------------------------------------------------------


def _kind_of(value: Any) -> str | None:
    """Return the kind of a question, by the key that only this kind has."""
    if isinstance(value, str):
        return "text"
    kinds = ("entity", "relation", "class", "property", "and", "or", "not")
    return next((kind for kind in kinds if isinstance(value, dict) and kind in value), None)


def _one_of(kinds: str) -> Discriminator:
    return Discriminator(
        _kind_of, custom_error_type="question", custom_error_message=f"Write {kinds}"
    )


TREES = (
    '{"entity": NAME}, {"relation": NAME, "of": TREE}, {"class": NAME}, '
    '{"property": NAME, "is": "<", "value": 200}, {"and": [TREE, TREE]}, {"or": [TREE, TREE]} '
    'or {"not": TREE}'
)


class EntityTree(_Body):
    """One entity."""

    entity: Annotated[str, Field(description="Its name or label.", examples=["Europe"])]


class StepTree(_Body):
    """The entities that a relation leads to."""

    relation: Annotated[
        str, Field(description="Its name; a leading ~ inverts it.", examples=["capital"])
    ]
    of: Annotated[TreeField, Field(description="Where it leads from.")]


class ClassTree(_Body):
    """The entities of a class."""

    name: Annotated[str, Field(alias="class", description="Its name.", examples=["Song"])]


class ValueTree(_Body):
    """The entities with a value that compares so."""

    property: Annotated[str, Field(description="Its name.", examples=["length"])]
    sign: Annotated[Literal["=", "!=", "<", "<=", ">", ">=", "~"], Field(alias="is")]
    value: Annotated[
        bool | int | float | str, Field(description="A number, a boolean or text.", examples=[200])
    ]
    kind: Annotated[
        Literal["date", "time"] | None, Field(description="If the text is a date or a time.")
    ] = None
    language: Annotated[str | None, Field(description="Of text; by default, any.")] = None


class AndTree(_Body):
    """The entities in every operand."""

    operands: Annotated[list[TreeField], Field(alias="and", min_length=2), FailFast()]


class OrTree(_Body):
    """The entities in any operand."""

    operands: Annotated[list[TreeField], Field(alias="or", min_length=2), FailFast()]


class NotTree(_Body):
    """All entities that are not in the operand."""

    operand: Annotated[TreeField, Field(alias="not")]


AnyTree = (
    Annotated[EntityTree, Tag("entity")]
    | Annotated[StepTree, Tag("relation")]
    | Annotated[ClassTree, Tag("class")]
    | Annotated[ValueTree, Tag("property")]
    | Annotated[AndTree, Tag("and")]
    | Annotated[OrTree, Tag("or")]
    | Annotated[NotTree, Tag("not")]
)
TreeField = Annotated[AnyTree, _one_of(TREES)]
QuestionField = Annotated[
    Annotated[str, Field(min_length=1), Tag("text")] | AnyTree,
    _one_of(f"text, or a tree: {TREES}"),
    Field(description="Logic text, a SPARQL SELECT, or a tree."),
]


def to_query(tree: TreeField) -> Query:
    """Convert a tree to the library's."""
    match tree:
        case EntityTree():
            return Entity(tree.entity)
        case StepTree():
            return to_query(tree.of)[tree.relation]
        case ClassTree():
            return IsA(tree.name)
        case ValueTree():
            return Where(tree.property, tree.sign, _typed(tree), tree.language)
        case AndTree():
            return And(*map(to_query, tree.operands))
        case OrTree():
            return Or(*map(to_query, tree.operands))
        case NotTree():
            return Not(to_query(tree.operand))


def _typed(tree: ValueTree) -> Value:
    """Return the value of a condition; a date or a time is text in JSON."""
    if tree.kind is None or not isinstance(tree.value, str):
        return tree.value
    try:
        value = read_value(tree.value)
    except ValueError:
        value = ""
    if isinstance(value, bool) or kind_of(value) != tree.kind:
        raise InvalidArgument(
            f"{tree.value!r} is not a {tree.kind}: write it like {EXAMPLES[tree.kind]}."
        )
    return value


def from_query(query: Query) -> dict[str, JsonValue]:
    """Convert a tree of names to plain values: `to_query` reads it back."""
    match query:
        case Entity(name):
            return {"entity": str(name)}
        case Project(operand, relation, is_inverse):
            return {"relation": f"{'~' * is_inverse}{relation}", "of": from_query(operand)}
        case IsA(name):
            return {"class": str(name)}
        case Where(property, sign, value, language):
            kind = kind_of(value)
            found: dict[str, JsonValue] = {"property": property, "is": sign}
            if kind in ("date", "time"):
                found |= {"value": spell_value(value), "kind": kind}
            else:
                found["value"] = value  # type: ignore[assignment]  # not a date
            return found if language is None else {**found, "language": language}
        case Not(operand):
            return {"not": from_query(operand)}
    return {type(query).__name__.lower(): [from_query(each) for each in query.operands]}


# ---- requests -----------------------------------------------------------------------------------


class AnswerOptions(_Body):
    """Which answers to return, and how to find them."""

    k: Annotated[
        int | None, Field(ge=1, description="Number of answers; default: 10, or SPARQL's LIMIT.")
    ] = None
    method: Method = "completed"
    edges: EdgesField = "all"
    explain: Annotated[bool, Field(description="Add the best derivation of each.")] = False
    only: Annotated[Status | None, Field(description="Return only answers of this status.")] = None
    threshold: Annotated[
        float, Field(ge=0, le=1, description="Leave out answers less probable than this.")
    ] = 0.0


class AnswerBody(AnswerOptions):
    """A question to the run."""

    question: QuestionField
    model_config = _examples({"question": CAPITALS, "k": 5, "explain": True}, BY_TREE)


class BatchBody(AnswerOptions):
    """Many questions to the run, all with the same options."""

    questions: Annotated[list[QuestionField], Field(min_length=1), FailFast()]
    model_config = _examples({"questions": [CAPITALS, "?X . capital(France, ?X)"], "k": 3})


class QueryBody(_Body):
    """A question of any shape to the facts."""

    question: QuestionField
    edges: EdgesField = "all"
    limit: Annotated[int, Field(ge=1, description="Maximum number of rows.")] = 100
    model_config = _examples({"question": PAIRS, "limit": 10}, BY_TREE)


class TreeBody(_Body):
    """A question whose computation tree to return."""

    question: QuestionField
    edges: EdgesField = "all"
    dims: Annotated[
        int, Field(ge=0, le=64, description="Number of dimensions of each Beta embedding.")
    ] = 4
    model_config = _examples({"question": CAPITALS, "dims": 4}, BY_TREE)


class ReadBody(_Body):
    """A question to say in every notation, or whose answers to go on from."""

    question: QuestionField
    model_config = _examples({"question": CAPITALS}, {"question": "what is the capital of France"})


# ---- responses ----------------------------------------------------------------------------------


class ErrorResponse(_Body):
    """What is wrong with a request."""

    error: Annotated[str, Field(examples=["The graph has no entity 'Frence'. Closest: 'France'."])]
    line: Annotated[int, Field(description="Position in the question.")] = 1
    column: int = 1
    closest: Annotated[list[str], Field(description="Similar names.")] = []


class AnswerResponse(_Body):
    """The answers to a question."""

    query: str
    answers: list[Answer]
    method: Method
    edges: EdgesField
    num_known: int
    num_by_all: int
    num_assumed: int
    expected: float | None
    entropy: float | None
    looks_empty: bool
    summary: str
    note: str | None


class BatchResponse(_Body):
    """The answers to many questions in their order, or an error instead."""

    results: list[AnswerResponse | ErrorResponse]


class EvidenceResponse(_Body):
    """What speaks for an edge; the parts of its log-odds add up to `log_odds`."""

    edge: Annotated[tuple[str, str, str], Field(description="Head, relation, tail.")]
    is_known: bool
    probability: float
    base_rate: float
    models: dict[str, float]
    reasons: list[Reason]
    num_others: Annotated[int, Field(description="Weaker reasons that are not listed.")]
    others: float
    log_odds: float


class QueryResponse(_Body):
    """Exact answers: the name and the label of each variable."""

    variables: list[str]
    rows: list[dict[str, str]]
    more: Annotated[bool, Field(description="Whether there are further rows.")]
    edges: EdgesField
    note: str | None


class NamedEntity(_Body):
    """An entity by its name and its label."""

    entity: str
    label: str


class BranchEmbedding(_Body):
    """The embedding of one branch of a node; the fields depend on the model."""

    alpha: list[float] = []
    beta: list[float] = []
    entropy: float = 0.0


class TreeNode(_Body):
    """A node of a computation tree."""

    id: int
    operator: Literal["entity", "project", "condition", "and", "or", "not"]
    label: str
    text: str
    operands: list[int]
    num_answers: int
    examples: list[NamedEntity]
    entity: str = ""
    relation: str = ""
    inverse: bool = False
    embeddings: list[BranchEmbedding] = []


class TreeResponse(_Body):
    """A computation tree, operands before the nodes that use them."""

    query: str
    edges: EdgesField
    model: str | None
    root: int
    nodes: list[TreeNode]


class LabelEntry(_Body):
    """A label, and its language if known."""

    text: str
    language: str | None


class NameEntry(_Body):
    """An entity or a relation."""

    name: str
    label: str
    labels: list[LabelEntry]
    edges: int
    examples: Annotated[
        list[tuple[str, str, str]], Field(description="Some of its edges: head, relation, tail.")
    ]
    symmetric: Annotated[
        bool, Field(description="Of a relation: nearly all edges also run the other way.")
    ]


class EntitiesResponse(_Body):
    """Entities, and their total number."""

    entities: list[NameEntry]
    total: int


class RelationsResponse(_Body):
    """Relations, and their total number."""

    relations: list[NameEntry]
    total: int


class EdgeEntry(_Body):
    """An edge of an entity; a missing one has a probability."""

    head: str
    head_label: str
    relation: str
    relation_label: str
    tail: str
    tail_label: str
    direction: Literal["out", "in"]
    probability: float = 1.0


class ValueEntry(_Body):
    """A value of a property of an entity."""

    property: str
    text: str
    datatype: Annotated[str, Field(description='IRI of the RDF datatype; "" for a class.')]
    language: str


class EdgesResponse(NamedEntity):
    """A page of the known edges of an entity, and its most probable missing ones."""

    labels: list[LabelEntry]
    values: Annotated[list[ValueEntry], Field(description="What it has besides edges.")]
    edges: list[EdgeEntry]
    total: int
    offset: int
    missing: list[EdgeEntry] | None = None


class ModelResponse(_Body):
    """The graph, the model and the limits."""

    betae: Annotated[str, Field(description="The version.")]
    graph: dict[str, Any]
    model: dict[str, Any] | None
    limits: dict[str, float]


class ClassEntry(_Body):
    """A class, and how many of the entities in question it has."""

    name: str
    label: str
    entities: int = 0
    answers: int = 0


class FrequentRelation(_Body):
    """A relation: what it says, in words, and between which classes."""

    name: str
    words: str
    edges: int
    heads: list[str]
    tails: list[str]
    examples: list[str]


class HomeResponse(_Body):
    """What the graph is."""

    entities: int
    relations: int
    edges: int
    values: int
    classes: list[ClassEntry]
    frequent: list[FrequentRelation]
    properties: list[str]


class PredictedAnswer(_Body):
    """The most probable answer that is not known."""

    label: str
    probability: float


class ExampleQuestion(_Body):
    """A question to start from, and a taste of its answers."""

    kind: str
    question: str
    words: str
    known: int
    answers: list[str]
    predicted: PredictedAnswer | None = None


class Near(_Body):
    """The names of the graph that are nearest to a text."""

    entities: list[NamedEntity]
    relations: list[str]


class ReadResponse(_Body):
    """A question in every notation; null where it cannot be said."""

    question: Annotated[str | None, Field(description="As logic text.")]
    tree: dict[str, Any] | None
    words: str | None
    sparql: str | None
    no_sparql: Annotated[str | None, Field(description="Why SPARQL cannot say it.")]
    labels: Annotated[dict[str, str], Field(description="Of the entities in the tree.")]
    spoken: Annotated[dict[str, str], Field(description="Its relations in words, both ways.")]
    near: Annotated[Near | None, Field(description="If the text was guessed at.")]
    problem: Annotated[str | None, Field(description="Why it is no tree, or what to check.")]


class StepEnd(NamedEntity):
    """Where a relation leads, and from how many of the answers."""

    number: int


class StepRelation(_Body):
    """A directed relation that some answers have."""

    relation: Annotated[str, Field(description="As in a tree: ~ inverts it.")]
    words: str
    answers: Annotated[int, Field(description="How many of the sampled answers have it.")]
    leads_to: int
    ends: list[StepEnd]


class StepProperty(_Body):
    """A property that some answers have."""

    property: str
    label: str
    answers: int
    kind: Literal["boolean", "number", "date", "time", "text"]
    least: str | None
    greatest: str | None


class StepsResponse(_Body):
    """What the answers of a question have, found in a sample of them if they are many."""

    num_answers: int
    num_sampled: int
    relations: list[StepRelation]
    classes: list[ClassEntry]
    properties: list[StepProperty]
