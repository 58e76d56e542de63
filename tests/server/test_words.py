"""Questions in plain words."""

import datetime as dt

import pytest

from betae import Entity, IsA, Where, world
from betae.queries.read import read_question
from betae.server.words import edge_in_words, in_words, negated

EUROPEAN = Entity("Europe")["~located_in"]
HOSTS = Entity("FIFA World Cup")["hosted"]
WORDS = [
    (EUROPEAN, "is located in Europe"),
    (Entity("France")["capital"], "France has as capital"),
    (EUROPEAN & ~HOSTS, "is located in Europe and FIFA World Cup has not hosted"),
    (EUROPEAN | HOSTS, "is located in Europe or FIFA World Cup hosted"),
    (EUROPEAN["~borders"], "borders something that is located in Europe"),
    (EUROPEAN["capital"], "(something that is located in Europe) has as capital"),
    (
        EUROPEAN["~borders"] & HOSTS,
        "borders (something that is located in Europe) and FIFA World Cup hosted",
    ),
    (~(EUROPEAN & HOSTS), "not (is located in Europe and FIFA World Cup hosted)"),
    (
        EUROPEAN & (HOSTS | Entity("Spain")),
        "is located in Europe and (FIFA World Cup hosted or is Spain)",
    ),
    (~Entity("France"), "is not France"),
]


@pytest.mark.parametrize(("tree", "words"), WORDS)
def test_a_question_in_words(tree, words):
    graph = world()
    assert in_words(graph, read_question(tree, graph).tree) == f"everything that {words}"


def test_conditions_in_words():
    graph = world()
    tree = Where("born", "<", dt.date(1975, 1, 31)) & Where("name", "~", "li") & ~IsA("Album")
    words = 'has born < 1975-01-31 and has name containing "li" and is not an Album'
    assert in_words(graph, tree) == f"everything that {words}"


def test_an_edge_in_words():
    graph = world()
    capital = graph.relation_id("capital")
    assert edge_in_words(graph, capital, "France", "Paris") == "France has capital Paris"
    assert edge_in_words(graph, capital ^ 1, "Paris", "France") == "France has capital Paris"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("treats", "does not treat"),
        ("expresses", "does not express"),
        ("is located in", "is not located in"),
        ("has as capital", "does not have as capital"),
        ("hosted", "has not hosted"),
    ],
)
def test_verbs_are_negated(said, expected):
    assert negated(said) == expected
