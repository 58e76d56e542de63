"""Whatever goes wrong, a person reads one message: never a traceback."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from betae import KnowledgeGraph, cli
from betae.cli import common
from betae.errors import InvalidArgument, StoreError
from betae.graph.edges import SPLITS
from betae.graph.triples import Triples
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import sample_queries
from betae.run import Run, train
from betae.storage import check_file, check_parent
from tests.answering.helpers import save_run
from tests.cli.test_cli import flat, run, run_main, run_process
from tests.training.helpers import graph_of, small_config, small_graph

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202ename\x7f"


def shell(command, **environment):
    """Run a command of the shell in which $BETAE stands for the program."""
    betae = f"{sys.executable} -m betae"
    environment = {**os.environ, "BETAE": betae, **environment}
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        env=environment,
    )


# ---- the output -------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", ["--help", "--version", "info GRAPH", "info GRAPH --json"])
def test_a_full_device(made, words):
    done = shell(f"$BETAE {words.replace('GRAPH', str(made / 'graph'))} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "Error: The output cannot be written: No space left on device.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_messages_that_cannot_be_written():
    done = shell("$BETAE info nowhere 2> /dev/full")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.parametrize("words", ["--help", "info GRAPH", "info GRAPH --json"])
def test_a_reader_that_has_had_enough(made, words):
    done = shell(f"$BETAE {words.replace('GRAPH', str(made / 'graph'))} | true")
    assert done.returncode in (0, 1)  # it may have written all before the reader left
    assert done.stderr == ""


def test_an_output_that_is_closed(made):
    done = shell(f"$BETAE info {made / 'graph'} >&-")
    assert done.stderr == ""


@pytest.fixture
def foreign(tmp_path):
    """A graph whose names ASCII lacks."""
    splits = {"train": [[0, 0, 1]], "valid": [], "test": []}
    graph = KnowledgeGraph.from_triples(Triples(["Zürich", "日本…"], ["größer"], _arrays(splits)))
    graph.save(tmp_path / "graph")
    return tmp_path / "graph"


def _arrays(splits):
    import numpy as np

    return {name: np.array(splits[name], np.int32).reshape(-1, 3) for name in SPLITS}


@pytest.mark.slow
def test_an_output_in_ascii(foreign):
    environment = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = run_process("info", foreign, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfer" in done.stdout
    assert "#####" in done.stdout  # for the bar
    told = json.loads(run_process("info", foreign, "--json", **environment).stdout)
    assert told["frequent_relations"] == {"größer": 1}
    query = '?X . größer("日本…", ?X)'
    done = run_process("explain", query, "--graph", foreign, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u65e5\\u672c..." in done.stdout
    for words in (["--help"], ["train", "--help"]):
        done = run_process(*words, **environment)
        assert (done.returncode, done.stderr) == (0, "")


# ---- control characters -----------------------------------------------------------------------


def commands_of(text):
    """What of a text a terminal would take for a command."""
    return re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_controls_are_escaped():
    assert common.escape_controls("plain [red] ü\n\tx") == "plain [red] ü\n\tx"
    assert common.escape_controls(EVIL) == r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202ename\x7f"
    assert common.escape_controls("half \ud800") == r"half \ud800"


def test_names_do_not_command_the_terminal(tmp_path, monkeypatch, capsys):
    """In tables, trees, messages, JSON and CSV of every command that shows names."""
    edges = [[0, 0, tail] for tail in range(1, 8)]
    splits = {"train": edges[:5], "valid": edges[5:6], "test": edges[6:]}
    name = f"{EVIL}[b]"
    names = [f"{name}{number}" for number in range(8)]
    graph = KnowledgeGraph.from_triples(Triples(names, [name], _arrays(splits)))
    graph.save(tmp_path / "graph")
    folder = save_run(tmp_path / "run", KnowledgeGraph.open(tmp_path / "graph"))
    relation, anchor = f'"{name}"', f'"{name}0"'
    question = f"?X . {relation}({anchor}, ?X)"
    monkeypatch.setattr("betae.answering.edge_fit.FIT_ROWS", 20)
    monkeypatch.setattr("betae.answering.edge_fit.FIT_PAIRS", 20)
    texts = []
    for arguments in (
        *([kind, tmp_path / "graph"] for kind in ("info", "entities", "relations")),
        *([kind, tmp_path / "graph", "--json"] for kind in ("info", "entities", "relations")),
        ["entities", tmp_path / "graph", "--search", "x" + EVIL],
        ["explain", question, "--graph", tmp_path / "graph"],
        ["answer", folder, question, "--explain"],
        ["answer", folder, question, "--json"],
        ["answer", folder, f'?X . {relation}({anchor[:-1]}nobody", ?X)'],
        ["answer", folder, f"?X . r{EVIL}({anchor}, ?X)"],
        ["complete", folder, "--above", "0"],
        ["complete", folder, "--relation", "x" + EVIL],
        ["sample", tmp_path / "graph", f"?X . {relation}(_, ?X):2", "--out", tmp_path / "set"],
        ["info", tmp_path / f"{EVIL}"],
    ):
        code, out, error = run_main(monkeypatch, capsys, *arguments)
        assert code in (None, 0, 2), (arguments, error)
        assert commands_of(out + error) == [], arguments
        assert "b]" in out or not out or "--search" in arguments  # it is not markup
        texts.append(out + error)
    for arguments in (["query", tmp_path / "graph"], ["answer", folder]):
        csv = [*arguments, question, "--format", "csv"]
        assert commands_of(run_main(monkeypatch, capsys, *csv)[1].replace("\r\n", ""))  # a file
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout.isatty", lambda: True, raising=False)
            texts.append(run_main(patch, capsys, *csv)[1].replace("\r\n", ""))
        assert commands_of(texts[-1]) == [], arguments
    assert all("name" in text or "owned" in text for text in texts)


# ---- files ------------------------------------------------------------------------------------


def test_glob_characters_in_a_path(tmp_path):
    queries = sample_queries(small_graph(), {"1p": 5}, "valid")
    queries.save(tmp_path / "tq[x]*")
    found = QuerySet.open(tmp_path / "tq[x]*")
    assert [len(block) for block in found.blocks.values()] == [5]


@pytest.fixture
def blocked(tmp_path):
    """A place where nothing can be written, even by root: there is a file in the way."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "inner"


def test_a_place_that_cannot_be_written(blocked, tmp_path):
    for check in (check_parent, check_file):
        with pytest.raises(StoreError, match=f"Cannot write {blocked}: Not a directory"):
            check(blocked)
    check_parent(tmp_path / "new" / "folder")
    check_file(tmp_path / "new")
    with pytest.raises(StoreError, match="No such file or directory"):
        check_file(tmp_path / "new" / "file")
    with pytest.raises(StoreError, match="is a folder"):
        check_file(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_places_are_tried_before_the_work(made, blocked, monkeypatch):
    """Each of these would sample, train, evaluate, search or draw first."""

    def fail(*_, **__):
        pytest.fail("the work began")

    for name in (
        "betae.training.loop.make_learner",
        "betae.querysets.sample.sample_queries",
        "betae.evaluation.evaluate.evaluate",
        "betae.search.typical_queries",
        "betae.run.complete",
        "betae.training.plot.RunFolder",
        "betae.datasets.world",
    ):
        monkeypatch.setattr(name, fail)
    graph = made / "graph"
    queries = sample_queries(KnowledgeGraph.open(graph), {"1p": 5}, "valid")
    run_in_the_way = Run(blocked.parent)
    for arguments in (
        ["train", graph, "--out", blocked],
        ["sample", graph, "--out", blocked],
        ["complete", made, "--out", blocked / "x.tsv"],
        ["plot", made, "--out", blocked / "x.svg"],
        ["index", "export", made, blocked / "x.npy"],
        ["demo", "--out", blocked],
    ):
        result = run(*arguments)
        assert isinstance(result.exception, StoreError), (arguments, result.exception)
        assert "Cannot write" in str(result.exception)
    monkeypatch.setattr(Run, "graph", KnowledgeGraph.open(graph))
    monkeypatch.setattr(
        type(run_in_the_way._parts), "open_graph", lambda *_, **__: KnowledgeGraph.open(graph)
    )
    for work in (run_in_the_way.build_index, lambda: run_in_the_way.evaluate(queries)):
        with pytest.raises(StoreError, match="Cannot write"):
            work()


def as_a_user():
    """Return what starts a program that file permissions bind, even if root runs the tests."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root may write everywhere")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("locked", "words", "message"),
    [
        ("graph/manifest.json", "info graph", "graph/manifest.json cannot be read: Permission"),
        (
            "graph/train.npy",
            "info graph",
            "graph/train.npy cannot be read: Permission",
        ),
        ("recipe.toml", "train graph --recipe recipe.toml --out x", "recipe.toml cannot be read"),
        ("q.txt", "explain q.txt", "q.txt: Permission denied."),
        (".", "ingest facts.tsv --out new", "Cannot write new: Permission denied."),
    ],
)
def test_permissions(made, tmp_path, locked, words, message):
    shutil.copytree(made / "graph", tmp_path / "graph")
    (tmp_path / "recipe.toml").write_text("steps = 3")
    (tmp_path / "q.txt").write_text("?X . r0(e1, ?X)")
    (tmp_path / "facts.tsv").write_text("a\tr\tb\n")
    path = tmp_path / locked
    assert path.exists()
    path.chmod(0o555 if path.is_dir() else 0)
    try:
        done = subprocess.run(
            [*as_a_user(), sys.executable, "-m", "betae", *words.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
        )
    finally:
        path.chmod(0o755)
    assert done.returncode == 2
    assert message in flat(done.stderr)
    assert "Traceback" not in done.stderr


# ---- what nobody foresaw ----------------------------------------------------------------------


def test_a_surprise_is_one_line_and_a_report(made, monkeypatch, capsys, tmp_path):
    def fail(_):
        raise ZeroDivisionError("of all\nthings")

    monkeypatch.setattr("betae.graph.describe.describe_graph", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, out, error = run_main(monkeypatch, capsys, "info", made / "graph")
    assert code == 1
    assert out == ""
    (line,) = error.splitlines()
    (report,) = tmp_path.glob("betae-error-*.txt")
    assert line == (
        f"Error: This is a bug in betae (ZeroDivisionError: of all). The full report is in {report}"
    )
    text = report.read_text()
    assert "Traceback (most recent call last)" in text
    assert "ZeroDivisionError: of all" in text
    assert f"info {made / 'graph'}" in text


def test_a_report_that_cannot_be_written(made, monkeypatch, capsys, blocked):
    def fail(_):
        raise RuntimeError

    monkeypatch.setattr("betae.graph.describe.describe_graph", fail)
    monkeypatch.setattr("tempfile.tempdir", str(blocked))
    code, _, error = run_main(monkeypatch, capsys, "info", made / "graph")
    assert code == 1
    assert "(RuntimeError). The full report could not be written: " in flat(error)
    assert "Traceback" not in error


def test_a_file_that_the_system_refuses(made, monkeypatch, capsys):
    def fail(_):
        raise PermissionError(13, "Permission denied", "secret.txt")

    monkeypatch.setattr("betae.graph.describe.describe_graph", fail)
    code, _, error = run_main(monkeypatch, capsys, "info", made / "graph")
    assert (code, error) == (2, "Error: secret.txt: Permission denied.\n")


def test_a_config_that_is_refused_leaves_no_run(tmp_path):
    """r1 alone has no two steps: the first batch cannot be made."""
    graph = graph_of([(0, 0, 1), (2, 0, 3), (4, 0, 5), (6, 0, 7)], num_entities=8, num_relations=1)
    config = small_config(structures={"?X . exists ?Y : r0(_, ?Y) & r0(?Y, ?X)": 1.0})
    with pytest.raises(InvalidArgument, match="no training queries like"):
        train(graph, tmp_path / "run", config)
    assert not (tmp_path / "run").exists()
    train(graph, tmp_path / "run", small_config(structures={"1p": 1.0}, steps=2))
