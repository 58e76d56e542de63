"""What comes back, described for OpenAPI; the tests check that it does."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from betae.server.requests import Edges


class _Returned(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(_Returned):
    """What is wrong with a request."""

    error: Annotated[str, Field(examples=["The graph has no entity 'Frence'. Closest: 'France'."])]
    line: Annotated[int, Field(description="Where in the question.")] = 1
    column: int = 1
    closest: Annotated[list[str], Field(description="Names that were perhaps meant.")] = []


# ---- questions ----------------------------------------------------------------------------------


class Why(_Returned):
    """A step of a derivation, and those that it rests on."""

    text: str
    status: Literal["known", "missing", "and", "not"]
    probability: float
    sources: list[Why]
    edge: Annotated[
        tuple[str, str, str] | None, Field(description="Head, relation and tail, by label.")
    ]


class Answer(_Returned):
    """An entity that answers a question."""

    entity: str
    label: str
    rank: int | None
    probability: float | None
    status: Literal["known", "assumed", "predicted"]
    score: float | None
    why: Why | None


class Answers(_Returned):
    """The answers to a question."""

    query: str
    answers: list[Answer]
    method: Literal["completed", "embedding"]
    edges: Edges
    num_known: int
    num_by_all: int
    num_assumed: int
    expected: float | None
    entropy: float | None
    looks_empty: bool
    summary: str
    note: str | None


class Results(_Returned):
    """The answers to many questions, in their order, or what is wrong with one."""

    results: list[Answers | Problem]


class Rows(_Returned):
    """Exact answers: for each variable its name, and its label."""

    variables: list[str]
    rows: list[dict[str, str]]
    more: Annotated[bool, Field(description="Whether there are further rows.")]
    edges: Edges
    note: str | None


class Named(_Returned):
    """An entity by its name and its label."""

    entity: str
    label: str


class Embedding(_Returned):
    """An embedding of one branch of a node; what there is depends on the model."""

    alpha: list[float] = []
    beta: list[float] = []
    entropy: float = 0.0


class Node(_Returned):
    """A node of a computation tree."""

    id: int
    operator: Literal["entity", "project", "and", "or", "not"]
    label: str
    text: str
    operands: list[int]
    num_answers: int
    examples: list[Named]
    entity: str = ""
    relation: str = ""
    inverse: bool = False
    embeddings: list[Embedding] = []


class ComputationTree(_Returned):
    """A question's computation tree, operands before the nodes that use them."""

    query: str
    edges: Edges
    model: str | None
    root: int
    nodes: list[Node]


# ---- the graph ----------------------------------------------------------------------------------


class Label(_Returned):
    """A label, and its language if that is known."""

    text: str
    language: str | None


class Listed(_Returned):
    """An entity or a relation."""

    name: str
    label: str
    labels: list[Label]
    edges: int
    examples: Annotated[
        list[tuple[str, str, str]], Field(description="Some of its edges: head, relation, tail.")
    ]


class Entities(_Returned):
    """Entities, and how many there are in all."""

    entities: list[Listed]
    total: int


class Relations(_Returned):
    """Relations, and how many there are in all."""

    relations: list[Listed]
    total: int


class Edge(_Returned):
    """An edge of an entity; a missing one has a probability."""

    head: str
    head_label: str
    relation: str
    tail: str
    tail_label: str
    direction: Literal["out", "in"]
    probability: float = 1.0


class EdgesOfEntity(_Returned):
    """A page of the known edges of an entity, and its most probable missing ones."""

    entity: str
    label: str
    labels: list[Label]
    edges: list[Edge]
    total: int
    offset: int
    missing: list[Edge] | None = None


# ---- the service --------------------------------------------------------------------------------


class Description(_Returned):
    """What is served."""

    betae: Annotated[str, Field(description="The version.")]
    graph: dict[str, Any]
    model: dict[str, Any] | None
    limits: dict[str, float]


class Health(_Returned):
    """That the server is there."""

    status: Literal["ok"]
