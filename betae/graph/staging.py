"""Files of triples -> Parquet files of strings, in pieces, for an engine that reads them again.

A Parquet file on this machine whose columns are strings stays where it is.
"""

from __future__ import annotations

import gzip
import io
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from betae.errors import InvalidArgument, TripleError
from betae.graph.columns import COLUMNS
from betae.graph.delimited import SEPARATORS, scan_delimited
from betae.graph.edges import SPLITS, Split
from betae.graph.files import find_files, open_source
from betae.graph.frames import find_triples, triples_of_frame
from betae.graph.rdf import STRINGS
from betae.graph.source import EMPTY, STANDARD_INPUT, TRUNCATED, Reading, Source
from betae.graph.triples import ReadReport

STAGED = (".parquet", *SEPARATORS)
ROWS_AT_ONCE = 2**20


@dataclass(frozen=True)
class ParquetFile:
    """A file whose columns `columns` are heads, relations and tails, all strings."""

    path: Path
    name: Path | str  # as messages name it
    columns: tuple[str, ...] = COLUMNS
    all_columns: tuple[str, ...] = COLUMNS  # with those beside


@dataclass
class Staged:
    """Files by split, how many rows those have, and what was skipped."""

    files: dict[Split, list[ParquetFile]] = field(
        default_factory=lambda: {split: [] for split in SPLITS}
    )
    num_rows: dict[Split, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    report: ReadReport = field(default_factory=ReadReport)


def stage(
    everything: Sequence[tuple[Split, Any]],
    reading: Reading,
    folder: Path,
    say: Callable[[str], None],
) -> Staged:
    """Make every source ready to be read by the engine; what has to be copied goes to `folder`."""
    files = [(split, file) for split, source in everything for file in find_files(_as_path(source))]
    staged = Staged()
    for number, (split, file) in enumerate(files, 1):
        say(f"Reading {file} ({number} of {len(files)})")
        place = folder / f"source-{number}"
        place.mkdir()
        source = _open(file, reading, place)
        target = folder / f"staged-{number}"
        if source.suffix == ".parquet":
            _stage_parquet(source, split, reading, target, staged)
        else:
            _stage_delimited(source, split, reading, target, staged)
        if not any(parquet.path == source.copy for parquet in staged.files[split][-1:]):
            shutil.rmtree(place)  # the copy has been read, or there is none
    return staged


def _as_path(source: Any) -> str | Path:
    if not isinstance(source, str | Path):
        raise InvalidArgument(
            f"In bounded memory triples come from files, not from a {type(source).__name__}."
        )
    if str(source) == STANDARD_INPUT:
        raise InvalidArgument(
            "Standard input is read whole, not in bounded memory: write it to a file first."
        )
    return source


def _open(file: str, reading: Reading, place: Path) -> Source:
    """Return a source that lies on this machine, unzipped; copies go to `place`."""
    try:
        source = open_source(file, reading, place)
    except PermissionError as error:
        raise TripleError(f"it cannot be read ({error.strerror}).", file) from error
    if source.suffix not in STAGED or source.content is not None:
        raise TripleError(
            f"in bounded memory triples come from files that end in {', '.join(STAGED)}, all but "
            ".parquet also with .gz. Read others without --memory, or convert them first.",
            source.path,
        )
    if not source.is_zipped:
        return source
    unzipped = place / "unzipped"
    try:
        with source.open() as zipped, unzipped.open("wb") as file_to_read:
            shutil.copyfileobj(zipped, file_to_read, 2**20)
    except EOFError as error:
        raise TripleError(TRUNCATED, source.path) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TripleError(f"not a valid gzip file ({error}).", source.path) from error
    return replace(source, copy=unzipped, is_zipped=False)


def _stage_delimited(
    source: Source, split: Split, reading: Reading, target: Path, staged: Staged
) -> None:
    report = staged.report
    for number, rows in enumerate(scan_delimited(source, STRINGS, reading, ROWS_AT_ONCE)):
        report.blank_lines_skipped += rows.blank_lines
        report.comments_skipped += rows.comments
        if rows.header is not None:
            report.headers[str(source.path)] = rows.header
        if rows.doubtful is not None:
            report.doubtful_rows[str(source.path)] = rows.doubtful
        _add(rows.frame, source, split, Path(f"{target}-{number}.parquet"), staged)


def _stage_parquet(
    source: Source, split: Split, reading: Reading, target: Path, staged: Staged
) -> None:
    schema, num_rows = _look_into_parquet(source)
    places, header = find_triples(list(schema), source.path, reading)
    if header is not None:
        staged.report.headers[str(source.path)] = header
    columns = tuple(list(schema)[place] for place in places)
    # To the engine, columns whose names differ in case only are the same.
    is_plain = len({column.lower() for column in schema}) == len(schema)
    if is_plain and all(schema[column] == pl.String for column in columns):
        file = ParquetFile(source.place, source.path, columns, tuple(schema))
        staged.files[split].append(file)
        staged.num_rows[split] += num_rows
        return
    for number, (first_row, frame) in enumerate(_pieces_of_parquet(source)):
        triples, _ = triples_of_frame(frame, source.path, reading, first_row)
        _add(triples, source, split, Path(f"{target}-{number}.parquet"), staged)


def _add(frame: pl.DataFrame, source: Source, split: Split, path: Path, staged: Staged) -> None:
    write_parquet(frame, path)
    staged.files[split].append(ParquetFile(path, source.path))
    staged.num_rows[split] += len(frame)


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a small frame, so that a full disk is an OSError."""
    buffer = io.BytesIO()  # polars' own errors do not tell a full disk from any other
    frame.write_parquet(buffer, compression="lz4")
    path.write_bytes(buffer.getbuffer())


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def _look_into_parquet(source: Source) -> tuple[pl.Schema, int]:
    """Return the columns of a file and the number of its rows, if it has any."""
    with _explaining_parquet(source.path):
        scanned = _scan(source.place)
        schema, num_rows = scanned.collect_schema(), scanned.select(pl.len()).collect().item()
    if not num_rows:
        raise TripleError(EMPTY, source.path)
    return schema, num_rows


def _pieces_of_parquet(source: Source) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the rows of a file in pieces, each with the number of rows before it."""
    first_row = 0
    with _explaining_parquet(source.path):
        for frame in _scan(source.place).collect_batches(chunk_size=ROWS_AT_ONCE):
            if len(frame):
                yield first_row, frame
            first_row += len(frame)


@contextmanager
def _explaining_parquet(name: Path | str) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        why = str(error).splitlines()[0]
        raise TripleError(f"not a valid Parquet file ({why}).", name) from error


def find_fault(staged: Staged) -> TripleError | None:
    """Return what is wrong with the first file that has an empty name or cannot be read."""
    for file in (file for split in SPLITS for file in staged.files[split]):
        reading = Reading(columns=dict(zip(COLUMNS, file.columns, strict=True)))
        source = Source(file.name, ".parquet", copy=file.path)
        try:
            for first_row, frame in _pieces_of_parquet(source):
                triples_of_frame(frame, file.name, reading, first_row)
        except TripleError as error:
            return error
    return None
