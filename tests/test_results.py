"""The tables of the README, and results/report.md, are what results/ holds."""

import json
import sys
from pathlib import Path

import pytest

from betae import TrainConfig
from tests.evaluation.helpers import BETAE, FB237, NELL, QUERY2BOX, kept

ROOT = Path(__file__).parents[1]
HINT = "run: python scripts/results_table.py"


@pytest.fixture(scope="module")
def script():
    """The script, as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        import results_table

        yield results_table
    del sys.modules["results_table"]


@pytest.fixture(scope="module")
def evaluations(script):
    return script.read_results(ROOT / "results")


@pytest.fixture(scope="module")
def readme():
    return (ROOT / "README.md").read_text("utf-8")


def test_the_readme_has_the_results(script, evaluations, readme):
    assert script.with_tables(readme, evaluations) == readme, HINT


def test_the_report_has_the_results(script, evaluations):
    report = (ROOT / "results" / "report.md").read_text("utf-8")
    assert script.report_of(evaluations) == report, HINT


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in ROOT.glob("results/*/config.json"))
)
def test_results_are_those_of_the_recipe(name):
    config = json.loads((ROOT / "results" / name / "config.json").read_text("utf-8"))
    assert TrainConfig.from_json(config) == TrainConfig.read(ROOT / "recipes" / f"{name}.toml")


def rows_of(text):
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]


def test_the_tables_by_hand(script):
    rules = {"source": "sampled", "rules": "release"}
    evaluations = [
        kept({"1p": 50.0, "2u": 30.0}, counts=NELL, origin=QUERY2BOX, model_name="gqe"),
        kept({"1p": 40.0, "2in": 10.0}, counts=FB237, origin=rules),
        kept({"1p": 60.0, "2in": 20.0}, counts=FB237, origin=rules, method="completed"),
        kept({"1p": 70.0}, counts=FB237, origin={"source": "sampled", "rules": "paper"}),
        kept({"2p": 8.0, "3in": 2.0}, counts=FB237, origin={**rules, "missing": "all"}),
    ]
    text = script.with_tables(f"before {script.BEGIN}old{script.END} after", evaluations)
    assert text.startswith(f"before {script.BEGIN}\n\n|")
    assert text.endswith(f"|\n\n{script.END} after")
    assert "old" not in text
    averages, structures, missing = text.split("| MRR, % |")[1:]
    assert rows_of("| MRR, % |" + averages)[1:] == [
        [
            *(
                "FB15k-237, queries sampled by the release's rules (1,000), EPFO",
                "60.0 (59.0–61.0)",
            ),
            *("40.0 (39.0–41.0)", "20.9\\*", "", "20.1\\*", "", "16.3\\*", "26.8\\*", "33.5\\*"),
            "5.0",
        ],
        [
            *("the same, negation", "20.0 (19.0–21.0)", "10.0 (9.0–11.0)", "5.4\\*", "", "", ""),
            *("", "10.2\\*†", "15.5\\*†", "5.0"),
        ],
        [
            *("NELL995, Query2Box's official queries (1,000), EPFO", "", "", "30.7", "", "25.5"),
            *("40.0 (39.0–41.0)", "20.2", "", "", "5.0"),
        ],
    ]
    assert rows_of("| MRR, % |" + structures) == [
        ["MRR, %", "1p", "2in"],
        [
            "FB15k-237, queries sampled by the release's rules (1,000): completed graph",
            *("60.0", "20.0"),
        ],
        ["BetaE", "40.0", "10.0"],
        ["BetaE in the paper", "39.0\\*", "5.1\\*"],
    ]
    assert rows_of("| MRR, % |" + missing)[:3] == [
        ["MRR, %", "2p", "EPFO", "3in", "negation"],
        *[["FB15k-237, all edges missing: BetaE", "8.0", "8.0 (7.0–9.0)", "2.0", "2.0 (1.0–3.0)"]],
        ["frequency", "5.0", "5.0", "5.0", "5.0"],
    ]


def test_usual_queries_stand_beside_harder_ones(script):
    usual = {"2p": 10.0, "2i": 30.0, "1p": 90.0, "3in": 5.0}
    evaluations = [
        kept(usual, counts=FB237, origin=BETAE),
        kept(usual, counts=FB237, origin=BETAE, method="completed"),
        kept({"2p": 8.0, "2i": 2.0, "3in": 1.0}, counts=FB237, origin={"missing": 2}),
    ]
    rows = rows_of(script.with_tables(script.BEGIN + script.END, evaluations))
    beside = [row for row in rows if row[0].startswith(("FB15k-237, at least 2 edges", "usual"))]
    assert beside == [
        [
            *("FB15k-237, at least 2 edges missing: BetaE", "8.0", "2.0", "5.0 (4.0–6.0)", "1.0"),
            "1.0 (0.0–2.0)",
        ],
        ["usual queries: completed graph", "10.0", "30.0", "20.0", "5.0", "5.0"],
        ["usual queries: BetaE", "10.0", "30.0", "20.0", "5.0", "5.0"],
    ]


def test_a_readme_without_the_marks(script):
    with pytest.raises(SystemExit, match="lacks the marks"):
        script.with_tables("# betae", [])
