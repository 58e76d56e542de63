"""Names, labels of all kinds and languages, prefixes, and suggestions."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.errors import AmbiguousName, StoreError, UnknownEntity, UnknownRelation
from betae.graph.names import (
    Label,
    Names,
    Vocabulary,
    expand,
    in_order,
    local_name,
    printable,
    shorten,
)
from betae.graph.triples import read_triples
from betae.queries.read import parse_question, read_question
from tests.manifests import edit_manifest

any_text = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(any_text))
def test_names_hold_what_was_put_in(strings):
    names = Names.from_strings(strings)
    assert len(names) == len(strings)
    assert list(names) == strings
    assert [names[index] for index in range(len(strings))] == strings


@given(st.lists(any_text), any_text)
def test_find_gives_every_place_of_a_string(strings, other):
    names = Names.from_strings(strings)
    for string in {*strings, other}:
        assert names.find(string) == [i for i, held in enumerate(strings) if held == string]


def test_indexing_follows_python():
    names = Names.from_strings(["a", "é", "c"])
    assert names[-2] == "é"
    with pytest.raises(IndexError):
        names[3]


def test_closest_are_distinct_and_limited():
    labels = {"x": [Label("Paris")], "Paris": [Label("Parigi")]}
    names = Vocabulary.of(["Paris", "x", "Parma", "Padua", "Kuala Lumpur"], labels)
    assert names.closest("Pariss")[0] == "Paris"
    assert names.closest("Pariss").count("Paris") == 1
    assert len(names.closest("Pa")) <= 3
    assert "Kuala Lumpur" not in names.closest("Pariss")
    assert names.closest("qqqqqq") == []


def test_names_and_ids_round_trip(toy_graph):
    assert toy_graph.num_entities == 12
    for entity, name in enumerate(toy_graph.entities):
        assert toy_graph.entity_id(name) == entity
    assert sorted(toy_graph.entities) == list(toy_graph.entities)


def test_inverse_relations_are_odd(toy_graph):
    names = list(toy_graph.relations)
    assert names == ["friend", "in", "lives_in", "parent"]
    assert toy_graph.num_relations == 8
    for index, name in enumerate(names):
        assert toy_graph.relation_id(name) == 2 * index
        assert toy_graph.relation_id(f"~{name}") == 2 * index + 1


NAMES = Vocabulary.of(
    ["Q1", "Q2", "Q3", "Zürich", "STAR", "Star", "likes"],
    {
        "Q1": [Label("hypertension")],
        "Q2": [Label("Gabriel García Márquez"), Label("Gabo", rank=2)],
        "Q3": [Label("GABO")],
    },
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hypertension", ["Q1"]),
        ("gabriel garcia marquez", ["Q2"]),
        ("gabo", ["Q3"]),  # whose label it is; of Q2 it is only an alternative
        ("zurich", ["Zürich"]),
        ("star", ["STAR", "Star"]),
        ("LIKES", ["likes"]),
        ("hyper tension", []),
        ("", []),
    ],
)
def test_names_but_for_case_and_accents(text, found):
    assert [NAMES[index] for index in NAMES.find_alike(text)] == found


def test_case_and_accents_are_ignored_where_the_rest_is_unique(toy_graph, write):
    assert toy_graph.entity_id("ANN lee") == toy_graph.entity_id("ann")
    assert toy_graph.relation_id("Parent") == toy_graph.relation_id("parent")
    assert toy_graph.relation_id("~Parent") == toy_graph.relation_id("~parent")
    with pytest.raises(AmbiguousName, match="'SAM' may be any of 2 entities: cat, eve"):
        toy_graph.entity_id("SAM")
    film = KnowledgeGraph.from_triples(write("film.ttl", FILM))
    assert film.entities[film.entity_id(":HEAT")] == X + "heat"
    assert film.relations[film.relation_id("Directed By") // 2] == "https://schema.org/director"


def test_what_a_name_was_read_as_is_said(toy_graph):
    question = "?X . Parent('ann LEE', ?X) & ?X != CAT & lives_in(?X, Oslo)"
    told = ("'Parent' was read as 'parent'", "'ann LEE' was read as 'Ann Lee'")
    told += ("'CAT' was read as 'Sam'",)
    tree = parse_question(question).tree
    for asked in (question, tree):
        assert set(read_question(asked, toy_graph).notes) == set(told)
    assert set(toy_graph.select(question).notes) == set(told)
    assert read_question("?X . parent('Ann Lee', ?X)", toy_graph).notes == ()


def test_labels_lead_to_entities(toy_graph):
    assert toy_graph.entity_id("Ann Lee") == toy_graph.entity_id("ann")
    assert toy_graph.entity_label(toy_graph.entity_id("ann")) == "Ann Lee"
    assert toy_graph.entity_label(toy_graph.entity_id("Oslo")) == "Oslo"


def test_a_shared_label_lists_the_ids(toy_graph):
    with pytest.raises(AmbiguousName, match=r"'Sam' may be any of 2 entities: cat, eve") as info:
        toy_graph.entity_id("Sam")
    assert info.value.ids == ("cat", "eve")
    assert info.value.label == "Sam"


def test_a_label_that_relations_share(write):
    facts, labels = write("facts.tsv", "a\tr\tb\na\ts\tb\n"), write("l.tsv", "r\tin\ns\tin\n")
    graph = KnowledgeGraph.from_triples(read_triples(facts, labels=labels))
    for name in ("in", "~in"):
        with pytest.raises(AmbiguousName, match="'in' may be any of 2 relations: r, s"):
            graph.relation_id(name)


def test_half_a_character_is_an_unknown_name(toy_graph):
    with pytest.raises(UnknownEntity, match="ud800"):
        toy_graph.entity_id("\ud800")


def test_unknown_names_offer_close_ones(toy_graph):
    with pytest.raises(UnknownEntity, match="no entity 'Osloo'") as entity_info:
        toy_graph.entity_id("Osloo")
    assert entity_info.value.closest[0] == "Oslo"
    assert "'Oslo'" in str(entity_info.value)
    for asked in ("parents", "~parents"):
        with pytest.raises(UnknownRelation, match="no relation") as relation_info:
            toy_graph.relation_id(asked)
        assert relation_info.value.closest[0] == "parent"
        assert relation_info.value.name == asked


def test_an_exact_name_wins_over_a_label(write):
    facts = write("facts.tsv", "x\tr\ty\n")
    labels = write("labels.tsv", "x\ty\n")
    graph = KnowledgeGraph.from_triples(read_triples(facts, labels=labels))
    assert graph.entity_id("y") == list(graph.entities).index("y")
    assert graph.entity_label(graph.entity_id("x")) == "y"


# ---- labels --------------------------------------------------------------------------------------


FILM = """@prefix schema: <https://schema.org/> .
@prefix old: <http://schema.org/> .
@prefix : <http://x.org/film/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
:heat schema:director :mann ; schema:actor :pacino .
:collateral schema:director :mann .
:heat rdfs:label "Heiß"@de , "Heat"@en-US ; skos:altLabel "L.A. Heat" , "La Heat"@fr .
:mann foaf:name "Michael Mann" ; skos:altLabel "Mann" .
:pacino schema:name "Al Pacino" ; skos:altLabel "Alfredo Pacino" .
:collateral old:name "Collateral"@fr ; skos:prefLabel "Kollateral"@de ; skos:altLabel "Col"@en .
schema:director rdfs:label "directed by" ; skos:altLabel "réalisé par"@fr .
"""
X = "http://x.org/film/"


@pytest.fixture
def film(write):
    return KnowledgeGraph.from_triples(write("film.ttl", FILM))


@pytest.fixture
def stored(film, tmp_path):
    film.save(tmp_path / "film")
    return KnowledgeGraph.open(tmp_path / "film")


def texts(graph, name):
    return [label.text for label in graph.entities.labels_of(graph.entity_id(X + name))]


def test_labels_of_every_kind_are_kept_and_the_best_is_shown(film, stored):
    for graph in (film, stored):
        assert texts(graph, "heat") == ["Heat", "Heiß", "L.A. Heat", "La Heat"]
        assert texts(graph, "mann") == ["Michael Mann", "Mann"]
        assert texts(graph, "pacino") == ["Al Pacino", "Alfredo Pacino"]
        assert texts(graph, "collateral") == ["Kollateral", "Collateral", "Col"]
        heat = graph.entity_id(X + "heat")
        assert graph.entity_label(heat) == "Heat"
        languages = [label.language for label in graph.entities.labels_of(heat)]
        assert languages == ["en-us", "de", "", "fr"]
        director = graph.relation_id("https://schema.org/director")
        assert [each.text for each in graph.relations.labels_of(director // 2)] == [
            "directed by",
            "réalisé par",
        ]


def test_every_label_leads_to_its_entity(film, stored):
    for graph in (film, stored):
        for name in ("heat", "mann", "pacino", "collateral"):
            for text in texts(graph, name):
                assert graph.entities[graph.entity_id(text)] == X + name
        assert graph.relation_id("~réalisé par") == graph.relation_id("~directed by")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([Label("a", "de"), Label("b", "en", 1)], "b"),
        ([Label("a", "de", 1), Label("b", "fr")], "b"),
        ([Label("a", "en", 2), Label("b", "fr")], "b"),
        ([Label("a", "", 1), Label("b", "en")], "b"),
        ([Label("a", "en-GB"), Label("b")], "a"),
        ([Label("a", "english"), Label("b")], "b"),
    ],
)
def test_which_label_is_shown(labels, expected):
    assert in_order(labels)[0].text == expected


def test_a_label_said_twice_is_kept_once():
    assert in_order([Label("a", "", 2), Label("a"), Label("a", "en")]) == [
        Label("a"),
        Label("a", "en"),
    ]


def test_an_alternative_of_one_and_the_label_of_another(write):
    skos = "http://www.w3.org/2004/02/skos/core#"
    text = "".join(
        f'<x:{entity}> <{skos}{kind}> "{label}" .\n'
        for entity, kind, label in (
            ("a", "prefLabel", "Sun"),
            ("b", "altLabel", "Sun"),
            ("b", "altLabel", "Star"),
            ("c", "altLabel", "Star"),
            ("c", "prefLabel", "Sea"),
        )
    )
    graph = KnowledgeGraph.from_triples(write("a.nt", "<x:a> <x:r> <x:b>, <x:c> .\n".replace(
        ", <x:c>", " .\n<x:a> <x:r> <x:c>") + text))  # fmt: skip
    with pytest.raises(AmbiguousName):
        graph.entity_id("Sun")  # b has no better label
    with pytest.raises(AmbiguousName):
        graph.entity_id("Star")
    assert graph.entities[graph.entity_id("Sea")] == "x:c"


def test_labels_and_prefixes_are_merged_on_append(film, write):
    more = """@prefix : <http://x.org/person/> . @prefix geo: <http://x.org/geo/> .
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    <http://x.org/film/heat> geo:in geo:LA ; rdfs:label "Hitte"@nl ."""
    graph = film.extended(write("more.ttl", more))
    assert texts(graph, "heat")[0] == "Heat"
    assert set(texts(graph, "heat")) == {"Heat", "Heiß", "L.A. Heat", "La Heat", "Hitte"}
    assert graph.prefixes == {**film.prefixes, "geo": "http://x.org/geo/"}
    assert graph.prefixes[""] == X


# ---- stores -------------------------------------------------------------------------------------


def test_prefixes_are_stored(stored, film):
    assert stored.prefixes == film.prefixes
    assert stored.prefixes["schema"] == "https://schema.org/"
    assert stored.prefixes[""] == X


def test_a_graph_of_format_version_1_opens(tmp_path, assert_same_graph, toy_graph):
    def older(manifest):
        manifest["version"] = 1
        del manifest["prefixes"]

    toy_graph.save(tmp_path / "old")
    edit_manifest(tmp_path / "old", older)
    opened = KnowledgeGraph.open(tmp_path / "old")
    assert_same_graph(opened, toy_graph)
    assert dict(opened.prefixes) == {}
    assert opened.entities.labels_of(opened.entity_id("ann")) == [Label("Ann Lee")]
    assert opened.entities.labels_of(opened.entity_id("Oslo")) == []


@pytest.mark.parametrize(
    "change", [lambda old: old[:-1], lambda old: old[::-1].copy(), lambda old: old + 9]
)
def test_damaged_labels_are_refused(stored, change):
    file = stored.folder / "entity_labels.owners.npy"
    np.save(file, change(np.load(file)))
    manifest = json.loads((stored.folder / "manifest.json").read_text())

    def fits(edited):
        edited["parts"][file.name]["bytes"] = file.stat().st_size

    assert file.name in manifest["parts"]
    edit_manifest(stored.folder, fits)
    with pytest.raises(StoreError, match="entity_labels"):
        KnowledgeGraph.open(stored.folder, verify=False)


# ---- IRIs, short and long -----------------------------------------------------------------------

PREFIXES = {"x": "http://x.org/", "film": "http://x.org/film/", "": "urn:y:"}


@pytest.mark.parametrize(
    ("iri", "short"),
    [
        ("http://x.org/a", "x:a"),
        ("http://x.org/film/heat", "film:heat"),
        ("http://x.org/film/heat-2.b", "film:heat-2.b"),
        ("http://x.org/日本", "x:日本"),
        ("urn:y:z", ":z"),
    ],
)
def test_iris_are_shortened_and_expanded(iri, short):
    assert shorten(iri, PREFIXES) == short
    assert expand(short, PREFIXES) == iri


@pytest.mark.parametrize(
    "name", ["http://x.org/", "http://x.org/a b", "http://x.org/a/b", "http://x.org/a.", "a", ""]
)
def test_what_no_prefix_covers_stays_long(name):
    assert shorten(name, PREFIXES) == name


@pytest.mark.parametrize("name", ["y:a", "http://x.org/a", "x", "x://a", ""])
def test_what_has_no_known_prefix_is_not_expanded(name):
    assert expand(name, PREFIXES) == name


def test_names_may_be_shortened_in_questions(film):
    assert film.relation_id("schema:director") == film.relation_id("https://schema.org/director")
    assert film.relation_id("~schema:director") % 2 == 1
    assert film.entity_id(":heat") == film.entity_id(X + "heat")


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("http://x.org/a#b", "b"),
        ("http://x.org/a/", "a"),
        ("urn:isbn:123", "123"),
        ("/film/genre", "/film/genre"),
        ("a:b", "a:b"),
        ("http://", "http://"),
    ],
)
def test_the_last_part_of_an_iri(name, last):
    assert local_name(name) == last


def test_closest_compares_last_parts_and_labels(film):
    with pytest.raises(UnknownEntity) as info:
        film.entity_id("http://x.org/film/pacinno")
    assert info.value.closest[0] in (":pacino", "Al Pacino")
    assert ":heat" not in info.value.closest
    with pytest.raises(UnknownEntity) as info:
        film.entity_id("Al Paccino")
    assert info.value.closest[0] == "Al Pacino"
    with pytest.raises(UnknownRelation) as relation_info:
        film.relation_id("schema:directer")
    assert relation_info.value.closest[0] == "schema:director"
    with pytest.raises(UnknownEntity) as info:
        film.entity_id("Alfreddo Pacino")
    assert info.value.closest[0] == "Alfredo Pacino"
    for name in info.value.closest:
        film.entity_id(name)  # what is offered can be used


def test_names_of_several_iris_with_one_last_part_are_all_offered():
    graph = KnowledgeGraph.from_triples(
        [("http://x.org/a/paris", "r", "http://x.org/b/paris"), ("http://x.org/c/oslo", "r", "z")]
    )
    with pytest.raises(UnknownEntity) as info:
        graph.entity_id("pariss")
    assert set(info.value.closest) == {"http://x.org/a/paris", "http://x.org/b/paris"}


def test_printable_text_has_nothing_that_a_terminal_obeys():
    assert printable("a\x1b[31m\x9b2J\u202eé 日\n") == r"a\x1b[31m\x9b2J\u202eé 日\n"
    assert printable("plain é 日本 🦊") == "plain é 日本 🦊"
