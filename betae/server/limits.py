"""Per-request limits, and the errors that clients get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import JSONResponse

from betae.errors import (
    AmbiguousName,
    InvalidArgument,
    QueryError,
    QuerySyntaxError,
    UnresolvedName,
    UnsupportedQuery,
)
from betae.queries.ast import Entity, Query, nodes
from betae.queries.formula import Atom, Question, walk

# Errors of the library about the question. Its other errors may name files of this machine.
QUESTION_ERRORS = (QueryError, InvalidArgument, UnresolvedName)


@dataclass(frozen=True)
class Limits:
    """Per-request limits; `GET /model` lists them."""

    body_bytes: int = 2**18
    question_characters: int = 8_000
    depth: int = 16  # nested operators of a question
    branches: int = 32  # named entities, or edges, of a question
    nodes: int = 1_000  # of the tree of a question while it is built, with repeats
    questions: int = 256  # per request
    answers: int = 1_000  # k
    rows: int = 10_000  # of POST /query, and per page
    result_bytes: int = 2**26  # of SPARQL
    sending_bytes: int = 2**28  # of all responses that clients have not read yet
    seconds: float = 30.0  # per request, after its body has arrived
    read_seconds: float = 5.0  # to read a question
    body_seconds: float = 10.0  # to send a body; also to send a request on an open connection
    requests: int = 128  # in progress at the same time
    questions_per_batch: int = 64  # answered together
    memory_bytes: int = 2**32  # per worker process

    def check_text(self, text: str) -> None:
        """Raise if a text is too long."""
        number = len(text)
        check_limit(f"The question has {number:,} characters", number, self.question_characters)

    def check_tree(self, query: Query) -> None:
        """Raise if a tree is too deep or has too many branches."""
        self._check(query.depth, sum(isinstance(node, Entity) for node in nodes(query)))

    def check_question(self, question: Question) -> None:
        """Raise if a question of any shape is too deep or has too many parts."""
        parts = list(walk(question.formula))
        deepest = max(depth for _, depth in parts)
        self._check(deepest, sum(isinstance(part, Atom) for part, _ in parts))

    def _check(self, depth: int, num_branches: int) -> None:
        check_limit(f"The question is {depth} operators deep", depth, self.depth)
        check_limit(f"The question has {num_branches} branches", num_branches, self.branches)


def check_limit(words: str, number: int, limit: int) -> None:
    """Raise if a number is larger than its limit."""
    if number > limit:
        raise UnsupportedQuery(f"{words}; the limit is {limit:,}.")


class Refused(Exception):
    """A request that gets an error: a status of HTTP and a JSON object."""

    def __init__(self, status: int, content: Mapping[str, Any] | str):
        super().__init__(status, content)  # makes it picklable
        self.status = status
        self.content: dict[str, Any] = (
            {"error": content} if isinstance(content, str) else dict(content)
        )


def refusal(error: Exception, status: int = 400) -> Refused:
    """Convert an error of the library: its message, its position, the closest names."""
    if isinstance(error, Refused):
        return error
    content: dict[str, Any] = {"error": str(error)}
    if isinstance(error, QuerySyntaxError):
        content |= {"line": error.line, "column": error.column}
    elif isinstance(error, AmbiguousName):
        content["closest"] = list(error.ids[:10])
    elif closest := getattr(error, "closest", ()):
        content["closest"] = list(closest)
    return Refused(status, content)


class Json(JSONResponse):
    """A JSON response, encoded fast: the event loop waits for it."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return msgspec.json.encode(content)
