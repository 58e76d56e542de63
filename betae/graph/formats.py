"""One file of triples, or one table in memory -> a table of strings; and back to a file.

TSV (also .txt), CSV and Parquet go through polars, every RDF syntax through pyoxigraph; all but
Parquet may be gzipped.
"""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from betae.errors import TripleError
from betae.graph.delimited import SEPARATORS, Schema, read_delimited
from betae.graph.files import is_address, open_source
from betae.graph.frames import IN_MEMORY, as_frame, rdflib_source, triples_of_frame
from betae.graph.labels import ALTERNATIVE, Label
from betae.graph.rdf import STRINGS, RdfContent, rdf_format, read_rdf, write_rdf
from betae.graph.rdf import WRITTEN as WRITTEN_RDF
from betae.graph.source import DEFAULT, STANDARD_INPUT, Reading, Source, suffix_of
from betae.storage import writing_file

STANDARD_OUTPUT = STANDARD_INPUT
WRITTEN = (*SEPARATORS, ".parquet", *WRITTEN_RDF)


@dataclass(frozen=True)
class Table:
    """The triples of one source, what it says besides, and what was skipped."""

    triples: pl.DataFrame  # columns head, relation, tail, of the types asked for
    labels: Mapping[str, Sequence[Label]] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    blank_nodes: set[str] = field(default_factory=set)
    header: tuple[str, ...] | None = None  # the cells of what was taken for a header
    doubtful: tuple[str, ...] | None = None  # those of a first row that may have been meant for one
    literals_skipped: int = 0
    blank_lines: int = 0
    comments: int = 0


def read_table(
    source: Any,
    schema: Schema = STRINGS,
    blank_node_prefix: str = "",
    reading: Reading = DEFAULT,
) -> Table:
    """Read a file, that at an address, standard input (`-`) or a table in memory.

    The ending of a file's name gives its format (`.gz` may follow). `schema` gives the types of
    head, relation and tail: strings, or categories of strings, which a large file fills faster and
    in less memory.
    """
    if isinstance(source, str | Path) and is_address(source):
        with tempfile.TemporaryDirectory() as folder:
            fetched = open_source(source, reading, Path(folder))
            return _read_file(fetched, schema, blank_node_prefix, reading)
    if isinstance(source, str | Path):
        return _read_file(Source.of(Path(source), reading), schema, blank_node_prefix, reading)
    if found := rdflib_source(source):
        nt, prefixes = found
        content = read_rdf(nt, WRITTEN_RDF[nt.suffix], schema, blank_node_prefix)
        content.prefixes = prefixes
        return _table_of_rdf(content)
    frame, header = triples_of_frame(as_frame(source), IN_MEMORY, reading)
    return Table(frame.cast(schema), header=header)


def _read_file(source: Source, schema: Schema, blank_node_prefix: str, reading: Reading) -> Table:
    if source.suffix in SEPARATORS:
        rows = read_delimited(source, schema, reading)
        return Table(
            rows.frame,
            header=rows.header,
            doubtful=rows.doubtful,
            blank_lines=rows.blank_lines,
            comments=rows.comments,
        )
    if source.suffix == ".parquet":
        frame, header = triples_of_frame(_read_parquet(source), source.path, reading)
        return Table(frame.cast(schema), header=header)
    syntax = rdf_format(source.suffix)
    if syntax is None:
        raise TripleError(
            f"unknown format {source.suffix!r}. Known: {', '.join(SEPARATORS)}, .parquet and RDF "
            "(.nt, .ttl, .nq, .trig, .n3, .rdf, .xml, .jsonld), also with .gz. If the name does "
            "not tell, --format does.",
            source.path,
        )
    return _table_of_rdf(read_rdf(source, syntax, schema, blank_node_prefix))


def _table_of_rdf(content: RdfContent) -> Table:
    return Table(
        content.triples,
        content.labels,
        content.prefixes,
        content.blank_nodes,
        literals_skipped=content.literals,
    )


def _read_parquet(source: Source) -> pl.DataFrame:
    try:
        return pl.read_parquet(source.whole(), glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TripleError(
            f"not a valid Parquet file ({str(error).splitlines()[0]}).", source.path
        ) from error


def read_labels(path: Path, comment: str | None = None) -> dict[str, list[Label]]:
    """Read a two-column TSV or CSV of name and label; the first label of a name is shown."""
    source = Source.of(path)
    if source.suffix not in SEPARATORS:
        raise TripleError(f"labels come as {', '.join(SEPARATORS)}, also with .gz.", path)
    schema = {"name": pl.String(), "label": pl.String()}
    labels: dict[str, list[Label]] = {}
    for name, text in read_delimited(source, schema, Reading(comment=comment)).frame.iter_rows():
        others = labels.setdefault(name, [])
        others.append(Label(text, rank=ALTERNATIVE if others else 0))
    return labels


# ---- writing ------------------------------------------------------------------------------------


def write_table(
    triples: pl.DataFrame,
    path: Path,
    labels: Mapping[str, Sequence[Label]] = MappingProxyType({}),
    prefixes: Mapping[str, str] = MappingProxyType({}),
    suffix: str | None = None,
) -> None:
    """Write a frame of head, relation, tail to a file, whole or not at all, or to `-`.

    Only RDF holds labels and prefixes. `suffix` counts instead of the path's own.
    """
    suffix, is_zipped = suffix or suffix_of(path), path.suffix.lower() == ".gz"
    if suffix not in WRITTEN or (is_zipped and suffix == ".parquet"):
        what = suffix + ".gz" * is_zipped
        fault = f"cannot write {what!r}" if what else "the name does not end in a format"
        raise TripleError(
            f"{fault}. Choose {', '.join(WRITTEN)}; all but .parquet also with .gz; or say it by "
            "--format csv.",
            path,
        )
    # Into memory first: polars' own errors do not tell a full disk from any other. The header is
    # there so that no first row can be taken for one.
    buffer = io.BytesIO()
    if suffix == ".parquet":
        triples.write_parquet(buffer)
    elif suffix == ".csv":
        triples.write_csv(buffer, quote_style="always")
    elif suffix in SEPARATORS:
        _check_survives_tsv(triples, path)
        triples.write_csv(buffer, separator="\t", quote_style="never")
    else:
        write_rdf(triples, buffer, WRITTEN_RDF[suffix], labels, prefixes)
    content: bytes | memoryview = buffer.getbuffer()
    content = gzip.compress(content, compresslevel=6, mtime=0) if is_zipped else content
    if str(path) == STANDARD_OUTPUT:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with writing_file(path) as partial:
        partial.write_bytes(content)


def _check_survives_tsv(triples: pl.DataFrame, path: Path) -> None:
    lost = triples.filter(pl.any_horizontal(pl.all().str.contains(r"[\t\r\n]")))
    if len(lost):
        raise TripleError(
            f"the triple {lost.row(0)} does not survive TSV: a name has a tab or a line break. "
            "Write .csv, .parquet or .nt instead.",
            path,
        )
