"""Which column is which: headers of files, and columns that are named by the user."""

import pytest

from betae import InvalidArgument, TripleError, read_triples
from betae.graph.columns import find_columns, parse_columns
from betae.graph.formats import read_table
from betae.graph.source import Reading


@pytest.mark.parametrize(
    ("cells", "places"),
    [
        ("head relation tail", (0, 1, 2)),
        ("object predicate subject", (2, 1, 0)),
        ("from_entity rel_type to_entity", (0, 1, 2)),
        ("to_entity from_entity rel_type", (1, 2, 0)),
        ("Source Target Type", (0, 2, 1)),
        (":START_ID :END_ID :TYPE", (0, 2, 1)),
        ("#head relation tail", (0, 1, 2)),
        ("headEntity relationType tailEntity", (0, 1, 2)),
        ("subject_id predicate_id object_id score", (0, 1, 2)),
        ("score o p s", (3, 2, 1)),
        ("t r h", (2, 1, 0)),
        ("h r t weight", (0, 1, 2)),
        # rows, not headers
        ("a r t", None),
        ("s r t", None),
        ("h p t", None),
        ("head head tail", None),
        ("person relation company", None),
        ("head relation", None),
        ("subject predicate object head", None),
        ("to to to", None),
        ("source of_target target", None),
        ("", None),
    ],
)
def test_a_header_names_each_column_once(cells, places):
    assert find_columns(cells.split()) == places


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
    table = read_table(write("facts.csv", text))
    assert table.triples.rows() == [tuple(text.strip().split(","))]
    assert table.header is None


TRIPS = "from,mode,to,price\nOslo,train,Bergen,500\nBergen,ferry,Stavanger,\n"
TRIPS_BY_NAME = [("Oslo", "train", "Bergen"), ("Bergen", "ferry", "Stavanger")]


def test_columns_can_be_named(write):
    path = write("trips.csv", TRIPS)
    reading = Reading(columns={"head": "from", "relation": "mode", "tail": "to"})
    table = read_table(path, reading=reading)
    assert table.triples.rows() == TRIPS_BY_NAME
    assert table.header == ("from", "mode", "to", "price")
    turned = Reading(columns={"head": "to", "relation": "mode", "tail": "from"})
    assert read_table(path, reading=turned).triples.rows() == [
        (tail, mode, head) for head, mode, tail in TRIPS_BY_NAME
    ]


def test_columns_can_be_numbered_and_then_every_line_is_a_fact(write):
    reading = Reading(columns={"head": 3, "relation": 2, "tail": 1})
    table = read_table(write("facts.tsv", "head\trelation\ttail\nb\tr\ta\n"), reading=reading)
    assert table.triples.rows() == [("tail", "relation", "head"), ("a", "r", "b")]
    assert table.header is None


@pytest.mark.parametrize(
    ("name", "text", "delimiter", "expected"),
    [
        ("facts.csv", '"a;1";r;b\n', ";", [("a;1", "r", "b")]),
        ("facts.txt", "a r b\n", " ", [("a", "r", "b")]),
        ("facts.tsv", "subject|predicate|object\na|r|b\n", "|", [("a", "r", "b")]),
    ],
)
def test_the_delimiter_can_be_given(write, name, text, delimiter, expected):
    table = read_table(write(name, text), reading=Reading(delimiter=delimiter))
    assert table.triples.rows() == expected


def test_errors_name_the_delimiter_and_the_columns(write):
    with pytest.raises(TripleError, match=r"line 2: 2 columns, 3 expected .* by semicolons"):
        read_table(write("facts.csv", "a;r;b\na;r\n"), reading=Reading(delimiter=";"))
    with pytest.raises(TripleError, match=r"line 3: the relation is empty"):
        read_table(write("facts.csv", "object,predicate,subject\nb,r,a\nb,,a\n"))
    named = Reading(columns={"head": "from", "relation": "mode", "tail": "too"})
    with pytest.raises(TripleError, match=r"trips\.csv: There is no column 'too' among 'from'"):
        read_table(write("trips.csv", TRIPS), reading=named)
    numbered = Reading(columns={"head": 1, "relation": 2, "tail": 5})
    with pytest.raises(TripleError, match="no column 5: there are 4"):
        read_table(write("trips.csv", TRIPS), reading=numbered)


@pytest.mark.parametrize(
    "text", ["head=1", "head=a,relation=b,tail=b", "head=1,relation=b,tail=c", "a,b,c", ""]
)
def test_columns_must_be_three_of_a_kind(text):
    with pytest.raises(InvalidArgument, match=r"head=\.\.\., relation=\.\.\., tail="):
        parse_columns(text)


@pytest.mark.parametrize("options", [{"delimiter": "::"}, {"delimiter": '"'}, {"comment": ""}])
def test_what_cannot_be_a_delimiter_or_a_comment_is_refused(options):
    with pytest.raises(InvalidArgument, match="must"):
        Reading(**options)


def test_errors_show_columns_without_escape_sequences(write, tmp_path):
    import polars as pl

    with pytest.raises(TripleError) as info:
        read_table(write("facts.csv", "head,relation,tail,\x1b[31m\na,r,b,c,d\n"))
    assert r"tail, \x1b[31m separated by" in str(info.value)
    pl.DataFrame({"\x1b[31m": ["x"], "b": ["y"]}).write_parquet(tmp_path / "facts.parquet")
    with pytest.raises(TripleError) as info:
        read_table(tmp_path / "facts.parquet")
    assert r"columns are \x1b[31m, b" in str(info.value)


def test_named_columns_of_parquet(tmp_path):
    import polars as pl

    path = tmp_path / "trips.parquet"
    pl.DataFrame({"a": ["x"], "b": ["y"], "c": ["z"], "d": [1]}).write_parquet(path)
    reading = Reading(columns={"head": "c", "relation": "b", "tail": "a"})
    assert read_table(path, reading=reading).triples.rows() == [("z", "y", "x")]
    with pytest.raises(TripleError, match="--columns"):
        read_table(path)
