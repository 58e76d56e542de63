"""Read a graph from whatever holds it: files, tables in memory, stores, benchmark releases."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Unpack

from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.graph.source import Reading, ReadOptions, TripleSource
from betae.graph.triples import Triples, read_triples, tables_of
from betae.storage import MANIFEST


def read(*sources: TripleSource, **options: Unpack[ReadOptions]) -> KnowledgeGraph:
    """Read a graph, or open a stored one.

    Args:
        sources: files of triples (TSV, CSV, Parquet, RDF; also gzipped), folders of them, patterns
            such as `parts/*.parquet`, addresses such as `s3://bucket/facts.parquet`, `-` for
            standard input; tables in memory: rows of (head, relation, tail), a polars or pandas
            frame, a NumPy array (n, 3), an rdflib graph. Or a single folder: a stored graph, or
            one in the layout of the BetaE release.
        valid, test: sources of held-out edges, or the fraction of edges to hold out at random;
            every entity and relation keeps an edge in train.
        labels: two-column file of name and label; it wins over the labels of RDF files.
        nodes: node tables (TSV, CSV, Parquet, or frames): a row for each entity, with its name in
            the column `id` or the first, and a column for each property.
        seed: of the random split.
        columns: where head, relation and tail are, or head and tail in files of one relation:
            `("from", "to")` or `{"head": "from", "tail": "to"}`, by name if the first line is a
            header, by number from 1 if it is not.
        relation: the relation of files without a column for it; by default, their names.
        header: whether the first line of each file names its columns; by default, as `columns` say
            or if it has words such as head and tail.
        delimiter: character between columns.
        comment: skip lines that begin with this.
        format: file ending that overrides the files' own: "csv", "nt", ...
        tables: tables of edges in a database (an SQLite or DuckDB file, `postgresql://host/name`).
        node_tables: tables in it with a row for each entity.
        sql: a query for edges.
        key: the property that names the nodes of a Neo4j; by default, Neo4j's own ids.
        user, password, database: to log in at a database; the last is one of Neo4j's.
        notify: called with a line of text at each step.
    """
    if len(sources) == 1 and is_stored_graph(sources[0]):
        reading = Reading(**options)
        if reading.labels is not None or not _has_no_splits(reading):
            raise InvalidArgument(
                f"{sources[0]} is a stored graph, with labels and splits of its own. Read the "
                "files that it was made from to change them."
            )
        return KnowledgeGraph.open(Path(str(sources[0])))
    return KnowledgeGraph.from_triples(read_sources(*sources, **options))


def read_sources(*sources: TripleSource, **options: Unpack[ReadOptions]) -> Triples:
    """Read triples from a folder in the layout of the release, or as `read_triples` does."""
    from betae.datasets.release import is_release, read_release

    releases = [Path(each) for each in sources if isinstance(each, str | Path) and is_release(each)]
    if not releases:
        return read_triples(*sources, **options)
    reading = Reading(**options)
    if len(sources) > 1:
        raise InvalidArgument("A folder in the BetaE release layout is read alone.")
    if not _has_no_splits(reading):
        raise InvalidArgument(f"{releases[0]} is in the BetaE release layout: it has its splits.")
    if tables_of(reading.nodes):
        raise InvalidArgument("A folder in the BetaE release layout is read without node tables.")
    return read_release(releases[0], reading.labels)


def _has_no_splits(reading: Reading) -> bool:
    held_out = (reading.valid, reading.test)
    return all(isinstance(each, float | int) and each == 0 for each in held_out)


def is_stored_graph(source: TripleSource) -> bool:
    """Tell whether a source is a folder that `KnowledgeGraph.save` or `ingest` wrote."""
    return isinstance(source, str | Path) and all(
        (Path(source) / name).is_file() for name in (MANIFEST, "train.npy")
    )


def world() -> KnowledgeGraph:
    """Return the bundled graph: countries, their capitals, neighbours, languages and more.

    A few thousand facts that `scripts/make_world.py` took from the package countryinfo (MIT) and
    from a list written by hand. A fixed part of the edges is held out in valid and test.
    """
    with as_file(files("betae") / "datasets" / "world") as folder:
        return read(folder / "train.tsv", valid=folder / "valid.tsv", test=folder / "test.tsv")
