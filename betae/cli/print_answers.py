"""Answers on the terminal, or as lines for another program."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from betae.answering.results import Answers
from betae.cli.show import draw_answers

COLUMNS = ("query", "entity", "label", "rank", "score", "probability", "status")


def print_answers(results: Iterable[Answers], form: str, console: Console) -> None:
    """Print each result as soon as it is there: as a table, a line of JSON, or rows of CSV."""
    writer = csv.writer(sys.stdout)
    if form == "csv":
        writer.writerow(COLUMNS)
    for result in results:
        if form == "jsonl":
            print(json.dumps(result.to_json(), ensure_ascii=False))
        elif form == "csv":
            for answer in result:
                cells = [getattr(answer, column) for column in COLUMNS[1:]]
                writer.writerow([result.query, *cells])
        else:
            console.print(Text(result.query), soft_wrap=True)
            console.print(draw_answers(result))
