"""Files as they come and as they are written: JSON Lines, Neo4j, RDF with probabilities."""

import csv
import io
import json

import polars as pl
import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import betae
from betae.answering.missing import MissingEdges
from betae.errors import TripleError
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import LANG_STRING, NAME, NAMED, RDF_TYPE, STRING, XSD
from betae.graph.triples import read_triples
from tests.graph.odd_names import odd_names

LINES = """\
{"id": "a", "type": "Person", "name": "Ann", "age": 30, "born": "1990-01-02", "ok": true}
{"id": "b", "type": ["Person", "Boss"], "properties": {"age": "n/a", "score": 1.50, "t": ["u", "v"]}}

{"head": "a", "relation": "knows", "tail": "b", "since": 2001}
{"tail": 7, "relation": "likes", "head": "b"}
{"id": "c", "age": 12345678901234567890123, "note": null, "at": {"x": 1}}
"""  # noqa: E501


def rows_of(graph):
    """Return all literals by name."""
    return sorted(graph.literals.named(graph.entities, graph.relations).iter_rows())


@pytest.mark.parametrize("name", ["facts.jsonl", "facts.ndjson.gz", "facts.json"])
def test_json_lines_hold_edges_and_nodes(write, tmp_path, name):
    file = write(name, LINES)
    triples = read_triples(file)
    graph = KnowledgeGraph.from_triples(triples)
    assert sorted(graph.to_polars().iter_rows()) == [("a", "knows", "b"), ("b", "likes", "7")]
    assert [*graph.entities] == ["7", "a", "b", "c"]
    assert graph.entity_id("Ann") == 1
    assert [(p, text, kind.removeprefix(XSD)) for s, p, text, kind, _ in rows_of(graph)] == [
        ("age", "30", "integer"),
        ("born", "1990-01-02", "date"),
        (RDF_TYPE, "Person", NAME),
        ("name", "Ann", "string"),
        ("ok", "true", "boolean"),
        ("age", "n/a", "string"),
        (RDF_TYPE, "Boss", NAME),
        (RDF_TYPE, "Person", NAME),
        ("score", "1.50", "decimal"),
        ("t", "u", "string"),
        ("t", "v", "string"),
        ("age", "12345678901234567890123", "integer"),
        ("at", '{"x":1}', "string"),
    ]
    assert triples.report.notes[:2] == [
        f"{file}: properties of edges are not kept: since.",
        f"{file}, line 2: age is 'n/a', text, but a number elsewhere.",
    ]
    graph.save(tmp_path / "whole")
    betae.ingest(file, out=tmp_path / "bounded")
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "bounded" / path.name).read_bytes() == path.read_bytes(), path.name


APOC = """\
{"type":"node","id":"0","labels":["User"],"properties":{"name":"Adam","born":"2015-07-04T19:32:24"}}
{"type":"node","id":"1","properties":{"name":"Jim"}}
{"id":"0","type":"relationship","label":"KNOWS","properties":{"since":1993},\
"start":{"id":"0","labels":["User"]},"end":{"id":"1"}}
"""


def test_the_export_of_apoc_is_read(write):
    triples = read_triples(write("all.json", APOC))
    graph = KnowledgeGraph.from_triples(triples)
    assert graph.to_polars().rows() == [("0", "KNOWS", "1")]
    assert [*graph.classes] == ["User"]
    assert graph.entity_id("Jim") == 1
    assert graph.values("born")["value"][0].year == 2015
    assert any("properties of edges are not kept: since" in each for each in triples.report.notes)


def test_keys_of_json_lines_are_columns(write):
    text = '{"drug": "aspirin", "disease": "pain"}\n{"drug": "zinc", "disease": "cold"}\n'
    wanted = [("aspirin", "treats", "pain"), ("zinc", "treats", "cold")]
    for name, options in {"treats.jsonl": {}, "x.jsonl": {"relation": "treats"}}.items():
        graph = betae.read(write(name, text), columns=("drug", "disease"), **options)
        assert sorted(graph.to_polars().iter_rows()) == wanted
    text = '{"source": "a", "target": "b"}\n'
    assert betae.read(write("r.jsonl", text)).to_polars().rows() == [("a", "r", "b")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"head": "a", "relation": "r", "tail": "b"}\n{"head": ', "line 2: not valid JSON"),
        ('{"head": "a", "relation": "r", "tail": ""}', "line 1: the tail is empty"),
        ('{"head": null, "relation": "r", "tail": "b"}', "line 1: the head is empty"),
        ('{"head": ["a"], "relation": "r", "tail": "b"}', r"the head is \["),
        ('{"a": 1, "b": 2}', "its keys are a, b"),
        ('{"relation": 1, "b": 2}', "--columns HEAD,RELATION,TAIL"),
        ("[1]", "not a JSON object"),
        ('{"id": ""}', "the id is empty"),
        ('{"id": "a", "properties": 1}', "the properties are not an object"),
        ("\n", "the file is empty"),
    ],
)
def test_bad_json_lines_are_named_with_the_line(write, text, words):
    with pytest.raises(TripleError, match=words):
        betae.read(write("bad.jsonl", text))


# ---- what is written is read again --------------------------------------------------------------

ODD_TEXTS = ["1975-01-31", "12:30:00", "1.50", "-0", "007", "1e5", "true", "a;b", "", "NaN"]
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6), st.sampled_from(ODD_TEXTS)
)
DATATYPES = ["string", "integer", "decimal", "double", "boolean", "date", "dateTime", "gYear"]
LITERALS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "knows", "S::1"]),
        st.sampled_from(["name", "age", "id", "http://x.org/p"]),
        TEXTS,
        st.sampled_from([*(XSD + each for each in DATATYPES), "http://x.org/own", "en", "de-at"]),
    ),
    max_size=10,
)


def graph_of(rows):
    """Build a graph with edges, classes, a node without anything, and these literals."""
    literals = [(*row, "") if len(row[3]) > 5 else (*row[:3], LANG_STRING, row[3]) for row in rows]
    literals += [("a", RDF_TYPE, "Person", NAME, ""), ("b", RDF_TYPE, "Dog", NAME, "")]
    triples = read_triples(
        [("a", "knows", "b"), ("S::1", "knows", "a"), ("S::1", "knows", "T::x")],
        nodes=pl.DataFrame({"id": ["c"]}),
    )
    frame = pl.DataFrame(literals, schema=NAMED, orient="row")
    triples.literals.extend(frame)
    return KnowledgeGraph.from_triples(triples)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LITERALS)
def test_json_lines_hold_a_graph_whole(tmp_path, rows):
    graph = graph_of(rows)
    assert graph.export(tmp_path / "all.jsonl") == []
    again = betae.read(tmp_path / "all.jsonl")
    assert again.fingerprint == graph.fingerprint
    assert rows_of(again) == rows_of(graph)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LITERALS)
def test_files_for_neo4j_hold_what_they_can_and_say_what_not(tmp_path_factory, rows):
    graph, folder = graph_of(rows), tmp_path_factory.mktemp("neo4j") / "all"
    notes = graph.export(folder, format="neo4j")
    again = betae.read(folder)
    assert again.fingerprint == graph.fingerprint
    lost = {*rows_of(graph)} - {*rows_of(again)}
    assert bool(notes) == bool(lost)
    if lost:
        assert f"{len(lost):,} literals are not in these files" in notes[0]


def test_files_for_neo4j_have_its_headers(tmp_path):
    rows = [("a", "age", "30", XSD + "integer"), ("a", "born", "1990-01-02", XSD + "date")]
    rows += [("a", "tag", each, STRING) for each in "uv"]
    rows += [("b", "age", "31", XSD + "integer"), ("b", "x:y", "1", XSD + "integer")]
    rows += [("c", "x:y", "2", XSD + "integer"), ("a", "zip", "0123", STRING)]
    graph = graph_of([*rows, ("a", "x:y", "n/a", STRING)])
    assert graph.export(tmp_path / "all", format="neo4j") == []
    files = {path.name: path.read_text().splitlines() for path in (tmp_path / "all").iterdir()}
    assert sorted(files) == [
        "edges-S-T.csv",
        "edges-S.csv",
        "edges.csv",
        "nodes-S.csv",
        "nodes-T.csv",
        "nodes.csv",
    ]
    assert files["nodes.csv"] == [
        ":ID,:LABEL,age:long,born:date,tag:string[],x:y,zip:string",
        "a,Person,30,1990-01-02,u;v,n/a,0123",
        "b,Dog,31,,,1,",
        "c,,,,,2,",
    ]
    assert files["edges-S.csv"] == [":START_ID(S),:TYPE,:END_ID", "1,knows,a"]
    again = betae.read(tmp_path / "all")
    lost = {*rows_of(graph)} - {*rows_of(again)}
    assert not lost


@pytest.mark.slow
def test_odd_names_survive(tmp_path):
    names = [name for name in odd_names() if len(name) < 1000]
    graph = betae.read([(name, "r" + name, names[0]) for name in names])
    graph.export(tmp_path / "all.jsonl")
    assert betae.read(tmp_path / "all.jsonl").fingerprint == graph.fingerprint
    graph.export(tmp_path / "neo4j", format="neo4j")
    assert betae.read(tmp_path / "neo4j").fingerprint == graph.fingerprint


# ---- missing edges ------------------------------------------------------------------------------


@pytest.fixture
def missing():
    graph = betae.read([("G::1", "binds", "D::2"), ("G::2", "binds", "D::1")])
    frame = pl.DataFrame(
        {
            "head": ["G::1", "G::2"],
            "relation": ["binds", "binds"],
            "tail": ["D::1", "D::2"],
            "probability": [0.75, 0.1 + 0.2],
            "head_has": [1, 1],
        }
    )
    return MissingEdges(graph, frame)


def test_missing_edges_for_neo4j_have_their_probability(missing, tmp_path):
    missing.write(tmp_path / "missing.csv", "neo4j")
    table = [*csv.reader(io.StringIO((tmp_path / "missing.csv").read_text()))]
    assert table == [
        [":START_ID(G)", ":TYPE", ":END_ID(D)", "probability:double"],
        ["1", "binds", "1", "0.75"],
        ["2", "binds", "2", "0.30000000000000004"],
    ]
    graph = betae.read(tmp_path / "missing.csv")
    assert sorted(graph.to_polars().iter_rows()) == [
        ("G::1", "binds", "D::1"),
        ("G::2", "binds", "D::2"),
    ]
    missing.write(tmp_path / "folder", "neo4j")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["edges-G-D.csv"]
    more = pl.DataFrame({"head": ["D::1"], "relation": ["r"], "tail": ["G::1"], "probability": 0.5})
    several = MissingEdges(missing.graph, pl.concat([missing.to_polars().drop("head_has"), more]))
    with pytest.raises(TripleError, match=r"several id spaces .D, G.* Name a folder"):
        several.write(tmp_path / "several.csv", "neo4j")
    assert not (tmp_path / "several.csv").exists()


def test_missing_edges_as_rdf_have_their_probability(missing, tmp_path):
    file = tmp_path / "missing.ttl"
    missing.write(file)
    store = ox.Store()
    store.load(path=str(file))
    found = store.query(
        "PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> SELECT ?s ?o ?p { ?s "
        "<urn:betae:binds> ?o . ?e rdf:reifies <<( ?s <urn:betae:binds> ?o )>> ; "
        "<urn:betae:probability> ?p } ORDER BY ?p"
    )
    assert [[row["s"].value[-1], row["o"].value[-1], float(row["p"].value)] for row in found] == [
        ["2", "2", 0.1 + 0.2],
        ["1", "1", 0.75],
    ]
    triples = read_triples(file)
    assert triples.entities == ["D::1", "D::2", "G::1", "G::2"]
    assert triples.report.quoted_triples_skipped == 4
    assert len(triples.literals) == 0


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.csv", "missing.tsv.gz", "m.parquet"])
def test_missing_edges_as_tables(missing, tmp_path, name):
    missing.write(tmp_path / name)
    graph = betae.read(tmp_path / name)
    assert graph.fingerprint == betae.read(missing.to_polars()).fingerprint
    if name == "missing.jsonl":
        lines = (tmp_path / name).read_text().splitlines()
        assert json.loads(lines[0])["probability"] == 0.75


def test_a_lone_double_quote_in_a_cell_is_read(write):
    """Also where the rows are read once more, for a note on values of another kind."""
    rows = ["size:long,:ID,name", *(f"{i},e{i},n" for i in range(9)), 'n/a,pipe,"5"" wide"']
    content = read_triples(
        write("nodes.csv", "\n".join(rows)), write("edges.tsv", "e1\tr\tpipe\ne2\tr\te3\n")
    )
    assert "pipe" in content.entities
