"""Graphs: ingest, info, entities, relations, export."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from betae.cli.common import (
    AsJson,
    GraphOrRun,
    Overwrite,
    app,
    err,
    examples,
    note,
    open_graph,
    out,
    print_json,
    say,
)
from betae.errors import InvalidArgument

if TYPE_CHECKING:
    from betae.graph.describe import Listed
    from betae.graph.graph import KnowledgeGraph
    from betae.graph.source import ReadReport
    from betae.graph.triples import Triples

# ---- ingest -------------------------------------------------------------------------------------

HeldOut = Annotated[str, typer.Option(help="A file, or the fraction of edges to hold out.")]


@app.command(
    "ingest",
    epilog=examples(
        "betae ingest facts.tsv --out graph",
        "betae ingest facts.nt.gz --valid 0.1 --test 0.1 --out graph",
        "betae ingest train.csv --valid valid.csv --test test.csv --labels names.tsv --out graph",
        "betae ingest FB15k-237-betae --out graph",
        "betae ingest facts.tsv --nodes people.csv --nodes cities.csv --out graph",
        "betae ingest trips.csv --columns from,mode,to --out graph",
        "betae ingest treats.tsv binds.tsv --header --out graph",
        "betae ingest shop.db --table bought --node-table customers --out graph",
        "betae ingest postgresql://host/shop --sql 'select a, kind, b from links' --out graph",
        "betae ingest bolt://localhost:7687 --key name --out graph",
        "betae ingest 's3://bucket/triples/*.parquet' --memory 4GB --out graph",
        "zcat facts.nt.gz | betae ingest - --format nt --out graph",
        "betae ingest more-facts.tsv --append --out graph",
        "betae ingest wrong-facts.tsv --remove --out graph",
    ),
)
def ingest_command(
    sources: Annotated[
        list[str],  # not Path: an address is a source too
        typer.Argument(
            help="Files of triples (.tsv .txt .csv .parquet, RDF: .nt .ttl .nq .trig .n3 .rdf "
            ".jsonld; also .gz), folders of such files, patterns, addresses (s3://, https://), - "
            "for standard input, or a folder in the BetaE release layout."
        ),
    ],
    target: Annotated[Path, typer.Option("--out", help="Folder of the graph.")],
    valid: HeldOut = "0",
    test: HeldOut = "0",
    labels: Annotated[
        Path | None, typer.Option(help="A file with two columns: name and label.")
    ] = None,
    nodes: Annotated[
        list[str],
        typer.Option(
            help="A table with a row for each entity and a column for each property (.tsv, .csv, "
            ".parquet); may be repeated."
        ),
    ] = [],  # noqa: B006  # typer reads it, nobody writes to it
    seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 0,
    overwrite: Overwrite = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add the edges to the existing graph.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the edges from the existing graph.")
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns of head, relation and tail: from,type,to; or of head and tail, in files "
            "of one relation: from,to. By name, or by number for a file without a header: 1,2,3."
        ),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(help="Relation of files without a column for it; default: their names."),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line names the columns; default: by its words.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="Column separator; default: tab in .tsv and .txt, comma in .csv."),
    ] = None,
    comment: Annotated[
        str | None, typer.Option(help="Skip lines that begin with this; default: skip none.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="File format (csv, nt, ...); default: by the ending.")
    ] = None,
    table: Annotated[
        list[str],
        typer.Option(help="Table of edges in a database; may be repeated."),
    ] = [],  # noqa: B006
    node_table: Annotated[
        list[str],
        typer.Option(help="Table in a database with a row for each entity; may be repeated."),
    ] = [],  # noqa: B006
    sql: Annotated[
        str | None, typer.Option(help="Query for edges in a database: 'select ...'.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Property that names the nodes of a Neo4j; default: Neo4j's ids."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="User of a database.")] = None,
    password_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the password; default for Neo4j: NEO4J_PASSWORD.",
            metavar="NAME",
        ),
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="Database of a Neo4j; default: its default database.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory limit, such as 4GB: sort on disk, for the same graph."),
    ] = None,
) -> None:
    """Read triples into a graph folder, or add them to one, or remove them from one."""
    from betae.datasets import read_sources
    from betae.datasets.release import is_release
    from betae.graph.delimited import parse_columns
    from betae.graph.graph import in_words
    from betae.graph.outofcore import ingest
    from betae.storage import check_writable, read_manifest

    is_change, is_split = append or remove, (valid, test) != ("0", "0")
    if is_change and (overwrite or is_split or any(Path(source).is_dir() for source in sources)):
        raise InvalidArgument(
            f"--{'append adds training' if append else 'remove removes'} edges from files: "
            "no folder, --valid, --test or --overwrite."
        )
    if remove and (append or labels is not None):
        raise InvalidArgument("--remove cannot be combined with --append or --labels.")
    if memory is not None and (is_change or labels is not None):
        raise InvalidArgument("--memory builds a new graph: no --append, --remove or --labels.")
    if memory is not None and any(map(is_release, sources)):
        raise InvalidArgument("A folder in the BetaE release layout is read without --memory.")
    before = open_graph(target) if is_change else None
    check_writable(target, overwrite or is_change)
    with err.status("Reading") as status:
        options: dict[str, Any] = {
            "valid": _file_or_fraction(valid),
            "test": _file_or_fraction(test),
            "nodes": nodes,
            "seed": seed,
            "columns": None if columns is None else parse_columns(columns),
            "relation": relation,
            "header": header,
            "delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
            "comment": comment,
            "format": format,
            "tables": table,
            "node_tables": node_table,
            "sql": sql,
            "key": key,
            "user": user,
            "password": _password(password_env),
            "database": database,
            "notify": lambda text: status.update(escape(text)),
        }
        if memory is not None:
            report = ingest(*sources, out=target, memory=memory, overwrite=overwrite, **options)
            lines = [in_words(read_manifest(target, "graph"))]
        else:
            triples = read_sources(*sources, labels=labels, **options)
            status.update("Building the adjacency")
            graph, lines = _build(triples, before, remove)
            status.update("Writing the graph")
            graph.save(target, overwrite or is_change)
            report = triples.report
            if triples.labels:  # a label may be of a name that was in the graph before
                unused = triples.labels.keys() - {*graph.entities, *graph.relations}
                report.labels_unused = len(unused)
            lines.append(repr(graph))
    for line in (*_reading_lines(report), *lines, f"written to {target}"):
        say(line)


def _password(variable: str | None) -> str | None:
    """Return the password in an environment variable; raise if it is not set."""
    if variable is not None and variable not in os.environ:
        raise InvalidArgument(f"The environment variable {variable} is not set.")
    return None if variable is None else os.environ[variable]


def _file_or_fraction(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _build(
    triples: Triples, before: KnowledgeGraph | None, remove: bool
) -> tuple[KnowledgeGraph, list[str]]:
    """Return the new or changed graph, and lines that say what changed."""
    from betae.graph.change import append_triples, remove_triples
    from betae.graph.graph import KnowledgeGraph

    if before is None:
        return KnowledgeGraph.from_triples(triples), []
    if not remove:
        graph = append_triples(before, triples)
        added, *released = (
            len(graph.written_ids[split]) - len(before.written_ids[split])
            for split in before.written_ids
        )
        return graph, [
            f"{added:>12,} training edges added, {-sum(released):,} of them held out before",
            f"{graph.num_entities - before.num_entities:>12,} new entities",
            f"{len(graph.relations) - len(before.relations):>12,} new relations",
        ]
    graph, report = remove_triples(before, triples)
    by_split = ", ".join(f"{count:,} {split}" for split, count in report.removed.items())
    lines = [f"{sum(report.removed.values()):>12,} edges removed ({by_split})"]
    if report.literals:
        lines.append(f"{report.literals:>12,} literals removed")
    if report.absent:
        lines.append(f"{report.absent:>12,} edges not found")
    lines += report.unknown
    if more := report.num_unknown - len(report.unknown):
        lines.append(f"{more:,} more names not found")
    return graph, lines


def _reading_lines(report: ReadReport) -> list[str]:
    """Lines that say what was read, skipped and dropped, and which rows were headers."""
    from betae.graph.names import printable

    counts = asdict(report)
    lines = [*map(printable, counts.pop("notes"))]
    for file, cells in counts.pop("headers").items():
        lines.append(printable(f"{file} has a header: {', '.join(cells)}"))
    for file, cells in counts.pop("doubtful_rows").items():
        lines.append(printable(f"{file}: the first line, {', '.join(cells)}, was read as a fact."))
        lines.append("If it is a header, name the columns with --columns, or add --header.")
    return lines + [
        f"{count:>12,} {what.replace('_', ' ')}" for what, count in counts.items() if count
    ]


# ---- info, entities, relations ------------------------------------------------------------------

Search = Annotated[str, typer.Option(help="Text in the name or a label, in upper or lower case.")]
Limit = Annotated[int | None, typer.Option(help="Maximum number to list.", min=1)]


@app.command(epilog=examples("betae info graph --json"))
def info(
    graph: GraphOrRun,
    as_json: AsJson = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check all checksums, also of a large graph.")
    ] = False,
) -> None:
    """Describe a graph: entities, relations, edges per split, degrees, frequent relations."""
    from betae.cli.show import draw_description
    from betae.graph.describe import describe_graph

    opened = open_graph(graph, verify=verify or None)
    description = describe_graph(opened)
    if as_json:
        print_json(asdict(description), indent=2)
    else:
        out.print(draw_description(description, opened, title=escape(str(graph))))


@app.command(epilog=examples("betae entities graph --search paris"))
def entities(
    graph: GraphOrRun, search: Search = "", limit: Limit = 20, as_json: AsJson = False
) -> None:
    """List the entities of a graph by number of edges, or search for some."""
    _list_names("entities", graph, search, limit, as_json)


@app.command(epilog=examples("betae relations graph --search located"))
def relations(
    graph: GraphOrRun, search: Search = "", limit: Limit = None, as_json: AsJson = False
) -> None:
    """List the relations of a graph by number of edges, or search for some."""
    _list_names("relations", graph, search, limit, as_json)


def _list_names(kind: str, folder: Path, search: str, limit: int | None, as_json: bool) -> None:
    """Print names with their labels, edge counts and examples."""
    from betae.cli.show import draw_names
    from betae.graph.describe import list_entities, list_relations

    graph = open_graph(folder)
    is_entities = kind == "entities"
    listed, num_found = (list_entities if is_entities else list_relations)(graph, search, limit)
    if as_json:
        print_json([_as_json(each, not is_entities) for each in listed], indent=2)
    elif listed:
        out.print(draw_names(listed, graph))
        if num_found > len(listed):
            say(f"{len(listed):,} of {num_found:,} {kind}; list more with --limit")
    else:
        names = graph.entities if is_entities else graph.relations
        closest = ", ".join(map(repr, names.closest(search, graph.prefixes)))
        hint = f" Closest: {closest}." if closest else ""
        say(f"No {kind} with {search!r} in the name or a label.{hint}")


def _as_json(listed: Listed, is_relation: bool) -> dict[str, object]:
    labels = [{"text": label.text, "language": label.language} for label in listed.labels]
    found = {**asdict(listed), "labels": labels}
    symmetry = {"reversed": found.pop("reversed"), "loops": found.pop("loops")}
    return {**found, **symmetry, "symmetric": listed.is_symmetric} if is_relation else found


# ---- export -------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        "betae export graph all.csv",
        "betae export graph all.nt.gz",
        "betae export graph - --format ttl | less",
        "betae export graph for-neo4j --format neo4j",
    )
)
def export(
    graph: GraphOrRun,
    file: Annotated[
        Path,
        typer.Argument(
            help="File to write: .tsv, .csv, .parquet, .jsonl, .nt or .ttl, all but .parquet also "
            "with .gz; - for standard output; a folder with --format neo4j."
        ),
    ],
    split: Annotated[
        Literal["train", "valid", "test", "all"], typer.Option(help="Edges to write.")
    ] = "all",
    format: Annotated[
        str | None,
        typer.Option(help="File format, or neo4j; default: by the ending, tsv for -."),
    ] = None,
) -> None:
    """Write the edges of a graph by name; as RDF, JSON Lines or for Neo4j, with all literals."""
    from betae.graph.edges import SPLITS
    from betae.graph.writing import holds_literals

    opened = open_graph(graph)
    for each in opened.export(file, SPLITS if split == "all" else (split,), format):
        note(each)
    if opened.literals.size and not holds_literals(file, format):
        note(
            f"{opened.literals.size:,} literals were not written: .jsonl, .nt, .ttl and "
            "--format neo4j hold them."
        )
