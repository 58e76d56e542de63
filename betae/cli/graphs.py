"""Graphs and queries: info, entities, relations, explain, sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from betae.cli.common import (
    AsJson,
    GraphPath,
    Overwrite,
    RayAddress,
    SharedGraph,
    app,
    err,
    existing_folder,
    on_ray,
    out,
    print_json,
    say,
)
from betae.errors import UnresolvedName

if TYPE_CHECKING:
    from rich.table import Table

    from betae.graph.describe import Listed

Search = Annotated[
    str, typer.Option(help="Only those with this text in the name or a label, in any case.")
]
Limit = Annotated[int | None, typer.Option(help="How many to list.", min=1)]


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
        print_json(asdict(description), indent=2)
    else:
        out.print(draw_description(description, title=escape(str(graph))))


@app.command(epilog="Example:  betae entities graph --search paris")
def entities(
    graph: GraphPath, search: Search = "", limit: Limit = 20, as_json: AsJson = False
) -> None:
    """List the entities of a graph, those with the most edges first, or search for some."""
    from betae.graph.describe import list_entities
    from betae.graph.graph import KnowledgeGraph

    opened = KnowledgeGraph.open(graph)
    found = list_entities(opened, search, limit)
    if not found[0] and not as_json:
        _say_none_found("entity", search, opened.entity_id)
    else:
        _print_names(*found, "entities", opened.prefixes, as_json)


@app.command(epilog="Example:  betae relations graph --search located")
def relations(
    graph: GraphPath, search: Search = "", limit: Limit = None, as_json: AsJson = False
) -> None:
    """List the relations of a graph, the most frequent first, or search for some."""
    from betae.graph.describe import list_relations
    from betae.graph.graph import KnowledgeGraph

    opened = KnowledgeGraph.open(graph)
    found = list_relations(opened, search, limit)
    if not found[0] and not as_json:
        _say_none_found("relation", search, opened.relation_id)
    else:
        _print_names(*found, "relations", opened.prefixes, as_json)


def _print_names(
    listed: Sequence[Listed], number: int, kind: str, prefixes: Mapping[str, str], as_json: bool
) -> None:
    """Print names with their labels, edges and examples; say if there are more."""
    if as_json:
        print_json(_as_json(listed), indent=2)
        return
    out.print(_draw_names(listed, prefixes))
    if number > len(listed):
        say(f"{len(listed):,} of {number:,} {kind}; --limit shows more")


def _as_json(listed: Sequence[Listed]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "labels": [{"text": label.text, "language": label.language} for label in each.labels],
            "edges": each.edges,
            "examples": each.examples,
        }
        for each in listed
    ]


def _say_none_found(kind: str, search: str, look_up: Callable[[str], int]) -> None:
    """Say that nothing has the text in its name, and offer what looks like it."""
    closest: Sequence[str] = ()
    try:
        look_up(search)
    except UnresolvedName as error:
        closest = getattr(error, "closest", ())
    hint = f" Closest: {', '.join(map(repr, closest))}." if closest else ""
    say(f"No {kind} has {search!r} in its name or a label.{hint}")


def _draw_names(listed: Sequence[Listed], prefixes: Mapping[str, str]) -> Table:
    """Lay out names with their labels, numbers of edges and examples."""
    from rich.table import Table
    from rich.text import Text

    from betae.graph.names import printable, shorten

    def shown(name: str) -> str:
        return printable(shorten(name, prefixes))

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("edges", justify="right")
    table.add_column("name", overflow="fold")
    has_labels = any(each.labels for each in listed)
    if has_labels:
        table.add_column("labels", overflow="fold")
    table.add_column("for example", overflow="fold", style="dim")
    for each in listed:
        labels = [printable(", ".join(label.text for label in each.labels))] if has_labels else []
        examples = "; ".join(
            f"{shown(relation)}({shown(head)}, {shown(tail)})"
            for head, relation, tail in each.examples
        )
        cells = [shown(each.name), *labels, examples]
        table.add_row(f"{each.edges:,}", *map(Text, cells))
    return table


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


SampledStructures = Annotated[
    list[str] | None,
    typer.Argument(
        help="Structures, each as NAME or NAME:COUNT; the paper's names, or logic text with _ "
        "for placeholders. Default: those that the paper trains on, or tests on.",
        metavar="[STRUCTURE...]",
    ),
]
SamplingRules = Annotated[
    Literal["paper", "release"],
    typer.Option(
        help="paper: the limit is on all answers. release: as in the sets released with the "
        "paper, it is on the hard ones, and queries with negation lose an answer."
    ),
]
MissingEdges = Annotated[
    str | None,
    typer.Option(
        help="For valid and test: only answers that need so many missing edges are hard, or, with "
        "all, those for which every edge is missing.",
        metavar="N|all",
    ),
]


@app.command(
    epilog="Examples:\n\n"
    "  betae sample graph --out train-queries\n\n"
    "  betae sample graph --split test --count 5000 --rules release --out test-queries\n\n"
    "  betae sample graph --split test --missing all --out hard-queries\n\n"
    "  betae sample graph --count 100000 --out train-queries --ray auto\n\n"
    "  betae sample graph 2p:1000 '?X . located_in(?X, Europe) & !_(_, ?X):50' --out queries"
)
def sample(
    graph: SharedGraph,
    target: Annotated[Path, typer.Option("--out", help="Folder to write the query set to.")],
    structures: SampledStructures = None,
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
    rules: SamplingRules = "paper",
    missing: MissingEdges = None,
    as_pickles: Annotated[
        bool, typer.Option("--pickles", help="Write the release's pickles instead.")
    ] = False,
    ray: RayAddress = None,
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
    number = int(missing) if missing and missing.isdecimal() else missing
    with on_ray(ray) as cluster, showing_counts(err, counts) as progress:
        queries = sample_queries(
            KnowledgeGraph.open(graph),
            counts,
            split,
            seed=seed,
            max_answers=max_answers,
            rules=rules,
            missing=number,  # type: ignore[arg-type]  # it is checked there
            cluster=cluster,
            progress=progress,
        )
        if as_pickles:
            write_release_queries(queries, target, overwrite)
        else:
            queries.save(target, overwrite)
    out.print(draw_report(queries))
    if left_out := queries.origin.get("left_out"):
        say(f"left out, for no answer can need so many missing edges: {', '.join(left_out)}")
    say(f"{len(queries):,} queries written to {target}")
