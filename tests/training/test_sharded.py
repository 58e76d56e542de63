"""Several processes that each hold a part of the entity table: what one process would learn."""

import os
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from betae.errors import BetaeError, StoreError
from betae.models.store import load_model, write_shard
from betae.training import loop
from betae.training.folder import RunFolder
from tests.training.helpers import (
    assert_bit_equal,
    in_process,
    in_processes,
    last_weights,
    run_training,
    small_config,
    small_graph,
    timeless,
    validation_queries,
    weights,
)

pytestmark = pytest.mark.slow

NEVER = 1000  # steps
RECIPES = {
    "betae": small_config(steps=30, learning_rate=0.01, checkpoint_every=10, validate_every=15),
    "on disk": small_config(
        steps=30, learning_rate=0.01, checkpoint_every=10, validate_every=15, table="disk"
    ),
    "margin": small_config("query2box", structures={"1p": 1.0}, steps=10, loss="margin"),
    "complex": small_config("complex", steps=10, validate_every=NEVER),
}


def train_all(rank, out):
    """Train every recipe, then one in which the last process dies at step 25."""
    graph, loop.REPORT_EVERY = small_graph(), 5
    valid = validation_queries(graph)
    for name, config in RECIPES.items():
        of_config = None if name == "complex" else valid
        loop.fit(graph, config, RunFolder(out / name), valid=of_config)
    forward, steps = loop.Learner.forward, []

    def die(*arguments):
        steps.append(1)
        if rank == 3 and len(steps) == 25:
            os.kill(os.getpid(), signal.SIGKILL)
        return forward(*arguments)

    loop.Learner.forward = die
    try:
        loop.fit(graph, RECIPES["betae"], RunFolder(out / "killed"), valid=valid)
    except BetaeError as error:
        (out / f"{rank}.error").write_text(str(error))
        os._exit(2)


def resume(_, run, config):
    graph, loop.REPORT_EVERY = small_graph(), 5
    loop.fit(graph, config, RunFolder(run), valid=validation_queries(graph), resume=True)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """What four processes did, and how they ended."""
    out = tmp_path_factory.mktemp("four")
    return out, in_processes(4, train_all, out)


@pytest.fixture
def alone(graph, valid, tmp_path, monkeypatch):
    """Train a recipe in one process; return its folder."""
    monkeypatch.setattr(loop, "REPORT_EVERY", 5)

    def train(name):
        run, given = tmp_path / "alone", None if name == "complex" else valid
        loop.fit(graph, RECIPES[name], RunFolder(run), valid=given)
        return run

    return train


def assert_same_up_to_rounding(found, expected):
    for (step, line), other in zip(enumerate(timeless(expected)), timeless(found), strict=True):
        assert other == pytest.approx(line, rel=0.02 if "mrr" in line else 1e-4), step
    assert_close(last_weights(found), last_weights(expected))
    best = [RunFolder(run).best_model() for run in (found, expected)]
    assert best[0].name == best[1].name
    assert_close(*map(weights, best))


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        # A bias before a softmax has no gradient but rounding errors, which Adam makes steps of.
        is_noise = "attention.score.bias" in key
        if key.startswith(("model/", "state/entities")) and not is_noise:
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-3, msg=key)


@pytest.mark.parametrize("name", ["betae", "margin", "complex"])
def test_four_processes_learn_what_one_does(name, four, alone):
    out, _ = four
    assert_same_up_to_rounding(out / name, alone(name))


def test_four_tables_on_disk_equal_four_in_memory_to_the_bit(four):
    out, _ = four
    assert_bit_equal(last_weights(out / "betae"), last_weights(out / "on disk"))


def test_each_process_writes_its_rows_and_the_best_model_is_whole(four, graph):
    out, _ = four
    run = RunFolder(out / "betae")
    names = [f"rows-000{number}-of-0004.safetensors" for number in (1, 2, 3, 4)]
    shards = [load_file(run.newest("checkpoint") / name) for name in names]
    assert [len(shard["entities"]) for shard in shards] == [7, 8, 7, 8]  # of 30
    assert {*shards[0]} == {"entities", "entities.first", "entities.second"}
    assert {path.name for path in run.newest("best").iterdir()} == {
        "manifest.json",
        "model.safetensors",
    }
    assert load_model(run.newest("best")).entities.shape == (graph.num_entities, 16)
    checkpoint = run.newest("checkpoint")  # it can be used too: there may be no validation
    found = load_model(checkpoint).state_dict()
    assert_bit_equal({f"model/{k}": v for k, v in found.items()}, models_of(weights(checkpoint)))


def models_of(tensors):
    return {key: tensor for key, tensor in tensors.items() if key.startswith("model/")}


# ---- a process that dies ------------------------------------------------------------------------


def test_a_dead_process_ends_the_run_with_a_message(four):
    out, codes = four
    assert codes == [2, 2, 2, -signal.SIGKILL]
    for rank in range(3):
        message = (out / f"{rank}.error").read_text()
        assert "Another process of this run has ended" in message
        assert "resume from it with --resume" in message
    assert RunFolder(out / "killed").newest("checkpoint").name == "checkpoint-00000020"
    assert not [path for path in (out / "killed").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("size", [1, 3])
def test_another_number_of_processes_takes_it_up(size, four, alone, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(four[0] / "killed", run)
    assert in_processes(size, resume, run, RECIPES["betae"]) == [0] * size
    assert_same_up_to_rounding(run, alone("betae"))
    assert len([*RunFolder(run).newest("checkpoint").glob("rows-*")]) == (size if size > 1 else 0)


def test_several_take_up_what_one_began(alone, tmp_path, valid):
    run, config = tmp_path / "run", RECIPES["betae"]
    killed = in_process(run_training, run, config, None, valid, signal_at=(15, signal.SIGKILL))
    assert killed == -signal.SIGKILL
    on_disk = replace(config, table="disk")
    assert in_processes(2, resume, run, on_disk) == [0, 0]
    assert_same_up_to_rounding(run, alone("betae"))


# ---- shards that do not belong together ---------------------------------------------------------


@pytest.fixture
def copied(four, tmp_path):
    """A copy of a run by four processes, and the second of its shards."""
    shutil.copytree(four[0] / "betae", tmp_path / "run")
    folder = RunFolder(tmp_path / "run").newest("checkpoint")
    return tmp_path / "run", folder / "rows-0002-of-0004.safetensors"


def resuming(run, graph, valid):
    loop.fit(graph, RECIPES["betae"], RunFolder(run), valid=valid, resume=True)


def test_a_missing_shard(copied, graph, valid):
    run, shard = copied
    shard.unlink()
    with pytest.raises(StoreError, match=r"rows-0002-of-0004.*missing.*7 to 14\. Put it back"):
        resuming(run, graph, valid)
    with pytest.raises(StoreError, match="rows-0002-of-0004"):
        load_model(shard.parent)


@pytest.mark.parametrize("other", ["on disk", "killed"])
def test_shards_of_two_runs_or_steps(other, copied, four, graph, valid):
    """They have the same size, and the manifest may be the newer file."""
    run, shard = copied
    shutil.copy(RunFolder(four[0] / other).newest("checkpoint") / shard.name, shard)
    os.utime(shard, (1, 1))
    with pytest.raises(StoreError, match=r"rows-0002.* another run or step .*Put back the one"):
        resuming(run, graph, valid)
    with pytest.raises(StoreError, match="shards were mixed"):
        load_model(shard.parent)


def test_a_damaged_shard(copied, graph, valid):
    run, shard = copied
    content = bytearray(shard.read_bytes())
    content[-1] ^= 0xFF
    shard.write_bytes(content)
    with pytest.raises(StoreError, match=r"rows-0002-of-0004\S* is damaged"):
        resuming(run, graph, valid)


def test_a_folder_that_the_machines_do_not_share(tmp_path):
    with pytest.raises(StoreError, match="choose one on a shared file system"):
        write_shard(tmp_path / "elsewhere", "rows", {}, "stamp")
