"""All exact answers of a question of any shape, by name, found while they are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from betae.checks import check_choice, check_positive
from betae.errors import InvalidArgument, QueryError, UnresolvedName, UnsupportedQuery
from betae.exact.joins import Joins
from betae.exact.sparql import Solutions, names_and_labels
from betae.exact.unknown import unknown_values
from betae.frames import SHOWN_ROWS, html_table, text_table
from betae.graph.edges import EDGES, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Entity, Project, Query, nodes
from betae.queries.formula import Atom, Question, Variable, walk
from betae.queries.read import is_sparql, read_question
from betae.queries.spelling import spell_entity, spell_relation

if TYPE_CHECKING:
    import polars as pl

LABEL = "_label"  # suffix of a column of labels


class Selection:
    """The exact answers of a question: rows with an entity or a value for each variable.

    Iterating finds them, anew each time. A row is a dict of names and labels, such as
    {"X": "Q90", "X_label": "Paris"}. Answers of logic text are distinct entities; those of SPARQL
    may repeat, be literals (whose label is the text too), or None where a variable is not bound.
    """

    def __init__(
        self, graph: KnowledgeGraph, question: Question | Solutions, edges: Edges, limit: int
    ):
        self.graph, self.question, self.edges, self.limit = graph, question, edges, limit
        if isinstance(question, Solutions):
            self.variables = question.variables
        else:
            self.joins = Joins(graph, edges)
            self.joins.rows(question)  # raises now if it cannot be answered
            self.variables = tuple(variable.name for variable in question.variables)
        # The keys of a row: each variable and its label.
        self.columns = tuple(column for name in self.variables for column in (name, name + LABEL))
        for name in self.variables:
            if name + LABEL in self.variables:
                wrong = f"?{name}{LABEL}"
                raise InvalidArgument(f"{wrong} names the labels of ?{name}: rename {wrong}.")

    def ids(self) -> Iterator[Ids]:
        """Iterate over pieces of the rows by id, (n, num_variables); not for SPARQL."""
        if isinstance(self.question, Solutions):
            raise InvalidArgument("Answers of SPARQL need not be entities: read them as rows.")
        left, pieces = self.limit, self.joins.ids(self.question)
        while left and (piece := next(pieces, None)) is not None:
            yield piece[:left]
            left -= len(piece[:left])

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Which names were read as others, and how many entities have no value for a condition."""
        if isinstance(self.question, Solutions):
            return ()
        return *self.question.notes, *unknown_values(self.graph, self.question, self.edges)

    def __iter__(self) -> Iterator[dict[str, str | None]]:
        if isinstance(self.question, Solutions):
            cells = names_and_labels(self.graph)
            rows: Iterator[Any] = islice(self.question.terms(), self.limit)
        else:
            cells = cache(self._cells)
            rows = (row for piece in self.ids() for row in piece.tolist())
        for row in rows:
            texts = (text for value in row for text in cells(value))
            yield dict(zip(self.columns, texts, strict=True))

    def _cells(self, entity: int) -> tuple[str, str]:
        return self.graph.entities[entity], self.graph.entity_label(entity)

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(list(self), schema=dict.fromkeys(self.columns, pl.String()))

    def __repr__(self) -> str:
        head, rows, more = self._shown()
        return f"{text_table(head, rows)}\n{more}"

    def _repr_html_(self) -> str:
        head, rows, more = self._shown()
        return f"{html_table(head, rows)}<p>{more}</p>"

    def _shown(self) -> tuple[list[str], list[list[str]], str]:
        """Return the titles, the labels of the first rows, and how many there are."""
        found = list(islice(self, SHOWN_ROWS + 1))
        rows = [[row[name + LABEL] or "" for name in self.variables] for row in found[:SHOWN_ROWS]]
        more = f"{len(rows) or 'no'} answer{'' if len(rows) == 1 else 's'}"
        if len(found) > SHOWN_ROWS:
            more = f"more than {more}"
        more = "; ".join([more, *self.notes])
        return [f"?{name}" for name in self.variables], rows, more


def select(
    graph: KnowledgeGraph,
    question: str | Query | tuple[Any, ...] | Question,
    edges: Edges = "all",
    limit: int | None = None,
) -> Selection:
    """Return all exact answers of a question on these edges: see `KnowledgeGraph.select`."""
    if isinstance(question, str) and is_sparql(question):
        found = sparql(graph, question, edges, limit)
        if not isinstance(found, Selection):
            raise UnsupportedQuery("Only SELECT lists answers. For other queries, call `sparql`.")
        return found
    _check_options(edges, limit)
    asked = (
        question if isinstance(question, Question) else read_question(question, graph, edges=edges)
    )
    limits = [each for each in (limit, asked.limit) if each is not None]
    return Selection(graph, asked, edges, min(limits, default=sys.maxsize))


def sparql(
    graph: KnowledgeGraph, text: str, edges: Edges = "all", limit: int | None = None
) -> Selection | bool | pl.DataFrame:
    """Answer any SPARQL query: see `KnowledgeGraph.sparql`. `limit` is for SELECT."""
    _check_options(edges, limit)
    found = Solutions(graph, text, edges)
    if found.kind == "ask":
        return bool(found)
    if found.kind == "construct":
        return found.triples()
    return Selection(graph, found, edges, sys.maxsize if limit is None else limit)


def _check_options(edges: Edges, limit: int | None) -> None:
    check_choice("edges", edges, EDGES)
    if limit is not None:
        check_positive("limit", limit, whole=True)


# ---- hints --------------------------------------------------------------------------------------


def hint_of_direction(
    graph: KnowledgeGraph, question: str | Query | tuple[Any, ...], edges: Edges = "all"
) -> str | None:
    """Suggest the inverse relation when only it has answers.

    For a question without answers, such as `lives_in(Paris, ?X)` where Paris is only ever a tail.
    """
    joins = Joins(graph, edges)
    try:
        steps = _steps(read_question(question, graph, edges=edges))
    except (QueryError, UnresolvedName):
        if isinstance(question, str) and is_sparql(question):
            return None  # more than the reader of trees knows
        raise
    for operand, relation in steps:
        found = joins.ids(Question.from_tree(operand))
        sources = np.concatenate([np.empty((0, 1), np.int32), *found])
        pairs = joins.pairs(relation)
        if not np.isin(pairs.heads, sources).any() and np.isin(pairs.tails, sources).any():
            return _hint(operand, relation, graph)
    return None


def _steps(question: Question) -> list[tuple[Query, int]]:
    """Return the operands and relations of all projections; without a tree, those of entities."""
    with suppress(UnsupportedQuery):
        tree = question.tree
        return [(n.operand, int(n.relation)) for n in nodes(tree) if isinstance(n, Project)]
    steps: list[tuple[Query, int]] = []
    for part, _ in walk(question.formula):
        match part:
            case Atom(relation, Entity() as head, Variable()):
                steps.append((head, int(relation)))
            case Atom(relation, Variable(), Entity() as tail):
                steps.append((tail, int(relation) ^ 1))
    return steps


def _hint(operand: Query, directed: int, graph: KnowledgeGraph) -> str:
    relation, is_inverse = divmod(directed, 2)
    name = spell_relation(graph, relation)
    wanted, found = ("tail", "head") if is_inverse else ("head", "tail")
    if isinstance(operand, Entity):
        entity = int(operand.name)
        start = spell_entity(graph, entity)
        fact = f"{graph.entity_label(entity)} is never a {wanted} of {name}, only a {found}"
    else:
        start = "?V"
        fact = f"This step starts from {found}s of {name}, which are never its {wanted}s"
    if is_inverse:
        return f"{fact}: write {name}({start}, ?X)."
    return f"{fact}: write {name}(?X, {start}), or ~{name}({start}, ?X)."
