"""All exact answers of a question of any shape, by name, found as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from betae.checks import check_choice, check_positive
from betae.errors import InvalidArgument, UnsupportedQuery
from betae.exact.joins import Joins
from betae.exact.tables import CHUNK
from betae.graph.edges import EDGES, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.queries.formula import Question, Reach, walk
from betae.queries.names import resolve
from betae.queries.read import as_query, read_question
from betae.queries.structures import structure_of
from betae.queries.trees import to_tree

if TYPE_CHECKING:
    import polars as pl

ANSWER = "X"  # the variable of a tree
LABEL = "_label"  # what the name of a column of labels ends in


class Selection:
    """The answers of a question: rows with an entity for each variable, each row once.

    Iterating finds them, from the beginning each time. A row is a dict of names and labels, such as
    {"X": "Q90", "X_label": "Paris"}.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        variables: tuple[str, ...],
        find: Callable[[], Iterator[Ids]],
    ):
        self.graph, self.variables, self._find = graph, variables, find
        for name in variables:
            if name.endswith(LABEL) and name.removesuffix(LABEL) in variables:
                shown = name.removesuffix(LABEL)
                raise InvalidArgument(f"?{name} names the labels of ?{shown}: rename ?{name}.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of a row: a variable, then its label."""
        return tuple(column for name in self.variables for column in (name, name + LABEL))

    def ids(self) -> Iterator[Ids]:
        """Yield the rows by id, (n, num_variables), piece by piece."""
        return self._find()

    def __iter__(self) -> Iterator[dict[str, str]]:
        @cache
        def cells(entity: int) -> tuple[str, str]:
            return self.graph.entities[entity], self.graph.entity_label(entity)

        for piece in self.ids():
            for row in piece.tolist():
                texts = (text for entity in row for text in cells(entity))
                yield dict(zip(self.columns, texts, strict=True))

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a table."""
        import polars as pl

        return pl.DataFrame(list(self), schema=dict.fromkeys(self.columns, pl.String()))


def select(
    graph: KnowledgeGraph,
    question: str | Query,
    edges: Edges = "all",
    limit: int | None = None,
) -> Selection:
    """Return all exact answers of a question on these edges: logic text, SPARQL, or a tree.

    The question may have several answer variables and cycles. `limit` is the most rows to return;
    a LIMIT in SPARQL counts too. A mistake in the question is raised at once.
    """
    check_choice("edges", edges, EDGES)
    if limit is not None:
        check_positive("limit", limit, whole=True)
    asked = read_question(question, graph.prefixes) if isinstance(question, str) else None
    joins = Joins(graph, edges)
    tree = to_exact_tree(asked or as_query(question), graph)
    find: Callable[[], Iterator[Ids]]
    if tree is not None:
        find = partial(_members, joins, tree)
    elif asked is not None:
        joins.check(asked)
        find = partial(_rows, joins, asked)
    if asked is None:
        return Selection(graph, (ANSWER,), partial(_at_most, limit, find))
    limits = [number for number in (limit, asked.limit) if number is not None]
    names = tuple(variable.name for variable in asked.variables)
    return Selection(graph, names, partial(_at_most, min(limits, default=None), find))


def to_exact_tree(question: Question | Query, graph: KnowledgeGraph) -> Query | None:
    """Return the tree of ids that says exactly what a question says, if there is one."""
    if isinstance(question, Question):
        if any(isinstance(part, Reach) for part, _ in walk(question.formula)):
            return None  # a tree has paths of some lengths only
        try:
            question = to_tree(question)
        except UnsupportedQuery:
            return None
    tree = resolve(question, graph)
    structure_of(tree)  # raises if it has placeholders
    return tree


def _rows(joins: Joins, question: Question) -> Iterator[Ids]:
    for table in joins.rows(question):
        yield np.stack([table.columns[variable] for variable in question.variables], axis=1)


def _members(joins: Joins, tree: Query) -> Iterator[Ids]:
    """Yield the answers of a tree of ids, ascending."""
    found = np.flatnonzero(marks(joins, tree)).astype(np.int32)
    for start in range(0, len(found), CHUNK):
        yield found[start : start + CHUNK, None]


def marks(joins: Joins, tree: Query) -> NDArray[np.bool_]:
    """Mark the entities that a tree of ids holds, (num_entities,)."""
    operands = [marks(joins, operand) for operand in tree.operands]
    found: NDArray[np.bool_] = np.zeros(joins.num_entities, dtype=np.bool_)
    match tree:
        case Entity(entity):
            found[int(entity)] = True
        case Project(_, relation):
            pairs = joins.pairs(relation)
            found[pairs.tails[operands[0][pairs.heads]]] = True
        case Not():
            found = ~operands[0]
        case And():
            found = np.logical_and.reduce(operands)
        case Or():
            found = np.logical_or.reduce(operands)
    return found


def _at_most(limit: int | None, find: Callable[[], Iterator[Ids]]) -> Iterator[Ids]:
    left = limit
    for piece in find():
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        if len(piece):
            yield piece
        if left == 0:
            return
