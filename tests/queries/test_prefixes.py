"""The prefixes of a graph, in SPARQL and in logic text, along with full IRIs."""

import numpy as np
import pytest

from betae.errors import QuerySyntaxError, UnknownEntity, UnknownRelation
from betae.exact.answers import answers
from betae.exact.select import select
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples

WD, WDT = "http://wd/", "http://wdt/"


class Prefixed(KnowledgeGraph):
    prefixes = property(lambda self: {"wd": WD, "wdt": WDT, "": WD}, lambda self, value: None)


@pytest.fixture
def graph():
    empty = np.empty((0, 3), dtype=np.int32)
    edges = np.array([(0, 0, 1), (2, 1, 1)], dtype=np.int32)
    splits = {"train": edges, "valid": empty, "test": empty}
    return Prefixed.from_triples(Triples([f"{WD}a", f"{WD}b", "wd:a"], [f"{WDT}r", "s"], splits))


@pytest.mark.parametrize(
    "text",
    [
        "?X . wdt:r(?X, wd:b)",
        "?X . <http://wdt/r>(?X, <http://wd/b>)",
        "?X . 'wdt:r'(?X, ':b')",
        "?X . ~wdt:r(wd:b, ?X)",
        "SELECT ?x { ?x wdt:r wd:b }",
        "SELECT ?x { ?x wdt:r :b }",
        "SELECT ?x { ?x <http://wdt/r> <http://wd/b> }",
        "PREFIX wdt: <http://wdt/> SELECT ?x { ?x wdt:r wd:b }",
        "SELECT ?x { ?x wdt:r wd:b . ?x wdt:r ?y . ?x wdt:r/^wdt:r ?x }",
    ],
)
def test_known_prefixes(graph, text):
    found = select(graph, text)
    (name, label), (row,) = found.columns, found
    assert row == {name: f"{WD}a", label: "wd:a"}


def test_a_tree_too(graph):
    assert answers(graph, "?X . wdt:r(?X, wd:b)").tolist() == [0]
    assert answers(graph, "SELECT ?x { ?x wdt:r wd:b }").tolist() == [0]


def test_a_name_that_is_there_comes_first(graph):
    assert answers(graph, "?X . s(wd:a, ?X)").tolist() == [1]
    assert answers(graph, "?X . wdt:r(wd:a, ?X)").tolist() == []


def test_what_is_not_there(graph):
    with pytest.raises(UnknownEntity, match=r"no entity '(http://wd/|wd:)c'"):
        answers(graph, "?X . wdt:r(?X, wd:c)")
    with pytest.raises(UnknownRelation, match=r"no relation '(http://wdt/|wdt:)t'"):
        answers(graph, "?X . wdt:t(?X, wd:b)")
    with pytest.raises(UnknownEntity, match="no entity 'other:b'"):
        answers(graph, "?X . wdt:r(?X, other:b)")
    with pytest.raises(QuerySyntaxError, match="prefix other: is not declared"):
        answers(graph, "SELECT ?x { ?x wdt:r other:b }")
