"""Answerer: which entities, in which order, how sure, known or predicted; and what it refuses."""

import json
import math
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph, Triples
from betae import run as module
from betae.answering.answerer import Answerer
from betae.errors import (
    BetaeError,
    InvalidArgument,
    QuerySyntaxError,
    StoreError,
    UnknownEntity,
    UnknownRelation,
    UnsupportedQuery,
)
from betae.exact.answers import answers, refuted
from betae.queries.ast import Entity
from betae.queries.names import resolve
from betae.run import Run
from tests.answering.helpers import exact, random_model, same_curve, save_run, untrained
from tests.queries.oracle import slow_answers
from tests.queries.strategies import cases, examples, trees
from tests.training.helpers import graph_of, small_graph

CHILDREN = "?X . parent(ann, ?X)"
EVERYWHERE = 100  # more answers than the toy graph has entities


def shallow(num_entities, num_relations):
    return trees(num_entities, num_relations, depth=3)


# ---- random questions -------------------------------------------------------------------------


@examples(60)
@given(case=cases(shallow), union=st.sampled_from(["DNF", "DM"]))
def test_known_are_exactly_the_answers_of_the_facts(case, union):
    graph, query, edges = case
    found = exact(graph, edges).answer(query, graph.num_entities, union=union)
    ruled_out = {graph.entities[i] for i in refuted(graph, query, edges)}
    assert {answer.entity for answer in found} == set(graph.entities) - ruled_out
    known = {answer.entity for answer in found if answer.status == "known"}
    assert known == {graph.entities[i] for i in answers(graph, query, edges)}
    assert known == {graph.entities[i] for i in slow_answers(graph, query, edges)}
    assert found.num_known == len(known)
    for answer in found:
        assert 0 <= answer.probability <= 1
        assert (answer.probability == 1) == (answer.status == "known")
    assert [answer.rank for answer in found] == list(range(1, len(found) + 1))
    scores = [answer.score for answer in found]
    assert scores == sorted(scores, reverse=True)
    assert found.expected == pytest.approx(sum(answer.probability for answer in found))
    assert found.looks_empty == (found.expected < 0.5)


@examples(40)
@given(case=cases(shallow), data=st.data())
def test_filters_choose_from_the_whole_list(case, data):
    graph, query, edges = case
    answerer = untrained(graph, edges=edges)
    k = data.draw(st.integers(1, 15))
    status = data.draw(st.sampled_from([None, "known", "predicted"]))
    threshold = data.draw(st.sampled_from([0.0, 0.3, 0.7, 0.85, 1.0]))
    whole = answerer.answer(query, graph.num_entities)
    kept = [
        answer
        for answer in whole
        if answer.probability >= threshold and status in (None, answer.status)
    ]
    found = answerer.answer(query, k, status=status, threshold=threshold)
    assert list(found) == kept[:k]  # with their ranks among all
    assert (found.expected, found.num_known) == (whole.expected, whole.num_known)


# ---- by hand ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "known"), [("train", set()), ("train+valid", {"Lima"}), ("all", {"Lima"})]
)
def test_the_views_say_what_is_known(toy_graph, edges, known):
    found = exact(toy_graph, edges).answer("?X . lives_in(cat, ?X)", EVERYWHERE)
    assert {answer.entity for answer in found if answer.status == "known"} == known
    assert found[0].entity == "Lima"
    assert found[0].probability == (1 if known else pytest.approx(0.8))
    assert found.expected == pytest.approx(found[0].probability + 11 * 0.1)


def test_an_answer_has_the_label_and_the_name(toy_graph):
    first, second = exact(toy_graph).answer(CHILDREN, status="known")
    assert {(first.entity, first.label), (second.entity, second.label)} == {
        ("bob", "Bob Lee"),
        ("cat", "Sam"),
    }
    assert (first.rank, second.rank) == (1, 2)
    assert first.score == second.score == 0
    assert first.why is None


def test_ranks_are_those_by_distance_among_all(toy_graph):
    answerer = untrained(toy_graph)
    everything = answerer.answer(CHILDREN, EVERYWHERE)
    assert len(everything) == toy_graph.num_entities
    known = answerer.answer(CHILDREN, status="known")
    places = {answer.entity: answer.rank for answer in everything}
    assert [answer.rank for answer in known] == sorted(places[name] for name in ("bob", "cat"))


def test_logic_text_sparql_and_tree_are_one(toy_graph):
    answerer = untrained(toy_graph)
    sparql = "PREFIX : <> SELECT ?x WHERE { :ann :parent ?x }"
    tree = Entity("ann")["parent"]
    forms = [CHILDREN, sparql, tree, resolve(tree, toy_graph)]
    results = [answerer.answer(form, explain=True) for form in forms]
    assert all(result == results[0] for result in results)
    assert results[0].query == str(tree)


def test_a_question_is_never_read_from_disk(toy_graph, write):
    with pytest.raises(InvalidArgument, match="not a query"):
        untrained(toy_graph).answer(str(write("q.rq", CHILDREN)))


@pytest.mark.parametrize("union", ["DNF", "DM"])
def test_unions(toy_graph, union):
    answerer = untrained(toy_graph, edges="all")
    found = answerer.answer("?X . parent(ann, ?X) | friend(dan, ?X)", EVERYWHERE, union=union)
    known = {answer.entity for answer in found if answer.status == "known"}
    assert known == {"bob", "cat", "fay"}


def test_the_two_unions_are_two_rankings(toy_graph):
    answerer = untrained(toy_graph)
    text = "?X . parent(ann, ?X) | parent(bob, ?X)"
    dnf, dm = (answerer.answer(text, EVERYWHERE, union=union) for union in ("DNF", "DM"))
    assert {a.entity: a.score for a in dnf} != {a.entity: a.score for a in dm}
    of_branches = [
        {a.entity: a.score for a in answerer.answer(f"?X . parent({name}, ?X)", EVERYWHERE)}
        for name in ("ann", "bob")
    ]
    for answer in dnf:
        best = max(scores[answer.entity] for scores in of_branches)
        assert answer.score == pytest.approx(best, abs=1e-4)


def test_entropy(toy_graph):
    for model_name in ("betae", "query2box"):
        entropy = untrained(toy_graph, model_name).answer(CHILDREN).entropy
        assert isinstance(entropy, float)
        assert math.isfinite(entropy)
    assert untrained(toy_graph, "gqe").answer(CHILDREN).entropy is None


def test_a_question_that_looks_empty(toy_graph):
    answerer = exact(toy_graph)
    answerer.calibration = same_curve([0.0, 1.0], [0.9, 0.01])
    empty = answerer.answer("?X . parent(Peru, ?X)")
    assert empty.looks_empty
    assert empty.expected == pytest.approx(12 * 0.01)
    assert not answerer.answer(CHILDREN).looks_empty
    assert not answerer.answer("?X . lives_in(cat, ?X)").looks_empty  # predicted only


def test_an_entity_alone_and_everything(toy_graph):
    answerer = exact(toy_graph)
    assert [a.entity for a in answerer.answer("?X . ?X = ann", status="known")] == ["ann"]
    everything = answerer.answer(Entity("ann") | ~Entity("ann"), EVERYWHERE)
    assert everything.expected == len(everything) == everything.num_known == 12


def test_no_answer_passes(toy_graph):
    found = exact(toy_graph).answer("?X . parent(Peru, ?X)", threshold=1.0)
    assert len(found) == 0
    assert found.num_known == 0
    assert found.expected == pytest.approx(12 * 0.1)


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 2.5, 2.0, "3", None, True, math.nan])
def test_k_is_a_whole_number_above_zero(toy_graph, k):
    with pytest.raises(InvalidArgument, match="k is"):
        exact(toy_graph).answer(CHILDREN, k)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, math.inf])
def test_a_threshold_is_a_probability(toy_graph, threshold):
    with pytest.raises(InvalidArgument, match="threshold"):
        exact(toy_graph).answer(CHILDREN, threshold=threshold)


def test_words_that_are_no_choice(toy_graph):
    with pytest.raises(InvalidArgument, match="known, predicted"):
        exact(toy_graph).answer(CHILDREN, status="sure")
    with pytest.raises(InvalidArgument, match="DNF"):
        exact(toy_graph).answer(CHILDREN, union="dnf")
    with pytest.raises(InvalidArgument, match=r"train, train\+valid, all"):
        exact(toy_graph, edges="valid")


def test_unknown_names_offer_the_closest(toy_graph):
    answerer = exact(toy_graph)
    with pytest.raises(UnknownEntity, match="'Oslo'"):
        answerer.answer("?X . lives_in(?X, Osslo)")
    with pytest.raises(UnknownRelation, match="'lives_in'"):
        answerer.answer("?X . livesin(?X, Oslo)")
    with pytest.raises(UnknownEntity, match="#12"):
        answerer.answer(Entity(12)["parent"])


@pytest.mark.parametrize("query", [Entity("_")["parent"], Entity("ann")["_"], "?X . _(ann, ?X)"])
def test_placeholders(toy_graph, query):
    with pytest.raises(InvalidArgument, match="'_'"):
        exact(toy_graph).answer(query)


@pytest.mark.parametrize("text", ["", "ann", "?X . parent(ann, ?X", "?X . parent(ann, bob)"])
def test_what_is_no_question(toy_graph, text):
    with pytest.raises(BetaeError):
        exact(toy_graph).answer(text)


def test_a_syntax_error_has_its_place(toy_graph):
    with pytest.raises(QuerySyntaxError, match=r"\^"):
        exact(toy_graph).answer("?X . parent(ann, ?X")


@pytest.mark.parametrize("model_name", ["query2box", "gqe"])
def test_a_model_without_complements(toy_graph, model_name):
    answerer = untrained(toy_graph, model_name)
    with pytest.raises(UnsupportedQuery, match="complement"):
        answerer.answer("?X . parent(ann, ?X) & !parent(bob, ?X)")
    union = "?X . parent(ann, ?X) | parent(bob, ?X)"
    assert len(answerer.answer(union)) == 10
    with pytest.raises(UnsupportedQuery, match="De Morgan"):
        answerer.answer(union, union="DM")


# ---- runs and their calibration ---------------------------------------------------------------


@pytest.fixture
def fits(monkeypatch):
    """How often the curve was fitted."""
    calls = []
    fit = module.calibrate
    monkeypatch.setattr(module, "calibrate", lambda *arguments: calls.append(1) or fit(*arguments))
    return calls


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe"])
def test_a_run_is_calibrated_once(tmp_path, fits, model_name):
    run, said = save_run(tmp_path / "run", small_graph(), model_name), []
    first = Run.open(run).answerer(say=said.append)
    assert len(fits) == len(said) == 1
    assert (run / "calibration.json").is_file()
    second = Run.open(str(run)).answerer(say=said.append)
    assert len(fits) == len(said) == 1
    assert second.calibration == first.calibration
    for distances, probabilities in first.calibration.curves:
        assert distances == sorted(distances)
        assert probabilities == sorted(probabilities, reverse=True)
    question = "?X . r0(e1, ?X)"
    assert first.answer(question, explain=True) == second.answer(question, explain=True)


def test_another_best_model_is_calibrated_anew(tmp_path, fits):
    graph = small_graph()
    run = save_run(tmp_path / "run", graph)
    before = Run.open(run).answerer().calibration
    save_run(run, graph, step=20, seed=1)
    after = Run.open(run).answerer().calibration
    assert len(fits) == 2
    assert after != before
    assert Run.open(run).answerer().calibration == after
    assert len(fits) == 2


def test_the_views_share_the_curve(tmp_path, fits):
    run = save_run(tmp_path / "run", small_graph())
    for edges in ("train", "train+valid", "all"):
        assert Run.open(run).answerer(edges=edges).edges == edges
    assert len(fits) == 1


def test_an_unknown_view_is_refused_before_any_work(tmp_path, fits):
    run = save_run(tmp_path / "run", small_graph())
    with pytest.raises(InvalidArgument, match="edges"):
        Run.open(run).answerer(edges="test")
    assert not fits


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "\udcff",
        '{"model": "best-00000010"}',
        '{"model": "best-00000010", "curves": [[null, null]]}',
        '{"model": "best-00000010", "curves": [["ab", "cd"]]}',
        '{"model": "best-00000010", "curves": [[[], []]]}',
        '{"model": "best-00000010", "curves": [[[1, 2], [0.5]]]}',
        '{"model": "best-00000010", "curves": [[[1, 2], [0.5, NaN]]]}',
        '{"model": "best-00000010", "curves": [[[1, 2], [7, 0.5]]]}',
        '{"model": "best-00000010", "curves": [[[2, 1], [0.6, 0.5]]]}',
    ],
)
def test_a_damaged_calibration_is_named(tmp_path, content):
    run = save_run(tmp_path / "run", small_graph())
    (run / "calibration.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StoreError, match=r"calibration\.json is damaged.*delete it"):
        Run.open(run).answerer()


def test_deleting_a_damaged_calibration_helps(tmp_path):
    run = save_run(tmp_path / "run", small_graph())
    good = Run.open(run).answerer().calibration
    (run / "calibration.json").write_text(json.dumps([1]))
    with pytest.raises(StoreError, match="delete it"):
        Run.open(run).answerer()
    (run / "calibration.json").unlink()
    assert Run.open(run).answerer().calibration == good


def test_a_run_without_validation_edges(tmp_path):
    run = save_run(tmp_path / "run", graph_of([(0, 0, 1), (1, 1, 2)]))
    with pytest.raises(InvalidArgument, match="--valid"):
        Run.open(run).answerer()
    assert not (run / "calibration.json").exists()


def test_a_graph_with_one_validation_edge(tmp_path):
    run = save_run(tmp_path / "run", graph_of([(0, 0, 1), (1, 1, 2)], [(2, 0, 3)]))
    assert len(Run.open(run).answerer().answer("?X . r0(e2, ?X)")) == 10


def test_a_graph_whose_validation_edges_give_no_query(tmp_path):
    """Every query over that edge has more than the 100 answers that are allowed."""
    edges = [(0, 0, i) for i in range(120)] + [(i, 0, 120) for i in range(119)]
    graph = graph_of(edges, [(0, 0, 120)], num_entities=121, num_relations=1)
    run = save_run(tmp_path / "run", graph)
    with pytest.raises(BetaeError):
        Run.open(run).answerer()


def test_the_graph_must_be_that_of_the_run(tmp_path):
    run = save_run(tmp_path / "run", small_graph())
    small_graph(seed=1).save(tmp_path / "other")
    with pytest.raises(InvalidArgument, match="another graph"):
        Run.open(run, tmp_path / "other").answerer()
    shutil.move(run / "graph", tmp_path / "moved")
    with pytest.raises(StoreError, match="--graph"):
        Run.open(run).answerer()
    assert len(Run.open(run, tmp_path / "moved").answerer().answer("?X . r0(e1, ?X)")) == 10


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(StoreError, match="not a run"):
        Run.open(tmp_path).answerer()


def test_a_large_graph_gives_finite_numbers():
    """Distances of any size are probabilities, and a name may be anything."""
    names = ["a", "b\tc", "[x]", "ü", ""]
    splits = {
        split: np.array(edges, dtype=np.int32).reshape(-1, 3)
        for split, edges in (("train", [[0, 0, 1]]), ("valid", [[1, 0, 2]]), ("test", []))
    }
    graph = KnowledgeGraph.from_triples(Triples(names, ["r"], splits))
    answerer = Answerer(random_model("betae", graph), graph, same_curve([5.0], [0.5]))
    found = answerer.answer(Entity(0)["r"], 5, explain=True)
    assert {answer.entity for answer in found} == set(names)
    assert {answer.probability for answer in found} == {0.5, 1.0}
