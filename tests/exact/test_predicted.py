"""SPARQL over the completed graph: solutions with ?probability and ?status."""

import re

import pyoxigraph as ox
import pytest

from betae.errors import BetaeError, QuerySyntaxError, UnsupportedQuery
from betae.exact.predicted import finish, read_predicted
from betae.exact.select import Selection

ANSWERS = [("ann", 1.0, "known"), ("bob", 0.75, "predicted"), ("cid", 0.2, "predicted")]
PATTERN = "?x <lives_in> <Oslo>"


def rows(graph, text, answers=ANSWERS):
    variable = read_predicted(text, graph).variables[0].name
    return [*Selection(graph, finish(text, graph, variable, answers), "all", 10**9)]


def values(graph, text):
    return [
        tuple(v for k, v in row.items() if not k.endswith("_label")) for row in rows(graph, text)
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT ?x { P }", [("ann",), ("bob",), ("cid",)]),
        ("SELECT ?x ?status { P } LIMIT 2", [("ann", "known"), ("bob", "predicted")]),
        ("SELECT ?x { P FILTER(?probability > 0.3) } ORDER BY ?probability", [("bob",), ("ann",)]),
        ("SELECT ?x { P FILTER(?probability < 0.3 || ?status = 'known') }", [("ann",), ("cid",)]),
        ("SELECT ?x { P FILTER(?probability > 0.3 && ?x != <ann>) }", [("bob",)]),
        ("SELECT ?x { P } ORDER BY DESC(?probability) OFFSET 1 LIMIT 1", [("bob",)]),
        ("SELECT ?x { P } ORDER BY DESC(?x)", [("cid",), ("bob",), ("ann",)]),
        (
            "SELECT ?x (ROUND(?probability * 100) AS ?p) { P FILTER(?status = 'predicted') }",
            [("bob", "75"), ("cid", "20")],
        ),
        ("SELECT (COUNT(?x) AS ?n) { P FILTER(?probability >= 0.75) }", [("2",)]),
        (
            "SELECT ?status (COUNT(?x) AS ?n) { P } GROUP BY ?status HAVING(COUNT(?x) > 1)",
            [("predicted", "2")],
        ),
        (
            "PREFIX : <> SELECT ?x { :ann :lives_in ?c . ?x :lives_in ?c FILTER(?probability=1) }",
            [("ann",)],
        ),
    ],
)
def test_clauses_are_evaluated_on_the_answers(text, wanted, toy_graph):
    assert values(toy_graph, re.sub(r"\bP\b", PATTERN, text)) == wanted


def test_solutions_are_serialized(toy_graph):
    text = f"SELECT * {{ {PATTERN} }}"
    variable = read_predicted(text, toy_graph).variables[0].name
    found = finish(text, toy_graph, variable, ANSWERS)
    csv = found.evaluate().serialize(format=ox.QueryResultsFormat.CSV).decode().split()
    assert csv[0] == "x,probability,status"
    assert csv[1:] == [
        "urn:betae:ann,1,known",
        "urn:betae:bob,0.75,predicted",
        "urn:betae:cid,0.2,predicted",
    ]
    none = finish(text, toy_graph, variable, [])
    assert len(none.evaluate().serialize(format=ox.QueryResultsFormat.CSV).split()) == 1
    count = f"SELECT (COUNT(?x) AS ?n) {{ {PATTERN} }}"
    assert [row["n"] for row in rows(toy_graph, count, [])] == ["0"]
    without = finish(text, toy_graph, variable, [("ann", None, "known")])
    assert b"urn:betae:ann,,known" in without.evaluate().serialize(format=ox.QueryResultsFormat.CSV)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ASK { P }", "ASK: write SELECT"),
        ("SELECT ?x {\n P\n OPTIONAL { ?x <parent> ?y } }", "OPTIONAL.*line 3, column 2"),
        ("SELECT ?x { P BIND(1 AS ?y) }", "BIND.*line 1, column 34"),
        ("SELECT ?x ?y { ?x <parent> ?y }", r"several: \?x, \?y"),
        ("SELECT (COUNT(*) AS ?n) { P }", "but none"),
        ("SELECT ?x { P FILTER(?probability > ?v) }", r"several: \?v, \?x"),
        ("SELECT ?x { ?x <lives_in> ?probability }", r"\?probability in a pattern.*column 27"),
        ("SELECT ?x { P . { SELECT ?x { ?x <parent> ?y } } }", "SELECT inside"),
        ("SELECT ?x { P FILTER(?probability > 0 && EXISTS { ?x <parent> ?y }) }", "EXISTS beside"),
        ("SELECT ?x { ?x ?r <Oslo> }", "predicate"),
        ("SELECT ?x { ?x <lives_in> ?c . ?x <parent> ?c FILTER(?probability > 0) }", "cycle"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_place(text, reason, toy_graph):
    with pytest.raises(UnsupportedQuery) as refused:
        read_predicted(
            text.replace("P ", PATTERN + " ").replace(" P\n", f" {PATTERN}\n"), toy_graph
        )
    assert re.search(reason, str(refused.value)), str(refused.value)


def test_errors_are_those_of_questions(toy_graph):
    with pytest.raises(QuerySyntaxError):
        read_predicted("SELECT ?x { ?x <lives_in> }", toy_graph)
    with pytest.raises(BetaeError, match="Osloo"):
        read_predicted("SELECT ?x { ?x <lives_in> <Osloo> }", toy_graph)
