"""`betae plot`, `betae train`: what a person sees."""

import re
import sys

import matplotlib
import pytest

from betae.cli import main
from betae.errors import InvalidArgument, StoreError
from betae.training.folder import RunFolder
from betae.training.plot import plot_run

pytestmark = pytest.mark.slow

RECIPE = """\
steps = 60
batch_size = 16
validation = {every = 30, queries = 4}
[structures]
1p = 1
2i = 1
[model]
dim = 4
hidden = 4
"""


@pytest.fixture
def betae(monkeypatch, capsys):
    """Run a command; return its exit code and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["betae", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def run(tmp_path):
    """A folder with metrics."""
    for step in (50, 100):
        RunFolder(tmp_path).append_metrics({"step": step, "seconds": 1.0, "loss": 10 / step})
        RunFolder(tmp_path).append_metrics(
            {"step": step, "seconds": 1.0, "mrr": 20.0, "1p": 30, "2i": 10}
        )
    return tmp_path


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG\r\n"), ("a.svg", b"<?xml")])
def test_curves_are_drawn(name, start, run):
    plot_run(run, run / name)
    content = (run / name).read_bytes()
    assert content.startswith(start)
    assert len(content) > 5000
    assert not list(run.glob(".partial*"))


def test_every_structure_has_a_curve(run):
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot_run(run, run / "a.svg")
    text = (run / "a.svg").read_text()
    for label in ("1p", "2i", "mean", "Loss", "Validation MRR, %"):
        assert f">{label}<" in text
    assert ">seconds<" not in text


def test_a_single_validation_is_marked(tmp_path):
    """A line needs two points: without a marker nothing would be seen of one."""
    counts = []
    for step in (50, 100):
        figures = {"mrr": 20.0, "1p": 30, "2i": 10}
        RunFolder(tmp_path).append_metrics({"step": step, "seconds": 1.0, "loss": 1.0})
        RunFolder(tmp_path).append_metrics({"step": step, "seconds": 1.0, **figures})
        with matplotlib.rc_context({"svg.hashsalt": "x"}):
            plot_run(tmp_path, tmp_path / "a.svg")
        lines = re.findall(r'<g id="line2d_\d+">(.*?)</g>', (tmp_path / "a.svg").read_text(), re.S)
        counts.append(sum("<use " in line and "<defs>" in line for line in lines))
    ticks = counts[1]
    assert counts[0] >= ticks + 4 - 1  # loss, 1p, 2i, mean; an axis may have a tick less


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_the_users_own_figures_are_left_alone(name, run, monkeypatch):
    """A notebook has set a backend; switching it would close its figures."""
    from matplotlib import pyplot

    def refuse(backend, **_):
        pytest.fail(f"switched to {backend}")

    mine = pyplot.figure()
    monkeypatch.setattr(matplotlib, "use", refuse)
    monkeypatch.setattr(pyplot, "switch_backend", refuse)
    plot_run(run, run / name)
    assert pyplot.get_fignums() == [mine.number]
    pyplot.close(mine)


@pytest.mark.parametrize("name", ["a.gif", "a", "a.pdf"])
def test_other_kinds_are_refused(name, run):
    with pytest.raises(InvalidArgument, match=r"ends in \.png or \.svg"):
        plot_run(run, run / name)
    assert not (run / name).exists()


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(StoreError, match="is it a run"):
        plot_run(tmp_path, tmp_path / "a.png")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"step": 5, "loss": 0.5}],
        [{"step": 5, "loss": 0.5}, {"step": 10, "loss": 0.0}],
        [{"step": 5, "mrr": 1}],
    ],
)
def test_few_lines_are_enough(lines, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    for line in lines:
        RunFolder(tmp_path).append_metrics(line)
    plot_run(tmp_path, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_train_then_plot(betae, graph_folder, tmp_path, write):
    run, recipe = tmp_path / "run", write("recipe.toml", RECIPE)
    code, out, _ = betae("train", graph_folder, "--recipe", recipe, "--out", run)
    assert code == 0
    best = max(line.get("mrr", -1) for line in RunFolder(run).read_metrics())
    assert re.match(
        rf"all steps done at step 60, 0\.\d minutes of training\n"
        rf"best validation MRR {best:.1f} % at step (30|60)\n",
        out,
    )
    assert f"written to {run}" in out
    code, _, err = betae("train", graph_folder, "--recipe", recipe, "--out", run)
    assert code == 2
    assert "is not empty" in err
    code, out, _ = betae("train", graph_folder, "--recipe", recipe, "--out", run, "--resume")
    assert code == 0
    assert out.startswith("all steps done at step 60")
    code, out, _ = betae("plot", run)
    assert code == 0
    assert f"written to {run / 'curves.png'}" in out
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = betae("plot", run, "--out", run / "curves.gif")
    assert code == 2
    assert "ends in .png or .svg" in err


def test_without_validation_no_mrr_is_printed(betae, graph_folder, tmp_path, write):
    recipe = write("recipe.toml", RECIPE.replace("queries = 4", "queries = 0"))
    code, out, _ = betae("train", graph_folder, "--recipe", recipe, "--out", tmp_path / "run")
    assert code == 0
    assert "all steps done at step 60" in out
    assert "-1.0 %" not in out


def test_sets_from_folders(betae, graph_folder, queries, valid, tmp_path, write):
    queries.save(tmp_path / "queries")
    valid.save(tmp_path / "valid")
    sets = ("--queries", tmp_path / "queries", "--valid", tmp_path / "valid")
    recipe = write("recipe.toml", RECIPE)
    run = tmp_path / "run"
    code, _, _ = betae("train", graph_folder, "--recipe", recipe, "--out", run, *sets)
    assert code == 0
    assert {"1p", "2p", "2i"} <= RunFolder(run).read_metrics()[-1].keys()
    assert "3i" not in RunFolder(run).read_metrics()[-1]  # only what the set has


def test_minutes(betae, graph_folder, tmp_path, write):
    recipe = write("recipe.toml", RECIPE.replace("steps = 60", "steps = 1000000"))
    arguments = ("--recipe", recipe, "--out", tmp_path / "run", "--minutes", "0.01")
    code, out, _ = betae("train", graph_folder, *arguments)
    assert code == 0
    assert out.startswith("time is up at step ")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            "batch_siz = 1\n",
            "The recipe has no setting 'batch_siz'. Did you mean 'batch_size'?",
        ),
        ("steps = \n", "is not valid TOML"),
        ("steps = -3\n", "steps is -3; it must be a whole number above 0."),
        ("[structures]\n9p = 1\n", "There is no structure '9p'."),
    ],
)
def test_a_bad_recipe_is_one_line_and_exit_2(recipe, message, betae, graph_folder, tmp_path, write):
    path = write("recipe.toml", recipe)
    code, _, err = betae("train", graph_folder, "--recipe", path, "--out", tmp_path / "run")
    assert code == 2
    assert message in err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()
