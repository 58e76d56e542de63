"""Predictions of which no known edge has the like."""

import pytest

import betae
from betae.answering.unusual import KnownTails
from betae.queries.read import read_question
from tests.answering.helpers import guessing
from tests.training.helpers import small_graph

TURTLE = """@prefix : <http://x.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:night a :Album ; :artist :queen ; :track :rhapsody . :jazz a :Album ; :artist :queen .
:queen a :Band . :trio a :Duo . :rhapsody a :Song , :Video . :love a :Song . :mercury :in :queen .
:may :in :trio . :Duo rdfs:subClassOf :Group . :Group rdfs:subClassOf :Band .
"""


@pytest.fixture(scope="module")
def music(tmp_path_factory):
    file = tmp_path_factory.mktemp("music") / "music.ttl"
    file.write_text(TURTLE)
    return betae.read(file)


def told(graph, formula, entity, edges="all"):
    query = read_question(f"?X . {formula}", graph).tree
    return KnownTails(graph, edges).unusual(query, graph.entity_id(entity))


@pytest.mark.parametrize(
    ("formula", "entity", "reason"),
    [
        ("artist(jazz, ?X)", "queen", None),
        ("artist(jazz, ?X)", "trio", None),  # a Duo is a Group, and so a Band
        ("artist(jazz, ?X)", "love", "no known tail of :artist is of class :Song"),
        ("artist(jazz, ?X)", "mercury", "not a known tail of :artist"),  # without a class
        ("artist(?X, queen)", "night", None),
        ("artist(?X, queen)", "love", "no known head of :artist is of class :Song"),
        ("in(?X, queen)", "may", None),
        ("in(?X, queen)", "queen", "no known head of :in is of class :Band"),
        ("track(jazz, ?X)", "love", None),  # one class in common is enough
        ("exists ?A : artist(?A, queen) & track(?A, ?X)", "jazz", "no known tail of :track is"),
        ("artist(jazz, ?X) & !track(jazz, ?X)", "love", "no known tail of :artist is of class"),
        ("track(jazz, ?X) & artist(jazz, ?X)", "love", "no known tail of :artist is of class"),
        ("track(jazz, ?X) | artist(jazz, ?X)", "love", None),
        ("in(jazz, ?X) | artist(jazz, ?X)", "love", "no known tail of :in is of class :Song"),
        ("Song(?X) & track(jazz, ?X)", "love", None),
    ],
)
def test_what_is_unusual(music, formula, entity, reason):
    found = told(music, formula, entity)
    assert (found is None) if reason is None else found.startswith(reason)


def test_classes_of_node_tables_and_the_edges_that_are_known(write):
    edges = write("edges.tsv", "ann\tworks_at\tacme\nbob\tknows\tann\nann\tknows\tzoe\n")
    nodes = write("nodes.csv", "id,type\nann,Person;Boss\nbob,Person\nacme,Firm\nzoe,\n")
    held_out = write("test.tsv", "bob\tworks_at\tann\n")
    graph = betae.read(edges, nodes=nodes, test=held_out)
    assert told(graph, "works_at(bob, ?X)", "bob", "all") is None
    reason = "no known tail of works_at is of class Person"
    assert told(graph, "works_at(bob, ?X)", "bob", "train") == reason
    assert told(graph, "knows(bob, ?X)", "bob") is None
    assert told(graph, "works_at(bob, ?X)", "zoe") == "not a known tail of works_at"


def test_it_is_told_of_predictions_only():
    graph = small_graph(0, 60, num_edges=150, num_valid=20)
    found = guessing(graph).answer("?X . r0(e1, ?X)", 60)
    tails = {tail for _, name, tail in graph.to_polars("train").iter_rows() if name == "r0"}
    for answer in found:
        is_odd = answer.status == "predicted" and answer.entity not in tails
        assert answer.unusual == ("not a known tail of r0" if is_odd else None)
    assert {answer.unusual for answer in found} == {"not a known tail of r0", None}
    odd = next(answer for answer in found if answer.unusual)
    assert f"{odd.label} (not a known tail of r0)" in repr(found)
    assert f"{odd.label} (not a known tail of r0)" in found._repr_html_()
    assert found.to_json()["answers"][found.answers.index(odd)]["unusual"] == odd.unusual
    assert found.to_polars()["unusual"].to_list() == [answer.unusual for answer in found]
