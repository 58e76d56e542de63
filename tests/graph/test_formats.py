import polars as pl
import pytest

import betae
from betae import KnowledgeGraph
from betae.errors import BetaeError, InvalidArgument, TripleError
from betae.graph.delimited import find_columns, parse_columns
from betae.graph.names import Label
from betae.graph.source import Content, Reading
from betae.graph.triples import labels_of, read_labels, read_source, read_triples

X = "http://x.org/"
FACTS = [("a", "knows", "b"), ("b", "knows", "c,d"), ("é", "likes", "日本")]
ROWS = [tuple(X + name for name in fact) for fact in FACTS]
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
NTRIPLES = "".join(f"<{h}> <{r}> <{t}> .\n" for h, r, t in ROWS)
TURTLE = f"""@prefix x: <{X}> .
x:a x:knows x:b .   # a comment
x:b x:knows <{X}c,d> .
x:é x:likes x:日本 .
"""
RDF_XML = f"""<?xml version="1.0" encoding="utf-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="{X}">
  <rdf:Description rdf:about="{X}a"><x:knows rdf:resource="{X}b"/></rdf:Description>
  <rdf:Description rdf:about="{X}b"><x:knows rdf:resource="{X}c,d"/></rdf:Description>
  <rdf:Description rdf:about="{X}é"><x:likes rdf:resource="{X}日本"/></rdf:Description>
</rdf:RDF>
"""
JSON_LD = f"""[
  {{"@id": "{X}a", "{X}knows": {{"@id": "{X}b"}}}},
  {{"@id": "{X}b", "{X}knows": {{"@id": "{X}c,d"}}}},
  {{"@id": "{X}é", "{X}likes": {{"@id": "{X}日本"}}}}
]"""
TSV = "".join("\t".join(row) + "\n" for row in ROWS)
CSV = "".join(",".join(f'"{name}"' for name in row) + "\n" for row in ROWS)
TEXTS = {
    "facts.tsv": TSV,
    "facts.txt": TSV,
    "facts.csv": CSV,
    "facts.nt": NTRIPLES,
    "facts.nq": NTRIPLES.replace(" .\n", f" <{X}graph> .\n"),
    "facts.ttl": TURTLE,
    "facts.n3": TURTLE,
    "facts.trig": TURTLE.replace("x:a x:knows", "x:graph { x:a x:knows", 1) + "}",
    "facts.rdf": RDF_XML,
    "facts.xml": RDF_XML,
    "facts.jsonld": JSON_LD,
}


def read(path, content=None, **options):
    """Return the rows of a file."""
    return read_source(path, content or Content(), reading=Reading(**options)).rows()


def graph_of(path):
    return KnowledgeGraph.from_triples(read_triples(path))


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize("name", TEXTS)
def test_every_format_gives_the_same_graph(write, name, gz):
    graph = graph_of(write(name + gz, TEXTS[name]))
    assert list(graph.entities) == sorted({X + n for h, _, t in FACTS for n in (h, t)})
    assert graph.fingerprint == graph_of(write("plain.tsv", TSV)).fingerprint


@pytest.mark.parametrize(
    "columns",
    [
        ["head", "relation", "tail"],
        ["Subject", "Predicate", "Object"],
        ["one", "two", "three"],
    ],
)
def test_parquet_gives_the_same_graph(write, tmp_path, columns):
    path = tmp_path / "facts.parquet"
    pl.DataFrame(ROWS, schema=columns, orient="row").write_parquet(path)
    assert graph_of(path).fingerprint == graph_of(write("facts.tsv", TSV)).fingerprint


def test_parquet_columns_are_found_by_name(tmp_path):
    path = tmp_path / "facts.parquet"
    pl.DataFrame({"t": ["b"], "score": [0.5], "r": ["knows"], "h": ["a"]}).write_parquet(path)
    assert read(path) == [("a", "knows", "b")]


def test_parquet_numbers_become_names(tmp_path):
    path = tmp_path / "facts.parquet"
    pl.DataFrame({"h": [1], "r": [2], "t": [3]}).write_parquet(path)
    assert read(path) == [("1", "2", "3")]


AB = [("a", "r", "b"), ("b", "r", "c")]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("plain.tsv", "a\tr\tb\nb\tr\tc\n", AB),
        ("crlf.tsv", "a\tr\tb\r\nb\tr\tc\r\n", AB),
        ("crlf.csv", "a,r,b\r\n\r\nb,r,c\r\n", AB),
        ("bom.tsv", "\ufeffa\tr\tb\nb\tr\tc\n", AB),
        ("bom.csv", '\ufeff"a",r,b\nb,r,c\n', AB),
        ("bom and header.tsv", "\ufeffhead\trelation\ttail\na\tr\tb\nb\tr\tc\n", AB),
        ("header.tsv", "head\trelation\ttail\na\tr\tb\nb\tr\tc\n", AB),
        ("header.csv", '"Subject","Predicate","Object"\r\na,r,b\nb,r,c\n', AB),
        ("blank, then header.tsv", "\n\ns\tp\to\na\tr\tb\nb\tr\tc\n", AB),
        ("no second header.tsv", "a\tr\tb\nh\tr\tt\n", [("a", "r", "b"), ("h", "r", "t")]),
        ("hash.tsv", "#MeToo\tr\tb\n#\tr\tc\n", [("#MeToo", "r", "b"), ("#", "r", "c")]),
        ("blank lines.tsv", "\n\na\tr\tb\n\nb\tr\tc\n\n", AB),
        ("whitespace.tsv", "  \n \t\t\na\tr\tb\n   \nb\tr\tc\n \n", AB),
        ("quotes stay.tsv", 'a"\tr\t"b\n"x\ty\tz"\n', [('a"', "r", '"b'), ('"x', "y", 'z"')]),
        ("quotes.csv", '"a, b","r ""q""",c\n', [("a, b", 'r "q"', "c")]),
        ("lines.csv", '"a\nb",r,"c\n\n#d"\nx,y,z\n', [("a\nb", "r", "c\n\n#d"), ("x", "y", "z")]),
        ("blanks stay.tsv", " a\tr \t b \n", [(" a", "r ", " b ")]),
        (
            "unicode.tsv",
            "Åsa\tvän\t🦊\nı\tr\tİ\u2028\n",
            [("Åsa", "vän", "🦊"), ("ı", "r", "İ\u2028")],
        ),
        ("UPPER.TSV", "a\tr\tb\nb\tr\tc\n", AB),
        ("zip.csv.gz", "h,r,t\r\n\na,r,b\n\nb,r,c\n", AB),
    ],
)
def test_rows_are_read(write, name, text, expected):
    assert read(write(name, text)) == expected


@pytest.mark.parametrize(
    ("name", "text", "comments"),
    [
        ("first.tsv", "# c\na\tr\tb\n#b\tr\tb\nb\tr\tc\n#", 3),
        ("bom.tsv", "\ufeff# c\na\tr\tb\nb\tr\tc\n", 1),
        ("quotes.csv", '# c, "\na,r,b\n# c\nb,r,c\n', 2),
        ("header.csv.gz", "# c\nh,r,t\r\n# c\na,r,b\n\nb,r,c\n", 2),
        ("crlf.csv", "a,r,b\r\n\r\n# c\r\nb,r,c\r\n", 1),
    ],
)
def test_comments_are_skipped_and_counted_when_asked(write, name, text, comments):
    content = Content()
    assert read(write(name, text), content, comment="#") == AB
    assert content.report.comments_skipped == comments


def test_a_comment_begins_in_the_first_column_and_outside_quotes(write):
    rows = [("  #a", "r", "b"), ("x", "y", "z\n#w")]
    csv = write("facts.csv", '  #a,r,b\n#b,r,b\nx,y,"z\n#w"\n')
    content = Content()
    assert read(csv, content, comment="#") == rows
    assert content.report.comments_skipped == 1


@pytest.mark.parametrize(
    "text", ["\n\na\tr\tb\n\nb\tr\tc\n\n", "  \n \na\tr\tb\n\n \nb\tr\tc\n \n"]
)
def test_blank_lines_are_counted(write, text):
    content, num_blank = Content(), sum(not line.strip() for line in text.splitlines())
    assert read(write("facts.tsv", text), content) == AB
    assert content.report.blank_lines_skipped == num_blank


# ---- files of one relation ----------------------------------------------------------------------

TURNED = {"columns": (3, 1), "header": True}
BY_NAME = {"columns": ("drug", "disease")}
TREATED = [("aspirin", "treats", "pain"), ("zinc", "treats", "cold")]


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("treats.tsv", "aspirin\tpain\nzinc\tcold\n", {}),
        ("treats.tsv.gz", "aspirin\tpain\n\nzinc\tcold\n", {}),
        ("edges-treats.csv", 'aspirin,pain\n"zinc",cold\n', {"header": False}),
        ("treats.csv", "source,target\naspirin,pain\nzinc,cold\n", {}),
        ("treats.csv", "drug,disease\naspirin,pain\nzinc,cold\n", {"header": True}),
        ("x.csv", "drug,disease\naspirin,pain\nzinc,cold\n", BY_NAME),
        (
            "x.csv",
            "disease,n,drug\npain,1,aspirin\ncold,2,zinc\n",
            BY_NAME,
        ),
        ("x.tsv", "pain\t1\taspirin\ncold\t2\tzinc\n", {"columns": (3, 1)}),
        ("x.tsv", "a\tb\tc\npain\t1\taspirin\ncold\t\tzinc\n", TURNED),
        ("x.csv", "weight,from,to\n1,aspirin,pain\n2,zinc,cold\n", {}),
    ],
)
def test_files_of_one_relation(write, tmp_path, name, text, options):
    options |= {"relation": "treats"} if name.startswith("x") else {}
    path, content = write(name, text), Content()
    assert read(path, content, **options) == TREATED
    has_note = any("'treats', by the file's name" in each for each in content.report.notes)
    assert has_note != name.startswith("x")
    is_told = not options.get("columns") and "header" not in options and "source" not in text
    assert bool(content.report.doubtful_rows) == (is_told and "weight" not in text)
    read_triples(path, **options)
    betae.ingest(path, out=tmp_path / "graph", **options)
    assert sorted(betae.read(tmp_path / "graph").to_polars().iter_rows()) == TREATED


def test_parquet_and_frames_of_one_relation(tmp_path):
    frame = pl.DataFrame({"disease": ["pain", "cold"], "drug": ["aspirin", "zinc"]})
    frame.write_parquet(tmp_path / "treats.parquet")
    columns = {"head": "drug", "tail": "disease"}
    for source in (tmp_path / "treats.parquet", frame):
        assert read(source, columns=columns, relation="treats") == TREATED
    assert read(tmp_path / "treats.parquet") == [(t, r, h) for h, r, t in TREATED]
    assert read([("aspirin", "pain"), ("zinc", "cold")], relation="treats") == TREATED
    betae.ingest(tmp_path / "treats.parquet", columns=columns, out=tmp_path / "graph")
    assert sorted(betae.read(tmp_path / "graph").to_polars().iter_rows()) == TREATED
    with pytest.raises(TripleError, match="Name its relation: --relation"):
        read(frame)


def test_a_folder_of_files_of_one_relation(tmp_path):
    (tmp_path / "drugs").mkdir()
    for name in ("drugs/treats.tsv", "drugs/binds.tsv", "drugs/all.tsv"):
        middle = "\tis\t" if "all" in name else "\t"
        (tmp_path / name).write_text(f"a{middle}{name}\n")
    triples = read_triples(tmp_path / "drugs")
    assert triples.relations == ["binds", "is", "treats"]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (
            "a,b,c\n",
            {"relation": "r"},
            "line 1: 3 columns, 2 expected .* With --columns 1,2 ",
        ),
        ("a,b\nc\n", {}, "line 2: 1 column, 2 expected \\(head, tail separated by commas\\)"),
        ("a,b\nc,\n", {}, "line 2: the tail is empty"),
        ("x,y\na,b\n", {"columns": ("x", "z")}, "no column 'z' among 'x', 'y'.* --header"),
        (
            "x,y,z,w\na,b,c,d\n",
            {"header": True},
            "its columns are x, y, z, w; .*--columns HEAD",
        ),
        ("a,b\n", {"columns": ("a", "b"), "header": False}, "given by number"),
        ("a,b,c\n", {"columns": (1, 2, 3), "relation": "r"}, "leave one out"),
        ("a,b\n", {"relation": ""}, "relation is empty"),
    ],
)
def test_bad_files_of_one_relation(write, text, options, words):
    with pytest.raises(BetaeError, match=words):
        read(write("treats.csv", text), **options)


# ---- bad input: file, line, and what is wrong ---------------------------------------------------

GOOD = "a\tr\tb\n" * 2000
BAD = [
    ("few.tsv", "a\tr\tb\na\tr\n", 2, "2 columns, 3 expected"),
    ("one.tsv", "a r b\n", 1, "separated by tabs"),
    ("many.tsv", "a\tr\tb\tc\n", 1, "4 columns"),
    ("late few.tsv", GOOD + "a\tr\n" + GOOD, 2001, "2 columns"),
    ("after blanks.tsv", "\n\n   \na\tr\tb\n\n  \na\tr\n", 7, "2 columns"),
    ("comment.tsv", "# c\na\tr\tb\n", 1, "skipped with --comment '#'"),
    ("scores.tsv", "a\tr\tb\t0.5\n", 1, "--columns 1,2,3"),
    ("after header.csv", "h,r,t\na,r,b\na,r\n", 3, "separated by commas"),
    ("many.csv", 'a,r,b\n"x\ny",r,b,c\n', 3, "4 columns"),
    ("open quote.csv", 'a,r,b\na,"r,b\n', 2, "never closed"),
    ("no head.tsv", "a\tr\tb\n\tr\tb\n", 2, "head is empty"),
    ("no relation.tsv", GOOD + "a\t\tb\n", 2001, "relation is empty"),
    ("no tail.csv", 'a,r,b\r\na,r,""\r\n', 2, "tail is empty"),
    ("no tail.tsv", "a\tr\tb\r\na\tr\t\r\n", 2, "tail is empty"),
    ("latin.tsv", b"a\tr\tb\nb\tr\t\xe9t\xe9\n", 2, "UTF-8"),
    ("latin first.tsv", b"\xe9\tr\tb\n", 1, "UTF-8"),
    ("latin.nt", b"<x:a> <x:r> <x:b> .\n<x:\xff> <x:r> <x:b> .\n", 2, "UTF-8"),
    ("empty.tsv", "", None, "empty"),
    ("empty.nt", "", None, "no triples"),
    ("blanks.tsv", "\n\n  \n", None, "empty"),
    ("header.tsv", "head\trelation\ttail\n", None, "empty"),
    ("facts.xyz", "a\tr\tb\n", None, "unknown format '.xyz'"),
    ("facts", "a\tr\tb\n", None, "unknown format"),
    ("bad.nt", "<x:a> <x:r> <x:b> .\n<x:a> <x:r> .\n", 2, "N-Triples"),
    ("bad.ttl", "@prefix : <x:> .\n:a :r :b .\n:a r :b .\n", 3, "Turtle"),
    ("bad.trig", "@prefix : <x:> .\n:g { :a :r }\n", 2, "TriG"),
    ("bad.jsonld", '[\n{"@id": "x:a",\n!}]', 3, "JSON-LD"),
    ("bad.rdf", RDF_XML.replace("x:likes", "y:likes"), None, "RDF/XML"),
    ("fake.parquet", "a\tr\tb\n" * 9, None, "Parquet"),
]


@pytest.mark.parametrize(("name", "content", "line", "words"), BAD, ids=[bad[0] for bad in BAD])
def test_bad_input_names_file_and_line_and_leaves_nothing(write, name, content, line, words):
    from typer.testing import CliRunner

    from betae.cli import app

    path = write(name, content)
    result = CliRunner().invoke(app, ["ingest", str(path), "--out", str(path.parent / "graph")])
    error = result.exception
    assert isinstance(error, TripleError), error
    assert error.file == path
    assert error.line == line
    assert words in str(error)
    assert str(error).startswith(str(path) + (f", line {line}: " if line else ": "))
    assert [left.name for left in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("place", ["valid", "test", "labels"])
def test_bad_input_is_found_in_every_file(write, place):
    facts, bad = write("facts.tsv", "a\tr\tb\n"), write("bad.tsv", "a\tb\tc\td\n")
    with pytest.raises(TripleError, match="4 columns") as info:
        read_triples(facts, **{place: bad})
    assert (info.value.file, info.value.line) == (bad, 1)


def test_a_missing_file_is_named(tmp_path):
    for arguments in ({}, {"labels": tmp_path / "no.tsv"}):
        with pytest.raises(TripleError, match=r"no\.tsv: there is no such file"):
            read_triples(tmp_path / "no.tsv", **arguments)


@pytest.mark.parametrize("keep", [0.5, 0.99])
@pytest.mark.parametrize("name", ["facts.tsv.gz", "facts.csv.gz", "facts.nt.gz"])
def test_a_truncated_gzip_is_refused(write, name, keep):
    separator = {"tsv": "\t", "csv": ",", "nt": "> <x:"}[name.split(".")[1]]
    first, last = ("<x:", "> .\n") if "nt" in name else ("", "\n")
    lines = [first + separator.join([f"a{i}", "r", f"b{i * i}"]) + last for i in range(5000)]
    path = write(name, "".join(lines))
    assert len(read(path)) == 5000
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(TripleError, match="gzip file is truncated") as info:
        read_triples(path)
    assert info.value.file == path
    if "nt" not in name:  # pyoxigraph reads ahead: there is no telling which line it was at
        assert 1000 < info.value.line <= 5001


@pytest.mark.parametrize(("name", "line"), [("facts.tsv", 1), ("facts.csv", 1), ("facts.nt", None)])
def test_a_file_that_is_no_gzip_is_refused(write, name, line):
    plain = write(name, TEXTS[name])
    path = plain.rename(plain.with_name(name + ".gz"))
    with pytest.raises(TripleError, match="not a valid gzip file") as info:
        read_triples(path)
    assert (info.value.file, info.value.line) == (path, line)


def test_a_gzip_with_a_wrong_checksum_is_refused(write):
    path = write("facts.tsv.gz", GOOD)
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    with pytest.raises(TripleError, match="gzip"):
        read_triples(path)


def test_parquet_must_have_three_columns_and_no_gaps(tmp_path):
    path = tmp_path / "facts.parquet"
    pl.DataFrame({"a": ["x"]}).write_parquet(path)
    with pytest.raises(TripleError, match="its columns are a; head, relation, tail expected"):
        read(path)
    for gap in (None, ""):
        pl.DataFrame({"h": ["x", gap], "r": ["y", "y"], "t": ["z", "z"]}).write_parquet(path)
        with pytest.raises(TripleError, match="a name is empty") as info:
            read(path)
        assert info.value.line == 2
    pl.DataFrame(schema={"h": pl.String, "r": pl.String, "t": pl.String}).write_parquet(path)
    with pytest.raises(TripleError, match="empty"):
        read(path)


def test_a_truncated_parquet_is_refused(tmp_path):
    path = tmp_path / "facts.parquet"
    pl.DataFrame(ROWS, schema=["h", "r", "t"], orient="row").write_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TripleError, match="not a valid Parquet file") as info:
        read(path)
    assert info.value.file == path


# ---- labels, literals, blank nodes --------------------------------------------------------------


def test_labels_of_a_two_column_file(write):
    path = write("labels.tsv", 'a\tAlpha\n\na\tAgain\nb\tBeta, "B"\n')
    again = [Label("Alpha"), Label("Again", rank=2)]
    assert labels_of(read_labels(path)) == {"a": again, "b": [Label('Beta, "B"')]}
    zipped = read_labels(write("labels.csv.gz", 'a,"Alpha, A"\n'))
    assert labels_of(zipped) == {"a": [Label("Alpha, A")]}


def test_labels_come_from_text_files_only(write):
    with pytest.raises(TripleError, match="labels come as"):
        read_labels(write("labels.nt", NTRIPLES))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (['"Eins"@de'], "Eins"),
        (['"One"'], "One"),
        (['"Eins"@de', '"One"@en'], "One"),
        (['"One"@en', '"Eins"@de'], "One"),
        (['"Eins"@de', '"One"'], "One"),
        (['"One"', '"Uno"@en'], "One"),
        (['"Eins"@de', '"Un"@fr'], "Eins"),
    ],
)
def test_rdf_labels_prefer_english_and_untagged(write, given, expected):
    labels = "".join(f"<x:a> <{RDFS}label> {label} .\n" for label in given)
    content = Content()
    rows = read(write("facts.nt", "<x:a> <x:r> <x:b> .\n" + labels), content)
    assert labels_of(pl.concat(content.literals))["x:a"][0].text == expected
    assert rows == [("x:a", "x:r", "x:b")]
    assert content.report.literals == len(given)


def test_rdf_labels_prefer_english_across_files(write):
    english = write("en.nt", f'<x:a> <x:r> <x:b> .\n<x:a> <{RDFS}label> "One"@en .\n')
    german = write("de.nt", f'<x:a> <x:r> <x:c> .\n<x:a> <{RDFS}label> "Eins"@de .\n')
    assert read_triples(english, german).labels["x:a"][0].text == "One"
    assert read_triples(german, english).labels["x:a"][0].text == "One"


def test_a_label_file_wins_over_rdf_labels(write):
    facts = write("facts.nt", f'<x:a> <x:r> <x:b> .\n<x:a> <{RDFS}label> "One" .\n')
    triples = read_triples(facts, labels=write("labels.tsv", "x:a\tUno\nx:z\tNone\n"))
    graph = KnowledgeGraph.from_triples(triples)
    assert graph.entity_label(graph.entity_id("x:a")) == "Uno"
    assert triples.report.labels_unused == 1


def test_literals_are_counted_and_are_no_edges(write):
    text = NTRIPLES + f'<{X}a> <{X}age> "7" .\n<{X}a> <{X}name> "Ann"@en .\n'
    triples = read_triples(write("facts.nt", text))
    assert triples.report.literals == 2
    assert triples.report.read == 3
    assert triples.relations == [X + "knows", X + "likes"]


def test_blank_nodes_of_one_file_are_one(write):
    triples = read_triples(write("a.nt", "_:n <x:r> <x:a> .\n_:n <x:r> <x:b> .\n"))
    assert len(triples.entities) == 3
    assert sum(name.startswith("_:") for name in triples.entities) == 1


@pytest.mark.parametrize("place", ["train", "valid", "test"])
def test_blank_nodes_of_several_files_are_kept_apart(write, place):
    one, two = write("one.nt", "_:n <x:r> <x:a> .\n"), write("two.nt", "_:n <x:r> <x:b> .\n")
    triples = read_triples(one, two) if place == "train" else read_triples(one, **{place: two})
    assert sum(name.startswith("_:") for name in triples.entities) == 2


# ---- which column is which --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "indices"),
    [
        ("head relation tail", (0, 1, 2)),
        ("object predicate subject", (2, 1, 0)),
        ("from_entity rel_type to_entity", (0, 1, 2)),
        ("Source Target Type", (0, 2, 1)),
        (":START_ID :END_ID :TYPE", (0, 2, 1)),
        ("#head relation tail", (0, 1, 2)),
        ("headEntity relationType tailEntity", (0, 1, 2)),
        ("subject_id predicate_id object_id score", (0, 1, 2)),
        ("h r t weight", (0, 1, 2)),
        # rows, not headers
        ("a r t", None),
        ("h p t", None),
        ("head head tail", None),
        ("person relation company", None),
        ("subject predicate object head", None),
        ("source of_target target", None),
        ("", None),
    ],
)
def test_a_header_names_each_column_once(cells, indices):
    assert find_columns(cells.split()) == indices


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("facts.csv", "object,predicate,subject\nb,r,a\nc,r,b\n"),
        ("facts.csv", "from_entity,rel_type,to_entity\na,r,b\nb,r,c\n"),
        ("facts.tsv", "tail\thead\trelation\nb\ta\tr\nc\tb\tr\n"),
        ("facts.csv", '"the\nnumber","Object","Predicate","Subject"\n1,b,r,a\n2,c,r,b\n'),
        ("facts.csv.gz", "\n\nweight,to,type,from\n0.5,b,r,a\n,c,r,b\n"),
    ],
)
def test_columns_are_found_by_name_in_any_order(write, name, text):
    path = write(name, text)
    triples = read_triples(path)
    named = [
        (triples.entities[h], triples.relations[r], triples.entities[t])
        for h, r, t in triples.splits["train"].tolist()
    ]
    assert named == [("a", "r", "b"), ("b", "r", "c")]
    assert list(triples.report.headers) == [str(path)]


def test_what_was_taken_for_a_header_is_told(write):
    path = write("facts.csv", '"object",predicate,subject\nb,r,a\n')
    assert read_triples(path).report.headers == {str(path): ("object", "predicate", "subject")}
    assert read_triples(write("plain.csv", "b,r,a\n")).report.headers == {}


@pytest.mark.parametrize("text", ["person,relation,company\n", "a,r,t\n", "source,isa,target\n"])
def test_a_row_that_is_not_wholly_a_header_is_a_fact(write, text):
    content = Content()
    assert read(write("facts.csv", text), content) == [tuple(text.strip().split(","))]
    assert not content.report.headers


TRIPS = "from,mode,to,price\nOslo,train,Bergen,500\nBergen,ferry,Stavanger,\n"
TRIPS_BY_NAME = [("Oslo", "train", "Bergen"), ("Bergen", "ferry", "Stavanger")]


def test_columns_can_be_named(write):
    path = write("trips.csv", TRIPS)
    content = Content()
    columns = {"head": "from", "relation": "mode", "tail": "to"}
    assert read(path, content, columns=columns) == TRIPS_BY_NAME
    assert content.report.headers == {str(path): ("from", "mode", "to", "price")}
    turned = read(path, columns={"head": "to", "relation": "mode", "tail": "from"})
    assert turned == [(tail, mode, head) for head, mode, tail in TRIPS_BY_NAME]


def test_columns_can_be_numbered_and_then_every_line_is_a_fact(write):
    path, content = write("facts.tsv", "head\trelation\ttail\nb\tr\ta\n"), Content()
    rows = read(path, content, columns={"head": 3, "relation": 2, "tail": 1})
    assert rows == [("tail", "relation", "head"), ("a", "r", "b")]
    assert not content.report.headers


@pytest.mark.parametrize(
    ("name", "text", "delimiter", "expected"),
    [
        ("facts.csv", '"a;1";r;b\n', ";", [("a;1", "r", "b")]),
        ("facts.txt", "a r b\n", " ", [("a", "r", "b")]),
        ("facts.tsv", "subject|predicate|object\na|r|b\n", "|", [("a", "r", "b")]),
    ],
)
def test_the_delimiter_can_be_given(write, name, text, delimiter, expected):
    assert read(write(name, text), delimiter=delimiter) == expected


def test_errors_name_the_delimiter_and_the_columns(write):
    with pytest.raises(TripleError, match=r"line 2: 2 columns, 3 expected .* by semicolons"):
        read(write("facts.csv", "a;r;b\na;r\n"), delimiter=";")
    with pytest.raises(TripleError, match=r"line 3: the relation is empty"):
        read(write("facts.csv", "object,predicate,subject\nb,r,a\nb,,a\n"))
    named = {"head": "from", "relation": "mode", "tail": "too"}
    with pytest.raises(TripleError, match=r"trips\.csv: There is no column 'too' among 'from'"):
        read(write("trips.csv", TRIPS), columns=named)
    numbered = {"head": 1, "relation": 2, "tail": 5}
    with pytest.raises(TripleError, match="no column 5: there are 4"):
        read(write("trips.csv", TRIPS), columns=numbered)


@pytest.mark.parametrize(
    "text",
    ["head=1", "head=a,relation=b,tail=b", "head=1,relation=b,tail=c", "a", "a,2", "a,b,c,d", ""],
)
def test_columns_must_be_different_and_of_a_kind(text):
    with pytest.raises(InvalidArgument, match=r"HEAD,RELATION,TAIL or HEAD,TAIL"):
        Reading(columns=parse_columns(text))


@pytest.mark.parametrize("options", [{"delimiter": "::"}, {"delimiter": '"'}, {"comment": ""}])
def test_what_cannot_be_a_delimiter_or_a_comment_is_refused(options):
    with pytest.raises(InvalidArgument, match="must"):
        Reading(**options)


def test_errors_show_columns_without_escape_sequences(write, tmp_path):
    with pytest.raises(TripleError) as info:
        read(write("facts.csv", "head,relation,tail,\x1b[31m\na,r,b,c,d\n"))
    assert r"tail, \x1b[31m separated by" in str(info.value)
    frame = pl.DataFrame({"\x1b[31m": ["x"], "b": ["y"], "c": ["z"], "d": ["w"]})
    frame.write_parquet(tmp_path / "facts.parquet")
    with pytest.raises(TripleError) as info:
        read(tmp_path / "facts.parquet")
    assert r"columns are \x1b[31m, b" in str(info.value)


def test_named_columns_of_parquet(tmp_path):
    path = tmp_path / "trips.parquet"
    pl.DataFrame({"a": ["x"], "b": ["y"], "c": ["z"], "d": [1]}).write_parquet(path)
    columns = {"head": "c", "relation": "b", "tail": "a"}
    assert read(path, columns=columns) == [("z", "y", "x")]
    with pytest.raises(TripleError, match="--columns"):
        read(path)
