"""TSV and CSV: rows of names between delimiters.

polars reads fast and only notices that something is wrong; `_explain` then reads the file again,
slowly, to find the line.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import polars as pl

from betae.errors import InvalidArgument, TripleError
from betae.graph.columns import COLUMNS, are_numbers, find_columns, may_be_header, places_of
from betae.graph.names import printable
from betae.graph.source import DEFAULT, EMPTY, Reading, Source

SEPARATORS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
SPOKEN = {"\t": "tabs", ",": "commas", " ": "spaces", ";": "semicolons"}
Schema = Mapping[Any, pl.DataType]  # column -> type; polars is stricter about keys than we are
BY_COMMAND_LINE = {"\t": "tab", " ": "' '", ";": "';'", "|": "'|'", ",": ","}
csv.field_size_limit(2**31 - 1)  # it only finds mistakes: polars, which reads, has no limit


@dataclass(frozen=True)
class Rows:
    """The rows of a file, and what was not taken for one."""

    frame: pl.DataFrame
    header: tuple[str, ...] | None  # the cells of the line that was taken for a header
    doubtful: tuple[str, ...] | None  # those of a first row that may have been meant for one
    blank_lines: int
    comments: int


@dataclass(frozen=True)
class _Layout:
    """How a file is laid out, as its first lines tell."""

    width: int
    places: tuple[int, ...]  # of the columns asked for
    header: tuple[str, ...] | None
    skip: int  # lines before the first row
    blank: int  # of those, blank ones
    doubtful: tuple[str, ...] | None = None


class _Dialect:
    """What separates and quotes names in a file."""

    def __init__(self, source: Source, reading: Reading):
        self.separator = reading.delimiter or SEPARATORS[source.suffix]
        self.is_quoted = source.suffix == ".csv"
        self.comment = reading.comment
        self.spoken = SPOKEN.get(self.separator, repr(self.separator))

    def is_comment(self, line: str) -> bool:
        return self.comment is not None and line.startswith(self.comment)

    def is_blank(self, line: str) -> bool:
        """Tell whether a line is no row; three names of blanks are one."""
        cells = line.strip("\r\n").split(self.separator)
        return not line.strip() and (len(cells) == 1 or "" in cells)

    def reader(self, lines: Iterable[str], strict: bool = False) -> Any:
        return csv.reader(
            lines,
            delimiter=self.separator,
            quoting=csv.QUOTE_MINIMAL if self.is_quoted else csv.QUOTE_NONE,
            strict=strict,
        )


def read_delimited(source: Source, schema: Schema, reading: Reading = DEFAULT) -> Rows:
    """Read the columns of `schema`; triples may have a header, and other columns beside."""
    file = _File(source, schema, reading)
    layout = file.layout
    with file.explaining():
        frame = pl.read_csv(
            source.whole(),
            columns=list(file.names) if len(file.names) < layout.width else None,
            **file.options,
        )
    if not len(frame):
        raise TripleError(EMPTY, source.path)
    frame, blank_lines = file.without_blank_lines(frame)
    return Rows(
        frame, layout.header, layout.doubtful, layout.blank + blank_lines, file.count_comments()
    )


def scan_delimited(
    source: Source, schema: Schema, reading: Reading = DEFAULT, rows_at_once: int = 2**20
) -> Iterator[Rows]:
    """Read as `read_delimited` does, in pieces that tell each what it skipped; no file is unzipped.

    What is known of the file as a whole comes with the first piece.
    """
    file = _File(source, schema, reading)
    layout, comments = file.layout, file.count_comments()
    skipped = Rows(pl.DataFrame(), layout.header, layout.doubtful, layout.blank, comments)
    num_rows = 0
    with file.explaining():
        scanned = pl.scan_csv(source.place, **file.options).select(list(file.names))
        for frame in scanned.collect_batches(chunk_size=rows_at_once):
            num_rows += len(frame)
            frame, blank_lines = file.without_blank_lines(frame)
            yield replace(skipped, frame=frame, blank_lines=skipped.blank_lines + blank_lines)
            skipped = Rows(pl.DataFrame(), None, None, 0, 0)
    if not num_rows:
        raise TripleError(EMPTY, source.path)


class _File:
    """A file, its layout, and how polars reads it."""

    def __init__(self, source: Source, schema: Schema, reading: Reading):
        self.source, self.schema = source, schema
        self.dialect = _Dialect(source, reading)
        self.layout = _layout(source, self.dialect, tuple(schema), reading)
        cells = [f"column_{place + 1}" for place in range(self.layout.width)]
        self.names = {  # of the cells that are asked for -> of their columns
            cells[place]: column for place, column in zip(self.layout.places, schema, strict=True)
        }
        types = {
            cell: schema[self.names[cell]] if cell in self.names else pl.String() for cell in cells
        }
        if self.dialect.is_quoted:  # categories would be read up to a quote that closes too early
            types = dict.fromkeys(cells, pl.String())
        self.options: dict[str, Any] = {
            "separator": self.dialect.separator,
            "quote_char": '"' if self.dialect.is_quoted else None,
            "schema": types,
            "has_header": False,
            "skip_lines": self.layout.skip,
            "comment_prefix": self.dialect.comment,
            "glob": False,
        }

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Find the line that polars could not read."""
        try:
            yield
        except (pl.exceptions.PolarsError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            fault = _explain(self.source, self.dialect, tuple(self.schema), self.layout)
            raise fault or TripleError(str(error).splitlines()[0], self.source.path) from error

    def without_blank_lines(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """Return the columns asked for, and how many lines were blank; raise for an empty name."""
        frame = frame.rename(self.names).select(list(self.schema)).cast(dict(self.schema))
        has_gap = pl.any_horizontal(pl.all().is_null() | (pl.all() == ""))
        gaps = frame.filter(has_gap).cast(pl.String)
        if not len(gaps):
            return frame, 0
        blank = pl.all_horizontal(pl.all().fill_null("").str.strip_chars() == "")
        if not gaps.select(blank.all()).item():
            fault = _explain(self.source, self.dialect, tuple(self.schema), self.layout)
            raise fault or TripleError("a name is empty.", self.source.path)
        return frame.filter(~has_gap), len(gaps)

    def count_comments(self) -> int:
        """Count the lines that are comments."""
        return _count_comments(self.source, self.dialect) if self.dialect.comment else 0


def _layout(
    source: Source, dialect: _Dialect, columns: tuple[str, ...], reading: Reading
) -> _Layout:
    """Look at the first line that is neither blank nor a comment: it may be a header."""
    with closing(source.lines()) as lines:
        blank, comments, line = _to_content(lines, dialect)
        if line is None:
            raise TripleError(EMPTY, source.path)
        reader = dialect.reader(chain([line], lines))
        try:
            cells = tuple(cell.strip("\r\n") for cell in next(reader))
        except csv.Error as error:
            raise TripleError(_spoken(error), source.path, blank + comments + 1) from error
        skip, asked = blank + comments, reading.columns if columns == COLUMNS else None
        places = find_columns(cells) if columns == COLUMNS else None
        if asked is not None:
            try:
                places = places_of(asked, cells)
            except InvalidArgument as error:
                raise TripleError(str(error), source.path) from error
            if are_numbers(asked):
                return _Layout(len(cells), places, None, skip, blank)
        if places is None:
            is_doubtful = columns == COLUMNS and may_be_header(cells)
            in_order = tuple(range(len(columns)))
            doubtful = cells if is_doubtful else None
            return _Layout(len(columns), in_order, None, skip, blank, doubtful)
        more_blank, more_comments, _ = _to_content(lines, dialect)
        skip += reader.line_num + more_blank + more_comments
        return _Layout(len(cells), places, cells, skip, blank + more_blank)


def _to_content(lines: Iterable[str], dialect: _Dialect) -> tuple[int, int, str | None]:
    """Return how many blank lines and comments come next, and the line after them, if any."""
    blank = comments = 0
    for line in lines:
        if dialect.is_comment(line):
            comments += 1
        elif dialect.is_blank(line):
            blank += 1
        else:
            return blank, comments, line
    return blank, comments, None


def _count_comments(source: Source, dialect: _Dialect) -> int:
    """Count the lines that are comments; a line within a quoted name is none."""
    count, within_quotes = 0, False
    for line in source.lines():
        if not within_quotes and dialect.is_comment(line):
            count += 1
        elif dialect.is_quoted and line.count('"') % 2:
            within_quotes = not within_quotes
    return count


def line_of_row(path: Path, row: int) -> int:
    """Return the line (from 1) of data row `row` (from 0) in a TSV file without a header."""
    content = (number for number, line in enumerate(Source.of(path).lines(), 1) if line.strip())
    return next(islice(content, row, None))


def _explain(
    source: Source, dialect: _Dialect, columns: tuple[str, ...], layout: _Layout
) -> TripleError | None:
    """Find the first line that the fast reader cannot have accepted."""
    with closing(source.lines()) as lines:
        reader = dialect.reader(
            (line if not dialect.is_comment(line) else "\n" for line in lines), strict=True
        )
        begins = 1  # the line of the row that is read
        try:
            for row in reader:
                begins, ends = reader.line_num + 1, reader.line_num
                if not row or (len(row) == 1 and not row[0].strip()):
                    continue
                if fault := _fault_in_row(row, dialect, columns, layout):
                    return TripleError(fault, source.path, ends)
        except TripleError as error:
            return error
        except csv.Error as error:
            return TripleError(_spoken(error), source.path, begins)
    return None


def _spoken(error: csv.Error) -> str:
    """Say what the csv module means."""
    if "unexpected end of data" in str(error):
        return "a name begins with a quote that is never closed."
    if "expected after" in str(error):
        return (
            "something stands between a closing quote and the end of the name. Within a quoted "
            'name, write a quote twice: "say ""hi""".'
        )
    if "new-line character" in str(error):
        return (
            "a lone carriage return, as old Macs end lines. Convert it: tr '\\r' '\\n' < OLD > NEW"
        )
    return f"{error}."


def _fault_in_row(
    row: list[str], dialect: _Dialect, columns: tuple[str, ...], layout: _Layout
) -> str | None:
    if len(row) != layout.width:
        names = layout.header or columns
        hint = ""
        if row[0].startswith("#") and dialect.comment is None:
            hint = " Lines that begin with # are skipped with --comment '#'."
        elif len(row) > layout.width and columns == COLUMNS:
            hint = " With --columns head=1,relation=2,tail=3 others are left out."
        elif len(row) == 1 and columns == COLUMNS:
            hint = _hint_of_delimiter(row[0], layout.width)
        return (
            f"{len(row)} column{'s' if len(row) > 1 else ''}, {layout.width} expected "
            f"({printable(', '.join(names))} separated by {dialect.spoken}).{hint}"
        )
    for place, column in zip(layout.places, columns, strict=True):
        if not row[place].strip("\r"):
            return f"the {column} is empty."
    if sum(name.count('"') for name in row) % 2 and dialect.is_quoted:
        return "a stray double quote."
    return None


def _hint_of_delimiter(line: str, width: int) -> str:
    """Say which delimiter would make so many columns of a line, if any."""
    for delimiter, word in BY_COMMAND_LINE.items():
        if line.count(delimiter) == width - 1:
            spoken = SPOKEN.get(delimiter, word)
            return f" It has {spoken} instead: --delimiter {word}."
    return ""
