"""Questions from the command line: one of them, or a file with one on each line."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from betae.cli.common import complain, warn
from betae.errors import BetaeError, InvalidArgument, QueryError, UnresolvedName

if TYPE_CHECKING:
    from betae.cluster import Cluster

Result = TypeVar("Result")
QUESTIONS_OF_A_BLOCK = 16


@dataclass(frozen=True)
class Question:
    """A question, and where it stands if it is from a file."""

    text: str
    file: str = ""
    line: int = 0  # from 1; 0 if it is not from a file

    @property
    def place(self) -> dict[str, object]:
        """What JSON says of a question from a file: its line and text."""
        return {"line": self.line, "text": self.text} if self.line else {}


def read_questions(question: str | None, file: str | None) -> list[Question]:
    """Return the one question, or those of a file."""
    from betae.queries.read import text_or_file

    if question is None and file is None:
        raise InvalidArgument("Give a question, or --queries with a file of them.")
    if question is not None and file is not None:
        raise InvalidArgument("Give a question or --queries, not both.")
    return _read_lines(file or "") if question is None else [Question(text_or_file(question))]


def check_syntax(questions: Sequence[Question]) -> None:
    """Raise if the one question cannot be read, before anything is loaded."""
    from betae.queries.read import read_query

    for question in questions:
        if not question.line:
            read_query(question.text, defaultdict(str))  # any prefix will do: the graph may know it


def _read_lines(source: str) -> list[Question]:
    """Read the questions of a file, or of standard input; skip empty lines and comments (#)."""
    name = "standard input" if source == "-" else source
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"{name} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name} is not text in UTF-8.") from error
    questions = [
        Question(line, name, number)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not questions:
        warn(f"{name} has no questions.")
    return questions


def check_ray(ray: str | None, queries: str | None) -> None:
    """Refuse to share a single question among the nodes of a cluster."""
    if ray is not None and queries is None:
        raise InvalidArgument("--ray shares the questions of a file: give them with --queries.")


# ---- in blocks --------------------------------------------------------------------------------


def answer_all(
    open_answer: Callable[[], Callable[[str], Result]],
    questions: Sequence[Question],
    cluster: Cluster | None = None,
) -> Iterator[tuple[Question, Result | BetaeError]]:
    """Yield each question with its answer, or with the error of one that cannot be answered.

    `open_answer` loads what answers a question; on a cluster, each worker process loads its own.
    """
    from betae.cluster import map_blocks

    size = 1 if cluster is None else QUESTIONS_OF_A_BLOCK
    starts = range(0, len(questions), size)
    blocks = ([each.text for each in questions[start : start + size]] for start in starts)
    found = map_blocks(partial(_open_block, open_answer), blocks, cluster)
    yield from zip(questions, chain.from_iterable(found), strict=True)


def _open_block(
    open_answer: Callable[[], Callable[[str], Result]],
) -> Callable[[Sequence[str]], list[Result | BetaeError]]:
    return partial(_try_each, open_answer())


def _try_each(answer: Callable[[str], Result], texts: Sequence[str]) -> list[Result | BetaeError]:
    found: list[Result | BetaeError] = []
    for text in texts:
        try:
            found.append(answer(text))
        except (InvalidArgument, QueryError, UnresolvedName) as error:
            found.append(error)
    return found


def show_all(
    results: Iterable[tuple[Question, Result | BetaeError]],
    show: Callable[[Question, Result], None],
    write_json: Callable[[dict[str, object]], object] | None = None,
) -> int:
    """Show the answers as they come, and return how many questions could not be answered.

    The error of a question from a file is printed, and written as JSON too if the answers are; it
    does not stop the rest.
    """
    num_bad = 0
    for question, result in results:
        if not isinstance(result, BetaeError):
            show(question, result)
        elif not question.line:
            raise result
        else:
            num_bad += 1
            if write_json is not None:
                write_json({**question.place, "error": str(result)})
            complain(f"{question.file}, line {question.line}: {result}")
    return num_bad


def end(num_bad: int, questions: Sequence[Question]) -> None:
    """End the command with an error if some questions could not be answered."""
    if num_bad:
        complain(f"{num_bad:,} of {len(questions):,} questions could not be answered.")
        raise typer.Exit(2)
