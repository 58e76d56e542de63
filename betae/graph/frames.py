"""Tables of triples in memory: their columns, and what can be made into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from betae.errors import InvalidArgument, TripleError
from betae.graph.columns import COLUMNS, find_columns, places_of
from betae.graph.names import printable
from betae.graph.source import DEFAULT, EMPTY, Reading

if TYPE_CHECKING:
    from betae.graph.source import Source

IN_MEMORY = Path("the triples")  # as messages name them


def find_triples(
    columns: Sequence[str], name: Path | str, reading: Reading = DEFAULT
) -> tuple[tuple[int, int, int], tuple[str, ...] | None]:
    """Return where head, relation and tail stand, and the names they were found by."""
    if reading.columns is not None:
        try:
            return places_of(reading.columns, columns), None
        except InvalidArgument as error:
            raise TripleError(str(error), name) from error
    if found := find_columns(columns):
        return found, tuple(columns) if found != (0, 1, 2) else None
    if len(columns) == len(COLUMNS):
        return (0, 1, 2), None
    there = printable(", ".join(columns))
    raise TripleError(
        f"its columns are {there}; {', '.join(COLUMNS)} expected. "
        "Say which they are: --columns head=...,relation=...,tail=...",
        name,
    )


def triples_of_frame(
    frame: pl.DataFrame, name: Path | str, reading: Reading = DEFAULT, first_row: int = 0
) -> tuple[pl.DataFrame, tuple[str, ...] | None]:
    """Return head, relation and tail of a frame as strings, and the names they were found by.

    An error names the row, counted from that of the first one.
    """
    places, header = find_triples(frame.columns, name, reading)
    frame = frame.select(
        _names_of(frame.to_series(place), name).alias(column)
        for column, place in zip(COLUMNS, places, strict=True)
    )
    if not len(frame):
        raise TripleError(EMPTY, name)
    empty = frame.with_row_index("row").filter(
        pl.any_horizontal(pl.col(COLUMNS).is_null() | (pl.col(COLUMNS) == ""))
    )
    if len(empty):
        raise TripleError("a name is empty.", name, first_row + empty["row"][0] + 1, unit="row")
    return frame, header


def _names_of(column: pl.Series, file: Path | str) -> pl.Series:
    """Return the names in a column as strings; what is not a number is missing."""
    if column.dtype.is_float():
        column = column.fill_nan(None)
    try:
        if not column.dtype.is_nested():
            return column.cast(pl.String)
    except pl.exceptions.PolarsError:  # bytes that are not UTF-8, Python objects
        pass
    raise TripleError(
        f"the column {column.name!r} holds {column.dtype}, and not names or numbers.", file
    )


def as_frame(rows: Any) -> pl.DataFrame:
    """Make a polars frame of a polars or pandas frame, a NumPy array (n, 3) or rows of three."""
    if isinstance(rows, pl.LazyFrame):
        return rows.collect()
    if isinstance(rows, pl.DataFrame):
        return rows
    if _is_from("pandas", rows) and hasattr(rows, "columns"):
        table = rows.astype(object).where(rows.notna(), None)
        return pl.DataFrame({str(column): _strings(table[column]) for column in table.columns})
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2 or rows.shape[1] != len(COLUMNS):
            raise InvalidArgument(f"An array of triples is (n, 3), not {rows.shape}.")
        rows = rows.tolist()
    if isinstance(rows, str | bytes | dict) or not isinstance(rows, Iterable):
        raise InvalidArgument(
            "Triples come as files, rows of three, a polars or pandas frame, a NumPy array (n, 3) "
            f"or an rdflib graph, not as a {type(rows).__name__}."
        )
    listed = []
    for number, row in enumerate(rows, 1):
        names = () if isinstance(row, str) or not isinstance(row, Iterable) else tuple(row)
        if len(names) != len(COLUMNS):
            raise TripleError(
                f"{row!r} is not a head, a relation and a tail.", IN_MEMORY, number, unit="row"
            )
        listed.append(names)
    columns = zip(*listed, strict=True) if listed else [()] * len(COLUMNS)
    return pl.DataFrame(
        {f"column {i}": _strings(column) for i, column in enumerate(columns)},
        schema_overrides={f"column {i}": pl.String for i in range(len(COLUMNS))},
    )


def _strings(values: Iterable[Any]) -> list[str | None]:
    """Return names as strings: numbers as they are written, None for what is missing."""
    names = [None if value is None or value != value else str(value) for value in values]
    for number, name in enumerate(names, 1):
        try:
            (name or "").encode()
        except UnicodeEncodeError as error:
            raise TripleError(
                f"{name!r} is not valid Unicode.", IN_MEMORY, number, unit="row"
            ) from error
    return names


def rdflib_source(rows: Any) -> tuple[Source, dict[str, str]] | None:
    """Return an rdflib graph as N-Triples, and the prefixes that it uses; None for anything else.

    rdflib knows some thirty prefixes of its own accord: those that no IRI begins with are left out.
    """
    from betae.graph.source import Source

    if not _is_from("rdflib", rows) or not hasattr(rows, "namespaces"):
        return None
    iris = {str(term) for triple in rows.triples((None, None, None)) for term in triple}
    prefixes = {
        prefix: str(iri)
        for prefix, iri in rows.namespaces()
        if any(each.startswith(str(iri)) for each in iris)
    }
    content = rows.serialize(format="nt", encoding="utf-8")
    return Source(IN_MEMORY, ".nt", content), prefixes


def _is_from(package: str, rows: Any) -> bool:
    """Tell whether an object is of a class of a package, without importing the package."""
    return any(kind.__module__.split(".")[0] == package for kind in type(rows).__mro__)
