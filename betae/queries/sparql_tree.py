"""SPARQL text -> rdflib's parse tree with betae's terms, and what can be asked of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from betae.errors import QuerySyntaxError, UnsupportedQuery
from betae.queries.ast import Entity, escape
from betae.queries.formula import Term, Variable

Variables = frozenset[Variable]

HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
LOGICAL = {"ConditionalOrExpression": "||", "ConditionalAndExpression": "&&"}


def parse_tree(text: str) -> Any:
    """Return the parse tree, with every term but literals as Variable or Entity."""
    from pyparsing import ParseException
    from rdflib.plugins.sparql.algebra import traverse
    from rdflib.plugins.sparql.parser import parseQuery
    from rdflib.plugins.sparql.parserutils import CompValue
    from rdflib.term import BNode, URIRef
    from rdflib.term import Variable as SparqlVariable

    try:
        prologue, query = parseQuery(text)
    except ParseException as error:
        raise QuerySyntaxError(
            "SPARQL cannot be read from here on.", error.pstr, error.loc
        ) from None
    except ValueError as error:  # rdflib's: "Invalid unicode code point: …"
        position = text.find(str(error).rpartition(" ")[2])
        raise QuerySyntaxError(f"{error}.", text, max(position, 0)) from None
    except RecursionError:
        raise UnsupportedQuery(
            "This SPARQL is nested too deeply, or has too many triples in a row, for its parser: "
            "write it in logic text."
        ) from None

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
            if prefix not in prefixes:
                found = re.search(rf"(?<![\w<]){re.escape(prefix)}:", text)
                raise QuerySyntaxError(
                    f"The prefix {prefix}: is not declared: write PREFIX {prefix}: <…> first.",
                    text,
                    found.start() if found else 0,
                )
            local_name = re.sub(r"\\(.)", r"\1", node.localname or "")
            return _entity(prefixes[prefix] + local_name)
        return None  # keep the node

    return traverse(query, visitPost=to_term)


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
