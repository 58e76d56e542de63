"""Graphs of what is in memory already, and back."""

import sys

import networkx
import numpy as np
import polars as pl
import pytest
import rdflib

from betae import KnowledgeGraph
from betae.errors import InvalidArgument, TripleError, UnknownRelation
from betae.graph.triples import read_triples

ROWS = [("ann", "knows", "bob"), ("bob", "knows", "cat"), ("cat", "likes", "ann")]
IRIS = [tuple(f"http://x.org/{name}" for name in row) for row in ROWS]


def rows_of(graph):
    return sorted(graph.to_polars().rows())


def pandas_frame(columns, rows):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(rows, columns=columns)


IN_MEMORY = {
    "list": lambda: ROWS,
    "lists": lambda: [list(row) for row in ROWS],
    "set": lambda: set(ROWS),
    "generator": lambda: (row for row in ROWS),
    "generators": lambda: ((name for name in row) for row in ROWS),
    "array": lambda: np.array(ROWS),
    "objects": lambda: np.array(ROWS, dtype=object),
    "polars": lambda: pl.DataFrame(ROWS, schema=["subject", "predicate", "object"], orient="row"),
    "turned": lambda: pl.DataFrame(
        [row[::-1] for row in ROWS], schema=["to", "rel_type", "from"], orient="row"
    ),
    "lazy": lambda: pl.LazyFrame(ROWS, schema=["h", "r", "t"], orient="row"),
    "unnamed": lambda: pl.DataFrame(ROWS, schema=["a", "b", "c"], orient="row"),
    "more": lambda: pl.DataFrame(
        [(0.5, *row) for row in ROWS], schema=["score", "s", "p", "o"], orient="row"
    ),
    "pandas": lambda: pandas_frame(["tail", "relation", "head"], [row[::-1] for row in ROWS]),
    "pandas unnamed": lambda: pandas_frame(None, ROWS),
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_every_table_gives_the_same_graph(name, write):
    graph = KnowledgeGraph.from_triples(IN_MEMORY[name]())
    assert rows_of(graph) == sorted(ROWS)
    file = write("facts.tsv", "".join("\t".join(row) + "\n" for row in ROWS))
    assert graph.fingerprint == KnowledgeGraph.from_triples(file).fingerprint


def test_numbers_become_names():
    for rows in (
        [(1, "r", 2)],
        np.array([[1, 0, 2]]),
        pl.DataFrame({"h": [1], "r": [0], "t": [2]}),
    ):
        graph = KnowledgeGraph.from_triples(rows)
        assert list(graph.entities) == ["1", "2"]


def test_tables_in_memory_are_split_like_files():
    rows = [(f"a{i}", "r", f"a{j}") for i in range(10) for j in range(10)]
    triples = read_triples(rows, valid=0.1, test=[("a0", "s", "a1")])
    assert [len(part) for part in triples.splits.values()] == [90, 10, 1]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("a", "r", "b"), ("a", "r")], r"the triples, row 2: \('a', 'r'\) is not a head"),
        (["abc"], "'abc' is not a head, a relation and a tail"),
        ([5], "5 is not a head"),
        ([("a", "r", "b"), ("a", None, "b")], "row 2: a name is empty"),
        ([("a", "", "b")], "row 1: a name is empty"),
        ([("a", float("nan"), "b")], "row 1: a name is empty"),
        ([("a", "r", "\ud800")], "row 1: .*not valid Unicode"),
        ([], "it has no rows"),
        (
            pl.DataFrame({"a": ["x"], "b": ["y"]}),
            "no column of relations. Name its relation: --relation",
        ),
        (pl.DataFrame({"h": ["x", None], "r": ["y", "y"], "t": ["z", "z"]}), "row 2: a name is"),
    ],
    ids=str,
)
def test_bad_rows_are_named(rows, words):
    with pytest.raises(TripleError, match=words):
        KnowledgeGraph.from_triples(rows)


def test_a_gap_in_a_pandas_frame_is_named():
    frame = pandas_frame(["h", "r", "t"], [("a", "r", "b"), ("a", None, "b")])
    with pytest.raises(TripleError, match="row 2: a name is empty"):
        KnowledgeGraph.from_triples(frame)


@pytest.mark.parametrize("rows", [7, {"head": ["a"]}, np.zeros((2, 4)), b"a"], ids=str)
def test_what_is_no_table_of_triples_is_refused(rows):
    with pytest.raises(InvalidArgument, match=r"\(n, 3\)"):
        KnowledgeGraph.from_triples(rows)


# ---- rdflib -------------------------------------------------------------------------------------


def test_an_rdflib_graph():
    data = rdflib.Graph()
    data.bind("x", "http://x.org/")
    for row in IRIS:
        data.add(tuple(map(rdflib.URIRef, row)))
    node = rdflib.BNode()
    data.add((node, rdflib.URIRef(IRIS[0][1]), rdflib.URIRef(IRIS[0][0])))
    data.add((rdflib.URIRef(IRIS[0][0]), rdflib.RDFS.label, rdflib.Literal("Ann", lang="en")))
    data.add((rdflib.URIRef(IRIS[0][0]), rdflib.URIRef("http://x.org/age"), rdflib.Literal(7)))
    triples = read_triples(data)
    graph = KnowledgeGraph.from_triples(triples)
    blank = (f"_:{node}", IRIS[0][1], IRIS[0][0])
    assert rows_of(graph) == sorted([*IRIS, blank])
    assert graph.entity_id("Ann") == graph.entity_id("x:ann")
    assert triples.report.literals == 2
    assert graph.values("age")["value"].to_list() == [7]
    assert triples.blank_nodes == {f"_:{node}"}
    assert graph.prefixes == {"x": "http://x.org/", "rdfs": str(rdflib.RDFS)}


# ---- and back -----------------------------------------------------------------------------------


def test_polars_has_the_edges_of_some_splits(toy_graph):
    assert toy_graph.to_polars().columns == ["head", "relation", "tail"]
    assert len(toy_graph.to_polars()) == 18
    valid = [("cat", "lives_in", "Lima"), ("dan", "friend", "fay")]
    assert sorted(toy_graph.to_polars(["valid"]).rows()) == valid
    again = KnowledgeGraph.from_triples(toy_graph.to_polars())
    assert rows_of(again) == rows_of(toy_graph)


def test_networkx_has_nodes_labels_and_relations(toy_graph):
    result = toy_graph.to_networkx()
    assert isinstance(result, networkx.MultiDiGraph)
    assert result.number_of_nodes() == 12
    assert sorted((h, r, t) for h, t, r in result.edges(keys=True)) == rows_of(toy_graph)
    assert result.nodes["ann"]["label"] == "Ann Lee"
    assert toy_graph.to_networkx(["test"]).number_of_edges() == 2


def test_without_networkx_the_error_says_how_to_get_it(toy_graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(InvalidArgument, match="pip install networkx"):
        toy_graph.to_networkx()


def test_ids_of_edges_are_those_of_names(toy_graph):
    frame, ids = toy_graph.to_polars(), toy_graph.edge_ids()
    names = [
        (toy_graph.entities[head], toy_graph.relation_name(relation), toy_graph.entities[tail])
        for head, relation, tail in ids.tolist()
    ]
    assert names == frame.rows()
    assert ids[:, 1].tolist() == [toy_graph.relation_id(name) for name in frame["relation"]]
    for head, relation, tail in ids.tolist():
        assert tail in toy_graph.adjacency("all").neighbours(head, relation)
    assert len(toy_graph.edge_ids("test")) == len(toy_graph.to_polars("test"))
    both = len(toy_graph.to_polars("valid")) + len(toy_graph.to_polars("test"))
    assert toy_graph.edge_ids(["valid", "test"]).shape == (both, 3)
    assert toy_graph.edge_ids([]).shape == (0, 3)


def test_every_relation_id_has_a_name(toy_graph):
    names = [toy_graph.relation_name(i) for i in range(toy_graph.num_relations)]
    assert [toy_graph.relation_id(name) for name in names] == [*range(toy_graph.num_relations)]
    for wrong in (-1, toy_graph.num_relations):
        with pytest.raises(UnknownRelation, match=f"#{wrong}"):
            toy_graph.relation_name(wrong)


def test_edge_ids_are_a_copy_and_splits_are_checked(toy_graph, tmp_path):
    before = toy_graph.fingerprint
    toy_graph.edge_ids("train")[:] = 0
    toy_graph.save(tmp_path / "graph")
    assert KnowledgeGraph.open(tmp_path / "graph").fingerprint == before
    for of in (toy_graph.to_polars, toy_graph.edge_ids, toy_graph.to_networkx):
        with pytest.raises(InvalidArgument, match="split"):
            of("dev")
