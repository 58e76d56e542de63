"""The one form of a query: a tree of Entity, Project, And, Or and Not.

    Entity("Europe")["~located_in"]                     entities located in Europe
    Entity("FIFA World Cup")["hosted"]                  its hosts
    a & b    a | b    ~a                                both, either, all but
    (a & ~b)["capital"]                                 one step further along a relation

A tree denotes a set of entities. Names may be strings, for people, or ids, for machines;
`resolve` and `unresolve` lead from one to the other on a graph. The inverse of relation `r` is
`~r` as a string and `r ^ 1` as an id. A backslash makes a name of what would mean something else:
`\\~r` is the relation whose name begins with `~`, `\\_` an entity or relation named `_`.

Trees are immutable, hashable and comparable, and at most MAX_DEPTH operators deep, so that
functions may recurse over them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

import numpy as np

from betae.errors import InvalidArgument, UnsupportedQuery
from betae.graph.graph import INVERSE

Name = str | int
PLACEHOLDER = "_"  # in a structure: any entity, any relation
Kind = Literal["entity", "relation"]
SPECIAL: dict[Kind, re.Pattern[str]] = {  # as a name, it has a backslash in front
    "entity": re.compile(r"\\*_\Z"),
    "relation": re.compile(r"\\*(~|_\Z)"),
}
MAX_ID = 2**31 - 1  # ids are stored as int32
MAX_DEPTH = 200  # Python allows 1,000 nested calls; a function needs up to 3 per level of a tree


class Query:
    """A node of the tree; its operators build larger trees."""

    operands: tuple[Query, ...]  # the sub-queries of this node
    depth: int  # the most operators on a path from this node to a leaf
    _name: Name | None  # the entity or the relation
    _hash: int

    # With __getitem__ alone, Python would take a query for an endless sequence.
    __iter__ = None
    __contains__ = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Query):
            return NotImplemented
        waiting: list[tuple[Query, Query]] = [(self, other)]
        while waiting:
            one, two = waiting.pop()
            if one is two:
                continue
            if one._hash != two._hash or type(one) is not type(two):
                return False
            if one._name != two._name or len(one.operands) != len(two.operands):
                return False
            waiting.extend(zip(one.operands, two.operands, strict=True))
        return True

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Query], tuple[Any, ...]]:
        """Pickle what the node is made from: hashes differ from process to process."""
        names = () if self._name is None else (self._name,)
        return type(self), (*self.operands, *names)

    def __deepcopy__(self, memo: Any) -> Query:
        return self  # it cannot change

    def __bool__(self) -> bool:
        raise TypeError("A query has no truth value: use & | ~ instead of `and`, `or`, `not`.")

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

    def with_operands(self, *operands: Query) -> Query:
        """Return this node over other sub-queries."""
        assert not operands
        return self


@dataclass(frozen=True, eq=False)
class Entity(Query):
    """The set of one entity."""

    name: Name

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _checked_name(self.name, "entity"))
        _complete(self, self.name)

    __str__ = Query.__str__


@dataclass(frozen=True, eq=False)
class Project(Query):
    """All entities that a relation leads to from some entity of the operand."""

    operand: Query
    relation: Name

    def __post_init__(self) -> None:
        relation = _checked_name(self.relation, "relation")
        if isinstance(relation, str):
            while relation.startswith(2 * INVERSE) or relation == INVERSE + PLACEHOLDER:
                relation = relation.removeprefix(INVERSE).removeprefix(INVERSE)
        object.__setattr__(self, "relation", relation)
        _complete(self, self.relation, self.operand)

    __str__ = Query.__str__

    def with_operands(self, *operands: Query) -> Project:
        """Return the same step from another operand."""
        (operand,) = operands
        return Project(operand, self.relation)


@dataclass(frozen=True, eq=False)
class Not(Query):
    """All entities of the graph that are not in the operand: the set's complement."""

    operand: Query

    def __post_init__(self) -> None:
        _complete(self, None, self.operand)

    __str__ = Query.__str__

    def with_operands(self, *operands: Query) -> Not:
        """Return the complement of another operand."""
        (operand,) = operands
        return Not(operand)


@dataclass(frozen=True, eq=False, init=False)
class _Nary(Query):
    """A node over two or more operands; an operand of the same kind is merged into it."""

    parts: tuple[Query, ...]

    def __init__(self, *operands: Query):
        flat: list[Query] = []
        for operand in operands:
            flat.extend(operand.operands if type(operand) is type(self) else (operand,))
        if len(flat) < 2:
            raise InvalidArgument(f"{type(self).__name__} takes two or more queries.")
        _complete(self, None, *flat)
        object.__setattr__(self, "parts", tuple(flat))

    def __repr__(self) -> str:
        inside = ""
        for operand in self.operands:  # str.join would need more of Python's nested calls
            inside += f", {operand!r}"
        return f"{type(self).__name__}({inside[2:]})"

    __str__ = Query.__str__

    def with_operands(self, *operands: Query) -> Query:
        """Return the same node over other operands; over a single one, that operand itself."""
        return type(self)(*operands) if len(operands) > 1 else operands[0]


class And(_Nary):
    """The entities that are in every operand."""


class Or(_Nary):
    """The entities that are in some operand."""


def _checked_name(name: Any, kind: Kind) -> Name:
    """Return a name as a plain str or int; NumPy's integers are ids too."""
    if type(name) is str or (type(name) is int and 0 <= name <= MAX_ID):
        return name  # almost always
    if isinstance(name, str):
        return str(name)
    if isinstance(name, int | np.integer) and not isinstance(name, bool) and 0 <= name <= MAX_ID:
        return int(name)
    raise InvalidArgument(
        f"{name!r} is no {kind}: give its name, a str, or its id, an int from 0 to {MAX_ID:,}."
    )


def _complete(node: Query, name: Name | None, *operands: Any) -> None:
    """Set what a new node keeps about itself; raise if an operand is no query, or too deep."""
    depth, hashes = 0, [hash(type(node)), hash(name)]
    for operand in operands:
        if not isinstance(operand, Query):
            raise InvalidArgument(
                f"{type(node).__name__} takes queries, not {operand!r}: write Entity(name) or "
                "parse(text)."
            )
        if operand.depth >= depth:
            depth = operand.depth + 1
        hashes.append(operand._hash)
    if depth > MAX_DEPTH:
        raise too_deep()
    attributes = node.__dict__  # past the frozen dataclass's __setattr__
    attributes["operands"] = operands
    attributes["depth"] = depth
    attributes["_name"] = name
    attributes["_hash"] = hash(tuple(hashes))


def too_deep() -> UnsupportedQuery:
    """Return the error for a query that exceeds MAX_DEPTH."""
    return UnsupportedQuery(
        f"This query is more than {MAX_DEPTH} operators deep: ask for a part of it first, and "
        "continue from its answers."
    )


def inverse(relation: Name) -> Name:
    """Return the relation that leads the other way."""
    if isinstance(relation, int):
        return relation ^ 1
    if relation == PLACEHOLDER:
        return relation
    return relation[1:] if relation.startswith(INVERSE) else INVERSE + relation


def escape(name: str, kind: Kind) -> str:
    """Return how a tree spells the name of an entity or a relation, whatever it looks like."""
    return f"\\{name}" if SPECIAL[kind].match(name) else name


def unescape(spelled: str, kind: Kind) -> str:
    """Return the name that a tree spells like this; `spelled` is no placeholder and no inverse."""
    is_escaped = spelled.startswith("\\") and SPECIAL[kind].match(spelled)
    return spelled[1:] if is_escaped else spelled


def rebuild(query: Query, change: Callable[[Query], Query]) -> Query:
    """Apply `change` to every node, from the leaves up."""
    if not query.operands:
        return change(query)
    operands = tuple(map(rebuild, query.operands, repeat(change)))
    return change(query if operands == query.operands else query.with_operands(*operands))


def nodes(query: Query) -> Iterator[Query]:
    """Return every node, operands before the node that uses them."""
    found, waiting = [], [query]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(node.operands)
    return reversed(found)
