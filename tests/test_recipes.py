"""The recipes can be read, and the script that runs them knows them all."""

import re
from pathlib import Path

import pytest

from betae import read_recipe

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
GEOMETRIES = {"betae": "beta", "query2box": "box", "gqe": "vector"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_named_after_what_it_trains(path):
    dataset, model = path.stem.split("_")
    assert read_recipe(path).geometry == GEOMETRIES[model]
    script = (ROOT / "scripts" / "reproduce.py").read_text()
    assert f'"{dataset}"' in script
    assert f'"{model}"' in script


def test_what_the_paper_compares_is_there():
    names = {path.stem for path in RECIPES}
    assert names >= {"NELL995_betae", *(f"FB15k-237_{model}" for model in GEOMETRIES)}
    assert re.search(r"^reproduce:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
