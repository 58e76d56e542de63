"""A run that was killed or interrupted resumes as if nothing had happened, to the bit."""

import os
import signal

import pytest

from betae.querysets.sample import sample_queries
from betae.training.folder import RunFolder
from tests.training.helpers import (
    assert_bit_equal,
    in_process,
    last_weights,
    run_training,
    small_config,
    timeless,
    weights,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_name", "is_stored", "loss", "killed_at"),
    [
        ("betae", True, "softmax", 35),
        ("betae", True, "margin", 55),
        ("betae", False, "softmax", 25),
        ("betae", False, "margin", 5),  # before the first checkpoint
        ("complex", False, "softmax", 35),
    ],
)
def test_a_killed_run_resumes_bit_by_bit(
    model_name, is_stored, loss, killed_at, train, queries, graph, valid, tmp_path
):
    chosen = queries if is_stored else None
    if model_name == "complex":
        valid = sample_queries(graph, {"1p": 10}, "valid")
    recipe = {"model_name": model_name, **({"loss": loss} if loss != "softmax" else {})}
    train(tmp_path / "straight", queries=chosen, valid=valid, **recipe)
    data, kill = (small_config(**recipe), chosen, valid), (killed_at, signal.SIGKILL)
    killed = in_process(run_training, tmp_path / "killed", *data, signal_at=kill)
    assert killed == -signal.SIGKILL
    assert RunFolder(tmp_path / "killed").read_metrics()[-1]["step"] == killed_at
    checkpoint = RunFolder(tmp_path / "killed").newest("checkpoint")
    assert (checkpoint.name if checkpoint else None) == {
        35: "checkpoint-00000020",
        55: "checkpoint-00000040",
        25: "checkpoint-00000020",
        5: None,
    }[killed_at]
    result = train(tmp_path / "killed", queries=chosen, valid=valid, resume=True, **recipe)
    assert result.why == "all steps done"
    assert_bit_equal(last_weights(tmp_path / "straight"), last_weights(tmp_path / "killed"))
    assert timeless(tmp_path / "straight") == timeless(tmp_path / "killed")
    best = [RunFolder(tmp_path / run).newest("best") for run in ("straight", "killed")]
    assert best[0].name == best[1].name
    assert_bit_equal(*map(weights, best))


@pytest.mark.slow
def test_killed_twice(train, queries, valid, tmp_path):
    """Every session in a process of its own; checkpoints off the grid of everything else."""
    train(tmp_path / "straight", checkpoint_every=7, queries=queries)
    data = small_config(checkpoint_every=7), queries, valid
    run = tmp_path / "killed"
    for step in (20, 45):
        kill = (step, signal.SIGKILL)
        code = in_process(run_training, run, *data, resume=step == 45, signal_at=kill)
        assert code == -signal.SIGKILL
    assert RunFolder(run).newest("checkpoint").name == "checkpoint-00000042"
    assert in_process(run_training, run, *data, resume=True) == 0
    assert_bit_equal(last_weights(tmp_path / "straight"), last_weights(run))


def test_checkpoints_between_reports(train, tmp_path):
    """The loss of the first report after a resume is over all its steps, not those since."""

    def crash(line):
        if line["step"] == 20:
            raise OSError("crash")

    train(tmp_path / "straight", checkpoint_every=7)
    with pytest.raises(OSError, match="crash"):
        train(checkpoint_every=7, report=crash)
    train(checkpoint_every=7, resume=True)
    assert_bit_equal(last_weights(tmp_path / "straight"), last_weights(tmp_path / "run"))
    assert timeless(tmp_path / "straight") == timeless(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_an_interrupted_run_ends_cleanly_and_resumes(number, loss, train, tmp_path):
    def interrupt(line):
        if line["step"] == 25:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    result = train(loss=loss, report=interrupt)
    assert (result.why, result.step) == ("interrupted", 26)
    assert RunFolder(tmp_path / "run").newest("checkpoint").name == "checkpoint-00000026"
    assert RunFolder(tmp_path / "run").read_metrics()[-1]["step"] == 26
    assert signal.getsignal(number) is before
    result = train(loss=loss, resume=True)
    assert (result.why, result.step) == ("all steps done", 60)
    train(tmp_path / "straight", loss=loss)
    assert_bit_equal(last_weights(tmp_path / "straight"), last_weights(tmp_path / "run"))


def test_an_interruption_does_not_count_for_patience(train, tmp_path):
    """The validation of the step where it happened is not one of those of the recipe."""

    def interrupt(line):
        if line["step"] % 20 == 5 and "loss" in line:
            os.kill(os.getpid(), signal.SIGINT)

    recipe = {"learning_rate": 1e-20, "patience": 2, "steps": 100}  # never a better MRR
    straight = train(tmp_path / "straight", **recipe)
    assert straight.step == 60
    result = train(report=interrupt, **recipe)
    while result.why == "interrupted":
        result = train(report=interrupt, resume=True, **recipe)
    assert (result.why, result.step) == (straight.why, straight.step)


def test_a_second_interruption_ends_at_once(train):
    def interrupt(_):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(report=interrupt)


def test_resuming_a_finished_run_changes_nothing(train, tmp_path):
    first = train()
    before, lines = last_weights(tmp_path / "run"), timeless(tmp_path / "run")
    second = train(resume=True)
    assert (second.step, second.best_mrr, second.why) == (60, first.best_mrr, "all steps done")
    assert_bit_equal(before, last_weights(tmp_path / "run"))
    assert timeless(tmp_path / "run") == lines


def test_resuming_a_stuck_run_changes_nothing(train, tmp_path):
    recipe = {"learning_rate": 1e-20, "patience": 2, "steps": 100}
    first = train(**recipe)
    before = last_weights(tmp_path / "run")
    second = train(resume=True, **recipe)
    assert (second.step, second.why) == (first.step, first.why)
    assert_bit_equal(before, last_weights(tmp_path / "run"))


def test_resume_of_nothing_starts_anew(train, tmp_path):
    assert train(resume=True, steps=10).step == 10
    train(tmp_path / "straight", steps=10)
    assert_bit_equal(last_weights(tmp_path / "straight"), last_weights(tmp_path / "run"))
