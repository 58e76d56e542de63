"""Questions over HTTP: what comes back is what the library says."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import torch

from betae.answering import truth
from betae.answering.answerer import QuestionRequest
from betae.errors import UnknownEntity
from betae.exact.answers import answers
from betae.exact.select import select
from betae.graph.edges import EDGES
from betae.queries.structures import STRUCTURES
from betae.server.questions import Questions
from tests.server.conftest import SCRIPT

GRANDCHILDREN = "?X . exists ?C : parent(ann, ?C) & parent(?C, ?X)"
PAIRS = "?P, ?X . parent(?P, ?X) & lives_in(?P, Oslo)"


def nearly(value):
    """Return plain values to compare with, tuples as JSON has them."""
    if isinstance(value, dict):
        return {key: nearly(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [nearly(inner) for inner in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


@pytest.mark.parametrize("method", ["completed", "embedding"])
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"k": 2, "explain": True},
        {"only": "predicted", "threshold": 0.001, "edges": "train"},
        {"question": "SELECT ?x { <ann> <lives_in> ?x } LIMIT 2"},
    ],
)
def test_answers_are_the_librarys(method, wanted, of_run, run):
    body = {"question": GRANDCHILDREN, "method": method, **wanted}
    given = of_run.post("/answer", json=body).json()
    answerer = run.answerer(body.get("edges", "all"), method=method)
    expected = answerer.answer(
        body["question"],
        body.get("k"),
        status=body.get("only"),
        threshold=body.get("threshold", 0.0),
        explain=body.get("explain", False),
    )
    assert given.pop("summary") == expected.summary()
    assert given.pop("note") is None
    assert given == nearly(expected.to_json())
    assert given["answers"] or "threshold" in wanted


TREE = {
    "and": [
        {"relation": "parent", "of": {"relation": "~lives_in", "of": {"entity": "Oslo"}}},
        {"not": {"or": [{"relation": "friend", "of": {"entity": "Bob Lee"}}, {"entity": "dan"}]}},
    ]
}
SAME = "?X . (exists ?P : lives_in(?P, Oslo) & parent(?P, ?X)) & !(friend(bob, ?X) | ?X = dan)"


def test_a_tree_is_the_same_question_as_its_text(of_run, of_graph):
    by_tree = of_run.post("/answer", json={"question": TREE}).json()
    assert by_tree["num_known"] > 0
    assert by_tree == nearly(of_run.post("/answer", json={"question": SAME}).json())
    batch = of_run.post("/answer/batch", json={"questions": [TREE, SAME]}).json()["results"]
    assert batch[0] == nearly(batch[1]) == nearly(by_tree)
    for path, server in (("/query", of_graph), ("/tree", of_graph), ("/tree", of_run)):
        given, expected = (server.post(path, json={"question": each}) for each in (TREE, SAME))
        assert given.status_code == 200
        assert given.json() == nearly(expected.json())


def deep(levels):
    tree = {"entity": "ann"}
    for _ in range(levels):
        tree = {"relation": "parent", "of": tree}
    return tree


@pytest.mark.parametrize(
    ("tree", "status", "words"),
    [
        ({"relation": "parents", "of": {"entity": "ann"}}, 400, "'parents'"),
        ({"entity": "_"}, 400, "no entity '_'"),
        (deep(5), 400, "5 operators"),
        (deep(150), 400, "150 operators"),
        (deep(300), 422, "of"),
        ({"or": [deep(1)] * 4}, 400, "4 branches"),
        ({}, 422, '{"not": TREE}'),
        ({"and": [deep(1)]}, 422, "and"),
        ({"entity": "ann", "of": deep(1)}, 422, "of"),
        ({"not": {"entity": 7}}, 422, "entity"),
    ],
)
def test_a_tree_has_the_same_limits(tree, status, words, of_graph):
    for path in ("/query", "/tree"):
        response = of_graph.post(path, json={"question": tree})
        assert response.status_code == status
        assert words in response.json()["error"]
        assert len(response.json()["error"]) < 500


def test_a_batch_answers_what_it_can(of_run):
    texts = [GRANDCHILDREN, "?X . parent(anne, ?X)", "?X . parent(", "?X . parent(ann, ?X)"]
    first, second, third, fourth = of_run.post(
        "/answer/batch", json={"questions": texts, "k": 3}
    ).json()["results"]
    assert first == nearly(of_run.post("/answer", json={"question": texts[0], "k": 3}).json())
    assert "anne" in second["error"]
    assert "ann" in second["closest"]
    assert third["line"] == 1
    assert {answer["entity"] for answer in fourth["answers"]} >= {"bob", "cat"}


def test_a_relation_the_wrong_way_round_gets_a_note(of_run):
    given = of_run.post("/answer", json={"question": "?X . lives_in(Rome, ?X)"}).json()
    assert "~lives_in" in given["note"]
    given = of_run.post("/query", json={"question": "?X . lives_in(Rome, ?X)"}).json()
    assert (given["rows"], "~lives_in" in given["note"]) == ([], True)


@pytest.mark.parametrize("edges", ["train", "all"])
@pytest.mark.parametrize("question", [PAIRS, GRANDCHILDREN, "SELECT * { ?a <friend> ?b }"])
def test_exact_answers_are_the_librarys(edges, question, of_graph, graph):
    given = of_graph.post("/query", json={"question": question, "edges": edges}).json()
    found = select(graph, question, edges)
    assert given["rows"] == list(found) != []
    assert given["variables"] == list(found.variables)
    assert not given["more"]


def test_more_rows_than_asked_for_are_announced(of_graph):
    given = of_graph.post("/query", json={"question": PAIRS, "limit": 1}).json()
    assert (len(given["rows"]), given["more"]) == (1, True)


def test_a_graph_alone_predicts_nothing(of_graph):
    for path, body in [
        ("/answer", {"question": GRANDCHILDREN}),
        ("/answer/batch", {"questions": [GRANDCHILDREN]}),
    ]:
        response = of_graph.post(path, json=body)
        assert response.status_code == 400
        assert "without predictions" in response.json()["error"]
    assert of_graph.get("/entities/ann/edges?missing=3").status_code == 400


def test_a_tree_has_the_exact_answers_of_every_node(of_run, of_graph, graph, run):
    question = "?X . parent(ann, ?X) & !exists ?C : parent(bob, ?C) & friend(?C, ?X)"
    given = of_run.post("/tree", json={"question": question, "dims": 2}).json()
    root = given["nodes"][given["root"]]
    assert root["operator"] == "and"
    assert {node["operator"] for node in given["nodes"]} == {"entity", "project", "and", "not"}
    for node in given["nodes"]:
        assert node["num_answers"] == len(answers(graph, node["text"], "all"))
        assert all(operand < node["id"] for operand in node["operands"])
        (embedding,) = node["embeddings"]
        assert len(embedding["alpha"]) == len(embedding["beta"]) == 2
    asked = run.answerer(method="embedding").answer(question)
    assert root["embeddings"][0]["entropy"] == pytest.approx(asked.entropy, abs=1e-4)
    plain = of_graph.post("/tree", json={"question": question}).json()
    assert (plain["model"], given["model"]) == (None, "betae")
    assert [node["num_answers"] for node in plain["nodes"]] == [
        node["num_answers"] for node in given["nodes"]
    ]


def test_a_union_has_an_embedding_for_each_branch(of_run):
    given = of_run.post("/tree", json={"question": "?X . parent(ann, ?X) | friend(bob, ?X)"})
    nodes = given.json()["nodes"]
    assert [len(node["embeddings"]) for node in nodes if node["operator"] == "or"] == [2]


def test_markup_in_a_label_is_data(of_run):
    response = of_run.post("/answer", json={"question": "?X . parent(cat, ?X)"})
    assert response.json()["answers"][0]["label"] == SCRIPT
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"


# ---- together -----------------------------------------------------------------------------------


def test_questions_that_wait_are_answered_together(run):
    sizes, begun, go_on = [], threading.Event(), threading.Event()
    with closing(Questions(run, batch_size=4, observe=sizes.append)) as its:
        its.call(lambda: (begun.set(), go_on.wait(30)))
        assert begun.wait(30)
        names = ["ann", "bob", "cat", "dan", "eve", "fay"]
        asked = [QuestionRequest(f"?X . lives_in({name}, ?X)", k=3) for name in names]
        waiting = [its.ask(each, "completed", "all") for each in asked]
        waiting[1].cancel()
        go_on.set()
        found = [future.result(30) for future in waiting if not future.cancelled()]
    assert sizes == [3, 2]  # four at a time, less the one that nobody waits for
    expected = [run.answerer().answer(each.question, 3) for each in asked]
    del expected[1]
    assert [json.loads(json.dumps(each["answers"])) for each in found] == [
        nearly(each.to_json()["answers"]) for each in expected
    ]


def test_each_is_told_as_soon_as_it_is_answered(run, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def evaluate(completed, structure, *others):
        if structure == STRUCTURES["2p"]:
            begun.set()
            assert go_on.wait(30)
        return original(completed, structure, *others)

    original = truth._evaluate
    monkeypatch.setattr(truth, "_evaluate", evaluate)
    with closing(Questions(run, batch_size=4, observe=lambda _: None)) as its:
        its.call(its.answerer).result(30)
        blocker = threading.Event()
        its.call(lambda: blocker.wait(30))
        first, second = (
            its.ask(QuestionRequest(text), "completed", "all")
            for text in ("?X . lives_in(bob, ?X)", GRANDCHILDREN)
        )
        blocker.set()
        assert begun.wait(30)
        assert first.result(30)["answers"]
        assert not second.done()
        go_on.set()
        assert second.result(30)["answers"]


def test_a_core_is_left_for_the_requests(run, monkeypatch):
    monkeypatch.setattr("betae.server.questions.parallel.num_threads", lambda: 4)
    with closing(Questions(run, batch_size=4, observe=lambda _: None)) as its:
        assert its.call(torch.get_num_threads).result(30) == 3
        its.call(lambda: torch.set_num_threads(1)).result(30)


def test_all_choices_of_edges_share_one_cache(run, monkeypatch):
    monkeypatch.setattr("betae.server.questions.CACHE_BYTES", 4 * 16 * run.graph.num_entities)
    with closing(Questions(run, batch_size=4, observe=lambda _: None)) as its:
        capacities = {
            edges: its.call(lambda edges=edges: its.answerer(edges=edges)).result(30)
            for edges in EDGES
        }
    rows = {edges: each.ranker.completed.capacity for edges, each in capacities.items()}
    assert rows == {"all": 8, "train+valid": 4, "train": 4}  # 16 together


def test_a_bad_question_spoils_no_other(run):
    go_on = threading.Event()
    with closing(Questions(run, batch_size=8, observe=lambda _: None)) as its:
        its.call(lambda: go_on.wait(30))
        good, bad = (
            its.ask(QuestionRequest(text), "completed", "all")
            for text in ("?X . parent(ann, ?X)", "?X . parent(nobody, ?X)")
        )
        go_on.set()
        assert good.result(30)["num_known"] == 2
        with pytest.raises(UnknownEntity, match="nobody"):
            bad.result(30)


def test_many_clients_at_once_get_their_own_answers(of_run, run):
    names = [run.graph.entities[i] for i in range(run.graph.num_entities)] * 4
    answerer = run.answerer()

    def ask(name):
        body = {"question": f'?X . exists ?Y : parent("{name}", ?Y) & lives_in(?Y, ?X)', "k": 3}
        return body["question"], of_run.post("/answer", json=body).json()

    with ThreadPoolExecutor(16) as pool:
        for question, given in pool.map(ask, names):
            assert given["answers"] == nearly(answerer.answer(question, 3).to_json()["answers"])
    figures = of_run.get("/metrics").text
    assert 'betae_questions_at_once_bucket{le="1.0"}' in figures
