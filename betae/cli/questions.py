"""Questions: demo, answer, index."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from betae.cli.common import AsJson, MovedGraph, Run, app, err, out, say
from betae.errors import InvalidArgument, QueryError, UnresolvedName

if TYPE_CHECKING:
    from betae.answering.results import Answers
    from betae.queries.ast import Query


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option("--out", help="Where the trained run is kept, and found again.")
    ] = Path("betae-demo"),
) -> None:
    """Train on the bundled graph `world` and answer a question about it, in about a minute."""
    from betae.cli.demo import run_demo

    run_demo(out, folder)


@app.command(
    epilog="Examples:\n\n"
    "  betae answer run '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)' --explain\n\n"
    "  betae answer run query.rq --only predicted -k 20 --format csv\n\n"
    "  betae answer run --queries questions.txt --format jsonl\n\n"
    "  echo '?X . capital(France, ?X)' | betae answer run --queries -"
)
def answer(
    run: Run,
    question: Annotated[
        str | None,
        typer.Argument(help="Logic text, or a SPARQL SELECT, or a file that holds either."),
    ] = None,
    queries: Annotated[
        str | None, typer.Option(help="A file of questions in logic text, one a line; - for stdin.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many answers.")] = 10,
    only: Annotated[str | None, typer.Option(help="known or predicted.")] = None,
    threshold: Annotated[float, typer.Option(help="Least probability.")] = 0.0,
    union: Annotated[str, typer.Option(help="DNF or DM: how unions are taken.")] = "DNF",
    edges: Annotated[
        str, typer.Option(help="The facts that count as known: train, train+valid or all.")
    ] = "train",
    explain: Annotated[bool, typer.Option("--explain", help="Say why.")] = False,
    form: Annotated[str, typer.Option("--format", help="table, jsonl or csv.")] = "table",
    graph: MovedGraph = None,
    use_index: Annotated[
        bool, typer.Option("--index", help="Search by the index of the run: betae index build.")
    ] = False,
) -> None:
    """Answer a question: ranked entities, known or predicted, how sure, and why."""
    from typing import Any, cast

    from betae.checks import check_choice
    from betae.cli.print_answers import print_answers
    from betae.queries.read import read_query_or_file
    from betae.run import Run

    check_choice("--format", form, ("table", "jsonl", "csv"))
    if (question is None) == (queries is None):
        raise InvalidArgument("Give a question, or --queries with a file of them.")
    lines: list[tuple[str, str | Query]] = (
        [("", read_query_or_file(question))]
        if question is not None
        else [*_read_lines(cast(str, queries))]
    )
    with err.status("Opening the run") as status:
        opened = Run.open(run, graph)
        answerer = opened.answerer(cast(Any, edges), use_index=use_index, say=status.update)

    def results() -> Iterator[Answers]:
        for place, line in lines:
            try:
                yield answerer.answer(
                    line,
                    k,
                    status=cast(Any, only),
                    threshold=threshold,
                    union=cast(Any, union),
                    explain=explain,
                )
            except (InvalidArgument, QueryError, UnresolvedName) as error:
                if not place:
                    raise
                raise InvalidArgument(f"{place}: {error}") from error

    print_answers(results(), form, out)


def _read_lines(source: str) -> list[tuple[str, str]]:
    """Read the questions of a file, or of standard input, each with its place.

    Empty lines and those that begin with # are left out.
    """
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{source} cannot be read: {error}.") from error
    return [
        (f"{source}, line {number}", line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]


index_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Search the entities of a run faster than exactly, or elsewhere.",
)
app.add_typer(index_app, name="index")


def _warn_of_recall(kind: str, recall: float) -> None:
    from betae.search.approximate import GOOD_RECALL

    if recall < GOOD_RECALL:
        err.print(
            f"[bold red]Warning:[/bold red] {kind} finds only {recall:.1%} of the 10 nearest "
            f"entities, less than {GOOD_RECALL:.0%}: search exactly, or choose another --kind.",
            highlight=False,
        )


@index_app.command("build", epilog="Example:  betae index build run")
def build_index(
    run: Run,
    kind: Annotated[
        str | None, typer.Option(help="ivf or lsh for BetaE, hnsw or lsh for the others.")
    ] = None,
    graph: MovedGraph = None,
) -> None:
    """Build an approximate index of the entities, for `betae answer --index`."""
    from typing import Any, cast

    from betae.run import Run

    with err.status("Opening the run") as status:
        index = Run.open(run, graph).build_index(cast(Any, kind), status.update)
    say(f"{index.kind}: recall@10 {index.recall:.3f} against exact search")
    say(f"written to {run}: betae answer --index")
    _warn_of_recall(index.kind, index.recall)


@index_app.command("bench", epilog="Example:  betae index bench run --json")
def bench_index(
    run: Run,
    graph: MovedGraph = None,
    as_json: AsJson = False,
) -> None:
    """Measure each kind of index on the run: recall@10 and speed against exact search."""
    from rich.table import Table

    from betae.run import Run
    from betae.search.approximate import KINDS, measure, typical_queries
    from betae.search.approximate import build_index as build

    with err.status("Opening the run") as status:
        opened = Run.open(run, graph)
        name, model = opened.model_folder.name, opened.model()
        table, queries = model.table(), typical_queries(model, opened.graph)
        kinds = KINDS[model.metric]
        indexes = [build(model, table, queries, name, kind, status.update) for kind in kinds]
        status.update("Searching")
        fresh = typical_queries(
            model, opened.graph, seed=1
        )  # not those that the effort was found with
        speeds = measure(model, table, fresh, indexes)
    if as_json:
        print(json.dumps([asdict(speed) for speed in speeds]))
    else:
        shown = Table(box=None, padding=(0, 2))
        for column in ("search", "ms a query", "times exact", "recall@10"):
            shown.add_column(column, justify="left" if column == "search" else "right")
        for speed in speeds:
            faster = speeds[0].milliseconds / speed.milliseconds
            times = f"{speed.milliseconds:.2f}", f"{faster:.1f}", f"{speed.recall:.3f}"
            shown.add_row(speed.name, *times)
        out.print(shown)
    for speed in speeds:
        _warn_of_recall(speed.name, speed.recall)


@index_app.command(
    "export",
    epilog="Examples:\n\n  betae index export run entities.parquet\n\n"
    "  betae index export run entities.npy",
)
def export_index(
    run: Run,
    file: Annotated[Path, typer.Argument(help="File to write: .parquet or .npy.")],
    graph: MovedGraph = None,
) -> None:
    """Write the search vectors of all entities, for a vector database."""
    from betae.run import Run
    from betae.search.export import export_vectors

    opened = Run.open(run, graph)
    model = opened.model()
    width = export_vectors(model, model.table(), opened.graph, file)
    say(f"{model.num_entities:,} vectors of {width} numbers written to {file}")
    say(f"nearest by {model.metric}: see docs/answers.md")
