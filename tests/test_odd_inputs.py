"""Odd inputs that new users bring: none ends in a traceback, and no row or answer is lost.

Each is a command and its outcome: the triples of the graph, the answers, or words of the message.
"""

import csv
import gzip
import io
import shlex

import pytest

from betae import KnowledgeGraph
from tests.cli.test_cli import flat, run, run_main

AB, TWO = {("a", "r", "b")}, {("a", "r", "b"), ("c", "r", "d")}
X = {("x:a", "x:r", "x:b")}
LONG = "x" * 200_000
ESCAPE = "\x1b[31mred\x1b]0;owned\x07"
BY_NUMBER = "head=1,relation=2,tail=3"

# File, content, options of `betae ingest`, and the triples or words of the error.
FILES = [
    ("bom-header.tsv", b"\xef\xbb\xbfhead\trelation\ttail\na\tr\tb\n", [], AB),
    ("crlf-no-last.tsv", "a\tr\tb\r\nc\tr\td", [], TWO),
    ("blank-lines.tsv", "\n\na\tr\tb\n   \nc\tr\td\n\n", [], TWO),
    ("only-bom.tsv", b"\xef\xbb\xbf", [], "is empty"),
    ("late-ragged.tsv", "a\tr\tb\n" * 500 + "c\tr\n", [], "line 501: 2 columns"),
    ("empty-relation.tsv", "a\tr\tb\na\t\tb\n", [], "line 2: the relation is empty"),
    ("lone-quote.tsv", 'a"\tr\t"b\nc\tr\td\n', [], {('a"', "r", '"b'), ("c", "r", "d")}),
    ("hash-comment.tsv", "# my facts\na\tr\tb\n", [], "--comment '#'"),
    ("hash-skipped.tsv", "# my facts\na\tr\tb\n", ["--comment", "#"], AB),
    ("nul.tsv", b"a\x00z\tr\tb\n", [], {("a\0z", "r", "b")}),
    ("escape.tsv", f"{ESCAPE}\tr\tb\n", [], {(ESCAPE, "r", "b")}),
    ("two-forms.tsv", "é\tr\te\u0301\n", [], {("é", "r", "e\u0301")}),
    ("line-separator.tsv", "a\u2028z\tr\tb\n", [], {("a\u2028z", "r", "b")}),
    ("next-line.tsv", "a\x85z\tr\tb\n", [], {("a\x85z", "r", "b")}),
    ("huge-name.tsv", f"{LONG}\tr\tb\nc\tr\td\n", [], {(LONG, "r", "b"), ("c", "r", "d")}),
    ("late-latin-1.tsv", b"a\tr\tb\nZ\xfcrich\tr\tb\n", [], "line 2: not valid UTF-8"),
    ("utf-16-no-mark.tsv", "a\tr\tb\n".encode("utf-16-le"), [], "UTF-16"),
    ("old-mac.tsv", "a\tr\tb\rc\tr\td\r", [], "carriage return"),
    ("numbers.tsv", "1\t2\t03\n1.50\t2\t1e3\n", [], {("1", "2", "03"), ("1.50", "2", "1e3")}),
    ("null-words.tsv", "NA\tnull\tNone\n", [], {("NA", "null", "None")}),
    ("tilde.tsv", "a\t~r\tb\n", [], {("a", "~r", "b")}),
    ("variables.tsv", "?X\texists\t_\n", [], {("?X", "exists", "_")}),
    ("commas.tsv", "a,r,b\nc,r,d\n", [], "--delimiter"),
    ("pipes.txt", "a|r|b\n", ["--delimiter", "|"], AB),
    ("turned.csv", "year,tail,head,relation\n1,b,a,r\n", [], AB),
    ("neo4j.csv", ":START_ID,:TYPE,:END_ID\na,r,b\n", [], AB),
    ("four.tsv", "a\tr\tb\t2020\n", ["--columns", BY_NUMBER], AB),
    ("art.tsv", "a\tr\tt\n", [], {("a", "r", "t")}),  # a fact that could be a header
    ("newline-within.csv", '"a\nz",r,b\n', [], {("a\nz", "r", "b")}),
    ("never-closed.csv", 'a,r,b\n"c,r,d\ne,r,f\n', [], "line 2"),
    ("after-quote.csv", 'c,r,d\n"a" x,r,b\n', [], "line 2"),
    ("facts", "a\tr\tb\n", [], "--format"),
    ("wrong.parquet", "a\tr\tb\n", [], "not a valid Parquet file"),
    ("cut.tsv.gz", gzip.compress(b"a\tr\tb\n" * 9999)[:-4], [], "truncated"),
    ("two.tsv.gz", gzip.compress(b"a\tr\tb\n") + gzip.compress(b"c\tr\td\n"), [], TWO),
    ("glob[1]*?.tsv", "a\tr\tb\n", [], AB),
    ("[bold]x.tsv", "a\n", [], "[bold]x.tsv, line 1"),
    ("no-dot.nt", "<x:a> <x:r> <x:b>\n", [], "dot"),
    ("bom.nt", b"\xef\xbb\xbf<x:a> <x:r> <x:b> .\n", [], X),
    ("literal.nt", '<x:a> <x:r> <x:b> .\n<x:a> <x:age> "7" .\n', [], X),
    ("prefix.ttl", "\n\ne:a e:r e:b .", [], "line 3"),
    ("rule.n3", "@prefix e: <x:> . { ?x e:r ?y } => { ?y e:r ?x } .", [], "variable"),
    ("remote.jsonld", '{"@context": "http://nowhere.invalid/c", "@id": "x:a"}', [], "JSON-LD"),
]


@pytest.mark.parametrize(
    ("file", "content", "options", "expected"), FILES, ids=[file for file, *_ in FILES]
)
def test_files(file, content, options, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    code, out, err = run_main(monkeypatch, capsys, "ingest", file, *options, "--out", "graph")
    assert "\x1b" not in out + err
    if isinstance(expected, str):
        assert code == 2
        assert expected in flat(err)
        assert [path.name for path in tmp_path.iterdir()] == [file]
    else:
        assert not code
        assert set(KnowledgeGraph.open("graph").to_polars().iter_rows()) == expected
        assert f"{len(expected)} read" in flat(out)


# ---- questions ----------------------------------------------------------------------------------

FACTS = """\
ann\tparent\tbob
ann\tparent\tcat
bob\tparent\tdan
dan\tlives_in\tNew York
_\todd\t~a
O'Neil\todd\tsay "hi"
#1\todd\t🚀 x
ann\t~likes\tbob
loop\tself\tloop
\x1b[31mred\todd\t[bold]b[/bold]
exists\tto\tSELECT
"""
LABELS = "ann\tAnn Lee\ncat\tSam\ndan\tSam\n"
ANSWERED = [
    ("  ?X\n.\n parent ( ann , ?X )  ", {"bob", "cat"}),
    ("?X . parent('Ann Lee', ?X)", {"bob", "cat"}),
    ("?X . parent(ann, ?X) ∖ ~parent(?X, dan) & ?X ≠ bob", {"cat"}),
    ("?X . parent(ann, ?X) & !parent(ann, ?X)", set()),
    ("?X . self(?X, ?X)", {"loop"}),
    ('?X . "~likes"(ann, ?X)', {"bob"}),
    ('?X . odd("_", ?X)', {"~a"}),
    (r"?X . odd('O\'Neil', ?X)", {'say "hi"'}),
    (r'?X . odd(?X, "\ud83d\ude80 x")', {"#1"}),
    ("?X . odd('\x1b[31mred', ?X)", {"[bold]b[/bold]"}),
    ("?X . to(?X, SELECT)", {"exists"}),
    ("# who\n?größe . parent(ann, ?größe) # her children", {"bob", "cat"}),
    ("?X . " + "(" * 5000 + "parent(ann, ?X)" + ")" * 5000, {"bob", "cat"}),
    ("# hello\nPREFIX e: <>\nSELECT * { e:ann e:parent ?x }", {"bob", "cat"}),
    ("SELECT ?x { ?x <lives_in> <New%20York> }", {"dan"}),
    ("SELECT $x { <ann> <parent>* $x }", {"ann", "bob", "cat", "dan"}),
]
REFUSED = [
    ("", "is empty"),
    ("query.rq", "neither a question nor a file"),
    ("who are the children of ann", "like this: ?X . capital(France, ?X)"),
    ("?X . parent(ann, ?X", "')'"),
    ("?X . parent(ann, ?X) and parent(bob, ?X)", "'&'"),
    ("?X . parent(“ann”, ?X)", "“"),
    ('?X . parent("ann, ?X)', "no closing quote"),
    ("?X . parent('ann ', ?X)", "Closest: 'ann'"),
    ("?X . lives_in(?X, NewYork)", "Closest: 'New York'"),
    ("?X . parent(Sam, ?X)", "'Sam' may be any of 2 entities"),
    ("?X . parent(#99999999999999999999, ?X)", "99999999999999999999"),
    ("?X . parent(_, ?X)", "placeholder"),
    ("?X . parent(\0, ?X)", "Unexpected"),
    ("?X . " + "(" * 100_000, "Expected"),
    ("?X . parent(" + "x" * 100_000 + ", ?X)", "no entity"),
    ("SELECT ?x { e:ann e:parent ?x }", "The prefix e: is not declared"),
    ("SELECT ?x { <New York> <in> ?x }", "%20"),
    ("INSERT DATA { <a> <b> <c> }", "INSERT"),
    ("SELECT ?x { " + "{ " * 600 + "<ann> <parent> ?x" + " }" * 600 + " }", "deep"),
]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    for name, text in (("f.tsv", FACTS), ("l.tsv", LABELS)):
        (folder / name).write_text(text, encoding="utf-8")
    done = run("ingest", folder / "f.tsv", "--labels", folder / "l.tsv", "--out", folder / "toy")
    assert done.exit_code == 0
    return folder / "toy"


@pytest.mark.parametrize(("question", "expected"), ANSWERED, ids=range(len(ANSWERED)))
def test_questions(question, expected, toy):
    done = run("query", toy, question, "--format", "csv")
    assert done.exit_code == 0, done.output
    _, *rows = csv.reader(io.StringIO(done.stdout, newline=""))
    assert {row[0] for row in rows} == expected


@pytest.mark.parametrize(("question", "words"), REFUSED, ids=range(len(REFUSED)))
def test_questions_that_cannot_be_read(question, words, toy, monkeypatch, capsys):
    code, out, err = run_main(monkeypatch, capsys, "query", toy, question)
    assert (code, out) == (2, "")
    assert words in flat(err)


# ---- commands -----------------------------------------------------------------------------------

WRONG = [
    ("ingest a.tsv --out graph --valid nan", "fractions"),
    ("ingest a.tsv --out graph --valid 10%", "10%"),
    ("ingest a.tsv --out a.tsv/graph", "Cannot write a.tsv/graph"),
    ("ingest l.tsv --out graph", "l.tsv"),  # a link to itself
    (f"ingest {'x' * 300}.tsv --out graph", "File name too long"),
    ("export TOY out.parquet.gz", "cannot write"),
    ("info .", "is not a betae graph"),
    ("query TOY TOY", "neither"),
    ("sample TOY 1p:-3 --out s", "1p:-3"),
    ("train TOY --recipe bad.toml --out r", "learning_rate"),
    ("answer TOY '?X . parent(ann, ?X)'", "too small to predict"),
    ("demo --out a.tsv", "a.tsv"),
]


@pytest.mark.parametrize(("command", "words"), WRONG)
def test_commands_that_are_wrong(command, words, toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\tr\tb\n")
    (tmp_path / "l.tsv").symlink_to("l.tsv")
    (tmp_path / "bad.toml").write_text("learning_rate = nan\n")
    before = set(tmp_path.iterdir())
    arguments = [str(toy) if word == "TOY" else word for word in shlex.split(command)]
    code, _, err = run_main(monkeypatch, capsys, *arguments)
    assert code == 2
    assert words in flat(err)
    assert "This is a bug" not in err
    assert set(tmp_path.iterdir()) == before
