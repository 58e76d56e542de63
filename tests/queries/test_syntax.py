"""Logic text: what it means, what it refuses and where, and names that survive the round trip."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import InvalidArgument, QuerySyntaxError, UnknownRelation, UnsupportedQuery
from betae.exact.answers import answers
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.queries.ast import PLACEHOLDER, And, Entity, Not, Or, Project
from betae.queries.read import resolve, unresolve
from betae.queries.syntax import parse
from tests.queries.strategies import examples

a, b, c = Entity("a"), Entity("b"), Entity("c")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("?X . r(a, ?X)", a["r"]),
        ("?X . r(?X, a)", a["~r"]),
        ("?X . ~r(a, ?X)", a["~r"]),
        ("?X . ~r(?X, a)", a["r"]),
        ("?X . #3(#1, ?X)", Entity(1)[3]),
        ("?X . #3(?X, #1)", Entity(1)[2]),
        ("?X . ?X = a", a),
        ("?X . a = ?X", a),
        ("?X . !r(a, ?X)", ~a["r"]),
        ("?X . !!r(a, ?X)", ~~a["r"]),
        ("?X . <http://x/r>(<http://x/a>, ?X)", Entity("http://x/a")["http://x/r"]),
        ("?X . exists ?Y : r(a, ?Y) & s(?Y, ?X)", a["r"]["s"]),
        ("?X . exists ?Y . s(?X, ?Y) & r(?Y, a)", a["~r"]["~s"]),
        ("?X . exists ?Y ?Z : r(a, ?Y) & s(?Y, ?Z) & t(?Z, ?X)", a["r"]["s"]["t"]),
        ("?X . exists ?Y : (exists ?Z : r(a, ?Z) & s(?Z, ?Y)) & t(?Y, ?X)", a["r"]["s"]["t"]),
        ("?X . r(a, ?X) & s(b, ?X) | t(c, ?X)", (a["r"] & b["s"]) | c["t"]),
        ("?X . r(a, ?X) & (s(b, ?X) | t(c, ?X))", a["r"] & (b["s"] | c["t"])),
        ("?X . !(r(a, ?X) | s(b, ?X))", ~(a["r"] | b["s"])),
        ("?X . exists ?Y : r(a, ?Y) & (s(?Y, ?X) | t(?Y, ?X))", a["r"]["s"] | a["r"]["t"]),
        ("?X . exists ?Y : (r(a, ?Y) | s(b, ?Y)) & t(?Y, ?X)", (a["r"] | b["s"])["t"]),
        # The paper's reading of a negated atom between variables: all but the whole branch.
        ("?X . !(exists ?Y : r(a, ?Y) & s(?Y, ?X)) & t(b, ?X)", ~a["r"]["s"] & b["t"]),
        ("?X . r('a', ?X)", a["r"]),
        ("?X . r(a, ?X) & ?X != b", a["r"] & ~b),
        ("?X . r(a, ?X) & b ≠ ?X", a["r"] & ~b),
        ("?X . exists ?Y : ?X = ?Y & r(a, ?Y)", a["r"]),
        ("?X . r(a, ?X) - s(b, ?X)", a["r"] & ~b["s"]),
        ("?X . r(a, ?X)-s(b, ?X) - !r(c, ?X)", a["r"] & ~b["s"] & ~~c["r"]),
        ("?X . r(a, ?X) - s(b, ?X) & r(c, ?X)", a["r"] & ~b["s"] & c["r"]),
        ("?X . r(a, ?X) ∖ (s(b, ?X) | r(c, ?X))", a["r"] & ~(b["s"] | c["r"])),
        ("?X . r(a-b, ?X) - r(c, ?X)", Entity("a-b")["r"] & ~c["r"]),
        ("# all of\n?X . r(a, ?X) # and\n  & s(b, ?X) #", a["r"] & b["s"]),
        ("?X . #3(#1, ?X) # 4 is not asked for", Entity(1)[3]),
        ('?X . r("# no comment", ?X)', Entity("# no comment")["r"]),
        # Two quantifiers may use one name, side by side.
        (
            "?X . (exists ?Y : r(a, ?Y) & s(?Y, ?X)) & (exists ?Y : r(b, ?Y) & s(?Y, ?X))",
            a["r"]["s"] & b["r"]["s"],
        ),
    ],
)
def test_meaning(text, query):
    assert parse(text) == query


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "a ?variable"),
        ("r(a, ?X)", 1, 1, "a ?variable"),
        ("?X r(a, ?X)", 1, 4, "'.'"),
        ("?X .", 1, 5, "end of the text"),
        ("?X, . r(?X, a)", 1, 5, "a ?variable"),
        ("?X . r(a ?X)", 1, 10, "','"),
        ("?X . r(a, ?X", 1, 13, "')'"),
        ("?X . r(a, ?X) &", 1, 16, "a name"),
        ("?X . r(a, ?X) s(b, ?X)", 1, 15, "'&'"),
        ("?X . r(a, ?X))", 1, 14, "the end"),
        ("?X . exists : r(a, ?X)", 1, 13, "a ?variable"),
        ("?X . exists ?Y r(a, ?Y)", 1, 16, "':'"),
        ("?X . ~(r(a, ?X))", 1, 7, "a name"),
        ("?X . r(a, $X)", 1, 11, "'$'"),
        ('?X . r("a, ?X)', 1, 8, "closing quote"),
        (r'?X . r("a\q", ?X)', 1, 8, "backslash"),
        (r'?X . r("a\u12", ?X)', 1, 8, "backslash"),
        ("?X . r(a, ?X)\n  & s(b,, ?X)", 2, 9, "','"),
        ("?X . r('a, ?X)", 1, 8, "closing quote"),
        ("?X . r(a#b, ?X)", 1, 9, "'#'"),
        ("?X . r(<Acme Inc>, ?X)", 1, 8, 'write a name in quotes: "Acme Inc"'),
        ("?X . r(a, ?X) -", 1, 16, "a name"),
    ],
)
def test_syntax_errors_point_at_the_place(text, line, column, words):
    with pytest.raises(QuerySyntaxError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    message, shown, caret, *_ = str(caught.value).split("\n")
    assert words in message
    assert shown == "  " + (text.split("\n")[line - 1] if text else "")
    assert caret.index("^") == column + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("?X . r(?Y, ?X)", "?Y is not bound"),
        ("?X . exists ?Y : r(a, ?X)", "?Y is bound but never used"),
        ("?X . exists ?Y : r(a, ?Y)", "target ?X does not occur"),
        ("?X . exists ?X : r(a, ?X)", "target ?X does not occur"),
        ("?X . r(a, ?X) & exists ?X : r(a, ?X)", "?X is bound twice"),
        ("?X . exists ?Y : s(?Y, ?X) & exists ?Y : r(a, ?Y)", "?Y is bound twice"),
        ("?X . exists ?Y : s(?Y, ?X) & !(exists ?Y : r(?Y, ?X))", "?Y is bound twice"),
        ("?X . exists ?Y, ?Y : r(a, ?Y) & s(?Y, ?X)", "?Y is bound twice"),
        ("?X . exists ?Y : r(a, ?Y) & s(?Y, ?X) & t(?Y, ?X)", "cycle"),
        ("?X . exists ?Y : s(?Y, ?X) & t(?X, ?Y)", "cycle"),
        ("?X . exists ?Y, ?Z : r(a, ?Y) & r(?Y, ?Z) & s(?Z, ?X) & t(?Y, ?X)", "cycle"),
        ("?X . r(?X, ?X)", "cycle"),
        ("?X . exists ?Y : r(a, ?X) & s(?Y, ?Y)", "not connected"),
        ("?X . r(a, ?X) & s(a, b)", "without a variable"),
        ("?X . exists ?Y : r(a, ?X) & s(b, ?Y)", "?Y, which is not connected to ?X"),
        ("?X . exists ?Y : r(?Y, ?X)", "?Y, which leads to no named entity"),
        ("?X . r(a, ?X) | exists ?Y : s(b, ?Y)", "?X, which leads to no named entity"),
        (
            "?X . exists ?Y, ?Z : (s(?Y, ?X) | t(?Z, ?X)) & r(a, ?Y) & r(a, ?Z)",
            "several variables (?Y, ?Z)",
        ),
        ("?X, ?Y . r(?X, ?Y) & r(?Y, a)", "several answer variables: ?X, ?Y"),
        ("?X, ?Y . r(?X, ?Z)", "?Z is not bound"),
        ("?X . exists ?Y : r(?X, ?Y) & r(a, ?Y) & ?X != ?Y", "a negation of ?Y and ?X together"),
        ("?X . exists ?Y : r(?X, ?Y) & r(a, ?Y) & !(?X = ?Y)", "a negation of ?Y and ?X together"),
        ("?X . ?X = ?X", "holds for every entity"),
        ("?X . ?X = ?Y", "?Y is not bound"),
        ('?X . a = "b c"', 'not for a and "b c"'),
    ],
)
def test_what_a_tree_cannot_say(text, words):
    with pytest.raises(UnsupportedQuery) as caught:
        parse(text)
    assert words in str(caught.value)


def test_what_only_the_facts_answer_is_said():
    for text in ("?X, ?Y . r(?X, ?Y)", "?X . r(?X, ?X)", "?X . exists ?Y : r(?X, ?Y)"):
        with pytest.raises(
            UnsupportedQuery, match=r"exact answers \(`betae query`.* one answer variable"
        ):
            parse(text)


ODD_NAMES = [
    'say "cheese"',
    "FIFA World Cup",
    "exists",
    "exists-not",
    "Île-de-France",
    "北京",
    "∃∀¬",
    "#3",
    "~r",
    "~~r",
    "~",
    "_",
    "~_",
    "\\_",
    "\\\\_",
    "\\~r",
    "~\\~r",
    "_\n",
    "it's",
    "",
    " ",
    "\\",
    "a\\",
    "\\u0041",
    "line\nbreak\ttab",
    "?X",
    "a,b)",
    "<iri>",
    "http://x/#fragment",
    "/people/person./spouse",
    "12",
    "a.",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_survive_the_round_trip(name):
    for query in (Entity(name), Entity(name)["r"], Entity(name)["~r"], a[name], a[name][name]):
        assert parse(str(query)) == query


# Any text, and what is made of characters that mean something.
odd_names = st.text() | st.text(alphabet="~\\_'\"#?-.:<>() \nae", max_size=6)


# ---- what is quoted is a name -------------------------------------------------------------------


def graph_of(*triples):
    entities = sorted({name for head, _, tail in triples for name in (head, tail)})
    relations = sorted({relation for _, relation, _ in triples})
    edges = [(entities.index(h), relations.index(r), entities.index(t)) for h, r, t in triples]
    splits = {split: np.empty((0, 3), dtype=np.int32) for split in ("valid", "test")}
    splits["train"] = np.array(sorted(edges), dtype=np.int32)
    return KnowledgeGraph.from_triples(Triples(entities, relations, splits))


@examples(250)
@given(odd_names.filter(bool), odd_names.filter(bool), odd_names.filter(bool))
def test_any_names_of_a_graph_are_found_and_written(head, relation, tail):
    graph = graph_of((head, relation, tail))
    for query in (Entity(0)[0], Entity(graph.num_entities - 1)[1]):
        assert resolve(parse(str(unresolve(query, graph))), graph) == query
    quoted = [json.dumps(name) for name in (relation, head, tail)]
    text = f"?X . {quoted[0]}({quoted[1]}, ?X)"
    assert resolve(parse(text), graph) == Entity(graph.entity_id(head))[0]
    assert (
        resolve(parse(f"?X . {quoted[0]}(?X, {quoted[2]})"), graph)
        == (Entity(graph.entity_id(tail))[1])
    )


@pytest.fixture
def odd_graph():
    return graph_of(("a", "likes", "b"), ("b", "~likes", "c"), ("_", "likes", "a"), ("c", "_", "_"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("?X . likes(?X, b)", ["a"]),
        ("?X . ~likes(b, ?X)", ["a"]),
        ('?X . "~likes"(b, ?X)', ["c"]),
        ('?X . ~"~likes"(c, ?X)', ["b"]),
        ("?X . '~likes'(?X, c)", ["b"]),
        ("?X . <~likes>(?X, c)", ["b"]),
        ('?X . likes("_", ?X)', ["a"]),
        ("?X . likes(?X, a)", ["_"]),
        ('?X . "_"(c, ?X)', ["_"]),
        ("SELECT ?x { ?x <likes> <b> }", ["a"]),
        ("SELECT ?x { <b> <~likes> ?x }", ["c"]),
        ("SELECT ?x { ?x <~likes> <c> }", ["b"]),
        ("SELECT ?x { ?x <likes>/^<_> <c> }", []),
        ("SELECT ?x { <c> <_>/<likes> ?x }", ["a"]),
    ],
)
def test_names_that_look_like_something_else(text, names, odd_graph):
    found = answers(odd_graph, text)
    assert [odd_graph.entities[entity] for entity in found] == names


def test_a_placeholder_is_bare(odd_graph):
    assert parse("?X . _(_, ?X)") == Entity(PLACEHOLDER)[PLACEHOLDER]
    assert parse("?X . '_'('_', ?X)") != Entity(PLACEHOLDER)[PLACEHOLDER]
    with pytest.raises(InvalidArgument, match="_ is a placeholder"):
        answers(odd_graph, "?X . likes(_, ?X)")


def test_a_quoted_name_is_never_an_inverse():
    graph = graph_of(("a", "likes", "b"), ("c", "~hates", "d"))
    with pytest.raises(UnknownRelation, match=r"no relation '~likes'. Closest: 'likes'"):
        answers(graph, '?X . "~likes"(b, ?X)')
    with pytest.raises(UnknownRelation, match=r"no relation 'hates'. Closest: '~hates'"):
        answers(graph, "?X . hates(?X, c)")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (a["r"], "?X . r(a, ?X)"),
        (a["~r"], "?X . r(?X, a)"),
        (Entity(3)[5], "?X . #5(#3, ?X)"),
        (~(a["r"] & b["s"]), "?X . !(r(a, ?X) & s(b, ?X))"),
        (a["r"] | b["s"]["t"], "?X . r(a, ?X) | (exists ?V1 : s(b, ?V1) & t(?V1, ?X))"),
        (Project(Not(a), "r"), "?X . exists ?V1 : !(?V1 = a) & r(?V1, ?X)"),
        (And(a, Or(b, c)), "?X . ?X = a & (?X = b | ?X = c)"),
    ],
)
def test_str_reads_like_the_paper(query, text):
    assert str(query) == text
    assert parse(text) == query
