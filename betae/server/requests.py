"""The bodies of requests, with an example of each for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

CAPITALS = "?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)"
Edges = Annotated[
    Literal["train", "train+valid", "all"], Field(description="The edges that count as known.")
]
Question = Annotated[str, Field(description="Logic text or a SPARQL SELECT.", min_length=1)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


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
            "examples": [{"question": CAPITALS, "k": 5, "only": "predicted", "explain": True}]
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
                {"question": "?C, ?X . located_in(?C, Europe) & capital(?C, ?X)", "limit": 10}
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
