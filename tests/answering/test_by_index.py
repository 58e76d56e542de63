"""Answers by an index: which rows are read, and the estimate of what it leaves out."""

import numpy as np
import pytest
import torch

from betae import Run
from betae.answering.answerer import Answerer
from betae.answering.by_embedding import (
    ByEmbedding,
    IndexSearch,
    _candidates_by_index,
    calibrate,
)
from betae.answering.calibration import candidates_of
from betae.errors import StoreError
from betae.models import QueryModel
from betae.models.execute import embed_queries
from betae.models.store import load_model
from betae.querysets.sample import sample_queries
from betae.search import build_index
from tests.answering.helpers import SLOPE, random_model, save_run
from tests.models.reference import save_model
from tests.training.helpers import small_graph

QUESTIONS = ("?X . r0(e1, ?X)", "?X . exists ?Y : r0(e1, ?Y) & r1(?Y, ?X)", "?X . !r2(e3, ?X)")
NUMBER = 3000


@pytest.fixture(autouse=True)
def _little_work(monkeypatch):
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_CANDIDATES", 30)
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_SAMPLE", 40)
    monkeypatch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 5)
    monkeypatch.setattr("betae.querysets.sample.WALK_BATCH", 256)


@pytest.fixture(scope="module")
def graph():
    return small_graph(0, NUMBER, num_edges=9000, num_valid=500)


@pytest.fixture(scope="module")
def model(graph):
    return random_model("betae", graph).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def index(graph, model):
    queries = [query for query, _, _ in sample_queries(graph, {"1p": 20, "2p": 20}, "valid")]
    return build_index(model, embed_queries(model, queries))


@pytest.mark.parametrize("model_name", ["betae", "gqe"])
def test_no_row_is_read_but_those_of_candidates_and_of_the_sample(
    graph, model_name, tmp_path, monkeypatch
):
    run = Run.open(save_run(tmp_path / "run", graph, model_name))
    run.build_index()
    by_embedding = {"method": "embedding", "use_index": True}
    run.answerer(**by_embedding)  # the first time it fits probabilities
    read = set()

    def look_up(self, ids):
        read.update(ids.tolist())
        return self.hidden[ids]

    def load(*arguments, **options):
        """Load a model whose table can be seen through `look_up` alone."""
        model = load_model(*arguments, **options)
        model.hidden, model.entities = model.entities.detach(), torch.nn.Parameter(torch.empty(0))
        return model

    monkeypatch.setattr(QueryModel, "look_up", look_up)
    monkeypatch.setattr("betae.models.store.load_model", load)
    answerer = run.answerer(**by_embedding)
    assert len(read) <= 40
    found = answerer.answer(QUESTIONS[0])
    assert len(found) == 10
    assert found.expected > 0
    assert 100 < len(read) < NUMBER / 4


def test_rows_are_not_checked_for_a_model_with_an_index(graph, tmp_path):
    broken = random_model("betae", graph)
    with torch.no_grad():
        broken.entities[7, 1] = float("nan")
    save_model(broken, tmp_path / "model")
    with pytest.raises(StoreError, match="entities has 1 values that are NaN"):
        load_model(tmp_path / "model")
    assert load_model(tmp_path / "model", check_rows=False).entities[7, 1].isnan()
    with torch.no_grad():
        broken.entities[7, 1] = 0
        broken.attention.score.bias[0] = float("inf")
    save_model(broken, tmp_path / "model", overwrite=True)
    with pytest.raises(StoreError, match=r"attention\.score\.bias has 1 values"):
        load_model(tmp_path / "model", check_rows=False)


def answerers(graph, model, index, others, monkeypatch):
    """Answer by all entities, and by an index and a sample of others."""
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_SAMPLE", others)
    rankers = (
        ByEmbedding(graph, model, SLOPE),
        ByEmbedding(graph, model, SLOPE, IndexSearch(model, index)),
    )
    return [Answerer(graph, ranker) for ranker in rankers]


@pytest.mark.parametrize(("others", "error"), [(NUMBER, 1e-6), (1000, 0.03), (100, 0.1)])
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_expected_number_is_estimated_from_the_sample(
    graph, model, index, question, others, error, monkeypatch
):
    whole, by_index = answerers(graph, model, index, others, monkeypatch)
    expected, estimate = whole.answer(question).expected, by_index.answer(question).expected
    assert expected > 300  # by a curve that gives every entity a chance
    assert estimate == pytest.approx(expected, rel=error)


def test_if_an_index_finds_all_nothing_is_estimated(graph, model, index, monkeypatch):
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_CANDIDATES", 2 * NUMBER)
    monkeypatch.setattr(index, "effort", index.most_effort)
    whole, by_index = answerers(graph, model, index, 40, monkeypatch)
    for question in QUESTIONS:
        found = by_index.answer(question)
        assert found.expected == pytest.approx(whole.answer(question).expected, rel=1e-6)


def test_curves_are_fitted_to_candidates_and_a_sample(graph, model, index, monkeypatch):
    queries = sample_queries(graph, dict.fromkeys(("1p", "2p", "2u", "2in"), 5), "valid")
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_SAMPLE", NUMBER)
    everything = [*candidates_of(model, queries)]
    found = [*_candidates_by_index(IndexSearch(model, index), queries)]
    assert len(found) == len(everything) > 10
    for one, other in zip(found, everything, strict=True):
        assert one.represents.tolist() == [1] * len(one.distances)
        order, its = np.argsort(one.distances), np.argsort(other.distances)
        np.testing.assert_allclose(one.distances[order], other.distances[its], rtol=1e-4, atol=1e-5)
        assert one.is_answer.sum() == other.is_answer.sum()
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_SAMPLE", 500)
    for chunk in _candidates_by_index(IndexSearch(model, index), queries):
        assert chunk.represents.sum() == pytest.approx(NUMBER, abs=100)  # but for easy answers
        assert set(chunk.represents[chunk.is_answer]) == {1}


def test_curves_from_an_index_are_about_those_from_all(graph, model, index, monkeypatch):
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_CANDIDATES", 1000)
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_SAMPLE", 500)
    monkeypatch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 30)
    by_all, by_index = calibrate(model, graph), calibrate(model, graph, IndexSearch(model, index))
    distances = model.distance(model.embed_entities(torch.tensor([1])), model.table())[0]
    sums = [curve(distances.numpy()).sum() for curve in (by_all, by_index)]
    assert sums[1] == pytest.approx(sums[0], rel=0.1)
