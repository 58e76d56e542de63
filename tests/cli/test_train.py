"""`betae train` from the command line, and what the run is good for: warnings and predictors."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from betae import KnowledgeGraph
from betae.cli.progress import showing_counts, showing_progress, showing_work
from betae.graph.triples import Triples
from betae.querysets.sample import sample_queries
from betae.run import Run
from betae.training.config import TrainConfig
from tests.cli.test_cli import flat, run, run_main
from tests.training.helpers import small_config, small_graph

RECIPE = """\
steps = 10
batch_size = 24
checkpoint_every = 5
structures = {"1p" = 1.0, "2p" = 1.0}
loss = {candidates = 16}
optimizer = {learning_rate = 1e-9}
validation = {every = 5, queries = 10}

[model]
name = "betae"
dim = 8
hidden = 8
"""
PREDICTOR = """
[predictor]
steps = 15
batch_size = 24
checkpoint_every = 5
validation = {every = 5}

[predictor.model]
name = "complex"
dim = 8
"""
QUESTION = "?X . r0(e1, ?X)"
BELOW = "Warning: the model is below the frequency baseline, which ranks entities by how often"

pytestmark = pytest.mark.usefixtures("quick")


def two_hubs(held_out="valid"):
    """A graph whose tails are easy to guess by their frequency: e0 for even heads, e1 for odd.

    Without validation edges, no training edge can be held out: each is the only one of an entity.
    """
    edges = [(head, 0, head % 2) for head in range(2, 30)]
    parts = {"train": [(0, 0, 1 if held_out == "valid" else 29), *edges[:18]], held_out: edges[18:]}
    splits = {
        name: np.array(parts.get(name, []), np.int32).reshape(-1, 3)
        for name in ("train", "valid", "test")
    }
    return KnowledgeGraph.from_triples(Triples([f"e{e}" for e in range(30)], ["r0"], splits))


@pytest.fixture
def betae(monkeypatch, capsys, tmp_path, write):
    """Train on a graph with a recipe; return the lines on stdout, and stderr."""

    def train(graph, recipe=RECIPE, *options):
        if not (tmp_path / "graph").exists():
            graph.save(tmp_path / "graph")
        if recipe is not None:
            options = ("--recipe", write("recipe.toml", recipe), *options)
        arguments = ["train", tmp_path / "graph", "--out", tmp_path / "run", *options]
        code, out, error = run_main(monkeypatch, capsys, *arguments)
        assert code == 0, error
        return out.splitlines(), flat(error)

    return train


# ---- warnings ---------------------------------------------------------------------------------


def test_a_model_that_is_below_frequency(betae, tmp_path):
    (end, best, written), error = betae(two_hubs())
    outcome = Run.open(tmp_path / "run").metrics
    mrr = max(line["mrr"] for line in outcome if "mrr" in line)
    assert end.startswith("all steps done at step 10, ")
    assert best.startswith(f"best validation MRR {mrr:.1f} % at step ")
    assert written == f"written to {tmp_path / 'run'}"
    assert BELOW in error
    frequency = float(error.rpartition("(MRR ")[2].partition(" %")[0])
    assert frequency > 50 > mrr
    assert "validation edges" not in error


def test_a_predictor_that_is_below_frequency(betae, monkeypatch):
    """It is compared for itself, on the queries that it was validated on."""
    rate = PREDICTOR.replace("steps = 15", "steps = 15\noptimizer = {learning_rate = 1e-9}")
    monkeypatch.setattr(
        "betae.training.loop.frequency_mrr",
        lambda _, queries: 0.1 if len(queries.blocks) > 1 else 99.0,
    )
    _, error = betae(two_hubs(), RECIPE + rate)
    assert BELOW.replace("the model", "the link predictor") in error
    assert BELOW not in error
    assert "(MRR 99.0 %)" in error


def test_the_completed_graph_may_be_above_where_the_embedding_is_below(betae, tmp_path):
    """How full an end is tells a hub, whatever the model; each method is compared for itself."""
    betae(two_hubs(), RECIPE + PREDICTOR)
    graph = KnowledgeGraph.open(tmp_path / "graph")
    sample_queries(graph, {"1p": 20}, "valid").save(tmp_path / "queries")
    warned = {}
    for method in ("embedding", "completed"):
        options = ["--queries", tmp_path / "queries", "--method", method, "--empty", 0]
        result = run("eval", tmp_path / "run", *options)
        assert result.exit_code == 0, result.exception
        warned[method] = "Warning: the model on EPFO queries is below" in flat(result.stderr)
    assert warned == {"embedding": True, "completed": False}


# ---- without validation edges -----------------------------------------------------------------


def test_some_edges_are_held_out(betae, tmp_path):
    """Held out once: the same when the run resumes, is asked, or a new run starts from it."""
    graph = small_graph(num_valid=0)
    _, error = betae(graph, RECIPE)
    assert "Note: The graph has no validation edges: some of its edges are held out" in error
    assert "Warning: the graph has no validation edges" not in error
    trained = Run.open(tmp_path / "run")
    held_out = sorted(trained.graph.written_ids["valid"].tolist())
    assert held_out
    assert trained.rules is not None
    assert {*map(tuple, held_out)} < {*map(tuple, graph.written_ids["train"].tolist())}
    found = trained.answer("?X . r0(?X, e1)", 30)
    assert all(answer.probability for answer in found)
    assert found.num_known == len(graph.answers("?X . r0(?X, e1)"))  # held out, but known
    betae(graph, RECIPE, "--resume")

    more = [("e1", "r0", "new"), ("e2", "r0", "new")]
    KnowledgeGraph.open(tmp_path / "graph").extended(more).save(tmp_path / "graph", overwrite=True)
    grown = Run.open(tmp_path / "run")
    assert sorted(grown.graph.written_ids["valid"].tolist()) == held_out
    assert grown.answer("?X . r0(?X, new)").num_known == 2
    result = run("train", tmp_path / "graph", "--out", tmp_path / "run", "--resume")
    assert "has gained or lost edges" in flat(str(result.exception))
    command = ["train", tmp_path / "graph", "--out", tmp_path / "next", "--from", tmp_path / "run"]
    assert run(*command).exit_code == 0
    assert sorted(Run.open(tmp_path / "next").graph.written_ids["valid"].tolist()) == held_out


def test_too_few_edges_to_hold_any_out(betae, tmp_path):
    (end, written), error = betae(two_hubs("test"))
    assert end.startswith("all steps done at step 10, ")  # no best of anything
    assert written == f"written to {tmp_path / 'run'}"
    assert "Warning: the graph has no validation edges" in error
    assert "ranked by embedding, without probabilities. Ingest it with --valid 0.05" in error
    assert BELOW not in error

    def answer(*options):
        result = run("answer", tmp_path / "run", "?X . ~r0(e1, ?X)", "-k", 30, *options)
        assert result.exit_code == 0, result.exception
        assert "Warning: the graph has no validation edges" in flat(result.stderr)
        return result.stdout

    told = json.loads(answer("--format", "jsonl"))
    assert (told["method"], told["expected"], told["looks_empty"]) == ("embedding", None, False)
    known, predicted = (
        [row for row in told["answers"] if row["status"] == status]
        for status in ("known", "predicted")
    )
    odd = {f"e{number}" for number in range(3, 30, 2)}
    assert {row["entity"] for row in known} == odd
    assert len(predicted) == 30 - len(odd)
    for row in told["answers"]:
        assert row["probability"] is None
        assert row["score"] < 0
    scores = [row["score"] for row in predicted]
    assert scores == sorted(scores, reverse=True)
    lines = answer().splitlines()
    assert lines[1] == "14 known answers"  # nothing is expected
    assert [line.split()[1] for line in lines[3:]] == ["-"] * 30
    assert not (tmp_path / "run" / "edges.json").exists()


def test_without_validation_edges_nothing_is_completed(betae, tmp_path, monkeypatch, capsys):
    betae(two_hubs("test"))
    opened = KnowledgeGraph.open(tmp_path / "graph")
    sample_queries(opened, {"1p": 2}, "test").save(tmp_path / "queries")
    monkeypatch.chdir(tmp_path)
    code, out, error = run_main(monkeypatch, capsys, "complete", "run")
    assert (code, out) == (2, "")
    assert "fitted on validation edges, and the graph has none: ingest it" in flat(error)

    code, out, error = run_main(monkeypatch, capsys, "eval", "run", "--queries", "queries")
    assert code == 0
    assert "Warning: the graph has no validation edges" in flat(error)
    assert "completed" not in out
    assert [path.name for path in tmp_path.glob("run/evaluations/*")] == ["queries.json"]


# ---- a link predictor beside the model --------------------------------------------------------


def test_one_command_trains_both(betae, tmp_path):
    lines, _ = betae(small_graph(), RECIPE + PREDICTOR)
    assert lines[0].startswith("all steps done at step 10, ")
    trained = Run.open(tmp_path / "run")
    assert trained.config == TrainConfig.read(tmp_path / "recipe.toml")
    assert trained.predictor.config == trained.config.predictor
    assert trained.predictor.metrics[-1]["step"] == 15
    again, _ = betae(small_graph(), RECIPE + PREDICTOR, "--resume")
    assert again[0].startswith("all steps done at step 10, ")

    found = run("complete", tmp_path / "run", "--above", 0.01, "--out", tmp_path / "edges.tsv")
    assert found.exit_code == 0, found.exception
    header = (tmp_path / "edges.tsv").read_text().splitlines()[0].split("\t")
    assert header[-2:] == ["betae", "complex"]
    answered = run("answer", tmp_path / "run", QUESTION)
    assert answered.exit_code == 0, answered.exception
    assert list(json.loads((tmp_path / "run" / "edges.json").read_text())["predictors"]) == [
        "betae",
        "complex",
    ]


def test_without_a_recipe_the_graph_decides(betae, tmp_path, monkeypatch):
    graphs = []

    def default_config(graph):
        graphs.append(graph.fingerprint)
        return small_config(steps=5)

    monkeypatch.setattr("betae.training.config.default_config", default_config)
    betae(small_graph(), None)
    assert graphs == [small_graph().fingerprint]
    assert Run.open(tmp_path / "run").config == small_config(steps=5)


def test_the_live_line_says_which_part_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("betae.cli.progress._tensorboard", lambda _: None)
    config = small_config(steps=40, predictor={"model": {"name": "complex"}, "steps": 80})
    figures = {"seconds": 60.0, "loss": 1.5, "queries_per_second": 1000.0}
    console = Console(quiet=True, force_terminal=True)
    monkeypatch.setattr("betae.cli.progress.Reporter.config", config)
    with showing_progress(console, tmp_path, minutes=8) as report:
        seen = []
        for line in ({"step": 20}, {"step": 8, "predictor": True}):
            report({**line, **figures})
            task = report.bars.tasks[0]
            seen.append((task.description, task.completed))
    # 60 seconds are a quarter of the half of 8 minutes that each part has.
    assert seen[0] == (
        "step 20  loss 1.500  1,000 queries/s  1.0 min left",
        pytest.approx(20 / 40),
    )
    assert seen[1] == (
        "predictor, step 8  loss 1.500  1,000 queries/s  3.0 min left",
        pytest.approx(0.25),  # not 8 / 80
    )


def test_without_a_terminal_lines_are_printed_now_and_then(tmp_path, monkeypatch):
    """No bar, no escape codes, no blank lines; a validation is told at once."""
    monkeypatch.setattr("betae.cli.progress._tensorboard", lambda _: None)
    now = iter([100.0, 100.0, 105.0, 105.0, 109.0, 116.0, 116.0])
    monkeypatch.setattr("betae.cli.progress.time.monotonic", lambda: next(now))
    file, figures = io.StringIO(), {"loss": 1.5, "queries_per_second": 1000.0}
    monkeypatch.setattr("betae.cli.progress.Reporter.config", small_config(steps=400))
    with showing_progress(Console(file=file), tmp_path) as report:
        report({"step": 50, "seconds": 60.0, **figures})  # at 100 seconds
        report({"step": 100, "seconds": 60.0, "mrr": 12.34, "1p": 12.34})  # at 105
        report({"step": 150, "seconds": 60.0, **figures})  # at 105: too soon
        report({"step": 200, "seconds": 60.0, **figures})  # at 109: too soon
        report({"step": 400, "seconds": 60.0, **figures})  # at 116
    assert file.getvalue().splitlines() == [
        "step 50  loss 1.500  1,000 queries/s  7.0 min left",
        "step 100  validation MRR 12.3 %",
        "step 400  loss 1.500  MRR 12.3 %  1,000 queries/s  0.0 min left",
    ]


def test_time_that_is_over_is_not_negative(tmp_path, monkeypatch):
    monkeypatch.setattr("betae.cli.progress._tensorboard", lambda _: None)
    file = io.StringIO()
    monkeypatch.setattr("betae.cli.progress.Reporter.config", small_config())
    with showing_progress(Console(file=file), tmp_path, minutes=1) as report:
        report({"step": 5, "seconds": 60.5, "loss": 1.0, "queries_per_second": 9.0})
    assert file.getvalue().endswith("  0.0 min left\n")


def test_work_without_a_terminal_prints_nothing():
    file = io.StringIO()
    console = Console(file=file)
    with showing_counts(console, {"1p": 3}) as told:
        told("1p", 2)
    with showing_work(console, True) as tell:
        tell("ranking", 1, 2)
    with console.status("Opening"):
        pass
    assert file.getvalue() == ""


def test_names_with_brackets_are_shown_as_they_are():
    file = io.StringIO()
    with showing_counts(Console(file=file, force_terminal=True, width=80), {"[red]r[/red]": 3}):
        pass
    assert "[red]r[/red]" in file.getvalue()
