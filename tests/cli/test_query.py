"""betae query: all exact answers, in every format, as they are found."""

import csv
import io
import json
import os
import subprocess
import sys

import polars as pl
import pytest

import betae
from tests.cli.test_cli import flat, run_main, run_process
from tests.graph.test_names import FILM

CAPITALS = "?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)"
PAIRS = "?C, ?X . located_in(?C, Europe) & capital(?C, ?X)"


@pytest.fixture
def ask(monkeypatch, capsys):
    return lambda *arguments: run_main(monkeypatch, capsys, "query", *arguments)


def test_a_table(ask, world_store, world):
    code, out, _ = ask(world_store, CAPITALS)
    head, *names, count = out.splitlines()
    found = [world.entity_label(entity) for entity in world.answers(CAPITALS)]
    assert not code
    assert (head, names, count) == ("?X", found, f"{len(found)} answers")


def test_columns_are_aligned(ask, world_store):
    _, out, _ = ask(world_store, PAIRS)
    head, *lines, count = out.splitlines()
    place = head.index("?X")
    assert len(lines) == int(count.split()[0]) > 40
    assert all(line[place - 2 : place] == "  " and line[place] != " " for line in lines)


def test_a_table_shows_labels_and_names(ask, toy_store):
    assert ask(toy_store, "?X . parent(?X, cat)")[1].splitlines() == [
        "?X",
        "Ann Lee (ann)",
        "1 answer",
    ]


def test_csv_and_jsonl(ask, world_store, world):
    wanted = list(world.select(PAIRS))
    _, out, _ = ask(world_store, PAIRS, "--format", "csv")
    assert list(csv.DictReader(io.StringIO(out))) == wanted
    assert out.splitlines()[0] == "C,C_label,X,X_label"
    _, out, _ = ask(world_store, PAIRS, "--format", "jsonl")
    assert [json.loads(line) for line in out.splitlines()] == wanted
    assert ask(world_store, PAIRS, "--json")[1] == out


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_files(ask, world_store, world, tmp_path, suffix):
    path, wanted = tmp_path / f"found.{suffix}", list(world.select(PAIRS))
    code, out, _ = ask(world_store, PAIRS, "--out", path)
    assert not code
    assert flat(out) == f"{len(wanted)} answers written to {path}"
    read = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}
    assert read[suffix](path).to_dicts() == wanted
    assert list(tmp_path.iterdir()) == [path]


def test_which_edges_and_how_many(ask, toy_store):
    text = "SELECT ?x ?y { ?x <friend> ?y }"
    assert ask(toy_store, text)[1].splitlines()[-1] == "3 answers"
    assert ask(toy_store, text, "--edges", "train+valid")[1].splitlines()[-1] == "2 answers"
    assert ask(toy_store, text, "--edges", "train")[1].splitlines()[-1] == "1 answer"
    assert ask(toy_store, text, "--limit", "2")[1].splitlines()[-1] == "2 answers"
    assert ask(toy_store, f"{text} LIMIT 1", "--limit", "2")[1].splitlines()[-1] == "1 answer"


def test_a_question_in_a_file(ask, toy_store, write):
    path = write("question.txt", "# Ann's children\n?X . parent(ann, ?X)  # all of them\n")
    assert ask(toy_store, path, "--format", "csv")[1].splitlines()[1:] == ["bob,Bob Lee", "cat,Sam"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("?X . in(Norway, ?X)", "write in(?X, Norway), or ~in(Norway, ?X)"),
        ("?X, ?Y . in(Norway, ?X) & parent(?X, ?Y)", "write in(?X, Norway), or ~in(Norway, ?X)"),
        ("SELECT ?x { <Norway> <in> ?x }", "Norway is never a head of in, only a tail"),
        ("?X . parent(bob, ?X) & in(Oslo, ?X)", None),
    ],
)
def test_no_answers(ask, toy_store, text, hint):
    code, out, err = ask(toy_store, text)
    assert not code
    assert out == "no answers\n"
    assert (hint in err) if hint else not err
    assert ask(toy_store, text, "--format", "jsonl")[1] == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", CAPITALS], "There is no folder nowhere."),
        (["GRAPH", "France"], "'France' is neither a question nor a file."),
        (["GRAPH", "?X . capitals(France, ?X)"], "Closest: 'capital'"),
        (["GRAPH", "?X . capital(France ?X)"], "Expected ','"),
        (["GRAPH", CAPITALS, "--format", "parquet"], "needs a file: --out answers.parquet"),
        (["GRAPH", CAPITALS, "--out", "a.tsv"], "must end in .csv, .jsonl or .parquet"),
        (["GRAPH", CAPITALS, "--out", "a.csv", "--format", "jsonl"], "does not match --out"),
        (["GRAPH", CAPITALS, "--out", "no/folder/a.csv"], "no/folder"),
        (["GRAPH", CAPITALS, "--json", "--format", "csv"], "--json or --format csv, not both"),
        (["GRAPH", CAPITALS, "--limit", "0"], "greater than or equal to 1"),
        (["GRAPH", CAPITALS, "--edges", "valid"], "is not one of 'train', 'train+valid', 'all'"),
        (["GRAPH", "?X . " + "!" * 3000 + "capital(France, ?X)"], "200 operators deep"),
    ],
)
def test_what_is_wrong(ask, world_store, arguments, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, err = ask(*(world_store if each == "GRAPH" else each for each in arguments))
    assert code == 2
    assert not out
    assert words in flat(err)
    assert not list(tmp_path.iterdir())


def test_many_parentheses(ask, world_store):
    text = "?X . " + "(" * 30_000 + "capital(France, ?X)" + ")" * 30_000
    assert ask(world_store, text)[1].split() == ["?X", "Paris", "1", "answer"]


@pytest.mark.parametrize("form", ["table", "csv", "jsonl"])
def test_a_pipe_that_closes_ends_it_silently(world_store, form):
    """There are 200 million rows: they must not be found first."""
    text = "?X, ?Y, ?Z . !capital(?X, ?Y) & !capital(?Y, ?Z)"
    command = [sys.executable, "-m", "betae", "query", world_store, text, "--format", form]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait(timeout=60)


# ---- a file of questions ------------------------------------------------------------------------

MANY = f"# two questions\n{CAPITALS}\n\n?X . capital(Frnace, ?X)\n{PAIRS}\n"


def test_a_file_of_questions(ask, world_store, world, write, tmp_path):
    code, out, err = ask(world_store, "--queries", write("many.txt", MANY), "--json")
    first, bad, last = map(json.loads, out.splitlines())
    assert first == {"line": 2, "text": CAPITALS, "answers": list(world.select(CAPITALS))}
    assert last == {"line": 5, "text": PAIRS, "answers": list(world.select(PAIRS))}
    assert (code, bad["line"]) == (2, 4)
    assert bad["error"].startswith("The graph has no entity 'Frnace'.")
    assert "many.txt, line 4: The graph has no entity 'Frnace'." in flat(err)
    assert flat(err).endswith("1 of 3 questions could not be answered.")
    target = tmp_path / "found.jsonl"
    code, told, _ = ask(world_store, "--queries", tmp_path / "many.txt", "--out", target)
    assert (code, told) == (2, f"3 questions written to {target}\n")
    assert target.read_text("utf-8") == out


def test_a_file_of_questions_as_tables(ask, world_store, write):
    file = write("many.txt", "?X . capital(France, ?X)\n?X . capital(Paris, ?X)\n")
    code, out, err = ask(world_store, "--queries", file)
    question, head, answer, count, *others = out.splitlines()
    assert (code, question) == (0, "?X . capital(France, ?X)")
    assert (head, answer, count) == ("?X", "Paris", "1 answer")
    assert others == ["?X . capital(Paris, ?X)", "no answers"]
    assert "capital(?X, Paris)" in flat(err)  # the other way round


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give a question, or a file of questions with --queries."),
        ([CAPITALS, "--queries", "FILE"], "Give a question or --queries, not both."),
        (["--queries", "nowhere.txt"], "nowhere.txt cannot be read: No such file or directory."),
        (["--queries", "FILE", "--format", "csv"], "--queries cannot write csv"),
        (["--queries", "FILE", "--out", "x.parquet"], "--queries cannot write parquet"),
    ],
)
def test_questions_that_cannot_be_asked_so(ask, world_store, write, arguments, message):
    file = write("many.txt", MANY)
    arguments = [file if argument == "FILE" else argument for argument in arguments]
    code, out, err = ask(world_store, *arguments)
    assert (code, out) == (2, "")
    assert message in flat(err)


@pytest.mark.slow
def test_it_is_fast_and_loads_little(world_store):
    seconds = []
    for _ in range(3):
        before = os.times()
        done = run_process("query", world_store, CAPITALS)
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
    assert done.returncode == 0
    assert min(seconds) < 1  # 0.6 on an idle machine
    code = "import sys; from betae.cli import main\ntry: main(sys.argv[1:])\nfinally: print("
    code += "[n for n in ('torch', 'numba', 'scipy', 'polars', 'rdflib') if n in sys.modules])"
    command = [sys.executable, "-c", code, "query", world_store, CAPITALS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_file_is_to_be_ingested(ask, write):
    file = write("facts.tsv", "a\tr\tb\n")
    code, _, error = ask(file, "?X . r(a, ?X)")
    assert code == 2
    assert f"facts.tsv is a file. Make a graph of it first: betae ingest {file}" in flat(error)


def test_prefixes_are_shown_and_accepted(ask, write, tmp_path):
    betae.KnowledgeGraph.from_triples(write("film.ttl", FILM)).save(tmp_path / "film")
    wrong, told = ask(tmp_path / "film", "?X . schema:director(':mann', ?X)")[1:]
    assert wrong == "no answers\n"
    assert 'of "directed by", only a tail: write "directed by"(?X, "Michael Mann")' in flat(told)
    head, *rows, _ = ask(tmp_path / "film", "?X . schema:director(?X, ':mann')")[1].splitlines()
    assert head == "?X"
    assert "Heat (:heat)" in rows
    assert not any("http" in row for row in rows)
