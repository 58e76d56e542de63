"""The one form of a query: a tree of Entity, Project, And, Or and Not.

    Entity("Europe")["~located_in"]                     entities located in Europe
    Entity("FIFA World Cup")["hosted"]                  its hosts
    a & b    a | b    ~a                                both, either, all but
    (a & ~b)["capital"]                                 one step further along a relation

A tree denotes a set of entities. Names may be strings, for people, or ids, for machines;
`resolve` and `unresolve` lead from one to the other on a graph. The inverse of relation `r` is
`~r` as a string and `r ^ 1` as an id. Trees are immutable, hashable and comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from betae.errors import InvalidArgument
from betae.graph.graph import INVERSE

Name = str | int
PLACEHOLDER = "_"  # in a structure: any entity, any relation


class Query:
    """A node of the tree; its operators build larger trees."""

    def __and__(self, other: Query) -> And:
        return And(self, other)

    def __or__(self, other: Query) -> Or:
        return Or(self, other)

    def __invert__(self) -> Not:
        return Not(self)

    def __getitem__(self, relation: Name) -> Project:
        return Project(self, relation)

    def __str__(self) -> str:
        """Return the logic text of the query; `parse` reads it back to the same query."""
        from betae.queries.syntax import to_text

        return to_text(self)

    @property
    def operands(self) -> tuple[Query, ...]:
        """The sub-queries of this node."""
        return ()

    def with_operands(self, *operands: Query) -> Query:
        """Return this node over other sub-queries."""
        assert not operands
        return self


@dataclass(frozen=True)
class Entity(Query):
    """The set of one entity."""

    name: Name

    __str__ = Query.__str__


@dataclass(frozen=True)
class Project(Query):
    """All entities that a relation leads to from some entity of the operand."""

    operand: Query
    relation: Name

    __str__ = Query.__str__

    @property
    def operands(self) -> tuple[Query, ...]:
        """The one operand."""
        return (self.operand,)

    def with_operands(self, *operands: Query) -> Project:
        """Return the same step from another operand."""
        (operand,) = operands
        return Project(operand, self.relation)


@dataclass(frozen=True)
class Not(Query):
    """All entities of the graph that are not in the operand: the set's complement."""

    operand: Query

    __str__ = Query.__str__

    @property
    def operands(self) -> tuple[Query, ...]:
        """The one operand."""
        return (self.operand,)

    def with_operands(self, *operands: Query) -> Not:
        """Return the complement of another operand."""
        (operand,) = operands
        return Not(operand)


@dataclass(frozen=True, init=False)
class _Nary(Query):
    """A node over two or more operands; one of the same kind inside is taken apart."""

    parts: tuple[Query, ...]

    def __init__(self, *operands: Query):
        flat: list[Query] = []
        for operand in operands:
            flat.extend(operand.operands if type(operand) is type(self) else (operand,))
        if len(flat) < 2:
            raise InvalidArgument(f"{type(self).__name__} takes two or more queries.")
        object.__setattr__(self, "parts", tuple(flat))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.operands))})"

    __str__ = Query.__str__

    @property
    def operands(self) -> tuple[Query, ...]:
        """Two or more."""
        return self.parts

    def with_operands(self, *operands: Query) -> Query:
        """Return the same node over others; over one, that one itself."""
        return type(self)(*operands) if len(operands) > 1 else operands[0]


class And(_Nary):
    """The entities that are in every operand."""


class Or(_Nary):
    """The entities that are in some operand."""


def inverse(relation: Name) -> Name:
    """Return the relation that leads the other way."""
    if isinstance(relation, int):
        return relation ^ 1
    if relation == PLACEHOLDER:
        return relation
    return relation[1:] if relation.startswith(INVERSE) else INVERSE + relation


def rebuild(query: Query, change: Callable[[Query], Query]) -> Query:
    """Apply `change` to every node, from the leaves up."""
    operands = [rebuild(operand, change) for operand in query.operands]
    return change(query.with_operands(*operands))


def nodes(query: Query) -> Iterator[Query]:
    """Yield every node, operands before the node that uses them."""
    for operand in query.operands:
        yield from nodes(operand)
    yield query
