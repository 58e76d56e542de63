"""Graphs and queries: info, entities, relations, explain, sample."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from betae.cli.common import AsJson, GraphPath, Overwrite, app, err, existing_folder, out, say


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
    from betae.queries.read import read_query_or_file
    from betae.queries.rewrite import dnf_branches, explain_negation

    tree = read_query_or_file(query)
    if graph is None:
        out.print(draw_tree(tree))
    else:
        opened = KnowledgeGraph.open(graph)
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
