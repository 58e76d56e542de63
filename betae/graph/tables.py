"""Node tables: a row for each entity, a column for each property.

The first line of a TSV or CSV file names the columns. The column `id`, or the first one, holds the
names of the entities; `name` and `label` are labels, `type` holds classes; any other column is a
property. Empty cells say nothing. The content types a column of text: where most cells are numbers,
dates or booleans they are read as such, and the others are kept as text, with a note that names the
first of them.

Headers may be those of Neo4j: `personId:ID(Person)`, `born:int`, `:LABEL`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from betae.errors import TripleError
from betae.graph.delimited import ROWS_PER_BATCH, SEPARATORS, Table
from betae.graph.literals import BOOLEAN, NAME, RDF_TYPE, STRING, TIME, XSD
from betae.graph.source import EMPTY, Reading, ReadReport, Source

INTEGER, DOUBLE = XSD + "integer", XSD + "double"
DATE, DATE_TIME = XSD + "date", XSD + "dateTime"
DATATYPES = {  # of cells of text; the first pattern that fits counts
    INTEGER: r"^[+-]?[0-9]+$",
    XSD + "decimal": r"^[+-]?([0-9]+\.[0-9]*|\.[0-9]+)$",
    DOUBLE: r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+$",
    BOOLEAN: r"^(true|false)$",
    DATE: r"^[0-9]{4}-[0-9][0-9]-[0-9][0-9]$",
    DATE_TIME: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?$",
    TIME: r"^[0-9][0-9]:[0-9][0-9]:[0-9][0-9]$",
}
KINDS = {  # what a cell of a column is called in a note -> the datatypes
    "a number": (INTEGER, XSD + "decimal", DOUBLE),
    "true or false": (BOOLEAN,),
    "a date such as 1975-01-31": (DATE, DATE_TIME),
    "a time such as 12:30:00": (TIME,),
}
DATE_KIND = KINDS["a date such as 1975-01-31"]
ANY_DATE = (  # in any form, with or without a time: 31/01/1975, 1/31/75, 31.1.1975, Jan 31, 1975
    r"^([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{4}|[0-9]{2})|"
    r"([0-9]{1,2}\.? )?(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
    r"( [0-9]{1,2}(st|nd|rd|th)?)?,? [0-9]{4})\b"
)
POLARS_TYPES: dict[Any, str] = {
    pl.Boolean: BOOLEAN,
    pl.Date: DATE,
    pl.Time: TIME,
    pl.String: STRING,
    pl.Categorical: STRING,
    pl.Enum: STRING,
    pl.Null: STRING,
}
Datatypes = tuple[str, ...]
TEXT: Datatypes = ()
NUMBER = KINDS["a number"]
NEO4J_TYPES: dict[str, Datatypes] = {
    **dict.fromkeys(("int", "long", "short", "byte", "float", "double"), NUMBER),
    **dict.fromkeys(("string", "char", "point", "duration"), TEXT),
    **dict.fromkeys(("date", "datetime", "localdatetime"), (DATE, DATE_TIME)),
    **dict.fromkeys(("time", "localtime"), (TIME,)),
    "boolean": (BOOLEAN,),
}
NEO4J_ROLES = ("ID", "LABEL", "START_ID", "END_ID", "TYPE", "IGNORE")
NEO4J_HEADER = re.compile(
    r"(?P<name>.*):(?P<kind>\w+)(?P<many>\[\])?(?:\((?P<space>[^)]*)\))?(?:\{.*\})?"
)
SPACE = "::"  # between the space of an id and the id, in a name


@dataclass(frozen=True)
class Column:
    """A column of a table: its role, or the property it holds."""

    name: str  # of the property
    role: str = "PROPERTY"  # or ID, LABEL, START_ID, END_ID, TYPE, IGNORE
    datatypes: Datatypes | None = None  # None: by content
    is_list: bool = False  # of values with `;` between them
    space: str = ""  # of an id


def parse_header(cells: Sequence[str]) -> list[Column]:
    """Read the first line of a table, with or without the types of Neo4j."""
    columns = []
    for cell in cells:
        found = NEO4J_HEADER.fullmatch(cell)
        kind = found["kind"] if found else ""
        if found and kind.upper() in NEO4J_ROLES:
            columns.append(Column(found["name"], kind.upper(), space=found["space"] or ""))
        elif found and kind.lower() in NEO4J_TYPES:
            datatypes = NEO4J_TYPES[kind.lower()]
            columns.append(Column(found["name"], "PROPERTY", datatypes, bool(found["many"])))
        else:
            columns.append(Column(cell, "LABEL" if cell.lower() == "type" else "PROPERTY"))
    return columns


def with_id(columns: list[Column], file: Path | str) -> list[Column]:
    """Give a node table its column of names: the one of Neo4j, `id`, or the first."""
    of_neo4j = [each for each in columns if each.role == "ID"]
    if len(of_neo4j) > 1:
        raise TripleError("several columns are an :ID; betae reads tables with one.", file, 1)
    if of_neo4j:
        return columns
    by_name = [i for i, each in enumerate(columns) if each.name.lower() == "id"]
    key = by_name[0] if by_name else 0
    return [Column(each.name, "ID") if i == key else each for i, each in enumerate(columns)]


# ---- reading ------------------------------------------------------------------------------------


def read_nodes(source: Source, report: ReadReport, reading: Reading) -> Iterator[pl.DataFrame]:
    """Yield the literals of a node table in batches, by name; the report gets notes."""
    if source.suffix == ".parquet":
        num_rows = 0
        with scanning_parquet(source) as scanned:
            size = ROWS_PER_BATCH // len(scanned.collect_schema())  # each cell becomes a row
            for batch in scanned.collect_batches(chunk_size=max(1, size)):
                yield nodes_of_frame(batch, source.path, num_rows)
                num_rows += len(batch)
        if not num_rows:
            raise TripleError(EMPTY, source.path)
    elif source.suffix in SEPARATORS:
        yield from _read_text(source, report, reading)
    else:
        known = ", ".join(SEPARATORS)
        raise TripleError(
            f"node tables come as .parquet, or as {known}, also with .gz.", source.path
        )


@contextmanager
def scanning_parquet(source: Source) -> Iterator[pl.LazyFrame]:
    """Yield a Parquet file as a lazy frame; errors name the file."""
    try:
        yield pl.scan_parquet(source.whole(), glob=False, hive_partitioning=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        why = str(error).splitlines()[0]
        raise TripleError(f"not a valid Parquet file ({why}).", source.path) from error


def _read_text(source: Source, report: ReadReport, reading: Reading) -> Iterator[pl.DataFrame]:
    """Read a table twice: for the types of its columns, and for its cells."""
    table = Table(source, reading)
    columns = with_id(parse_header(table.header), source.path)
    names = [column.name for column in columns if column.role == "PROPERTY"]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise TripleError(f"two columns are called {twice!r}.", source.path, 1)
    table.require(id_column(columns))
    kinds = _kinds(table, columns, report)
    for number, column in enumerate(columns):
        if column.role == "PROPERTY" and kinds[number]:
            _note_others(table, number, column, kinds[number], report)
    for batch in table.batches():
        yield _literals(batch, columns, kinds)


def id_column(columns: Sequence[Column]) -> int:
    """Return the number of the column of names."""
    return next(number for number, column in enumerate(columns) if column.role == "ID")


def _kinds(table: Table, columns: Sequence[Column], report: ReadReport) -> list[Datatypes]:
    """Return the datatypes of each column: as declared, or those of most of its cells."""
    counts = [dict.fromkeys(KINDS.values(), 0) for _ in columns]
    sizes, dates = [0] * len(columns), [0] * len(columns)
    for batch in table.batches():
        for number, column in enumerate(columns):
            cells = _values(batch.to_series(number), column)
            sizes[number] += len(cells)
            for datatypes in counts[number]:
                counts[number][datatypes] += int(_fits(cells, datatypes).sum())
            dates[number] += int(cells.str.contains(ANY_DATE).sum())
    found: list[Datatypes] = []
    for number, (column, count, size) in enumerate(zip(columns, counts, sizes, strict=True)):
        most = max(count, key=count.__getitem__)
        by_content = most if 2 * count[most] > size else TEXT
        found.append(by_content if column.datatypes is None else column.datatypes)
        if column.role == "PROPERTY" and column.datatypes is None and by_content == TEXT:
            likely = DATE_KIND if 2 * dates[number] > size else most
            if 4 * count[most] > size or likely == DATE_KIND:
                note = _note_of_text(table, number, column, likely)
                report.notes.append(note.format(f"{count[likely]:,} of {size:,} cells"))
    return found


def _note_of_text(table: Table, number: int, column: Column, datatypes: Datatypes) -> str:
    """Return a note on a column of text that may be meant as numbers or dates; {} is how many."""
    pattern = matcher(datatypes)
    line, text = table.first_line(number, lambda cell: bool(cell) and not pattern.search(cell))
    kind = next(name for name, each in KINDS.items() if each == datatypes)
    place = f"{table.source.path}, line {line}: {column.name} is {text!r}".replace("{", "{{")
    return f"{place.replace('}', '}}')}, and only {{}} are {kind}: all are kept as text."


def _values(cells: pl.Series, column: Column) -> pl.Series:
    """Return the values in the cells of a column, without empty ones."""
    values = cells.str.split(";").explode() if column.is_list else cells
    return values.filter(values != "")


def matcher(datatypes: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of text of some datatypes, for Python: there, $ also fits before a \\n."""
    return re.compile("|".join(DATATYPES[each] for each in datatypes).replace("$", r"\Z"))


def _fits(cells: pl.Series, datatypes: Datatypes) -> pl.Series:
    """Mask of the cells that are of one of some datatypes."""
    return cells.str.contains("|".join(DATATYPES[each] for each in datatypes))


def _note_others(
    table: Table, number: int, column: Column, datatypes: Datatypes, report: ReadReport
) -> None:
    """Note the cells of a typed column that are not of its type."""
    columns = (_values(batch.to_series(number), column) for batch in table.batches())
    count = sum(int((~_fits(cells, datatypes)).sum()) for cells in columns)
    if not count:
        return
    pattern = matcher(datatypes)

    def is_other(cell: str) -> bool:
        values = cell.split(";") if column.is_list else [cell]
        return any(each and not pattern.search(each) for each in values)

    line, text = table.first_line(number, is_other)
    kind = next(name for name, each in KINDS.items() if set(datatypes) <= set(each))
    others = f", like {count - 1:,} more cells" if count > 1 else ""
    report.notes.append(
        f"{table.source.path}, line {line}: {column.name} is {text!r}{others}, not {kind}: kept as "
        "text."
    )


def nodes_of_frame(frame: pl.DataFrame, file: Path | str, first_row: int = 0) -> pl.DataFrame:
    """Return the literals of a node table in memory, whose columns have types already."""
    columns = with_id(parse_header(frame.columns), file)
    kinds: list[Datatypes] = []
    texts: list[pl.Series] = []
    for series in frame:
        series = series.fill_nan(None) if series.dtype.is_float() else series
        datatype = next((one for kind, one in POLARS_TYPES.items() if series.dtype == kind), None)
        if series.dtype.is_integer() or series.dtype.is_float():
            datatype = INTEGER if series.dtype.is_integer() else DOUBLE
        elif series.dtype.is_decimal():
            datatype = XSD + "decimal"
        elif isinstance(series.dtype, pl.Datetime):
            datatype, series = DATE_TIME, series.dt.to_string("iso:strict")
        if datatype is None:
            raise TripleError(
                f"the column {series.name!r} holds {series.dtype}: numbers, dates, times, booleans "
                "and text are read.",
                file,
            )
        texts.append(series.cast(pl.String))
        kinds.append(TEXT if datatype == STRING else (datatype,))
    cells = pl.DataFrame(texts)
    is_gap = cells.to_series(id_column(columns)).fill_null("") == ""
    if is_gap.any():
        row = first_row + int(is_gap.arg_max() or 0) + 1
        raise TripleError("a name is empty.", file, row, unit="row")
    return _literals(cells, columns, kinds, are_typed=True)


def _literals(
    cells: pl.DataFrame,
    columns: Sequence[Column],
    kinds: Sequence[Datatypes],
    are_typed: bool = False,
) -> pl.DataFrame:
    """Return the literals of rows of text, by name.

    Of typed columns, cells that do not fit are text, unless all are known to.
    """
    key = columns[id_column(columns)]
    names = in_space(cells.to_series(id_column(columns)), key.space)
    found = [_rows(names, None, pl.lit(None, pl.String), NAME)]  # says that there is the entity
    if key.space and not any(column.role == "LABEL" for column in columns):
        found.append(_rows(names, RDF_TYPE, pl.lit(key.space), NAME))
    for number, (column, datatypes) in enumerate(zip(columns, kinds, strict=True)):
        text = cells.to_series(number)
        if column.role == "LABEL":
            found.append(_rows(names, RDF_TYPE, text.str.split(";"), NAME))
        elif column.role == "PROPERTY":
            datatype: pl.Expr = pl.lit(datatypes[0] if are_typed and datatypes else STRING)
            for each in () if are_typed else reversed(datatypes):
                fits = pl.col("text").str.contains(DATATYPES[each])
                datatype = pl.when(fits).then(pl.lit(each)).otherwise(datatype)
            values = text.str.split(";") if column.is_list else text
            found.append(_rows(names, column.name, values, datatype))
    return pl.concat(found)


def _rows(
    names: pl.Series, name: str | None, texts: pl.Series | pl.Expr, datatype: pl.Expr | str
) -> pl.DataFrame:
    """Return literals of one property; empty cells are left out, lists have a row for each item."""
    frame = pl.DataFrame({"subject": names}).with_columns(texts.alias("text"))
    if isinstance(frame.schema["text"], pl.List):
        frame = frame.explode("text")
    if name is not None:
        frame = frame.filter(pl.col("text").fill_null("") != "")
    return frame.select(
        "subject",
        pl.lit(name, pl.String).alias("property"),
        "text",
        (pl.lit(datatype) if isinstance(datatype, str) else datatype).alias("datatype"),
        pl.lit("").alias("language"),
    )


def in_space(ids: pl.Series, space: str) -> pl.Series:
    """Return the names of ids in a space of Neo4j, within which they are unique."""
    return (space + SPACE + ids) if space else ids
