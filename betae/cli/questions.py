"""Questions: demo, answer, complete."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from betae.cli.common import (
    AnyQuestion,
    QuestionFile,
    RayAddress,
    SharedMovedGraph,
    SharedRun,
    app,
    err,
    escape_controls,
    note,
    on_ray,
    out,
    print_json,
    say,
    warn,
)
from betae.cli.question_files import (
    Question,
    answer_all,
    check_ray,
    check_syntax,
    end,
    read_questions,
    show_all,
)
from betae.errors import InvalidArgument

if TYPE_CHECKING:
    from betae.answering.answerer import Answerer
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
    "  betae answer run --queries questions.txt --format jsonl --ray auto\n\n"
    "  echo '?X . capital(France, ?X)' | betae answer run --queries -"
)
def answer(
    run: SharedRun,
    question: AnyQuestion = None,
    queries: QuestionFile = None,
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
        Literal["table", "jsonl", "csv"] | None,
        typer.Option("--format", help="How to print them.", show_default="table"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
    graph: SharedMovedGraph = None,
    use_index: Annotated[
        bool, typer.Option("--index", help="Search the indexes of betae index build.")
    ] = False,
    ray: RayAddress = None,
) -> None:
    """Answer a question: ranked entities, known or predicted, how probable, and why."""
    if as_json and form not in (None, "jsonl"):
        raise InvalidArgument(f"Give --json or --format {form}, not both.")
    check_ray(ray, queries)
    questions = read_questions(question, queries)
    check_syntax(questions)
    with on_ray(ray) as cluster:
        from betae.run import Run  # not before the questions can be read: it imports torch

        with err.status("Opening the run") as status:
            opened = Run.open(run, graph)
            load = partial(opened.answerer, edges, method=method, use_index=use_index, union=union)
            answerer = load(say=status.update)  # here too: what must be fitted is fitted once
        _warn_of_method(answerer.ranker.method, method, explain)
        options = {"k": k, "status": only, "threshold": threshold, "explain": explain}
        open_answer = partial(_open_answer, load if cluster else lambda: answerer, options)
        printer = _Printer("jsonl" if as_json else form or "table", explain, answerer.graph)
        write_json = print_json if printer.form == "jsonl" else None
        results = answer_all(open_answer, questions, cluster)
        num_bad = show_all(results, printer.answers, write_json)
    end(num_bad, questions)


def _open_answer(load: Callable[[], Answerer], options: dict[str, Any]) -> Callable[[str], Answers]:
    return partial(load().answer, **options)


def _warn_of_method(method: str, wanted: str, explain: bool) -> None:
    """Say if answers do not come as they were asked for."""
    if method != wanted:
        warn(
            "the graph has no validation edges to fit probabilities on, so answers are ranked by "
            "embedding, without probabilities. Ingest it with --valid 0.05, say, and train again."
        )
    elif explain and method == "embedding":
        warn("--explain needs the completed graph: leave out --method embedding.")


class _Printer:
    """Prints each result as soon as it is there: as a table, a line of JSON, or rows of CSV."""

    def __init__(self, form: str, explain: bool, graph: KnowledgeGraph):
        self.form, self.explain, self.graph = form, explain, graph
        self.csv = csv.writer(sys.stdout)
        if form == "csv":
            self.csv.writerow([*CSV_COLUMNS, *(["why"] if explain else [])])

    def answers(self, question: Question, found: Answers) -> None:
        """Print the answers of a question."""
        from betae.cli.show import draw_answers, shown_derivation
        from betae.exact.direction import hint_of_direction

        if self.form == "jsonl":
            print_json({**question.place, **found.to_json()})
        elif self.form == "csv":
            for answer in found:
                cells = [found.query, *(getattr(answer, column) for column in CSV_COLUMNS[1:])]
                if self.explain:
                    cells.append(shown_derivation(answer.why) if answer.why else "")
                self.csv.writerow(map(_cell, cells))
        else:
            out.print(Text(found.query), soft_wrap=True)
            out.print(draw_answers(found))
        if not found.num_known and (
            hint := hint_of_direction(self.graph, found.query, found.edges)
        ):
            note(hint)


def _cell(value: object) -> object:
    """Return what a file gets as it is; on a terminal, names must not command it."""
    return escape_controls(value) if isinstance(value, str) and sys.stdout.isatty() else value


@app.command(
    epilog="Examples:\n\n"
    "  betae complete run --out missing.tsv\n\n"
    "  betae complete run --relation capital --above 0.3 --out capitals.nt\n\n"
    "  betae complete run --entity Austria --above 0.2\n\n"
    "  betae complete run --out missing.parquet --ray auto"
)
def complete(
    run: SharedRun,
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
    graph: SharedMovedGraph = None,
    ray: RayAddress = None,
) -> None:
    """List the edges that the graph most probably lacks, and what speaks for each."""
    from betae.answering.edge_files import check_format, write_edges
    from betae.storage import check_file

    if target is not None:
        check_format(target)
        check_file(target)

    from betae.cli.progress import showing_work
    from betae.cli.show import draw_edges

    with on_ray(ray) as cluster, showing_work(err, True, "opening the run") as progress:
        from betae.run import Run

        opened = Run.open(run, graph)
        found = opened.missing_edges(
            relation=relation,
            entity=entity,
            above=above,
            edges=edges,
            cluster=cluster,
            progress=lambda done, total: progress("trying edges", done, total),
        )
    if target is None:
        out.print(draw_edges(found, opened.graph))
    else:
        write_edges(found, target)
        say(f"{len(found):,} missing edges written to {target}")
