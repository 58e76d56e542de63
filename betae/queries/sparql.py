"""SPARQL -> questions and trees: a SELECT, through rdflib's parser.

    PREFIX : <>
    SELECT ?x WHERE {
      ?c :located_in :Europe .
      FILTER NOT EXISTS { <FIFA%20World%20Cup> :hosted ?c }
      ?c :capital ?x
    }

It reads triple patterns, groups, UNION, MINUS, VALUES, blank nodes, LIMIT, FILTER with EXISTS, NOT
EXISTS, `=`, `!=`, IN and NOT IN on entities, joined by `&&`, `||` and `!`, and the property paths
`a/b`, `^a`, `a|b`, `a+`, `a*` and `a?`, with SPARQL's own scopes: a group sees only its own
variables, MINUS only what stands before it. Answers are distinct. Anything else raises
UnsupportedQuery.

An IRI is the name of an entity or a relation in full. An IRI without a scheme, such as `<Europe>`
or `:Europe` under `PREFIX : <>`, is a plain name, with `%20` for a space and so on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from betae.errors import UnsupportedQuery
from betae.queries.ast import Entity, Query, escape, unescape
from betae.queries.formula import (
    Atom,
    Conjunction,
    Disjunction,
    Equals,
    Exists,
    Formula,
    Negation,
    Question,
    Reach,
    Variable,
    fresh,
)
from betae.queries.sparql_tree import (
    Variables,
    bound_variables,
    kind,
    mentioned_variables,
    parse_tree,
    spell,
    spell_all,
    triples,
    unwrap,
)
from betae.queries.trees import to_tree

NO_PREFIXES: Mapping[str, str] = {}
Scope = Mapping[Variable, Variable]  # a variable as written -> the one it means here

UNSUPPORTED_CLAUSES = {
    "datasetClause": "FROM: the graph is chosen when asking",
    "groupby": "GROUP BY",
    "having": "HAVING",
    "orderby": "ORDER BY: `betae answer` ranks answers, `betae query` lists all of them",
}
REPEATS: dict[str, tuple[int, int | None]] = {"+": (1, None), "*": (0, None), "?": (0, 1)}
UNSUPPORTED_PARTS = {
    "OptionalGraphPattern": "OPTIONAL",
    "GraphGraphPattern": "GRAPH",
    "ServiceGraphPattern": "SERVICE",
    "Bind": "BIND",
}


def parse_sparql(text: str, prefixes: Mapping[str, str] = NO_PREFIXES) -> Query:
    """Read a SPARQL SELECT into a tree of names; `resolve` then finds them in a graph.

    `prefixes` need not be declared in the text: prefix -> IRI, such as a graph's own.
    """
    return to_tree(read_sparql(text, prefixes))


def read_sparql(text: str, prefixes: Mapping[str, str] = NO_PREFIXES) -> Question:
    """Read a SPARQL SELECT with one or more variables."""
    query = parse_tree(text, prefixes)
    if query.name != "SelectQuery":
        raise _unsupported(f"{query.name.removesuffix('Query').upper()}: write SELECT")
    for clause, spoken in UNSUPPORTED_CLAUSES.items():
        if clause in query:
            raise _unsupported(spoken)
    limits = query.limitoffset or {}
    if "offset" in limits:
        raise _unsupported("OFFSET: answers have no order of their own")
    if query.valuesClause:
        query.where.setdefault("part", []).append(query.valuesClause)
    targets = _targets(query, text)
    formula = _group(query.where, dict(zip(targets, targets, strict=True)), frozenset())
    return Question(targets, formula, int(limits["limit"]) if "limit" in limits else None)


def _unsupported(part: str) -> UnsupportedQuery:
    return UnsupportedQuery(f"betae does not answer SPARQL with {part}.")


def _targets(query: Any, text: str) -> tuple[Variable, ...]:
    """Return the variables of SELECT; all that can be asked for, as they come, if it has `*`."""
    if not query.projection:
        bound = bound_variables(query.where)
        written = dict.fromkeys(map(Variable, re.findall(r"[?$](\w+)", text)))
        return tuple(variable for variable in written if variable in bound)
    for item in query.projection:
        if item.evar:
            raise _unsupported(f"an expression in SELECT: {spell(item.expr)}")
    return tuple(dict.fromkeys(item.var for item in query.projection))


# ---- parse tree -> formula ----------------------------------------------------------------------


def _group(node: Any, shared: Scope, given: Variables) -> Formula:
    """Return the formula of a group.

    `shared` are the variables that also occur outside; all others are the group's own, and
    existential. `given` are those of the shared ones that a NOT EXISTS around the group has fixed:
    only these can be seen by a filter although the group does not bind them.
    """
    if node.name == "SubSelect":
        raise _unsupported("a SELECT inside the SELECT")
    parts = node.part or []
    visible = bound_variables(node)
    own = {term: fresh(term.name) for term in visible - shared.keys()}
    names = {**shared, **own}
    mentions = Counter(term for part in parts for term in mentioned_variables(part))
    formulas: list[Formula] = []
    bound: Variables = frozenset()
    for part in parts:
        match part.name:
            case "TriplesBlock":
                formulas += [
                    _path(path, _rename(head, names), _rename(tail, names))
                    for head, path, tail in triples(part)
                ]
            case "GroupOrUnionGraphPattern":
                # A variable that several parts mention is one of those outside this part.
                joined = {term for term in mentioned_variables(part) if mentions[term] > 1}
                formulas.append(_union(part, names, frozenset(joined | shared.keys()), given))
            case "MinusGraphPattern":
                formulas.append(_minus(part.graph, names, bound, given))
            case "Filter":
                formulas.append(_filter(part.expr, names, visible | given))
            case "InlineData" | "ValuesClause":
                formulas.append(_values(part, names))
            case name:
                raise _unsupported(UNSUPPORTED_PARTS[name])
        bound |= bound_variables(part)
    return _exists(own.values(), formulas)


def _union(node: Any, names: Scope, outside: Variables, given: Variables) -> Formula:
    """Return the formula of one or more groups; `outside` are the variables of the rest."""
    branches = [bound_variables(branch) for branch in node.graph]
    joined = frozenset().union(*branches) & outside
    partial = joined - frozenset.intersection(*branches)
    if partial:
        raise _unsupported(f"{spell_all(partial)} in only some branches of a UNION")
    shared = {variable: names[variable] for variable in joined | given}
    return _any_of([_group(branch, shared, given) for branch in node.graph])


def _minus(graph: Any, names: Scope, bound: Variables, given: Variables) -> Formula:
    seen_twice = mentioned_variables(graph) & given
    if seen_twice:
        raise _unsupported(
            f"{spell_all(seen_twice)} in a MINUS inside NOT EXISTS, where SPARQL engines differ: "
            "write NOT EXISTS for both"
        )
    joined = bound_variables(graph) & bound
    if not joined:
        raise _unsupported(
            "a MINUS that shares no variable with what stands before it: it has no effect"
        )
    shared = {variable: names[variable] for variable in joined}
    return Negation(_group(graph, shared, frozenset()), "MINUS")


def _filter(expression: Any, names: Scope, bound: Variables) -> Formula:
    """Return the formula of a FILTER in a group that binds the variables `bound`."""
    expression = unwrap(expression)
    match kind(expression):
        case "ConditionalAndExpression":
            conjuncts = [expression.expr, *expression.other]
            return Conjunction(tuple(_filter(part, names, bound) for part in conjuncts))
        case "ConditionalOrExpression":
            disjuncts = [expression.expr, *expression.other]
            return Disjunction(tuple(_filter(part, names, bound) for part in disjuncts))
        case "UnaryNot":
            return Negation(_filter(expression.expr, names, bound), "!")
        case "Builtin_EXISTS":
            return _exists_filter(expression.graph, names, bound, "EXISTS")
        case "Builtin_NOTEXISTS":
            operator = "NOT EXISTS"
            return Negation(_exists_filter(expression.graph, names, bound, operator), operator)
        case "RelationalExpression" if expression.op in ("=", "!=", "IN", "NOT IN"):
            if (compared := _comparison(expression, names, bound)) is not None:
                return compared
    raise _unsupported(f"FILTER({spell(expression)})")


def _exists_filter(graph: Any, names: Scope, bound: Variables, operator: str) -> Formula:
    joined = mentioned_variables(graph) & bound
    if not joined:
        raise _unsupported(
            f"a {operator} that shares no variable with its group: it is true or false for all "
            "answers at once"
        )
    return _group(graph, {variable: names[variable] for variable in joined}, joined)


def _comparison(expression: Any, names: Scope, bound: Variables) -> Formula | None:
    """Return the formula of `=`, `!=`, IN or NOT IN between variables and IRIs, if it is that."""
    variable, operator = unwrap(expression.expr), str(expression.op)
    others = expression.other if operator.endswith("IN") else [expression.other]
    if not isinstance(others, list):  # IN ()
        return None
    values = [unwrap(value) for value in others]
    if isinstance(variable, Entity) and len(values) == 1:
        variable, values = values[0], [variable]
    terms = [variable, *values]
    are_terms = all(isinstance(term, Variable | Entity) for term in terms)
    if not isinstance(variable, Variable) or not are_terms:
        return None
    for term in terms:
        if isinstance(term, Variable) and term not in bound:
            raise _unsupported(f"a FILTER on {term}, which its group does not bind")
    equals = _any_of([Equals(names[variable], _rename(value, names)) for value in values])
    return equals if operator in ("=", "IN") else Negation(equals, operator)


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
                raise _unsupported(f"{spell(value)} in VALUES")
        equals = [Equals(*pair) for pair in zip(variables, row, strict=True)]
        formulas.append(Conjunction(tuple(equals)) if len(equals) > 1 else equals[0])
    return _any_of(formulas)


def _path(path: Any, head: Any, tail: Any) -> Formula:
    """Return the formula of a property path from `head` to `tail`."""
    for term in (head, tail):
        if not isinstance(term, Variable | Entity):
            raise _unsupported(f"the literal {spell(term)}: entities are IRIs")
    if isinstance(path, Entity):
        return Atom(escape(unescape(str(path.name), "entity"), "relation"), head, tail)
    if isinstance(path, Variable):
        raise _unsupported(f"the variable {path} as a predicate: name the relation")
    match path.name:
        case "PathAlternative":
            return _any_of([_path(part, head, tail) for part in path.part])
        case "PathSequence":
            numbers = range(1, len(path.part))
            middles = [fresh(f"_:path{number}") for number in numbers]
            steps = zip(path.part, [head, *middles], [*middles, tail], strict=True)
            formulas = [_path(part, start, stop) for part, start, stop in steps]
            return _exists(middles, formulas)
        case "PathEltOrInverse":
            return _path(path.part, tail, head)
        case "PathElt" if not path.mod:
            return _path(path.part, head, tail)
        case "PathElt":
            least, most = REPEATS[path.mod]
            return Reach(partial(_path, path.part), head, tail, least, most)
    raise _unsupported("a negated property set, !(…)")


def _rename(term: Any, names: Scope) -> Any:
    return names[term] if isinstance(term, Variable) else term


def _exists(variables: Collection[Variable], formulas: Sequence[Formula]) -> Formula:
    """Return the conjunction, without quantifying what a UNION inside took for its own."""
    formula = Conjunction(tuple(formulas))
    used = tuple(variable for variable in variables if variable in formula.free)
    return Exists(used, formula) if used else formula


def _any_of(formulas: Sequence[Formula]) -> Formula:
    return Disjunction(tuple(formulas)) if len(formulas) > 1 else formulas[0]
