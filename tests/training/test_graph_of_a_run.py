"""A run knows its graph: inside it, or where it lies beside it."""

import json
import shutil
from pathlib import Path

import pytest

from betae import KnowledgeGraph
from betae.errors import InvalidArgument, StoreError
from betae.training import loop
from betae.training.folder import RunFolder
from tests.training.helpers import small_config, small_graph

QUICK = {"steps": 2, "validate_every": 2, "loss": "margin"}


def place_of(run):
    return json.loads((run / "graph.json").read_text("utf-8"))["folder"]


@pytest.fixture(scope="module")
def made(graph, valid, tmp_path_factory):
    """A run beside its graph, which was opened."""
    folder = tmp_path_factory.mktemp("made")
    graph.save(folder / "graphs" / "small")
    opened = KnowledgeGraph.open(folder / "graphs" / "small")
    loop.fit(opened, small_config(**QUICK), RunFolder(folder / "runs" / "run"), valid=valid)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it, which is as good as the first: both moved together."""
    return shutil.copytree(made, tmp_path / "elsewhere")


# ---- in memory --------------------------------------------------------------------------------


def test_a_graph_in_memory_is_saved_with_the_run(train, graph, assert_same_graph, tmp_path):
    train(**QUICK)
    run = tmp_path / "run"
    assert place_of(run) == "graph"
    assert_same_graph(RunFolder(run).open_graph(), graph)
    shutil.move(run, tmp_path / "moved")
    assert RunFolder(tmp_path / "moved").open_graph().fingerprint == graph.fingerprint


def test_labels_are_saved_too(toy_graph, tmp_path):
    config = small_config(**QUICK, structures={"1p": 1.0}, validation_queries=0)
    loop.fit(toy_graph, config, RunFolder(tmp_path / "run"))
    opened = RunFolder(tmp_path / "run").open_graph()
    assert opened.entity_label(opened.entity_id("ann")) == "Ann Lee"


def test_a_run_goes_on_with_the_graph_it_saved(train, tmp_path):
    train(**QUICK)
    saved = RunFolder(tmp_path / "run").open_graph()
    result = train(on=saved, **QUICK, resume=True)
    assert result.step == 2
    assert place_of(tmp_path / "run") == "graph"


def test_a_run_killed_before_its_first_checkpoint_starts_again(train, tmp_path):
    run = tmp_path / "run"
    train(**QUICK)
    for kind in ("checkpoint-", "best-"):
        shutil.rmtree(RunFolder(run).newest(kind.removesuffix("-")))
    train(**QUICK, resume=True)  # writes the graph over the one that is there
    assert RunFolder(run).open_graph().fingerprint == small_graph().fingerprint


# ---- on disk ----------------------------------------------------------------------------------


def test_a_graph_on_disk_stays_where_it_is(made, graph):
    run = made / "runs" / "run"
    assert place_of(run) == "../../graphs/small"
    assert not (run / "graph").exists()
    opened = RunFolder(run).open_graph()
    assert opened.fingerprint == graph.fingerprint
    assert opened.folder.resolve() == (made / "graphs" / "small").resolve()


def test_from_any_folder(folder, graph, monkeypatch):
    monkeypatch.chdir(folder / "runs")
    assert RunFolder("run").open_graph().fingerprint == graph.fingerprint
    monkeypatch.chdir(folder / "runs" / "run")
    assert RunFolder(Path()).open_graph().fingerprint == graph.fingerprint


def test_a_link_to_the_run(folder, graph, tmp_path):
    (tmp_path / "link").symlink_to(folder / "runs" / "run")
    assert RunFolder(tmp_path / "link").open_graph().fingerprint == graph.fingerprint


def test_the_folder_may_change_between_opening_and_training(folder, graph, valid, monkeypatch):
    monkeypatch.chdir(folder)
    opened = KnowledgeGraph.open("graphs/small")
    monkeypatch.chdir(folder / "runs")
    loop.fit(opened, small_config(**QUICK), RunFolder("new"), valid=valid)
    assert place_of(folder / "runs" / "new") == "../../graphs/small"
    assert RunFolder(folder / "runs" / "new").open_graph().fingerprint == graph.fingerprint


def test_a_run_that_goes_on_knows_where_the_graph_is_now(folder, graph, valid):
    moved = (folder / "graphs" / "small").rename(folder / "moved")
    run = folder / "runs" / "run"
    loop.fit(
        KnowledgeGraph.open(moved), small_config(**QUICK), RunFolder(run), valid=valid, resume=True
    )
    assert RunFolder(run).open_graph().fingerprint == graph.fingerprint


# ---- what is wrong ----------------------------------------------------------------------------


def test_the_graph_has_moved(folder, graph):
    run = folder / "runs" / "run"
    moved = (folder / "graphs" / "small").rename(folder / "moved")
    with pytest.raises(StoreError, match=r"is no longer in .*graphs/small: .*--graph"):
        RunFolder(run).open_graph()
    assert RunFolder(run).open_graph(moved).fingerprint == graph.fingerprint


def test_it_is_another_graph(folder):
    small_graph(seed=1).save(folder / "other")
    with pytest.raises(InvalidArgument, match=r"was trained on another graph than .*other"):
        RunFolder(folder / "runs" / "run").open_graph(folder / "other")
    shutil.rmtree(folder / "graphs" / "small")
    (folder / "other").rename(folder / "graphs" / "small")
    with pytest.raises(InvalidArgument, match=r"was trained on another graph than .*small"):
        RunFolder(folder / "runs" / "run").open_graph()


@pytest.mark.parametrize(
    "text", [None, "", '{"fold', "{}", "[]", "null", '{"folder": 3}', '{"folder": null}']
)
def test_the_place_is_not_known(folder, graph, text):
    run = folder / "runs" / "run"
    (run / "graph.json").unlink()
    if text is not None:
        (run / "graph.json").write_text(text)
    with pytest.raises(StoreError, match=r"graph\.json is missing or damaged: give .* --graph"):
        RunFolder(run).open_graph()
    assert RunFolder(run).open_graph(folder / "graphs" / "small").fingerprint == graph.fingerprint


def test_it_is_no_run(folder):
    with pytest.raises(StoreError, match=r"graph\.json is missing or damaged|is not a run"):
        RunFolder(folder / "graphs").open_graph()
    with pytest.raises(StoreError, match="is not a run: it holds no model"):
        RunFolder(folder / "graphs").open_graph(folder / "graphs" / "small")
    with pytest.raises(StoreError, match="is not a run: it holds no model"):
        RunFolder(folder / "graphs").best_model()
