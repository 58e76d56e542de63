import numpy as np
import pytest

from betae.datasets import world
from betae.errors import (
    InvalidArgument,
    QuerySyntaxError,
    UnknownEntity,
    UnknownRelation,
    UnsupportedQuery,
)
from betae.exact.answers import answers
from betae.exact.select import select
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.queries.ast import Entity
from betae.queries.formula import Question
from betae.queries.read import parse_question, read_question, resolve, text_or_file
from betae.queries.structures import to_tuple
from betae.queries.syntax import parse


def read_query(text):
    return parse_question(text).tree


def read_query_or_file(argument):
    return read_query(text_or_file(argument))


QUERY = Entity("Europe")["~located_in"]["capital"]
LOGIC = "?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)"
SPARQL = "PREFIX : <> SELECT ?x WHERE { ?c :located_in :Europe ; :capital ?x }"
WRITTEN = {
    "logic": LOGIC,
    "without spaces": "?X.exists?C:located_in(?C,Europe)&capital(?C,?X)",
    "without spaces but at the ends": " ?X.exists?C:located_in(?C,Europe)&capital(?C,?X)\n",
    "sparql": SPARQL,
    "in small letters": SPARQL.replace("PREFIX", "prefix").replace("SELECT", "select"),
    "with a base": "BASE <> SELECT ?x { ?c <located_in> <Europe> ; <capital> ?x }",
    "sparql without spaces": "SELECT?x{?c<located_in><Europe>;<capital>$x}",
    "with a comment": f"# the capitals of Europe\n{SPARQL}",
    "with two comments": f"\n# the capitals\n  # of Europe\n\n{SPARQL}",
    "logic with a comment": f"# select the capitals of Europe\n{LOGIC}",
    "logic with comments": f"  # the capitals\n#\n\n{LOGIC}  # of Europe",
    "over several lines": f"\n  {LOGIC.replace('&', chr(10) + '&')}\n",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_query_as_text_or_in_a_file(text, write):
    assert read_query(text) == QUERY
    assert read_query_or_file(text) == QUERY
    assert read_query_or_file(str(write("query.txt", text))) == QUERY


def test_every_notation_is_the_same_question():
    graph = world()
    expected = resolve(QUERY, graph)
    nested = to_tuple(expected)
    for question in (QUERY, expected, LOGIC, SPARQL, nested):
        read = read_question(question, graph)
        assert read.tree == expected
        assert Question(read.variables, read.formula).tree == expected
        assert parse(str(read.tree)) == expected


@pytest.mark.parametrize("question", [None, 3, [LOGIC], {"x": 1}])
def test_what_is_not_a_question(question, toy_graph):
    with pytest.raises(InvalidArgument, match="is not a question"):
        read_question(question, toy_graph)


def test_text_is_never_read_from_disk(write, monkeypatch, tmp_path):
    file = write("query", LOGIC)
    monkeypatch.chdir(tmp_path)
    for text in (str(file), "query"):
        with pytest.raises(InvalidArgument, match="not a question"):
            read_query(text)


def test_unicode_in_a_file(write):
    text = "?X . ∃?C : located_in(?C, Côte_d’Ivoire) ∧ ¬capital(France, ?C) ∧ capital(?C, ?X)"
    quoted = text.replace("Côte_d’Ivoire", '"Côte_d’Ivoire"')
    assert read_query_or_file(str(write("query.txt", quoted))) == read_query(quoted)


@pytest.mark.parametrize("text", ["nowhere.rq", "France", "/"])
def test_a_word_that_names_no_file(text):
    with pytest.raises(InvalidArgument, match="neither a question nor a file"):
        read_query_or_file(text)
    with pytest.raises(InvalidArgument, match=r"not a question. Write logic text, such as '\?X"):
        read_query(text)


def test_what_cannot_be_read(write):
    with pytest.raises(InvalidArgument, match="is empty"):
        read_query(" ")
    with pytest.raises(QuerySyntaxError, match=r"\^$"):
        read_query("?X . borders(France ?X)")
    with pytest.raises(InvalidArgument, match=r"empty\.rq is empty"):
        read_query_or_file(str(write("empty.rq", "")))
    with pytest.raises(UnsupportedQuery):
        read_query("PREFIX : <> ASK { :France :borders :Spain }")


def test_a_file_that_is_no_text(write):
    with pytest.raises(InvalidArgument, match="not a UTF-8 text file"):
        read_query_or_file(str(write("query.rq", b"\xff\xfe\x00")))


def test_a_file_with_a_space_in_its_name(write):
    assert read_query_or_file(str(write("my query.rq", SPARQL))) == QUERY


def test_a_query_longer_than_any_path():
    text = " & ".join([LOGIC, *(f"r(a{number}, ?X)" for number in range(1000))])
    assert read_query_or_file(text) == read_query(text)


# ---- the prefixes of a graph -----------------------------------------------------------------

WD, WDT = "http://wd/", "http://wdt/"


class Prefixed(KnowledgeGraph):
    prefixes = property(lambda self: {"wd": WD, "wdt": WDT, "": WD}, lambda self, value: None)


@pytest.fixture
def graph():
    empty = np.empty((0, 3), dtype=np.int32)
    edges = np.array([(0, 0, 1), (2, 1, 1)], dtype=np.int32)
    splits = {"train": edges, "valid": empty, "test": empty}
    return Prefixed.from_triples(Triples([f"{WD}a", f"{WD}b", "wd:a"], [f"{WDT}r", "s"], splits))


@pytest.mark.parametrize(
    "text",
    [
        "?X . wdt:r(?X, wd:b)",
        "?X . <http://wdt/r>(?X, <http://wd/b>)",
        "?X . 'wdt:r'(?X, ':b')",
        "?X . ~wdt:r(wd:b, ?X)",
        "SELECT ?x { ?x wdt:r wd:b }",
        "SELECT ?x { ?x wdt:r :b }",
        "SELECT ?x { ?x <http://wdt/r> <http://wd/b> }",
        "PREFIX wdt: <http://wdt/> SELECT ?x { ?x wdt:r wd:b }",
        "SELECT ?x { ?x wdt:r wd:b . ?x wdt:r ?y . ?x wdt:r/^wdt:r ?x }",
    ],
)
def test_known_prefixes(graph, text):
    found = select(graph, text)
    (name, label), (row,) = found.columns, found
    assert row == {name: f"{WD}a", label: "wd:a"}


def test_a_tree_too(graph):
    assert answers(graph, "?X . wdt:r(?X, wd:b)").tolist() == [0]
    assert answers(graph, "SELECT ?x { ?x wdt:r wd:b }").tolist() == [0]


def test_a_name_that_is_there_comes_first(graph):
    assert answers(graph, "?X . s(wd:a, ?X)").tolist() == [1]
    assert answers(graph, "?X . wdt:r(wd:a, ?X)").tolist() == []


def test_what_is_not_there(graph):
    with pytest.raises(UnknownEntity, match=r"no entity '(http://wd/|wd:)c'"):
        answers(graph, "?X . wdt:r(?X, wd:c)")
    with pytest.raises(UnknownRelation, match=r"no relation '(http://wdt/|wdt:)t'"):
        answers(graph, "?X . wdt:t(?X, wd:b)")
    with pytest.raises(UnknownEntity, match="no entity 'other:b'"):
        answers(graph, "?X . wdt:r(?X, other:b)")
    with pytest.raises(QuerySyntaxError, match="prefix other: is not declared"):
        answers(graph, "SELECT ?x { ?x wdt:r other:b }")
