"""Exact answers: query."""

from __future__ import annotations

import csv
import json
import sys
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from betae.cli.common import GraphPath, app, note, say
from betae.errors import InvalidArgument

if TYPE_CHECKING:
    from betae.exact.select import Selection

Form = Literal["table", "csv", "jsonl", "parquet"]
FORMS: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
SAMPLED = 1000  # rows from which the widths of a table are taken


@app.command(
    epilog="Examples:\n\n"
    "  betae query graph '?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)'\n\n"
    "  betae query graph '?X, ?Y . borders(?X, ?Y) & borders(?Y, ?X)' --format csv | head\n\n"
    "  betae query graph query.rq --out answers.parquet"
)
def query(
    graph: GraphPath,
    question: Annotated[
        str, typer.Argument(help="Logic text, a SPARQL SELECT, or a file that holds either.")
    ],
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
) -> None:
    """List all exact answers of a question of any shape, from the facts alone; no model needed."""
    if as_json and form not in (None, "jsonl"):
        raise InvalidArgument(f"Give --json or --format {form}, not both.")
    chosen = _check_form("jsonl" if as_json else form, target)
    from betae.exact.select import select
    from betae.graph.graph import KnowledgeGraph
    from betae.queries.read import text_or_file

    opened, text = KnowledgeGraph.open(graph), text_or_file(question)
    found = select(opened, text, edges, limit)
    number = _write(found, chosen, target)
    if target is not None:
        say(f"{number:,} answers written to {target}")
    if not number:
        from betae.exact.direction import hint_of_direction

        if hint := hint_of_direction(opened, text, edges):
            note(hint)


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
        return _print_table(found)
    writer = csv.writer(file)
    if form == "csv":
        writer.writerow(found.columns)
    for row in found:
        number += 1
        if form == "csv":
            writer.writerow(row.values())
        else:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return number


def _print_table(found: Selection) -> int:
    """Print a column for each variable; widths are those of the first rows."""
    from rich.cells import cell_len

    rows = (_cells(row, found) for row in found)
    first = list(islice(rows, SAMPLED))
    if not first:
        print("no answers")
        return 0
    heads = [f"?{name}" for name in found.variables]
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


def _cells(row: dict[str, str], found: Selection) -> list[str]:
    """Return what a table shows: labels, with the name in parentheses where it is another."""
    from betae.graph.names import printable, shorten

    cells = []
    for variable in found.variables:
        name, label = shorten(row[variable], found.graph.prefixes), row[f"{variable}_label"]
        cells.append(printable(label if name == label else f"{label} ({name})"))
    return cells
