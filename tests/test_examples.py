"""The examples run, are short, and say what they are for."""

import subprocess
import sys
from pathlib import Path

import pytest

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
def test_an_example_runs_and_is_short(path, tmp_path):
    assert len(path.read_text().splitlines()) < 40
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert SAYS[path.stem] in done.stdout
    assert not list(tmp_path.iterdir()), "it left files behind"
