"""The one form of a query: a tree of Entity, Project, And, Or and Not.

    Entity("Europe")["~located_in"]                     entities located in Europe
    Entity("FIFA World Cup")["hosted"]                  its hosts
    a & b    a | b    ~a                                intersection, union, complement
    (a & ~b)["capital"]                                 one step further along a relation

A tree denotes a set of entities. Its names are strings, for people, or ids, for machines;
`resolve` and `unresolve` (betae.queries.read) lead from one to the other on a graph. The inverse of
relation `r` is `["~r"]` by name and `[r ^ 1]` by id. A PLACEHOLDER instead of a name makes a
structure of a query.

Trees are immutable, hashable and comparable, and at most MAX_DEPTH operators deep, so that
functions may recurse over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from typing import Any, cast

import numpy as np

from betae.errors import InvalidArgument, UnsupportedQuery
from betae.graph.graph import INVERSE


class Placeholder(Enum):
    """The type of PLACEHOLDER, which stands for any entity or any relation."""

    ANY = "_"

    def __str__(self) -> str:
        return self.value

    def __int__(self) -> int:  # where an id is needed
        raise InvalidArgument(
            "_ is a placeholder, which only `betae sample` fills: name an entity or a relation. "
            'An entity called _ is written "_", in quotes.'
        )


PLACEHOLDER = Placeholder.ANY
Name = str | int | Placeholder
MAX_ID = 2**31 - 1  # ids are stored as int32
MAX_DEPTH = 200  # Python allows 1,000 nested calls; a function needs up to 3 per level of a tree


class Query:
    """A node of the tree; its operators build larger trees."""

    operands: tuple[Query, ...]  # sub-queries
    depth: int  # operators on the longest path to a leaf
    _names: tuple[Any, ...]  # constructor arguments besides the operands
    _hash: int

    # With __getitem__ alone, Python would take a query for an endless sequence.
    __iter__ = None
    __contains__ = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Query):
            return NotImplemented
        return (
            self._hash == other._hash
            and type(self) is type(other)
            and self._names == other._names
            and self.operands == other.operands
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Query], tuple[Any, ...]]:
        # By constructor arguments: hashes differ between processes.
        return type(self), (*self.operands, *self._names)

    def __deepcopy__(self, memo: Any) -> Query:
        return self  # immutable

    def __bool__(self) -> bool:
        raise TypeError("A query has no truth value: use & | ~ instead of `and`, `or`, `not`.")

    def __and__(self, other: Query) -> And:
        return And(self, other)

    def __or__(self, other: Query) -> Or:
        return Or(self, other)

    def __invert__(self) -> Not:
        return Not(self)

    def __getitem__(self, relation: Name) -> Project:
        """Follow a relation; a name that starts with `~` is the inverse of the rest."""
        is_inverse = False
        while isinstance(relation, str) and relation.startswith(INVERSE):
            relation, is_inverse = relation.removeprefix(INVERSE), not is_inverse
        return Project(self, relation, is_inverse)

    def __str__(self) -> str:
        """Logic text; `parse` reads it back to the same query."""
        from betae.queries.syntax import to_text

        return to_text(self)

    def with_operands(self, *operands: Query) -> Query:
        """Return this node over other sub-queries; an And or Or of one is that one."""
        if isinstance(self, _Nary) and len(operands) == 1:
            return operands[0]
        node: Any = type(self)
        return cast(Query, node(*operands, *self._names)) if operands else self


@dataclass(frozen=True, eq=False)
class Entity(Query):
    """The set of one entity."""

    name: Name

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _checked_name(self.name, "an entity"))
        _complete(self, (self.name,))


@dataclass(frozen=True, eq=False)
class Project(Query):
    """All entities that a relation leads to from some entity of the operand.

    `is_inverse` is for a relation by name; an id says its direction itself.
    """

    operand: Query
    relation: Name
    is_inverse: bool = False

    def __post_init__(self) -> None:
        relation, is_inverse = _checked_name(self.relation, "a relation"), bool(self.is_inverse)
        if isinstance(relation, int):
            relation, is_inverse = relation ^ is_inverse, False
        elif relation is PLACEHOLDER:
            is_inverse = False
        object.__setattr__(self, "relation", relation)
        object.__setattr__(self, "is_inverse", is_inverse)
        _complete(self, (relation, is_inverse), self.operand)


@dataclass(frozen=True, eq=False)
class Not(Query):
    """The complement: all entities of the graph that are not in the operand."""

    operand: Query

    def __post_init__(self) -> None:
        _complete(self, (), self.operand)


@dataclass(frozen=True, eq=False, init=False)
class _Nary(Query):
    """A node over two or more operands; an operand of the same kind is merged into it."""

    operands: tuple[Query, ...]

    def __init__(self, *operands: Query):
        flat: list[Query] = []
        for operand in operands:
            flat.extend(operand.operands if type(operand) is type(self) else (operand,))
        if len(flat) < 2:
            raise InvalidArgument(f"{type(self).__name__} takes two or more queries.")
        _complete(self, (), *flat)

    def __repr__(self) -> str:
        inside = ""
        for operand in self.operands:  # str.join would nest more Python calls
            inside += f", {operand!r}"
        return f"{type(self).__name__}({inside[2:]})"


class And(_Nary):
    """The intersection of the operands."""


class Or(_Nary):
    """The union of the operands."""


def _checked_name(name: Any, kind: str) -> Name:
    """Return a name as a plain str or int; NumPy integers are ids too."""
    if type(name) is str or name is PLACEHOLDER or (type(name) is int and 0 <= name <= MAX_ID):
        return name
    if isinstance(name, str):
        return str(name)
    if isinstance(name, int | np.integer) and not isinstance(name, bool) and 0 <= name <= MAX_ID:
        return int(name)
    raise InvalidArgument(
        f"{name!r} is not {kind}: give its name (str) or its id (int from 0 to {MAX_ID:,})."
    )


def _complete(node: Query, names: tuple[Any, ...], *operands: Any) -> None:
    """Set the derived attributes of a new node; check its operands and its depth."""
    depth, hashes = 0, [hash(type(node)), hash(names)]
    for operand in operands:
        if not isinstance(operand, Query):
            raise InvalidArgument(
                f"{type(node).__name__} takes queries, not {operand!r}: write Entity(name)."
            )
        if operand.depth >= depth:
            depth = operand.depth + 1
        hashes.append(operand._hash)
    if depth > MAX_DEPTH:
        raise too_deep()
    attributes = node.__dict__  # past the frozen dataclass's __setattr__
    attributes["operands"] = operands
    attributes["depth"] = depth
    attributes["_names"] = names
    attributes["_hash"] = hash(tuple(hashes))


def too_deep() -> UnsupportedQuery:
    """Build the error for a query deeper than MAX_DEPTH."""
    return UnsupportedQuery(
        f"This query is more than {MAX_DEPTH} operators deep: ask for a part of it first, and "
        "continue from its answers."
    )


def rebuild(query: Query, change: Callable[[Query], Query]) -> Query:
    """Apply `change` to every node, from the leaves up."""
    if not query.operands:
        return change(query)
    operands = tuple(map(rebuild, query.operands, repeat(change)))
    return change(query if operands == query.operands else query.with_operands(*operands))


def nodes(query: Query) -> Iterator[Query]:
    """Iterate over every node, operands first."""
    found, waiting = [], [query]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(node.operands)
    return reversed(found)
