"""A table on disk: the same to the bit as one in memory, and for less memory than it takes."""

import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from betae.errors import InvalidArgument
from betae.querysets.sample import sample_queries
from betae.training import loop, validation
from betae.training.folder import RunFolder
from betae.training.learner import make_learner
from tests.training.helpers import (
    assert_bit_equal,
    in_process,
    last_weights,
    run_training,
    small_config,
    small_graph,
    timeless,
    weights,
)


def assert_same_runs(one, two):
    assert_bit_equal(last_weights(one), last_weights(two))
    assert_bit_equal(*(weights(RunFolder(run).best_model()) for run in (one, two)))
    assert timeless(one) == timeless(two)


@pytest.mark.parametrize("model_name", ["betae", "query2box", "complex"])
def test_a_table_on_disk_equals_one_in_memory_to_the_bit(model_name, train, graph, tmp_path):
    valid = sample_queries(graph, {"1p": 10}, "valid")
    recipe = {"model_name": model_name, "valid": valid, "structures": {"1p": 1.0}}
    train(tmp_path / "memory", **recipe)
    train(tmp_path / "disk", table="disk", **recipe)
    assert_same_runs(tmp_path / "memory", tmp_path / "disk")


@pytest.mark.slow
def test_a_killed_run_resumes_bit_by_bit(train, queries, valid, tmp_path):
    """The mapped files have changed since the checkpoint: it must not have changed with them."""
    train(tmp_path / "straight", queries=queries, table="disk")
    data, kill = (small_config(table="disk"), queries, valid), (35, signal.SIGKILL)
    killed = in_process(run_training, tmp_path / "killed", *data, signal_at=kill)
    assert killed == -signal.SIGKILL
    names = {path.name for path in (tmp_path / "killed").iterdir()}
    assert {name for name in names if "checkpoint" in name} == {"checkpoint-00000020"}
    assert not any(name.startswith((".", "tmp")) for name in names)
    train(tmp_path / "killed", queries=queries, table="disk", resume=True)
    assert_same_runs(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("tables", [("memory", "disk"), ("disk", "memory")], ids="-".join)
def test_a_run_may_move_between_memory_and_disk(tables, train, tmp_path):
    def crash(line):
        if line["step"] == 30:
            raise OSError("crash")

    before, after = tables
    with pytest.raises(OSError, match="crash"):
        train(table=before, report=crash)
    train(table=after, resume=True)
    train(tmp_path / "straight")
    assert_same_runs(tmp_path / "straight", tmp_path / "run")


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe"])
def test_a_table_in_blocks_ranks_as_the_whole(model_name, valid, monkeypatch):
    model = make_learner(small_graph(num_entities=400), small_config(model_name)).model
    expected = validation.validate(model, valid)
    monkeypatch.setattr(validation, "VALUES_PER_PASS", 400)
    monkeypatch.setattr(validation, "EMBED_BATCH", 7)
    monkeypatch.setattr(validation, "QUERIES_PER_PASS", 16)
    assert validation.validate(model, valid) == pytest.approx(expected)
    assert model.training


def test_blocks_that_are_all_alike_do_not_look_good(valid, monkeypatch):
    """Every tie counts half, between blocks too, though products of matrices round."""
    model = make_learner(small_graph(num_entities=400), small_config()).model
    with torch.no_grad():
        model.entities[:] = model.entities[0]
    monkeypatch.setattr(validation, "VALUES_PER_PASS", 400)
    for mrr in validation.validate(model, valid).values():
        assert 0.4 < mrr < 0.6  # the rank is the middle one


def test_no_table_on_disk_beside_a_gpu(graph, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(InvalidArgument, match="CUDA_VISIBLE_DEVICES"):
        make_learner(graph, small_config(table="disk"))


def test_an_unknown_place_is_refused():
    with pytest.raises(InvalidArgument, match=r"table.*memory.*disk"):
        small_config(table="tape")


# ---- less memory than the table takes -----------------------------------------------------------

ALLOWED = 32 * 2**20  # bytes beyond what is in use when training begins
LARGE = small_graph(num_entities=2**17, num_edges=3000, num_valid=50)
CONFIG = small_config(
    model={"dim": 64, "hidden": 8}, candidates=64, steps=100, checkpoint_every=50, validate_every=50
)


def data_bytes():
    """What RLIMIT_DATA limits: private memory that can be written, so not a shared mapping."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmData")]
    return 1024 * int(line.split()[1])


def train_limited(run, config, queries, valid):
    torch.set_num_threads(1)
    fit = {"queries": queries, "valid": valid}
    warm_up = replace(config, steps=2, model=replace(config.model, dim=2))
    loop.fit(LARGE, warm_up, RunFolder(run.with_name(f"{run.name}-warm-up")), **fit)  # compiles
    validation.VALUES_PER_PASS = 2**19
    limit = data_bytes() + ALLOWED
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    loop.fit(LARGE, config, RunFolder(run), **fit)


@pytest.mark.slow
def test_a_table_of_twice_the_memory_allowed(tmp_path, monkeypatch):
    assert 4 * LARGE.num_entities * 2 * CONFIG.model.dim == 2 * ALLOWED  # and the moments as much
    queries = sample_queries(LARGE, {"1p": 200}, "train")
    valid = sample_queries(LARGE, {"1p": 10}, "valid")
    monkeypatch.setattr(validation, "VALUES_PER_PASS", 2**19)
    config = replace(CONFIG, structures={"1p": 1.0})
    loop.fit(LARGE, config, RunFolder(tmp_path / "memory"), queries=queries, valid=valid)
    on_disk = replace(config, table="disk")
    assert in_process(train_limited, tmp_path / "disk", on_disk, queries, valid, timeout=300) == 0
    assert_same_runs(tmp_path / "memory", tmp_path / "disk")
    assert in_process(train_limited, tmp_path / "refused", config, queries, valid, timeout=300) == 1
