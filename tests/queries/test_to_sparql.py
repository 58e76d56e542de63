"""Trees written as SPARQL: betae and pyoxigraph find the answers of the tree in it."""

import datetime as dt
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import UnsupportedQuery
from betae.queries.ast import Entity, IsA, Where, rebuild
from betae.queries.read import parse_question, unresolve
from betae.queries.to_sparql import to_sparql
from tests.queries.strategies import examples, graphs_with_values, trees_with_conditions

A, B = Entity("a")["r"], Entity("b")["~s"]
ODD = Entity('x: "y"/é')["~has part"]
SAME = [
    A,
    A["s"]["~t"],
    A & B,
    A & ~B,
    A | B,
    (A & ~Entity("c"))["t"] & B,
    A & Entity("c"),
    A & (B | ~Entity("c")["r"]),
    A & ~(B | Entity("c")["s"]),
    ODD & ~ODD["r"],
    Entity("http://x.org/a#b")["http://x.org/r"],
    A & IsA("Song") & ~IsA("Old Song"),
    A & Where("length", "<", 200) & ~Where("length", ">=", -2.5),
    (A & ~Where("length", "<", 200))["t"],
    (~Where("length", "<", 200))["~t"],
    A & Where("born", "<", dt.date(1975, 1, 31)) & Where("open", "=", True),
    A & Where("name", "~", 'say "yes"') & Where("name", "=", "Liebe", "de"),
    A & Where("name", "!=", "1975-01-31") & Where("name", "=", "tea", ""),
]


def in_order(tree):
    """Sort the operands of every And and Or."""
    return rebuild(tree, lambda node: node.with_operands(*sorted(node.operands, key=str)))


@pytest.mark.parametrize("tree", SAME, ids=str)
def test_a_tree_comes_back(tree):
    assert in_order(parse_question(to_sparql(tree)).tree) == in_order(tree)


@pytest.mark.parametrize("tree", [~A, A | ~B, ~(A & B), ~A & ~B], ids=str)
def test_a_complement_alone_cannot_be_written(tree):
    with pytest.raises(UnsupportedQuery, match="what the answers are"):
        to_sparql(tree)


def test_booleans_have_no_order():
    with pytest.raises(UnsupportedQuery, match="not ordered: write = or !="):
        to_sparql(A & Where("open", "<", True))


@st.composite
def cases(draw):
    graph = draw(graphs_with_values())
    return graph, draw(trees_with_conditions(graph.num_entities, graph.num_relations))


@given(cases())
@examples(60)
def test_answers_are_those_of_the_tree(case):
    graph, query = case
    try:
        text = to_sparql(unresolve(query, graph))
    except UnsupportedQuery:
        assert re.search(r"!|[<>]=? (true|false)", str(query))
        return
    expected = [graph.entities[each] for each in graph.answers(query).tolist()]
    assert sorted(row["X"] for row in graph.select(text)) == sorted(expected)
    found = graph.answers(parse_question(text).tree)
    assert [graph.entities[each] for each in found.tolist()] == expected
