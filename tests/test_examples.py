"""The examples run, are short, and say what they are for."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SCRIPTS = EXAMPLES[0].parents[1] / "scripts"
SAYS = {  # something that only a working example prints
    "compare_models": "report.html",
    "own_triples": "German",
    "sparql": "Ljubljana",
    "uncertainty": "ROC-AUC",
}


def test_the_tour_runs_and_shows_what_it_keeps(tmp_path, monkeypatch):
    program = runpy.run_path(str(SCRIPTS / "run_notebook.py"))
    text = (EXAMPLES[0].parent / "tour.ipynb").read_text(encoding="utf-8")
    kept, run = json.loads(text), json.loads(text)
    monkeypatch.chdir(tmp_path)
    program["run_notebook"](run)

    def shown(notebook):
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        return [[(each["output_type"], sorted(each.get("data", ()))) for each in cell["outputs"]]
                for cell in cells]  # fmt: skip

    assert shown(run) == shown(kept)
    assert sum(len(cell) for cell in shown(run)) >= 10
    drawn = [each["data"]["text/html"] for cell in run["cells"] for each in cell.get("outputs", ())
             if "text/html" in each.get("data", ())]  # fmt: skip
    assert sum("<svg" in "".join(each) for each in drawn) >= 3
    assert str(tmp_path) not in json.dumps(run)


def test_there_are_four():
    assert [path.stem for path in EXAMPLES] == sorted(SAYS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path, tmp_path, monkeypatch, capsys):
    assert len(path.read_text().splitlines()) < 40
    monkeypatch.chdir(tmp_path)
    if path.stem == "own_triples":  # one of them as a user runs it; the others need no new import
        command = [sys.executable, "-W", "error", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        shown = done.stdout
    else:
        runpy.run_path(str(path), run_name="__main__")
        shown = capsys.readouterr().out
    assert SAYS[path.stem] in shown
    assert not list(tmp_path.iterdir()), "it left files behind"
