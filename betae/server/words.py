"""What a question asks for, in plain words: "everything that treats gout and does not bind XDH"."""

from __future__ import annotations

import re
from urllib.parse import unquote

from betae.answering.evidence import verb
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import local_name
from betae.graph.values import spell_value
from betae.queries.ast import And, Condition, Entity, IsA, Not, Or, Project, Query, Where

PREFIXED = re.compile(r"\w*:(?=[^:\s]+$)")
SIGNS = {"~": "containing", "!=": "other than"}


def in_words(graph: KnowledgeGraph, query: Query) -> str:
    """Say what a query of ids asks for; entities go by their labels, relations as verbs."""
    return f"everything that {_clause(graph, query)}"


def plain_name(name: str) -> str:
    """Return a name or label as people read it: of an IRI its last part, decoded."""
    short = last_part(name)
    return name if short == name else unquote(short).replace("_", " ") or name


def last_part(name: str) -> str:
    """Return the last part of an IRI or of a name with a prefix; any other name as it is."""
    is_long = "://" in name or PREFIXED.match(name)
    return PREFIXED.sub("", local_name(name)) if is_long else name


def edge_in_words(graph: KnowledgeGraph, relation: int, start: str, end: str) -> str:
    """Say an edge of a directed relation: "aspirin treats gout"."""
    head, tail = (end, start) if relation % 2 else (start, end)
    return f"{head} {verb(graph.relations.label(relation // 2))} {tail}"


def _clause(
    graph: KnowledgeGraph, query: Query, is_not: bool = False, is_alone: bool = True
) -> str:
    """Continue "everything that ...", or say that it does not.

    `is_alone`: nothing follows that could be taken to belong to the last part of it.
    """
    match query:
        case Entity(name):
            return f"is {'not ' * is_not}{plain_name(graph.entity_label(int(name)))}"
        case IsA(name):
            return f"is {'not ' * is_not}{_with_article(plain_name(str(name)))}"
        case Where(name, sign, value):
            has = "has no" if is_not else "has"
            return f"{has} {plain_name(name)} {SIGNS.get(sign, sign)} {spell_value(value)}"
        case Project(operand, relation):
            return _step(graph, operand, int(relation), is_not, is_alone)
        case Not(operand) if not is_not:
            return _clause(graph, operand, True, is_alone)
    if is_not:
        return f"not ({_clause(graph, query)})"
    word = " and " if isinstance(query, And) else " or "
    parts = [
        f"({_clause(graph, each)})"
        if isinstance(each, And | Or)
        else _clause(graph, each, False, False)
        for each in query.operands
    ]
    return word.join(parts)


def _step(
    graph: KnowledgeGraph, operand: Query, relation: int, is_not: bool, is_alone: bool
) -> str:
    is_from_answer = relation % 2 == 1
    if isinstance(operand, Entity):
        other = plain_name(graph.entity_label(int(operand.name)))
    else:
        other = f"something that {_clause(graph, operand)}"
        if not (is_alone and is_from_answer and isinstance(operand, Project | Condition)):
            other = f"({other})"
    said = verb(graph.relations.label(relation // 2))
    if not is_from_answer and said.startswith("has "):
        said = said.replace("has ", "has as ", 1)  # "France has as capital"
    said = negated(said) if is_not else said
    return f"{said} {other}" if is_from_answer else f"{other} {said}"


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def negated(said: str) -> str:
    """Negate a verb in the third person: "treats" -> "does not treat"."""
    first, _, rest = said.partition(" ")
    rest = f" {rest}" if rest else ""
    if first == "is":
        return f"is not{rest}"
    if first == "has":
        return f"does not have{rest}"
    if not first.endswith("s"):  # "hosted"
        return f"has not {said}"
    stem = first[:-2] if first.endswith(("sses", "shes", "ches", "xes", "zes")) else first[:-1]
    return f"does not {stem}{rest}"
