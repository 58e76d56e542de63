"""TSV and CSV: rows of names between delimiters.

polars reads fast but does not say which line is wrong; `_File.explain` then reads the file again,
slowly, to find it.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from betae.errors import TripleError
from betae.graph.names import printable
from betae.graph.source import (
    COLUMNS,
    DEFAULT,
    EMPTY,
    ENDS,
    GZIP_ERRORS,
    Column,
    Reading,
    ReadReport,
    Source,
)

ROWS_PER_BATCH = 2**20
SEPARATORS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
SEPARATOR_NAMES = {"\t": "tabs", " ": "spaces", ";": "semicolons", "|": "'|'", ",": "commas"}
Schema = Mapping[Any, pl.DataType]  # column -> type; polars is stricter about keys than we are
STRINGS: Schema = dict.fromkeys(COLUMNS, pl.String())
CSV_ERRORS = {  # words of the csv module -> what is wrong
    "unexpected end of data": "a name begins with a quote that is never closed.",
    "expected after": "text between a closing quote and the end of the name. Within a quoted name, "
    'write a quote twice: "say ""hi""".',
    "new-line character": "a lone carriage return ends a line. "
    "Convert it: tr '\\r' '\\n' < OLD > NEW",
}
csv.field_size_limit(2**31 - 1)  # polars has no limit, and csv only looks for mistakes


def read_delimited(
    source: Source, report: ReadReport, schema: Schema, reading: Reading = DEFAULT
) -> Iterator[pl.DataFrame]:
    """Yield the columns of `schema` in batches, without blank lines.

    Files of triples may have a header and other columns, or only head and tail.
    """
    file = _File(source, schema, reading)
    if file.header:
        report.headers[str(source.path)] = file.header
    if file.doubtful is not None:
        report.doubtful_rows[str(source.path)] = file.doubtful
    report.blank_lines_skipped += file.num_blank
    report.comments_skipped += file.num_comments()
    if file.columns == tuple(schema):
        yield from file.batches(schema, report)
        return
    relation = pl.lit(relation_of(source, reading, report)).alias("relation")
    ends = {column: schema[column] for column in ENDS}
    for batch in file.batches(ends, report):
        relations = relation.cast(schema["relation"])
        yield batch.select("head", relations, "tail")


def relation_of(source: Source, reading: Reading, report: ReadReport) -> str:
    """Return the relation of a file that has no column for it: as given, or by its name."""
    if reading.relation is not None:
        return reading.relation
    if source.content is not None or not (name := relation_of_file(source.path)):
        raise TripleError(
            "it has no column of relations. Name its relation: --relation", source.path
        )
    note = f"{source.path}: its edges are of the relation {name!r}, by the file's name."
    if printable(note) not in report.notes:
        report.notes.append(printable(note))
    return name


def relation_of_file(path: Path | str) -> str:
    """Return the relation that a file's name says: that of `edges-Gene_Binds_Gene.tsv.gz`."""
    name = Path(str(path).partition("?")[0]).name
    name = name[:-3] if name.lower().endswith(".gz") else name
    name = name[: -len(Path(name).suffix)] if Path(name).suffix else name
    return re.sub(r"^(edges?|rels?|relations?|relationships?)[-_]", "", name, flags=re.IGNORECASE)


class Table:
    """A TSV or CSV file whose first line names its columns; cells may be empty."""

    def __init__(self, source: Source, reading: Reading = DEFAULT):
        self.source, self._file = source, _File(source, None, reading)
        self.header: tuple[str, ...] = self._file.columns

    def require(self, column: int) -> None:
        """Raise an error for an empty cell in a column, when it is read."""
        self._file.required.append(column)

    def batches(self) -> Iterator[pl.DataFrame]:
        """Iterate over the rows in batches of text, null where empty; columns are by number."""
        schema = {f"column_{i}": pl.String() for i in range(len(self.header))}
        return self._file.batches(schema, ReadReport())

    def lines(self, column: int, is_wanted: Callable[[str], bool]) -> Iterator[tuple[int, str]]:
        """Iterate, slowly, over the lines with such a cell in a column, and the cell."""
        for number, row in self._file.rows():
            if number > self._file.num_skipped and is_wanted(row[column]):
                yield number, row[column]

    def first_line(self, column: int, is_wanted: Callable[[str], bool]) -> tuple[int, str]:
        """Return the number of the first line with such a cell in a column, and the cell."""
        return next(self.lines(column, is_wanted))


class _File:
    """A delimited file: its dialect, its layout as the first lines show it, options for polars.

    Without a schema, the first line is a header, and its cells are the columns.
    """

    def __init__(self, source: Source, schema: Schema | None, reading: Reading):
        self.source, self.columns = source, tuple(schema or ())
        self.has_triples, self.reading = self.columns == COLUMNS, reading
        self.separator = reading.delimiter or SEPARATORS[source.suffix]
        self.is_quoted = source.suffix == ".csv"
        self.comment = reading.comment
        self.header: tuple[str, ...] = ()
        self.doubtful: tuple[str, ...] | None = None  # a first row that may be meant as a header
        self.width = len(self.columns)
        self.indices: tuple[int, ...] = tuple(range(self.width))  # of the wanted columns
        self.num_skipped = self.num_blank = 0  # lines before the first row; blank ones of those
        self._read_first_lines()
        if schema is None:
            self.columns, self.width = self.header, len(self.header)
            self.indices = tuple(range(self.width))
        self.required = [*self.indices] if schema is not None else []  # must not be empty
        types: list[pl.DataType] = [pl.String()] * self.width
        if schema and not self.is_quoted:  # categories would be read up to a quote closed too early
            for i, column in zip(self.indices, self.columns, strict=True):
                types[i] = schema[column]
        self.options: dict[str, Any] = {
            "separator": self.separator,
            "quote_char": '"' if self.is_quoted else None,
            "schema": {f"column_{i}": kind for i, kind in enumerate(types, 1)},
            "has_header": False,
            "skip_lines": self.num_skipped,
            "comment_prefix": self.comment,
            "glob": False,
        }

    def _read_first_lines(self) -> None:
        """Find the layout by the first line that is neither blank nor a comment."""
        with closing(self.source.lines()) as lines:
            line = self._skip(lines)
            if line is None:
                raise TripleError(EMPTY, self.source.path)
            reader = self._reader(chain([line], lines))
            try:
                cells = tuple(cell.strip("\r\n") for cell in next(reader))
            except csv.Error as error:
                message = _explained(error)
                raise TripleError(message, self.source.path, self.num_skipped + 1) from error
            if self.has_triples:
                layout = layout_of(cells, self.reading, self.source.path)
                self.columns, self.indices = layout.columns, layout.indices
                self.width = layout.width
                if not layout.is_header:
                    self.doubtful = cells if layout.is_doubtful else None
                    return
            elif self.columns:
                return
            self.header = cells
            self.num_skipped += reader.line_num
            self._skip(lines)

    def _skip(self, lines: Iterable[str]) -> str | None:
        """Count blank lines and comments, and return the line after them."""
        for line in lines:
            is_comment = self._is_comment(line)
            if not is_comment and not self._is_blank(line):
                return line
            self.num_skipped += 1
            self.num_blank += not is_comment
        return None

    def _is_comment(self, line: str) -> bool:
        return self.comment is not None and line.startswith(self.comment)

    def _is_blank(self, line: str) -> bool:
        """Tell whether a line has no names; names that consist of spaces are names."""
        cells = line.strip("\r\n").split(self.separator)
        return not line.strip() and (len(cells) == 1 or "" in cells)

    def _reader(self, lines: Iterable[str], strict: bool = False) -> Any:
        return csv.reader(
            lines,
            delimiter=self.separator,
            quoting=csv.QUOTE_MINIMAL if self.is_quoted else csv.QUOTE_NONE,
            strict=strict,
        )

    def batches(self, schema: Schema, report: ReadReport) -> Iterator[pl.DataFrame]:
        """Yield the columns of `schema` in batches, without blank lines."""
        num_rows = 0
        columns = [
            pl.col(f"column_{i + 1}").alias(column)
            for i, column in zip(self.indices, schema, strict=True)
        ]
        try:
            scanned = pl.scan_csv(self.source.whole(), **self.options).select(columns)
            for frame in scanned.collect_batches(chunk_size=ROWS_PER_BATCH):
                num_rows += len(frame)
                kept = self.without_blank_lines(frame.cast(dict(schema)))
                report.blank_lines_skipped += len(frame) - len(kept)
                yield kept
        except (pl.exceptions.PolarsError, *GZIP_ERRORS) as error:
            fault = self.explain()
            raise fault or TripleError(str(error).splitlines()[0], self.source.path) from error
        if not num_rows:
            raise TripleError(EMPTY, self.source.path)

    def without_blank_lines(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Drop rows without any name; raise if only some of a row's names are empty."""
        places = [self.indices.index(i) for i in self.required]
        has_gap = pl.any_horizontal(
            pl.nth(place).is_null() | (pl.nth(place) == "") for place in places
        )
        gaps = frame.filter(has_gap).cast(pl.String)
        is_blank = pl.all_horizontal(pl.all().fill_null("").str.strip_chars() == "")
        if not gaps.select(is_blank.all()).item():
            raise self.explain() or TripleError("a name is empty.", self.source.path)
        return frame.filter(~has_gap) if len(gaps) else frame

    def num_comments(self) -> int:
        """Count comments; a line within a quoted name is none."""
        count, is_within_quotes = 0, False
        for line in self.source.lines() if self.comment else ():
            if not is_within_quotes and self._is_comment(line):
                count += 1
            elif self.is_quoted and line.count('"') % 2:
                is_within_quotes = not is_within_quotes
        return count

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Iterate, slowly, over rows and the numbers of their lines; raise if quotes are wrong."""
        with closing(self.source.lines()) as lines:
            reader = self._reader(
                ("\n" if self._is_comment(line) else line for line in lines), strict=True
            )
            first_line = 1  # of the row that is being read
            try:
                for row in reader:
                    first_line, last_line = reader.line_num + 1, reader.line_num
                    if not row or (len(row) == 1 and not row[0].strip()):
                        continue
                    yield last_line, row
            except csv.Error as error:
                raise TripleError(_explained(error), self.source.path, first_line) from error

    def explain(self) -> TripleError | None:
        """Find the first line that polars cannot have accepted."""
        try:
            for line, row in self.rows():
                if fault := self._fault(row):
                    return TripleError(fault, self.source.path, line)
        except TripleError as error:
            return error
        return None

    def _fault(self, row: list[str]) -> str | None:
        if len(row) != self.width:
            hint = ""
            if row[0].startswith("#") and self.comment is None:
                hint = " Lines that begin with # are skipped with --comment '#'."
            elif len(row) > self.width and self.has_triples:
                numbers = ",".join(str(i + 1) for i in range(self.width))
                hint = f" With --columns {numbers} others are left out."
            elif len(row) == 1 and self.has_triples:
                for delimiter, name in SEPARATOR_NAMES.items():
                    if row[0].count(delimiter) == self.width - 1:
                        word = "tab" if delimiter == "\t" else shlex.quote(delimiter)
                        hint = f" It has {name} instead: --delimiter {word}."
                        break
            separator = SEPARATOR_NAMES.get(self.separator, repr(self.separator))
            names = printable(", ".join(self.header or self.columns))
            return (
                f"{len(row)} column{'s' if len(row) > 1 else ''}, {self.width} expected "
                f"({names} separated by {separator}).{hint}"
            )
        for index, column in zip(self.indices, self.columns, strict=True):
            if index in self.required and not row[index].strip("\r"):
                return f"the {column} is empty."
        if sum(name.count('"') for name in row) % 2 and self.is_quoted:
            return "a stray double quote."
        return None


def _explained(error: csv.Error) -> str:
    return next((why for words, why in CSV_ERRORS.items() if words in str(error)), f"{error}.")


# ---- which column is which ----------------------------------------------------------------------

ROLES = {
    "head": {"head", "subject", "subj", "source", "src", "from", "start"},
    "relation": {"relation", "rel", "predicate", "pred", "property", "relationship", "edge"},
    "tail": {"tail", "object", "obj", "target", "tgt", "to", "end"},
}
ROLE_OF = {word: role for role, words in ROLES.items() for word in words} | {"type": "relation"}
LETTERS = ({"h": "head", "r": "relation", "t": "tail"}, {"s": "head", "p": "relation", "o": "tail"})
FILLERS = {"entity", "node", "id", "name", "type", "label", "uri", "iri"}  # from_entity, rel_type


class Layout(NamedTuple):
    """Where the columns of edges are in a table."""

    columns: tuple[str, ...]  # head, relation and tail; or head and tail
    indices: tuple[int, ...]
    width: int  # number of columns in each row
    is_header: bool  # whether the first row names the columns
    is_doubtful: bool = False  # whether it may, but was taken for a row


def layout_of(cells: Sequence[str], reading: Reading, name: Path | str) -> Layout:
    """Find head, relation and tail by the first row of a file, or the names of a frame's columns.

    The options count first, then the words in the cells, then the number of columns: three are
    head, relation and tail, and two are the head and tail of one relation.
    """
    if roles := reading.roles:
        columns = tuple(column for column in COLUMNS if column in roles)
        indices = indices_of([roles[column] for column in columns], cells, name)
        is_header = isinstance(roles["head"], str) if reading.header is None else reading.header
        return Layout(columns, indices, len(cells), is_header)
    has_one_relation = reading.relation is not None or len(cells) == len(ENDS)
    columns = ENDS if has_one_relation else COLUMNS
    found = None if reading.header is False else find_columns(cells, columns)
    if found is not None:
        return Layout(columns, found, len(cells), True)
    places = tuple(range(len(columns)))
    if reading.header:
        if len(cells) != len(columns):
            raise TripleError(not_found(cells, columns), name, 1)
        return Layout(columns, places, len(cells), True)
    is_doubtful = reading.header is None and (has_one_relation or may_be_header(cells))
    return Layout(columns, places, len(places), False, is_doubtful)


def not_found(cells: Sequence[str], columns: Sequence[str]) -> str:
    """Say that a header does not tell which columns are the wanted ones."""
    options = ",".join(column.upper() for column in columns)
    return (
        f"its columns are {printable(', '.join(cells))}; {', '.join(columns)} expected. "
        f"Say which is which: --columns {options}"
    )


def find_columns(cells: Sequence[str], columns: Sequence[str] = COLUMNS) -> tuple[int, ...] | None:
    """Return the indices of head, relation and tail in a header, or None if it is not one.

    Each of the `columns` must be named by exactly one cell. Single letters count only as h, r, t or
    s, p, o together, since the names of a graph may be letters too.
    """
    words = [_word(cell) for cell in cells]
    for role_of in (*(LETTERS if len(columns) == len(COLUMNS) else ()), ROLE_OF):
        roles = [role_of.get(word) for word in words]
        if all(roles.count(column) == 1 for column in columns):
            return tuple(roles.index(column) for column in columns)
    return None


def may_be_header(cells: Sequence[str]) -> bool:
    """Tell whether a row that is not a header names some of the columns all the same."""
    roles = {ROLE_OF.get(word) for word in map(_word, cells) if word != "type"}
    return "relation" in roles or len(roles - {None}) > 1


def _word(cell: str) -> str:
    """Return the telling word of a column's name: `from` of `from_entity`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cell)  # headEntity
    words = [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]
    telling = [word for word in words if word not in FILLERS] or words
    return telling[0] if len(telling) == 1 else ""


def indices_of(
    columns: Sequence[Column], cells: Sequence[str], name: Path | str
) -> tuple[int, ...]:
    """Return the indices of the wanted columns among the cells of the first row of a file."""
    indices = []
    for wanted in columns:
        if isinstance(wanted, int):
            if not 1 <= wanted <= len(cells):
                raise TripleError(f"There is no column {wanted}: there are {len(cells)}.", name)
            indices.append(wanted - 1)
        elif cells.count(wanted) == 1:
            indices.append(cells.index(wanted))
        else:
            there = "several columns" if wanted in cells else "no column"
            among = ", ".join(map(repr, cells))
            hint = ""
            if wanted not in cells:
                hint = " With --header, they may be given by number: --columns 1,2"
            raise TripleError(f"There is {there} {wanted!r} among {among}.{hint}", name)
    return tuple(indices)


def parse_columns(text: str) -> dict[str, Column] | list[Column]:
    """Read `from,to` or `from,type,to`, `head=from,tail=to`, or the same with numbers (from 1)."""
    pieces = [piece.strip() for piece in text.split(",")]
    names = [piece.partition("=")[2].strip() if "=" in text else piece for piece in pieces]
    columns: list[Column] = [int(name) if name.isdecimal() else name for name in names]
    if "=" not in text:
        return columns
    roles = [piece.partition("=")[0].strip() for piece in pieces]
    return dict(zip(roles, columns, strict=True))
