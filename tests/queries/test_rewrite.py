"""Logical laws: equal answers before and after, and the shape of the normal forms."""

import time

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from betae.errors import UnsupportedQuery
from betae.exact.answers import answers
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.queries.ast import And, Entity, Not, Or, Project, nodes, rebuild
from betae.queries.rewrite import dnf_branches, simplify, to_de_morgan, to_dnf
from tests.queries.oracle import slow_answers
from tests.queries.strategies import cases, edge_choices, examples, graphs, trees

a, b, c, d = (Entity(name) for name in "abcd")

LAWS = {  # a, b, c stand for any queries and r for any relation
    "double negation": (~~a, a),
    "De Morgan, and": (~(a & b), ~a | ~b),
    "De Morgan, or": (~(a | b), ~a & ~b),
    "De Morgan, three": (~And(a, b, c), Or(~a, ~b, ~c)),
    "and commutes": (a & b, b & a),
    "or commutes": (a | b, b | a),
    "and associates": ((a & b) & c, a & (b & c)),
    "or associates": ((a | b) | c, a | (b | c)),
    "and over or": (a & (b | c), (a & b) | (a & c)),
    "or over and": (a | (b & c), (a | b) & (a | c)),
    "absorption": (a | (a & b), a),
    "idempotence": (a & a, a | a),
    "contradiction": (a & ~a, b & ~b),
    "excluded middle": (a | ~a, b | ~b),
    "projection over or": ((a | b)["r"], a["r"] | b["r"]),
    "two projections over or": (Or(a, b, c)["r"]["r"], Or(*(part["r"]["r"] for part in (a, b, c)))),
}


@st.composite
def law_cases(draw):
    graph = draw(graphs())
    tree = trees(graph.num_entities, graph.num_relations, depth=2)
    parts = {"a": draw(tree), "b": draw(tree), "c": draw(tree)}
    return graph, parts, draw(st.integers(0, graph.num_relations - 1)), draw(edge_choices)


def put_in(law, parts, relation):
    def replace(node):
        if isinstance(node, Entity):
            return parts.get(node.name, node)
        return Project(node.operand, relation) if getattr(node, "relation", None) == "r" else node

    return rebuild(law, replace)


@pytest.mark.parametrize("law", LAWS)
@examples(12)
@given(case=law_cases())
def test_laws(law, case):
    graph, parts, relation, edges = case
    left, right = (put_in(side, parts, relation) for side in LAWS[law])
    assert answers(graph, left, edges).tolist() == answers(graph, right, edges).tolist()
    assert slow_answers(graph, left, edges) == slow_answers(graph, right, edges)


def test_projection_does_not_distribute_over_and():
    """The laws are not passed by everything: here a step from both is less than both steps."""
    none = np.empty((0, 3), dtype=np.int32)
    edges = np.array([(0, 0, 2), (1, 0, 2)], dtype=np.int32)  # r(a, c) and r(b, c)
    triples = Triples(["a", "b", "c"], ["r"], {"train": edges, "valid": none, "test": none})
    graph = KnowledgeGraph.from_triples(triples)
    assert answers(graph, (a & b)["r"]).tolist() == []
    assert answers(graph, a["r"] & b["r"]).tolist() == [2]


@examples(70)
@given(cases())
def test_rewrites_keep_the_answers(case):
    graph, query, edges = case
    before = slow_answers(graph, query, edges)
    assert slow_answers(graph, simplify(query), edges) == before
    assert slow_answers(graph, to_de_morgan(query), edges) == before
    try:
        normal = to_dnf(query)
    except UnsupportedQuery:
        reject()
    assert slow_answers(graph, normal, edges) == before


def branches_of(query):
    return query.operands if isinstance(query, Or) else (query,)


@examples(70)
@given(trees(12, 8))
def test_dnf_has_or_at_the_root_only_and_not_before_a_step_or_an_entity_only(query):
    try:
        normal = to_dnf(query)
    except UnsupportedQuery:
        reject()
    for branch in branches_of(normal):
        for node in nodes(branch):
            assert not isinstance(node, Or)
            if isinstance(node, Not):
                assert isinstance(node.operand, Project | Entity)
    assert len(set(branches_of(normal))) == len(branches_of(normal))
    assert dnf_branches(query) == tuple(branches_of(normal))
    assert to_dnf(normal) == normal


@examples(70)
@given(trees(12, 8))
def test_de_morgan_form_has_no_or_and_no_double_negation(query):
    written = to_de_morgan(query)
    for node in nodes(written):
        assert not isinstance(node, Or)
        assert not (isinstance(node, Not) and isinstance(node.operand, Not))
    assert num_nodes(written) <= 3 * num_nodes(query)


def num_nodes(query):
    return sum(1 for _ in nodes(query))


def clauses(num):
    """(a0 | b0) & (a1 | b1) & …: 2 ** num branches in DNF."""
    return And(*(Entity(2 * number) | Entity(2 * number + 1) for number in range(num)))


def test_de_morgan_form_grows_linearly_with_the_unions():
    sizes = [num_nodes(to_de_morgan(clauses(num))) for num in (10, 20, 40, 80)]
    assert [size - 1 for size in sizes] == [(sizes[0] - 1) * factor for factor in (1, 2, 4, 8)]


def test_dnf_doubles_with_each_union_and_refuses_in_time():
    assert len(dnf_branches(clauses(8))) == 256
    started = time.perf_counter()
    with pytest.raises(UnsupportedQuery, match=r"1,048,576 branches.*De Morgan"):
        to_dnf(clauses(20))
    with pytest.raises(UnsupportedQuery, match=f"{2**300:,} branches"):
        to_dnf(clauses(300))
    with pytest.raises(UnsupportedQuery, match="1,048,576 branches"):
        to_dnf(~Or(*(~part for part in clauses(20).operands)))
    assert time.perf_counter() - started < 0.5


def test_dnf_refuses_branches_that_stay_below_a_complement():
    with pytest.raises(UnsupportedQuery, match="1,048,576 branches"):
        to_dnf(~clauses(20)["r"])


@pytest.mark.parametrize(
    ("query", "normal"),
    [
        (a["r"], a["r"]),
        ((a | b) & c, (a & c) | (b & c)),
        ((a | b)["r"], a["r"] | b["r"]),
        (((a | b)["r"] & c)["s"], (a["r"] & c)["s"] | (b["r"] & c)["s"]),
        (~(a | b), ~a & ~b),
        (~(a & b), ~a | ~b),
        (~(a | b)["r"], ~a["r"] & ~b["r"]),
        (~~(a | b), a | b),
        (~(~a & ~b), a | b),
        ((a | b) & (a | b), a | (a & b) | (b & a) | b),
    ],
)
def test_dnf(query, normal):
    assert to_dnf(query) == normal


@pytest.mark.parametrize(
    ("query", "written"),
    [
        (a["r"], a["r"]),
        (a | b, ~(~a & ~b)),
        (Or(a, b, c), ~And(~a, ~b, ~c)),
        ((a | b)["r"], (~(~a & ~b))["r"]),
        (~(a | b), ~a & ~b),
        (~a | b, ~(a & ~b)),
        (~a | ~b, ~(a & b)),
    ],
)
def test_de_morgan(query, written):
    assert to_de_morgan(query) == written


@pytest.mark.parametrize(
    ("query", "simple"),
    [
        (~~a, a),
        (~~~a, ~a),
        (a & a, a),
        (Or(a, b, a), a | b),
        (a & ~~(b & a), a & b),
        ((~~a)["r"] | a["r"], a["r"]),
        (a & (b | b), a & b),
        (a & (c & d), And(a, c, d)),
    ],
)
def test_simplify(query, simple):
    assert simplify(query) == simple
