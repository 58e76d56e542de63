"""The recipes can be read, and the script that runs them knows them all."""

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from betae import read_recipe, sample_queries, world
from betae.datasets.release_queries import write_release_queries
from betae.models.store import model_name

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
MODELS = ("betae", "query2box", "gqe")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_named_after_what_it_trains(path):
    dataset, model = path.stem.split("_")
    assert model_name(read_recipe(path).model) == model
    script = (ROOT / "scripts" / "reproduce.py").read_text()
    assert f'"{dataset}"' in script
    assert f'"{model}"' in script


@pytest.mark.parametrize("dataset", ["FB15k-237", "NELL995"])
def test_the_predictor_beside_betae_is_that_of_its_own_recipe(dataset):
    beside = read_recipe(ROOT / "recipes" / f"{dataset}_betae.toml").predictor
    assert beside == read_recipe(ROOT / "recipes" / f"{dataset}_complex.toml")


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
    for split, edges in graph.splits.items():
        both = [f"{h}\t{2 * r}\t{t}\n{t}\t{2 * r + 1}\t{h}\n" for h, r, t in edges.tolist()]
        (folder / f"{split}.txt").write_text("".join(both))
    queries = sample_queries(graph, {"1p": 20, "2u": 20}, "test")
    write_release_queries(queries, tmp_path / "data" / "FB15k-237-q2b")
    return tmp_path / "data"


def test_a_recipe_is_reproduced_although_it_is_killed_on_the_way(tmp_path, released):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "reproduce.py", tmp_path / "scripts")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "FB15k-237_gqe.toml").write_text(
        "steps = 300\ncheckpoint_every = 20\nvalidate_every = 100\n"
        'batch_size = 16\nvalidation_queries = 5\n[model]\nname = "gqe"\ndim = 8\n'
    )
    out = tmp_path / "out" / "FB15k-237"
    command = [sys.executable, tmp_path / "scripts" / "reproduce.py", "FB15k-237", "gqe"]
    command += ["--data", released, "--out", tmp_path / "out"]
    with subprocess.Popen(command, start_new_session=True) as first:
        while not list((out / "gqe").glob("checkpoint-*[0-9]")) and first.poll() is None:
            time.sleep(0.01)
        assert first.poll() is None
        os.killpg(first.pid, signal.SIGKILL)
    assert not (out / "gqe-report").exists()
    subprocess.run(command, check=True)
    assert (out / "gqe" / "checkpoint-00000300").exists()
    report = (out / "gqe-report" / "report.md").read_text()
    assert "gqe (GQE)" in report
    assert {"FB15k-237-q2b", "sampled-test"} == {
        path.stem for path in (out / "gqe" / "evaluations").glob("*.json")
    }
    # Once more: nothing is left to do but the report.
    parts = [*(out / "gqe").glob("checkpoint-*/*"), *(out / "gqe" / "evaluations").iterdir()]
    before = [path.stat().st_mtime_ns for path in parts]
    subprocess.run(command, check=True)
    assert [path.stat().st_mtime_ns for path in parts] == before
