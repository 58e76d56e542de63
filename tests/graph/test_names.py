import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import AmbiguousName, UnknownEntity, UnknownRelation
from betae.graph.names import Names

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(texts))
def test_names_hold_what_was_put_in(strings):
    names = Names.from_strings(strings)
    assert len(names) == len(strings)
    assert list(names) == strings
    assert [names[index] for index in range(len(strings))] == strings


@given(st.lists(texts), texts)
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
    names = Names.from_strings(["Paris", "Paris", "Parma", "Padua", "Kuala Lumpur"])
    assert names.closest("Pariss")[0] == "Paris"
    assert names.closest("Pariss").count("Paris") == 1
    assert len(names.closest("Pa", limit=2)) <= 2
    assert "Kuala Lumpur" not in names.closest("Pariss")
    assert names.closest("qqqqqq") == []


def test_names_and_ids_round_trip(toy_graph):
    assert toy_graph.num_entities == 12
    for entity, name in enumerate(toy_graph.entities):
        assert toy_graph.entity_id(name) == entity
    assert sorted(toy_graph.entities) == list(toy_graph.entities)
    for relation in range(toy_graph.num_relations):
        assert toy_graph.relation_id(toy_graph.relation_name(relation)) == relation


def test_inverse_relations_are_odd(toy_graph):
    names = list(toy_graph.relations)
    assert names == ["friend", "in", "lives_in", "parent"]
    assert toy_graph.num_relations == 8
    for index, name in enumerate(names):
        assert toy_graph.relation_id(name) == 2 * index
        assert toy_graph.relation_id(f"~{name}") == 2 * index + 1
        assert toy_graph.relation_name(2 * index + 1) == f"~{name}"


def test_labels_lead_to_entities(toy_graph):
    assert toy_graph.entity_id("Ann Lee") == toy_graph.entity_id("ann")
    assert toy_graph.entity_label(toy_graph.entity_id("ann")) == "Ann Lee"
    assert toy_graph.entity_label(toy_graph.entity_id("Oslo")) == "Oslo"


def test_a_shared_label_lists_the_ids(toy_graph):
    with pytest.raises(AmbiguousName, match=r"'Sam' is the label of 2 entities: cat, eve") as info:
        toy_graph.entity_id("Sam")
    assert info.value.ids == ("cat", "eve")
    assert info.value.label == "Sam"


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
    from betae import KnowledgeGraph, read_triples

    facts = write("facts.tsv", "x\tr\ty\n")
    labels = write("labels.tsv", "x\ty\n")
    graph = KnowledgeGraph.from_triples(read_triples(facts, labels=labels))
    assert graph.entity_id("y") == list(graph.entities).index("y")
    assert graph.entity_label(graph.entity_id("x")) == "y"


def test_names_are_flat_arrays():
    names = Names.from_strings(["b", "", "añ"])
    assert names.text.tobytes() == "bañ".encode()
    assert np.array_equal(names.offsets, [0, 1, 1, 4])
    assert np.array_equal(names.order, [1, 2, 0])
