"""Files in and out: ingest, export."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from betae.cli.common import GraphPath, Overwrite, app, err, say
from betae.errors import InvalidArgument

if TYPE_CHECKING:
    from betae.graph.graph import KnowledgeGraph
    from betae.graph.remove import RemovalReport
    from betae.graph.triples import ReadReport, Triples

Sources = Annotated[
    list[str],  # an address is no path
    typer.Argument(
        help="Files of triples (.tsv .txt .csv .parquet, RDF: .nt .ttl .nq .trig .n3 .rdf "
        ".jsonld; also .gz), folders of such files, patterns, addresses (s3://, https://), - for "
        "standard input, or one folder in the BetaE release layout.",
        metavar="SOURCE...",
    ),
]
Held = Annotated[str, typer.Option(help="A file, or a fraction to split off.")]
Labels = Annotated[Path | None, typer.Option(help="Two columns: name and human-readable label.")]
Append = Annotated[bool, typer.Option("--append", help="Add the edges to the graph that is there.")]
Remove = Annotated[
    bool, typer.Option("--remove", help="Remove the edges from the graph that is there.")
]
ColumnsText = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help="Which column is which, by name: head=from,relation=type,tail=to; or by number, and "
        "the first line is no header: head=1,relation=2,tail=3.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What stands between columns, if not tabs in .tsv and commas in .csv."),
]
Comment = Annotated[
    str | None, typer.Option(help="Skip lines that begin with this. By default all lines count.")
]
Format = Annotated[
    str | None, typer.Option(help="Format of the files, if their endings do not tell: csv, nt, ...")
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Use at most so much memory (4GB): what does not fit goes to disk beside the graph. "
        "For Parquet, TSV and CSV. The graph is the same."
    ),
]


@app.command(
    epilog="Examples:\n\n"
    "  betae ingest facts.tsv --out graph\n\n"
    "  betae ingest facts.nt.gz --valid 0.1 --test 0.1 --out graph\n\n"
    "  betae ingest train.csv --valid valid.csv --test test.csv --labels names.tsv --out graph\n\n"
    "  betae ingest FB15k-237-betae --out graph\n\n"
    "  betae ingest trips.csv --columns head=from,relation=mode,tail=to --out graph\n\n"
    "  betae ingest 's3://bucket/triples/*.parquet' --memory 4GB --out graph\n\n"
    "  zcat facts.nt.gz | betae ingest - --format nt --out graph\n\n"
    "  betae ingest more-facts.tsv --append --out graph\n\n"
    "  betae ingest wrong-facts.tsv --remove --out graph"
)
def ingest(
    sources: Sources,
    target: Annotated[Path, typer.Option("--out", help="Folder of the graph.")],
    valid: Held = "0",
    test: Held = "0",
    labels: Labels = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 0,
    overwrite: Overwrite = False,
    append: Append = False,
    remove: Remove = False,
    columns: ColumnsText = None,
    delimiter: Delimiter = None,
    comment: Comment = None,
    format: Format = None,
    memory: Memory = None,
) -> None:
    """Turn files of triples into a graph folder, add them to one or remove them from one."""
    from betae.graph.columns import parse_columns
    from betae.graph.graph import KnowledgeGraph
    from betae.storage import check_writable

    if append or remove:
        has_split = (valid, test) != ("0", "0")
        _check_change(append, remove, overwrite or has_split, labels, sources)
    if memory is not None:
        _check_bounded(append or remove, labels, sources)
    before = KnowledgeGraph.open(target) if append or remove else None
    check_writable(target, overwrite or append or remove)
    with err.status("Reading") as status:
        options: dict[str, Any] = {
            "valid": _file_or_fraction(valid),
            "test": _file_or_fraction(test),
            "seed": seed,
            "columns": None if columns is None else parse_columns(columns),
            "delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
            "comment": comment,
            "format": format,
            "say": lambda text: status.update(escape(text)),
        }
        if memory is not None:
            report, told = _ingest_bounded(sources, target, memory, overwrite, options)
        else:
            triples = _read(sources, labels, **options)
            status.update("Sorting the adjacency")
            graph, told = _make(triples, before, remove)
            status.update("Writing the graph")
            graph.save(target, overwrite or append or remove)
            report = _with_unused_labels(triples, graph)
            told.append(repr(graph))
    _show_reading(report)
    for line in told:
        say(line)
    say(f"written to {target}")


def _ingest_bounded(
    sources: list[str], target: Path, memory: str, overwrite: bool, options: dict[str, Any]
) -> tuple[ReadReport, list[str]]:
    """Make the graph in bounded memory; return what happened, and what to say of the graph."""
    from betae.graph.graph import FORMAT_VERSION, in_words
    from betae.graph.outofcore import ingest as ingest_files
    from betae.storage import read_manifest

    report = ingest_files(*sources, out=target, memory=memory, overwrite=overwrite, **options)
    return report, [in_words(read_manifest(target, "graph", FORMAT_VERSION))]


def _check_bounded(is_change: bool, labels: Path | None, sources: list[str]) -> None:
    """Raise if what was asked for is not done in bounded memory."""
    from betae.datasets.release import is_release

    if is_change or labels is not None:
        raise InvalidArgument("--memory makes a new graph: no --append, --remove or --labels.")
    if any(is_release(Path(source)) for source in sources):
        raise InvalidArgument("A folder in the BetaE release layout is read without --memory.")


def _check_change(
    append: bool, remove: bool, is_whole_graph: bool, labels: Path | None, sources: list[str]
) -> None:
    """Raise if what was asked for does not go with changing a graph."""
    if is_whole_graph or any(Path(source).is_dir() for source in sources):
        raise InvalidArgument(
            f"--{'append adds files of training' if append else 'remove removes files of'} edges: "
            "no folder, --valid, --test or --overwrite."
        )
    if remove and (append or labels is not None):
        raise InvalidArgument("--remove removes edges and nothing else: no --append, no --labels.")


def _make(
    triples: Triples, before: KnowledgeGraph | None, remove: bool
) -> tuple[KnowledgeGraph, list[str]]:
    """Return the graph, and what to say of how it differs from the one before."""
    from betae.graph.append import append_triples
    from betae.graph.graph import KnowledgeGraph
    from betae.graph.remove import remove_triples

    if before is None:
        return KnowledgeGraph.from_triples(triples), []
    if remove:
        graph, report = remove_triples(before, triples)
        return graph, _told_of_removal(report)
    graph = append_triples(before, triples)
    return graph, _told_of_growth(graph, before)


def _read(sources: list[str], labels: Path | None, **options: Any) -> Triples:
    """Read one folder of a release, or files of triples."""
    from betae.datasets.release import is_release, read_release
    from betae.graph.triples import read_triples

    if any(is_release(Path(source)) for source in sources):
        if len(sources) > 1:
            raise InvalidArgument("A folder in the BetaE release layout is read alone.")
        return read_release(Path(sources[0]), labels)
    return read_triples(*sources, labels=labels, **options)


def _with_unused_labels(triples: Triples, graph: KnowledgeGraph) -> ReadReport:
    """Return the report; a label may be of a name that was there before."""
    if triples.labels:
        unused = triples.labels.keys() - {*graph.entities, *graph.relations}
        triples.report.labels_unused = len(unused)
    return triples.report


def _show_reading(report: ReadReport) -> None:
    """Say what was read, what was taken for a header, and what was skipped or dropped."""
    from betae.graph.names import printable

    counts = asdict(report)
    for file, cells in counts.pop("headers").items():
        say(printable(f"{file} has a header: {', '.join(cells)}"))
    for file, cells in counts.pop("doubtful_rows").items():
        say(printable(f"{file}: its first line, {', '.join(cells)}, was read as a fact."))
        say(
            "If it is a header, say which column is which: --columns head=...,relation=...,tail=..."
        )
    for what, count in counts.items():
        if count:
            say(f"{count:>12,} {what.replace('_', ' ')}")


def _told_of_growth(graph: KnowledgeGraph, before: KnowledgeGraph) -> list[str]:
    added = len(graph.splits["train"]) - len(before.splits["train"])
    held_out = [len(before.splits[split]) - len(graph.splits[split]) for split in ("valid", "test")]
    return [
        f"{added:>12,} training edges added, {sum(held_out):,} of them held out before",
        f"{graph.num_entities - before.num_entities:>12,} entities are new",
        f"{len(graph.relations) - len(before.relations):>12,} relations are new",
    ]


def _told_of_removal(report: RemovalReport) -> list[str]:
    by_split = ", ".join(f"{count:,} {split}" for split, count in report.removed.items())
    told = [f"{sum(report.removed.values()):>12,} edges removed ({by_split})"]
    if report.absent:
        told.append(f"{report.absent:>12,} edges were not there")
    if more := report.num_unknown - len(report.unknown):
        return [*told, *report.unknown, f"{more:,} more names are not there"]
    return [*told, *report.unknown]


def _file_or_fraction(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


@app.command(
    epilog="Examples:\n\n"
    "  betae export graph all.csv\n\n"
    "  betae export graph all.nt.gz\n\n"
    "  betae export graph - --format ttl | less"
)
def export(
    graph: GraphPath,
    file: Annotated[
        Path,
        typer.Argument(
            help="File to write: .tsv, .csv, .parquet, .nt or .ttl, all but .parquet also with "
            ".gz; - for standard output."
        ),
    ],
    split: Annotated[
        Literal["train", "valid", "test", "all"], typer.Option(help="Which edges to write.")
    ] = "all",
    format: Annotated[
        str | None, typer.Option(help="Format, if the ending does not tell; of - it is tsv.")
    ] = None,
) -> None:
    """Write the edges of a graph by name; as RDF, with its labels."""
    from betae.graph.edges import SPLITS
    from betae.graph.graph import KnowledgeGraph

    splits = SPLITS if split == "all" else (split,)
    KnowledgeGraph.open(graph).export(file, splits, format)
