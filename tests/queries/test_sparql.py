"""SPARQL: what it means, what it refuses by name, and how IRIs become names."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rdflib.plugins.sparql import parser

from betae.errors import QuerySyntaxError, UnsupportedQuery
from betae.queries.ast import Entity, IsA, Or
from betae.queries.sparql import parse_sparql

a, b, c = Entity("a"), Entity("b"), Entity("c")


@pytest.mark.parametrize(
    ("where", "query"),
    [
        # triple patterns
        (":a :r ?x", a["r"]),
        ("?x :r :a", a["~r"]),
        ("?x :r :a ; :s :b", a["~r"] & b["~s"]),
        ("?x :r :a , :b", a["~r"] & b["~r"]),
        ("?x :r ?y . ?y :s :a", a["~s"]["~r"]),
        ("?x :r _:y . _:y :s :a", a["~s"]["~r"]),
        ("?x :r [ :s :a ; :t :b ]", (a["~s"] & b["~t"])["~r"]),
        ("?x a :a", IsA("a")),
        ("$x :r :a", a["~r"]),
        # property paths
        (":a :r/:s ?x", a["r"]["s"]),
        (":a :r/:s/:t ?x", a["r"]["s"]["t"]),
        ("?x ^:r :a", a["r"]),
        ("?x ^:r/:s :a", a["~s"]["r"]),
        ("?x ^(:r/:s) :a", a["r"]["s"]),
        ("?x ^(:r/^:s) :a", a["r"]["~s"]),
        (":a ((:r)) ?x", a["r"]),
        (":a :r|^:s ?x", a["r"] | a["~s"]),
        (":a :r/(:s|:t) ?x", a["r"]["s"] | a["r"]["t"]),
        (":a (:r|:s)/:t ?x", (a["r"] | a["s"])["t"]),
        # groups and unions
        ("{ :a :r ?x } { :b :s ?x }", a["r"] & b["s"]),
        ("{ { { :a :r ?x } } }", a["r"]),
        ("{ :a :r ?x } UNION { :b :r ?x } UNION { :c :r ?x }", Or(a["r"], b["r"], c["r"])),
        ("{ :a :r ?x } UNION { :b :r ?y . ?y :s ?x }", a["r"] | b["r"]["s"]),
        ("{ :a :r ?y } UNION { :b :r ?y } ?y :s ?x", (a["r"] | b["r"])["s"]),
        ("{ ?y :r ?x } UNION { ?y :s ?x } :a :t ?y", a["t"]["r"] | a["t"]["s"]),
        ("?y :t ?x { :a :r ?y } UNION { :b :r ?z . ?z :s ?y }", (a["r"] | b["r"]["s"])["t"]),
        # complements
        (":a :r ?x MINUS { :b :s ?x }", a["r"] & ~b["s"]),
        (":a :r ?x MINUS { :b :s ?x } MINUS { :c :s ?x }", a["r"] & ~b["s"] & ~c["s"]),
        (":a :r ?x FILTER NOT EXISTS { :b :s ?x }", a["r"] & ~b["s"]),
        ("FILTER NOT EXISTS { :b :s ?x } :a :r ?x", ~b["s"] & a["r"]),
        (":a :r ?x FILTER(NOT EXISTS { :b :s ?x })", a["r"] & ~b["s"]),
        (
            ":a :r ?x FILTER(NOT EXISTS { :b :s ?x } && NOT EXISTS { :c :s ?x })",
            a["r"] & ~b["s"] & ~c["s"],
        ),
        (":a :r ?x MINUS { ?x :s ?y . ?y :t :b }", a["r"] & ~b["~t"]["~s"]),
        (":a :r ?x MINUS { { :b :s ?x } UNION { :c :s ?x } }", a["r"] & ~(b["s"] | c["s"])),
        (
            ":a :r ?x FILTER NOT EXISTS { :b :s ?x FILTER NOT EXISTS { :c :t ?x } }",
            a["r"] & ~(b["s"] & ~c["t"]),
        ),
        (
            ":a :r ?x FILTER NOT EXISTS { ?x :s ?y . :b :r ?y MINUS { :c :t ?y } }",
            a["r"] & ~(b["r"] & ~c["t"])["~s"],
        ),
        # a variable inside a complement that is not shared is another one
        (
            ":a :r ?x MINUS { ?x :s ?y . ?y :t :b } ?x :s ?y . ?y :t :c",
            a["r"] & ~b["~t"]["~s"] & c["~t"]["~s"],
        ),
        (
            ":a :r ?x { :b :s ?x FILTER NOT EXISTS { ?x :t ?y . ?y :t :c } } ?x :r ?y . ?y :r :a",
            a["r"] & (b["s"] & ~c["~t"]["~t"]) & a["~r"]["~r"],
        ),
        # fixed values
        ("VALUES ?x { :a }", a),
        ("VALUES ?x { :a :b }", a | b),
        ("VALUES (?x) { (:a) (:b) }", a | b),
        ("VALUES ?y { :a :b } ?y :r ?x", (a | b)["r"]),
        (":a :r ?x FILTER(?x = :b)", a["r"] & b),
        (":a :r ?x FILTER(:b = ?x)", a["r"] & b),
        (":a :r ?x FILTER(?x != :b)", a["r"] & ~b),
        (":a :r ?x FILTER(?x != :b && ?x != :c)", a["r"] & ~b & ~c),
        (":a :r ?x FILTER(?x = :b || ?x = :c)", a["r"] & (b | c)),
        (":a :r ?x FILTER(?x IN (:b, :c))", a["r"] & (b | c)),
        (":a :r ?x FILTER(?x NOT IN (:b, :c))", a["r"] & ~(b | c)),
        (":a :r ?x FILTER(?x NOT IN (:b))", a["r"] & ~b),
        (":a :r ?x FILTER(!(?x = :b))", a["r"] & ~b),
        (":a :r ?x FILTER(!(?x = :b || ?x = :c))", a["r"] & ~(b | c)),
        (":a :r ?x FILTER EXISTS { ?x :s :b }", a["r"] & b["~s"]),
        (":a :r ?x FILTER(EXISTS { ?x :s :b } || ?x = :c)", a["r"] & (b["~s"] | c)),
        (":a :r ?x FILTER(!EXISTS { ?x :s :b })", a["r"] & ~b["~s"]),
        (":a :r ?y . ?x :s ?z FILTER(?x = ?y && ?z = :b)", b["~s"] & a["r"]),
        # paths of up to three steps
        (":a :r? ?x", a | a["r"]),
        (":a :r+ ?x", a["r"] | a["r"]["r"] | a["r"]["r"]["r"]),
        ("?x :r+ :a", a["~r"] | a["~r"]["~r"] | a["~r"]["~r"]["~r"]),
        (":a :r* ?x", a | a["r"] | a["r"]["r"] | a["r"]["r"]["r"]),
        (":a :s/:r? ?x", a["s"] | a["s"]["r"]),
        ("?x :s/:r? :a", (a | a["~r"])["~s"]),
        (
            ":a (:r/^:s)+ ?x",
            a["r"]["~s"] | a["r"]["~s"]["r"]["~s"] | a["r"]["~s"]["r"]["~s"]["r"]["~s"],
        ),
    ],
)
def test_meaning(where, query):
    assert parse_sparql(f"PREFIX : <> SELECT ?x WHERE {{ {where} }}").tree == query


@pytest.mark.parametrize("select", ["SELECT DISTINCT", "select reduced"])
def test_answers_are_distinct_anyway(select):
    assert parse_sparql(f"PREFIX : <> {select} ?x {{ :a :r ?x }}").tree == a["r"]


def test_every_variable_and_a_limit():
    assert parse_sparql("PREFIX : <> SELECT * { :a :r ?x }").tree == a["r"]
    question = parse_sparql("PREFIX : <> SELECT * { ?y :r ?x . ?x :r _:b MINUS { ?x :s ?z } }")
    assert [variable.name for variable in question.variables] == ["y", "x"]
    assert question.limit is None
    assert parse_sparql("SELECT ?x ?x { ?x <r> <a> } LIMIT 12").limit == 12
    assert parse_sparql("SELECT ?x ?x { ?x <r> <a> } LIMIT 12").tree == a["~r"]


def test_known_prefixes_need_no_declaration():
    known = {"w": "http://w/", "x": "http://x/"}
    text = "SELECT ?x { w:a x:r ?x }"
    assert parse_sparql(text, known).tree == Entity("http://w/a")["http://x/r"]
    declared = f"PREFIX x: <http://y/> {text}"
    assert parse_sparql(declared, known).tree == Entity("http://w/a")["http://y/r"]
    with pytest.raises(QuerySyntaxError, match="prefix w: is not declared"):
        parse_sparql(text, {"x": "http://x/"})


def test_values_after_the_group():
    assert parse_sparql("PREFIX : <> SELECT ?x { :a :r ?x } VALUES ?x { :b }").tree == a["r"] & b
    assert parse_sparql("PREFIX : <> SELECT ?x {} VALUES ?x { :b }").tree == b


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("SELECT ?x { <http://x/a> <http://x/r> ?x }", Entity("http://x/a")["http://x/r"]),
        ("PREFIX x: <http://x/> SELECT ?x { x:a x:r ?x }", Entity("http://x/a")["http://x/r"]),
        ("BASE <http://x/> SELECT ?x { <a> <r> ?x }", Entity("http://x/a")["http://x/r"]),
        (
            "BASE <http://x/> PREFIX y: <y#> SELECT ?x { <a> y:r ?x }",
            Entity("http://x/a")["http://x/y#r"],
        ),
        ("SELECT ?x { <http://x/a%20b> <r> ?x }", Entity("http://x/a%20b")["r"]),
        ("SELECT ?x { <FIFA%20World%20Cup> <hosted> ?x }", Entity("FIFA World Cup")["hosted"]),
        ("PREFIX : <> SELECT ?x { :FIFA%20World%20Cup :r ?x }", Entity("FIFA World Cup")["r"]),
        ("SELECT ?x { <Cura%C3%A7ao> <r> ?x }", Entity("Curaçao")["r"]),
        ("SELECT ?x { <Curaçao> <r> ?x }", Entity("Curaçao")["r"]),
        ("SELECT ?x { </m/01> </a/b./c> ?x }", Entity("/m/01")["/a/b./c"]),
        ("SELECT ?x { <#1> <r> ?x }", Entity("#1")["r"]),
        (r"PREFIX : <> SELECT ?x { :St\.\,\_A :r ?x }", Entity("St.,_A")["r"]),
        (r"SELECT ?x { <\u0041> <r> ?x }", Entity("A")["r"]),
        ("PREFIX n: <north/> SELECT ?x { n:a n: ?x }", Entity("north/a")["north/"]),
    ],
)
def test_iris_become_names(text, query, capfd, caplog):
    assert parse_sparql(text).tree == query
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # the form of the query
        ("SELECT * { ?x :r ?y . ?y :r :a }", "several answer variables: ?x, ?y"),
        ("SELECT ?x ?y { ?x :r ?y . ?y :r :a }", "several answer variables: ?x, ?y"),
        ("SELECT (COUNT(?x) AS ?n) { ?x :r :a }", "COUNT("),
        ("SELECT (?y AS ?x) { ?y :r :a }", "expression in SELECT: ?y"),
        ("ASK { ?x :r :a }", "ASK"),
        ("CONSTRUCT { ?x :r :a } WHERE { ?x :r :a }", "CONSTRUCT"),
        ("DESCRIBE ?x { ?x :r :a }", "DESCRIBE"),
        ("SELECT ?x { ?x :r :a } OFFSET 3", "OFFSET: answers have no order"),
        ("SELECT ?x { ?x :r :a } ORDER BY ?x", "ORDER BY: `betae answer` ranks answers"),
        ("SELECT ?x { ?x :r :a } GROUP BY ?x", "GROUP BY"),
        ("SELECT ?x { ?x :r :a } HAVING(?x = :a)", "HAVING"),
        ("SELECT ?x FROM :g { ?x :r :a }", "FROM"),
        # parts of groups
        ("SELECT ?x { ?x :r :a OPTIONAL { ?x :s :b } }", "OPTIONAL"),
        ("SELECT ?x { ?x :r :a BIND(:b AS ?y) }", "BIND"),
        ("SELECT ?x { GRAPH :g { ?x :r :a } }", "GRAPH"),
        ("SELECT ?x { SERVICE :g { ?x :r :a } }", "SERVICE"),
        ("SELECT ?x { { SELECT ?x { ?x :r :a } } }", "a SELECT inside the SELECT"),
        ("SELECT ?x { VALUES (?x ?y) { (:a) } }", "a row of VALUES with 1 of 2 values"),
        ("SELECT ?x { VALUES (?x ?y) { (:a :b) } }", "?y, which is not connected to ?x"),
        ("SELECT ?x { VALUES ?x { UNDEF } }", "UNDEF in VALUES"),
        ("SELECT ?x { VALUES ?x { :a 3 } }", "3 in VALUES"),
        ("SELECT ?x { VALUES ?x { } }", "VALUES without a value"),
        # filters
        ("SELECT ?x { ?x :r :a FILTER(?x > 3) }", "FILTER(?x > 3)"),
        ("SELECT ?x { ?x :r :a FILTER(?x = 'b') }", 'FILTER(?x = "b")'),
        ("SELECT ?x { ?x :r ?y . ?y :r :a FILTER(?x != ?y) }", "a negation of ?y and ?x together"),
        ("SELECT ?x { ?x :r :a FILTER(?x = :a || ?x > 3) }", "FILTER(?x > 3)"),
        ("SELECT ?x { ?x :r :a FILTER(?x IN (:a, 3)) }", "FILTER(?x IN …)"),
        ("SELECT ?x { ?x :r :a FILTER(?x IN ()) }", "FILTER(?x IN "),
        ("SELECT ?x { ?x :r :a FILTER(3 IN (:a)) }", "FILTER(3 IN …)"),
        ("SELECT ?x { ?x :r :a FILTER(1 + 2) }", "FILTER(1 + …)"),
        ("SELECT ?x { ?x :r :a FILTER(!BOUND(?x)) }", "FILTER(BOUND(…))"),
        ("SELECT ?x { ?x :r :a FILTER REGEX(?x, 'b') }", "FILTER(REGEX(…))"),
        ("SELECT ?x { ?x :r :a FILTER EXISTS { ?y :r :b } }", "EXISTS that shares no variable"),
        ("SELECT ?x { ?x :r :a FILTER(?y = :a) }", "FILTER on ?y"),
        ("SELECT ?x { ?x :r :a { FILTER(?x = :a) } }", "FILTER on ?x"),
        # terms and paths
        ("SELECT ?x { ?x ?p :a }", "the variable ?p as a predicate"),
        ("SELECT ?x { ?x :r/:s 5 }", "the literal 5"),
        ("SELECT ?x { ?x ^:r 'Europe'@en }", 'the literal "Europe"'),
        ("SELECT ?x { ?x :r :a . :b :r* :b }", "a path between two named entities"),
        ("SELECT ?x { ?x !(:r|:s) :a }", "negated property set"),
        # complements and unions that are no tree
        ("SELECT ?x { ?x :r :a MINUS { ?y :r :b } }", "it has no effect"),
        ("SELECT ?x { MINUS { ?x :r :b } ?x :r :a }", "it has no effect"),
        (
            "SELECT ?x { ?x :r ?y . ?y :s :a MINUS { ?x :t ?y } }",
            "a negation of ?y and ?x together",
        ),
        ("SELECT ?x { ?x :r :a FILTER NOT EXISTS { ?y :r :b } }", "shares no variable"),
        ("SELECT ?x { FILTER NOT EXISTS { ?x :r :b } }", "shares no variable"),
        (
            "SELECT ?x { ?x :r ?y . ?y :s :a FILTER NOT EXISTS { ?x :t ?y } }",
            "a negation of ?y and ?x together",
        ),
        (  # the inner one sees ?x of the outermost group
            "SELECT ?x { ?x :r :a FILTER NOT EXISTS { ?y :r :b FILTER NOT EXISTS { ?x :t ?y } } }",
            "a negation of ?y and ?x together",
        ),
        (
            "SELECT ?x { ?x :r :a FILTER NOT EXISTS { ?x :s :b MINUS { ?x :t :c } } }",
            "write NOT EXISTS for both",
        ),
        ("SELECT ?x { { ?x :r :a } UNION { ?y :r :b } }", "?x in only some branches of a UNION"),
        (
            "SELECT ?x { { ?x :r :a } UNION { ?x :r ?y } ?y :s :b }",
            "?y in only some branches of a UNION",
        ),
        # what to_tree refuses
        ("SELECT ?x { }", "target ?x does not occur"),
        ("SELECT ?x { ?y :r :a }", "target ?x does not occur"),
        ("SELECT ?x { ?x :r :a . :b :r :c }", "without a variable"),
        ("SELECT ?x { ?x :r :a . ?y :r :b }", "?y, which is not connected"),
        ("SELECT ?x { ?x :r ?y }", "?y, which leads to no named entity"),
        ("SELECT ?x { ?x :r ?y . ?y :s ?x }", "cycle"),
        ("SELECT ?x { ?x :r/:s ?x }", "cycle"),
        ("SELECT ?x { ?x :r ?y, ?z . ?y :s ?z . ?z :t :a }", "cycle"),
        ("SELECT ?x { " + "{" * 500 + "}" * 500 + " }", "nested too deeply"),
    ],
)
def test_what_a_tree_cannot_say_is_named(text, words):
    with pytest.raises(UnsupportedQuery) as caught:
        assert parse_sparql("PREFIX : <> " + text).tree
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "Not valid SPARQL"),
        ("INSERT DATA { <a> <r> <b> }", 1, 1, "Not valid SPARQL"),
        ("SELECT ?x { ?x <r> <a>", 1, 11, "This { is never closed"),
        ("SELECT ?x { ?x <r> <a> } and more", 1, 26, "Not valid SPARQL"),
        ("SELECT ?x {\n  ?x <r> <a> MINUS { ?x <s> <b> .\n}", 1, 11, "This { is never closed"),
        ("SELECT ?x { ?x <r#x> <a> MINUS { ?x <s> '{' }", 1, 11, "This { is never closed"),
        ("SELECT ?x { ?x <r> <a> LIMIT 3", 1, 11, "This { is never closed"),
        ("SELECT ?x { ?x <r> <Acme Inc> }", 1, 20, "write <Acme%20Inc>"),
        ("SELECT ?x {\n  ?x <r> <a> .\n  ?x r <b> }", 3, 3, "Not valid SPARQL"),
        ("SELECT ?x { ?x <r> w:Europe }", 1, 20, "The prefix w: is not declared"),
        ("SELECT ?x { ?x <r> :Europe }", 1, 20, "The prefix : is not declared"),
        (r"SELECT ?x { ?x <r> <\uFFFFFFFF> }", 1, 23, "FFFFFFFF"),
    ],
)
def test_syntax_errors_point_at_the_place(text, line, column, words):
    with pytest.raises(QuerySyntaxError) as caught:
        parse_sparql(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    message, shown, caret = str(caught.value).split("\n")
    assert words in message
    assert shown == "  " + (text.split("\n")[line - 1] if text else "")
    assert caret.index("^") == column + 1


def test_rdflib_is_loaded_on_first_use_only():
    code = "import sys, betae.queries.sparql; sys.exit('rdflib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_take_turns_at_the_parser(monkeypatch):
    parse, inside, most = parser.parseQuery, [], []

    def slowly(text):
        inside.append(text)
        most.append(len(inside))
        time.sleep(0.01)  # lets others in, if they can come in
        found = parse(text)
        inside.remove(text)
        return found

    monkeypatch.setattr(parser, "parseQuery", slowly)
    texts = [f"SELECT ?x {{ <a> <r{number}> ?x }}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert [str(question.tree) for question in pool.map(parse_sparql, texts)] == [
            f"?X . r{number}(a, ?X)" for number in range(4)
        ]
    assert most == [1, 1, 1, 1]


# ---- questions that grow ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("((((:r+)+)+)+)", ":r+"),
        ("((:r*)+)", ":r*"),
        ("((:r+)*)", ":r*"),
        ("((:r?)+)", ":r*"),
        ("((:r+)?)", ":r*"),
        ("((:r?)?)", ":r?"),
        ("(((:r/:s)+)+)", "(:r/:s)+"),
    ],
)
def test_nested_repeats_are_one(path, same):
    nested, flat = (parse_sparql(f"PREFIX : <> SELECT ?x {{ :a {p} ?x }}") for p in (path, same))
    assert nested.tree == flat.tree


BOMBS = {
    "repeats within repeats": ":a " + "(" * 9 + ":r" + "/:s)+" * 9 + " ?x",
    "a path of alternatives": ":a " + "/".join(["(:r|:s)"] * 24) + " ?x",
    "unions on a path": ":a :r ?v0 . "
    + " . ".join(f"{{ ?v{i} :r ?v{i + 1} }} UNION {{ ?v{i} :s ?v{i + 1} }}" for i in range(24))
    + " . ?v24 :r ?x",
}


@pytest.mark.parametrize("name", BOMBS)
def test_the_size_of_a_tree_is_bounded_while_it_is_built(name):
    question = parse_sparql(f"PREFIX : <> SELECT ?x {{ {BOMBS[name]} }}")
    question.max_nodes = 10_000
    before = time.process_time()
    with pytest.raises(UnsupportedQuery, match="grows to more than 10,000 parts"):
        assert question.tree
    assert time.process_time() - before < 2


def test_select_everything_without_a_variable():
    with pytest.raises(UnsupportedQuery, match=r"SELECT \* and no variable"):
        parse_sparql("SELECT * { <a> <r> <b> }")
