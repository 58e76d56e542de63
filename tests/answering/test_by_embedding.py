"""Answers by embedding: distances, their probabilities and how they are kept, what is refused."""

import json
import math
import shutil

import pytest

from betae.answering import by_embedding as embedding
from betae.errors import BetaeError, InvalidArgument, StoreError, UnsupportedQuery
from betae.run import Run
from betae.storage import write_checked_json
from tests.answering.helpers import same_curve, save_run, untrained
from tests.training.helpers import graph_of, small_graph

CHILDREN = "?X . parent(ann, ?X)"
QUESTION = "?X . r0(e1, ?X)"
EVERYWHERE = 100  # more answers than the toy graph has entities


def by_embedding(folder, **options):
    return Run.open(folder).answerer(method="embedding", **options)


def curve_of(folder):
    return by_embedding(folder).ranker.calibration


# ---- ranks ------------------------------------------------------------------------------------


def test_ranks_are_those_by_distance_among_all(toy_graph):
    found = untrained(toy_graph).answer(CHILDREN, EVERYWHERE)
    assert len(found) == toy_graph.num_entities
    by_rank = sorted(found, key=lambda answer: answer.rank)
    assert [answer.rank for answer in by_rank] == list(range(1, 13))
    scores = [answer.score for answer in by_rank]
    assert scores == sorted(scores, reverse=True)
    known = untrained(toy_graph).answer(CHILDREN, status="known")
    places = {answer.entity: answer.rank for answer in found}
    assert [answer.rank for answer in known] == sorted(places[name] for name in ("bob", "cat"))


@pytest.mark.parametrize("union", ["DNF", "DM"])
def test_unions(toy_graph, union):
    answerer = untrained(toy_graph, edges="all", union=union)
    found = answerer.answer("?X . parent(ann, ?X) | friend(dan, ?X)", EVERYWHERE)
    known = {answer.entity for answer in found if answer.status == "known"}
    assert known == {"bob", "cat", "fay"}


def test_the_two_unions_are_two_rankings(toy_graph):
    text = "?X . parent(ann, ?X) | parent(bob, ?X)"
    dnf, dm = (
        untrained(toy_graph, union=union).answer(text, EVERYWHERE) for union in ("DNF", "DM")
    )
    assert {a.entity: a.score for a in dnf} != {a.entity: a.score for a in dm}
    of_branches = [
        {
            a.entity: a.score
            for a in untrained(toy_graph).answer(f"?X . parent({name}, ?X)", EVERYWHERE)
        }
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


def test_there_is_nothing_to_explain_by(toy_graph):
    assert untrained(toy_graph).answer(CHILDREN, 1, explain=True)[0].why is None


def test_a_question_that_looks_empty(toy_graph):
    answerer = untrained(toy_graph)
    answerer.ranker.calibration = same_curve([0.0, 1000.0], [0.01, 0.01])
    empty = answerer.answer("?X . parent(Peru, ?X)")
    assert empty.looks_empty
    assert empty.expected == pytest.approx(12 * 0.01)
    assert not answerer.answer(CHILDREN).looks_empty


@pytest.mark.parametrize("model_name", ["query2box", "gqe"])
def test_a_model_without_complements(toy_graph, model_name):
    answerer = untrained(toy_graph, model_name)
    with pytest.raises(UnsupportedQuery, match="complement"):
        answerer.answer("?X . parent(ann, ?X) & !parent(bob, ?X)")
    union = "?X . parent(ann, ?X) | parent(bob, ?X)"
    assert len(answerer.answer(union)) == 10
    with pytest.raises(UnsupportedQuery, match="De Morgan"):
        untrained(toy_graph, model_name, union="DM").answer(union)


def test_a_link_predictor_embeds_single_steps_only(toy_graph):
    answerer = untrained(toy_graph, "complex")
    assert len(answerer.answer(CHILDREN)) == 10
    with pytest.raises(UnsupportedQuery, match="single edges only"):
        answerer.answer("?X . exists ?Y : parent(ann, ?Y) & parent(?Y, ?X)")


# ---- runs and their calibration ---------------------------------------------------------------


@pytest.fixture
def fits(monkeypatch):
    """How often the curve was fitted."""
    calls = []
    fit = embedding.calibrate
    monkeypatch.setattr(
        embedding, "calibrate", lambda *arguments: calls.append(1) or fit(*arguments)
    )
    return calls


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe", "complex"])
def test_a_run_is_calibrated_once(tmp_path, fits, model_name):
    run, said = save_run(tmp_path / "run", small_graph(), model_name), []
    first = by_embedding(run, notify=said.append)
    assert len(fits) == len(said) == 1
    assert (run / "calibration.json").is_file()
    second = by_embedding(run, notify=said.append)
    assert len(fits) == len(said) == 1
    assert second.ranker.calibration == first.ranker.calibration
    for distances, probabilities in first.ranker.calibration.curves:
        assert distances == sorted(distances)
        assert probabilities == sorted(probabilities, reverse=True)
    assert first.answer(QUESTION, explain=True) == second.answer(QUESTION, explain=True)


def test_another_best_model_is_calibrated_anew(tmp_path, fits):
    graph = small_graph()
    run = save_run(tmp_path / "run", graph)
    before = curve_of(run)
    save_run(run, graph, step=20, seed=1)
    after = curve_of(run)
    assert len(fits) == 2
    assert after != before
    assert curve_of(run) == after
    assert len(fits) == 2


def test_all_choices_of_edges_share_the_curve(tmp_path, fits):
    run = save_run(tmp_path / "run", small_graph())
    for edges in ("train", "train+valid", "all"):
        assert by_embedding(run, edges=edges).edges == edges
    assert len(fits) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edges": "test"}, "edges"),
        ({"union": "dnf"}, "DNF"),
        ({"method": "guess"}, "completed"),
    ],
)
def test_unknown_options_are_refused_before_any_work(tmp_path, fits, options, message):
    run = save_run(tmp_path / "run", small_graph())
    with pytest.raises(InvalidArgument, match=message):
        Run.open(run).answerer(**{"method": "embedding", **options})
    assert not fits


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\udcff"])
def test_a_damaged_calibration_is_named(tmp_path, content):
    run = save_run(tmp_path / "run", small_graph())
    (run / "calibration.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StoreError, match=r"calibration\.json is damaged.*delete it"):
        by_embedding(run)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"curves": [[None, None]]},
        {"curves": [["ab", "cd"]]},
        {"curves": [[[], []]]},
        {"curves": [[[1, 2], [0.5]]]},
        {"curves": [[[1, 2], [0.5, math.nan]]]},
        {"curves": [[[1, 2], [7, 0.5]]]},
        {"curves": [[[2, 1], [0.6, 0.5]]]},
    ],
)
def test_curves_are_checked(tmp_path, content):
    run = save_run(tmp_path / "run", small_graph())
    write_checked_json(run / "calibration.json", {"model": "best-00000010", **content})
    with pytest.raises(StoreError, match=r"calibration\.json is damaged.*delete it"):
        by_embedding(run)


def test_deleting_a_damaged_calibration_helps(tmp_path):
    run = save_run(tmp_path / "run", small_graph())
    good = curve_of(run)
    (run / "calibration.json").write_text(json.dumps([1]))
    with pytest.raises(StoreError, match="delete it"):
        by_embedding(run)
    (run / "calibration.json").unlink()
    assert curve_of(run) == good


def test_a_graph_with_one_validation_edge(tmp_path):
    run = save_run(tmp_path / "run", graph_of([(0, 0, 1), (1, 1, 2)], [(2, 0, 3)]))
    for method in ("completed", "embedding"):
        found = Run.open(run).answerer(method=method).answer("?X . r0(e2, ?X)")
        assert (found[0].entity, found[0].probability) == ("e3", 1)


def test_a_graph_whose_validation_edges_give_no_query(tmp_path):
    """Nothing needs an edge that is a training edge, too."""
    edges = [(0, 0, i) for i in range(120)] + [(i, 0, 120) for i in range(119)]
    graph = graph_of(edges, [(0, 0, 120)], num_entities=121, num_relations=1)
    run = save_run(tmp_path / "run", graph)
    with pytest.raises(BetaeError):
        by_embedding(run)
    with pytest.raises(InvalidArgument, match="All validation edges are training edges, too"):
        Run.open(run).answerer()


def test_the_graph_must_be_that_of_the_run(tmp_path):
    run = save_run(tmp_path / "run", small_graph())
    small_graph(seed=1).save(tmp_path / "other")
    with pytest.raises(InvalidArgument, match="another graph"):
        Run.open(run, tmp_path / "other").answerer()
    shutil.move(run / "graph", tmp_path / "moved")
    with pytest.raises(StoreError, match="--graph"):
        Run.open(run).answerer()
    assert len(Run.open(run, tmp_path / "moved").answerer().answer(QUESTION)) == 10


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(StoreError, match="not a run"):
        Run.open(tmp_path).answerer()
