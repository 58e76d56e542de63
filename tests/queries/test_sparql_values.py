"""FILTERs on values in SPARQL that becomes a tree, against pyoxigraph on the same facts.

python -m tests.queries.test_sparql_values 3000
"""

import sys
from pathlib import Path
from random import Random

import pyoxigraph as ox
import pytest

import betae
from betae.errors import UnsupportedQuery
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import IsA, Where, nodes
from betae.queries.read import parse_question
from betae.queries.syntax import parse

MUSIC = Path(__file__).parents[3] / "shared" / "data" / "music" / "music.ttl.gz"
NAMES = "http://stardog.com/tutorial/"
XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIXES = f"PREFIX : <{NAMES}> PREFIX xsd: <{XSD}>"
NUMBERS = ["100", "200", "217.0", "2e2", "-3", "355"]
DATES = [f'"{each}"^^xsd:date' for each in ("1969-09-26", "1975-11-21", "1999-01-01", "2016-01-01")]
TEXTS = ['"Yesterday (Beatles song)"', '"M"', '"love"@en', '""']
WORDS = ["love", "the", "queen", "39", "a b", "'"]


class Writer:
    """Random questions about the music graph, with filters on values."""

    def __init__(self, random: Random):
        self.random, self.count = random, 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def value(self, subject: str) -> str:
        """A triple pattern with a literal, or with a variable that a filter compares."""
        kind = self.random.choice(["length", "date", "name", "name"])
        constants = {"length": NUMBERS, "date": DATES, "name": TEXTS}[kind]
        if self.chance(0.05):
            return f'{subject} :name "Yesterday (Beatles song)" .'
        self.count += 1
        variable = f"?l{self.count}"
        test = self.test(variable, kind, constants, 0 if kind == "date" else 2)
        return f"{subject} :{kind} {variable} FILTER({test})"

    def test(self, variable: str, kind: str, constants: list[str], depth: int) -> str:
        if depth and self.chance(0.3):
            one, other = (self.test(variable, kind, constants, depth - 1) for _ in range(2))
            return f"({one} {self.random.choice(['&&', '||'])} {other})"
        if kind == "name" and self.chance(0.5):
            word, of = self.random.choice(WORDS), self.random.choice(["{}", "STR({})"])
            form = self.random.choice(['CONTAINS(LCASE({}), "{}")', 'REGEX({}, "{}", "i")'])
            return form.format(of.format(variable), word)
        if self.chance(0.15):
            listed = ", ".join(self.random.sample(constants, 2))
            return f"{variable} {self.random.choice(['IN', 'NOT IN'])} ({listed})"
        signs = ["=", "!=", "<", "<=", ">", ">="]
        sides = [variable, self.random.choice(constants)]
        if kind == "name" and self.chance(0.2):
            sides[0] = f"STR({variable})"
        if self.chance(0.2):
            sides.reverse()
        compared = f" {self.random.choice(signs)} ".join(sides)
        return f"!({compared})" if self.chance(0.2) else compared

    def body(self) -> str:
        start = self.random.choice(
            [
                "?x a :Song .",
                "?x a :Album .",
                "?x :writer :Freddie_Mercury .",
                "?a :track ?x . ?a :artist :The_Beatles .",
                "?x :track ?t . ?t :writer :Paul_McCartney .",
            ]
        )
        about = "?t" if "?t" in start and self.chance(0.5) else "?x"
        value = self.value(about)
        form = self.random.choice(["{0}"] * 4 + ["MINUS {{ {0} }}", "FILTER NOT EXISTS {{ {0} }}"])
        if self.chance(0.2):
            form = "{{ {0} }} UNION {{ " + self.value("?x") + " }}"
            value = self.value("?x")
        return f"{start} {form.format(value)}"

    def question(self) -> str:
        return f"{PREFIXES} SELECT DISTINCT ?x {{ {self.body()} }}"


def disagreements(graph: KnowledgeGraph, store: ox.Store, count: int, seed: int) -> list[str]:
    """Ask random questions of both; return those with other answers, and how many were refused."""
    wrong, num_refused, num_found = [], 0, 0
    for number in range(count):
        text = Writer(Random(f"{seed} {number}")).question()
        try:
            ids = graph.answers(text)
        except UnsupportedQuery:  # the same value of an entity that has several
            num_refused += 1
            continue
        wanted = {row["x"].value for row in store.query(text)}
        num_found += bool(wanted)
        if {graph.entities[each] for each in ids.tolist()} != wanted:
            wrong.append(text)
    assert num_refused < 0.1 * count
    assert num_found > 0.3 * count
    return wrong


def music() -> tuple[KnowledgeGraph, ox.Store]:
    import gzip

    store = ox.Store()
    store.load(gzip.decompress(MUSIC.read_bytes()), format=ox.RdfFormat.TURTLE)
    return betae.read(MUSIC), store


@pytest.mark.slow
@pytest.mark.skipif(not MUSIC.exists(), reason="needs the music graph")
def test_filters_on_values_are_answered_as_by_pyoxigraph():
    assert disagreements(*music(), 150, 0) == []


# ---- what a FILTER becomes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "formula"),
    [
        ("?x :l ?l FILTER(?l < 200)", "':l'(?X) < 200"),
        ("?x :l ?l FILTER(200 > ?l)", "':l'(?X) < 200"),
        ("?x :l ?l FILTER(!(?l < 200))", "':l'(?X) >= 200"),
        ("?x :l ?l FILTER(?l = -2.5 || ?l > 3)", "':l'(?X) = -2.5 | ':l'(?X) > 3"),
        ("?x :l ?l FILTER(!(?l = 1 || ?l > 3))", "':l'(?X) != 1 & ':l'(?X) <= 3"),
        ("?x :l ?l FILTER(?l IN (1, 2))", "':l'(?X) = 1 | ':l'(?X) = 2"),
        ("?x :l ?l FILTER(?l NOT IN (1, 2))", "':l'(?X) != 1 & ':l'(?X) != 2"),
        ("?x :l ?l FILTER(!(?l NOT IN (1, 2)))", "':l'(?X) = 1 | ':l'(?X) = 2"),
        ("?x :l ?l FILTER(?l > 1) FILTER(?l < 3 && ?x != :a)", "?X != ':a' & {1} & {3}"),
        ("?x :b true", "':b'(?X) = true"),
        ('?x :n "a"', "':n'(?X) = 'a'@\"\""),
        ('?x :n "a"@de', "':n'(?X) = 'a'@de"),
        ('?x :n ?n FILTER(STR(?n) = "a")', "':n'(?X) = 'a'"),
        ('?x :d "1975-01-31"^^xsd:date', "':d'(?X) = 1975-01-31"),
        ("?x a :Song", "':Song'(?X)"),
        (":a :r ?x MINUS { ?x :l ?l FILTER(?l > 1) }", "':r'(':a', ?X) & !(':l'(?X) > 1)"),
        (
            ":a :r ?y . ?y :l ?l ; :r ?x FILTER(?l > 1)",
            "exists ?Y : ':r'(':a', ?Y) & ':l'(?Y) > 1 & ':r'(?Y, ?X)",
        ),
    ],
)
def test_trees(body, formula):
    formula = formula.replace("{1}", "':l'(?X) > 1").replace("{3}", "':l'(?X) < 3")
    found = parse_question(f"PREFIX : <:> PREFIX xsd: <{XSD}> SELECT ?x {{ {body} }}").tree
    wanted = parse(f"?X . {formula}")
    assert {*nodes(found)} == {*nodes(wanted)} or same_operands(found, wanted)
    assert any(isinstance(node, Where | IsA) for node in nodes(found))


def same_operands(one, other):
    return {*one.operands} == {*other.operands} and type(one) is type(other)


@pytest.mark.parametrize(
    "body",
    [
        "?x :l ?l FILTER(?l + 1 < 3)",
        "?x :l ?l ; :m ?m FILTER(?l < ?m)",
        "?x :l ?l FILTER(?l < 3 || ?x = :a)",
        "?x :n ?n FILTER(STRLEN(?n) < 4)",
        '?x :n ?n FILTER(CONTAINS(?n, "a"))',
        '?x :n ?n FILTER(CONTAINS(LCASE(?n), "A"))',
        '?x :n ?n FILTER(!CONTAINS(LCASE(?n), "a"))',
        '?x :n ?n FILTER(REGEX(?n, "a.c", "i"))',
        '?x :n ?n FILTER(REGEX(?n, "abc"))',
        '?x :n ?n FILTER(STR(?n) < "a"@en)',
        '?x :d "P1D"^^xsd:duration',
        '?x :d "1975-02-30"^^xsd:date',
        "?x :l ?l . ?y :l ?l FILTER(?l < 3)",
        "?x :l|:m 3",
        "?x :l ?l OPTIONAL { ?x :m ?l } FILTER(?l < 3)",
    ],
)
def test_what_is_refused(body):
    with pytest.raises(UnsupportedQuery, match="betae does not answer SPARQL with"):
        assert parse_question(f"PREFIX : <:> PREFIX xsd: <{XSD}> SELECT ?x {{ {body} }}").tree


def test_two_conditions_on_the_same_value(write):
    text = (
        "<urn:a> <urn:l> 1 , 5 . <urn:b> <urn:l> 3 . <urn:a> <urn:m> 2 . <urn:a> <urn:r> <urn:b> ."
    )
    graph = betae.read(write("values.ttl", text))
    both = "SELECT ?x { ?x <urn:%s> ?l FILTER(?l > 1 && ?l < 4) }"
    assert [row["x"] for row in graph.select(both % "l")] == ["urn:b"]
    with pytest.raises(UnsupportedQuery, match="1 entities have several values of l, and two"):
        graph.answers(both % "l")
    assert len(graph.answers(both % "m")) == 1
    apart = "SELECT ?x { ?x <urn:l> ?l , ?k FILTER(?l > 1) FILTER(?k < 4) }"
    assert len(graph.answers(apart)) == len(list(graph.select(f"{apart} GROUP BY ?x"))) == 2


if __name__ == "__main__":
    found = disagreements(*music(), int(sys.argv[1]), 1)
    print("\n".join(found) or f"{sys.argv[1]} questions, all with the same answers")
