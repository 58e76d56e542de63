"""`betae complete` on small runs, from the command line."""

import shutil

import polars as pl
import pytest

from betae import KnowledgeGraph
from betae.graph.triples import Triples, read_triples
from betae.run import Run
from tests.answering.helpers import save_run
from tests.cli.test_cli import flat, run, run_main
from tests.training.helpers import graph_of

ODD = ["[red]x", "[/]", "a:key:b", "é", "plain"]

LOW, HIGH = 0.005, 0.01  # probabilities that many missing edges of a small run exceed

pytestmark = pytest.mark.usefixtures("quick")


def complete(folder, *arguments):
    result = run("complete", folder, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def drawn(frame):
    """What the table must show of some edges, word for word."""
    return [
        f"{row['probability']:.1%} {row['head']} {row['relation']} {row['tail']}"
        for row in frame.iter_rows(named=True)
    ]


def taken_apart(text):
    """The lines that are not blank, their words a space apart."""
    return [flat(line) for line in text.splitlines() if line.strip()]


# ---- a table ----------------------------------------------------------------------------------


def test_a_table_of_the_best(made):
    found = Run.open(made).complete(above=LOW).to_polars()
    number, header, *rows, more = taken_apart(complete(made, "--above", LOW))
    assert number == f"{len(found):,} missing edges"
    assert header == "probability missing edge"
    assert rows == drawn(found.head(30))
    assert more == f"{len(found) - 30:,} more: write all with --out"


@pytest.mark.parametrize(
    "chosen",
    [{"relation": "r1"}, {"entity": "e1"}, {"entity": "e1", "relation": "r2"}, {"edges": "train"}],
    ids=str,
)
def test_some_of_the_edges(made, chosen):
    options = [word for name, value in chosen.items() for word in (f"--{name}", value)]
    found = Run.open(made).complete(above=LOW, **chosen).to_polars()
    assert not found.equals(Run.open(made).complete(above=LOW).to_polars())
    number, _, *rows = taken_apart(complete(made, "--above", LOW, *options))
    assert number == f"{len(found):,} missing edges"
    assert rows[:30] == drawn(found.head(30))
    assert len(rows) == min(31, len(found))


def test_all_edges_are_known_and_half_is_probable_unless_told(made):
    shown = complete(made)
    assert shown == complete(made, "--above", 0.5, "--edges", "all")
    assert taken_apart(shown)[0] == "0 missing edges"
    assert shown != complete(made, "--above", HIGH)
    assert complete(made, "--above", HIGH) != complete(made, "--above", HIGH, "--edges", "train")


def test_names_are_not_markup(tmp_path):
    edges = [[0, 0, 1], [0, 0, 2], [1, 0, 3], [2, 0, 4], [3, 0, 0]]
    like = graph_of(edges[1:], edges[:1], num_entities=5, num_relations=1)
    graph = KnowledgeGraph.from_triples(Triples(ODD, ["[b]"], like.written_ids))
    folder = save_run(tmp_path / "run", graph)
    found = Run.open(folder).complete(above=0).to_polars()
    shown = flat(complete(folder, "--above", 0))
    assert len(found) < 30
    for head, relation, tail in found.select("head", "relation", "tail").iter_rows():
        assert f" {head} {relation} {tail} " in f"{shown} "


# ---- files ------------------------------------------------------------------------------------


def read(file):
    if file.suffix == ".tsv":  # the run has no rules, and so no reasons
        types = {"betae": pl.Float32, "support": pl.Int64, "cases": pl.Int64}
        return pl.read_csv(file, separator="\t", schema_overrides=types)
    return pl.read_parquet(file)


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_a_file_has_all_edges_and_columns(made, tmp_path, suffix):
    file = tmp_path / f"missing{suffix}"
    found = Run.open(made).complete(above=LOW, relation="r2").to_polars()
    assert len(found) > 30
    text = complete(made, "--above", LOW, "--relation", "r2", "--out", file)
    assert flat(text) == f"{len(found):,} missing edges written to {file}"
    assert read(file).equals(found)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    complete(made, "--above", HIGH, "--relation", "r2", "--out", file)  # replaces it
    assert read(file).equals(found.filter(pl.col("probability") > HIGH))


def test_n_triples_are_read_again(made, tmp_path):
    complete(made, "--above", HIGH, "--out", tmp_path / "missing.nt")
    assert (tmp_path / "missing.nt").read_text().startswith("<urn:betae:e")
    triples = read_triples(tmp_path / "missing.nt")
    splits = triples.splits["train"]
    again = {
        (triples.entities[h], triples.relations[r], triples.entities[t])
        for h, r, t in splits.tolist()
    }
    found = Run.open(made).complete(above=HIGH).to_polars().select("head", "relation", "tail")
    assert again == set(found.iter_rows())
    assert len(again) == len(found) > 30


def test_a_graph_that_has_moved(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "run")
    shutil.move(folder / "graph", tmp_path / "moved")
    moved = complete(folder, "--above", HIGH, "--graph", tmp_path / "moved")
    assert moved == complete(made, "--above", HIGH)


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--relation", "r9"], "The graph has no relation 'r9'. Closest: 'r0', 'r1', 'r2'."),
        (["--entity", "e111"], "The graph has no entity 'e111'. Closest: 'e11', "),
        (["--above", "1"], "must be at least 0 and below 1"),
        (["--above", "-0.1"], "'--above'"),
        (["--edges", "test"], "'train', 'train+valid', 'all'"),
        (["--graph", "nowhere"], "There is no folder nowhere."),
    ],
    ids=str,
)
def test_errors_are_one_message_and_exit_2(made, tmp_path, monkeypatch, capsys, arguments, message):
    out = ["--out", tmp_path / "missing.tsv"]
    code, text, error = run_main(monkeypatch, capsys, "complete", made, *arguments, *out)
    assert code == 2
    assert text == ""
    assert message in flat(error)
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["missing.xls", "missing", "missing.parquet.gz"])
def test_a_suffix_is_refused_before_any_work(made, tmp_path, monkeypatch, capsys, name):
    def work(*_):
        raise AssertionError("the run is opened")

    monkeypatch.setattr(Run, "open", work)
    code, text, error = run_main(monkeypatch, capsys, "complete", made, "--out", tmp_path / name)
    assert (code, text) == (2, "")
    assert f"{name}: " in flat(error)
    assert all(suffix in error for suffix in (".tsv", ".parquet", ".nt", ".jsonl", "neo4j"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(made, tmp_path, monkeypatch, capsys):
    file = tmp_path / "nowhere" / "missing.tsv"
    code, text, error = run_main(monkeypatch, capsys, "complete", made, "--out", file)
    assert (code, text) == (2, "")
    assert f"Cannot write {file}" in flat(error)
