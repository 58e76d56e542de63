"""SPARQL -> questions: a SELECT, through rdflib's parser.

    PREFIX : <>
    SELECT ?x WHERE {
      ?c :located_in :Europe .
      FILTER NOT EXISTS { <FIFA%20World%20Cup> :hosted ?c }
      ?c :capital ?x
    }

Supported: triple patterns, groups, UNION, MINUS, VALUES, blank nodes, LIMIT, FILTER with EXISTS,
NOT EXISTS, `=`, `!=`, IN and NOT IN on entities, or with comparisons of one value, joined by `&&`,
`||` and `!`, and the property paths `a/b`, `^a`, `a|b`, `a+`, `a*` and `a?`, with SPARQL's own
scopes: a group sees only its own variables, MINUS only what stands before it. Answers are distinct.
Anything else raises UnsupportedQuery.

An IRI is the full name of an entity or a relation. An IRI without a scheme, such as `<Europe>` or
`:Europe` under `PREFIX : <>`, is a plain name, percent-encoded (`%20` for a space).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote

from betae.errors import QuerySyntaxError, UnsupportedQuery
from betae.graph.names import NO_PREFIXES, Prefixes, local_name
from betae.graph.values import CONTAINS, MIRRORED, Value, read_value
from betae.queries.ast import Entity, IsA, Where
from betae.queries.formula import (
    Atom,
    Equals,
    Formula,
    Meets,
    Negation,
    Question,
    Reach,
    Term,
    Variable,
    all_of,
    any_of,
    exists,
    fresh,
    same_value,
    spell,
)

Scope = Mapping[Variable, Variable]  # a variable as written -> the one it means here
Variables = frozenset[Variable]
PARSER_LOCK = Lock()  # rdflib's parser fails if two threads use it for the first time at once
HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
SKIPPED = r"""#[^\n]*|<[^<>"{}|^`\\\s]*>|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
LOGICAL = {"ConditionalOrExpression": "||", "ConditionalAndExpression": "&&"}
UNSUPPORTED_CLAUSES = {
    "datasetClause": "FROM: the graph is chosen when asking",
    "groupby": "GROUP BY",
    "having": "HAVING",
    "orderby": "ORDER BY: `betae answer` ranks answers, `betae query` lists all of them",
}
OPPOSITES = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
XSD = "http://www.w3.org/2001/XMLSchema#"
STRING, FLOATS = XSD + "string", {XSD + "decimal", XSD + "double", XSD + "float"}
COMPARED = FLOATS | {XSD + name for name in ("integer", "boolean", "date", "dateTime", "time")}
OF_ANSWERS = frozenset({Variable("probability"), Variable("status")})
NAMES_OF_ANSWERS = {variable.name for variable in OF_ANSWERS}
OUTSIDE = ("projection", "groupby", "having", "orderby", "limitoffset")  # around the pattern
PART = re.compile(  # of a message, that can be found in the text
    r"SPARQL with (?:a |the literal |the variable |an expression in )?"
    r"([A-Z]+(?: BY)?\b|\?\w+|(?:NOT )?EXISTS|\"[^\"]*\")"
)
REPEATS: dict[str, tuple[int, int | None]] = {"+": (1, None), "*": (0, None), "?": (0, 1)}


def parse_sparql(text: str, prefixes: Prefixes = NO_PREFIXES) -> Question:
    """Read a SPARQL SELECT; names stay as written.

    `prefixes` (prefix -> IRI) need no declaration in the text.
    """
    query = _parse_tree(text, prefixes)
    with _located(text):
        for clause, spoken in UNSUPPORTED_CLAUSES.items():
            if clause in query:
                raise _unsupported(spoken)
        return _question(query, text)


def _question(query: Any, text: str) -> Question:
    if query.name != "SelectQuery":
        raise _unsupported(f"{query.name.removesuffix('Query').upper()}: write SELECT")
    limits = query.limitoffset or {}
    if "offset" in limits:
        raise _unsupported("OFFSET: answers have no order of their own")
    if query.valuesClause:
        query.where.setdefault("part", []).append(query.valuesClause)
    targets = _targets(query, text)
    names = {target: target for target in targets}
    question = Question(targets, _group(query.where, names, frozenset(targets), frozenset()))
    if "limit" in limits:
        question.limit = int(limits["limit"])
    return question


@contextmanager
def _located(text: str) -> Iterator[None]:
    """Add where the part stands that an error names, if it can be found."""
    try:
        yield
    except UnsupportedQuery as error:
        part = PART.search(str(error))
        words = r"\s+".join(map(re.escape, part[1].split())) if part else ""
        places = [each for each in re.finditer(f"{SKIPPED}|({words})", text, re.I) if each[1]]
        if not words or not places:
            raise
        before = text[: places[0].start()].split("\n")
        place = f"line {len(before)}, column {len(before[-1]) + 1}"
        raise UnsupportedQuery(f"{error} It is at {place}.") from None


def parse_predicted(text: str, prefixes: Prefixes = NO_PREFIXES) -> Question:
    """Read a SELECT whose pattern is a tree, and which may use ?probability and ?status.

    They, and the clauses around the pattern, are left to `betae.exact.predicted`.
    """
    query = _parse_tree(text, prefixes)
    with _located(text):
        if query.name != "SelectQuery":
            raise _unsupported(f"{query.name.removesuffix('Query').upper()}: write SELECT")
        filters, inside = split_predicted(query)
        outside = [*filters, *(query[key] for key in OUTSIDE if key in query)]
        wanted = _mentioned_variables(outside) - {item.evar for item in query.projection or []}
        if not query.projection:
            wanted |= _bound_variables(query.where)
        targets = wanted - OF_ANSWERS
        if clash := _mentioned_variables(inside) & OF_ANSWERS:
            raise _unsupported(f"{spell(clash)} in a pattern: it is that of an answer")
        if len(targets) != 1:
            found = f"several: {spell(targets)}" if targets else "none"
            raise _unsupported(
                "predictions and not one variable, besides ?probability and ?status, in SELECT, "
                f"ORDER BY and FILTER(?probability ...), but {found}"
            )
        query.where.part = inside
        names = {target: target for target in targets}
        return Question(targets, _group(query.where, names, frozenset(targets), frozenset()))


def asks_for_probability(text: str) -> bool:
    """Tell whether SPARQL uses ?probability or ?status."""
    found = re.finditer(rf"{SKIPPED}|[?$](probability|status)\b", text)
    return any(each[1] for each in found)


def split_predicted(query: Any) -> tuple[list[Any], list[Any]]:
    """Return the filters on ?probability and ?status, and the other parts of the pattern."""
    parts = [*(query.where.part or [])]
    if query.valuesClause:
        parts.append(query.valuesClause)
    filters = [part for part in parts if part.name == "Filter" and _names(part) & NAMES_OF_ANSWERS]
    clauses = [query[key] for key in OUTSIDE if key in query]
    if any("EXISTS" in kind for kind in _kinds([*filters, *clauses])):
        raise _unsupported("EXISTS beside ?probability or ?status: write a FILTER of its own")
    return filters, [part for part in parts if not any(part is each for each in filters)]


def _names(node: Any) -> set[str]:
    """Return the names of all variables in a part, before or after `_parse_tree`."""
    from rdflib.term import Variable as SparqlVariable

    if isinstance(node, SparqlVariable):
        return {str(node)}
    return {variable.name for variable in _mentioned_variables(node)}.union(
        *(map(_names, _children(node)))
    )


def _kinds(node: Any) -> set[str]:
    """Return the kinds of all nodes of rdflib's grammar in a part."""
    return {_kind(node)}.union(*map(_kinds, _children(node)))


def _children(node: Any) -> Iterable[Any]:
    children = node.values() if isinstance(node, Mapping) else node
    return () if isinstance(children, str) or not isinstance(children, Iterable) else children


def _unsupported(part: str) -> UnsupportedQuery:
    return UnsupportedQuery(f"betae does not answer SPARQL with {part}.")


def _targets(query: Any, text: str) -> tuple[Variable, ...]:
    """Return the variables of SELECT; for `*`, all that are bound, in the order written."""
    if not query.projection:
        bound = _bound_variables(query.where)
        written = dict.fromkeys(map(Variable, re.findall(r"[?$](\w+)", text)))
        if targets := tuple(variable for variable in written if variable in bound):
            return targets
        raise _unsupported("SELECT * and no variable: name one, such as ?x")
    for item in query.projection:
        if item.evar:
            raise _unsupported(f"an expression in SELECT: {_spell(item.expr)}")
    return tuple(dict.fromkeys(item.var for item in query.projection))


# ---- parse tree -> formula ----------------------------------------------------------------------


def _group(node: Any, outer: Scope, shared: Variables, given: Variables) -> Formula:
    """Return the formula of a group inside one with the scope `outer`.

    `shared` variables also occur outside; all others are local to the group and existential.
    `given` variables are the shared ones that an enclosing NOT EXISTS has fixed: filters see them
    although the group does not bind them.
    """
    if node.name == "SubSelect":
        raise _unsupported("a SELECT inside the SELECT")
    parts = node.part or []
    filters = [each for part in parts if part.name == "Filter" for each in _conjuncts(part.expr)]
    values = _values_of_properties(parts, filters, shared | given)
    visible = _bound_variables(node) - values.keys()
    own = {term: fresh(term.name) for term in visible - shared}
    names = {**{term: outer[term] for term in shared}, **own}
    mentions = Counter(term for part in parts for term in _mentioned_variables(part))
    formulas: list[Formula] = []
    bound: Variables = frozenset()
    for part in parts:
        match part.name:
            case "TriplesBlock":
                formulas += [
                    _path(path, _rename(head, names), _rename(tail, names))
                    for head, path, tail in _triples(part)
                    if not isinstance(tail, Variable) or tail not in values
                ]
            case "GroupOrUnionGraphPattern":
                # A variable that several parts mention occurs outside this part.
                joined = {term for term in _mentioned_variables(part) if mentions[term] > 1}
                formulas.append(_union(part, names, shared | joined, given))
            case "MinusGraphPattern":
                formulas.append(_minus(part.graph, names, bound, given))
            case "Filter":
                formulas += [
                    _filter(each, names, visible | given)
                    for each in _conjuncts(part.expr)
                    if not _mentioned_variables(each) & values.keys()
                ]
            case "InlineData" | "ValuesClause":
                formulas.append(_values(part, names))
            case name:  # Bind, OptionalGraphPattern, …
                raise _unsupported(name.removesuffix("GraphPattern").upper())
        bound |= _bound_variables(part)
    for variable, (property, head) in values.items():
        compare = partial(_compared, property, _rename(head, names))
        tests = [each for each in filters if variable in _mentioned_variables(each)]
        formulas.append(same_value([_test(compare, variable, each) for each in tests]))
    return exists(own.values(), formulas)


def _union(node: Any, names: Scope, outside: Variables, given: Variables) -> Formula:
    """Return the formula of a UNION; `outside` variables occur in the rest of the group."""
    branches = [_bound_variables(branch) for branch in node.graph]
    joined = frozenset().union(*branches) & outside
    partial = joined - frozenset.intersection(*branches)
    if partial:
        raise _unsupported(f"{spell(partial)} in only some branches of a UNION")
    return any_of([_group(branch, names, joined | given, given) for branch in node.graph])


def _minus(graph: Any, names: Scope, bound: Variables, given: Variables) -> Formula:
    seen_twice = _mentioned_variables(graph) & given
    if seen_twice:
        raise _unsupported(
            f"{spell(seen_twice)} in a MINUS inside NOT EXISTS, where SPARQL engines differ: "
            "write NOT EXISTS for both"
        )
    joined = _bound_variables(graph) & bound
    if not joined:
        raise _unsupported(
            "a MINUS that shares no variable with what stands before it: it has no effect"
        )
    return Negation(_group(graph, names, joined, frozenset()))


def _filter(expression: Any, names: Scope, bound: Variables) -> Formula:
    """Return the formula of a FILTER in a group that binds the variables `bound`."""
    expression = _unwrap(expression)
    match _kind(expression):
        case "ConditionalAndExpression" | "ConditionalOrExpression" as kind:
            operands = [expression.expr, *expression.other]
            parts = [_filter(operand, names, bound) for operand in operands]
            return all_of(parts) if kind == "ConditionalAndExpression" else any_of(parts)
        case "UnaryNot":
            return Negation(_filter(expression.expr, names, bound))
        case "Builtin_EXISTS" | "Builtin_NOTEXISTS" as kind:
            joined = _mentioned_variables(expression.graph) & bound
            if not joined:
                operator = "EXISTS" if kind == "Builtin_EXISTS" else "NOT EXISTS"
                raise _unsupported(
                    f"a {operator} that shares no variable with its group: it is true or false for "
                    "all answers at once"
                )
            group = _group(expression.graph, names, joined, joined)
            return group if kind == "Builtin_EXISTS" else Negation(group)
        case "RelationalExpression" if expression.op in ("=", "!=", "IN", "NOT IN"):
            if (compared := _comparison(expression, names, bound)) is not None:
                return compared
    raise _unsupported(f"FILTER({_spell(expression)})")


def _comparison(expression: Any, names: Scope, bound: Variables) -> Formula | None:
    """Return the formula of `=`, `!=`, IN or NOT IN on variables and IRIs; None for others."""
    variable, operator = _unwrap(expression.expr), str(expression.op)
    others = expression.other if operator.endswith("IN") else [expression.other]
    if not isinstance(others, list):  # IN ()
        return None
    values = [_unwrap(value) for value in others]
    if isinstance(variable, Entity) and len(values) == 1:
        variable, values = values[0], [variable]
    are_terms = all(isinstance(value, Variable | Entity) for value in values)
    if not isinstance(variable, Variable) or not are_terms:
        return None
    for term in (variable, *values):
        if isinstance(term, Variable) and term not in bound:
            raise _unsupported(f"a FILTER on {term}, which its group does not bind")
    equals = any_of([Equals(names[variable], _rename(value, names)) for value in values])
    return equals if operator in ("=", "IN") else Negation(equals)


def _values(node: Any, names: Scope) -> Formula:
    variables = [names[variable] for variable in node.var or []]
    rows = [value if isinstance(value, list) else [value] for value in node.value or []]
    if not rows or not variables:
        raise _unsupported("VALUES without a value: it has no answers")
    formulas: list[Formula] = []
    for row in rows:
        if len(row) != len(variables):
            raise _unsupported(f"a row of VALUES with {len(row)} of {len(variables)} values")
        for value in row:
            if not isinstance(value, Entity):
                raise _unsupported(f"{_spell(value)} in VALUES")
        formulas.append(all_of([*map(Equals, variables, row)]))
    return any_of(formulas)


def _path(path: Any, head: Any, tail: Any) -> Formula:
    """Return the formula of a property path from `head` to `tail`."""
    property = _without_parentheses(path)
    if _is_literal(tail) and isinstance(property, Entity):
        return _compared(str(property.name), head, "=", *_value(tail))
    for term in (head, tail):
        if not isinstance(term, Variable | Entity):
            raise _unsupported(f"the literal {_spell(term)}: entities are IRIs")
    if isinstance(path, Entity):
        if path.name == RDF_TYPE and isinstance(tail, Entity):
            return Meets(IsA(tail.name), head)
        return Atom(path.name, head, tail)
    if isinstance(path, Variable):
        raise _unsupported(f"the variable {path} as a predicate: name the relation")
    match path.name:
        case "PathAlternative":
            return any_of([_path(part, head, tail) for part in path.part])
        case "PathSequence":
            middles = [fresh(f"_:path{i}") for i in range(1, len(path.part))]
            return exists(middles, [*map(_path, path.part, [head, *middles], [*middles, tail])])
        case "PathEltOrInverse":
            return _path(path.part, tail, head)
        case "PathElt" if not path.mod:
            return _path(path.part, head, tail)
        case "PathElt":
            (least, most), inner = REPEATS[path.mod], _without_parentheses(path.part)
            while _kind(inner) == "PathElt":  # (p+)+ is p+, and so on: nested ones would multiply
                its_least, its_most = REPEATS[inner.mod]
                least, most = min(least, its_least), 1 if most == its_most == 1 else None
                inner = _without_parentheses(inner.part)
            return Reach(partial(_path, inner), head, tail, least, most)
    raise _unsupported("a negated property set, !(…)")


def _without_parentheses(path: Any) -> Any:
    """Strip the levels of rdflib's grammar around a path that do nothing."""
    while True:
        match _kind(path):
            case "PathAlternative" | "PathSequence" if len(path.part) == 1:
                path = path.part[0]
            case "PathElt" if not path.mod:
                path = path.part
            case _:
                return path


def _rename(term: Any, names: Scope) -> Any:
    return names[term] if isinstance(term, Variable) else term


# ---- values -------------------------------------------------------------------------------------


def _values_of_properties(
    parts: list[Any], filters: list[Any], outside: Variables
) -> dict[Variable, tuple[str, Any]]:
    """Return the variables that filters compare with values, with their property and its subject.

    Such a variable is the object of one triple pattern and stands nowhere else but in filters.
    """
    triples = [triple for part in parts if part.name == "TriplesBlock" for triple in _triples(part)]
    uses = Counter(term for triple in triples for term in triple if isinstance(term, Variable))
    others = (part for part in parts if part.name not in ("TriplesBlock", "Filter"))
    elsewhere = outside.union(*map(_mentioned_variables, others))
    compared = frozenset[Variable]().union(*map(_compared_with_literals, filters))
    return {
        tail: (str(_without_parentheses(path).name), head)
        for head, path, tail in triples
        if isinstance(tail, Variable)
        and tail in compared - elsewhere
        and uses[tail] == 1
        and isinstance(_without_parentheses(path), Entity)
    }


def _compared_with_literals(expression: Any) -> Variables:
    """Return the variables that a filter compares with literals; groups inside have their own."""
    expression = _unwrap(expression)
    match _kind(expression):
        case "Builtin_EXISTS" | "Builtin_NOTEXISTS":
            return frozenset()
        case "UnaryNot":
            return _compared_with_literals(expression.expr)
        case "ConditionalAndExpression" | "ConditionalOrExpression":
            operands = [expression.expr, *expression.other]
            return frozenset[Variable]().union(*map(_compared_with_literals, operands))
    return _mentioned_variables(expression) if _has_literal(expression) else frozenset()


def _conjuncts(expression: Any) -> list[Any]:
    """Split a filter at its `&&`."""
    expression = _unwrap(expression)
    if _kind(expression) != "ConditionalAndExpression":
        return [expression]
    return [each for part in (expression.expr, *expression.other) for each in _conjuncts(part)]


def _compared(
    property: str, subject: Term, sign: str, value: Value, language: str | None
) -> Formula:
    return Meets(Where(property, sign, value, language), subject)


def _test(
    compare: Callable[..., Formula], variable: Variable, expression: Any, is_negated: bool = False
) -> Formula:
    """Return the formula of a filter on a value, of comparisons with `compare(sign, value)`."""
    expression = _unwrap(expression)
    match _kind(expression):
        case "UnaryNot":
            return _test(compare, variable, expression.expr, not is_negated)
        case "ConditionalAndExpression" | "ConditionalOrExpression" as kind:
            operands = [expression.expr, *expression.other]
            parts = [_test(compare, variable, each, is_negated) for each in operands]
            needs_all = (kind == "ConditionalAndExpression") != is_negated
            return same_value(parts) if needs_all else any_of(parts)
        case "RelationalExpression":
            tested, sign, literals = _sides(expression)
            sign = OPPOSITES[sign] if is_negated else sign
            is_text, tested = _without_str(tested)
            if tested == variable and literals and all(map(_is_literal, literals)):
                values = [_value(each) for each in literals]
                if is_text and any(tag for _, tag in values):  # STR(...) has no language
                    raise _unsupported(f"FILTER({_spell(expression)})")
                tests = [compare(sign, value, None if is_text else tag) for value, tag in values]
                return any_of(tests) if sign == "=" else same_value(tests)
        case "Builtin_CONTAINS" | "Builtin_REGEX" if not is_negated:
            text = _searched(expression, variable)
            if text is not None:
                return compare(CONTAINS, text, None)
    raise _unsupported(f"FILTER({_spell(expression)})")


def _sides(expression: Any) -> tuple[Any, str, list[Any]]:
    """Return what is compared, the sign, and what with; the latter are literals if either is."""
    one, sign, other = _unwrap(expression.expr), str(expression.op), expression.other
    if sign in ("IN", "NOT IN"):
        others = [_unwrap(each) for each in other] if isinstance(other, list) else []
        return one, "=" if sign == "IN" else "!=", others
    other = _unwrap(other)
    return (other, MIRRORED.get(sign, sign), [one]) if _is_literal(one) else (one, sign, [other])


def _searched(expression: Any, variable: Variable) -> str | None:
    """Return the text that CONTAINS(LCASE(?v), ...) or REGEX(?v, ..., "i") looks for in a value."""
    if _kind(expression) == "Builtin_CONTAINS":
        lower, wanted = _unwrap(expression.arg1), _text(expression.arg2)
        ignores_case = _kind(lower) == "Builtin_LCASE"
        searched = _unwrap(lower.arg) if ignores_case else lower
        is_plain = wanted is not None and wanted == wanted.lower()
    else:
        searched, wanted = _unwrap(expression.text), _text(expression.pattern)
        ignores_case = expression.flags is not None and _text(expression.flags) == "i"
        is_plain = wanted is not None and not re.search(r"[\\.^$*+?()\[\]{}|]", wanted)
    is_of_variable = _without_str(searched)[1] == variable
    return wanted if is_of_variable and ignores_case and is_plain else None


def _text(expression: Any) -> str | None:
    """Return the text of a literal."""
    literal = _unwrap(expression)
    return str(literal.string) if _kind(literal) == "literal" else None


def _without_str(expression: Any) -> tuple[bool, Any]:
    """Return whether an expression is STR(...), and what it is of."""
    is_str = _kind(expression) == "Builtin_STR"
    return is_str, _unwrap(expression.arg) if is_str else expression


def _is_literal(node: Any) -> bool:
    from rdflib.term import Literal

    if _kind(node) in ("UnaryMinus", "UnaryPlus"):
        node = _unwrap(node.expr)
    return isinstance(node, Literal) or _kind(node) == "literal"


def _has_literal(node: Any) -> bool:
    children = node.values() if isinstance(node, Mapping) else node
    is_leaf = isinstance(children, str) or not isinstance(children, Iterable)
    return _is_literal(node) or (not is_leaf and any(map(_has_literal, children)))


def _value(node: Any) -> tuple[Value, str | None]:
    """Return the value of a literal; the language of text, "" if it has none."""
    if _kind(node) in ("UnaryMinus", "UnaryPlus"):
        value, _ = _value(_unwrap(node.expr))
        assert isinstance(value, int | float)
        return (-value if _kind(node) == "UnaryMinus" else value), None
    if _kind(node) != "literal":  # a number or a boolean
        value = node.toPython()
        return (value if isinstance(value, bool | int) else float(value)), None
    text, datatype = str(node.string), getattr(node.datatype, "name", None)
    if datatype in (None, STRING):
        return text, node.lang or ""
    try:
        value = float(text) if datatype in FLOATS else read_value(text)
    except ValueError:
        value = text
    if datatype not in COMPARED or isinstance(value, str):
        raise _unsupported(f"the literal {_spell(node)} of type {local_name(datatype)}")
    return value, None


# ---- text -> parse tree -------------------------------------------------------------------------


def _parse_tree(text: str, known_prefixes: Prefixes) -> Any:
    """Return rdflib's parse tree with every term but literals as Variable or Entity."""
    from rdflib.plugins.sparql.algebra import traverse
    from rdflib.plugins.sparql.parserutils import CompValue
    from rdflib.term import BNode, URIRef
    from rdflib.term import Variable as SparqlVariable

    prologue, query = parsed_text(text)

    def absolute(iri: str) -> str:
        return str(iri if HAS_SCHEME.match(iri) else URIRef(iri, base=base))

    base: str | None = None
    prefixes = dict(known_prefixes)
    for declaration in prologue:
        if declaration.name == "Base":
            base = absolute(declaration.iri)
        else:
            prefixes[declaration.prefix or ""] = absolute(declaration.iri)
    blank_nodes: dict[str, Variable] = {}

    def to_term(node: Any) -> Term | None:
        if isinstance(node, SparqlVariable):
            return Variable(str(node))
        if isinstance(node, BNode):  # a variable that cannot be selected
            return blank_nodes.setdefault(str(node), Variable(f"_:b{len(blank_nodes) + 1}"))
        if isinstance(node, URIRef):
            iri = absolute(node)
        elif isinstance(node, CompValue) and node.name == "pname":
            prefix = node.prefix or ""
            if prefix not in prefixes:
                found = re.search(rf"(?<![\w<]){re.escape(prefix)}:", text)
                message = f"The prefix {prefix}: is not declared: write PREFIX {prefix}: <…> first."
                raise QuerySyntaxError(message, text, found.start() if found else 0)
            iri = prefixes[prefix] + re.sub(r"\\(.)", r"\1", node.localname or "")
        else:
            return None  # keep the node
        return Entity(iri if HAS_SCHEME.match(iri) else unquote(iri))

    return traverse(query, visitPost=to_term)


def parsed_text(text: str) -> Any:
    """Parse with rdflib."""
    from pyparsing import ParseException
    from rdflib.plugins.sparql.parser import parseQuery

    try:
        with PARSER_LOCK:
            return parseQuery(text)
    except ParseException as error:
        raise syntax_error(error.pstr, error.loc) from None
    except ValueError as error:  # rdflib's: "Invalid unicode code point: …"
        position = text.find(str(error).rpartition(" ")[2])
        raise QuerySyntaxError(f"{error}.", text, max(position, 0)) from None
    except RecursionError:
        raise UnsupportedQuery(
            "This SPARQL is nested too deeply, or has too many triples in a row, for its parser: "
            "write it in logic text."
        ) from None


def syntax_error(text: str, position: int) -> QuerySyntaxError:
    """Build the error for a syntax error at `position`, with a hint where possible."""
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
    return QuerySyntaxError("Not valid SPARQL from here on.", text, position)


# ---- variables ----------------------------------------------------------------------------------


def _bound_variables(node: Any) -> Variables:
    """Return the variables that a part of a group binds."""
    match node.name:
        case "TriplesBlock":
            return _mentioned_variables([(head, tail) for head, _, tail in _triples(node)])
        case "GroupOrUnionGraphPattern":
            return frozenset().union(*map(_bound_variables, node.graph))
        case "GroupGraphPatternSub":
            return frozenset().union(*map(_bound_variables, node.part or []))
        case "InlineData" | "ValuesClause":
            return _mentioned_variables(node.var)
    return frozenset()


def _mentioned_variables(node: Any) -> Variables:
    """Return all variables in a part."""
    if isinstance(node, Variable):
        return frozenset([node])
    children = node.values() if isinstance(node, Mapping) else node
    if isinstance(children, str) or not isinstance(children, Iterable):
        return frozenset()
    return frozenset().union(*map(_mentioned_variables, children))


def _triples(block: Any) -> list[tuple[Any, Any, Any]]:
    """Return the triple patterns of a block as (head, path, tail)."""
    terms = [*chain.from_iterable(block.triples)]
    return [*zip(terms[::3], terms[1::3], terms[2::3], strict=True)]


# ---- expressions --------------------------------------------------------------------------------


def _unwrap(expression: Any) -> Any:
    """Strip the single-operand levels of rdflib's grammar from an expression."""
    while _kind(expression).endswith("Expression") and "other" not in expression:
        expression = expression.expr
    return expression


def _kind(node: Any) -> str:
    """Return the name of a node in rdflib's grammar, "" for a term."""
    return str(getattr(node, "name", "")) if isinstance(node, Mapping) else ""


def _spell(expression: Any) -> str:
    """Write an expression roughly as it was, for messages."""
    expression = _unwrap(expression)
    part = _kind(expression)
    if not part:
        return f"<{expression.name}>" if isinstance(expression, Entity) else str(expression)
    if part == "literal":
        return f'"{expression.string}"'
    if part == "UnaryNot":
        return f"!{_spell(expression.expr)}"
    if "other" not in expression:  # a function: its name is enough
        return f"{part.rpartition('_')[2].upper()}(…)"
    signs = LOGICAL.get(part) or expression.op
    sign = signs if isinstance(signs, str) else signs[0]
    right = "…" if isinstance(expression.other, list) else _spell(expression.other)
    return f"{_spell(expression.expr)} {sign} {right}"
