"""The examples run, are short, and say what they are for."""

import gzip
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SCRIPTS = EXAMPLES[0].parents[1] / "scripts"
SAYS = {  # something that only a working example prints
    "agent_session": "missing 5",
    "company_csv": "predicted  Fairfield Demolition",
    "compare_models": "report.html",
    "drug_repurposing": "which treats epilepsy syndrome: holds in",
    "music_dates": "predicted  ",
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


def test_every_example_is_tested_and_described():
    assert [path.stem for path in EXAMPLES] == sorted(SAYS)
    page = (EXAMPLES[0].parents[1] / "docs" / "examples.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if f"(../examples/{path.name})" not in page] == []


@pytest.fixture
def arguments(request, tmp_path_factory):
    """Return the arguments of an example, with few of the relations of a large graph."""

    def arguments_of(name):
        if name == "music_dates":
            file = request.getfixturevalue("shared_data") / "music" / "music.ttl.gz"
            prefixes, *blocks = gzip.decompress(file.read_bytes()).decode().split("\n\n")
            few = [each for each in blocks if re.search("Janet_Jackson|Mariah_C|Jimmy_J", each)]
            small = tmp_path_factory.mktemp("music") / "music.ttl"
            small.write_text("\n\n".join([prefixes, *few]), encoding="utf-8")
            return [str(small), "Jimmy Jam and Terry Lewis", "1986", "2006"]
        if name == "drug_repurposing":
            hetionet = request.getfixturevalue("shared_data") / "hetionet" / "neo4j"
            folder = tmp_path_factory.mktemp("hetionet")
            for kind in ("nodes-compound", "nodes-disease", "edges-Compound_Treats_Disease",
                         "edges-Compound_Resembles_Compound"):  # fmt: skip
                (folder / f"{kind}.tsv.gz").symlink_to(hetionet / f"{kind}.tsv.gz")
            return [str(folder), "epilepsy syndrome"]
        return []

    return arguments_of


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path, tmp_path, monkeypatch, capsys, arguments):
    assert len(path.read_text().splitlines()) < 55
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), *arguments(path.stem)])
    if path.stem in ("own_triples", "agent_session"):  # as a user runs it; it starts a process
        command = [sys.executable, "-W", "error", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        shown = done.stdout
    else:
        runpy.run_path(str(path), run_name="__main__")
        shown = capsys.readouterr().out
    assert SAYS[path.stem] in shown
    left = sorted(each.name for each in tmp_path.iterdir())
    told = path.read_text().split('"""')[1]  # the docstring says what it writes
    assert [name for name in left if name not in told] == [], "it left files behind"
    assert (f"{path.stem}.png" in left) == ("It writes" in told)
