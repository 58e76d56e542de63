"""The one form of a query: a tree of Entity, Where, IsA, Project, And, Or and Not.

    Entity("Europe")["~located_in"]                     entities located in Europe
    Entity("FIFA World Cup")["hosted"]                  its hosts
    Where("length", "<", 200)    IsA("Song")            a condition on a value; a class
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

import datetime as dt
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from dataclasses import fields as dataclass_fields
from enum import Enum
from hashlib import blake2b
from itertools import repeat
from typing import Any, Self, cast

import numpy as np

from betae.checks import check_choice
from betae.errors import InvalidArgument, UnsupportedQuery
from betae.graph.edges import Ids
from betae.graph.graph import INVERSE
from betae.graph.values import CONTAINS, OPERATORS, Value


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
    has_conditions: bool  # whether a leaf is a Where or an IsA
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
class Condition(Query):
    """Base of `Where` and `IsA`: a leaf for what is known of entities besides edges to others.

    `members` are the ids of the entities that meet it, ascending, once it is resolved on a graph.
    """

    _: KW_ONLY
    members: Ids | None = field(default=None, repr=False)

    def _complete(self, *names: Any) -> None:
        digest = None if self.members is None else blake2b(self.members.tobytes()).digest()
        _complete(self, (*names, digest))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {each.name: getattr(self, each.name) for each in dataclass_fields(self)}
        return _from_fields, (type(self), fields)

    def with_members(self, members: Ids | None) -> Self:
        """Return this condition with the ids of the entities that meet it, or without."""
        return replace(self, members=members)

    @property
    def ids(self) -> Ids:
        """The members of a condition that is resolved."""
        assert self.members is not None
        return self.members


def _from_fields(kind: type[Condition], fields: dict[str, Any]) -> Condition:
    return kind(**fields)


@dataclass(frozen=True, eq=False)
class Where(Condition):
    """All entities with a value of a property that compares so: `Where("length", "<", 200)`.

    An entity without a value is not among them; of several values, one is enough.

    Args:
        property: its name, or the last part of its IRI.
        operator: `=`, `!=`, `<`, `<=`, `>`, `>=`, or `~` for text that contains the value,
            ignoring case.
        value: a number, a date, a time, a boolean or text.
        language: of text: "de", or "" for text without a language; by default, any.
    """

    property: str
    operator: str
    value: Value
    language: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.property, str):
            raise InvalidArgument(f"{self.property!r} is not a property: give its name (str).")
        check_choice("operator", self.operator, OPERATORS)
        value = _checked_value(self.value)
        if not isinstance(value, str) and (self.operator == CONTAINS or self.language is not None):
            what = f"{CONTAINS!r}" if self.operator == CONTAINS else "A language"
            raise InvalidArgument(f"{what} is for text, and {value!r} is none: write '{value}'.")
        object.__setattr__(self, "value", value)
        if self.language is not None:
            object.__setattr__(self, "language", str(self.language).lower())
        names = str(self.property), self.operator, type(value), value, self.language
        self._complete(*names)


@dataclass(frozen=True, eq=False)
class IsA(Condition):
    """All entities of a class, and of its subclasses: `IsA("Song")`.

    A class is the tail of an edge `rdf:type`, or a type in a node table.
    """

    name: Name

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _checked_name(self.name, "a class"))
        self._complete(self.name)


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


def _checked_value(value: Any) -> Value:
    """Return a value as one of Python's types; NumPy's numbers are values too."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InvalidArgument(f"{value!r} has half a surrogate pair, which is no character.")
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"{value} cannot be compared with.")
    if isinstance(value, bool | int | float | dt.date | dt.time):  # a datetime is a date
        return value
    raise InvalidArgument(
        f"{value!r} cannot be compared with: give a number, a date, a time, a boolean or text."
    )


def _complete(node: Query, names: tuple[Any, ...], *operands: Any) -> None:
    """Set the derived attributes of a new node; check its operands and its depth."""
    depth, hashes = 0, [hash(type(node)), hash(names)]
    has_conditions = isinstance(node, Condition)
    for operand in operands:
        if not isinstance(operand, Query):
            raise InvalidArgument(
                f"{type(node).__name__} takes queries, not {operand!r}: write Entity(name)."
            )
        if operand.depth >= depth:
            depth = operand.depth + 1
        has_conditions |= operand.has_conditions
        hashes.append(operand._hash)
    if depth > MAX_DEPTH:
        raise too_deep()
    attributes = node.__dict__  # past the frozen dataclass's __setattr__
    attributes["operands"] = operands
    attributes["depth"] = depth
    attributes["has_conditions"] = has_conditions
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
