"""Read one file of triples into one table of strings, and write it back.

TSV (also .txt), CSV and Parquet go through polars, every RDF syntax through pyoxigraph; all but
Parquet may be gzipped. The fast readers only notice that something is wrong; `_explain` then reads
the file again, slowly, to find the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl
import pyoxigraph as ox

from betae.errors import TripleError
from betae.storage import writing_file

COLUMNS = ("head", "relation", "tail")
HEADERS = {  # a first row that reads like this is taken for a header
    COLUMNS,
    ("subject", "predicate", "object"),
    ("source", "relation", "target"),
    ("h", "r", "t"),
    ("s", "p", "o"),
}
SEPARATORS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
SPOKEN = {"\t": "tabs", ",": "commas"}
Schema = Mapping[Any, pl.DataType]  # column -> type; polars is stricter about keys than we are
STRINGS: Schema = dict.fromkeys(COLUMNS, pl.String())
COMMENT = "#"
EMPTY = "the file is empty: it has no rows."
TRUNCATED = "the gzip file is truncated. Download or copy it again."
RDF_BATCH = 100_000
LABEL = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#label")


class Label(NamedTuple):
    """A label of an entity or relation; a plain one is in English or in no stated language."""

    text: str
    is_plain: bool = True


def add_label(labels: dict[str, Label], name: str, label: Label) -> None:
    """Keep the first plain label of a name, else its first one."""
    if name not in labels or (label.is_plain and not labels[name].is_plain):
        labels[name] = label


@dataclass(frozen=True)
class Table:
    """The triples of one file: a frame of strings, and what RDF says besides edges."""

    triples: pl.DataFrame  # columns head, relation, tail, of the types asked for
    labels: dict[str, Label] = field(default_factory=dict)  # from rdfs:label
    literals_skipped: int = 0


def read_table(path: Path, schema: Schema = STRINGS, blank_node_prefix: str = "") -> Table:
    """Read one file; the suffix of its name gives the format (`.gz` may follow).

    `schema` gives the types of head, relation and tail: strings, or categories of strings, which
    a large file fills faster and in less memory.
    """
    if not path.is_file():
        raise TripleError("there is no such file.", path)
    suffix = _suffix(path)
    if suffix in SEPARATORS:
        return Table(_read_delimited(path, schema))
    if suffix == ".parquet":
        return Table(_read_parquet(path).cast(schema))
    rdf_format = ox.RdfFormat.from_extension(suffix.removeprefix("."))
    if rdf_format is None:
        raise TripleError(
            f"unknown format {suffix!r}. Known: {', '.join(SEPARATORS)}, .parquet and RDF "
            "(.nt, .ttl, .nq, .trig, .n3, .rdf, .xml, .jsonld), also with .gz.",
            path,
        )
    return _read_rdf(path, rdf_format, schema, blank_node_prefix)


def read_labels(path: Path) -> dict[str, str]:
    """Read a two-column TSV or CSV of name and label; the first label of a name counts."""
    if not path.is_file():
        raise TripleError("there is no such file.", path)
    if _suffix(path) not in SEPARATORS:
        raise TripleError(f"labels come as {', '.join(SEPARATORS)}, also with .gz.", path)
    rows = _read_delimited(path, {"name": pl.String(), "label": pl.String()}).rows()
    return dict(reversed(rows))


def write_table(triples: pl.DataFrame, path: Path) -> None:
    """Write a frame of head, relation, tail to a TSV, CSV or Parquet file, whole or not at all."""
    if path.suffix not in {*SEPARATORS, ".parquet"}:
        raise TripleError(f"cannot write {path.suffix!r}. Choose .tsv, .csv or .parquet.", path)
    # Into memory first: polars' own errors do not tell a full disk from any other. The header is
    # there so that no first row can be taken for one.
    buffer = io.BytesIO()
    if path.suffix == ".parquet":
        triples.write_parquet(buffer)
    elif path.suffix == ".csv":
        triples.write_csv(buffer, quote_style="always")
    else:
        _check_survives_tsv(triples, path)
        triples.write_csv(buffer, separator="\t", quote_style="never")
    with writing_file(path) as partial:
        partial.write_bytes(buffer.getbuffer())


def _check_survives_tsv(triples: pl.DataFrame, path: Path) -> None:
    breaks = pl.any_horizontal(pl.all().str.contains(r"[\t\r\n]"))
    lost = triples.filter(breaks | pl.col("head").str.starts_with(COMMENT))
    if len(lost):
        raise TripleError(
            f"the triple {lost.row(0)} does not survive TSV: a name has a tab or a line break, or "
            f"the line begins with {COMMENT!r}. Write .csv or .parquet instead.",
            path,
        )


def _suffix(path: Path) -> str:
    return Path(path.stem if path.suffix == ".gz" else path.name).suffix.lower()


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


# ---- TSV and CSV ------------------------------------------------------------------------------


def _read_delimited(path: Path, schema: Schema) -> pl.DataFrame:
    separator, columns = SEPARATORS[_suffix(path)], tuple(schema)
    skip = _count_leading_lines(path, separator)
    try:
        source: Path | io.BytesIO = path
        if path.suffix == ".gz":
            with _open(path) as file:
                source = io.BytesIO(file.read())
        frame = pl.read_csv(
            source,
            separator=separator,
            quote_char='"' if separator == "," else None,
            schema=schema,
            has_header=False,
            skip_lines=skip,
            comment_prefix=COMMENT,
            glob=False,
        )
    except (pl.exceptions.PolarsError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _explain(path, columns) or TripleError(str(error).splitlines()[0], path) from error
    if not len(frame):
        raise TripleError(EMPTY, path)
    has_gap = pl.any_horizontal(pl.all().is_null() | (pl.all() == ""))
    gaps = frame.filter(has_gap).cast(pl.String)
    if not len(gaps):
        return frame
    blank = pl.all_horizontal(pl.all().fill_null("").str.strip_chars() == "")
    if not gaps.select(blank.all()).item():
        raise _explain(path, columns) or TripleError("a name is empty.", path)
    return frame.filter(~has_gap)


def _count_leading_lines(path: Path, separator: str) -> int:
    """Return the number of blank lines, comments and header lines before the first row."""
    for skip, line in enumerate(_lines(path)):
        if line.strip() and not line.startswith(COMMENT):
            fields = tuple(name.strip('" \r\n').lower() for name in line.split(separator))
            return skip + (fields in HEADERS)
    raise TripleError(EMPTY, path)


def _lines(path: Path) -> Generator[str]:
    """Yield the decoded lines of a file; errors name the line."""
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise TripleError(f"not valid UTF-8 ({error.reason}).", path, number) from error
    except EOFError as error:
        raise TripleError(TRUNCATED, path, number + 1) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TripleError(f"not a valid gzip file ({error}).", path, number + 1) from error


def line_of_row(path: Path, row: int) -> int:
    """Return the line (from 1) of data row `row` (from 0) in a TSV file without a header."""
    content = (
        number
        for number, line in enumerate(_lines(path), 1)
        if line.strip() and not line.startswith(COMMENT)
    )
    return next(islice(content, row, None))


def _explain(path: Path, columns: tuple[str, ...]) -> TripleError | None:
    """Find the first line that the fast reader cannot have accepted."""
    separator = SEPARATORS[_suffix(path)]
    with closing(_lines(path)) as lines:
        content = (line if not line.startswith(COMMENT) else "\n" for line in lines)
        reader = csv.reader(
            content,
            delimiter=separator,
            quoting=csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE,
            strict=True,
        )
        try:
            for row in reader:
                if not row or (len(row) == 1 and not row[0].strip()):
                    continue
                if len(row) != len(columns):
                    return TripleError(
                        f"{len(row)} columns, {len(columns)} expected "
                        f"({', '.join(columns)} separated by {SPOKEN[separator]}).",
                        path,
                        reader.line_num,
                    )
                for column, name in zip(columns, row, strict=True):
                    if not name.strip("\r"):
                        return TripleError(f"the {column} is empty.", path, reader.line_num)
                if sum(name.count('"') for name in row) % 2 and separator == ",":
                    return TripleError("a stray double quote.", path, reader.line_num)
        except TripleError as error:
            return error
        except csv.Error as error:
            return TripleError(f"{error}.", path, reader.line_num)
    return None


# ---- Parquet ----------------------------------------------------------------------------------


def _read_parquet(path: Path) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TripleError(
            f"not a valid Parquet file ({str(error).splitlines()[0]}).", path
        ) from error
    lower = {column.lower(): column for column in frame.columns}
    named = next((names for names in HEADERS if all(name in lower for name in names)), None)
    if named is not None:
        frame = frame.select(lower[name] for name in named)
    elif frame.width != len(COLUMNS):
        raise TripleError(
            f"its columns are {', '.join(frame.columns)}; {', '.join(COLUMNS)} expected.", path
        )
    frame.columns = list(COLUMNS)
    frame = frame.cast(pl.String)
    if not len(frame):
        raise TripleError(EMPTY, path)
    empty = frame.with_row_index("row").filter(
        pl.any_horizontal(pl.col(COLUMNS).is_null() | (pl.col(COLUMNS) == ""))
    )
    if len(empty):
        raise TripleError("a name is empty.", path, empty["row"][0] + 1)
    return frame


# ---- RDF --------------------------------------------------------------------------------------


def _read_rdf(
    path: Path, rdf_format: ox.RdfFormat, schema: Schema, blank_node_prefix: str
) -> Table:
    labels: dict[str, Label] = {}
    literals = 0
    keeps_blank_names = rdf_format in (ox.RdfFormat.N_TRIPLES, ox.RdfFormat.N_QUADS)
    blank_names: dict[str, str] = {}

    def name(term: ox.NamedNode | ox.BlankNode) -> str:
        if isinstance(term, ox.NamedNode):
            return term.value
        # Other syntaxes have nodes without a name, which pyoxigraph numbers at random.
        given = term.value if keeps_blank_names else f"b{len(blank_names)}"
        return f"_:{blank_node_prefix}{blank_names.setdefault(term.value, given)}"

    def edges(quads: Iterable[ox.Quad]) -> Iterator[tuple[str, str, str]]:
        nonlocal literals
        for quad in quads:
            subject, predicate, value = quad.subject, quad.predicate, quad.object
            if isinstance(subject, ox.Triple) or isinstance(value, ox.Triple):
                literals += 1  # a triple about a triple is not an edge either
            elif predicate == LABEL and isinstance(value, ox.Literal):
                is_plain = value.language in (None, "en")
                add_label(labels, name(subject), Label(value.value, is_plain))
            elif isinstance(value, ox.Literal):
                literals += 1
            else:
                yield name(subject), predicate.value, name(value)

    frames = []
    try:
        with _open(path) as file:
            rows = edges(ox.parse(input=file, format=rdf_format))
            while batch := list(islice(rows, RDF_BATCH)):
                frame = pl.DataFrame(batch, schema=STRINGS, orient="row")
                frames.append(frame.cast(schema))
    except SyntaxError as error:
        raise TripleError(
            f"not valid {rdf_format.name}: {error.msg}.", path, error.lineno
        ) from error
    except EOFError as error:
        raise TripleError(TRUNCATED, path) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TripleError(f"not a valid gzip file ({error}).", path) from error
    if not frames:
        raise TripleError("the file has no edges between entities.", path)
    return Table(pl.concat(frames), labels, literals)
