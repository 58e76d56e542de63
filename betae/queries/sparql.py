"""SPARQL -> trees: a SELECT with one variable, through rdflib's parser.

    PREFIX : <>
    SELECT ?x WHERE {
      ?c :located_in :Europe .
      FILTER NOT EXISTS { <FIFA%20World%20Cup> :hosted ?c }
      ?c :capital ?x
    }

It reads triple patterns, groups, UNION, MINUS, FILTER NOT EXISTS, FILTER with `=` and `!=` on IRIs,
VALUES for one variable, blank nodes, and the property paths `a/b`, `^a` and `a|b`, with SPARQL's
own scopes: a group sees only its own variables, MINUS only what stands before it. Anything else
raises UnsupportedQuery.

An IRI is the name of an entity or a relation in full. An IRI without a scheme, such as `<Europe>`
or `:Europe` under `PREFIX : <>`, is a plain name, with `%20` for a space and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count
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
    Variable,
    to_tree,
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

Scope = Mapping[Variable, Variable]  # a variable as written -> the one it means here
SCOPES = count(1)  # a number for each variable made here, so that no two are the same

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
    query = parse_tree(text)
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


def _target(projection: Sequence[Any] | None) -> Variable:
    if not projection:
        raise _unsupported("SELECT *: name the one variable to answer for")
    for item in projection:
        if item.evar:
            raise _unsupported(f"an expression in SELECT: {spell(item.expr)}")
    if len(projection) > 1:
        names = " ".join(str(item.var) for item in projection)
        raise _unsupported(f"several target variables: {names}")
    target: Variable = projection[0].var
    return target


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
    own = {term: Variable(term.name, next(SCOPES)) for term in visible - shared.keys()}
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
    return Negation(_group(graph, _the_one(joined, names, "MINUS"), frozenset()))


def _filter(expression: Any, names: Scope, bound: Variables) -> Formula:
    """Return the formula of a FILTER in a group that binds the variables `bound`."""
    expression = unwrap(expression)
    match kind(expression):
        case "ConditionalAndExpression":
            conjuncts = [expression.expr, *expression.other]
            return Conjunction(tuple(_filter(part, names, bound) for part in conjuncts))
        case "Builtin_NOTEXISTS":
            joined = mentioned_variables(expression.graph) & bound
            if not joined:
                raise _unsupported(
                    "a NOT EXISTS that shares no variable with its group: it is true or false for "
                    "all answers at once"
                )
            shared = _the_one(joined, names, "NOT EXISTS")
            return Negation(_group(expression.graph, shared, joined))
        case "RelationalExpression" if expression.op in ("=", "!="):
            variable, value = unwrap(expression.expr), unwrap(expression.other)
            if isinstance(variable, Entity):
                variable, value = value, variable
            if isinstance(variable, Variable) and isinstance(value, Entity):
                if variable not in bound:
                    raise _unsupported(f"a FILTER on {variable}, which its group does not bind")
                equals = Equals(names[variable], value)
                return equals if expression.op == "=" else Negation(equals)
    raise _unsupported(f"FILTER({spell(expression)})")


def _the_one(joined: Variables, names: Scope, operator: str) -> Scope:
    """Return the variable that a negated group has in common with its surroundings."""
    if len(joined) > 1:
        raise _unsupported(
            f"a {operator} on several variables at once ({spell_all(joined)}): a tree has a "
            "complement of the entities of one variable only"
        )
    return {variable: names[variable] for variable in joined}


def _values(node: Any, names: Scope) -> Formula:
    variables = node.var or []
    if len(variables) != 1:
        raise _unsupported(f"VALUES for {len(variables)} variables: one at a time")
    rows = [value[0] if isinstance(value, list) else value for value in node.value or []]
    for value in rows:
        if not isinstance(value, Entity):
            raise _unsupported(f"{spell(value)} in VALUES")
    if not rows:
        raise _unsupported("VALUES without a value: it has no answers")
    return _any_of([Equals(names[variables[0]], value) for value in rows])


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


def _rename(term: Any, names: Scope) -> Any:
    return names[term] if isinstance(term, Variable) else term


def _exists(variables: Collection[Variable], formulas: Sequence[Formula]) -> Formula:
    """Return the conjunction, without quantifying what a UNION inside took for its own."""
    formula = Conjunction(tuple(formulas))
    used = tuple(variable for variable in variables if variable in formula.free)
    return Exists(used, formula) if used else formula


def _any_of(formulas: Sequence[Formula]) -> Formula:
    return Disjunction(tuple(formulas)) if len(formulas) > 1 else formulas[0]
