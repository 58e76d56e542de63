"""How soon the command line answers: what it imports, and what it refuses before that."""

import inspect
import json
import os
import subprocess
import sys
from typing import get_args

import pytest

from betae import world
from betae.answering.results import Method, Status
from betae.cli import common, graphs, questions, runs
from betae.graph.edges import SPLITS, Edges
from betae.queries.rewrite import UnionForm
from betae.run import Run, mine
from betae.search import IndexKind
from tests.cli.test_cli import flat

HEAVY = (
    "torch",
    "numpy",
    "numba",
    "scipy",
    "polars",
    "pyoxigraph",
    "rdflib",
    "faiss",
    "matplotlib",
    "mcp",
    "fastapi",
)
# Parts of betae, and of what it uses, that only some commands need.
PARTS = (
    "betae.graph.graph",
    "betae.run",
    "betae.training.loop",
    "betae.evaluation.plots",
    "scipy.stats",
    "torch._dynamo",
    "rich.progress",
    "rich.markdown",
)
MEASURE = f"""
import json, os, sys
from betae.cli import main
sys.argv = ["betae", *sys.argv[1:]]
try:
    main()
finally:
    heavy = [name for name in {HEAVY + PARTS} if name in sys.modules]
    with open("measured.json", "w") as file:
        json.dump({{"heavy": heavy, "openmp": os.environ.get("OMP_WAIT_POLICY")}}, file)
"""


@pytest.fixture
def betae(made, tmp_path):
    """Run a command in a process; return it, what it imported and its CPU seconds."""

    def run(*arguments):
        command = [sys.executable, "-c", MEASURE, *(made if a == "RUN" else a for a in arguments)]
        environment = {name: value for name, value in os.environ.items() if name[:4] != "OMP_"}
        before = os.times()
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=environment
        )
        after = os.times()
        measured = json.loads((tmp_path / "measured.json").read_text())
        measured["seconds"] = sum(after[2:4]) - sum(before[2:4])
        return done, measured

    return run


@pytest.mark.slow
def test_help_and_version_import_nothing_heavy(betae):
    helps = ["answer", "--help"], ["complete", "-h"], ["index", "-h"]
    for arguments in (["--help"], ["--version"], *helps):
        done, measured = betae(*arguments)
        assert done.returncode == 0
        assert set(measured["heavy"]) <= {"rich.markdown"}  # by which typer writes help


WRONG = [  # and what the message must hold
    (["answer", "RUN", "q", "--format", "xml"], "'xml' is not one of 'table', 'jsonl', 'csv'"),
    (["answer", "RUN", "q", "--frmat", "csv"], "--format"),
    (["answer", "nowhere", "q"], "There is no folder nowhere."),
    (["answer", "RUN", "q", "--graph", "nowhere"], "There is no folder nowhere."),
    (["answer", "RUN"], "Give a question"),
    (["answer", "RUN", "--queries", "nowhere.txt"], "nowhere.txt"),
    (["complete", "nowhere"], "There is no folder nowhere."),
    (["complete", "RUN", "--out", "edges.xls"], "cannot write '.xls'. Choose .tsv, "),
    (["train", ".", "--out", "run", "--recipe", "no.toml"], "There is no file no.toml."),
    (["train", "nowhere", "--out", "run"], "There is no folder nowhere"),
    (["eval", "nowhere", "--queries", "."], "There is no folder nowhere."),
    (["eval", "RUN", "--queries", "nowhere"], "There is no folder nowhere."),
    (["index", "build", "RUN", "--kind", "tree"], "is not one of 'ivf', 'hnsw', 'lsh'"),
    (["inspect", "nowhere"], "There is no folder nowhere."),
    (["plot", "nowhere"], "There is no folder nowhere."),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=lambda value: str(value))
def test_what_is_wrong_is_refused_before_torch_is_imported(betae, arguments, message):
    done, measured = betae(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in flat(done.stderr)
    assert not {"torch", "betae.run", "rich.progress"} & set(measured["heavy"])
    assert measured["seconds"] < 1  # less than half of that on an idle machine


@pytest.mark.slow
def test_a_question_imports_only_what_it_needs(betae, made, monkeypatch):
    monkeypatch.setattr("betae.answering.edge_fit.FIT_ROWS", 100)
    monkeypatch.setattr("betae.answering.edge_fit.FIT_PAIRS", 200)
    Run.open(made).answerer()  # the first time, probabilities are fitted
    done, measured = betae("answer", "RUN", "?X . r0(e1, ?X)")
    assert done.returncode == 0, done.stderr
    rest = set(HEAVY) - set(measured["heavy"])
    assert rest >= {"polars", "pyoxigraph", "rdflib", "faiss", "matplotlib"}
    used = {"betae.graph.graph", "betae.run"}
    assert set(measured["heavy"]) & set(PARTS) == used


@pytest.mark.slow
def test_a_question_by_rules_imports_no_torch(betae, tmp_path):
    run = mine(world(), tmp_path / "run").folder
    question = ["answer", run, "?X . located_in(?X, Europe)", "--only", "predicted", "--explain"]
    before, measured = betae(*question)  # the first time, probabilities are fitted
    assert before.returncode == 0, before.stderr
    assert "torch" not in measured["heavy"]
    done, measured = betae(*question)
    assert done.stdout == before.stdout
    rest = set(HEAVY) - set(measured["heavy"])
    assert rest >= {"torch", "polars", "pyoxigraph", "rdflib", "faiss", "matplotlib"}
    assert set(measured["heavy"]) & set(PARTS) == {"betae.graph.graph", "betae.run"}


def test_idle_threads_sleep(betae):
    """OpenMP is told before torch is imported; what the user has set stays."""
    assert betae("--version")[1]["openmp"] == common.OPENMP["OMP_WAIT_POLICY"]


@pytest.mark.parametrize(
    ("command", "option", "choices"),
    [
        (questions.answer, "only", get_args(Status)),
        (questions.answer, "union", get_args(UnionForm)),
        (questions.answer, "method", get_args(Method)),
        (questions.answer, "edges", get_args(Edges)),
        (questions.query, "edges", get_args(Edges)),
        (runs.complete_command, "edges", get_args(Edges)),
        (runs.index_build, "kind", get_args(IndexKind)),
        (runs.sample, "split", SPLITS),
        (graphs.export, "split", (*SPLITS, "all")),
        (runs.eval_command, "split", SPLITS[1:]),
        (runs.eval_command, "method", get_args(Method)),
    ],
)
def test_the_choices_are_the_library_s(command, option, choices):
    """They are written out in the commands, so that `betae --help` need not import the library."""
    hint = inspect.get_annotations(command, eval_str=True)[option].__origin__
    literal = next((part for part in get_args(hint) if get_args(part)), hint)
    assert get_args(literal) == tuple(choices)
