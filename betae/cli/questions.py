"""Questions: demo, answer, index."""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from betae.cli.common import AsJson, MovedGraph, RunPath, app, err, note, out, say, warn
from betae.errors import InvalidArgument, QueryError, UnresolvedName

if TYPE_CHECKING:
    from betae.answering.results import Answers
    from betae.graph.graph import KnowledgeGraph

CSV_COLUMNS = ("query", "entity", "label", "rank", "probability", "status", "score")
KnownEdges = Annotated[
    Literal["train", "train+valid", "all"], typer.Option(help="The edges that count as known.")
]

NumAnswers = Annotated[
    int | None,
    typer.Option("-k", help="Number of answers; default: 10, or SPARQL's LIMIT.", min=1),
]


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option("--out", help="Where the trained run is kept, for the next time.")
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
    run: RunPath,
    question: Annotated[
        str | None,
        typer.Argument(help="Logic text, a SPARQL SELECT, or a file that holds either."),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(help="A file of questions in logic text, one per line; - for stdin."),
    ] = None,
    k: NumAnswers = None,
    only: Annotated[
        Literal["known", "assumed", "predicted"] | None,
        typer.Option(help="Leave out the others; assumed: known unless a fact is missing."),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Leave out answers less probable than this.", min=0, max=1)
    ] = 0.0,
    method: Annotated[
        Literal["completed", "embedding"],
        typer.Option(help="From the completed graph, or by distance from the embedded question."),
    ] = "completed",
    union: Annotated[
        Literal["DNF", "DM"],
        typer.Option(help="By embedding: how unions are computed, see docs/models.md."),
    ] = "DNF",
    edges: KnownEdges = "all",
    explain: Annotated[bool, typer.Option("--explain", help="Say why.")] = False,
    form: Annotated[
        Literal["table", "jsonl", "csv"], typer.Option("--format", help="How to print them.")
    ] = "table",
    graph: MovedGraph = None,
    use_index: Annotated[
        bool, typer.Option("--index", help="By embedding: search the index of betae index build.")
    ] = False,
) -> None:
    """Answer a question: ranked entities, known or predicted, how probable, and why."""
    lines = _read_questions(question, queries)
    from betae.run import Run  # not before the questions can be read: it imports torch

    with err.status("Opening the run") as status:
        answerer = Run.open(run, graph).answerer(
            edges, method=method, use_index=use_index, union=union, say=status.update
        )
    _warn_of_method(answerer.ranker.method, method, use_index, explain)

    def results() -> Iterator[Answers]:
        for place, line in lines:
            try:
                yield answerer.answer(line, k, status=only, threshold=threshold, explain=explain)
            except (InvalidArgument, QueryError, UnresolvedName) as error:
                if not place:
                    raise
                raise InvalidArgument(f"{place}: {error}") from error

    _print_answers(results(), form, answerer.graph)


def _warn_of_method(method: str, wanted: str, use_index: bool, explain: bool) -> None:
    """Say if answers do not come as they were asked for."""
    if method != wanted and not use_index:
        warn(
            "the graph has no validation edges to fit probabilities on, so answers are ranked by "
            "embedding, without probabilities. Ingest it with --valid 0.05, say, and train again."
        )
    elif explain and method == "embedding":
        warn("--explain needs the completed graph: leave out --method embedding and --index.")


def _read_questions(question: str | None, file: str | None) -> list[tuple[str, str]]:
    """Return the one question, or those of a file, each with its place in the file."""
    from betae.queries.read import read_query, text_or_file

    if question is None and file is None:
        raise InvalidArgument("Give a question, or --queries with a file of them.")
    if question is not None and file is not None:
        raise InvalidArgument("Give a question or --queries, not both.")
    if question is None:
        return _read_lines(file or "")
    text = text_or_file(question)
    read_query(text, defaultdict(str))  # any prefix will do: the graph may know it
    return [("", text)]


def _print_answers(results: Iterable[Answers], form: str, graph: KnowledgeGraph) -> None:
    """Print each result as soon as it is there: as a table, a line of JSON, or rows of CSV."""
    from betae.cli.show import draw_answers
    from betae.exact.direction import hint_of_direction

    writer = csv.writer(sys.stdout)
    if form == "csv":
        writer.writerow(CSV_COLUMNS)
    for result in results:
        if form == "jsonl":
            print(json.dumps(result.to_json(), ensure_ascii=False))
        elif form == "csv":
            for answer in result:
                cells = [getattr(answer, column) for column in CSV_COLUMNS[1:]]
                writer.writerow([result.query, *cells])
        else:
            out.print(Text(result.query), soft_wrap=True)
            out.print(draw_answers(result))
        if not result.num_known and (hint := hint_of_direction(graph, result.query, result.edges)):
            note(hint)


def _read_lines(source: str) -> list[tuple[str, str]]:
    """Read the questions in a file, or in standard input, each with its place.

    Empty lines and those that begin with # are skipped.
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


@app.command(
    epilog="Examples:\n\n"
    "  betae complete run --out missing.tsv\n\n"
    "  betae complete run --relation capital --above 0.3 --out capitals.nt\n\n"
    "  betae complete run --entity Austria --above 0.2"
)
def complete(
    run: RunPath,
    relation: Annotated[str | None, typer.Option(help="Only edges of this relation.")] = None,
    entity: Annotated[
        str | None, typer.Option(help="Only edges of this entity, judged from its end.")
    ] = None,
    above: Annotated[
        float, typer.Option(help="Only edges more probable than this.", min=0, max=1)
    ] = 0.5,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out", help="A .tsv, .parquet or .nt file; without one the best are printed."
        ),
    ] = None,
    edges: KnownEdges = "all",
    graph: MovedGraph = None,
) -> None:
    """List the edges that the graph most probably lacks, and what speaks for each."""
    from betae.answering.edge_files import check_format, write_edges

    if target is not None:
        check_format(target)

    from betae.cli.progress import showing_work
    from betae.cli.show import draw_edges
    from betae.run import Run

    opened = Run.open(run, graph)
    with showing_work(err, True, "opening the run") as progress:
        found = opened.missing_edges(
            relation=relation,
            entity=entity,
            above=above,
            edges=edges,
            progress=lambda done, total: progress("trying edges", done, total),
        )
    if target is None:
        out.print(draw_edges(found, opened.graph))
    else:
        write_edges(found, target)
        say(f"{len(found):,} missing edges written to {target}")


index_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Search the entities of a run approximately but faster, or in a vector database.",
)
app.add_typer(index_app, name="index")


def _warn_of_recall(kind: str, recall: float) -> None:
    from betae.search.approximate import GOOD_RECALL

    if recall < GOOD_RECALL:
        warn(
            f"{kind} finds only {recall:.1%} of the 10 nearest entities, less than "
            f"{GOOD_RECALL:.0%}: search exactly, or choose another --kind."
        )


@index_app.command("build", epilog="Example:  betae index build run")
def build_index(
    run: RunPath,
    kind: Annotated[
        Literal["ivf", "hnsw", "lsh"] | None,
        typer.Option(help="ivf or lsh for BetaE, hnsw or lsh for the others."),
    ] = None,
    graph: MovedGraph = None,
) -> None:
    """Build an approximate index of the entities, for `betae answer --index`."""
    from betae.run import Run

    with err.status("Opening the run") as status:
        index = Run.open(run, graph).build_index(kind, status.update)
    say(f"{index.kind}: recall@10 {index.recall:.3f} against exact search")
    say(f"written to {run}: betae answer --index")
    _warn_of_recall(index.kind, index.recall)


@index_app.command("bench", epilog="Example:  betae index bench run --json")
def bench_index(
    run: RunPath,
    graph: MovedGraph = None,
    as_json: AsJson = False,
) -> None:
    """Measure each kind of index on the run: recall@10 and speed against exact search."""
    from betae.cli.show import draw_speeds
    from betae.run import Run

    with err.status("Opening the run") as status:
        speeds = Run.open(run, graph).bench_indexes(status.update)
    if as_json:
        print(json.dumps([asdict(speed) for speed in speeds]))
    else:
        out.print(draw_speeds(speeds))
    for speed in speeds:
        _warn_of_recall(speed.name, speed.recall)


@index_app.command(
    "export",
    epilog="Examples:\n\n  betae index export run entities.parquet\n\n"
    "  betae index export run entities.npy",
)
def export_index(
    run: RunPath,
    file: Annotated[Path, typer.Argument(help="File to write: .parquet or .npy.")],
    graph: MovedGraph = None,
) -> None:
    """Write the search vectors of all entities, for a vector database."""
    from betae.run import Run

    model, width = Run.open(run, graph).export_vectors(file)
    say(f"{model.num_entities:,} vectors of {width} numbers written to {file}")
    say(f"nearest by {model.metric}: see docs/answers.md")
