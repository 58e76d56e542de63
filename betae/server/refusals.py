"""Refused: what a client is told when a request cannot be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from betae.errors import (
    AmbiguousName,
    InvalidArgument,
    QueryError,
    QuerySyntaxError,
    UnresolvedName,
)

# What the library raises about the question itself. Its other errors name files of this machine.
OF_THE_QUESTION = (QueryError, InvalidArgument, UnresolvedName)


class Refused(Exception):
    """A request that is answered with an error: a status of HTTP, and what to say as JSON."""

    def __init__(self, status: int, content: Mapping[str, Any] | str):
        super().__init__(status, content)  # so that it can be sent from process to process
        self.status = status
        self.content = {"error": content} if isinstance(content, str) else dict(content)


def refusal(error: Exception, status: int = 400) -> Refused:
    """Return an error of the library for a client: its message, and the parts that it has."""
    content: dict[str, Any] = {"error": str(error)}
    if isinstance(error, QuerySyntaxError):
        content |= {"line": error.line, "column": error.column}
    elif isinstance(error, AmbiguousName):
        content["closest"] = list(error.ids[:10])
    elif closest := getattr(error, "closest", ()):
        content["closest"] = list(closest)
    return Refused(status, content)
