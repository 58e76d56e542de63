"""A question in any notation: logic text, SPARQL, a tree, or, on the command line, a file."""

import re
from pathlib import Path
from typing import Any

from betae.errors import InvalidArgument
from betae.queries.ast import Query
from betae.queries.sparql import parse_sparql
from betae.queries.syntax import parse

SPARQL_START = re.compile(
    r"\s*(#|(select|prefix|base|ask|construct|describe)\b)", flags=re.IGNORECASE
)
LONGEST_PATH = 4096  # characters


def as_query(question: Any) -> Query:
    """Return a tree as it is; read text with `read_query`."""
    if isinstance(question, Query):
        return question
    if isinstance(question, str):
        return read_query(question)
    raise InvalidArgument(f"{question!r} is no query: give a tree, logic text or SPARQL.")


def read_query(text: str) -> Query:
    """Read logic text or a SPARQL SELECT."""
    if _is_one_word(text):
        raise InvalidArgument(
            f"{text!r} is not a query: write logic text, such as '?X . capital(France, ?X)', or a "
            "SPARQL SELECT."
        )
    return parse_sparql(text) if SPARQL_START.match(text) else parse(text)


def read_query_or_file(argument: str) -> Query:
    """Read an argument of the command line: a query, or the path of a file that holds one."""
    path = Path(argument.strip())
    if _is_file(path):
        try:
            return read_query(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{path} is not a text file in UTF-8.") from error
    if _is_one_word(argument):
        raise InvalidArgument(f"{argument!r} is neither a query nor a file.")
    return read_query(argument)


def _is_one_word(text: str) -> bool:
    is_query = text.lstrip().startswith("?") or SPARQL_START.match(text)
    return len(text.split()) == 1 and not is_query


def _is_file(path: Path) -> bool:
    try:
        return len(str(path)) < LONGEST_PATH and path.is_file()
    except OSError:  # a question may be longer than the name of a file can be
        return False
