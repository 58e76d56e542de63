"""Conditions in predicted questions: exact where edges are certain, facts in derivations."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.answering import by_parts
from betae.answering.answerer import Answerer
from betae.answering.by_completion import ByCompletion
from betae.answering.by_parts import ByParts, LargeGraph
from betae.answering.completed import CompletedGraph
from betae.answering.edges import EdgePredictors
from betae.answering.identities import apply_identities
from betae.answering.truth import best_derivations
from betae.errors import UnsupportedQuery
from betae.exact.answers import answers
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import NAME, NAMED, RDF_TYPE, STRING, XSD
from betae.graph.triples import Triples
from betae.queries.ast import Entity, IsA, Where
from betae.queries.read import resolve
from tests.answering.helpers import by_distance, guessing, probabilities_of, random_model
from tests.answering.test_by_parts import WEIGHTS, completing
from tests.answering.test_truth import (
    all_edges,
    completed_by,
    no_chances,
    random_chances,
    slow_truth,
    tree_of,
    truth_of,
)
from tests.queries.strategies import (
    edge_choices,
    examples,
    graphs_with_values,
    trees_with_conditions,
)
from tests.training.helpers import small_graph


def with_values(graph):
    """Add a size to every other entity, a text, and a class to two in three of them."""
    names = list(graph.entities)
    rows = [(each, "size", str(i), XSD + "integer", "") for i, each in enumerate(names) if i % 2]
    rows += [(each, "code", f"Code {i}", STRING, "") for i, each in enumerate(names)]
    rows += [(each, RDF_TYPE, "Thing", NAME, "") for i, each in enumerate(names) if i % 3]
    literals = pl.DataFrame(rows, schema=NAMED, orient="row")
    return KnowledgeGraph.from_triples(
        Triples(names, list(graph.relations), graph.written_ids, literals=literals)
    )


@pytest.fixture(scope="module")
def graph():
    return with_values(small_graph(0, 200, num_edges=1500, num_valid=100))


# ---- truth --------------------------------------------------------------------------------------


@examples(100)
@given(st.data())
def test_without_missing_edges_the_truth_is_the_exact_answers(data):
    graph, edges = data.draw(graphs_with_values()), data.draw(edge_choices)
    query = data.draw(trees_with_conditions(graph.num_entities, graph.num_relations, 2))
    query = resolve(query, graph, edges)
    completed = completed_by(graph, no_chances(graph), edges)
    found = tree_of(completed, query, data.draw(st.integers(1, 12)))
    values = found.root[0]
    assert np.array_equal(best_derivations(completed, found).root[0], values)
    assert set(values.tolist()) <= {0.0, 1.0}
    assert np.flatnonzero(values).tolist() == answers(graph, query, edges).tolist()


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_truth_by_the_definition(data, seed):
    graph, edges = data.draw(graphs_with_values(entities=(2, 5))), data.draw(edge_choices)
    query = data.draw(trees_with_conditions(graph.num_entities, graph.num_relations, 2))
    query, chances = resolve(query, graph, edges), random_chances(graph, seed)
    expected = slow_truth(apply_identities(query), all_edges(graph, chances, edges))
    found = truth_of(graph, chances, query, edges)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# ---- answers ------------------------------------------------------------------------------------


def test_a_condition_keeps_the_truth_of_those_that_meet_it(graph):
    answerer = guessing(graph)
    every = answerer.answer("?X . r0(e1, ?X)", graph.num_entities)
    probability = {each.entity: each.probability for each in every}
    kept = answerer.answer("?X . r0(e1, ?X) & size(?X) < 50", graph.num_entities)
    sizes = {row["entity"]: row["value"] for row in graph.values("size").iter_rows(named=True)}
    wanted = {each for each in probability if sizes.get(each, 99) < 50}
    assert {each.entity for each in kept} == wanted
    assert all(each.probability == pytest.approx(probability[each.entity]) for each in kept)
    others = answerer.answer("?X . r0(e1, ?X) & !(size(?X) < 50)", graph.num_entities)
    assert {each.entity for each in others} == {*probability} - wanted
    known = kept.num_known + others.num_known
    assert known == every.num_known
    have = "has" if missing(graph) == 1 else "have"
    assert kept.notes == (f"{missing(graph)} of {known} entities {have} no size",)
    assert kept.notes[0] in kept.summary()
    assert kept.to_json()["notes"] == kept.notes


def missing(graph):
    found = graph.answers("?X . r0(e1, ?X) & !(size(?X) >= 0)", "train")
    assert len(found)
    return len(found)


def test_classes_and_conditions_anywhere_in_a_question(graph):
    answerer = guessing(graph)
    tree = ((Entity("e1")["r0"] & Where("size", ">", 90))["r1"] & IsA("Thing")) | (
        Where("code", "~", "code 1") & ~IsA("Thing") & Entity("e2")["r2"]
    )
    text = answerer.answer(str(tree), 300, explain=True)
    assert text == answerer.answer(tree, 300, explain=True)
    assert str(tree) == text.query
    exact = {row["X"] for row in graph.select(tree, "train")}
    assert {each.entity for each in text if each.status == "known"} <= exact
    for answer in text:
        is_thing = graph.entity_id(answer.entity) % 3
        facts = facts_of(answer.why)
        if is_thing:
            assert f"Thing({answer.entity})" in facts
            assert any(" size " in fact and fact.endswith(" > 90") for fact in facts)
        else:
            assert any(' code "Code 1' in fact and fact.endswith('~ "code 1"') for fact in facts)
        assert not any(" size " in fact for fact in answer.why.missing())


def facts_of(step):
    """Return the texts of the known steps of a derivation."""
    below = [fact for source in step.sources for fact in facts_of(source)]
    return [step.text, *below] if step.status == "known" else below


def test_a_condition_alone_and_what_nothing_meets(graph):
    answerer = guessing(graph)
    found = answerer.answer("?X . size(?X) < 6 & Thing(?X)", explain=True)
    assert [each.entity for each in found] == [graph.entities[i] for i in (1, 5)]
    assert {each.status for each in found} == {"known"}
    assert facts_of(found[0].why) == ["e1 size 1 < 6", "Thing(e1)"]
    assert len(answerer.answer("?X . exists ?Y : size(?Y) < -1 & r0(?Y, ?X)")) == 0


def test_by_parts_as_over_the_whole_graph(graph, monkeypatch):
    models, indexes = completing(graph)
    completed = CompletedGraph(graph, probabilities_of(models, WEIGHTS, graph))
    large = LargeGraph(graph, EdgePredictors(models, WEIGHTS, 0.0, indexes), "train")
    for question in (
        "?X . r0(e1, ?X) & size(?X) < 100",
        "?X . exists ?Y : r0(e1, ?Y) & !(size(?Y) > 150) & r1(?Y, ?X) & Thing(?X)",
        "?X . size(?X) < 3 | r0(e1, ?X)",
    ):
        one, two = (
            Answerer(graph, ranker, "train").answer(question, 20, explain=True)
            for ranker in (ByCompletion(graph, completed), ByParts(large))
        )
        assert one.notes == two.notes
        for expected, found in zip(one, two, strict=True):
            assert found.entity == expected.entity
            assert found.probability == pytest.approx(expected.probability, rel=1e-5)
            assert facts_of(found.why) == facts_of(expected.why)
    monkeypatch.setattr(by_parts, "MAX_MEMBERS", 10)
    with pytest.raises(UnsupportedQuery, match="holds for nearly all entities"):
        Answerer(graph, ByParts(large), "train").answer("?X . Thing(?X)")


def test_embeddings_cannot_say_conditions(graph):
    answerer = by_distance(graph, random_model("betae", graph))
    with pytest.raises(UnsupportedQuery, match="Conditions and classes cannot be embedded"):
        answerer.answer("?X . r0(e1, ?X) & size(?X) < 100")
