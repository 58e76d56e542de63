"""Random small graphs, random query trees over them, and random SPARQL."""

import datetime as dt
from functools import cache

import numpy as np
import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from betae.graph.edges import EDGES, SPLITS
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import NAME, NAMED, RDF_TYPE, XSD
from betae.graph.triples import Triples
from betae.graph.values import OPERATORS
from betae.queries.ast import And, Entity, IsA, Not, Or, Project, Where
from betae.queries.read import unresolve

MAX_DEPTH = 5

edge_choices = st.sampled_from(list(EDGES))


def examples(number):
    """Settings for this many examples, on a machine that may be busy with something else."""
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=number, deadline=None, suppress_health_check=slow)


@st.composite
def graphs(draw, entities=(2, 12), relations=(1, 4), edges=(0, 40)):
    """Graphs of `e0` … `eb`, `r0` … and edges in all three splits; least and most of each."""
    num_entities, num_relations = draw(st.integers(*entities)), draw(st.integers(*relations))
    entity, relation = st.integers(0, num_entities - 1), st.integers(0, num_relations - 1)
    least, most = edges
    triples = sorted(
        draw(st.sets(st.tuples(entity, relation, entity), min_size=least, max_size=most))
    )
    chosen = draw(st.lists(st.sampled_from(SPLITS), min_size=len(triples), max_size=len(triples)))
    splits = {}
    for split in SPLITS:
        here = [triple for triple, into in zip(triples, chosen, strict=True) if into == split]
        splits[split] = np.array(here, dtype=np.int32).reshape(-1, 3)
    names = [f"e{number:x}" for number in range(num_entities)]
    relations = [f"r{number}" for number in range(num_relations)]
    return KnowledgeGraph.from_triples(Triples(names, relations, splits))


@cache  # hypothesis takes longer to make and check a strategy than to draw from it
def trees(num_entities, num_relations, depth=MAX_DEPTH):
    """Trees of ids with every operator, at most `depth` operators deep."""
    leaf = st.builds(Entity, st.integers(0, num_entities - 1))
    if depth == 0:
        return leaf
    smaller = st.deferred(lambda: trees(num_entities, num_relations, depth - 1))
    project = st.builds(Project, smaller, st.integers(0, num_relations - 1))
    several = st.lists(smaller, min_size=2, max_size=3)
    return st.one_of(
        project,
        several.map(lambda operands: And(*operands)),
        several.map(lambda operands: Or(*operands)),
        smaller.map(Not),
        project,
        leaf,
    )


@cache
def positive_trees(num_entities, num_relations, depth=MAX_DEPTH):
    """Trees where a complement always follows a positive operand of an And: what SPARQL can say."""
    leaf = st.builds(Entity, st.integers(0, num_entities - 1))
    if depth == 0:
        return leaf
    smaller = st.deferred(lambda: positive_trees(num_entities, num_relations, depth - 1))
    project = st.builds(Project, smaller, st.integers(0, num_relations - 1))
    rest = st.lists(smaller | smaller.map(Not), min_size=1, max_size=2)
    return st.one_of(
        project,
        st.builds(lambda first, others: And(first, *others), smaller, rest),
        st.lists(smaller, min_size=2, max_size=3).map(lambda operands: Or(*operands)),
        project,
        leaf,
    )


# ---- values and classes -------------------------------------------------------------------------

VALUES = {  # property -> (datatype, lexical form) of its values
    "size": [("integer", "1"), ("integer", "2"), ("integer", "+3"), ("double", "2.5")],
    "born": [("date", "1975-01-31"), ("date", "1980-06-01"), ("date", "1999-12-31")],
    "open": [("boolean", "true"), ("boolean", "false")],
    "text": [("string", "abc"), ("string", "B"), ("string", ""), ("string", "7")],
    "mixed": [("integer", "2"), ("string", "n/a"), ("date", "1975-01-31")],
}
CLASSES = ["Person", "Firm"]
COMPARED = {
    "size": [1, 2, 2.5, -1],
    "born": [dt.date(1975, 1, 31), dt.date(1990, 1, 1)],
    "open": [True, False],
    "text": ["abc", "b", "7", ""],
    "mixed": [2, "n/a", dt.date(1975, 1, 31)],
}


@st.composite
def graphs_with_values(draw, **sizes):
    """Graphs as of `graphs`, with values of VALUES and classes."""
    graph = draw(graphs(**sizes))
    stated = st.one_of(
        *(st.tuples(st.just(name), st.sampled_from(of)) for name, of in VALUES.items()),
        st.tuples(st.just(RDF_TYPE), st.sampled_from([(NAME, name) for name in CLASSES])),
    )
    subjects = st.sampled_from(list(graph.entities))
    found = draw(st.sets(st.tuples(subjects, stated), max_size=30))
    # Each property has values of each of its kinds, so that comparing with it is no error.
    found |= {(draw(subjects), (name, each)) for name, of in VALUES.items() for each in of}
    found |= {(draw(subjects), (RDF_TYPE, (NAME, name))) for name in CLASSES}
    rows = [
        (subject, name, text, XSD + datatype if datatype else NAME, "")
        for subject, (name, (datatype, text)) in sorted(found)
    ]
    literals = pl.DataFrame(rows, schema=NAMED, orient="row")
    return KnowledgeGraph.from_triples(
        Triples([*graph.entities], [*graph.relations], graph.written_ids, literals=literals)
    )


@st.composite
def conditions(draw):
    """Conditions on values of VALUES and on classes, by name."""
    if draw(st.integers(0, 3)) == 0:
        return IsA(draw(st.sampled_from(CLASSES)))
    name = draw(st.sampled_from(list(VALUES)))
    value = draw(st.sampled_from(COMPARED[name]))
    signs = OPERATORS if isinstance(value, str) else OPERATORS[:-1]
    return Where(name, draw(st.sampled_from(signs)), value)


@cache
def trees_with_conditions(num_entities, num_relations, depth=MAX_DEPTH):
    """Trees as of `trees`, some of whose leaves are conditions."""
    tree = trees(num_entities, num_relations, depth)
    several = st.lists(tree | conditions() | conditions().map(Not), min_size=2, max_size=3)
    joined = st.one_of(
        several.map(lambda operands: And(*operands)), several.map(lambda operands: Or(*operands))
    )
    relation = st.integers(0, num_relations - 1)
    step = st.builds(Project, joined, relation)
    last = st.builds(And, step, conditions())
    return st.one_of(joined, step, last, conditions(), joined.map(Not))


@st.composite
def cases(draw, trees=trees):
    """A graph, a query over it, by id or by name, and which edges count."""
    graph = draw(graphs())
    query = draw(trees(graph.num_entities, graph.num_relations))
    return graph, unresolve(query, graph) if draw(st.booleans()) else query, draw(edge_choices)


# The graph of `sparql_groups` is small and dense, so that most of them have answers.
sparql_graphs = graphs(entities=(4, 4), relations=(2, 2), edges=(12, 30))
_variable = st.sampled_from(["?x", "?y", "?z"])
_entity = st.sampled_from([":e0", ":e1", ":e2", ":e3"])
_path = st.sampled_from(
    [":r0", ":r1", "^:r0", ":r0/:r1", "(:r0|^:r1)", "^(:r0/^:r1)", "(:r0|:r1/:r1)/^:r0"]
)
_kinds = st.sampled_from(
    ["union", "minus", "exists"] * 3
    + ["link", "link", "group", "differs", "equals", "values", "anchor", "loose"]
)


@st.composite
def sparql_groups(draw, focus="?x", depth=2):
    """Random groups that begin with `focus`; betae can answer only some of them."""

    near = st.sampled_from([focus] * 8 + ["?x", "?y", "?z"])

    def inner():
        return draw(sparql_groups(draw(near), depth - 1))

    parts = [f"{focus} {draw(_path)} {draw(_entity)} ."]
    for kind in draw(st.lists(_kinds, min_size=depth // 2, max_size=1 + (depth > 0))):
        match kind:
            case "link":
                other = draw(_variable)
                parts.append(f"{focus} {draw(_path)} {other} . {other} {draw(_path)} :e0 .")
            case "differs" | "equals":
                sign = "=" if kind == "equals" else "!="
                parts.append(f"FILTER({draw(near)} {sign} {draw(_entity)})")
            case "values":
                parts.append(f"VALUES {focus} {{ :e0 :e1 :e2 }}")
            case "loose":
                parts.append(f"{draw(_variable)} {draw(_path)} {draw(_variable)} .")
            case "group" if depth:
                parts.append(inner())
            case "union" if depth:
                parts.append(f"{inner()} UNION {inner()}")
            case "minus" if depth:
                parts.append(f"MINUS {inner()}")
            case "exists" if depth:
                parts.append(f"FILTER NOT EXISTS {inner()}")
            case _:
                parts.append(f"{focus} {draw(_path)} {draw(_entity)} .")
    if draw(st.integers(0, 3)) == 0:  # order matters to MINUS only
        parts.reverse()
    return f"{{ {' '.join(parts)} }}"
