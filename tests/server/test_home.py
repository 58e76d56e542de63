"""What the page asks for: the graph, questions to start from, every notation, the next steps."""

import pytest

import betae
from betae.queries.english import is_english, read_english
from betae.queries.read import read_question
from betae.server.steps import next_steps
from betae.server.words import in_words
from tests.server.conftest import serving

TREE = {"and": [{"relation": "parent", "of": {"entity": "ann"}}, {"not": {"entity": "cat"}}]}
VALUES = """@prefix : <http://x.org/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
:heat a :Film ; :director :Michael_Mann ; :length 170 ; :date "1995-12-15"^^xsd:date ; :seen true .
:ali a :Film ; :director :Michael_Mann ; :length 157 ; :note "long" .
"""


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    (folder / "films.ttl").write_text(VALUES)
    betae.read(folder / "films.ttl").save(folder / "graph")
    return betae.KnowledgeGraph.open(folder / "graph")


@pytest.fixture(scope="module")
def of_films(films):
    with serving(films) as client:
        yield client


def read(client, question):
    response = client.post("/read", json={"question": question})
    assert response.status_code == 200, response.text
    return response.json()


def test_the_graph_is_described(of_run, graph, of_films):
    told = of_run.get("/home").json()
    assert told["entities"] == graph.num_entities
    assert told["edges"] == sum(map(len, graph.written_ids.values()))
    parents = next(each for each in told["frequent"] if each["name"] == "parent")
    assert parents["words"] == "… has parent …"
    assert " → " in parents["examples"][0]
    told = of_films.get("/home").json()
    assert [(each["label"], each["entities"]) for each in told["classes"]] == [("Film", 2)]
    assert {"length", "date"} <= set(told["properties"])


def test_examples_have_answers(of_run, of_graph):
    for client in (of_run, of_graph):
        told = client.get("/examples").json()
        assert 3 <= len(told) <= 5
        assert len({each["kind"] for each in told}) == len(told)
        for each in told:
            rows = client.post("/query", json={"question": each["question"], "limit": 99}).json()
            assert len(rows["rows"]) == each["known"]
            assert each["answers"]
            assert each["words"].startswith("everything that ")
    assert any(each["predicted"] for each in of_run.get("/examples").json())


def test_a_question_is_said_in_every_notation(of_run):
    told = read(of_run, TREE)
    assert told["words"] == "everything that Ann Lee has as parent and is not Sam"
    assert told["tree"] == TREE
    assert told["labels"] == {"ann": "Ann Lee", "cat": "Sam"}
    assert told["spoken"]["parent"] == "it has parent …"
    for notation in ("question", "sparql"):
        assert read(of_run, told[notation])["tree"] == TREE
    assert told["problem"] is None


def test_conditions_come_back_from_every_notation(of_films):
    conditions = [
        {"class": "Film"},
        {"property": "length", "is": "<", "value": 200},
        {"property": "date", "is": ">=", "value": "1990-01-01", "kind": "date"},
        {"property": "seen", "is": "=", "value": True},
        {"not": {"property": "note", "is": "~", "value": "1990-01-01"}},
    ]
    told = read(of_films, {"and": conditions})
    assert told["tree"]["and"] == conditions
    for notation in ("question", "sparql"):
        assert sorted(map(str, read(of_films, told[notation])["tree"]["and"])) == sorted(
            map(str, conditions)
        )
    refused = {"property": "date", "is": "<", "value": "soon", "kind": "date"}
    response = of_films.post("/read", json={"question": refused})
    assert response.status_code == 400
    assert "1975-01-31" in response.json()["error"]


def test_what_is_no_tree_says_so(of_run):
    told = read(of_run, "?X, ?Y . parent(?X, ?Y)")
    assert told["tree"] is None
    assert "several answer variables" in told["problem"]
    told = read(of_run, "?X . !parent(ann, ?X)")
    assert told["sparql"] is None
    assert "what the answers are" in told["no_sparql"]
    assert of_run.post("/read", json={"question": "?X . parent(ann"}).json()["column"] == 16


def test_steps_lead_on_from_the_answers(graph, films):
    tree = read_question("?X . parent(ann, ?X)", graph).tree
    told = next_steps(graph, tree)
    assert told["num_answers"] == 2
    homes = next(each for each in told["relations"] if each["relation"] == "lives_in")
    assert homes["words"] == "it lives in …"
    assert {each["label"] for each in homes["ends"]} == {"Oslo", "Lima"}
    assert next_steps(graph, read_question("?X . parent(eve, ?X)", graph).tree)["relations"] == []
    told = next_steps(films, read_question("?X . Film(?X)", films).tree)
    assert [(each["label"], each["answers"]) for each in told["classes"]] == [("Film", 2)]
    found = {each["label"]: each for each in told["properties"]}
    assert {name: each["kind"] for name, each in found.items()} == {
        "length": "number",
        "date": "date",
        "seen": "boolean",
        "note": "text",
    }
    assert (found["length"]["least"], found["length"]["greatest"]) == ("157", "170")
    assert found["date"]["answers"] == 1


def test_steps_over_http(of_run):
    told = of_run.post("/steps", json={"question": TREE}).json()
    assert told["num_answers"] == told["num_sampled"] == 1


ENGLISH = [
    ("what is the capital of France?", "France has as capital"),
    (
        "Which countries border Germany but do not border France",
        "borders Germany and does not border France",
    ),
    ("capital of France or Spain", "France has as capital or Spain has as capital"),
    ("something about Denmark", "is Denmark"),
]


@pytest.mark.parametrize(("text", "words"), ENGLISH)
def test_english_gives_a_start(text, words):
    graph = betae.world()
    found = read_english(graph, text)
    assert in_words(graph, found["query"]) == f"everything that {words}"


def test_words_that_name_nothing_are_said_to(of_run):
    told = read(of_run, "what is love")
    assert told["tree"] is None
    assert "choose a thing" in told["problem"]
    told = read(of_run, "who is a parent of Bob?")
    assert told["near"]["relations"] == ["parent"]
    assert told["near"]["entities"][0]["label"] == "Bob Lee"
    assert "check it" in told["problem"]


def test_what_is_english():
    assert is_english("which drugs treat gout")
    for text in (
        "?X . a(b, ?X)",
        " SELECT ?x { ?x ?y ?z }",
        "a(b, ?X)",
        "MATCH (n)-[:r]->(m) RETURN n",
    ):
        assert not is_english(text)
