"""`betae answer` on a small run, from the command line."""

import csv
import io
import json
import shutil

import numpy as np
import pytest

from betae import KnowledgeGraph
from betae.answering.results import STATUSES, shown_chance, shown_label
from betae.cli.show import shown_derivation
from betae.exact.select import select
from betae.graph.triples import Triples
from betae.run import METHODS, Run
from tests.answering.helpers import save_run, strict
from tests.cli.test_cli import flat, run, run_main
from tests.training.helpers import small_graph

QUESTION = "?X . r0(e1, ?X)"
OTHER = "?X . r1(e2, ?X) & !r0(e1, ?X)"
HELD_OUT = "?X . r1(e16, ?X)"  # e8, by a validation edge
ODD = ['a,"b"', "two\nlines", "[red]x[/red]", "a:key:b", "é", "plain"]

pytestmark = pytest.mark.usefixtures("quick")


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
    assert rows == [
        [str(a.rank), f"{a.probability:.1%}", a.status, *shown_label(a).split()] for a in found
    ]


@pytest.mark.parametrize("method", ["completed", "embedding"])
def test_csv(made, method):
    text = answer(made, QUESTION, "--format", "csv", "-k", 3, "--method", method)
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    columns = ["entity", "label", "rank", "probability", "status", "score", "num_derivations"]
    assert header == ["query", *columns, "unusual"]
    found = Run.open(made).answerer(method=method).answer(QUESTION, 3)
    assert [a.score is None for a in found] == [method == "completed"] * 3
    assert rows == [
        [
            *(found.query, a.entity, a.label, str(a.rank), str(a.probability), a.status),
            "" if a.score is None else str(a.score),
            "" if a.num_derivations is None else str(a.num_derivations),
            a.unusual or "",
        ]
        for a in found
    ]


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
    plain, explained = answer(made, OTHER, "-k", 2), answer(made, OTHER, "-k", 2, "--explain")
    assert explained.startswith(plain)
    lines = [line.strip() for line in explained.removeprefix(plain).splitlines()]
    found = Run.open(made).answerer().answer(OTHER, 2, explain=True)
    assert [a.status for a in found] == ["assumed", "predicted"]
    guess, absence = found[1].why.sources
    assert lines == [
        "e8",
        "├── e2 r1 e8  known",
        "└── e8 is not among r0(e1, ?X)  not >99%",
        found[1].label,
        f"├── e2 r1 {found[1].label}  missing {shown_chance(guess)}",
        f"└── {found[1].label} is not among r0(e1, ?X)  not {shown_chance(absence)}",
    ]
    (told,) = json_lines(answer(made, OTHER, "--explain", "--format", "jsonl", "-k", 2))
    assert [row["why"]["status"] for row in told["answers"]] == ["and", "and"]
    assert told == json.loads(json.dumps(found.to_json()))


def told_of(folder, question, *arguments):
    """All that is said of one question, as JSON."""
    (told,) = json_lines(answer(folder, question, "--format", "jsonl", "-k", 30, *arguments))
    return told


def entities(told):
    return [row["entity"] for row in told["answers"]]


def test_only_some_of_the_answers(made):
    everything = told_of(made, OTHER)
    parts = {status: told_of(made, OTHER, "--only", status) for status in STATUSES}
    assert [row["status"] for row in everything["answers"]] == ["assumed"] + ["predicted"] * 28
    for status, told in parts.items():
        expected = [row for row in everything["answers"] if row["status"] == status]
        assert told == {**everything, "answers": expected}
    assert entities(told_of(made, QUESTION, "--only", "known")) == ["e11"]
    shown = answer(made, OTHER, "--only", "assumed")
    assert "1 known answer, 1 assumed; about " in shown
    assert shown.splitlines()[-1] == "assumed: known unless a fact is missing"
    assert "assumed:" not in answer(made, OTHER, "--only", "predicted")


def test_a_threshold(made):
    everything = told_of(made, QUESTION)["answers"]
    threshold = everything[5]["probability"]
    assert told_of(made, QUESTION, "--threshold", threshold)["answers"] == everything[:6]
    assert entities(told_of(made, QUESTION, "--threshold", 1)) == ["e11"]
    assert told_of(made, OTHER, "--threshold", 1)["answers"] == []  # an absence is never certain


def test_all_edges_are_known_unless_told(made):
    everything = answer(made, HELD_OUT, "-k", 3)
    assert everything == answer(made, HELD_OUT, "-k", 3, "--edges", "all")
    assert everything.splitlines()[1].startswith("1 known answer; about ")
    assert entities(told_of(made, HELD_OUT, "--only", "known")) == ["e8"]
    for edges, known, words in (
        ("train", 0, "0 known answers (training edges only); about "),
        ("train+valid", 1, "1 known answer (training and validation edges only); about "),
    ):
        summary = answer(made, HELD_OUT, "--edges", edges).splitlines()[1]
        assert summary.startswith(words)
        told = told_of(made, HELD_OUT, "--edges", edges)
        assert (told["edges"], told["num_known"], told["num_by_all"]) == (edges, known, 1)
        status = {row["entity"]: row["status"] for row in told["answers"]}["e8"]
        assert status == ("known" if known else "predicted")


def test_two_methods(made):
    """Each is that of the library; they agree on the facts and rank the rest differently."""
    told = {method: told_of(made, OTHER, "--method", method) for method in METHODS}
    for method, each in told.items():
        found = Run.open(made).answerer(method=method).answer(OTHER, 30)
        assert each == json.loads(json.dumps(found.to_json()))
        assert each["method"] == method
    assert told_of(made, OTHER) == told["completed"]
    assert told["completed"]["num_known"] == told["embedding"]["num_known"] == 1
    assert entities(told["completed"])[0] == entities(told["embedding"])[0] == "e8"
    assert entities(told["completed"]) != entities(told["embedding"])
    assert told["completed"]["entropy"] is None
    assert told["embedding"]["entropy"] is not None


def test_by_embedding_a_union_has_two_forms(made):
    union = "?X . r0(e1, ?X) | r1(e2, ?X)"
    dnf, de_morgan = (
        told_of(made, union, "--method", "embedding", "--union", form) for form in ("DNF", "DM")
    )
    assert dnf == told_of(made, union, "--method", "embedding")
    assert dnf != de_morgan
    expected = Run.open(made).answerer(method="embedding", union="DM").answer(union, 30)
    assert de_morgan == json.loads(json.dumps(expected.to_json()))


def test_with_an_index(made, tmp_path):
    """Candidates are scored exactly, and here all of 30 entities are candidates."""
    folder = shutil.copytree(made, tmp_path / "run")
    assert "betae index build" in str(run("answer", folder, QUESTION, "--index").exception)
    Run.open(folder).build_index()
    for method in ("completed", "embedding"):
        expected = answer(made, QUESTION, "-k", 30, "--method", method)
        assert answer(folder, QUESTION, "-k", 30, "--index", "--method", method) == expected


def test_a_graph_that_has_moved(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "run")
    expected = answer(made, QUESTION)
    shutil.move(folder / "graph", tmp_path / "moved")
    assert answer(folder, QUESTION, "--graph", tmp_path / "moved") == expected


@pytest.mark.parametrize(
    ("method", "file"), [("completed", "edges.json"), ("embedding", "calibration.json")]
)
def test_the_first_time_only_the_answer_is_on_stdout(tmp_path, monkeypatch, capsys, method, file):
    folder = save_run(tmp_path / "run", small_graph())
    arguments = ["answer", folder, QUESTION, "--format", "jsonl", "--method", method]
    texts = []
    for _ in range(2):
        code, text, _ = run_main(monkeypatch, capsys, *arguments)
        assert code == 0
        assert (folder / file).is_file()  # fitted, and kept
        texts.append(text)
    assert len(json_lines(texts[0])) == 1
    assert texts[0] == texts[1]


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give a question"),
        ([QUESTION, "--queries", "x.txt"], "not both"),
        ([QUESTION, "--format", "xml"], "'table', 'jsonl', 'csv'"),
        ([QUESTION, "--only", "sure"], "'known', 'assumed', 'predicted'"),
        ([QUESTION, "--edges", "some"], "'train', 'train+valid', 'all'"),
        ([QUESTION, "--method", "guess"], "'completed', 'embedding'"),
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


BAD_LINES = f"""\
# a comment, and an empty line

?X . r0(nobody, ?X)
{QUESTION}
?X . r0(e1, ?X
{OTHER}\x0bnot a line of its own
{OTHER}
"""


@pytest.mark.parametrize("form", ["csv", "table", "jsonl"])
def test_a_bad_line_is_named_and_the_rest_is_answered(made, write, monkeypatch, capsys, form):
    file = write("questions.txt", BAD_LINES)
    arguments = ["answer", made, "--queries", file, "--format", form, "-k", 3]
    code, text, error = run_main(monkeypatch, capsys, *arguments)
    assert code == 2
    for line, words in ((3, "no entity 'nobody'"), (5, "Expected"), (6, "")):
        assert f"Error: {file}, line {line}: " in flat(error)
        assert words in error
    assert "line 4" not in error
    assert flat(error).endswith("Error: 3 of 5 questions could not be answered.")
    if form == "table":
        assert text.count("expected") == 2
    elif form == "csv":
        assert len(list(csv.DictReader(io.StringIO(text)))) == 6
    else:
        told = json_lines(text)
        assert [row["line"] for row in told] == [3, 4, 5, 6, 7]
        assert [row["text"] for row in told] == BAD_LINES.split("\n")[2:-1]
        assert ["error" in row for row in told] == [True, False, True, True, False]
        assert [len(row.get("answers", [])) for row in told] == [0, 3, 0, 0, 3]


def test_a_file_that_begins_with_a_byte_order_mark(made, write):
    file = write("questions.txt", f"\ufeff{QUESTION}\n")
    (told,) = json_lines(answer(made, "--queries", file, "--json"))
    assert (told["line"], told["text"]) == (1, QUESTION)


def test_json_is_short_for_jsonl(made):
    expected = answer(made, QUESTION, "--format", "jsonl")
    assert answer(made, QUESTION, "--json") == expected
    assert answer(made, QUESTION, "--json", "--format", "jsonl") == expected
    assert "--json or --format csv" in str(
        run("answer", made, QUESTION, "--json", "--format", "csv").exception
    )


def test_derivations_in_csv(made):
    text = answer(made, OTHER, "-k", 2, "--explain", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    found = Run.open(made).answerer().answer(OTHER, 2, explain=True)
    assert [row["why"] for row in rows] == [shown_derivation(each.why) for each in found]
    assert rows[0]["why"] == "e2 r1 e8 (known); e8 is not among r0(e1, ?X) (not >99%)"
    assert rows[1]["why"].startswith(f"e2 r1 {found[1].label} (missing ")


# ---- what SPARQL says besides, and what is no tree ----------------------------------------------


def test_a_limit_is_the_number_of_answers(made):
    sparql = "SELECT ?x { <e1> <r0> ?x }"
    for text, options, number in (
        (sparql, (), 10),
        (f"{sparql} LIMIT 3", (), 3),
        (f"{sparql} LIMIT 12", (), 12),
        (f"{sparql} LIMIT 3", ("-k", 5), 5),
    ):
        (found,) = json_lines(answer(made, text, *options, "--format", "jsonl"))
        assert len(found["answers"]) == number


@pytest.mark.parametrize(
    "question",
    [
        "?X, ?Y . r0(?X, ?Y)",
        "?X . exists ?Y : r0(?X, ?Y) & r1(?Y, ?X)",
        "SELECT ?x { ?x <r0> ?y . ?y <r0> ?z . ?z <r0> ?x }",
        "SELECT ?x { ?x <r0> ?y . <e1> <r0> ?y FILTER(?x != ?y) }",
    ],
)
def test_what_only_query_answers(made, monkeypatch, capsys, question):
    code, out, err = run_main(monkeypatch, capsys, "answer", made, question)
    assert (code, out) == (2, "")
    assert "`betae query`" in flat(err)
    assert "no predictions: those need a tree with one answer variable" in flat(err)
    assert list(select(Run.open(made).graph, question))


def test_a_relation_the_wrong_way_round_is_noted(made, monkeypatch, capsys):
    graph = Run.open(made).graph
    heads = {int(head) for split in graph.written_ids.values() for head, r, _ in split if r == 0}
    tails = {int(tail) for split in graph.written_ids.values() for _, r, tail in split if r == 0}
    name = graph.entities[min(tails - heads)]
    code, _, err = run_main(monkeypatch, capsys, "answer", made, f"?X . r0({name}, ?X)")
    assert not code
    assert f"Note: {name} is never a head of r0, only a tail: write r0(?X, {name})" in flat(err)
    assert "Note" not in run_main(monkeypatch, capsys, "answer", made, QUESTION)[2]
