"""Checkpoints: whole or not there, and the newest good one is used."""

import errno
import json
import os
import resource
import shutil
from pathlib import Path

import pytest
import torch

from betae.errors import InvalidArgument, StoreError
from betae.models.store import build_model, load_model
from betae.training import loop
from betae.training.folder import Checkpoint, Progress, RunFolder
from tests.manifests import edit_manifest
from tests.training.helpers import (
    assert_bit_equal,
    in_process,
    last_weights,
    run_training,
    small_config,
    small_graph,
)


def model_of(graph, seed=0):
    config = small_config()
    torch.manual_seed(seed)
    return build_model(config.model, graph.num_entities, graph.num_relations)


def save(run, model, progress, graph):
    RunFolder(run).save_checkpoint(Checkpoint(model, {}, progress), graph.fingerprint)


def names(run, prefix=""):
    return sorted(path.name for path in run.iterdir() if path.name.startswith(prefix))


def test_there_and_back(graph, tmp_path):
    model = model_of(graph)
    progress = Progress(7, 1.25, 12.5, 5, 1, [0.5], {"1p": [3], "2p": [4, 5]})
    extra = {"a": torch.arange(3.0), "b": torch.tensor(4)}
    random_state = torch.get_rng_state()
    run = RunFolder(tmp_path)
    run.save_checkpoint(Checkpoint(model, extra, progress), graph.fingerprint)
    torch.manual_seed(99)
    other = model_of(graph, seed=1)
    loaded = run.load_checkpoint(other, graph.fingerprint, {})
    assert loaded.progress == progress
    assert_bit_equal(loaded.tensors, extra)
    assert_bit_equal(model.state_dict(), other.state_dict())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert names(tmp_path) == ["checkpoint-00000007"]


def test_the_random_numbers_of_a_gpu_are_kept(graph, tmp_path, monkeypatch):
    """With a make-believe generator of CUDA: there is no GPU where the tests run."""
    states = [torch.arange(16, dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: states[-1])
    monkeypatch.setattr(torch.cuda, "set_rng_state", states.append)
    model, run = model_of(graph), RunFolder(tmp_path)
    run.save_checkpoint(Checkpoint(model, {}, Progress(1)), graph.fingerprint)
    expected = states[0].clone()
    states[0] += 1  # training goes on
    loaded = run.load_checkpoint(model, graph.fingerprint, {})
    assert loaded.tensors == {}
    assert len(states) == 2
    assert torch.equal(states[1], expected)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run.load_checkpoint(model, graph.fingerprint, {})  # on a machine without
    assert len(states) == 2


def test_a_checkpoint_without_a_gpu_is_resumed_on_one(graph, tmp_path, monkeypatch):
    """With a make-believe GPU, whose generator is then left as it is."""
    model = model_of(graph)
    save(tmp_path, model, Progress(1), graph)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_rng_state", pytest.fail)
    assert RunFolder(tmp_path).load_checkpoint(model, graph.fingerprint, {}).progress == Progress(1)


def test_others_may_read_what_others_may_read(graph, tmp_path):
    save(tmp_path, model_of(graph), Progress(1), graph)
    (tmp_path / "mine").touch()
    files = list((tmp_path / "checkpoint-00000001").iterdir())
    assert len(files) == 3
    assert {file.stat().st_mode for file in files} == {(tmp_path / "mine").stat().st_mode}


def test_older_ones_are_deleted_after(graph, tmp_path):
    model = model_of(graph)
    for step in (5, 10, 100_000_000):
        save(tmp_path, model, Progress(step), graph)
        RunFolder(tmp_path).save_best(model, step, graph.fingerprint)
    assert len(names(tmp_path, "checkpoint-")) == len(names(tmp_path, "best-")) == 1
    loaded = RunFolder(tmp_path).load_checkpoint(model, graph.fingerprint, {})
    assert loaded.progress.step == 100_000_000


def test_nothing_to_load(graph, tmp_path):
    assert RunFolder(tmp_path).load_checkpoint(model_of(graph), graph.fingerprint, {}) is None
    assert RunFolder(tmp_path / "missing").newest("checkpoint") is None


def test_another_graph(graph, tmp_path):
    save(tmp_path, model_of(graph), Progress(1), graph)
    with pytest.raises(InvalidArgument, match="was trained on another graph"):
        RunFolder(tmp_path).load_checkpoint(model_of(graph), small_graph(seed=1).fingerprint, {})


def test_the_newest_is_used_and_leftovers_are_not(train, tmp_path):
    run = tmp_path / "run"
    train(steps=40)
    good = last_weights(run)
    # As if killed while writing a later one, and before the older one was deleted
    shutil.copytree(run / "checkpoint-00000040", run / ".checkpoint-00000050.partial-abc")
    (run / ".checkpoint-00000050.partial-abc" / "state.safetensors").write_bytes(b"half")
    older = run / "checkpoint-00000020"
    shutil.copytree(run / "checkpoint-00000040", older)
    (older / "manifest.json").write_text("{}")
    result = train(steps=40, resume=True)
    assert result.step == 40
    assert_bit_equal(good, last_weights(run))


@pytest.mark.parametrize("file", ["state.safetensors", "model.safetensors", "manifest.json"])
@pytest.mark.parametrize("how", ["cut", "changed", "missing"])
def test_damage_is_found(file, how, train, tmp_path):
    train(steps=20)
    path = RunFolder(tmp_path / "run").newest("checkpoint") / file
    content = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[:-5])
    else:
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    with pytest.raises(StoreError):
        train(steps=20, resume=True)


def limited_training(run, config, queries, valid, limit, message):
    """Train with a limit on the size of files, and leave the error's message in a file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        run_training(run, config, queries, valid, resume=True)
    except StoreError as error:
        message.write_text(str(error))
        os._exit(3)


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_good_one(queries, valid, train, tmp_path):
    run, file = tmp_path / "run", tmp_path / "message.txt"

    def crash(line):
        if line["step"] == 30:
            raise OSError("crash")

    with pytest.raises(OSError, match="crash"):
        train(queries=queries, report=crash)
    good = last_weights(run)
    limit = (run / "checkpoint-00000020" / "model.safetensors").stat().st_size - 100
    assert in_process(limited_training, run, small_config(), queries, valid, limit, file) == 3
    message = file.read_text()
    assert "The disk is full: " in message
    assert "was not written" in message
    assert names(run, "checkpoint-") == ["checkpoint-00000020"]
    assert not names(run, ".")  # nothing half-written is left
    assert_bit_equal(good, last_weights(run))
    train(queries=queries, resume=True)
    train(tmp_path / "straight", queries=queries)
    assert_bit_equal(last_weights(tmp_path / "straight"), last_weights(run))


def test_a_full_disk_for_the_metrics_is_explained(tmp_path, monkeypatch):
    def full_disk(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full_disk)
    with pytest.raises(StoreError, match="The disk is full"):
        RunFolder(tmp_path).append_metrics({"step": 21})


# ---- the best ---------------------------------------------------------------------------------


def test_the_best_model_is_the_best(graph, tmp_path):
    first, second = model_of(graph, 1), model_of(graph, 2)
    with pytest.raises(StoreError, match="not a run: it holds no model"):
        RunFolder(tmp_path).best_model()
    save(tmp_path, second, Progress(20), graph)
    assert RunFolder(tmp_path).best_model().name == "checkpoint-00000020"  # none was validated
    RunFolder(tmp_path).save_best(first, 10, graph.fingerprint)
    assert RunFolder(str(tmp_path)).best_model().name == "best-00000010"
    assert_bit_equal(load_model(RunFolder(tmp_path).best_model()).state_dict(), first.state_dict())


def test_the_best_checkpoint_follows_validation(train, tmp_path, monkeypatch):
    """MRRs 10, 30, 20: the model of the second is kept."""
    values = iter([10.0, 30.0, 20.0])
    seen = []

    def validate(model, _):
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        return {"1p": next(values)}

    monkeypatch.setattr(loop, "validate", validate)
    result = train()
    assert (result.best_mrr, result.best_step) == (30.0, 40)
    assert RunFolder(tmp_path / "run").best_model().name == "best-00000040"
    assert_bit_equal(load_model(RunFolder(tmp_path / "run").best_model()).state_dict(), seen[1])
    assert not all(torch.equal(seen[1][name], seen[2][name]) for name in seen[1])
    small = small_graph()
    loaded = RunFolder(tmp_path / "run").load_checkpoint(model_of(small), small.fingerprint, {})
    assert loaded.progress.validations_since_best == 1


# ---- metrics ----------------------------------------------------------------------------------


def test_metrics_are_cut_on_resume(tmp_path):
    for step in (5, 10, 10, 15):
        RunFolder(tmp_path).append_metrics({"step": step, "loss": step / 2})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "lo')  # killed while writing
    assert [line["step"] for line in RunFolder(tmp_path).read_metrics()] == [5, 10, 10, 15]
    RunFolder(tmp_path).cut_metrics(10)
    RunFolder(tmp_path).append_metrics({"step": 15, "loss": 1.0})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 10, 10, 15]
    RunFolder(tmp_path).cut_metrics(0)
    assert RunFolder(tmp_path).read_metrics() == []


def test_no_metrics(tmp_path):
    RunFolder(tmp_path).cut_metrics(3)
    with pytest.raises(StoreError, match=r"has no metrics\.jsonl"):
        RunFolder(tmp_path).read_metrics()


@pytest.mark.parametrize("progress", [None, {"steps": "x", "step": "x"}, {"positions": {"1p": 3}}])
def test_a_progress_of_another_type(progress, graph, tmp_path):
    model = model_of(graph)
    save(tmp_path, model, Progress(1), graph)
    folder = RunFolder(tmp_path).newest("checkpoint")
    edit_manifest(folder, lambda manifest: manifest.update(progress=progress))
    with pytest.raises(StoreError, match=r"is damaged: .*progress"):
        RunFolder(tmp_path).load_checkpoint(model, graph.fingerprint, {})
