"""The examples run, are short, and say what they are for."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {  # something that only a working example prints
    "compare_models": "report.html",
    "own_triples": "German",
    "sparql": "Ljubljana",
    "uncertainty": "ROC-AUC",
}


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
