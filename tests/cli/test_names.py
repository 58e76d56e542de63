"""entities and relations: names listed and searched, most edges first."""

import json

import pytest

from betae import KnowledgeGraph
from tests.cli.test_cli import flat, run, run_process
from tests.graph.test_names import FILM, X


@pytest.fixture
def film(write, tmp_path):
    KnowledgeGraph.from_triples(write("film.ttl", FILM)).save(tmp_path / "film")
    return tmp_path / "film"


def listed(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)


def test_entities_are_listed_by_degree(toy_store, toy_graph):
    degrees = toy_graph.adjacency("all").degrees()
    found = listed("entities", toy_store)
    assert [each["edges"] for each in found] == sorted(degrees.tolist(), reverse=True)
    for each in found:
        assert each["edges"] == degrees[toy_graph.entity_id(each["name"])]
        assert 1 <= len(each["examples"]) <= 2
        for head, relation, tail in each["examples"]:
            assert each["name"] in (head, tail)
            ids = toy_graph.entity_id(head), toy_graph.relation_id(relation)
            assert toy_graph.entity_id(tail) in toy_graph.adjacency("all").neighbours(*ids)
    assert listed("entities", toy_store, "--limit", 3) == found[:3]


def test_symmetric_relations_are_recognised(tmp_path):
    friends = [(f"e{i}", "friend", f"e{i + 1}") for i in range(0, 20, 2)]
    both_ways = [*friends, *[(tail, relation, head) for head, relation, tail in friends]]
    facts = [*both_ways, ("e0", "friend", "e0"), ("e0", "friend", "e5"), ("e0", "likes", "e1")]
    KnowledgeGraph.from_triples(facts).save(tmp_path / "graph")
    told = json.loads(run("relations", tmp_path / "graph", "--json").stdout)
    found = {each["name"]: (each["symmetric"], each["reversed"], each["loops"]) for each in told}
    assert found == {"friend": (True, 20, 1), "likes": (False, 0, 0)}
    assert "95 % of 21" in flat(run("relations", tmp_path / "graph").stdout)


def test_relations_are_listed_by_edges(toy_store, toy_graph):
    found = listed("relations", toy_store)
    told = {each["name"]: each["edges"] for each in found}
    assert list(told.items()) == [("lives_in", 6), ("parent", 6), ("friend", 3), ("in", 3)]
    rows = toy_graph.to_polars().rows()
    for each in found:
        assert len(each["examples"]) == 2
        assert all(tuple(edge) in rows and edge[1] == each["name"] for edge in each["examples"])


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("LEE", {"bob", "ann"}),
        ("sam", {"cat", "eve"}),
        ("AN", {"ann", "dan"}),
        ("zzz", set()),
    ],
)
def test_entities_are_searched_in_names_and_labels(toy_store, search, names):
    assert {each["name"] for each in listed("entities", toy_store, "--search", search)} == names


def test_every_label_and_prefix_is_searched(film):
    def names(kind, search):
        return [each["name"] for each in listed(kind, film, "--search", search)]

    assert names("entities", "heiß") == names("entities", "la HEAT") == [X + "heat"]
    assert names("entities", ":mann") == [X + "mann"]
    assert names("relations", "RÉALISÉ") == ["https://schema.org/director"]
    assert names("relations", "schema:director") == ["https://schema.org/director"]
    (heat,) = listed("entities", film, "--search", "heiß")
    assert heat["labels"][0] == {"text": "Heat", "language": "en-us"}
    assert len(heat["labels"]) == 4


def test_what_people_see(film):
    told = run_process("entities", film, "--limit", 2, COLUMNS="300").stdout
    lines = [flat(line) for line in told.splitlines()]
    assert lines[0] == "edges name labels examples"
    assert lines[1].startswith("2 :heat Heat, Heiß, L.A. Heat, La Heat schema:")
    assert '"directed by"(Heat, "Michael Mann")' in lines[1]
    assert lines[-1] == "2 of 4 entities; list more with --limit"
    told = flat(run_process("relations", film, "--limit", 1, COLUMNS="300").stdout)
    assert '2 schema:director directed by, réalisé par "directed by"(' in told
    assert "1 of 2 relations" in told


def test_nothing_found_offers_the_closest(toy_store):
    assert "No entities with 'Osloo' in the name or a label. Closest: 'Oslo'" in flat(
        run("entities", toy_store, "--search", "Osloo").stdout
    )
    assert (
        "No relations with 'parents'" in run("relations", toy_store, "--search", "parents").stdout
    )
