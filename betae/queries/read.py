"""Any notation of a query that a person may give: logic text, SPARQL, or a file of either."""

from pathlib import Path

from betae.errors import InvalidArgument
from betae.queries.ast import Query
from betae.queries.sparql import parse_sparql
from betae.queries.syntax import parse

SPARQL_WORDS = ("select", "prefix", "base", "ask", "construct", "describe")


def read_query(text: str) -> Query:
    """Read logic text or a SPARQL SELECT; a single word that names a file is read from there."""
    words = text.split()
    path = Path(text.strip())
    if words and len(text) < 4096 and "\n" not in text.strip() and _is_file(path):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{path} is not a text in UTF-8.") from error
        words = text.split()
    elif len(words) == 1 and not text.startswith("?"):
        raise InvalidArgument(f"{text!r} is neither a query nor a file.")
    first = words[0].lower() if words else ""
    is_sparql = first in SPARQL_WORDS or first.startswith("#")
    return parse_sparql(text) if is_sparql else parse(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a question is longer than a name of a file may be
        return False
