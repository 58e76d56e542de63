"""Entities, relations, edges, the model, and the page."""

from urllib.parse import quote

import pytest

from betae import __version__
from betae.graph.describe import list_entities, list_relations
from tests.server.conftest import ODD, SCRIPT


def test_entities_are_listed_and_found_by_name_or_label(of_graph, graph):
    given = of_graph.get("/entities", params={"limit": 3}).json()
    listed, total = list_entities(graph, "", 3)
    assert [each["name"] for each in given["entities"]] == [each.name for each in listed]
    assert given["total"] == total == graph.num_entities
    (found,) = of_graph.get("/entities", params={"search": "<SCRIPT"}).json()["entities"]
    assert (found["name"], found["label"]) == ("fay", SCRIPT)
    assert of_graph.get("/entities?limit=0").status_code == 422


def test_relations_are_listed_and_found(of_graph, graph):
    given = of_graph.get("/relations").json()
    listed, total = list_relations(graph)
    assert [(each["name"], each["edges"]) for each in given["relations"]] == [
        (each.name, each.edges) for each in listed
    ]
    assert given["total"] == total
    found = of_graph.get("/relations", params={"search": "lives"}).json()["relations"]
    assert [each["name"] for each in found] == ["lives_in"]


def test_edges_of_an_entity_come_page_by_page_in_both_directions(of_graph, graph):
    triples = set(graph.to_polars().iter_rows())
    for entity in graph.entities:
        address, given = f"/entities/{quote(entity, safe='')}/edges", []
        while True:
            page = of_graph.get(address, params={"offset": len(given), "limit": 2}).json()
            given += page["edges"]
            if len(given) == page["total"]:
                break
        edges = [(edge["head"], edge["relation"], edge["tail"]) for edge in given]
        assert len(edges) == len(set(edges))
        assert set(edges) == {triple for triple in triples if entity in (triple[0], triple[2])}
        for edge in given:
            assert edge["head" if edge["direction"] == "out" else "tail"] == entity
    assert of_graph.get("/entities/ann/edges?offset=999").json()["edges"] == []


@pytest.mark.parametrize("spelled", ["Ann Lee", "ann", "#0", "%230"])
def test_an_entity_is_found_by_label_and_by_id(spelled, of_graph, graph):
    given = of_graph.get(f"/entities/{quote(spelled, safe='%')}/edges").json()
    expected = graph.entities[0] if "0" in spelled else "ann"
    assert given["entity"] == expected


def test_an_unknown_entity_is_not_found(of_graph):
    response = of_graph.get("/entities/bobb/edges")
    assert response.status_code == 404
    assert "bob" in response.json()["closest"]
    assert of_graph.get("/entities/%23999999/edges").status_code == 404
    several = of_graph.get("/entities/Sam/edges")
    assert (several.status_code, several.json()["closest"]) == (404, ["cat", "eve"])


def test_missing_edges_are_the_most_probable_ones(of_run, run):
    given = of_run.get("/entities/cat/edges", params={"missing": 4}).json()["missing"]
    expected = run.complete(entity="cat", above=0.01).to_polars()[:4]
    assert [(edge["head"], edge["relation"], edge["tail"]) for edge in given] == [
        (row["head"], row["relation"], row["tail"]) for row in expected.iter_rows(named=True)
    ]
    assert [edge["probability"] for edge in given] == pytest.approx(
        expected["probability"].to_list()
    )
    assert len(given) == 4


def test_the_model_is_described(of_run, of_graph, run):
    given = of_run.get("/model").json()
    assert given["betae"] == __version__
    assert given["graph"]["entities"] == run.graph.num_entities
    assert (given["model"]["name"], given["model"]["method"]) == ("betae", "completed")
    assert given["limits"]["requests"] == 128
    assert of_graph.get("/model").json()["model"] is None


def test_the_page_loads_nothing_from_elsewhere(of_graph):
    response = of_graph.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "script-src 'self'" in response.headers["content-security-policy"]
    assert "http" not in response.text.replace("<!doctype html>", "")
    assert of_graph.get("/docs").status_code == 404
    assert of_graph.get("/%2e%2e/app.py").status_code == 404


def test_every_request_has_an_example(of_run):
    described = of_run.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        if "post" not in methods:
            continue
        content = methods["post"]["requestBody"]["content"]
        for media_type, body in content.items():
            if media_type == "application/json":
                name = body["schema"]["$ref"].rpartition("/")[2]
                assert schemas[name]["examples"], path
            else:
                assert body["example"], path
    assert ODD not in str(described)
