"""The bodies of requests, with an example of each for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from betae.queries.ast import And, Entity, Not, Or, Project, Query

CAPITALS = "?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)"
CAPITALS_TREE: JsonValue = {
    "relation": "capital",
    "of": {"relation": "~located_in", "of": {"entity": "Europe"}},
}
Edges = Annotated[
    Literal["train", "train+valid", "all"], Field(description="The edges that count as known.")
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


# ---- questions ----------------------------------------------------------------------------------


def _kind_of(value: Any) -> str | None:
    """Return which kind of question a value is, by the key that no other kind has."""
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
        str,
        Field(description="Its name; ~ in front turns it round.", examples=["capital"]),
    ]
    of: Annotated[Tree, Field(description="Where it leads from.")]


class AndTree(_Body):
    """The entities that are in every operand."""

    operands: Annotated[list[Tree], Field(alias="and", min_length=2)]


class OrTree(_Body):
    """The entities that are in some operand."""

    operands: Annotated[list[Tree], Field(alias="or", min_length=2)]


class NotTree(_Body):
    """All entities that are not in the operand."""

    operand: Annotated[Tree, Field(alias="not")]


Tree = Annotated[
    Annotated[EntityTree, Tag("entity")]
    | Annotated[StepTree, Tag("relation")]
    | Annotated[AndTree, Tag("and")]
    | Annotated[OrTree, Tag("or")]
    | Annotated[NotTree, Tag("not")],
    _one_of(TREES),
]
Text = Annotated[str, Field(min_length=1, description="Logic text or a SPARQL SELECT.")]
Question = Annotated[
    Annotated[Text, Tag("text")]
    | Annotated[EntityTree, Tag("entity")]
    | Annotated[StepTree, Tag("relation")]
    | Annotated[AndTree, Tag("and")]
    | Annotated[OrTree, Tag("or")]
    | Annotated[NotTree, Tag("not")],
    _one_of(f"text, or a tree: {TREES}"),
    Field(description="Logic text, a SPARQL SELECT, or a tree."),
]


def to_query(tree: Tree) -> Query:
    """Return a tree as the library has it."""
    match tree:
        case EntityTree():
            return Entity(tree.entity)
        case StepTree():
            return Project(to_query(tree.of), tree.relation)
        case AndTree():
            return And(*map(to_query, tree.operands))
        case OrTree():
            return Or(*map(to_query, tree.operands))
        case NotTree():
            return Not(to_query(tree.operand))


# ---- requests -----------------------------------------------------------------------------------


class Wanted(_Body):
    """Which answers are wanted, and how they are found."""

    k: Annotated[
        int | None, Field(ge=1, description="Number of answers; default: 10, or SPARQL's LIMIT.")
    ] = None
    method: Literal["completed", "embedding"] = "completed"
    edges: Edges = "all"
    explain: Annotated[bool, Field(description="Say why: the best derivation of each.")] = False
    only: Annotated[
        Literal["known", "assumed", "predicted"] | None, Field(description="Leave out the others.")
    ] = None
    threshold: Annotated[
        float, Field(ge=0, le=1, description="Leave out answers less probable than this.")
    ] = 0.0


class AnswerRequest(Wanted):
    """A question to the run."""

    question: Question
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"question": CAPITALS, "k": 5, "only": "predicted", "explain": True},
                {"question": CAPITALS_TREE, "k": 5},
            ]
        },
    )


class BatchRequest(Wanted):
    """Many questions to the run; the rest holds for all of them."""

    questions: Annotated[list[Question], Field(min_length=1)]
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"questions": [CAPITALS, "?X . capital(France, ?X)"], "k": 3}]
        },
    )


class QueryRequest(_Body):
    """A question of any shape to the facts."""

    question: Question
    edges: Edges = "all"
    limit: Annotated[int, Field(ge=1, description="The most rows to list.")] = 100
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"question": "?C, ?X . located_in(?C, Europe) & capital(?C, ?X)", "limit": 10},
                {"question": CAPITALS_TREE},
            ]
        },
    )


class TreeRequest(_Body):
    """A question whose computation tree is to be drawn."""

    question: Question
    edges: Edges = "all"
    dims: Annotated[
        int, Field(ge=0, le=64, description="How many dimensions of each Beta embedding to give.")
    ] = 4
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"question": CAPITALS, "dims": 4}]}
    )
