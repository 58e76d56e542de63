"""Structures: queries with placeholders, written `_`, for entities and relations.

A query is its structure filled with symbols: the ids of its entities and relations, in post-order.
Many queries of one structure are then one matrix of symbols, (num_queries, num_symbols), with no
Python object per query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from betae.errors import InvalidArgument, UnsupportedQuery
from betae.graph.edges import Ids
from betae.queries.ast import (
    MAX_DEPTH,
    PLACEHOLDER,
    And,
    Condition,
    Entity,
    Name,
    Not,
    Or,
    Project,
    Query,
    nodes,
    too_deep,
)

Result = TypeVar("Result")
ANY = Entity(PLACEHOLDER)
_1p = ANY[PLACEHOLDER]
_2p = _1p[PLACEHOLDER]

STRUCTURES: dict[str, Query] = {  # the paper's names: p projection, i intersection, n, u
    "1p": _1p,
    "2p": _2p,
    "3p": _2p[PLACEHOLDER],
    "2i": _1p & _1p,
    "3i": _1p & _1p & _1p,
    "ip": (_1p & _1p)[PLACEHOLDER],
    "pi": _2p & _1p,
    "2in": _1p & ~_1p,
    "3in": _1p & _1p & ~_1p,
    "inp": (_1p & ~_1p)[PLACEHOLDER],
    "pin": _2p & ~_1p,
    "pni": ~_2p & _1p,
    "2u": _1p | _1p,
    "up": (_1p | _1p)[PLACEHOLDER],
    "2u-DM": ~(~_1p & ~_1p),
    "up-DM": (~(~_1p & ~_1p))[PLACEHOLDER],
}
EPFO = ("1p", "2p", "3p", "2i", "3i", "ip", "pi", "2u", "up")  # without negation
NEGATION = ("2in", "3in", "inp", "pin", "pni")
TRAINING = ("1p", "2p", "3p", "2i", "3i", *NEGATION)

_NAMES = {structure: name for name, structure in STRUCTURES.items()}


def cached_by_structure(function: Callable[..., Result]) -> Callable[..., Result]:
    """Cache results, since many queries have few structures.

    Those of structures with conditions are not kept: their members may take megabytes.
    """
    cached = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def call(structure: Query, *arguments: Any) -> Result:
        return (function if structure.has_conditions else cached)(structure, *arguments)

    return call


def structure_of(query: Query) -> tuple[Query, tuple[int, ...]]:
    """Split a query of ids into its structure and its symbols."""
    return _split(query, _id)


def by_structure(
    queries: Sequence[Query],
) -> list[tuple[Query, NDArray[np.int64], NDArray[np.int64]]]:
    """Group queries of ids by structure: symbols (n, num_symbols) and positions (n,) of each."""
    rows: dict[Query, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    for position, query in enumerate(queries):
        structure, symbols = structure_of(query)
        rows[structure].append((symbols, position))
    found = []
    for structure, of_structure in rows.items():
        symbols, positions = zip(*of_structure, strict=True)
        found.append((structure, np.array(symbols, np.int64), np.array(positions, np.int64)))
    return found


def _split(query: Query, to_id: Callable[[Name], int]) -> tuple[Query, tuple[int, ...]]:
    """Replace every name by a placeholder; return the ids of the names, in post-order."""
    ids: list[int] = []

    def strip(node: Query) -> Query:
        if isinstance(node, Entity):
            ids.append(to_id(node.name))
            return ANY
        if isinstance(node, Condition):
            return node
        operands = tuple(map(strip, node.operands))
        if isinstance(node, Project):
            ids.append(to_id(node.relation))
        make = _stripped.__wrapped__ if node.has_conditions else _stripped
        return make(node.__class__, operands)  # type: ignore[arg-type]

    return strip(query), tuple(ids)


@lru_cache(maxsize=4096)
def _stripped(kind: Callable[..., Query], operands: tuple[Query, ...]) -> Query:
    """Return a node over these operands; the relation of a projection is a placeholder."""
    return Project(operands[0], PLACEHOLDER) if kind is Project else kind(*operands)


def _id(name: Name) -> int:
    if isinstance(name, str):
        raise InvalidArgument(f"{name!r} is a name where an id is needed: resolve the query first.")
    return int(name)


def fill(structure: Query, symbols: Sequence[int]) -> Query:
    """Fill the placeholders of a structure with symbols; its fixed names stay."""
    left = iter(symbols)

    def filled(node: Query) -> Query:
        operands = list(map(filled, node.operands))
        if not is_placeholder(node):
            return node.with_operands(*operands)
        symbol = int(next(left))
        return Project(operands[0], symbol) if operands else Entity(symbol)

    return filled(structure)


@dataclass(frozen=True)
class SymbolColumns:
    """The columns of symbols of a structure in which some ids are fixed."""

    structure: Query  # with a placeholder for every id
    fixed: tuple[int, ...]  # of each column: the fixed id, or -1 for a placeholder

    def expand(self, symbols: Ids) -> Ids:
        """Add the fixed ids to symbols: (n, num_symbols) -> (n, num_columns)."""
        fixed = np.array(self.fixed, dtype=np.int32)
        expanded = np.tile(fixed, (len(symbols), 1))
        expanded[:, fixed < 0] = symbols
        return expanded


@cached_by_structure
def columns_of(structure: Query) -> SymbolColumns:
    """Return the columns of symbols of a structure, some of which may be fixed."""
    return SymbolColumns(*_split(structure, lambda name: -1 if name is PLACEHOLDER else _id(name)))


@cached_by_structure
def limits_of(structure: Query, num_entities: int, num_relations: int) -> Ids:
    """Return the exclusive upper bound of each symbol's ids, (num_symbols,)."""
    limits = [
        num_entities if isinstance(node, Entity) else num_relations
        for node in nodes(structure)
        if is_placeholder(node)
    ]
    return np.array(limits, dtype=np.int32)


def is_placeholder(node: Query) -> bool:
    """Whether a node itself, apart from its operands, is a placeholder."""
    return (isinstance(node, Entity) and node.name is PLACEHOLDER) or (
        isinstance(node, Project) and node.relation is PLACEHOLDER
    )


def num_symbols(structure: Query) -> int:
    """Count the placeholders of a structure."""
    return sum(map(is_placeholder, nodes(structure)))


def name_of(structure: Query) -> str:
    """Return the paper's name of a structure, else its logic text."""
    return _NAMES.get(structure) or str(structure)


def has_negation(query: Query) -> bool:
    """Whether the query contains a complement."""
    return any(isinstance(node, Not) for node in nodes(query))


def is_monotone(query: Query, is_negated: bool = False) -> bool:
    """Whether more edges can only add answers: no step is under an odd number of complements.

    2u-DM is monotone, for example, although it contains complements.
    """
    if isinstance(query, Project) and is_negated:
        return False
    is_negated ^= isinstance(query, Not)
    return all(is_monotone(operand, is_negated) for operand in query.operands)


# ---- the release's nested tuples --------------------------------------------------------------
#
# (entity, (relation, ...)) is a path; (query, query) an intersection; (query, query, (-1,)) a
# union; -2 among the relations a complement. Structures have the letters e, r, u, n instead.

_UNION, _COMPLEMENT = (-1, "u"), (-2, "n")


def from_tuple(nested: Any) -> Query:
    """Read the release's nested tuples, of ids or of the letters e, r, u and n."""
    try:
        return _from_tuple(nested, 0)
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidArgument(f"{nested!r} is not a query of the BetaE release.") from error


def _from_tuple(nested: Any, depth: int) -> Query:
    if depth > MAX_DEPTH:
        raise too_deep()
    if not isinstance(nested, tuple):
        return Entity(PLACEHOLDER if nested == "e" else int(nested))
    *first, last = nested
    # `last` is a branch, such as (e, (r,)) or a bare entity, unless it holds the steps of a path.
    if not isinstance(last, tuple) or any(isinstance(step, tuple) for step in last):
        return And(*map(_from_tuple, nested, repeat(depth + 1)))
    if last[0] in _UNION:
        return Or(*map(_from_tuple, first, repeat(depth + 1)))
    (start,) = first
    query = _from_tuple(start, depth + len(last))
    for step in last:
        if step in _COMPLEMENT:
            query = Not(query)
        else:
            query = Project(query, PLACEHOLDER if step == "r" else int(step))
    return query


def to_tuple(query: Query) -> Any:
    """Write a query of ids, or a structure, as the release's nested tuples."""
    if query.has_conditions:
        raise UnsupportedQuery("The tuples of the BetaE release have no conditions.")
    is_structure = any(map(is_placeholder, nodes(query)))
    steps: list[Any] = []
    while isinstance(query, Project | Not):
        if isinstance(query, Not):
            steps.append("n" if is_structure else -2)
        else:
            steps.append("r" if query.relation is PLACEHOLDER else _id(query.relation))
        query = query.operand
    if isinstance(query, Entity):
        start: Any = "e" if query.name is PLACEHOLDER else _id(query.name)
    else:
        start = tuple(map(to_tuple, query.operands))
        if isinstance(query, Or):
            start += (("u" if is_structure else -1,),)
    return (start, tuple(reversed(steps))) if steps else start
