import pytest

from betae.errors import InvalidArgument, QuerySyntaxError, UnsupportedQuery
from betae.queries.ast import Entity
from betae.queries.read import as_query, read_query, text_or_file


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


def test_a_question_as_a_tree_or_as_text():
    assert as_query(QUERY) is QUERY
    assert as_query(LOGIC) == as_query(SPARQL) == QUERY


@pytest.mark.parametrize("question", [None, 3, [LOGIC], {"x": 1}])
def test_what_is_no_question(question):
    with pytest.raises(InvalidArgument, match="is no query"):
        as_query(question)


def test_text_is_never_read_from_disk(write, monkeypatch, tmp_path):
    file = write("query", LOGIC)
    monkeypatch.chdir(tmp_path)
    for text in (str(file), "query"):
        with pytest.raises(InvalidArgument, match="not a query"):
            read_query(text)


def test_unicode_in_a_file(write):
    text = "?X . ∃?C : located_in(?C, Côte_d’Ivoire) ∧ ¬capital(?C, ?X)"
    quoted = text.replace("Côte_d’Ivoire", '"Côte_d’Ivoire"')
    assert read_query_or_file(str(write("query.txt", quoted))) == read_query(quoted)


@pytest.mark.parametrize("text", ["nowhere.rq", "France", "/"])
def test_a_word_that_names_no_file(text):
    with pytest.raises(InvalidArgument, match="neither a query nor a file"):
        read_query_or_file(text)
    with pytest.raises(InvalidArgument, match=r"not a query. Write logic text, such as '\?X"):
        read_query(text)


def test_what_cannot_be_read(write):
    with pytest.raises(InvalidArgument, match="nothing in it"):
        read_query(" ")
    with pytest.raises(QuerySyntaxError, match=r"\^$"):
        read_query("?X . borders(France ?X)")
    with pytest.raises(InvalidArgument, match=r"empty\.rq is empty"):
        read_query_or_file(str(write("empty.rq", "")))
    with pytest.raises(UnsupportedQuery):
        read_query("PREFIX : <> ASK { :France :borders :Spain }")


def test_a_file_that_is_no_text(write):
    with pytest.raises(InvalidArgument, match="not a text file"):
        read_query_or_file(str(write("query.rq", b"\xff\xfe\x00")))


def test_a_file_with_a_space_in_its_name(write):
    assert read_query_or_file(str(write("my query.rq", SPARQL))) == QUERY


def test_a_query_longer_than_any_path():
    text = " & ".join([LOGIC, *(f"r(a{number}, ?X)" for number in range(1000))])
    assert read_query_or_file(text) == read_query(text)
