"""SPARQL -> trees: a SELECT with one variable, through rdflib's parser.

    PREFIX : <>
    SELECT ?x WHERE {
      ?c :located_in :Europe .
      FILTER NOT EXISTS { <FIFA%20World%20Cup> :hosted ?c }
      ?c :capital ?x
    }

Triple patterns, groups, UNION, MINUS, FILTER NOT EXISTS, FILTER with `=`, `!=` and IN on IRIs,
VALUES for one variable, blank nodes, and the property paths `a/b`, `^a` and `a|b`, with SPARQL's
own reading of scopes: a group sees only its own variables, MINUS only what stands before it.
Anything else is UnsupportedQuery.

An IRI is the name of an entity or a relation in full. An IRI without a scheme, such as `<Europe>`
or `:Europe` under `PREFIX : <>`, is a plain name, with `%20` for a space and so on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any
from urllib.parse import unquote

from betae.errors import QuerySyntaxError, UnsupportedQuery
from betae.queries.ast import Entity, Query
from betae.queries.formula import (
    Atom,
    Conjunction,
    Disjunction,
    Equals,
    Exists,
    Formula,
    Negation,
    Term,
    Variable,
    free_variables,
    to_tree,
)

Names = Mapping[Variable, Variable]  # a variable as written -> the one of its scope
Variables = frozenset[Variable]
SCOPES = count(1)  # a number for each variable made here, so that no two are the same

HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
LOGICAL = {"ConditionalOrExpression": "||", "ConditionalAndExpression": "&&"}
TOP_K = "answers are ranked, and how many are shown is chosen when asking"
UNSUPPORTED_CLAUSES = {
    "datasetClause": "FROM: the graph is chosen when asking",
    "groupby": "GROUP BY",
    "having": "HAVING",
    "orderby": f"ORDER BY: {TOP_K}",
    "limitoffset": f"LIMIT and OFFSET: {TOP_K}",
}
UNSUPPORTED_PARTS = {
    "OptionalGraphPattern": "OPTIONAL",
    "GraphGraphPattern": "GRAPH",
    "ServiceGraphPattern": "SERVICE",
    "Bind": "BIND",
}


def parse_sparql(text: str) -> Query:
    """Read a SPARQL SELECT into a tree of names; `resolve` then finds them in a graph."""
    query = _parse(text)
    if query.name != "SelectQuery":
        raise _unsupported(f"{query.name.removesuffix('Query').upper()}: write SELECT")
    target = _target(query.projection)
    for clause, spoken in UNSUPPORTED_CLAUSES.items():
        if clause in query:
            raise _unsupported(spoken)
    if query.valuesClause:
        query.where.setdefault("part", []).append(query.valuesClause)
    return to_tree(_group(query.where, {target: target}, frozenset()), target)


def _unsupported(part: str) -> UnsupportedQuery:
    return UnsupportedQuery(f"betae does not answer SPARQL with {part}.")


# ---- text -> rdflib's parse tree, with betae's terms --------------------------------------------


def _parse(text: str) -> Any:
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
        raise UnsupportedQuery("This SPARQL is too long or too deeply nested to read.") from None

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
    return Entity(iri if HAS_SCHEME.match(iri) else unquote(iri))


def _target(projection: Sequence[Any] | None) -> Variable:
    if not projection:
        raise _unsupported("SELECT *: name the one variable to answer for")
    for item in projection:
        if item.evar:
            raise _unsupported(f"an expression in SELECT: {_spell(item.expr)}")
    if len(projection) > 1:
        names = " ".join(str(item.var) for item in projection)
        raise _unsupported(f"several target variables: {names}")
    target: Variable = projection[0].var
    return target


# ---- parse tree -> formula ----------------------------------------------------------------------


def _group(node: Any, shared: Names, given: Variables) -> Formula:
    """Return the formula of a group.

    `shared` are the variables that also occur outside; all others are the group's own, and
    existential. `given` are those of the shared ones that a NOT EXISTS around the group has fixed:
    only these can be seen by a filter although the group does not bind them.
    """
    if node.name == "SubSelect":
        raise _unsupported("a SELECT inside the SELECT")
    parts = node.part or []
    visible = _visible(node)
    own = {term: Variable(term.name, next(SCOPES)) for term in visible - shared.keys()}
    names = {**shared, **own}
    formulas: list[Formula] = []
    bound: Variables = frozenset()
    for part in parts:
        match part.name:
            case "TriplesBlock":
                formulas += [
                    _path(path, _rename(head, names), _rename(tail, names))
                    for head, path, tail in _triples(part)
                ]
            case "GroupOrUnionGraphPattern":
                others = [_mentioned(other) for other in parts if other is not part]
                outside = frozenset(shared).union(*others)
                formulas.append(_union(part, names, outside, given))
            case "MinusGraphPattern":
                formulas.append(_minus(part.graph, names, bound, given))
            case "Filter":
                formulas.append(_filter(part.expr, names, visible | given))
            case "InlineData" | "ValuesClause":
                formulas.append(_values(part, names))
            case name:
                raise _unsupported(UNSUPPORTED_PARTS[name])
        bound |= _visible(part)
    return _exists(own.values(), formulas)


def _union(node: Any, names: Names, outside: Variables, given: Variables) -> Formula:
    """Return the formula of one group or more; `outside` are the variables of the rest."""
    branches = [_visible(branch) for branch in node.graph]
    joined = frozenset().union(*branches) & outside
    partial = joined - frozenset.intersection(*branches)
    if partial:
        raise _unsupported(f"{_spell_all(partial)} in only some branches of a UNION")
    shared = {variable: names[variable] for variable in joined | given}
    return _any_of([_group(branch, shared, given) for branch in node.graph])


def _minus(graph: Any, names: Names, bound: Variables, given: Variables) -> Formula:
    seen_twice = _mentioned(graph) & given
    if seen_twice:
        raise _unsupported(
            f"{_spell_all(seen_twice)} in a MINUS inside NOT EXISTS, where SPARQL engines differ: "
            "write NOT EXISTS for both"
        )
    joined = _visible(graph) & bound
    if not joined:
        raise _unsupported(
            "a MINUS that shares no variable with what stands before it: it has no effect"
        )
    return Negation(_group(graph, _the_one(joined, names, "MINUS"), frozenset()))


def _filter(expression: Any, names: Names, bound: Variables) -> Formula:
    """Return the formula of a FILTER in a group that binds the variables `bound`."""
    expression = _unwrap(expression)
    match _kind(expression):
        case "ConditionalAndExpression":
            conjuncts = [expression.expr, *expression.other]
            return Conjunction(tuple(_filter(part, names, bound) for part in conjuncts))
        case "Builtin_NOTEXISTS":
            joined = _mentioned(expression.graph) & bound
            if not joined:
                raise _unsupported(
                    "a NOT EXISTS that shares no variable with its group: it is true or false for "
                    "all answers at once"
                )
            shared = _the_one(joined, names, "NOT EXISTS")
            return Negation(_group(expression.graph, shared, joined))
        case "RelationalExpression" if expression.op in ("=", "!="):
            variable, value = _unwrap(expression.expr), _unwrap(expression.other)
            if isinstance(variable, Entity):
                variable, value = value, variable
            if isinstance(variable, Variable) and isinstance(value, Entity):
                if variable not in bound:
                    raise _unsupported(f"a FILTER on {variable}, which its group does not bind")
                equals = Equals(names[variable], value)
                return equals if expression.op == "=" else Negation(equals)
    raise _unsupported(f"FILTER({_spell(expression)})")


def _the_one(joined: Variables, names: Names, operator: str) -> Names:
    """Return the variable that a negated group has in common with its surroundings."""
    if len(joined) > 1:
        raise _unsupported(
            f"a {operator} on several variables at once ({_spell_all(joined)}): a tree has a "
            "complement of the entities of one variable only"
        )
    return {variable: names[variable] for variable in joined}


def _values(node: Any, names: Names) -> Formula:
    variables = node.var or []
    if len(variables) != 1:
        raise _unsupported(f"VALUES for {len(variables)} variables: one at a time")
    rows = [value[0] if isinstance(value, list) else value for value in node.value or []]
    for value in rows:
        if not isinstance(value, Entity):
            raise _unsupported(f"{_spell(value)} in VALUES")
    if not rows:
        raise _unsupported("VALUES without a value: it has no answers")
    return _any_of([Equals(names[variables[0]], value) for value in rows])


def _path(path: Any, head: Any, tail: Any) -> Formula:
    """Return the formula of a property path from `head` to `tail`."""
    for term in (head, tail):
        if not isinstance(term, Variable | Entity):
            raise _unsupported(f"the literal {_spell(term)}: entities are IRIs")
    if isinstance(path, Entity):
        return Atom(path.name, head, tail)
    if isinstance(path, Variable):
        raise _unsupported(f"the variable {path} as a predicate: name the relation")
    match path.name:
        case "PathAlternative":
            return _any_of([_path(part, head, tail) for part in path.part])
        case "PathSequence":
            numbers = range(1, len(path.part))
            middles = [Variable(f"_:path{number}", next(SCOPES)) for number in numbers]
            steps = zip(path.part, [head, *middles], [*middles, tail], strict=True)
            formulas = [_path(part, start, stop) for part, start, stop in steps]
            return _exists(middles, formulas)
        case "PathEltOrInverse":
            return _path(path.part, tail, head)
        case "PathElt" if not path.mod:
            return _path(path.part, head, tail)
        case "PathElt":
            raise _unsupported(f"the path operator {path.mod}: paths are of fixed length")
    raise _unsupported("a negated property set, !(…)")


# ---- variables and small parts ------------------------------------------------------------------


def _visible(node: Any) -> Variables:
    """Return the variables that a part of a group binds for the rest of it."""
    match node.name:
        case "TriplesBlock":
            return _mentioned([(head, tail) for head, _, tail in _triples(node)])
        case "GroupOrUnionGraphPattern":
            return frozenset().union(*map(_visible, node.graph))
        case "GroupGraphPatternSub":
            return frozenset().union(*map(_visible, node.part or []))
        case "InlineData" | "ValuesClause":
            return _mentioned(node.var)
    return frozenset()


def _mentioned(node: Any) -> Variables:
    """Return the variables in any place of a part."""
    if isinstance(node, Variable):
        return frozenset([node])
    children = node.values() if isinstance(node, Mapping) else node
    if isinstance(children, str) or not hasattr(children, "__iter__"):
        return frozenset()
    return frozenset().union(*map(_mentioned, children))


def _triples(block: Any) -> list[tuple[Any, Any, Any]]:
    return [
        (terms[at], terms[at + 1], terms[at + 2])
        for terms in block.triples
        for at in range(0, len(terms), 3)
    ]


def _rename(term: Any, names: Names) -> Any:
    return names[term] if isinstance(term, Variable) else term


def _exists(variables: Collection[Variable], formulas: Sequence[Formula]) -> Formula:
    """Return all formulas at once; variables that a UNION inside took for its own are left out."""
    formula = Conjunction(tuple(formulas))
    used = tuple(variable for variable in variables if variable in free_variables(formula))
    return Exists(used, formula) if used else formula


def _any_of(formulas: Sequence[Formula]) -> Formula:
    return Disjunction(tuple(formulas)) if len(formulas) > 1 else formulas[0]


def _unwrap(expression: Any) -> Any:
    """Return the expression without the levels of rdflib's grammar that do nothing."""
    while _kind(expression).endswith("Expression") and "other" not in expression:
        expression = expression.expr
    return expression


def _kind(node: Any) -> str:
    """Return which part of rdflib's grammar a node is; a term is none."""
    is_part = isinstance(node, Mapping)
    return str(node.name) if is_part else ""


def _spell(expression: Any) -> str:
    """Return an expression roughly as it was written, for messages."""
    expression = _unwrap(expression)
    kind = _kind(expression)
    if not kind:
        return f"<{expression.name}>" if isinstance(expression, Entity) else str(expression)
    if kind == "literal":
        return f'"{expression.string}"'
    if kind == "UnaryNot":
        return f"!{_spell(expression.expr)}"
    if "other" not in expression:  # a function; its arguments would not say more
        return f"{kind.rpartition('_')[2].upper()}(…)"
    signs = LOGICAL.get(kind) or expression.op
    sign = signs if isinstance(signs, str) else signs[0]
    right = "…" if isinstance(expression.other, list) else _spell(expression.other)
    return f"{_spell(expression.expr)} {sign} {right}"


def _spell_all(variables: Variables) -> str:
    return ", ".join(sorted(map(str, variables)))
