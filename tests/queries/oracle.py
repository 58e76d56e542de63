"""Two independent ways to the exact answers: pyoxigraph's SPARQL engine, and Python sets.

Neither uses betae's adjacency or its formulas: they start from the triples of the splits.
"""

import datetime as dt
import operator
from itertools import count
from urllib.parse import quote, unquote

import pyoxigraph as ox

from betae.graph.edges import EDGES
from betae.queries.ast import And, Condition, Entity, IsA, Not, Or, Project
from betae.queries.read import resolve, unresolve

BASE = "http://oracle/"
IS_ENTITY = "a :Entity"
SIGNS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def edges_of(graph, edges):
    """Return the edges that count as tuples (head, relation, tail), relations as written."""
    return {tuple(edge) for split in EDGES[edges] for edge in graph.written_ids[split].tolist()}


# ---- Python sets ------------------------------------------------------------------------------


def slow_answers(graph, query, edges="all"):
    triples = edges_of(graph, edges)

    def walk(node):
        match node:
            case Entity(entity):
                return {entity}
            case Condition():
                return slow_members(graph, node)
            case Project(operand, relation):
                heads = walk(operand)
                directed = triples if relation % 2 == 0 else {(t, r, h) for h, r, t in triples}
                return {t for h, r, t in directed if r == relation // 2 and h in heads}
            case And():
                return set.intersection(*map(walk, node.operands))
            case Or():
                return set.union(*map(walk, node.operands))
            case Not(operand):
                return set(range(graph.num_entities)) - walk(operand)
        raise AssertionError(node)

    return walk(resolve(query, graph))


def slow_members(graph, condition):
    """Return the entities that meet a condition, from the rows of the literals."""
    rows = list(graph.literals.named(graph.entities, graph.relations).iter_rows(named=True))
    if isinstance(condition, IsA):
        found = [row for row in rows if row["datatype"] == "" and row["text"] == condition.name]
    else:
        found = [row for row in rows if row["property"] == condition.property]
        found = [row for row in found if slow_holds(row, condition)]
    return {graph.entity_id(row["subject"]) for row in found}


def slow_holds(row, condition):
    value, text = condition.value, row["text"]
    read = {int: int, float: float, bool: "true".__eq__, dt.date: dt.date.fromisoformat, str: str}
    kinds = {"integer": int, "double": float, "boolean": bool, "date": dt.date}
    kind = kinds.get(row["datatype"].rpartition("#")[2], str)
    if {kind, type(value)} not in ({int, float}, {type(value)}):
        return condition.operator == "!="
    if condition.operator == "~":
        return value.lower() in text.lower()
    if condition.language is not None and row["language"] != condition.language:
        return False
    return SIGNS[condition.operator](read[kind](text), value)


def slow_refuted(graph, query, edges="all"):
    """Return what no larger graph can make an answer: the complement of what may be one."""
    everything = set(range(graph.num_entities))
    triples = edges_of(graph, edges)

    def bounds(node):
        """Return what is in the set whatever edges are added, and what may be in it."""
        inner = [bounds(operand) for operand in node.operands]
        match node:
            case Entity(entity):
                return {entity}, {entity}
            case Condition():
                return (slow_members(graph, node),) * 2
            case Project(_, relation):
                directed = triples if relation % 2 == 0 else {(t, r, h) for h, r, t in triples}
                heads = inner[0][0]
                return {t for h, r, t in directed if r == relation // 2 and h in heads}, everything
            case Not():
                least, most = inner[0]
                return everything - most, everything - least
        combine = set.union if isinstance(node, Or) else set.intersection
        return tuple(combine(*sets) for sets in zip(*inner, strict=True))

    return everything - bounds(resolve(query, graph))[1]


# ---- pyoxigraph -------------------------------------------------------------------------------


def store_of(graph, edges):
    """Load the edges that count, and one triple per entity that says it is one."""

    def node(name):
        return ox.NamedNode(BASE + quote(name, safe=""))

    rdf_type = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
    store = ox.Store()
    store.extend(ox.Quad(node(name), rdf_type, node("Entity")) for name in graph.entities)
    store.extend(
        ox.Quad(node(graph.entities[head]), node(graph.relations[rel]), node(graph.entities[tail]))
        for head, rel, tail in edges_of(graph, edges)
    )
    return store


def ask_oxigraph(graph, sparql, edges="all"):
    """Return the ids of the entities that ?x stands for in a SPARQL query with the prefix `:`."""
    rows = store_of(graph, edges).query(f"BASE <{BASE}> PREFIX : <{BASE}> {sparql}")
    return {graph.entity_id(unquote(row["x"].value.removeprefix(BASE))) for row in rows}


def oxigraph_answers(graph, query, edges="all"):
    group = _pattern(unresolve(query, graph), "?x", count(1))
    return ask_oxigraph(graph, f"SELECT DISTINCT ?x WHERE {{ {group} }}", edges)


def _pattern(query, variable, numbers):
    """Say in SPARQL that `variable` is in the set; every node is a group of its own."""
    match query:
        case Entity(name):
            return f"{{ {variable} {IS_ENTITY} FILTER({variable} = :{quote(name, safe='')}) }}"
        case Project(operand):
            middle = f"?v{next(numbers)}"
            step = _step(middle, query, variable)
            # Without DISTINCT at every step, the paths between two entities are multiplied.
            inner = _pattern(operand, middle, numbers)
            return f"{{ SELECT DISTINCT {variable} WHERE {{ {inner} {step} }} }}"
        case And():
            return " ".join(_pattern(operand, variable, numbers) for operand in query.operands)
        case Or():
            branches = (_pattern(operand, variable, numbers) for operand in query.operands)
            return " UNION ".join(f"{{ {branch} }}" for branch in branches)
        case Not(operand):
            inner = _pattern(operand, variable, numbers)
            return f"{{ {variable} {IS_ENTITY} FILTER NOT EXISTS {{ {inner} }} }}"
    raise AssertionError(query)


def _step(head, projection, tail):
    if projection.is_inverse:
        head, tail = tail, head
    return f"{head} :{projection.relation} {tail} ."


# ---- the SPARQL that betae reads --------------------------------------------------------------


def plain_sparql(query, negation="MINUS"):
    """Write a tree of names as a person would; a complement must follow a positive operand."""
    text = _plain(query, "?x", count(1), negation)
    return f"PREFIX : <> SELECT ?x WHERE {{ {text} }}"


def _plain(query, variable, numbers, negation):
    match query:
        case Entity(name):
            return f"VALUES {variable} {{ :{name} }}"
        case Project(Entity(name)):
            return _step(f":{name}", query, variable)
        case Project(operand):
            middle = f"?v{next(numbers)}"
            inner = _plain(operand, middle, numbers, negation)
            return f"{inner} {_step(middle, query, variable)}"
        case And():
            return " ".join(_plain(part, variable, numbers, negation) for part in query.operands)
        case Or():
            branches = (_plain(part, variable, numbers, negation) for part in query.operands)
            return " UNION ".join(f"{{ {branch} }}" for branch in branches)
        case Not(operand):
            return f"{negation} {{ {_plain(operand, variable, numbers, negation)} }}"
    raise AssertionError(query)
