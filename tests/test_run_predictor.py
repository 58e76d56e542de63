"""A run with a link predictor beside its model: trained by one command, resumed in either part."""

import json
import os
import shutil
import signal

import pytest
import torch

from betae import KnowledgeGraph, Run, train
from betae.errors import InvalidArgument, StoreError
from betae.querysets.sample import sample_queries
from betae.training import loop
from betae.training.folder import RunFolder
from betae.training.loop import Outcome
from tests.training.helpers import (
    SMALL,
    assert_bit_equal,
    in_process,
    last_weights,
    small_config,
    small_graph,
    timeless,
    weights,
)

QUESTION = "?X . r1(e2, ?X) & !r0(e1, ?X)"
QUICK = {"steps": 20, "validate_every": 10, "checkpoint_every": 10}
BESIDE = {"model": {"name": "complex", **SMALL["complex"]}, "batch_size": 8, **QUICK}
CONFIG = small_config(predictor=BESIDE, **QUICK)


@pytest.fixture(autouse=True, scope="module")
def _quick():
    """One thread, reports every 5 steps, and little to fit probabilities on."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "REPORT_EVERY", 5)
        patch.setattr("betae.answering.edge_fit.FIT_ROWS", 100)
        patch.setattr("betae.answering.edge_fit.FIT_PAIRS", 200)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs") / "graph"
    small_graph().save(folder)
    return KnowledgeGraph.open(folder)


@pytest.fixture(scope="module")
def trained(graph, tmp_path_factory):
    """A run trained in one go, and the lines that it reported."""
    lines = []
    run = train(graph, tmp_path_factory.mktemp("runs") / "run", CONFIG, report=lines.append)
    return run, lines


# ---- both parts -------------------------------------------------------------------------------


def test_one_call_trains_both(trained, graph):
    run, lines = trained
    assert (run.outcome.step, run.outcome.why) == (20, "all steps done")
    beside = Run.open(run.folder).predictor
    assert beside.folder == run.folder / "predictor"
    assert (run.config, beside.config) == (CONFIG, CONFIG.predictor)
    assert [model.name for model in run.completed_graph().probabilities.predictors.models] == [
        "betae",
        "complex",
    ]
    assert [run.model().name, beside.model().name] == ["betae", "complex"]
    assert beside.graph.folder.samefile(graph.folder)
    assert beside.predictor is None
    # Each has its metrics, and the lines of the predictor say so.
    of_both = [{"predictor": True, **line} for line in beside.metrics]
    assert lines == [*run.metrics, *of_both]
    assert [line["step"] for line in beside.metrics if "mrr" in line] == [10, 20]


def test_the_predictor_is_what_it_would_be_alone(trained, graph, tmp_path):
    train(graph, tmp_path / "alone", CONFIG.predictor)
    beside = trained[0].folder / "predictor"
    assert_bit_equal(last_weights(tmp_path / "alone"), last_weights(beside))


def test_answers_and_missing_edges_go_by_both(trained, tmp_path):
    folder = shutil.copytree(trained[0].folder, tmp_path / "run")
    run = Run.open(folder, trained[0].graph.folder)
    found, said = run.answerer().answer(QUESTION, 30), []
    fitted = json.loads((folder / "edges.json").read_text())
    assert list(fitted["predictors"]) == ["betae", "complex"]
    names = [each.model_folder.name for each in (run, run.predictor)]
    assert fitted["model"] == "+".join(["rules", *names])
    assert {"betae", "complex"} <= set(run.complete(above=0.01).to_polars().columns)
    queries = sample_queries(run.graph, {"1p": 10}, "valid")
    assert run.evaluate(queries, method="completed").predictors == ["rules", "betae", "complex"]

    shutil.rmtree(folder / "predictor")
    alone = Run.open(folder, trained[0].graph.folder)
    assert alone.predictor is None
    assert alone.answerer(notify=said.append).answer(QUESTION, 30) != found
    assert len(said) == 1  # fitted anew, for other predictors
    assert "complex" not in alone.complete(above=0.01).to_polars().columns


def test_a_graph_that_has_moved_has_moved_for_both(graph, tmp_path):
    shutil.copytree(graph.folder, tmp_path / "graph")
    train(KnowledgeGraph.open(tmp_path / "graph"), tmp_path / "run", CONFIG)
    (tmp_path / "graph").rename(tmp_path / "moved")
    run = Run.open(tmp_path / "run", tmp_path / "moved")
    assert run.predictor.graph.folder == tmp_path / "moved"
    assert len(run.answerer().answer(QUESTION, 5)) == 5


def test_a_graph_that_is_not_on_disk_is_kept_once(tmp_path):
    run = train(small_graph(), tmp_path / "run", CONFIG)
    assert run.predictor.graph.folder.samefile(tmp_path / "run" / "graph")
    assert not (tmp_path / "run" / "predictor" / "graph").exists()


@pytest.mark.parametrize("config", [CONFIG, small_config(**QUICK)], ids=["both", "one"])
def test_each_part_has_half_the_time(config, graph, monkeypatch, tmp_path):
    times = []

    def fit(*_, minutes, **__):
        times.append(minutes)
        return Outcome(1, 1.0, 1.0, 1, None, "time is up")

    monkeypatch.setattr("betae.training.loop.fit", fit)
    for minutes in (6.0, None):
        train(graph, tmp_path / "run", config, minutes=minutes)
    assert times == ([3.0, 3.0, None, None] if config.predictor else [6.0, None])


def test_another_predictor_is_another_config(trained, graph):
    other = small_config(predictor={**BESIDE, "steps": 30}, **QUICK)
    with pytest.raises(InvalidArgument, match=r"another config \(predictor\.steps differ\)"):
        train(graph, trained[0].folder, other, resume=True)


# ---- resuming ---------------------------------------------------------------------------------


def train_both(graph_folder, run, killed_at, resume=False):
    """Train in a process that gets SIGKILL between the parts, or at a step of one of them."""
    torch.set_num_threads(1)
    loop.REPORT_EVERY = 5
    fits, inner = [], loop.fit

    def fit(*arguments, **keywords):
        fits.append(arguments)
        if killed_at == "between" and len(fits) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*arguments, **keywords)

    def report(line):
        place = "predictor" if line.get("predictor") else "model", line["step"]
        if place == killed_at and "loss" in line:
            os.kill(os.getpid(), signal.SIGKILL)

    loop.fit = fit
    train(KnowledgeGraph.open(graph_folder), run, CONFIG, resume=resume, report=report)


def assert_same_runs(one, two):
    for first, second in ((one, two), (one / "predictor", two / "predictor")):
        assert_bit_equal(last_weights(first), last_weights(second))
        assert timeless(first) == timeless(second)
        best = [RunFolder(run).newest("best") for run in (first, second)]
        assert best[0].name == best[1].name
        assert_bit_equal(*map(weights, best))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("killed_at", "has_predictor"),
    [
        ("between", False),
        (("predictor", 5), False),  # before its first checkpoint
        (("predictor", 15), True),
    ],
    ids=str,
)
def test_a_killed_run_resumes_bit_by_bit(trained, graph, tmp_path, killed_at, has_predictor):
    folder = tmp_path / "run"
    code = in_process(train_both, graph.folder, folder, killed_at)
    assert code == -signal.SIGKILL
    run = Run.open(folder)
    assert (run.predictor is not None) == has_predictor
    assert len(run.answerer().answer(QUESTION, 5)) == 5  # it answers with what there is
    resumed = train(graph, folder, CONFIG, resume=True)
    assert (resumed.outcome.step, resumed.outcome.why) == (20, "all steps done")
    assert_same_runs(trained[0].folder, folder)
    assert run.answerer().answer(QUESTION, 30) == trained[0].answerer().answer(QUESTION, 30)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["model", "predictor"])
def test_an_interrupted_run_says_so_and_resumes(trained, graph, tmp_path, part):
    def interrupt(line):
        if line["step"] == 5 and line.get("predictor", False) == (part == "predictor"):
            os.kill(os.getpid(), signal.SIGINT)

    run = train(graph, tmp_path / "run", CONFIG, report=interrupt)
    assert run.outcome.why == "interrupted"
    assert run.outcome.step == (6 if part == "model" else 20)
    assert (tmp_path / "run" / "predictor").exists() == (part == "predictor")
    again = train(graph, tmp_path / "run", CONFIG, resume=True)
    assert again.outcome.why == "all steps done"
    for folder in ("", "predictor"):
        straight = last_weights(trained[0].folder / folder)
        assert_bit_equal(straight, last_weights(tmp_path / "run" / folder))


def test_resuming_a_finished_run_changes_nothing(trained, graph, tmp_path):
    folder = shutil.copytree(trained[0].folder, tmp_path / "run")
    lines = []
    again = train(graph, folder, CONFIG, resume=True, report=lines.append)
    assert (again.outcome.why, lines) == ("all steps done", [])
    assert_same_runs(trained[0].folder, folder)


# ---- indexes ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_models_have_an_index_of_their_own(trained, tmp_path):
    folder = shutil.copytree(trained[0].folder, tmp_path / "run")
    graph = trained[0].graph.folder
    run = Run.open(folder, graph)
    run.build_index("lsh")
    assert [run.index.kind, run.predictor.index.kind] == ["lsh", "lsh"]
    run.build_index()
    assert [run.index.kind, run.predictor.index.kind] == ["ivf", "ivf"]
    assert run.predictor.index.model == run.predictor.model_folder.name
    question = "?X . exists ?Y : r1(e2, ?Y) & r0(?Y, ?X)"
    found, exact = (run.answerer(use_index=use).answer(question) for use in (True, False))
    assert [each.entity for each in found] == [each.entity for each in exact]


@pytest.mark.slow
def test_an_index_of_an_older_predictor_is_refused(trained, tmp_path):
    folder = shutil.copytree(trained[0].folder, tmp_path / "run")
    run = Run.open(folder, trained[0].graph.folder)
    run.build_index()
    best = run.predictor.model_folder
    best.rename(best.with_name("best-00000099"))
    with pytest.raises(StoreError, match=r"predictor.*is now best-00000099.*betae index build"):
        run.answerer(use_index=True)
    run.answerer(method="embedding", use_index=True)  # which does not need it
    (folder / "index" / "index.faiss").unlink()
    with pytest.raises(StoreError, match=r"index\.faiss is missing. Make the index again"):
        run.answerer(method="embedding", use_index=True)
    shutil.rmtree(folder / "predictor" / "index")
    run.build_index()
    run.answerer(use_index=True)
    shutil.rmtree(folder / "predictor" / "index")
    with pytest.raises(StoreError, match=r"predictor/index is not an index. Build one"):
        run.answerer(use_index=True)


def test_rules_are_mined_last_with_progress(graph, tmp_path):
    seen = []
    run = train(graph, tmp_path / "run", CONFIG, progress=lambda *each: seen.append(each))
    assert len(run.rules) > 0
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
