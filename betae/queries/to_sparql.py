"""Trees of names -> SPARQL: `parse_sparql` reads the text back as a tree with the same answers.

    SELECT DISTINCT ?X WHERE {
      ?V1 <located_in> <Europe> .
      ?V1 <capital> ?X .
      FILTER(NOT EXISTS { <FIFA%20World%20Cup> <hosted> ?V1 . })
    }

A pattern of SPARQL binds its variables, and a filter only tests them. So what begins with a
complement becomes a filter, beside a pattern that binds the variable; a tree without one, such as
`Not(Entity("a"))`, cannot be written.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from itertools import count
from urllib.parse import quote

from betae.errors import UnsupportedQuery
from betae.graph.values import CONTAINS, Value, spell_value
from betae.queries.ast import And, Entity, IsA, Name, Not, Or, Project, Query, Where

IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^<>\"{}|^`\\\s]*")
PLAIN = ("http://", "https://", "urn:")  # how names begin that are IRIs, not words with a colon
XSD = "http://www.w3.org/2001/XMLSchema#"
TARGET = "?X"


def to_sparql(tree: Query) -> str:
    """Write a tree of names as a SELECT; raise UnsupportedQuery if SPARQL cannot say it."""
    if not _binds(tree):
        raise UnsupportedQuery(
            "SPARQL has no word for all entities but some: say first what the answers are, such as "
            "?X . capital(France, ?X) & !(...)."
        )
    lines = _Writer().lines(tree, TARGET)
    return "\n".join([f"SELECT DISTINCT {TARGET} WHERE {{", *(f"  {line}" for line in lines), "}"])


def _binds(query: Query) -> bool:
    """Tell whether a pattern can be written for a tree, not only a filter."""
    match query:
        case Not():
            return False
        case And(operands=operands):
            return any(map(_binds, operands))
        case Or(operands=operands):
            return all(map(_binds, operands))
    return True


class _Writer:
    """Writes the parts of one query, with distinct variables."""

    def __init__(self) -> None:
        self.entities: Iterator[str] = (f"?V{i}" for i in count(1))
        self.values: Iterator[str] = (f"?value{i}" for i in count(1))

    def lines(self, query: Query, variable: str) -> list[str]:
        """Return the triple patterns and filters of a group that binds a variable."""
        patterns, filters = self._parts(query, variable)
        return [*patterns, *(f"FILTER({each})" for each in filters)]

    def _parts(self, query: Query, variable: str) -> tuple[list[str], list[str]]:
        if not _binds(query):
            return [], [self._test(query, variable)]
        match query:
            case Entity(name):
                return [f"VALUES {variable} {{ {_iri(name)} }}"], []
            case IsA(name):
                return [f"{variable} a {_iri(name)} ."], []
            case Where(name):
                value = next(self.values)
                return [f"{variable} {_iri(name)} {value} ."], [_compared(query, value)]
            case Project(operand, relation, is_inverse):
                patterns: list[str] = []
                filters: list[str] = []
                if isinstance(operand, Entity):
                    source = _iri(operand.name)
                else:
                    source = next(self.entities)
                    patterns, filters = self._parts(operand, source)
                head, tail = (variable, source) if is_inverse else (source, variable)
                return [*patterns, f"{head} {_iri(relation)} {tail} ."], filters
            case Or(operands=operands):
                branches = [" ".join(self.lines(each, variable)) for each in operands]
                return [" UNION ".join(f"{{ {each} }}" for each in branches)], []
        pieces = [self._parts(each, variable) for each in query.operands]
        return [p for of, _ in pieces for p in of], [f for _, of in pieces for f in of]

    def _test(self, query: Query, variable: str) -> str:
        """Return an expression that is true if a variable, bound elsewhere, is in a tree."""
        match query:
            case Entity(name):
                return f"{variable} = {_iri(name)}"
            case Not(Entity(name)):
                return f"{variable} != {_iri(name)}"
            case Not(operand) if _binds(operand):
                return f"NOT EXISTS {{ {' '.join(self.lines(operand, variable))} }}"
            case Not(operand):
                return f"!({self._test(operand, variable)})"
            case And(operands=operands) | Or(operands=operands):
                sign = " && " if isinstance(query, And) else " || "
                return sign.join(f"({self._test(each, variable)})" for each in operands)
        return f"EXISTS {{ {' '.join(self.lines(query, variable))} }}"


def _iri(name: Name) -> str:
    """Write a name: an IRI as it is, any other percent-encoded."""
    text = str(name)
    is_iri = text.startswith(PLAIN) and IRI.fullmatch(text)
    return f"<{text if is_iri else quote(text, safe='')}>"


def _compared(condition: Where, variable: str) -> str:
    """Write the comparison of a value."""
    sign, value, language = condition.operator, condition.value, condition.language
    if isinstance(value, bool) and sign not in ("=", "!="):
        raise UnsupportedQuery("In SPARQL, true and false are not ordered: write = or !=.")
    if not isinstance(value, str):
        return f"{variable} {sign} {_literal(value)}"
    text = json.dumps(value, ensure_ascii=False)
    if sign == CONTAINS:
        if language is not None:
            raise UnsupportedQuery("SPARQL for text in one language that contains another.")
        lower = json.dumps(value.lower(), ensure_ascii=False)
        return f"CONTAINS(LCASE({variable}), {lower})"
    if language is None:
        return f"STR({variable}) {sign} {text}"
    return f"{variable} {sign} {text}" + (f"@{language}" if language else "")


def _literal(value: Value) -> str:
    match value:
        case dt.datetime():
            return f'"{value.isoformat()}"^^<{XSD}dateTime>'
        case dt.date():
            return f'"{value.isoformat()}"^^<{XSD}date>'
        case dt.time():
            return f'"{value.isoformat()}"^^<{XSD}time>'
    return spell_value(value)
