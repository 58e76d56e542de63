"""Write a graph, or its missing edges, to files in the shapes that are read."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import polars as pl

from betae.errors import TripleError
from betae.graph.delimited import SEPARATORS
from betae.graph.neo4j import write_edge_files, write_node_files
from betae.graph.objects import JSON_LINES, write_objects
from betae.graph.rdf import RDF_FORMATS, write_probabilities, write_rdf
from betae.graph.source import COLUMNS, STANDARD_INPUT, suffix_of
from betae.storage import check_file, check_writable, writing_file, writing_folder

STANDARD_OUTPUT = STANDARD_INPUT
NEO4J = ".neo4j"
FORMATS = (*SEPARATORS, ".parquet", *JSON_LINES, *RDF_FORMATS, NEO4J)


def format_of(path: Path, format: str | None = None) -> str:
    """Return the format to write as a file ending; raise if there is no such one."""
    if format is None:
        suffix = ".tsv" if str(path) == STANDARD_OUTPUT else suffix_of(path)
    else:
        suffix = f".{format.lower().lstrip('.')}"
    is_zipped = path.suffix.lower() == ".gz"
    if suffix not in FORMATS or (is_zipped and suffix in (".parquet", NEO4J)):
        ending = suffix + ".gz" * is_zipped
        fault = f"cannot write {ending!r}" if ending else "the name has no ending"
        listed = ", ".join(each for each in FORMATS if each != NEO4J)
        raise TripleError(
            f"{fault}. Choose {listed}; all but .parquet also with .gz; or name it: --format csv. "
            "--format neo4j writes files for neo4j-admin.",
            path,
        )
    return suffix


def check_target(path: Path, format: str | None = None) -> None:
    """Raise, before any work, if missing edges cannot be written there."""
    if format_of(path, format) == NEO4J and not path.suffix:
        check_writable(path)
    else:
        check_file(path)


def holds_literals(path: Path, format: str | None = None) -> bool:
    """Tell whether a file that is written has literals as well as edges."""
    return format_of(path, format) in (*RDF_FORMATS, *JSON_LINES, NEO4J)


def write_graph(
    edges: pl.DataFrame,
    path: Path,
    entities: Sequence[str],
    literals: pl.DataFrame,
    prefixes: Mapping[str, str],
    format: str | None = None,
) -> list[str]:
    """Write edges (head, relation, tail) to a file, whole or not at all, or to `-`.

    RDF, JSON Lines and the folder for Neo4j hold literals (by name), and the latter two entities
    without edges. Returns notes on what the format cannot hold.
    """
    suffix = format_of(path, format)
    if suffix == NEO4J:
        with writing_folder(path) as folder:
            notes = write_node_files(entities, literals, folder)
            write_edge_files(edges, folder)
        return notes
    buffer = io.BytesIO()  # polars' errors do not tell a full disk from any other
    if suffix in JSON_LINES:
        ends = pl.concat([edges["head"], edges["tail"], literals["subject"]]).unique()
        alone = pl.Series(entities, dtype=pl.String)
        write_objects(edges, buffer, literals, alone.filter(~alone.is_in(ends.implode())))
    elif suffix in RDF_FORMATS:
        write_rdf(edges, buffer, RDF_FORMATS[suffix], literals, prefixes)
    else:
        _write_table(edges, buffer, suffix, path)
    _write(buffer, path)
    return []


def write_missing(edges: pl.DataFrame, path: Path, format: str | None = None) -> None:
    """Write missing edges, with their probability and further columns, to a file.

    N-Triples hold the edges only, Turtle their probability too. For Neo4j, edges between nodes of
    several id spaces need a folder.
    """
    suffix = format_of(path, format)
    if suffix == NEO4J:
        edges = edges.select(*COLUMNS, "probability")
        if path.suffix:
            with writing_file(path) as partial:
                write_edge_files(edges, partial, shown=path)
        else:
            with writing_folder(path) as folder:
                write_edge_files(edges, folder)
        return
    buffer = io.BytesIO()
    if suffix == ".nt":
        write_rdf(edges.select(COLUMNS), buffer, RDF_FORMATS[suffix])
    elif suffix in RDF_FORMATS:
        write_probabilities(edges.select(*COLUMNS, "probability"), buffer, RDF_FORMATS[suffix])
    elif suffix in JSON_LINES:
        edges.write_ndjson(buffer)
    elif suffix in SEPARATORS and suffix != ".csv":
        edges.write_csv(buffer, separator="\t")  # quoted where needed: nothing found is refused
    else:
        _write_table(edges, buffer, suffix, path)
    _write(buffer, path)


def _write_table(edges: pl.DataFrame, file: IO[bytes], suffix: str, path: Path) -> None:
    """Write a frame; the header keeps the first row of a text file from being taken for one."""
    if suffix == ".parquet":
        edges.write_parquet(file)
    elif suffix == ".csv":
        edges.write_csv(file, quote_style="non_numeric")
    else:
        lost = edges.filter(pl.any_horizontal(pl.col(pl.String).str.contains(r"[\t\r\n]")))
        if len(lost):
            triple = lost.select(COLUMNS).row(0)
            raise TripleError(
                f"the triple {triple} does not survive TSV: a name has a tab or a line break. "
                "Write .csv, .parquet or .nt instead.",
                path,
            )
        edges.write_csv(file, separator="\t", quote_style="never")


def _write(buffer: io.BytesIO, path: Path) -> None:
    is_zipped = path.suffix.lower() == ".gz"
    content: bytes | memoryview = buffer.getbuffer()
    content = gzip.compress(content, compresslevel=6, mtime=0) if is_zipped else content
    if str(path) == STANDARD_OUTPUT:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with writing_file(path) as partial:
        partial.write_bytes(content)
