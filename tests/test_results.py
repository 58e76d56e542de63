"""The tables and plots of the README and docs, and results/report.md, are what results/ holds."""

import json
import re
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


def test_the_generated_files_are_up_to_date(script, evaluations):
    for path, text in script.generated(evaluations).items():
        assert (ROOT / path).read_text("utf-8") == text, f"{path}: {HINT}"


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
    usual, harder = script.usual_and_harder(evaluations)
    text = "\n".join(script.result_tables(usual, harder))
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
    rows = rows_of(script.missing_table(*reversed(script.usual_and_harder(evaluations))))
    beside = [row for row in rows if row[0].startswith(("FB15k-237, at least 2 edges", "usual"))]
    assert beside == [
        [
            *("FB15k-237, at least 2 edges missing: BetaE", "8.0", "2.0", "5.0 (4.0–6.0)", "1.0"),
            "1.0 (0.0–2.0)",
        ],
        ["usual queries: completed graph", "10.0", "30.0", "20.0", "5.0", "5.0"],
        ["usual queries: BetaE", "10.0", "30.0", "20.0", "5.0", "5.0"],
    ]


def test_tables_go_between_the_marks(script):
    page = script.between_marks(f"before {script.BEGIN}old{script.END} after", ["new"], "x.md")
    assert page == f"before {script.BEGIN}\n\nnew\n\n{script.END} after"
    with pytest.raises(SystemExit, match=r"x\.md lacks the marks"):
        script.between_marks("# betae", [], "x.md")


def test_the_short_table_has_no_intervals(script):
    evaluations = [
        kept({"1p": 40.0, "2in": 10.0}, counts=FB237, origin=BETAE),
        kept({"1p": 60.0, "2in": 20.0}, counts=FB237, origin=BETAE, method="completed"),
    ]
    usual, _ = script.usual_and_harder(evaluations)
    assert rows_of(script.short_table(usual)) == [
        ["MRR, %", "completed graph", "BetaE", "BetaE in the paper", "GNN-QE", "QTO"],
        [
            "FB15k-237, official BetaE queries (1,000), EPFO",
            *("60.0", "40.0", "20.9", "26.8", "33.5"),
        ],
        ["the same, negation", "20.0", "10.0", "5.4", "10.2†", "15.5†"],
    ]


def test_bars_are_as_long_as_their_values(script):
    rows = {"1p": [40.0, None], "2p": [10.0, 20.0]}
    plot = script.bars("MRR", ["here", "paper"], rows)
    widths = [float(each) for each in re.findall(r'width="([\d.]+)" height="10"', plot)]
    assert widths == [730.0, 182.5, 365.0]
    assert [f">{value}</text>" in plot for value in (40, 10, 20)] == [True] * 3


def test_the_plot_of_benchmarks_has_the_ratios_of_the_table(script):
    page = "| what | times | |\n|---|---:|---|\n| one | 1,000 | x |\n| two | 10 | y |\n| no | z |\n"
    plot = script.plot_of_ratios(page)
    widths = [float(each) for each in re.findall(r'width="([\d.]+)" height="10"', plot)]
    assert widths == [360.0, 120.0]
    assert ">1,000</text>" in plot
    assert ">no</text>" not in plot
