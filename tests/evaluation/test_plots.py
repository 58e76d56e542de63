"""Plots: what is in the figures, and that they leave the program's matplotlib alone."""

import subprocess
import sys
from itertools import permutations

import pytest
from matplotlib.colors import to_hex

from betae.evaluation.plots import draw_curves, draw_mrr, draw_plots, draw_points
from tests.evaluation.helpers import kept, uncertain

BETA = kept(
    {"1p": uncertain(40.0), "2u": 30.0, "2u-DM": 28.0, "2in": uncertain(10.0)},
    run="a",
    empty={"1p": 0.75, "2in": 0.7},
)
BOX = kept({"1p": uncertain(41.0), "2u": 31.0}, run="b", model_name="query2box", empty={"1p": 0.65})
VECTOR = kept({"1p": 35.0, "2u": 25.0}, run="c", model_name="gqe")
ORDERS = pytest.mark.parametrize("runs", list(permutations([BETA, BOX, VECTOR])))


@ORDERS
def test_bars_of_runs_and_of_the_baseline(runs):
    """The baseline is that of the run that did most, wherever it stands."""
    (axes,) = draw_mrr(runs).axes
    bars = {each.get_label(): each for each in axes.containers if hasattr(each, "patches")}
    heights = {
        name: sorted(patch.get_height() for patch in each.patches) for name, each in bars.items()
    }
    assert heights == {
        "a": [10.0, 28.0, 30.0, 40.0],
        "b": [31.0, 41.0],
        "c": [25.0, 35.0],
        "frequency": [5.0] * 4,
    }


@ORDERS
def test_points_of_the_structures_that_have_some(runs):
    grid = draw_points(runs).axes
    shown = {axes.get_title(): axes for axes in grid if axes.axison}
    assert shown.keys() == {"1p", "2in"}
    points = {each.get_label(): len(each.get_offsets()) for each in shown["1p"].collections}
    assert points == {"a": 2, "b": 2}
    runs_by_name = [each.run for each in runs]
    for each in shown["1p"].collections:  # the colours of the bars
        place = runs_by_name.index(each.get_label())
        assert to_hex(each.get_facecolor()[0]) == to_hex(f"C{place}")


@ORDERS
def test_curves_of_the_runs_that_have_some(runs):
    curves = {
        axes.get_title().split()[-1]: {line.get_label() for line in axes.get_lines()[:-1]}
        for axes in draw_curves(runs).axes
    }
    assert curves == {"a": {"1p 0.75", "2in 0.70"}, "b": {"1p 0.65"}}


def test_the_method_is_in_the_legend():
    completed = kept({"1p": 45.0}, run="a", method="completed", empty={"1p": 0.9})
    (axes,) = draw_mrr([BETA, completed]).axes
    labels = [each.get_label() for each in axes.containers if hasattr(each, "patches")]
    assert labels == ["a", "a, completed graph", "frequency"]
    titles = [axes.get_title() for axes in draw_curves([BETA, completed]).axes]
    assert titles == ["Has answers? a", "Has answers? a, completed graph"]


def test_only_what_there_is_is_drawn():
    assert draw_plots([VECTOR]).keys() == {"mrr"}
    plots = draw_plots([BETA, VECTOR])
    assert plots.keys() == {"mrr", "entropy", "roc"}
    assert all(svg.startswith("<svg") and svg.rstrip().endswith("</svg>") for svg in plots.values())


def test_names_are_not_formulas():
    """Text between dollars would be read as TeX, and may not be any."""
    odd = r"?X . r(\"$\frac$\", ?X)"
    ours = kept({odd: uncertain(40.0)}, run=r"$\frac$", empty={odd: 0.5})
    assert draw_plots([ours]).keys() == {"mrr", "entropy", "roc"}


@pytest.mark.slow
def test_the_programs_matplotlib_is_left_alone():
    """A notebook has a backend of its own."""
    code = """
import sys
import matplotlib
matplotlib.use("pdf")
from betae.evaluation.plots import draw_plots
from tests.evaluation.test_plots import BETA
assert len(draw_plots([BETA])) == 3
assert matplotlib.get_backend() == "pdf", matplotlib.get_backend()
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
