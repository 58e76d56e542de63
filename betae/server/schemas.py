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
from betae.evaluation.results import Method
from betae.graph.edges import Edges
from betae.queries.ast import And, Entity, Not, Or, Query

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
    kinds = ("entity", "relation", "and", "or", "not")
    return next((kind for kind in kinds if isinstance(value, dict) and kind in value), None)


def _one_of(kinds: str) -> Discriminator:
    return Discriminator(
        _kind_of, custom_error_type="question", custom_error_message=f"Write {kinds}"
    )


TREES = (
    '{"entity": NAME}, {"relation": NAME, "of": TREE}, {"and": [TREE, TREE]}, '
    '{"or": [TREE, TREE]} or {"not": TREE}'
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
        case AndTree():
            return And(*map(to_query, tree.operands))
        case OrTree():
            return Or(*map(to_query, tree.operands))
        case NotTree():
            return Not(to_query(tree.operand))


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
    operator: Literal["entity", "project", "and", "or", "not"]
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
