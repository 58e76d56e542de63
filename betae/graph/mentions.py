"""Notes on nodes: those that have several rows, and those of edges that no table of nodes has.

A note names the lines of one node; the files are read again to find them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl

from betae.graph.delimited import SEPARATORS, Table
from betae.graph.neo4j import is_neo4j
from betae.graph.objects import JSON_LINES
from betae.graph.source import Reading, ReadReport, Source, TripleSource, find_files, suffix_of
from betae.graph.tables import SPACE, id_column, in_space, parse_header, with_id
from betae.remote import is_address


class Found(NamedTuple):
    """How many nodes something is said of, and one of them."""

    number: int
    example: str


def note_nodes(
    repeated: Found,
    missing: Found,
    tables: Sequence[TripleSource],
    sources: Sequence[TripleSource],
    reading: Reading,
    report: ReadReport,
) -> None:
    """Note the nodes with several rows, and those of edges in `sources` that have none."""
    if repeated.number:
        have = "1 entity has" if repeated.number == 1 else f"{repeated.number:,} entities have"
        rows = _rows_about(repeated.example, tables, sources, reading)
        report.notes.append(
            f"{have} several rows in node tables, whose values were joined; one is "
            f"{repeated.example!r}{_listed([*islice(rows, 2)])}."
        )
    if missing.number:
        are = (
            "1 entity of edges is"
            if missing.number == 1
            else (f"{missing.number:,} entities of edges are")
        )
        lines = _lines_with(missing.example, sources)
        report.notes.append(
            f"{are} in no node table; one is {missing.example!r}{_listed([*islice(lines, 1)])}."
        )


def _listed(places: Sequence[str]) -> str:
    return f" ({'; '.join(places)})" if places else ""


def _rows_about(
    name: str, tables: Sequence[TripleSource], sources: Sequence[TripleSource], reading: Reading
) -> Iterator[str]:
    """Yield the places of the rows of nodes that have a name."""
    for file in _files(tables):
        yield from _rows_of(Source.of(file), name, reading)
    for file in _files(sources):
        source = Source.of(file)
        if source.suffix in JSON_LINES or (source.suffix in SEPARATORS and is_neo4j(source)):
            yield from _rows_of(source, name, reading)


def _rows_of(source: Source, name: str, reading: Reading) -> Iterator[str]:
    if source.suffix in SEPARATORS:
        table = Table(source, reading)
        columns = parse_header(table.header)
        if not any(column.role in ("START_ID", "END_ID") for column in columns):
            key = id_column(columns := with_id(columns, source.path))
            cell = name.removeprefix(columns[key].space + SPACE) if columns[key].space else name
            for line, _ in table.lines(key, cell.__eq__):
                yield f"{source.path}, line {line}"
    elif source.suffix in JSON_LINES:
        for line, text in enumerate(source.lines(), 1):
            if text.strip() and _id_of(msgspec.json.decode(text)) == name:
                yield f"{source.path}, line {line}"
    else:
        frame = pl.read_parquet(source.whole())
        key = id_column(columns := with_id(parse_header(frame.columns), source.path))
        names = in_space(frame.to_series(key).cast(pl.String), columns[key].space)
        for row in (names == name).arg_true().to_list():
            yield f"{source.path}, row {row + 1}"


def _id_of(value: dict[str, Any]) -> str | None:
    """Return the id of a node in JSON; an edge has none, or one of its own."""
    return None if {"head", "start", "source"} & {*value} else str(value.get("id"))


def _lines_with(name: str, sources: Sequence[TripleSource]) -> Iterator[str]:
    """Yield the lines of edges with a name in a cell."""
    cell = name.rpartition(SPACE)[2]
    for file in _files(sources):
        source = Source.of(file)
        for number, line in enumerate(source.lines() if source.suffix != ".parquet" else (), 1):
            if cell in re.split(r"[\t,;|\"]", line.rstrip("\r\n")):
                yield f"{file}, line {number}"


def _files(sources: Sequence[TripleSource]) -> Iterator[Path]:
    """Yield the local files among sources that have rows."""
    for given in sources:
        for file in find_files(given) if isinstance(given, str | Path) else ():
            known = (*SEPARATORS, *JSON_LINES, ".parquet")
            if not is_address(file) and suffix_of(Path(file)) in known:
                yield Path(file)
