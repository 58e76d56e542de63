"""Two processes on one machine: the results of one, one writer, and an end that is explained."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from betae import parallel
from betae.models.execute import Group
from betae.run import Run
from betae.training import distributed, loop
from betae.training.batches import make_batch, open_streams
from betae.training.folder import RunFolder
from tests.training.helpers import (
    MIX,
    free_port,
    in_processes,
    last_weights,
    small_config,
    timeless,
)
from tests.training.two_processes import recipe_of, valid_for

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def torchrun(*arguments, timeout=90):
    """Run a module in two processes on the loopback device."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*command, "--nproc-per-node", "2", "-m", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=ENVIRONMENT,
        cwd=ROOT,
        check=False,
    )


def in_two_processes(*arguments, timeout=90):
    """The same without torchrun, which takes as long to start as what it starts.

    Returns the larger exit code, and what both wrote to stderr.
    """
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **place, "WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank},
            cwd=ROOT,
        )
        for rank in ("0", "1")
    ]
    try:
        told = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    worst = max(abs(process.returncode) for process in processes)
    return subprocess.CompletedProcess(arguments, worst, stderr="".join(told))


@pytest.fixture(scope="module")
def two(graph_folder, tmp_path_factory):
    """The runs of all recipes, by two processes."""
    out = tmp_path_factory.mktemp("two")
    done = in_two_processes("tests.training.two_processes", "all", graph_folder, out)
    return out, done


@pytest.mark.parametrize("name", ["softmax", "margin", "query2box", "rare", "complex"])
def test_two_processes_learn_what_one_does(name, two, graph, valid, tmp_path):
    out, done = two
    assert RunFolder(out / name).newest("checkpoint"), done.stderr[-2000:]
    loop.fit(graph, recipe_of(name), RunFolder(tmp_path), valid=valid_for(name, valid))
    found, expected = last_weights(out / name), last_weights(tmp_path)
    assert found.keys() >= {key for key in expected if key.startswith("model/")}
    for key, value in expected.items():
        # A bias before a softmax has no gradient but rounding errors, which Adam makes steps of.
        is_noise = key == "model/attention.score.bias"
        if (key.startswith("model/") and not is_noise) or key.endswith("log_scale"):
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=5e-4, msg=key)
    one_line, two_lines = timeless(tmp_path), timeless(out / name)
    assert [line["step"] for line in two_lines] == [line["step"] for line in one_line]
    for line, other in zip(one_line, two_lines, strict=True):
        assert other == pytest.approx(line, rel=0.02)


def test_the_command_and_a_single_writer(graph_folder, tmp_path, write):
    recipe = write(
        "recipe.toml",
        "steps = 100\nbatch_size = 16\nvalidation = {every = 100, queries = 4}\n"
        "[structures]\n1p = 1\n2i = 1\n[model]\ndim = 4\nhidden = 4\n",
    )
    done = torchrun("betae", "train", graph_folder, "--recipe", recipe, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("all steps done at step 100") == 1
    assert [line["step"] for line in RunFolder(tmp_path / "run").read_metrics()] == [50, 100, 100]
    assert RunFolder(tmp_path / "run").newest("checkpoint").name == "checkpoint-00000100"


def test_a_process_that_dies_ends_the_run_which_can_be_resumed(
    graph_folder, graph, valid, tmp_path
):
    done = in_two_processes("tests.training.two_processes", "dies", graph_folder, tmp_path / "run")
    assert done.returncode != 0
    assert "Another process of this run has ended" in done.stderr
    assert "resume from it with --resume" in done.stderr
    assert RunFolder(tmp_path / "run").newest("checkpoint").name == "checkpoint-00000040"
    config = small_config(steps=100_000, checkpoint_every=10, validate_every=50)
    reached = []

    def stop(line):
        reached.append(line["step"])
        raise OSError("enough")

    with pytest.raises(OSError, match="enough"):
        loop.fit(graph, config, RunFolder(tmp_path / "run"), valid=valid, resume=True, report=stop)
    assert reached == [50]


def test_a_process_that_comes_late_to_the_folder(two):
    """What the first has written there by then is no reason to refuse."""
    out, done = two
    assert not (out / "late.error").exists(), (out / "late.error").read_text()
    assert done.returncode == 0, done.stderr[-2000:]


def join_thrice(rank, slow):
    """Join the others three times; the slow process takes a while to leave each time."""
    leave = torch.distributed.destroy_process_group

    def leave_late():
        if rank == slow:
            time.sleep(0.5)
        leave()
        if rank == slow:
            time.sleep(0.5)

    torch.distributed.destroy_process_group = leave_late
    for number in range(3):
        with parallel.joined("no advice"):
            assert parallel.from_all((number, rank)) == [(number, 0), (number, 1)]


@pytest.mark.parametrize("slow", [0, 1])
def test_a_process_that_leaves_late_is_met_again(slow):
    assert in_processes(2, join_thrice, slow, timeout=60) == [0, 0]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("structures", "batch_size"), [(MIX, 24), ({"1p": 1.0, "2p": 1.0, "2i": 1.0, "3i": 1.0}, 8)]
)
def test_shares_make_up_the_batch(size, structures, batch_size, graph, monkeypatch):
    config = small_config(loss="margin", structures=structures, batch_size=batch_size)
    batch = make_batch(0, open_streams(graph, None, config), config, graph)
    monkeypatch.setattr(distributed, "num_processes", lambda: size)
    seen, sizes = [], []
    for rank in range(size):
        monkeypatch.setattr(distributed, "process_index", lambda number=rank: number)
        share = distributed.share_of(batch)
        sizes.append(len(share))
        assert torch.equal(share.candidates, batch.candidates)
        rows = torch.cat([group.positions for group in share.groups]).tolist()
        assert rows == list(range(len(share)))
        seen.extend(lines_of(share))
    assert sorted(seen) == sorted(lines_of(batch))
    assert sum(sizes) == len(batch)
    assert max(sizes) - min(sizes) <= 1  # else one process waits for the other


def lines_of(batch):
    """Everything about each query of a batch as one line of text."""
    lines = []
    for group in batch.groups:
        assert isinstance(group, Group)
        for symbols, row in zip(group.symbols.tolist(), group.positions.tolist(), strict=True):
            marks = batch.is_answer[row].int().tolist()
            negatives = batch.negatives[row].tolist()
            rest = (int(batch.positive[row]), round(float(batch.weights[row]), 5))
            lines.append(f"{group.structure} {symbols} {marks} {negatives} {rest}")
    return lines


# ---- a program of one's own -------------------------------------------------------------------


@pytest.fixture(scope="module")
def evaluated(graph_folder, valid, tmp_path_factory):
    """What each of two processes did in a program that trains a run and evaluates it twice."""
    out = tmp_path_factory.mktemp("evaluated")
    valid.save(out / "queries")
    module = "tests.training.evaluate_in_two_processes"
    done = in_two_processes(module, graph_folder, out / "queries", out)
    assert done.returncode == 0, done.stderr[-2000:]
    return out, [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]


def test_evaluation_is_shared_between_processes(evaluated, valid):
    _, seen = evaluated
    everything = [row for block in valid.blocks.values() for row in block.symbols.tolist()]
    assert sorted(seen[0]["ranked"] + seen[1]["ranked"]) == sorted(2 * everything)
    for each in seen:
        assert len(each["ranked"]) == len(everything)  # half of them, twice


def test_all_processes_know_the_results_and_the_first_writes_them(evaluated, graph_folder, valid):
    out, seen = evaluated
    assert [each["written"] for each in seen] == [["once", "twice"], []]
    run = Run.open(out / "run", graph_folder)
    alone = run.evaluate(valid, "alone", method="embedding", empty_queries=0)
    expected = {name: result.metrics.mrr for name, result in alone.structures.items()}
    for each in seen:
        assert each["mrr"] == [pytest.approx(expected)] * 2
