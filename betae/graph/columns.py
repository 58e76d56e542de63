"""Which column is which: head, relation and tail by the names that people give them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from betae.errors import InvalidArgument

COLUMNS = ("head", "relation", "tail")
Columns = Mapping[str, str | int]  # head, relation, tail -> the name or number (from 1) of a column

ROLES = {
    "head": {"head", "subject", "subj", "source", "src", "from", "start"},
    "relation": {"relation", "rel", "predicate", "pred", "property", "relationship", "edge"},
    "tail": {"tail", "object", "obj", "target", "tgt", "to", "end"},
}
ROLE_OF = {word: role for role, words in ROLES.items() for word in words} | {"type": "relation"}
LETTERS = ({"h": "head", "r": "relation", "t": "tail"}, {"s": "head", "p": "relation", "o": "tail"})
FILLERS = {"entity", "node", "id", "name", "type", "label", "uri", "iri"}  # from_entity, rel_type


def find_columns(cells: Sequence[str]) -> tuple[int, int, int] | None:
    """Return where head, relation and tail stand in a header, or None if it is not one.

    Each of the three must be named by exactly one cell. Single letters count only as the whole of
    h, r, t or s, p, o, since a graph of letters may well begin with a, r, t.
    """
    words = [_word(cell) for cell in cells]
    for letters in LETTERS:
        if sorted(word for word in words if word in letters) == sorted(letters):
            return _places([letters.get(word) for word in words])
    return _places([ROLE_OF.get(word) for word in words])


def may_be_header(cells: Sequence[str]) -> bool:
    """Tell whether a row that is no header could be meant for one: it names some of the columns."""
    roles = [ROLE_OF.get(word) if word != "type" else None for word in map(_word, cells)]
    return "relation" in roles or len(set(roles) - {None}) > 1


def _word(cell: str) -> str:
    """Return the word of a column's name that tells what it holds: `from` of `from_entity`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cell)  # headEntity
    words = [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]
    telling = [word for word in words if word not in FILLERS] or words
    return telling[0] if len(telling) == 1 else ""


def _places(roles: Sequence[str | None]) -> tuple[int, int, int] | None:
    if any(roles.count(column) != 1 for column in COLUMNS):
        return None
    head, relation, tail = (roles.index(column) for column in COLUMNS)
    return head, relation, tail


def places_of(columns: Columns, cells: Sequence[str]) -> tuple[int, int, int]:
    """Return where the columns that were asked for stand among the cells of the first row."""
    places = []
    for role in COLUMNS:
        asked = columns[role]
        if isinstance(asked, int):
            if not 1 <= asked <= len(cells):
                raise InvalidArgument(f"There is no column {asked}: there are {len(cells)}.")
            places.append(asked - 1)
        elif cells.count(asked) == 1:
            places.append(cells.index(asked))
        else:
            there = "several columns" if asked in cells else "no column"
            raise InvalidArgument(
                f"There is {there} {asked!r} among {', '.join(map(repr, cells))}."
            )
    head, relation, tail = places
    return head, relation, tail


def are_numbers(columns: Columns) -> bool:
    """Tell whether columns are given by number: then the first line is a row like any other."""
    return all(isinstance(column, int) for column in columns.values())


def check_columns(columns: Columns) -> None:
    """Raise unless head, relation and tail each have a column, all by name or all by number."""
    kinds = {isinstance(column, int) for column in columns.values()}
    if columns.keys() != set(COLUMNS) or len(kinds) != 1 or len(set(columns.values())) != 3:
        raise InvalidArgument(
            "Columns are given as head=..., relation=..., tail=...: three different ones, all by "
            f"name or all by number, not {dict(columns)}."
        )


def parse_columns(text: str) -> Columns:
    """Read `head=from,relation=type,tail=to`, or the same with numbers (from 1)."""
    pairs = [piece.partition("=")[::2] for piece in text.split(",")]
    columns = {
        role.strip(): int(name) if name.strip().isdecimal() else name.strip()
        for role, name in pairs
    }
    check_columns(columns)
    return columns
