"""Limits: how much a request may ask for, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

from betae.errors import UnsupportedQuery
from betae.queries.ast import Entity, Query, nodes
from betae.queries.formula import Atom, Question, walk


@dataclass(frozen=True)
class Limits:
    """What a server puts up with; `GET /model` tells them."""

    body_bytes: int = 2**18
    question_characters: int = 8_000
    depth: int = 16  # operators of a question within one another
    branches: int = 32  # named entities, or edges, of a question
    questions: int = 256  # of one request
    answers: int = 1_000  # k
    rows: int = 10_000  # of POST /query, and of pages
    result_bytes: int = 2**26  # of SPARQL
    seconds: float = 30.0  # for a request, once its body is there
    body_seconds: float = 10.0  # until it is; and until a new connection has asked for something
    requests: int = 128  # under way at the same time
    at_once: int = 64  # questions that are answered together
    memory_bytes: int = 2**32  # of a process that looks exact answers up

    def check_text(self, text: str) -> None:
        """Refuse a text that is too long."""
        if len(text) > self.question_characters:
            raise UnsupportedQuery(
                f"This question has {len(text):,} characters; this server takes "
                f"{self.question_characters:,}."
            )

    def check_tree(self, query: Query) -> None:
        """Refuse a tree that is too deep or has too many branches."""
        if query.depth > self.depth:
            raise UnsupportedQuery(
                f"This question is {query.depth} operators deep; this server takes {self.depth}."
            )
        self._check_branches(sum(isinstance(node, Entity) for node in nodes(query)))

    def check_question(self, question: Question) -> None:
        """Refuse a question of any shape that has too many parts."""
        parts = list(walk(question.formula))
        deepest = max(depth for _, depth in parts)
        if deepest > self.depth:
            raise UnsupportedQuery(
                f"This question is {deepest} operators deep; this server takes {self.depth}."
            )
        self._check_branches(sum(isinstance(part, Atom) for part, _ in parts))

    def _check_branches(self, number: int) -> None:
        if number > self.branches:
            raise UnsupportedQuery(
                f"This question has {number} branches; this server takes {self.branches}."
            )
