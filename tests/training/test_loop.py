"""The loop: it learns, it stops when it should, and it refuses what cannot work."""

import json
import math
import re
import threading
import time

import pytest
import torch

from betae.errors import BetaeError, InvalidArgument, StoreError, TrainingStopped, UnsupportedQuery
from betae.models.execute import score_queries
from betae.models.store import build_model, load_model
from betae.queries.structures import STRUCTURES
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import sample_queries
from betae.training import batches, loop
from betae.training.config import TrainConfig
from betae.training.folder import Progress, RunFolder
from betae.training.loop import Window
from betae.training.losses import SoftmaxLoss
from tests.training.helpers import (
    POSITIVE,
    SMALL,
    assert_bit_equal,
    graph_of,
    last_weights,
    small_config,
    small_graph,
)

# ---- it learns --------------------------------------------------------------------------------

# A line of six: one relation is a step along it, the other two steps. All geometries can do that.
TINY = [(i, 0, i + 1) for i in range(5)] + [(i, 1, i + 2) for i in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_name", "loss", "model", "margin"),
    [
        ("betae", "softmax", {"dim": 16, "hidden": 16}, 1),
        ("query2box", "softmax", {"dim": 16, "span": 0.5}, 1),
        ("gqe", "softmax", {"dim": 16, "span": 0.5}, 1),
        ("betae", "margin", {"dim": 16, "hidden": 16}, 10),
        ("query2box", "margin", {"dim": 16, "span": 0.5}, 6),
        ("gqe", "margin", {"dim": 16, "span": 0.5}, 6),
    ],
)
def test_a_tiny_graph_is_learned_by_heart(model_name, loss, model, margin, tmp_path):
    graph = graph_of(TINY, num_entities=6, num_relations=2)
    structures = {"1p": 1.0, "2p": 0.5}
    config = small_config(
        model_name=model_name,
        loss=loss,
        model=model,
        margin=margin,
        structures=structures,
        steps=400,
        batch_size=16,
        learning_rate=0.01,
        table_rate=3.0,
        validate_every=400,
        checkpoint_every=400,
    )
    loop.fit(graph, config, RunFolder(tmp_path / "run"))
    losses = [line["loss"] for line in RunFolder(tmp_path / "run").read_metrics() if "loss" in line]
    assert losses[-1] < 0.1
    assert losses[-1] < losses[0] / 4
    # The training queries themselves, their answers to be found
    queries = sample_queries(graph, {"1p": 16, "2p": 16}, "train")
    asked = {
        name: type(block)(block.structure, block.symbols, block.hard, block.easy)
        for name, block in queries.blocks.items()
    }
    trained = load_model(RunFolder(tmp_path / "run").newest("checkpoint"))
    mrr = loop.validate(trained, QuerySet("train", asked, graph.fingerprint))
    assert mrr.keys() == structures.keys()
    assert min(mrr.values()) > 97


def test_validation_is_the_mean_over_queries_of_the_mean_over_answers(valid):
    model = build_model(small_config("gqe").model, 30, 6)
    found = loop.validate(model, valid)
    for name, block in valid.blocks.items():
        total = 0.0
        for row in range(len(block)):
            with torch.no_grad():
                (distances,) = score_queries(model, [block.query(row)]).tolist()
            easy, hard = set(block.easy[row].tolist()), set(block.hard[row].tolist())
            others = [distances[e] for e in range(30) if e not in easy | hard]
            places = [1 + sum(other < distances[e] for other in others) for e in hard]
            total += sum(1 / place for place in places) / len(places)
        assert found[name] == pytest.approx(100 * total / len(block), rel=1e-4)


def test_bfloat16_trains_too(train, tmp_path):
    train(precision="bfloat16", steps=10)
    train(tmp_path / "other", precision="float32", steps=10)
    one, two = last_weights(tmp_path / "run"), last_weights(tmp_path / "other")
    assert not torch.equal(one["model/entities"], two["model/entities"])
    assert one["model/entities"].dtype == torch.float32
    torch.testing.assert_close(one["model/entities"], two["model/entities"], rtol=0.3, atol=0.05)


# ---- what is written --------------------------------------------------------------------------


def test_metrics_of_a_run(train, tmp_path):
    told = []
    result = train(report=told.append)
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert lines == told
    reports = [line for line in lines if "loss" in line]
    assert [line["step"] for line in reports] == list(range(5, 61, 5))
    for line in reports:
        assert 0 <= line["share_waiting"] <= 1
        assert line["queries_per_second"] > 0
        assert line["loss"] > 0
    validations = [line for line in lines if "mrr" in line]
    assert [line["step"] for line in validations] == [20, 40, 60]
    for line in validations:
        assert line["mrr"] == pytest.approx(sum(line[name] for name in POSITIVE) / 3)
    best = max(validations, key=lambda line: line["mrr"])
    assert (result.best_mrr, result.best_step) == (best["mrr"], best["step"])
    assert RunFolder(tmp_path / "run").best_model().name == f"best-{best['step']:08d}"
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert (tmp_path / "run" / "config.json").is_file()


@pytest.mark.slow
def test_waiting_for_queries_is_seen(train, tmp_path, monkeypatch):
    """A slow source of batches shows up as such."""
    make = batches.make_batch

    def slowly(*arguments):
        time.sleep(0.25)  # longer than a step takes on a busy machine
        return make(*arguments)

    monkeypatch.setattr(batches, "make_batch", slowly)
    train(steps=10)
    assert RunFolder(tmp_path / "run").read_metrics()[1]["share_waiting"] > 0.5


def test_without_validation_nothing_is_made_up(tmp_path):
    """No validation edges: no MRR in the metrics, none best, and patience does not count."""
    graph = small_graph(num_valid=0)
    result = loop.fit(graph, small_config(patience=1), RunFolder(tmp_path / "run"))
    assert (result.step, result.why) == (60, "all steps done")
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # NaN is not JSON
    assert RunFolder(tmp_path / "run").best_model().name == "checkpoint-00000060"


# ---- when it stops ----------------------------------------------------------------------------


def test_time_is_up(train, tmp_path):
    result = train(minutes=0.01, steps=1_000_000, validate_every=100_000)
    assert result.why == "time is up"
    assert 0.6 <= result.seconds < 5
    assert RunFolder(tmp_path / "run").newest("checkpoint").name == f"checkpoint-{result.step:08d}"
    last = RunFolder(tmp_path / "run").read_metrics()[-1]
    assert last["step"] == result.step
    assert last["mrr"] == result.best_mrr
    assert RunFolder(tmp_path / "run").best_model().name == f"best-{result.step:08d}"


def test_the_rate_falls_with_the_time(train, monkeypatch):
    seen = []

    def spy(_step, progress, _warmup):
        seen.append(progress)
        return 1.0

    monkeypatch.setattr(loop, "rate_factor", spy)
    train(minutes=0.01, steps=1_000_000, validate_every=100_000)
    assert seen == sorted(seen)
    assert 0 < seen[0] < 0.3
    assert seen[-1] >= 1


def test_the_rate_falls_with_the_steps(train, monkeypatch):
    seen = []

    def spy(*arguments):
        seen.append(arguments)
        return 1.0

    monkeypatch.setattr(loop, "rate_factor", spy)
    train(steps=10, warmup=3)
    assert seen == [(step, step / 10, 3) for step in range(10)]


@pytest.mark.parametrize("minutes", [0, -1, math.nan])
def test_no_time_at_all(minutes, train):
    with pytest.raises(InvalidArgument, match="minutes"):
        train(minutes=minutes, steps=3)


def test_patience(train, tmp_path):
    result = train(learning_rate=1e-20, patience=2, steps=200, checkpoint_every=1000)
    assert result.why == "no better validation MRR in 2 validations"
    assert (result.step, result.best_step) == (60, 20)
    assert RunFolder(tmp_path / "run").newest("checkpoint").name == "checkpoint-00000060"


# ---- a loss that is no number -----------------------------------------------------------------


def break_loss_at(monkeypatch, step, value=math.nan):
    forward = SoftmaxLoss.forward

    def broken(self, distances, batch, uncertainty):
        costs = forward(self, distances, batch, uncertainty)
        return costs * value if batch.step == step else costs

    monkeypatch.setattr(SoftmaxLoss, "forward", broken)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops(value, train, tmp_path, monkeypatch):
    break_loss_at(monkeypatch, 32, value)
    with pytest.raises(TrainingStopped, match=f"The loss is {value} at step 33.*last good model"):
        train()
    assert RunFolder(tmp_path / "run").newest("checkpoint").name == "checkpoint-00000020"
    model = load_model(RunFolder(tmp_path / "run").newest("checkpoint"))
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())
    monkeypatch.undo()
    assert train(resume=True).step == 60


def test_a_stop_ends_the_worker(train, monkeypatch):
    break_loss_at(monkeypatch, 2)
    before = threading.active_count()
    with pytest.raises(TrainingStopped) as error:
        train(steps=1000)
    assert error.value.__traceback__ is not None  # keeps the loop's variables alive
    assert threading.active_count() == before


@pytest.mark.parametrize("model_name", ["betae", "gqe"])
def test_a_huge_learning_rate_leaves_a_good_checkpoint(model_name, train, tmp_path):
    """Weights may become infinite in a step whose loss was still good: they must not be saved."""
    recipe = {
        "model_name": model_name,
        "structures": POSITIVE,
        "learning_rate": 1e38,
        "table_rate": 100.0,
        "warmup": 0,
        "checkpoint_every": 1,
        "validate_every": 1,
    }
    with pytest.raises(TrainingStopped, match=r"at step \d+"):
        train(**recipe)
    for folder in (tmp_path / "run").glob("*-0*"):
        load_model(folder)  # refuses weights that are not finite


# ---- what it refuses --------------------------------------------------------------------------


def test_a_folder_that_is_not_empty(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="is not empty"):
        train()
    with pytest.raises(StoreError, match="is not a run"):
        train(resume=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_file_in_the_place_of_the_run(train, tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(BetaeError, match="run"):
        train()


def test_resuming_with_another_config(train, tmp_path):
    train(steps=20)
    before = last_weights(tmp_path / "run")
    with pytest.raises(InvalidArgument, match=r"\(batch_size, seed differ\)"):
        train(steps=20, batch_size=9, seed=4, resume=True)
    assert_bit_equal(before, last_weights(tmp_path / "run"))


def test_resuming_on_another_graph(train):
    train(steps=20)
    with pytest.raises(InvalidArgument, match="another graph"):
        train(steps=20, resume=True, on=small_graph(seed=1), valid=None)


@pytest.mark.parametrize("model_name", ["query2box", "gqe"])
def test_a_structure_the_model_cannot_do(model_name, train, tmp_path):
    needed = f"cannot take a complement, which {re.escape(str(STRUCTURES['2in']))} needs. BetaE can"
    with pytest.raises(UnsupportedQuery, match=needed):
        train(model_name=model_name, structures={"1p": 1, "2in": 1})
    assert not (tmp_path / "run").exists()  # so that the mended recipe can go there


@pytest.mark.parametrize("model_name", ["query2box", "gqe", "complex"])
def test_the_default_mix_fits_every_geometry(model_name, graph, tmp_path):
    config = TrainConfig.from_json(
        {
            "model": {"name": model_name, **SMALL[model_name]},
            "steps": 2,
            "batch_size": 32,
            "validation": {"queries": 2},
        }
    )
    assert loop.fit(graph, config, RunFolder(tmp_path / "run")).step == 2


def test_validation_queries_the_model_cannot_do(graph, train):
    valid = sample_queries(graph, {"2in": 3}, "valid")
    steps = []
    with pytest.raises(UnsupportedQuery, match="BetaE"):
        train(model_name="query2box", structures=POSITIVE, valid=valid, report=steps.append)
    assert steps == []  # said before the work, not after


def test_sets_of_another_graph(train, queries, valid):
    other = small_graph(seed=1)
    with pytest.raises(InvalidArgument, match="made on another graph"):
        train(queries=queries, on=other, valid=None)
    with pytest.raises(InvalidArgument, match="made on another graph"):
        train(on=other, valid=valid)


def test_training_queries_are_not_for_validation(train, queries):
    """They have no hard answers to rank."""
    with pytest.raises(BetaeError, match="valid"):
        train(valid=queries, steps=2)


def test_a_graph_without_edges(tmp_path):
    graph = graph_of([], num_entities=3, num_relations=1)
    with pytest.raises(InvalidArgument, match="no training queries like"):
        loop.fit(graph, small_config(structures={"1p": 1}), RunFolder(tmp_path / "run"))


def test_validation_does_not_count_as_training(train, monkeypatch):
    monkeypatch.setattr(loop, "validate", lambda *_: time.sleep(0.2) or {"1p": 10.0})
    start = time.monotonic()
    first = train(steps=40, report=lambda _: None)
    assert first.seconds < time.monotonic() - start - 0.4
    assert train(steps=40, resume=True).seconds == first.seconds  # those of all sessions


@pytest.fixture
def wait(monkeypatch):
    """Let the time pass without waiting."""
    now = [100.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def test_a_report_knows_the_time_spent_waiting(wait):
    def slow_batches():
        for batch in ("a", "b"):
            wait(3)
            yield batch

    window = Window(progress := Progress())
    for loss, _ in enumerate(window.waiting_for(slow_batches()), start=1):
        wait(1)  # the step itself
        progress.losses.append(float(loss))
        window.queries += 8
    assert window.flush() == {"loss": 1.5, "queries_per_second": 2.0, "share_waiting": 0.75}
    progress.losses.append(5.0)
    wait(1)
    assert window.flush() == {"loss": 5.0, "queries_per_second": 0.0, "share_waiting": 0.0}
