"""Exact answers against two independent engines, and one query written in four ways."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import betae
from betae.errors import UnsupportedQuery
from betae.exact.answers import answers
from betae.queries.ast import Entity, Or
from betae.queries.read import resolve, unresolve
from betae.queries.sparql import parse_sparql
from betae.queries.syntax import parse
from tests.queries.oracle import ask_oxigraph, oxigraph_answers, plain_sparql, slow_answers
from tests.queries.strategies import (
    cases,
    edge_choices,
    examples,
    positive_trees,
    sparql_graphs,
    sparql_groups,
)


@examples(120)
@given(cases())
def test_exact_answers_equal_the_sparql_engine(case):
    graph, query, edges = case
    found = answers(graph, query, edges).tolist()
    assert found == sorted(slow_answers(graph, query, edges))
    assert found == sorted(oxigraph_answers(graph, query, edges))


@examples(80)
@given(cases())
def test_logic_text_reads_back(case):
    _, query, _ = case
    assert parse(str(query)) == query


@pytest.mark.slow
@examples(40)
@given(cases(positive_trees), st.sampled_from(["MINUS", "FILTER NOT EXISTS"]))
def test_sparql_written_from_a_tree_reads_back(case, negation):
    graph, query, edges = case
    query = unresolve(query, graph)
    read = parse_sparql(plain_sparql(query, negation)).tree
    assert read == query
    assert answers(graph, read, edges).tolist() == sorted(slow_answers(graph, query, edges))


@pytest.mark.slow
@examples(60)
@given(sparql_graphs, sparql_groups(), edge_choices)
def test_random_sparql_means_what_it_means_to_a_sparql_engine(graph, group, edges):
    text = f"SELECT ?x WHERE {group}"
    try:
        query = parse_sparql(f"PREFIX : <> {text}").tree
    except UnsupportedQuery:
        assume(False)
    assert answers(graph, query, edges).tolist() == sorted(ask_oxigraph(graph, text, edges))


def test_a_wrong_answer_would_be_seen():
    """The engines do tell queries apart: a complement, a direction, which edges count."""
    graph = betae.world()
    france = Entity("France")
    seen = set()
    for query in (france["borders"], ~france["borders"], france["capital"], france["~city_in"]):
        for edges in ("train", "all"):
            found = frozenset(oxigraph_answers(graph, query, edges))
            assert found == slow_answers(graph, query, edges)
            seen.add(found)
    assert len(seen) >= 6


E, cup = Entity("Europe"), Entity("FIFA World Cup")
FOUR_WAYS = {
    "the example": (
        '?X . exists ?C : located_in(?C, Europe) & !hosted("FIFA World Cup", ?C) & capital(?C, ?X)',
        '?X . ∃ ?C : located_in(?C, Europe) ∧ ¬hosted("FIFA World Cup", ?C) ∧ capital(?C, ?X)',
        (E["~located_in"] & ~cup["hosted"])["capital"],
        "?c :located_in :Europe MINUS { <FIFA%20World%20Cup> :hosted ?c } ?c :capital ?x",
    ),
    "the example, with the editions": (
        "?X . exists ?C : located_in(?C, Europe)"
        ' & !(exists ?E : edition_of(?E, "FIFA World Cup") & hosted(?E, ?C)) & capital(?C, ?X)',
        "?X . ∃?C . located_in(?C, Europe)"
        ' ∧ ¬(∃?E . edition_of(?E, "FIFA World Cup") ∧ hosted(?E, ?C)) ∧ capital(?C, ?X)',
        (E["~located_in"] & ~cup["~edition_of"]["hosted"])["capital"],
        "?c :located_in :Europe . ?c :capital ?x "
        "FILTER NOT EXISTS { ?e :edition_of :FIFA%20World%20Cup ; :hosted ?c }",
    ),
    "1p, inverse": (
        "?X . located_in(?X, Europe)",
        "?X . ~located_in(Europe, ?X)",
        E["~located_in"],
        ":Europe ^:located_in ?x",
    ),
    "2u": (
        "?X . borders(France, ?X) | borders(Germany, ?X) | borders(Italy, ?X)",
        "?X . borders(France, ?X) ∨ borders(Germany, ?X) ∨ borders(Italy, ?X)",
        Or(*(Entity(country)["borders"] for country in ("France", "Germany", "Italy"))),
        "{ :France :borders ?x } UNION { :Germany :borders ?x } UNION { :Italy :borders ?x }",
    ),
    "up": (
        "?X . exists ?A : (borders(France, ?A) | borders(Germany, ?A)) & capital(?A, ?X)",
        "?X . ∃ ?A : (borders(France, ?A) ∨ borders(Germany, ?A)) ∧ capital(?A, ?X)",
        (Entity("France")["borders"] | Entity("Germany")["borders"])["capital"],
        "{ :France :borders ?a } UNION { :Germany :borders ?a } ?a :capital ?x",
    ),
    "3in": (
        "?X . located_in(?X, Europe) & !borders(France, ?X) & !(?X = France)",
        "?X . located_in(?X, Europe) ∧ ¬borders(France, ?X) ∧ ¬(?X = France)",
        E["~located_in"] & ~Entity("France")["borders"] & ~Entity("France"),
        "?x :located_in :Europe MINUS { :France :borders ?x } FILTER(?x != :France)",
    ),
    "pni": (
        "?X . !(exists ?A : borders(France, ?A) & borders(?A, ?X)) & located_in(?X, Europe)",
        "?X . ¬(∃ ?A : borders(France, ?A) ∧ borders(?A, ?X)) ∧ located_in(?X, Europe)",
        ~Entity("France")["borders"]["borders"] & E["~located_in"],
        "FILTER NOT EXISTS { :France :borders/:borders ?x } ?x :located_in :Europe",
    ),
    "a complement of a union": (
        "?X . located_in(?X, Europe) & !(borders(France, ?X) | borders(Germany, ?X))",
        "?X . located_in(?X, Europe) ∧ ¬(borders(France, ?X) ∨ borders(Germany, ?X))",
        E["~located_in"] & ~(Entity("France")["borders"] | Entity("Germany")["borders"]),
        "?x :located_in :Europe MINUS { { :France :borders ?x } UNION { :Germany :borders ?x } }",
    ),
}


@pytest.fixture(scope="module")
def world():
    return betae.world()


@pytest.mark.parametrize("name", FOUR_WAYS)
def test_one_query_four_ways(name, world):
    ascii_text, unicode_text, query, sparql = FOUR_WAYS[name]
    assert parse(ascii_text) == query
    assert parse(unicode_text) == query
    assert parse_sparql(f"PREFIX : <> SELECT ?x WHERE {{ {sparql} }}").tree == query
    by_id = resolve(query, world)
    assert resolve(parse(str(by_id)), world) == by_id == resolve(unresolve(by_id, world), world)
    found = answers(world, query, "all").tolist()
    assert found == sorted(slow_answers(world, query, "all"))
    assert found == sorted(ask_oxigraph(world, f"SELECT ?x WHERE {{ {sparql} }}", "all"))
    assert 0 < len(found) < world.num_entities
