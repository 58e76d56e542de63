"""A question in any notation: logic text, SPARQL, a tree, or, on the command line, a file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from betae.errors import InvalidArgument
from betae.queries.ast import Query
from betae.queries.formula import Question
from betae.queries.sparql import NO_PREFIXES, read_sparql
from betae.queries.syntax import read_logic
from betae.queries.trees import to_tree

COMMENTS = r"(\s*#(?!\d)[^\n]*\n)*\s*"
SPARQL_START = re.compile(
    COMMENTS + r"(select|prefix|base|ask|construct|describe)\b", flags=re.IGNORECASE
)
EXAMPLE = "Write logic text, such as '?X . capital(France, ?X)', or a SPARQL SELECT."
LONGEST_PATH = 4096  # characters


def as_query(question: Any, prefixes: Mapping[str, str] = NO_PREFIXES) -> Query:
    """Return a tree as it is; read text with `read_query`."""
    if isinstance(question, Query):
        return question
    if isinstance(question, str):
        return read_query(question, prefixes)
    raise InvalidArgument(f"{question!r} is no query: give a tree, logic text or SPARQL.")


def read_query(text: str, prefixes: Mapping[str, str] = NO_PREFIXES) -> Query:
    """Read logic text or a SPARQL SELECT into a tree."""
    return to_tree(read_question(text, prefixes))


def read_question(text: str, prefixes: Mapping[str, str] = NO_PREFIXES) -> Question:
    """Read logic text or a SPARQL SELECT; `prefixes` need not be declared in SPARQL."""
    if not text.strip():
        raise InvalidArgument(f"The question has nothing in it. {EXAMPLE}")
    if _is_one_word(text):
        raise InvalidArgument(f"{text!r} is not a query. {EXAMPLE}")
    return read_sparql(text, prefixes) if SPARQL_START.match(text) else read_logic(text)


def text_or_file(argument: str) -> str:
    """Return an argument of the command line: a query, or what a file of that name holds."""
    path = Path(argument.strip())
    if _is_file(path):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{path} is not a text file in UTF-8.") from error
        if not text.strip():
            raise InvalidArgument(f"{path} is empty. {EXAMPLE}")
        return text
    if _is_one_word(argument):
        raise InvalidArgument(f"{argument!r} is neither a query nor a file.")
    return argument


def _is_one_word(text: str) -> bool:
    is_query = text.lstrip().startswith("?") or SPARQL_START.match(text)
    return len(text.split()) == 1 and not is_query


def _is_file(path: Path) -> bool:
    try:
        return len(str(path)) < LONGEST_PATH and path.is_file()
    except OSError:  # a question may be longer than the name of a file can be
        return False
