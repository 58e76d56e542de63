"""Literals: kept to the byte, typed, in stores of every age, from RDF and from node tables."""

import gzip
import json
from datetime import UTC, date, datetime, time
from io import BytesIO

import numpy as np
import pandas as pd
import polars as pl
import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import betae
from betae.errors import AmbiguousName, StoreError, TripleError, UnknownProperty
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import NAME, RDF_TYPE, STRING, XSD, Literals, typed
from betae.graph.names import Label
from betae.graph.outofcore import ingest
from betae.graph.triples import read_triples
from betae.storage import write_manifest, writing_folder
from tests.manifests import approve_parts, edit_manifest

X = "http://x.org/"
TURTLE = """@prefix : <http://x.org/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:heat :director :mann ; :length 170 ; :released "1995-12-15"^^xsd:date ; :name "Heat"@en-US ;
    :rating 8.30 ; :seen true , false ; :at "12:30:00"^^xsd:time .
:mann :born "1943"^^xsd:gYear ; :length "+007"^^xsd:integer ; rdfs:label "Michael Mann" .
:lost :length "1e1"^^xsd:double ; :note "a\\tb\\nc" , "" , "x"^^:own .
:director rdfs:label "directed by" .
"""


def triples_of(path):
    """Return the triples of a file as N-Triples, to the byte."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    syntax = ox.RdfFormat.N_TRIPLES if ".nt" in path.name else ox.RdfFormat.TURTLE
    return {str(each) for each in ox.parse(input=BytesIO(content), format=syntax)}


@pytest.fixture
def film(write):
    return betae.read(write("film.ttl", TURTLE))


def test_every_literal_comes_back_to_the_byte(write, tmp_path):
    file = write("film.ttl", TURTLE)
    betae.read(file).save(tmp_path / "graph")
    for name in ("again.nt", "again.ttl"):
        KnowledgeGraph.open(tmp_path / "graph").export(tmp_path / name)
        assert triples_of(tmp_path / name) == triples_of(file)


def test_values_have_types(film):
    def values(name):
        frame = film.values(name).sort("entity")
        return [*zip(frame["entity"].str.strip_prefix(X), frame["value"], strict=True)]

    assert values("released") == [("heat", date(1995, 12, 15))]
    assert values("at") == [("heat", time(12, 30))]
    assert values("born") == [("mann", datetime(1943, 1, 1, tzinfo=UTC))]
    assert sorted(values(":seen")) == [("heat", False), ("heat", True)]
    assert values("rating") == [("heat", 8.3)]
    assert values("length") == [("heat", 170.0), ("lost", 10.0), ("mann", 7.0)]
    assert values(X + "name") == [("heat", "Heat")]
    assert film.values("name")["language"].to_list() == ["en-us"]  # pyoxigraph compares tags so
    assert sorted(film.values("note")["value"]) == ["", "a\tb\nc", "x"]


def test_unknown_and_ambiguous_properties(write):
    text = "<http://x/a> <http://x/n> 'a' . <http://x/a> <http://y/n> 'b' ; <http://x/size> 1 ."
    graph = betae.read(write("facts.ttl", text))
    with pytest.raises(AmbiguousName, match="2 properties"):
        graph.values("n")
    with pytest.raises(UnknownProperty, match=r"no property 'sise'. Closest: 'http://x/size'"):
        graph.values("sise")


def test_what_has_only_literals_is_an_entity_and_relations_keep_theirs(film):
    assert X + "lost" in film.entities
    assert X + "director" not in film.entities
    assert film.relation_id("directed by") == film.relation_id(X + "director")
    assert [each.text for each in film.literals.of_subject(~0)] == ["directed by"]
    heat = film.literals.of_subject(film.entity_id(":heat"))
    assert ("170", XSD + "integer", "") in [each[1:] for each in heat]


def test_a_description_has_counts_types_and_ranges(film):
    found = film.literals.describe()
    length = found[X + "length"]
    assert (length.values, length.entities, length.least, length.greatest) == (3, 3, "+007", "170")
    assert length.datatypes == {XSD + "integer": 2, XSD + "double": 1}
    assert found[X + "name"].least is None
    assert next(iter(found)) == X + "length"


@pytest.mark.parametrize(
    ("text", "kind", "number", "moment"),
    [
        ("1977-02-30", "date", None, None),
        ("1977-10-14+02:00", "date", None, datetime(1977, 10, 13, 22)),
        ("2000-01-01T12:30:00.25-05:00", "dateTime", None, datetime(2000, 1, 1, 17, 30, 0, 250000)),
        ("1977-05", "gYearMonth", None, datetime(1977, 5, 1)),
        ("-0044-03-15", "date", None, None),
        (" 5 ", "integer", 5.0, None),
        ("INF", "double", np.inf, None),
        ("INF", "integer", None, None),
        ("five", "integer", None, None),
        ("1", "boolean", 1.0, None),
        ("1", "string", None, None),
        ("24:00:00", "time", None, None),
    ],
)
def test_lexical_forms_are_numbers_and_times(text, kind, number, moment):
    row = typed(pl.DataFrame({"text": [text], "datatype": [XSD + kind]})).row(0, named=True)
    assert (row["number"], row["time"]) == (number, moment)


def test_literals_are_added_and_removed(film, write):
    more = film.extended(write("more.ttl", f"<{X}heat> <{X}length> 171 ; <{X}cost> 60 ."))
    assert sorted(more.values("length")["value"]) == [7.0, 10.0, 170.0, 171.0]
    assert more.values("cost")["value"].to_list() == [60]
    less = more.without(write("less.ttl", f"<{X}heat> <{X}length> 170 ."))
    assert sorted(less.values("length")["value"]) == [7.0, 10.0, 171.0]


# ---- stores -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_store_opens_and_its_labels_are_literals(version, tmp_path, toy_graph):
    """Stores of version 1 and 2 have a label for each id, its name where there is none."""
    arrays = {
        name: array
        for name, array in toy_graph._arrays().items()
        if "labels" not in name and "properties" not in name
    }
    shown = [toy_graph.entities.label(i) for i in range(toy_graph.num_entities)]
    arrays |= type(toy_graph.entities.names).from_strings(shown).arrays("entity_labels")
    with writing_folder(tmp_path / "old") as folder:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        facts = {**toy_graph._counts(), "fingerprint": toy_graph.fingerprint}
        write_manifest(folder, "graph", facts)
    edit_manifest(tmp_path / "old", lambda manifest: manifest.update(version=version))
    graph = KnowledgeGraph.open(tmp_path / "old")
    assert graph.fingerprint == toy_graph.fingerprint
    assert graph.entities.labels_of(graph.entity_id("ann")) == [Label("Ann Lee")]
    assert graph.entities.labels_of(graph.entity_id("Oslo")) == []
    assert graph.values("label").equals(toy_graph.values("label"))
    graph.save(tmp_path / "new")
    assert json.loads((tmp_path / "new" / "manifest.json").read_text())["version"] == 3
    assert KnowledgeGraph.open(tmp_path / "new").values("label").equals(graph.values("label"))


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.with_columns(subject=pl.lit(10**6, pl.Int32)),
        lambda frame: frame.with_columns(property=pl.lit(-1, pl.Int32)),
        lambda frame: frame.with_columns(subject=pl.lit(None, pl.Int32)),
        lambda frame: frame.rename({"text": "words"}),
        lambda frame: frame.cast({"number": pl.String}),
    ],
)
def test_damaged_literals_are_refused(film, tmp_path, change):
    film.save(tmp_path / "graph")
    (part,) = (tmp_path / "graph").glob("*.parquet")
    change(pl.read_parquet(part)).write_parquet(part)
    approve_parts(tmp_path / "graph")
    graph = KnowledgeGraph.open(tmp_path / "graph")
    with pytest.raises(StoreError, match="damaged"):
        graph.values("length")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LITERALS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from([X + "p", X + "q", "http://www.w3.org/2000/01/rdf-schema#label"]),
        TEXTS,
        st.sampled_from(["string", "integer", "date", "en", "de"]),
    ),
    max_size=12,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LITERALS)
def test_the_store_is_the_same_in_bounded_memory(tmp_path, rows):
    quads = [
        ox.Quad(ox.NamedNode(X + s), ox.NamedNode(X + "r"), ox.NamedNode(X + "b")) for s in "ab"
    ]
    for subject, name, text, kind in rows:
        value = (
            ox.Literal(text, language=kind)
            if len(kind) == 2
            else ox.Literal(text, datatype=ox.NamedNode(XSD + kind))
        )
        quads.append(ox.Quad(ox.NamedNode(X + subject), ox.NamedNode(name), value))
    file = tmp_path / "facts.nt"
    ox.serialize(quads, str(file), ox.RdfFormat.N_QUADS)
    betae.read(file).save(tmp_path / "whole", overwrite=True)
    ingest(file, out=tmp_path / "bounded", overwrite=True)
    whole, bounded = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("whole", "bounded")
    )
    assert whole == bounded
    KnowledgeGraph.open(tmp_path / "bounded").export(tmp_path / "again.nt")
    assert triples_of(tmp_path / "again.nt") == triples_of(file)


# ---- node tables --------------------------------------------------------------------------------

PEOPLE = """id,name,age,born,when,type
a,Ann,30,1990-01-02,1990-01-02,Person;Boss
b,Bob,n/a,,01/02/1990,Person
c,"C, D",4.5,1991-01-01,Jan 5 1990,Dog
d,Dee,7,1980-01-01,1980-01-01,
"""


@pytest.fixture
def edges(write):
    return write("edges.tsv", "a\tknows\tb\nb\tknows\tc\n")


def test_a_node_table_gives_values_labels_and_classes(edges, write):
    triples = read_triples(edges, nodes=write("people.csv", PEOPLE))
    graph = KnowledgeGraph.from_triples(triples)
    assert [*graph.entities] == ["a", "b", "c", "d"]
    assert graph.entity_id("C, D") == 2
    assert graph.values("born")["value"].to_list() == [
        date(1990, 1, 2),
        date(1991, 1, 1),
        date(1980, 1, 1),
    ]
    ages = graph.values("age")
    assert [kind.removeprefix(XSD) for kind in ages["datatype"]] == [
        "integer",
        "string",
        "decimal",
        "integer",
    ]
    classes = graph.literals.named(graph.entities, graph.relations).filter(
        (pl.col("property") == RDF_TYPE) & (pl.col("datatype") == NAME)
    )
    assert sorted(classes.select("subject", "text").iter_rows()) == [
        ("a", "Boss"),
        ("a", "Person"),
        ("b", "Person"),
        ("c", "Dog"),
    ]


def test_cells_of_another_kind_are_kept_and_told(edges, write):
    file = write("people.csv", PEOPLE)
    notes = read_triples(edges, nodes=file).report.notes
    assert notes == [
        f"{file}, line 3: when is '01/02/1990', and only 2 of 4 cells are a date such as "
        "1975-01-31: all are kept as text.",
        f"{file}, line 3: age is 'n/a', not a number: kept as text.",
    ]


def test_node_tables_of_every_form_give_the_same(edges, write, tmp_path, assert_same_graph):
    wanted = betae.read(edges, nodes=write("people.csv", PEOPLE))
    tabs = PEOPLE.replace('"C, D"', "C; D").replace(",", "\t").replace("C; D", "C, D")
    for name, text in (("people.tsv", tabs), ("people.csv.gz", PEOPLE)):
        assert_same_graph(betae.read(edges, nodes=[write(name, text)]), wanted)
    bounded = tmp_path / "bounded"
    ingest(edges, nodes=write("people.csv", PEOPLE), out=bounded)
    wanted.save(tmp_path / "whole")
    for path in (tmp_path / "whole").iterdir():
        assert (bounded / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_typed_table(edges, tmp_path):
    frame = pl.DataFrame(
        {
            "id": ["a", "z"],
            "size": [1.5, None],
            "born": [date(2000, 1, 2), None],
            "at": [datetime(2000, 1, 2, 3, 4, 5), None],
            "old": [True, False],
            "text": ["12", ""],
        }
    )
    frame.write_parquet(tmp_path / "nodes.parquet")
    for nodes in (
        frame,
        tmp_path / "nodes.parquet",
        pd.DataFrame({"id": ["a", "z"], "text": ["12", None]}),
    ):
        graph = betae.read(edges, nodes=nodes)
        assert "z" in graph.entities
        assert graph.values("text").row(0) == ("a", "12", STRING, "")
    graph = betae.read(edges, nodes=frame)
    assert graph.values("size").row(0)[1] == 1.5
    assert graph.values("born").row(0)[1] == date(2000, 1, 2)
    assert graph.values("at")["value"][0].isoformat() == "2000-01-02T03:04:05+00:00"
    assert sorted(graph.values("old")["value"]) == [False, True]


def test_headers_of_neo4j_have_types_and_spaces(edges, write):
    header = "pid:ID(P)\tname:string\tsize:int\ttags:string[]\t:LABEL\tx:IGNORE\n"
    text = header + "1\tAnn\t5\tu;v\tQ;R\t7\n"
    graph = betae.read(edges, nodes=write("nodes.tsv", text))
    ann = graph.entity_id("P::1")
    found = {(each.property, each.text) for each in graph.literals.of_subject(ann)}
    assert found == {
        ("name", "Ann"),
        ("size", "5"),
        ("tags", "u"),
        ("tags", "v"),
        (RDF_TYPE, "Q"),
        (RDF_TYPE, "R"),
    }


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("n.csv", "id,x\na,1\n,2\n", "n.csv, line 3: the id is empty."),
        ("n.csv", "id,x\na,1\nb,2,3\n", "n.csv, line 3: 3 columns, 2 expected"),
        ("n.csv", "id,x\n", "n.csv: the file is empty"),
        ("n.csv", "id,x,x\na,1,2\n", "n.csv, line 1: two columns are called 'x'"),
        ("n.nt", "<x:a> <x:b> <x:c> .\n", "node tables come as"),
        ("n.tsv", "a:ID\tb:ID\n1\t2\n", "several columns are an :ID"),
    ],
)
def test_bad_node_tables_are_named_with_the_line(edges, write, name, text, words):
    with pytest.raises(TripleError) as caught:
        betae.read(edges, nodes=write(name, text))
    assert words in str(caught.value)


def test_a_column_of_lists_is_refused(edges):
    with pytest.raises(TripleError, match="the column 'x' holds List"):
        betae.read(edges, nodes=pl.DataFrame({"id": ["a"], "x": [[1]]}))


# ---- files for Neo4j ----------------------------------------------------------------------------


@pytest.fixture
def neo4j(tmp_path):
    folder = tmp_path / "neo4j"
    folder.mkdir()
    for name, text in {
        "nodes-person.csv": "pid:ID(P),name,born:int,:LABEL\n"
        "1,Ann,1990,Person;Boss\n2,Bob,,Person\n",
        "nodes-city.tsv": "cid:ID(C)\tname\n1\tOslo\n",
        "edges-knows.tsv": ":START_ID(P)\t:END_ID(P)\tsince:int\n1\t2\t2001\n",
        "rels.csv": ":START_ID(P),:TYPE,:END_ID(C)\n1,lives_in,1\n2,works_in,1\n",
    }.items():
        (folder / name).write_text(text)
    return folder


def test_a_folder_for_neo4j_is_read_as_it_is(neo4j, tmp_path):
    triples = read_triples(neo4j)
    graph = KnowledgeGraph.from_triples(triples)
    assert sorted(graph.to_polars().iter_rows()) == [
        ("P::1", "knows", "P::2"),
        ("P::1", "lives_in", "C::1"),
        ("P::2", "works_in", "C::1"),
    ]
    assert graph.entity_id("Oslo") == graph.entity_id("C::1")
    assert [*graph.classes] == ["Boss", "C", "Person"]
    assert graph.values("born")["value"].to_list() == [1990]
    rows = graph.select("SELECT ?x { ?x a <Person> } ORDER BY ?x")
    assert [row["x_label"] for row in rows] == ["Ann", "Bob"]
    file = neo4j / "edges-knows.tsv"
    assert triples.report.notes == [f"{file}: properties of edges are not kept: since."]
    graph.save(tmp_path / "whole")
    ingest(neo4j, out=tmp_path / "bounded")
    for path in (tmp_path / "whole").iterdir():
        if path.is_file():
            assert (tmp_path / "bounded" / path.name).read_bytes() == path.read_bytes(), path.name


def notes_of(*sources, tmp_path, **options):
    """Return the notes, which are the same in bounded memory."""
    notes = read_triples(*sources, **options).report.notes
    bounded = ingest(*sources, out=tmp_path / "bounded", overwrite=True, **options)
    assert bounded.notes == notes
    return notes


def test_repeated_and_missing_nodes_are_told(neo4j, tmp_path):
    (neo4j / "nodes-again.csv").write_text("pid:ID(P),name\n2,Robert\n")
    (neo4j / "edges-likes.csv").write_text(":START_ID(P),:END_ID(P)\n1,2\n1,77\n")
    assert notes_of(neo4j, tmp_path=tmp_path)[1:] == [
        "1 entity has several rows in node tables, whose values were joined; one is 'P::2' "
        f"({neo4j / 'nodes-again.csv'}, line 2; {neo4j / 'nodes-person.csv'}, line 3).",
        "1 entity of edges is in no node table; one is 'P::77' "
        f"({neo4j / 'edges-likes.csv'}, line 3).",
    ]


def test_rows_of_several_node_tables_are_told(edges, write, tmp_path):
    pl.DataFrame({"id": ["x", "c"], "age": [1, 2]}).write_parquet(tmp_path / "n.parquet")
    tables = [write("n.csv", "age,id\n7,c\n8,b\n"), tmp_path / "n.parquet"]
    assert notes_of(edges, nodes=tables, tmp_path=tmp_path) == [
        "1 entity has several rows in node tables, whose values were joined; one is 'c' "
        f"({tables[0]}, line 2; {tables[1]}, row 2).",
        f"1 entity of edges is in no node table; one is 'a' ({edges}, line 1).",
    ]
    assert sorted(betae.read(edges, nodes=tables).values("age")["value"]) == [1, 2, 7, 8]
    lines = '{"id": "a", "n": 1}\n{"id": "a", "n": 2}\n{"head": "a", "tail": "b"}\n'
    file = write("r.jsonl", lines)
    assert notes_of(file, tmp_path=tmp_path)[1:] == [
        "1 entity has several rows in node tables, whose values were joined; one is 'a' "
        f"({file}, line 1; {file}, line 2).",
        f"1 entity of edges is in no node table; one is 'b' ({file}, line 3).",
    ]


def test_a_cell_in_a_thousand_and_dates_of_three_kinds(edges, write, tmp_path):
    dates = ["1975-01-31", "31/01/1975", "Jan 31 1975"]
    rows = [
        f"e{i},{'n/a' if i == 617 else i},{dates[i % 3]},{dates[1 + i % 2]},Song {i}\n"
        for i in range(1000)
    ]
    file = write("n.csv", "id,age,when,since,title\n" + "".join(rows))
    assert notes_of(edges, nodes=file, tmp_path=tmp_path)[:3] == [
        f"{file}, line 3: when is '31/01/1975', and only 334 of 1,000 cells are a date such as "
        "1975-01-31: all are kept as text.",
        f"{file}, line 2: since is '31/01/1975', and only 0 of 1,000 cells are a date such as "
        "1975-01-31: all are kept as text.",
        f"{file}, line 619: age is 'n/a', not a number: kept as text.",
    ]
    graph = betae.read(edges, nodes=file)
    assert graph.literals.describe()["age"].datatypes == {XSD + "integer": 999, STRING: 1}
    assert {*graph.values("when")["value"]} == {*dates}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (":START_ID\tx\n1\t2\n", "line 1: one column must be :END_ID."),
        (":START_ID\t:END_ID\n1\t2\n1\t\n", "line 3: the :END_ID is empty."),
        (":START_ID\t:END_ID\t:TYPE\n1\t2\t\n", "line 2: the :TYPE is empty."),
    ],
)
def test_bad_files_for_neo4j_are_named_with_the_line(write, text, words):
    with pytest.raises(TripleError) as caught:
        betae.read(write("edges.tsv", text))
    assert words in str(caught.value)


# ---- real data ----------------------------------------------------------------------------------


def test_the_music_graph_comes_back_to_the_byte(shared_data, tmp_path):
    file = shared_data / "music" / "music.ttl.gz"
    betae.read(file).save(tmp_path / "music")
    graph = KnowledgeGraph.open(tmp_path / "music")
    graph.export(tmp_path / "again.nt")
    assert triples_of(tmp_path / "again.nt") == triples_of(file)
    assert isinstance(graph.literals, Literals)
    assert graph.literals.size == 18295  # 18,309 in the file, 14 of them twice
    ingest(file, out=tmp_path / "bounded")
    for path in (tmp_path / "music").iterdir():
        assert (tmp_path / "bounded" / path.name).read_bytes() == path.read_bytes(), path.name


def test_hetionet_as_it_comes_has_the_edges_of_its_table(shared_data):
    folder = shared_data / "hetionet"
    graph = betae.read(folder / "neo4j")
    table = betae.read(folder / "edges.tsv.gz", labels=folder / "labels.tsv.gz")
    lower = pl.col("relation").str.to_lowercase()  # the files' names write Treats for treats
    columns = ["head", "relation", "tail"]
    found, wanted = (each.to_polars().with_columns(lower).sort(columns) for each in (graph, table))
    assert found.equals(wanted)
    assert graph.num_entities == 23_036  # 2,207 of them have no edges
    assert [*graph.classes] == ["Anatomy", "Compound", "Disease", "Gene"]
    for name in ("Compound::DB00014", "Disease::DOID:9352"):
        assert graph.entity_label(graph.entity_id(name)) == table.entity_label(
            table.entity_id(name)
        )
    rows = graph.select(
        "SELECT ?x { ?x a <Compound> ; <Compound_Treats_Disease> <hypertension> } LIMIT 3"
    )
    assert len([*rows]) == 3
    question = "?X . Compound(?X) & Compound_Treats_Disease(?X, hypertension)"
    treating = table.select("?X . Compound_treats_Disease(?X, hypertension)")
    assert [*graph.select(question)] == [*treating] != []
