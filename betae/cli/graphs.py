"""Graphs and queries: ingest, export, info, explain, sample."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from betae.cli.common import AsJson, GraphPath, Overwrite, app, err, existing_folder, out, say
from betae.errors import InvalidArgument

if TYPE_CHECKING:
    from betae.graph.graph import KnowledgeGraph
    from betae.graph.triples import Triples


@app.command(
    epilog="Examples:\n\n"
    "  betae ingest facts.tsv --out graph\n\n"
    "  betae ingest facts.nt.gz --valid 0.1 --test 0.1 --out graph\n\n"
    "  betae ingest train.csv --valid valid.csv --test test.csv --labels names.tsv --out graph\n\n"
    "  betae ingest FB15k-237-betae --out graph\n\n"
    "  betae ingest more-facts.tsv --append --out graph"
)
def ingest(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Files of triples (.tsv .txt .csv .parquet, RDF: .nt .ttl .nq .trig .n3 .rdf "
            ".jsonld; also .gz), or one folder in the BetaE release layout.",
            metavar="SOURCE...",
        ),
    ],
    target: Annotated[Path, typer.Option("--out", help="Folder of the graph.")],
    valid: Annotated[str, typer.Option(help="A file, or a fraction to split off.")] = "0",
    test: Annotated[str, typer.Option(help="A file, or a fraction to split off.")] = "0",
    labels: Annotated[
        Path | None, typer.Option(help="Two columns: name and human-readable label.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 0,
    overwrite: Overwrite = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add the edges to the graph that is there.")
    ] = False,
) -> None:
    """Turn files of triples into a graph folder, or add them to one."""
    from betae.graph.append import append_triples
    from betae.graph.graph import KnowledgeGraph
    from betae.storage import check_writable

    if append and (overwrite or (valid, test) != ("0", "0") or any(map(Path.is_dir, sources))):
        raise InvalidArgument(
            "--append adds files of training edges: no folder, --valid, --test or --overwrite."
        )
    before = KnowledgeGraph.open(target) if append else None
    check_writable(target, overwrite or append)
    with err.status("Reading") as status:
        triples = _read(
            sources,
            valid=_file_or_fraction(valid),
            test=_file_or_fraction(test),
            labels=labels,
            seed=seed,
            blank_node_prefix=f"append{len(before.ancestors) + 1}." if before else "",
            say=lambda text: status.update(escape(text)),
        )
        status.update("Sorting the adjacency")
        graph = (
            KnowledgeGraph.from_triples(triples)
            if before is None
            else append_triples(before, triples)
        )
        status.update("Writing the graph")
        graph.save(target, overwrite or append)
    if triples.labels:  # a label may be of a name that was there before
        unused = triples.labels.keys() - {*graph.entities, *graph.relations}
        triples.report.labels_unused = len(unused)
    _show_report(triples, graph, before)
    say(f"{graph!r}\nwritten to {target}")


def _read(sources: list[Path], labels: Path | None, **options: Any) -> Triples:
    """Read one folder of a release, or files of triples."""
    from betae.datasets.release import is_release, read_release
    from betae.graph.triples import read_triples

    if len(sources) > 1 or not sources[0].is_dir():
        return read_triples(*sources, labels=labels, **options)
    if not is_release(sources[0]):
        raise InvalidArgument(
            f"{sources[0]} is a folder without id2ent.pkl. Name the files of triples."
        )
    return read_release(sources[0], labels)


def _show_report(triples: Triples, graph: KnowledgeGraph, before: KnowledgeGraph | None) -> None:
    """Say what was read and dropped, and what was added to the graph that was there before."""
    for what, count in asdict(triples.report).items():
        if count:
            say(f"{count:>12,} {what.replace('_', ' ')}")
    if before is not None:
        added = len(graph.splits["train"]) - len(before.splits["train"])
        held_out = [
            len(before.splits[split]) - len(graph.splits[split]) for split in ("valid", "test")
        ]
        say(f"{added:>12,} training edges added, {sum(held_out):,} of them held out before")
        say(f"{graph.num_entities - before.num_entities:>12,} entities are new")
        say(f"{len(graph.relations) - len(before.relations):>12,} relations are new")


def _file_or_fraction(text: str) -> Path | float:
    try:
        return float(text)
    except ValueError:
        return Path(text)


@app.command(epilog="Example:  betae export graph all.csv")
def export(
    graph: GraphPath,
    file: Annotated[Path, typer.Argument(help="File to write: .tsv, .csv or .parquet.")],
    split: Annotated[
        Literal["train", "valid", "test", "all"], typer.Option(help="Which edges to write.")
    ] = "all",
) -> None:
    """Write the edges of a graph by name."""
    from betae.graph.edges import SPLITS
    from betae.graph.graph import KnowledgeGraph

    splits = SPLITS if split == "all" else (split,)
    KnowledgeGraph.open(graph).export(file, splits)


@app.command(epilog="Example:  betae info graph --json")
def info(
    graph: GraphPath,
    as_json: AsJson = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every checksum, however large the graph is.")
    ] = False,
) -> None:
    """Describe a graph: entities, relations, edges per split, degrees, frequent relations."""
    from betae.cli.show import draw_description
    from betae.graph.describe import describe_graph
    from betae.graph.graph import KnowledgeGraph

    description = describe_graph(KnowledgeGraph.open(graph, verify=verify or None))
    if as_json:
        print(json.dumps(asdict(description), ensure_ascii=False, indent=2))
    else:
        out.print(draw_description(description, title=escape(str(graph))))


@app.command(
    epilog="Examples:\n\n"
    "  betae explain '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)'\n\n"
    "  betae explain query.rq --graph graph"
)
def explain(
    query: Annotated[
        str,
        typer.Argument(help="Logic text, a SPARQL SELECT, or a file that holds either."),
    ],
    graph: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a graph: look the names up there and show the exact answers.",
            callback=existing_folder,
        ),
    ] = None,
) -> None:
    """Draw the computation tree of a query and its normal forms."""
    from betae.cli.show import draw_tree, with_exact_answers
    from betae.graph.graph import KnowledgeGraph
    from betae.queries.names import resolve
    from betae.queries.read import read_query, text_or_file
    from betae.queries.rewrite import dnf_branches, explain_negation

    opened = None if graph is None else KnowledgeGraph.open(graph)
    tree = read_query(text_or_file(query), opened.prefixes if opened else {})
    if opened is None:
        out.print(draw_tree(tree))
    else:
        resolve(tree, opened)
        out.print(draw_tree(tree, with_exact_answers(opened)))
    say(f"\n{tree}")
    branches = dnf_branches(tree)
    if len(branches) > 1:
        out.print(f"\nAs a union of {len(branches)} queries:")
        for branch in branches:
            say(f"  {branch}")
    if meaning := explain_negation(tree):
        out.print(f"\n[yellow]Note:[/yellow] {meaning}")


@app.command(
    epilog="Examples:\n\n"
    "  betae sample graph --out train-queries\n\n"
    "  betae sample graph --split test --count 5000 --rules release --out test-queries\n\n"
    "  betae sample graph 2p:1000 '?X . located_in(?X, Europe) & !_(_, ?X):50' --out queries"
)
def sample(
    graph: GraphPath,
    target: Annotated[Path, typer.Option("--out", help="Folder to write the query set to.")],
    structures: Annotated[
        list[str] | None,
        typer.Argument(
            help="Structures, each as NAME or NAME:COUNT; the paper's names, or logic text with _ "
            "for placeholders. Default: those that the paper trains on, or tests on.",
            metavar="[STRUCTURE...]",
        ),
    ] = None,
    split: Annotated[
        Literal["train", "valid", "test"], typer.Option(help="What the queries are for.")
    ] = "train",
    count: Annotated[
        int, typer.Option(help="Queries per structure without a COUNT.", min=1)
    ] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same set.", min=0)] = 0,
    max_answers: Annotated[
        int | None,
        typer.Option(help="Limit on the answers of a query; for valid and test 100.", min=1),
    ] = None,
    rules: Annotated[
        Literal["paper", "release"],
        typer.Option(
            help="paper: the limit is on all answers. release: as in the sets released with the "
            "paper, it is on the hard ones, and queries with negation lose an answer."
        ),
    ] = "paper",
    as_pickles: Annotated[
        bool, typer.Option("--pickles", help="Write the release's pickles instead.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Sample queries with their answers from a graph."""
    from betae.cli.progress import showing_counts
    from betae.cli.show import draw_report
    from betae.datasets.release_queries import write_release_queries
    from betae.graph.graph import KnowledgeGraph
    from betae.querysets.sample import parse_counts, sample_queries
    from betae.storage import check_writable

    check_writable(target, overwrite)
    counts = parse_counts(structures or [], split, count)
    with showing_counts(err, counts) as progress:
        queries = sample_queries(
            KnowledgeGraph.open(graph),
            counts,
            split,
            seed=seed,
            max_answers=max_answers,
            rules=rules,
            progress=progress,
        )
        if as_pickles:
            write_release_queries(queries, target, overwrite)
        else:
            queries.save(target, overwrite)
    out.print(draw_report(queries))
    say(f"{len(queries):,} queries written to {target}")
