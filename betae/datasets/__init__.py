"""Read a graph from whatever holds it: files, tables in memory, stores, benchmark releases."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.graph.source import TripleColumns
from betae.graph.triples import Notify, Triples, TripleSource, read_triples, tables_of
from betae.storage import MANIFEST


def read(
    *sources: TripleSource,
    valid: TripleSource | float = 0.0,
    test: TripleSource | float = 0.0,
    labels: Path | str | None = None,
    nodes: TripleSource | Sequence[TripleSource] = (),
    seed: int = 0,
    columns: TripleColumns | None = None,
    delimiter: str | None = None,
    comment: str | None = None,
    format: str | None = None,
    notify: Notify = lambda _: None,
) -> KnowledgeGraph:
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
        columns: where head, relation and tail are: `{"head": "from", ...}` by name if the first
            line is a header, by number from 1 if it is not.
        delimiter: character between columns.
        comment: skip lines that begin with this.
        format: file ending that overrides the files' own: "csv", "nt", ...
        notify: called with a line of text at each step.
    """
    if len(sources) == 1 and is_stored_graph(sources[0]):
        if labels is not None or not _are_default(valid, test):
            raise InvalidArgument(
                f"{sources[0]} is a stored graph, with labels and splits of its own. Read the "
                "files that it was made from to change them."
            )
        return KnowledgeGraph.open(Path(str(sources[0])))
    triples = read_sources(
        *sources,
        valid=valid,
        test=test,
        labels=labels,
        nodes=nodes,
        seed=seed,
        columns=columns,
        delimiter=delimiter,
        comment=comment,
        format=format,
        notify=notify,
    )
    return KnowledgeGraph.from_triples(triples)


def read_sources(
    *sources: TripleSource,
    valid: TripleSource | float = 0.0,
    test: TripleSource | float = 0.0,
    labels: Path | str | None = None,
    nodes: TripleSource | Sequence[TripleSource] = (),
    **options: Any,
) -> Triples:
    """Read triples from a folder in the layout of the release, or as `read_triples` does."""
    from betae.datasets.release import is_release, read_release

    releases = [Path(each) for each in sources if isinstance(each, str | Path) and is_release(each)]
    if not releases:
        return read_triples(*sources, valid=valid, test=test, labels=labels, nodes=nodes, **options)
    if len(sources) > 1:
        raise InvalidArgument("A folder in the BetaE release layout is read alone.")
    if not _are_default(valid, test):
        raise InvalidArgument(f"{releases[0]} is in the BetaE release layout: it has its splits.")
    if tables_of(nodes):
        raise InvalidArgument("A folder in the BetaE release layout is read without node tables.")
    return read_release(releases[0], labels)


def _are_default(*held_out: TripleSource | float) -> bool:
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
