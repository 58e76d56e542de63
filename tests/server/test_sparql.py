"""The SPARQL endpoint, as its usual clients see it."""

import asyncio
import json
import os
import resource
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import unquote

import httpx
import pyoxigraph as ox
import pytest
from rdflib.plugins.stores.sparqlstore import SPARQLStore
from SPARQLWrapper import CSV, JSON, POST, SPARQLWrapper

from betae.exact.select import select
from betae.server.facts import Facts, _result
from betae.server.limits import Limits, Refused
from tests.server.conftest import serving

QUESTION = "SELECT DISTINCT ?p ?x { ?p <parent> ?c . ?c <lives_in> ?x }"
DIRECTLY = {"content-type": "application/sparql-query"}
QUERY = "SELECT DISTINCT ?p ?x { ?p betae:parent ?c . ?c betae:lives_in ?x }"


def name_of(iri):
    return unquote(str(iri).removeprefix("urn:betae:"))


@pytest.fixture(scope="module")
def rows(graph):
    """What `betae query` lists."""
    return sorted((row["p"], row["x"]) for row in select(graph, QUESTION))


@pytest.fixture(scope="module")
def address(of_graph):
    return str(of_graph.base_url) + "/sparql"


def read(response):
    bindings = response.json()["results"]["bindings"]
    return sorted((name_of(row["p"]["value"]), name_of(row["x"]["value"])) for row in bindings)


def test_a_query_comes_by_parameter_by_form_and_as_the_body(of_graph, rows):
    direct = {"content-type": "application/sparql-query; charset=utf-8"}
    for response in (
        of_graph.get("/sparql", params={"query": QUERY}),
        of_graph.post("/sparql", data={"query": QUERY}),
        of_graph.post("/sparql", content=QUERY, headers=direct),
    ):
        assert response.headers["content-type"] == "application/sparql-results+json"
        assert read(response) == rows != []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_rdflib_gets_the_rows(method, address, rows):
    store = SPARQLStore(address, method=method)
    found = sorted((name_of(row.p), name_of(row.x)) for row in store.query(QUERY))
    assert found == rows
    assert store.query("ASK { ?a betae:parent ?b }").askAnswer
    assert not store.query("ASK { ?a betae:none ?b }").askAnswer


@pytest.mark.parametrize("form", [JSON, CSV])
def test_sparqlwrapper_gets_the_rows(form, address, rows):
    client = SPARQLWrapper(address)
    client.setQuery(QUERY)
    client.setReturnFormat(form)
    client.setMethod(POST)
    found = client.query().convert()
    if form == JSON:
        found = [(row["p"]["value"], row["x"]["value"]) for row in found["results"]["bindings"]]
    else:
        found = [line.split(",") for line in found.decode().split()[1:]]
    assert sorted((name_of(p), name_of(x)) for p, x in found) == rows


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/sparql-results+json"),
        ("text/html", "application/sparql-results+json"),
        ("application/sparql-results+xml", "application/sparql-results+xml"),
        ("text/csv;q=0.5, text/tab-separated-values;q=0.9", "text/tab-separated-values"),
        ("text/csv;q=x, application/json", "application/json"),
    ],
)
def test_the_client_chooses_the_format(accept, kind, of_graph):
    response = of_graph.get("/sparql", params={"query": QUERY}, headers={"accept": accept})
    assert response.headers["content-type"].partition(";")[0] == kind


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/n-triples"),
        ("text/csv, text/turtle;q=0.5", "text/turtle"),
        ("application/rdf+xml", "application/rdf+xml"),
    ],
)
def test_construct_and_describe_give_triples(accept, kind, of_graph, graph):
    query = "CONSTRUCT { ?x <child> ?y } { ?y <parent> ?x }"
    response = of_graph.get("/sparql", params={"query": query}, headers={"accept": accept})
    assert response.headers["content-type"].partition(";")[0] == kind
    form = ox.RdfFormat.from_media_type(kind)
    found = {
        tuple(map(name_of, (each.subject.value, each.predicate.value, each.object.value)))
        for each in ox.parse(input=response.content, format=form)
    }
    assert found == {*graph.sparql(query).iter_rows()} != set()
    described = of_graph.get("/sparql", params={"query": "DESCRIBE <ann>"})
    assert b"<urn:betae:ann> <urn:betae:parent>" in described.content


def test_names_and_labels_are_read_as_in_the_command_line(of_graph, graph):
    for query in ("SELECT * { <ann> ?r ?x }", "PREFIX : <> SELECT * { <Ann%20Lee> :lives_in ?x }"):
        response = of_graph.get("/sparql", params={"query": query})
        found = [
            {name: name_of(term["value"]) for name, term in row.items()}
            for row in response.json()["results"]["bindings"]
        ]
        rows = [{name: row[name] for name in found[0]} for row in graph.select(query)]
        assert sorted(map(str, found)) == sorted(map(str, rows)) != []


def test_labels_are_there(of_graph):
    query = "SELECT ?l { betae:ann <http://www.w3.org/2000/01/rdf-schema#label> ?l }"
    response = of_graph.get("/sparql", params={"query": query})
    assert [row["l"]["value"] for row in response.json()["results"]["bindings"]] == ["Ann Lee"]


def test_updates_are_refused(of_graph):
    update = "INSERT DATA { <urn:a> <urn:b> <urn:c> }"
    kind = {"content-type": "application/sparql-update"}
    assert of_graph.post("/sparql", content=update, headers=kind).status_code == 403
    assert of_graph.post("/sparql", data={"update": update}).status_code == 403
    assert of_graph.get("/sparql", params={"query": update}).status_code == 400
    ask = {"query": "ASK { <urn:a> <urn:b> <urn:c> }"}
    assert of_graph.get("/sparql", params=ask).json()["boolean"] is False


def test_what_cannot_be_answered_is_said(of_graph):
    response = of_graph.get("/sparql", params={"query": "SELECT *\n{ ?a ?b }"})
    error = response.json()
    assert (response.status_code, error["line"]) == (400, 2)
    assert error["error"].endswith("^")
    response = of_graph.get("/sparql", params={"query": "SELECT ?x { ?x <parents> ?y }"})
    assert response.status_code == 400
    assert response.json()["closest"][0] == "parent"
    for parameters in ({}, {"query": QUERY, "default-graph-uri": "urn:x"}):
        assert of_graph.get("/sparql", params=parameters).status_code == 400
    assert of_graph.get("/sparql?query=ASK{}&query=ASK{}").status_code == 400
    assert of_graph.post("/sparql", content=b"ASK{}").status_code == 415
    bad = {"content-type": "application/sparql-query"}
    assert of_graph.post("/sparql", content=b"\xff", headers=bad).status_code == 400


def test_results_have_a_limit(of_graph):
    response = of_graph.get("/sparql", params={"query": "SELECT * { ?a ?b ?c . ?d ?e ?f }"})
    assert response.status_code == 400
    assert "LIMIT" in response.json()["error"]


@pytest.mark.slow
def test_a_query_without_end_is_ended(graph, rows):
    pairs = " . ".join(f"?a{i} ?b{i} ?c{i}" for i in range(9))
    endless = f"SELECT (COUNT(*) AS ?n) {{ {pairs} }}"
    with serving(graph, limits=Limits(seconds=1)) as client:
        while client.get("/sparql", params={"query": QUERY}).status_code == 504:
            pass  # the store is still being written
        for _ in range(3):  # more than there are processes
            assert client.get("/sparql", params={"query": endless}).status_code == 504
        while (response := client.get("/sparql", params={"query": QUERY})).status_code == 504:
            pass  # other processes begin
        assert read(response) == rows


def test_a_body_is_no_json_by_chance(address):
    response = httpx.post(address, content=json.dumps({"query": QUERY}))
    assert response.status_code == 415


@pytest.mark.slow
def test_processes_that_die_do_no_harm(graph):
    facts = Facts(graph, Limits(memory_bytes=2**31))

    async def work():
        limit, _ = await _result(facts._engines, resource.getrlimit, resource.RLIMIT_DATA)
        with pytest.raises(Refused, match="memory"):
            await _result(facts._engines, os.abort)  # as it ends when there is no more memory
        facts._store = Future()
        facts._store.set_exception(OSError("died while the store was written"))
        (Path(facts._folder.name) / "store" / "half").mkdir(parents=True)
        return limit, await facts.sparql("ASK { ?a betae:parent ?b }", ["text/csv"])

    try:
        assert asyncio.run(work()) == (2**31, (b"true", "text/csv"))
    finally:
        facts.close()


PREDICTED = """SELECT ?x ?probability ?status { ?x <lives_in> <Oslo> FILTER(?probability > 0.001) }
    ORDER BY DESC(?probability) LIMIT 4"""


def test_predictions_have_a_probability(of_run, of_graph, run):
    parameters = {"query": PREDICTED, "predicted": "true"}
    wanted = [(row["x"], float(row["probability"]), row["status"]) for row in run.sparql(PREDICTED)]
    assert {"known", "predicted"} == {status for _, _, status in wanted}
    for response in (
        of_run.get("/sparql", params=parameters),
        of_run.post("/sparql", data=parameters),
        of_run.post("/sparql?predicted=true", content=PREDICTED, headers=DIRECTLY),
    ):
        bindings = response.json()["results"]["bindings"]
        found = [(name_of(r["x"]["value"]), float(r["probability"]["value"])) for r in bindings]
        assert [name for name, _ in found] == [name for name, _, _ in wanted]
        assert [p for _, p in found] == pytest.approx([p for _, p, _ in wanted], rel=1e-4)
    csv = of_run.get("/sparql", params=parameters, headers={"accept": "text/csv"}).text
    assert csv.startswith("x,probability,status")
    assert of_run.get("/sparql", params={"query": PREDICTED}).json()["results"]["bindings"] == []
    assert of_graph.get("/sparql", params=parameters).status_code == 400
    for text, reason in (
        ("SELECT ?x { ?x <lives_in> <Oslo>\n OPTIONAL { ?x <parent> ?y } }", "line 2, column 2"),
        ("SELECT ?x { ?x <lives_in> <Osla> }", "Oslo"),
        ("SELECT ?x { ?x <lives_in> }", "Not valid"),
    ):
        response = of_run.get("/sparql", params={"query": text, "predicted": "true"})
        assert (response.status_code, reason in response.json()["error"]) == (400, True)
    maybe = {"query": PREDICTED, "predicted": "maybe"}
    assert of_run.get("/sparql", params=maybe).status_code == 400
