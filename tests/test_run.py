"""Run: a run's folder from training to answers, and folders that are not as they were."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from betae import KnowledgeGraph, Run, train
from betae.errors import InvalidArgument, StoreError
from betae.graph.change import append_triples
from betae.graph.triples import read_triples
from betae.models.execute import score_queries
from betae.queries.ast import Entity
from betae.querysets.sample import sample_queries
from betae.search import typical_queries
from tests.training.helpers import small_config, small_graph

QUESTION = "?X . r0(e1, ?X)"
HELD_OUT = "?X . r1(e16, ?X)"  # e8, by a validation edge
CONFIG = small_config(
    steps=10,
    validate_every=5,
    checkpoint_every=5,
    model={"dim": 8, "hidden": 8, "dropout": 0.1},
)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _few_queries(monkeypatch):
    monkeypatch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 5)
    monkeypatch.setattr("betae.answering.edge_fit.FIT_ROWS", 100)
    monkeypatch.setattr("betae.answering.edge_fit.FIT_PAIRS", 200)
    monkeypatch.setattr("betae.querysets.sample.WALK_BATCH", 256)
    monkeypatch.setattr("betae.search.typical_queries", lambda *given: typical_queries(*given, 3))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run beside its graph, trained once."""
    folder = tmp_path_factory.mktemp("trained")
    small_graph().save(folder / "graph")
    return train(KnowledgeGraph.open(folder / "graph"), folder / "run", CONFIG)


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of the run and its graph."""
    return shutil.copytree(trained.folder.parent, tmp_path / "copy")


@pytest.fixture
def test_queries(trained):
    return sample_queries(trained.graph, {"1p": 10, "2i": 10}, "valid")


# ---- what it is -------------------------------------------------------------------------------


def test_training_gives_a_run_that_opens_as_it_was(trained, folder):
    opened = Run.open(folder / "run")
    assert trained.outcome.step == 10
    assert opened.outcome is None
    assert opened.config == trained.config == CONFIG
    assert opened.graph.fingerprint == trained.graph.fingerprint == small_graph().fingerprint
    assert opened.metrics == trained.metrics
    assert [line["step"] for line in opened.metrics if "mrr" in line] == [5, 10]
    assert opened.model_folder.name == trained.model_folder.name
    assert str(folder / "run") in repr(opened)
    assert f"{opened.model().name}" in repr(opened)
    assert repr(opened.graph) in opened._repr_html_()


def test_the_model_scores_and_leaves_nothing_out(trained):
    model = trained.model()
    assert not model.training
    queries = [Entity(1)[0] & Entity(2)[2]] * 20
    scores = score_queries(model, queries)
    assert torch.equal(scores, score_queries(model, queries))
    assert torch.equal(scores, score_queries(trained.model(), queries))
    assert not scores.requires_grad


def test_a_model_that_is_changed_does_not_change_the_run(trained):
    first = trained.model()
    first.entities.zero_()
    assert not torch.equal(trained.model().entities, first.entities)


# ---- evaluation -------------------------------------------------------------------------------


def test_an_evaluation_is_kept(folder, test_queries):
    run = Run.open(folder / "run")
    assert run.evaluations == []
    evaluation = run.evaluate(test_queries, "mine", method="embedding", empty_queries=5)
    assert set(evaluation.structures) == {"1p", "2i"}
    assert len(Run.open(folder / "run").evaluations) == 1
    assert (folder / "run" / "evaluations" / "mine.json").is_file()
    test_queries.save(folder / "some-queries")
    run.evaluate(folder / "some-queries", method="embedding", empty_queries=5)
    assert len(run.evaluations) == 2
    assert (folder / "run" / "evaluations" / "some-queries-valid.json").is_file()


def test_the_two_methods_are_kept_side_by_side(folder, test_queries):
    run = Run.open(folder / "run")
    by_embedding = run.evaluate(test_queries, "mine", method="embedding", empty_queries=5)
    completed = run.evaluate(test_queries, "mine", method="completed")
    assert [(each.name, each.method) for each in run.evaluations] == [
        ("mine", "embedding"),
        ("mine-completed", "completed"),
    ]
    assert (by_embedding.predictors, completed.predictors) == ([], ["rules", "betae"])
    for name, result in completed.structures.items():
        assert result.frequency == by_embedding.structures[name].frequency
        assert result.metrics != by_embedding.structures[name].metrics
    with pytest.raises(InvalidArgument, match="method is 'both'"):
        run.evaluate(test_queries, method="both")


def test_the_completed_graph_is_evaluated_as_it_answers(folder):
    """Each hard answer is ranked among the entities that are no answer, a tie in the middle."""
    run = Run.open(folder / "run")
    queries = sample_queries(run.graph, {"1p": 6, "2p": 6, "2in": 6}, "valid")
    evaluation = run.evaluate(queries, method="completed")
    answerer = run.answerer("train")
    for name, block in queries.blocks.items():
        means = []
        for query, easy, hard in replace(queries, blocks={name: block}):
            found = {answer.entity: answer.probability for answer in answerer.answer(query, 30)}
            truth = [found.get(entity, 0.0) for entity in run.graph.entities]  # 0: ruled out
            others = np.delete(truth, [*easy, *hard])
            ranks = [1 + sum(others > truth[e]) + sum(others == truth[e]) / 2 for e in hard]
            means.append(np.mean([100 / rank for rank in ranks]))
        assert evaluation.structures[name].metrics.mrr == pytest.approx(np.mean(means))


def test_only_training_edges_count_in_an_evaluation(folder):
    """The queries are the validation edges: who took those for known would be perfect."""
    run = Run.open(folder / "run")
    assert run.answerer().answer(HELD_OUT)[0].entity == "e8"
    queries = sample_queries(run.graph, {"1p": 20}, "valid")
    evaluation = run.evaluate(queries, method="completed")
    assert evaluation.structures["1p"].metrics.mrr < 60


# ---- questions --------------------------------------------------------------------------------


def test_an_answerer_answers_the_same_twice(folder):
    run, said = Run.open(folder / "run"), []
    first = run.answerer(notify=said.append).answer(QUESTION, explain=True)
    assert len(first) == 10
    assert len(said) == 1
    again = Run.open(folder / "run").answerer(notify=said.append)
    assert again.answer(QUESTION, explain=True) == first
    assert len(said) == 1  # fitted once


def test_the_index_of_a_run(folder):
    run = Run.open(folder / "run")
    with pytest.raises(StoreError, match="betae index build"):
        run.index  # noqa: B018
    with pytest.raises(StoreError, match="betae index build"):
        run.answerer(use_index=True)
    assert not (folder / "run" / "calibration.json").exists()  # refused before any work
    built = run.build_index()
    assert built.model == run.model_folder.name
    assert (run.index.kind, run.index.recall) == (built.kind, built.recall)
    for method in ("completed", "embedding"):
        found = run.answerer(method=method, use_index=True).answer(QUESTION, 3)
        exact = run.answerer(method=method).answer(QUESTION, 3)
        assert (found.method, found.expected) == (method, pytest.approx(exact.expected))
        assert [each.entity for each in found] == [each.entity for each in exact]


# ---- folders that are not as they were --------------------------------------------------------


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(StoreError, match="not a run"):
        Run.open(tmp_path)
    with pytest.raises(StoreError, match="not a run"):
        Run.open(tmp_path / "nowhere")


def test_a_graph_that_has_moved(folder, test_queries):
    shutil.move(folder / "graph", folder / "elsewhere")
    with pytest.raises(StoreError, match="no longer in"):
        Run.open(folder / "run").graph  # noqa: B018
    run = Run.open(folder / "run", folder / "elsewhere")
    assert run.graph.fingerprint == small_graph().fingerprint
    assert len(run.answerer().answer(QUESTION)) == 10
    run.evaluate(test_queries, method="embedding", empty_queries=5)
    assert len(run.evaluations) == 1


def test_a_graph_that_has_grown_answers_but_is_not_evaluated(folder, test_queries, write):
    graph = KnowledgeGraph.open(folder / "graph")
    graph = append_triples(graph, read_triples(write("more.tsv", "e1\tr0\tnew\n")))
    graph.save(folder / "graph", overwrite=True)
    run = Run.open(folder / "run")
    assert run.graph.num_entities == 31
    known = [answer.entity for answer in run.answerer().answer(QUESTION, status="known")]
    assert "new" in known
    with pytest.raises(InvalidArgument, match="has gained or lost edges"):
        run.evaluate(test_queries, method="embedding", empty_queries=5)


def test_another_graph(folder):
    small_graph(seed=1).save(folder / "other")
    with pytest.raises(InvalidArgument, match="another graph"):
        Run.open(folder / "run", folder / "other").graph  # noqa: B018
