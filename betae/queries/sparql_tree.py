"""SPARQL text -> rdflib's parse tree with betae's terms, and what can be asked of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote

from betae.errors import QuerySyntaxError, UnsupportedQuery
from betae.queries.ast import Entity, escape
from betae.queries.formula import Term, Variable

Variables = frozenset[Variable]

ONE_AT_A_TIME = Lock()  # rdflib's parser fails if two threads use it for the first time together

HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
SKIPPED = r"""#[^\n]*|<[^<>"{}|^`\\\s]*>|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
LOGICAL = {"ConditionalOrExpression": "||", "ConditionalAndExpression": "&&"}


def parse_tree(text: str, known_prefixes: Mapping[str, str]) -> Any:
    """Return the parse tree, with every term but literals as Variable or Entity.

    `known_prefixes` need not be declared in the text.
    """
    from rdflib.plugins.sparql.algebra import traverse
    from rdflib.plugins.sparql.parserutils import CompValue
    from rdflib.term import BNode, URIRef
    from rdflib.term import Variable as SparqlVariable

    prologue, query = _parsed(text)

    def absolute(iri: str) -> str:
        return str(iri if HAS_SCHEME.match(iri) else URIRef(iri, base=base))

    base: str | None = None
    prefixes: dict[str, str] = {}
    for declaration in prologue:
        if declaration.name == "Base":
            base = absolute(declaration.iri)
        else:
            prefixes[declaration.prefix or ""] = absolute(declaration.iri)
    blank_nodes: dict[str, Variable] = {}

    def to_term(node: Any) -> Term | None:
        if isinstance(node, SparqlVariable):
            return Variable(str(node))
        if isinstance(node, BNode):  # a variable that cannot be asked for
            return blank_nodes.setdefault(str(node), Variable(f"_:b{len(blank_nodes) + 1}"))
        if isinstance(node, URIRef):
            return _entity(absolute(node))
        if isinstance(node, CompValue) and node.name == "pname":
            prefix = node.prefix or ""
            try:
                namespace = prefixes[prefix] if prefix in prefixes else known_prefixes[prefix]
            except KeyError:
                found = re.search(rf"(?<![\w<]){re.escape(prefix)}:", text)
                raise QuerySyntaxError(
                    f"The prefix {prefix}: is not declared: write PREFIX {prefix}: <…> first.",
                    text,
                    found.start() if found else 0,
                ) from None
            local_name = re.sub(r"\\(.)", r"\1", node.localname or "")
            return _entity(namespace + local_name)
        return None  # keep the node

    return traverse(query, visitPost=to_term)


def _parsed(text: str) -> Any:
    """Return rdflib's own parse tree."""
    from pyparsing import ParseException
    from rdflib.plugins.sparql.parser import parseQuery

    try:
        with ONE_AT_A_TIME:
            return parseQuery(text)
    except ParseException as error:
        raise _syntax_error(error.pstr, error.loc) from None
    except ValueError as error:  # rdflib's: "Invalid unicode code point: …"
        position = text.find(str(error).rpartition(" ")[2])
        raise QuerySyntaxError(f"{error}.", text, max(position, 0)) from None
    except RecursionError:
        raise UnsupportedQuery(
            "This SPARQL is nested too deeply, or has too many triples in a row, for its parser: "
            "write it in logic text."
        ) from None


def _syntax_error(text: str, position: int) -> QuerySyntaxError:
    """Return the error for text that cannot be read from `position` on, with a hint if there is."""
    spaced = re.search(r"<[^<>\s{}]+ [^<>\n{}]*>", text)
    if spaced and " = " not in spaced[0] and "&&" not in spaced[0]:
        message = f"An IRI has no spaces: write <{quote(spaced[0][1:-1])}>."
        return QuerySyntaxError(message, text, spaced.start())
    opened: list[int] = []
    for token in re.finditer(SKIPPED + r"|(?P<open>\{)|(?P<close>\})", text):
        if token["open"]:
            opened.append(token.start())
        elif token["close"] and opened:
            opened.pop()
    if opened:
        return QuerySyntaxError("This { is never closed: a } is missing.", text, opened[-1])
    return QuerySyntaxError("SPARQL cannot be read from here on.", text, position)


def _entity(iri: str) -> Entity:
    return Entity(escape(iri if HAS_SCHEME.match(iri) else unquote(iri), "entity"))


# ---- variables ----------------------------------------------------------------------------------


def bound_variables(node: Any) -> Variables:
    """Return the variables that a part of a group binds for the rest of it."""
    match node.name:
        case "TriplesBlock":
            return mentioned_variables([(head, tail) for head, _, tail in triples(node)])
        case "GroupOrUnionGraphPattern":
            return frozenset().union(*map(bound_variables, node.graph))
        case "GroupGraphPatternSub":
            return frozenset().union(*map(bound_variables, node.part or []))
        case "InlineData" | "ValuesClause":
            return mentioned_variables(node.var)
    return frozenset()


def mentioned_variables(node: Any) -> Variables:
    """Return the variables anywhere in a part."""
    if isinstance(node, Variable):
        return frozenset([node])
    children = node.values() if isinstance(node, Mapping) else node
    if isinstance(children, str) or not isinstance(children, Iterable):
        return frozenset()
    return frozenset().union(*map(mentioned_variables, children))


def triples(block: Any) -> list[tuple[Any, Any, Any]]:
    """Return the triple patterns of a block as (head, path, tail)."""
    return [
        (terms[at], terms[at + 1], terms[at + 2])
        for terms in block.triples
        for at in range(0, len(terms), 3)
    ]


# ---- expressions --------------------------------------------------------------------------------


def unwrap(expression: Any) -> Any:
    """Strip the levels of rdflib's grammar that do nothing from an expression."""
    while kind(expression).endswith("Expression") and "other" not in expression:
        expression = expression.expr
    return expression


def kind(node: Any) -> str:
    """Return the name of a node in rdflib's grammar, or nothing for a term."""
    is_part = isinstance(node, Mapping)
    return str(node.name) if is_part else ""


def spell(expression: Any) -> str:
    """Return an expression roughly as it was written, for messages."""
    expression = unwrap(expression)
    part = kind(expression)
    if not part:
        return f"<{expression.name}>" if isinstance(expression, Entity) else str(expression)
    if part == "literal":
        return f'"{expression.string}"'
    if part == "UnaryNot":
        return f"!{spell(expression.expr)}"
    if "other" not in expression:  # a function: its name is enough
        return f"{part.rpartition('_')[2].upper()}(…)"
    signs = LOGICAL.get(part) or expression.op
    sign = signs if isinstance(signs, str) else signs[0]
    right = "…" if isinstance(expression.other, list) else spell(expression.other)
    return f"{spell(expression.expr)} {sign} {right}"


def spell_all(variables: Variables) -> str:
    """Return variables as they are written, for messages."""
    return ", ".join(sorted(map(str, variables)))
