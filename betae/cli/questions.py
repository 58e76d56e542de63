"""Questions: demo, answer, complete."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from betae.cli.common import (
    MovedGraph,
    RunPath,
    app,
    complain,
    err,
    escape_controls,
    note,
    out,
    print_json,
    say,
    warn,
)
from betae.errors import BetaeError, InvalidArgument, QueryError, UnresolvedName

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
        Literal["table", "jsonl", "csv"] | None,
        typer.Option("--format", help="How to print them.", show_default="table"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
    graph: MovedGraph = None,
    use_index: Annotated[
        bool, typer.Option("--index", help="By embedding: search the index of betae index build.")
    ] = False,
) -> None:
    """Answer a question: ranked entities, known or predicted, how probable, and why."""
    if as_json and form not in (None, "jsonl"):
        raise InvalidArgument(f"Give --json or --format {form}, not both.")
    questions = _read_questions(question, queries)
    from betae.run import Run  # not before the questions can be read: it imports torch

    with err.status("Opening the run") as status:
        answerer = Run.open(run, graph).answerer(
            edges, method=method, use_index=use_index, union=union, say=status.update
        )
    _warn_of_method(answerer.ranker.method, method, use_index, explain)
    _answer_all(
        questions,
        lambda text: answerer.answer(text, k, status=only, threshold=threshold, explain=explain),
        _Printer("jsonl" if as_json else form or "table", explain, answerer.graph),
    )


def _answer_all(
    questions: Sequence[_Question], answer: Callable[[str], Answers], printer: _Printer
) -> None:
    """Answer and print questions; those of a file that cannot be answered do not stop the rest."""
    num_bad = 0
    for question in questions:
        try:
            printer.answers(question, answer(question.text))
        except (InvalidArgument, QueryError, UnresolvedName) as error:
            if not question.line:
                raise
            num_bad += 1
            printer.error(question, error)
    if num_bad:
        complain(f"{num_bad:,} of {len(questions):,} questions could not be answered.")
        raise typer.Exit(2)


def _warn_of_method(method: str, wanted: str, use_index: bool, explain: bool) -> None:
    """Say if answers do not come as they were asked for."""
    if method != wanted and not use_index:
        warn(
            "the graph has no validation edges to fit probabilities on, so answers are ranked by "
            "embedding, without probabilities. Ingest it with --valid 0.05, say, and train again."
        )
    elif explain and method == "embedding":
        warn("--explain needs the completed graph: leave out --method embedding and --index.")


@dataclass(frozen=True)
class _Question:
    """A question, and where it stands if it is one of many."""

    text: str
    file: str = ""
    line: int = 0  # from 1; 0 if it stands alone


def _read_questions(question: str | None, file: str | None) -> list[_Question]:
    """Return the one question, or those of a file."""
    from betae.queries.read import read_query, text_or_file

    if question is None and file is None:
        raise InvalidArgument("Give a question, or --queries with a file of them.")
    if question is not None and file is not None:
        raise InvalidArgument("Give a question or --queries, not both.")
    if question is None:
        return _read_lines(file or "")
    text = text_or_file(question)
    read_query(text, defaultdict(str))  # any prefix will do: the graph may know it
    return [_Question(text)]


def _read_lines(source: str) -> list[_Question]:
    """Read the questions in a file, or in standard input.

    Empty lines and those that begin with # are skipped.
    """
    name = "standard input" if source == "-" else source
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"{name} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name} is not text in UTF-8.") from error
    questions = [
        _Question(line, name, number)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not questions:
        warn(f"{name} has no questions.")
    return questions


class _Printer:
    """Prints each result as soon as it is there: as a table, a line of JSON, or rows of CSV."""

    def __init__(self, form: str, explain: bool, graph: KnowledgeGraph):
        self.form, self.explain, self.graph = form, explain, graph
        self.csv = csv.writer(sys.stdout)
        if form == "csv":
            self.csv.writerow([*CSV_COLUMNS, *(["why"] if explain else [])])

    def answers(self, question: _Question, found: Answers) -> None:
        """Print the answers of a question."""
        from betae.cli.show import draw_answers, shown_derivation
        from betae.exact.direction import hint_of_direction

        if self.form == "jsonl":
            print_json({**self._place(question), **found.to_json()})
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

    def error(self, question: _Question, error: BetaeError) -> None:
        """Say what is wrong with a question, and where it stands."""
        if self.form == "jsonl":
            print_json({**self._place(question), "error": str(error)})
        complain(f"{question.file}, line {question.line}: {error}")

    def _place(self, question: _Question) -> dict[str, object]:
        return {"line": question.line, "text": question.text} if question.line else {}


def _cell(value: object) -> object:
    """Return what a file gets as it is; on a terminal, names must not command it."""
    return escape_controls(value) if isinstance(value, str) and sys.stdout.isatty() else value


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
    from betae.storage import check_file

    if target is not None:
        check_format(target)
        check_file(target)

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
