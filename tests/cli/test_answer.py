"""`betae answer` on a small run, from the command line."""

import csv
import io
import json
import shutil

import numpy as np
import pytest

from betae import KnowledgeGraph, Triples
from betae.run import Run
from tests.answering.helpers import save_run, strict
from tests.cli.test_cli import flat, run, run_main
from tests.training.helpers import small_graph

QUESTION = "?X . r0(e1, ?X)"
OTHER = "?X . r1(e2, ?X) & !r0(e1, ?X)"
ODD = ['a,"b"', "two\nlines", "[red]x[/red]", "a:key:b", "é", "plain"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp("runs") / "run", small_graph())


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A run on a graph whose names are hard to write."""
    splits = {
        "train": [[0, 0, 1], [0, 0, 2], [0, 0, 3], [4, 0, 5]],
        "valid": [[0, 0, 4]],
        "test": [],
    }
    splits = {name: np.array(rows, np.int32).reshape(-1, 3) for name, rows in splits.items()}
    graph = KnowledgeGraph.from_triples(Triples(ODD, ["r"], splits))
    return save_run(tmp_path_factory.mktemp("runs") / "odd", graph)


def answer(folder, *arguments, **keywords):
    result = run("answer", folder, *arguments, **keywords)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def json_lines(text):
    return [strict(line) for line in text.splitlines()]


# ---- forms ------------------------------------------------------------------------------------


def test_a_table(made):
    lines = answer(made, QUESTION, "-k", 4).splitlines()
    found = Run.open(made).answerer().answer(QUESTION, 4)
    assert lines[0] == found.query
    assert lines[1] == found.summary()
    assert lines[2].split() == ["rank", "probability", "answer"]
    rows = [line.split() for line in lines[3:] if line.strip()]
    assert rows == [[str(a.rank), f"{a.probability:.1%}", a.status, a.label] for a in found]


def test_jsonl(made):
    (told,) = json_lines(answer(made, QUESTION, "--format", "jsonl", "-k", 3))
    found = Run.open(made).answerer().answer(QUESTION, 3).to_json()
    assert told == json.loads(json.dumps(found))


def test_csv(made):
    text = answer(made, QUESTION, "--format", "csv", "-k", 3)
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    found = Run.open(made).answerer().answer(QUESTION, 3)
    assert list(rows[0]) == ["query", "entity", "label", "rank", "score", "probability", "status"]
    assert [row["entity"] for row in rows] == [a.entity for a in found]
    assert [float(row["score"]) for row in rows] == [a.score for a in found]
    assert {row["query"] for row in rows} == {found.query}


def test_csv_quotes_what_it_must(odd):
    question = '?X . r("a,\\"b\\"", ?X)'
    text = answer(odd, question, "--format", "csv")
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert {row[header.index("entity")] for row in rows} == set(ODD)
    assert {row[0] for row in rows} == {question}


def test_odd_names_in_a_table_and_in_json(odd):
    question = '?X . r("a,\\"b\\"", ?X)'
    shown = answer(odd, question, "--explain")
    assert "[red]x[/red]" in shown
    assert "a:key:b" in shown
    (told,) = json_lines(answer(odd, question, "--format", "jsonl"))
    assert {row["entity"] for row in told["answers"]} == set(ODD)


# ---- questions --------------------------------------------------------------------------------


def test_a_file_of_questions(made, write):
    file = write("questions.txt", f"# two questions\n\n{QUESTION}\n   \n{OTHER}\n")
    told = json_lines(answer(made, "--queries", file, "--format", "jsonl", "-k", 2))
    answerer = Run.open(made).answerer()
    assert [line["query"] for line in told] == [
        answerer.answer(text).query for text in (QUESTION, OTHER)
    ]
    rows = list(csv.DictReader(io.StringIO(answer(made, "--queries", file, "--format", "csv"))))
    assert len(rows) == 20  # one header
    assert answer(made, "--queries", file).count("expected") == 2


def test_questions_from_standard_input(made, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n{OTHER}\n"))
    arguments = ["--queries", "-", "--format", "jsonl", "-k", "1"]
    code, text, _ = run_main(monkeypatch, capsys, "answer", made, *arguments)
    assert code == 0
    assert [len(line["answers"]) for line in json_lines(text)] == [1, 1]


def test_no_question_in_the_file(made, write):
    assert answer(made, "--queries", write("none.txt", "# nothing\n"), "--format", "jsonl") == ""


def test_sparql_as_text_and_as_a_file(made, write):
    sparql = "PREFIX : <> SELECT ?x WHERE { :e1 :r0 ?x }"
    expected = answer(made, QUESTION, "--format", "jsonl")
    assert answer(made, sparql, "--format", "jsonl") == expected
    assert answer(made, write("query.rq", sparql), "--format", "jsonl") == expected


def test_explain(made):
    plain, explained = answer(made, OTHER), answer(made, OTHER, "--explain")
    assert "missing" not in plain
    assert "missing" in explained
    assert "is none of" in explained
    (told,) = json_lines(answer(made, OTHER, "--explain", "--format", "jsonl", "-k", 1))
    assert told["answers"][0]["why"]["status"] == "and"


def test_filters_and_views(made):
    def entities(*arguments):
        (told,) = json_lines(answer(made, QUESTION, "--format", "jsonl", "-k", 30, *arguments))
        return [row["entity"] for row in told["answers"]], told

    everything, _ = entities()
    known, _ = entities("--only", "known")
    predicted, _ = entities("--only", "predicted")
    assert sorted(known + predicted) == sorted(everything)
    assert len(everything) == 30
    sure, _ = entities("--threshold", 1)
    assert sure == known
    _, more = entities("--edges", "all")
    assert more["num_known"] >= len(known)
    assert entities("--union", "DM")[0] == everything


def test_a_graph_that_has_moved(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "run")
    expected = answer(made, QUESTION)
    shutil.move(folder / "graph", tmp_path / "moved")
    assert answer(folder, QUESTION, "--graph", tmp_path / "moved") == expected


def test_the_first_time_only_the_answer_is_on_stdout(made, tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(made, tmp_path / "run")
    (folder / "calibration.json").unlink(missing_ok=True)
    arguments = ["answer", folder, QUESTION, "--format", "jsonl"]
    code, text, _ = run_main(monkeypatch, capsys, *arguments)
    assert code == 0
    assert len(json_lines(text)) == 1


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give a question"),
        ([QUESTION, "--queries", "x.txt"], "not both"),
        ([QUESTION, "--format", "xml"], "'table', 'jsonl', 'csv'"),
        ([QUESTION, "--only", "sure"], "'known', 'predicted'"),
        ([QUESTION, "--edges", "some"], "'train', 'train+valid', 'all'"),
        ([QUESTION, "--union", "or"], "'DNF', 'DM'"),
        ([QUESTION, "-k", "0"], "'-k'"),
        ([QUESTION, "--threshold", "2"], "'--threshold'"),
        (["--queries", "nowhere.txt"], "nowhere.txt"),
        (["?X . r0(e99x, ?X)"], "Closest"),
        (["?X . r0(e1, ?X"], "^"),
    ],
)
def test_errors_are_one_message_and_exit_2(made, monkeypatch, capsys, arguments, message):
    code, text, error = run_main(monkeypatch, capsys, "answer", made, *arguments)
    assert code == 2
    assert text == ""
    assert message in flat(error)
    assert "Traceback" not in error


def test_what_is_no_run(tmp_path, monkeypatch, capsys):
    code, _, error = run_main(monkeypatch, capsys, "answer", tmp_path, QUESTION)
    assert code == 2
    assert "is not a run" in flat(error)


@pytest.mark.parametrize("form", ["csv", "table", "jsonl"])
def test_a_bad_line_among_good_ones_is_named(made, write, form):
    file = write("questions.txt", f"{QUESTION}\n?X . r0(nobody, ?X)\n")
    result = run("answer", made, "--queries", file, "--format", form)
    assert result.exit_code == 1  # of the runner: betae's own error comes as the exception
    assert "nobody" in str(result.exception)


def test_help():
    assert "--explain" in run("answer", "-h").output
