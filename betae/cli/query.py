"""Exact answers: query."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from betae.cli.common import (
    AnyQuestion,
    QuestionFile,
    RayAddress,
    SharedGraph,
    app,
    note,
    on_ray,
    print_json,
    say,
)
from betae.cli.question_files import Question, answer_all, check_ray, end, read_questions, show_all
from betae.errors import InvalidArgument

if TYPE_CHECKING:
    from betae.exact.select import Selection
    from betae.graph.edges import Edges
    from betae.graph.graph import KnowledgeGraph

Row = dict[str, str]
Rows = list[Row]

Form = Literal["table", "csv", "jsonl", "parquet"]
FORMS: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
SAMPLED = 1000  # rows from which the widths of a table are taken


@app.command(
    epilog="Examples:\n\n"
    "  betae query graph '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)'\n\n"
    "  betae query graph '?X, ?Y . borders(?X, ?Y) & borders(?Y, ?X)' --format csv | head\n\n"
    "  betae query graph query.rq --out answers.parquet\n\n"
    "  betae query graph --queries questions.txt --out answers.jsonl --ray auto"
)
def query(
    graph: SharedGraph,
    question: AnyQuestion = None,
    queries: QuestionFile = None,
    edges: Annotated[
        Literal["train", "train+valid", "all"], typer.Option(help="The edges that count.")
    ] = "all",
    form: Annotated[
        Form | None,
        typer.Option("--format", help="How to print them; default: table, or as --out ends."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
    target: Annotated[
        Path | None, typer.Option("--out", help="A .csv, .jsonl or .parquet file to write.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="The most answers to list.", min=1)] = None,
    ray: RayAddress = None,
) -> None:
    """List all exact answers of a question of any shape, from the facts alone; no model needed."""
    if as_json and form not in (None, "jsonl"):
        raise InvalidArgument(f"Give --json or --format {form}, not both.")
    chosen = _check_form("jsonl" if as_json else form, target)
    check_ray(ray, queries)
    questions = read_questions(question, queries)
    if queries is not None:
        if chosen not in ("table", "jsonl"):
            raise InvalidArgument(f"--queries has no form {chosen}: use table or jsonl.")
        _answer_file(graph, questions, edges, limit, target, chosen, ray)
        return
    from betae.exact.select import select
    from betae.graph.graph import KnowledgeGraph

    opened, text = KnowledgeGraph.open(graph), questions[0].text
    found = select(opened, text, edges, limit)
    number = _write(found, chosen, target)
    if target is not None:
        say(f"{number:,} answers written to {target}")
    if not number:
        _hint(opened, text, edges)


def _hint(graph: KnowledgeGraph, text: str, edges: Edges) -> None:
    """Say so if a question without answers has some the other way round."""
    from betae.exact.direction import hint_of_direction

    if hint := hint_of_direction(graph, text, edges):
        note(hint)


# ---- a file of questions ----------------------------------------------------------------------


def _answer_file(
    folder: Path,
    questions: Sequence[Question],
    edges: Edges,
    limit: int | None,
    target: Path | None,
    form: Form,
    ray: str | None,
) -> None:
    """Print the answers to each question, or write a line of JSON for each."""
    from betae.graph.graph import KnowledgeGraph
    from betae.graph.names import printable
    from betae.storage import check_file, writing_file

    if target is not None:
        check_file(target)
    with on_ray(ray) as cluster, ExitStack() as files:
        graph = KnowledgeGraph.open(folder)
        write_json: Callable[[dict[str, object]], object] | None = print_json
        if target is not None:
            path = files.enter_context(writing_file(target))
            file = files.enter_context(path.open("w", encoding="utf-8"))
            write_json = partial(_write_line, file)
        elif form == "table":
            write_json = None

        def show(question: Question, rows: Rows) -> None:
            if write_json is not None:
                write_json({**question.place, "answers": rows})
            else:
                print(printable(question.text))
                _print_table(rows, list(rows[0])[::2] if rows else [], graph.prefixes)
            if not rows:
                _hint(graph, question.text, edges)

        results = answer_all(partial(_open_select, graph, edges, limit), questions, cluster)
        num_bad = show_all(results, show, write_json)
    if target is not None:
        say(f"{len(questions):,} questions written to {target}")
    end(num_bad, questions)


def _open_select(graph: KnowledgeGraph, edges: Edges, limit: int | None) -> Callable[[str], Rows]:
    return partial(_select_rows, graph, edges, limit)


def _select_rows(graph: KnowledgeGraph, edges: Edges, limit: int | None, text: str) -> Rows:
    from betae.exact.select import select

    return list(select(graph, text, edges, limit))


def _write_line(file: IO[str], content: Mapping[str, object]) -> None:
    file.write(json.dumps(content, ensure_ascii=False) + "\n")


# ---- forms ------------------------------------------------------------------------------------


def _check_form(form: Form | None, target: Path | None) -> Form:
    """Return the format to write; raise if it is not that of the file."""
    if target is None:
        if form == "parquet":
            raise InvalidArgument("--format parquet needs a file: --out answers.parquet.")
        return form or "table"
    if target.suffix not in FORMS:
        raise InvalidArgument(f"{target} must end in .csv, .jsonl or .parquet.")
    if form not in (None, FORMS[target.suffix]):
        raise InvalidArgument(f"--format {form} does not go with --out {target}.")
    return FORMS[target.suffix]


def _write(found: Selection, form: Form, target: Path | None) -> int:
    """Write the answers as they are found; return how many there are."""
    from betae.storage import writing_file

    if target is None:
        return _write_rows(found, form, sys.stdout)
    with writing_file(target) as partial:
        if form == "parquet":
            frame, buffer = found.to_polars(), BytesIO()
            frame.write_parquet(buffer)  # polars' own errors do not tell a full disk from any other
            partial.write_bytes(buffer.getbuffer())
            return len(frame)
        with partial.open("w", encoding="utf-8", newline="") as file:
            return _write_rows(found, form, file)


def _write_rows(found: Selection, form: Form, file: IO[str]) -> int:
    number = 0
    if form == "table":
        return _print_table(found, found.variables, found.graph.prefixes)
    writer = csv.writer(file)
    if form == "csv":
        writer.writerow(found.columns)
    for row in found:
        number += 1
        if form == "csv":
            writer.writerow(row.values())
        else:
            _write_line(file, row)
    return number


def _print_table(
    found: Iterable[Row], variables: Sequence[str], prefixes: Mapping[str, str]
) -> int:
    """Print a column for each variable; widths are those of the first rows."""
    from rich.cells import cell_len

    rows = (_cells(row, variables, prefixes) for row in found)
    first = list(islice(rows, SAMPLED))
    if not first:
        print("no answers")
        return 0
    heads = [f"?{name}" for name in variables]
    widths = [max(map(cell_len, column)) for column in zip(heads, *first, strict=True)]
    number = -1  # the heads are no answer
    for row in chain([heads], first, rows):
        number += 1
        padded = [
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        print("  ".join(padded).rstrip())
    print(f"{number:,} answer{'s' if number > 1 else ''}")
    return number


def _cells(row: Row, variables: Sequence[str], prefixes: Mapping[str, str]) -> list[str]:
    """Return what a table shows: labels, with the name in parentheses where it is another."""
    from betae.graph.names import printable, shorten

    cells = []
    for variable in variables:
        name, label = shorten(row[variable], prefixes), row[f"{variable}_label"]
        cells.append(printable(label if name == label else f"{label} ({name})"))
    return cells
