"""The core without faiss and matplotlib: only indexes and plots need them, and errors say so."""

import sys

import pytest

from betae.cli import main
from betae.errors import InvalidArgument
from betae.evaluation.report import write_report
from betae.models.execute import embed_queries
from betae.queries.ast import Entity
from betae.run import Run
from betae.search import build_index
from betae.training.plot import plot_run
from tests.training.helpers import small_graph

RECIPE = """\
steps = 4
batch_size = 16
validation = {every = 4, queries = 4}
structures = {1p = 1, 2i = 1}
model = {dim = 4, hidden = 4}
"""


@pytest.fixture
def without_extras(monkeypatch):
    """Make `import faiss` and `import matplotlib` fail as if they were not installed."""
    for name in [*sys.modules]:
        if name.split(".")[0] in ("faiss", "matplotlib"):
            monkeypatch.setitem(sys.modules, name, None)
    for name in ("faiss", "matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "betae.evaluation.plots", raising=False)


def betae(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["betae", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


@pytest.mark.slow
@pytest.mark.usefixtures("without_extras")
def test_the_core_needs_neither(monkeypatch, tmp_path, write, capsys):
    small_graph().save(tmp_path / "graph")
    run = tmp_path / "run"
    recipe = write("recipe.toml", RECIPE)
    assert not betae(monkeypatch, "train", tmp_path / "graph", "--recipe", recipe, "--out", run)
    assert not betae(monkeypatch, "answer", run, "?X . r0(e1, ?X)")
    assert not betae(
        monkeypatch, "sample", tmp_path / "graph", "--split", "valid", "--out", tmp_path / "queries"
    )
    assert not betae(monkeypatch, "eval", run, "--queries", tmp_path / "queries", "--empty", 0)
    capsys.readouterr()

    assert betae(monkeypatch, "index", "build", run) == 2
    assert "faiss is not installed: pip install 'betae[index]'." in capsys.readouterr().err
    assert betae(monkeypatch, "plot", run, "--out", tmp_path / "curves.svg") == 2
    assert "matplotlib is not installed: pip install 'betae[plots]'." in capsys.readouterr().err
    with pytest.raises(InvalidArgument, match=r"pip install 'betae\[plots\]'"):
        plot_run(run, tmp_path / "curves.svg")
    with pytest.raises(InvalidArgument, match=r"pip install 'betae\[plots\]'"):
        write_report([run], tmp_path / "report")
    assert not (tmp_path / "report").exists()
    model = Run.open(run).model()
    with pytest.raises(InvalidArgument, match=r"pip install 'betae\[index\]'"):
        build_index(model, embed_queries(model, [Entity(1)[0]]))
