"""The recipes can be read, and the script that runs them knows them all."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from betae import TrainConfig, world
from betae.datasets.release import write_release_queries
from betae.models.store import model_name
from betae.querysets.sample import sample_queries

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
MODELS = ("betae", "query2box", "gqe")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_named_after_what_it_trains(path):
    dataset, model = path.stem.split("_")
    assert model_name(TrainConfig.read(path).model) == model
    script = (ROOT / "scripts" / "reproduce.py").read_text()
    assert f'"{dataset}"' in script
    assert f'"{model}"' in script


@pytest.mark.parametrize("dataset", ["FB15k-237", "NELL995"])
def test_the_predictor_beside_betae_is_that_of_its_own_recipe(dataset):
    beside = TrainConfig.read(ROOT / "recipes" / f"{dataset}_betae.toml").predictor
    assert beside == TrainConfig.read(ROOT / "recipes" / f"{dataset}_complex.toml")


def test_what_the_paper_compares_is_there():
    names = {path.stem for path in RECIPES}
    assert names >= {"NELL995_betae", *(f"FB15k-237_{model}" for model in MODELS)}
    assert re.search(r"^reproduce:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.fixture
def released(tmp_path):
    """`world` as the two releases have their folders: graph, and Query2Box's test queries."""
    graph = world()
    folder = tmp_path / "data" / "FB15k-237-betae"
    folder.mkdir(parents=True)
    names = [name for relation in graph.relations for name in (f"+{relation}", f"-{relation}")]
    for file, table in (("id2ent", graph.entities), ("id2rel", names)):
        (folder / f"{file}.pkl").write_bytes(pickle.dumps(dict(enumerate(table))))
    for split, edges in graph.written_ids.items():
        both = [f"{h}\t{2 * r}\t{t}\n{t}\t{2 * r + 1}\t{h}\n" for h, r, t in edges.tolist()]
        (folder / f"{split}.txt").write_text("".join(both))
    queries = sample_queries(graph, {"1p": 20, "2u": 20}, "test")
    write_release_queries(queries, tmp_path / "data" / "FB15k-237-q2b")
    return tmp_path / "data"


TINY = """\
steps = 150
checkpoint_every = 10
batch_size = 16
validation = {every = 100, queries = 5}
[model]
name = "gqe"
dim = 8
"""


@pytest.fixture
def reproduce(tmp_path, monkeypatch):
    """The script, as a module with a recipe of its own and few test queries."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "FB15k-237_gqe.toml").write_text(TINY)
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import reproduce

    monkeypatch.setattr(reproduce, "RECIPES", tmp_path / "recipes")
    monkeypatch.setattr(reproduce, "TEST_QUERIES", 5)
    monkeypatch.setattr(reproduce, "EMPTY_QUERIES", 5)
    yield reproduce
    del sys.modules["reproduce"]


@pytest.mark.slow
def test_a_recipe_is_reproduced_although_it_is_killed_on_the_way(
    tmp_path, released, reproduce, monkeypatch, capsys
):
    out = tmp_path / "out" / "FB15k-237"
    arguments = ["FB15k-237", "gqe", "--data", str(released), "--out", str(tmp_path / "out")]
    run_process = subprocess.run

    def killed_on_the_way(command, **_):
        """Train until there is a checkpoint; then the process is killed, and so is the script."""
        with subprocess.Popen(command, start_new_session=True) as process:
            while not list((out / "gqe").glob("checkpoint-*[0-9]")) and process.poll() is None:
                time.sleep(0.01)
            assert process.poll() is None
            os.killpg(process.pid, signal.SIGKILL)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", killed_on_the_way)
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(arguments)
    assert not (out / "gqe-report").exists()
    first = json.loads((out / "minutes.json").read_text())
    assert first["done"] == ["ingest"]
    assert first["seconds"]["gqe: train"] > 0

    monkeypatch.setattr(subprocess, "run", run_process)
    reproduce.reproduce(arguments)
    assert (out / "gqe" / "checkpoint-00000150").exists()
    report = (out / "gqe-report" / "report.md").read_text()
    assert "gqe (GQE)" in report
    sets = ["FB15k-237-q2b", "sampled-test"]
    assert sets == sorted(path.stem for path in (out / "gqe" / "evaluations").glob("*.json"))
    evals = [f"gqe: eval {name}" for name in sets]
    steps = ["ingest", "gqe: train", "sample", *evals, "gqe: report"]
    then = json.loads((out / "minutes.json").read_text())
    assert list(then["seconds"]) == then["done"] == steps
    assert then["seconds"]["ingest"] == first["seconds"]["ingest"]  # it was done
    assert then["seconds"]["gqe: train"] > first["seconds"]["gqe: train"]  # both times count
    printed = capsys.readouterr().out
    assert "--resume" in printed
    table = printed[printed.index("step ") :].splitlines()
    assert [line.rsplit(maxsplit=1)[0] for line in table[1:8]] == [*steps, "all"]
    whole = float(table[7].split()[1])
    assert whole == pytest.approx(sum(then["seconds"].values()) / 60, abs=0.06)

    # Once more: nothing is left to do but the report.
    parts = [*(out / "gqe").glob("checkpoint-*/*"), *(out / "gqe" / "evaluations").iterdir()]
    before = [path.stat().st_mtime_ns for path in parts]
    monkeypatch.setattr(subprocess, "run", killed_on_the_way)  # no process is started
    reproduce.reproduce(arguments)
    assert [path.stat().st_mtime_ns for path in parts] == before
    printed = capsys.readouterr().out
    assert printed.count("$ betae") == printed.count("$ betae report") == 1


@pytest.mark.slow
def test_the_script_is_a_program():
    """What it does is tested in this process."""
    command = [sys.executable, ROOT / "scripts" / "reproduce.py", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "usage" in done.stdout


def test_the_end_of_a_step_that_fails(reproduce, tmp_path):
    steps = reproduce.Steps(tmp_path / "minutes.json")
    with pytest.raises(SystemExit):
        steps.run("ingest", False, "ingest", tmp_path / "nothing", "--out", tmp_path / "graph")
    assert steps.done == []
    assert reproduce.Steps(tmp_path / "minutes.json").seconds["ingest"] > 0
