"""Classes in logic text: `Compound(?X)`, by edges `rdf:type`, by subclasses and by node tables."""

import pytest

import betae
from betae.errors import AmbiguousName, InvalidArgument, UnknownClass, UnsupportedQuery

TURTLE = """@prefix : <http://x.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Dog rdfs:subClassOf :Animal . :Puppy rdfs:subClassOf :Dog . :Cat rdfs:subClassOf :Animal .
:rex a :Dog ; :likes :tom . :bo a :Puppy ; :likes :rex . :tom a :Cat ; :likes :bo . :oak a :Tree .
"""
TABLE = "id,type\nann,Person;Boss\nbob,Person\nacme,Firm\n"


def names(graph, text):
    """Return the answers, as rows and by compiled loops, which must be the same."""
    found = sorted(row["X"] for row in graph.select(text))
    if "acme)" not in text:  # a formula without a tree
        assert sorted(graph.entities[each] for each in graph.answers(text)) == found
    return [name.removeprefix("http://x.org/") for name in found]


@pytest.fixture
def animals(write):
    return betae.read(write("animals.ttl", TURTLE))


@pytest.fixture
def firm(write):
    edges = write("edges.tsv", "ann\tworks_at\tacme\nbob\tworks_at\tacme\nann\tknows\tbob\n")
    return betae.read(edges, nodes=write("nodes.csv", TABLE))


def test_classes_of_rdf_include_their_subclasses(animals):
    assert names(animals, "?X . Animal(?X)") == ["bo", "rex", "tom"]
    assert names(animals, "?X . :Dog(?X)".replace(":Dog", "<http://x.org/Dog>")) == ["bo", "rex"]
    assert names(animals, "?X . Puppy(?X)") == ["bo"]
    assert names(animals, "?X . Dog(?X) & likes(?X, tom)") == ["rex"]  # the empty prefix
    assert names(animals, "?X . Dog(?X) & ':likes'(?X, ':tom')") == ["rex"]
    assert names(animals, "?X . exists ?Y : ':likes'(?X, ?Y) & Dog(?Y)") == ["bo", "tom"]
    assert names(animals, "?X . Animal(?X) & !Dog(?X)") == ["tom"]
    tree = betae.Entity("http://x.org/Puppy")["~http://www.w3.org/1999/02/22-rdf-syntax-ns#type"]
    assert animals.answers("?X . Puppy(?X)").tolist() == animals.answers(tree).tolist()


def test_classes_of_node_tables(firm):
    assert names(firm, "?X . Person(?X)") == ["ann", "bob"]
    assert names(firm, "?X . Person(?X) & !Boss(?X)") == ["bob"]
    assert names(firm, "?X . works_at(?X, acme) & Boss(?X)") == ["ann"]
    assert names(firm, "?X . Firm(?X) | Boss(?X)") == ["acme", "ann"]
    assert names(firm, "?X . exists ?Y : works_at(?Y, ?X) & Boss(?Y)") == ["acme"]
    assert names(firm, "?X . knows(ann, ?X) & Firm(acme)") == ["bob"]
    rows = firm.select("SELECT ?X { ?X a <Person> }")
    assert sorted(row["X"] for row in rows) == names(firm, "?X . Person(?X)")


def test_what_is_refused(firm, write):
    with pytest.raises(UnknownClass, match=r"no class 'Persn'\. Closest: 'Person'"):
        firm.select("?X . Persn(?X)")
    with pytest.raises(UnsupportedQuery, match="A class has no inverse"):
        firm.select("?X . ~Person(?X)")
    with pytest.raises(InvalidArgument, match="name a class"):
        firm.select("?X . _(?X)")
    text = "<http://a/x> a <http://a/T> . <http://a/y> a <http://b/T> ."
    with pytest.raises(AmbiguousName, match="2 classes"):
        betae.read(write("two.ttl", text)).select("?X . T(?X)")
