"""Many questions at once: the same answers as one after another, from fewer evaluations."""

import pytest

from betae import UnknownEntity
from betae.answering import by_completion, by_embedding
from betae.answering.answerer import Asked
from tests.answering.helpers import guessing, untrained

QUESTIONS = [
    Asked("?X . lives_in(bob, ?X)"),
    Asked("?X . exists ?C : parent(ann, ?C) & lives_in(?C, ?X)", explain=True),
    Asked("?X . lives_in(eve, ?X)", k=2, status="predicted", explain=True),
    Asked("SELECT ?x { <cat> <lives_in> ?x } LIMIT 3"),
    Asked("?X . parent(ann, ?X) & !lives_in(?X, Oslo)", threshold=0.2),
    Asked("?X . exists ?C : parent(bob, ?C) & lives_in(?C, ?X)", k=4, explain=True),
    Asked("?X . parent(ann, ?X) | friend(bob, ?X)", k=5),
]


def nearly(value):
    """Return plain values to compare with: a batch may round the last digits otherwise."""
    if isinstance(value, dict):
        return {key: nearly(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(map(nearly, value))
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


@pytest.mark.parametrize("make", [guessing, untrained])
@pytest.mark.parametrize("edges", ["train", "all"])
def test_they_are_answered_as_one_by_one(make, edges, toy_graph):
    answerer = make(toy_graph, edges=edges)
    one_by_one = [
        answerer.answer(
            each.question,
            each.k,
            status=each.status,
            threshold=each.threshold,
            explain=each.explain,
        )
        for each in QUESTIONS
    ]
    for many, one in zip(answerer.answer_many(QUESTIONS), one_by_one, strict=True):
        assert many.to_json() == nearly(one.to_json())


def test_a_structure_is_evaluated_once(toy_graph, monkeypatch):
    sizes = []

    def evaluate(completed, structure, symbols):
        sizes.append(len(symbols))
        return original(completed, structure, symbols)

    original = by_completion.evaluate
    monkeypatch.setattr(by_completion, "evaluate", evaluate)
    guessing(toy_graph).answer_many(QUESTIONS)
    assert sorted(sizes) == [1, 1, 2, 3]


def test_rows_of_named_entities_are_made_in_one_go(toy_graph, monkeypatch):
    answerer, sizes = guessing(toy_graph), []
    probabilities = answerer.ranker.completed.probabilities
    original = probabilities.rows

    def rows(heads, *others):
        sizes.append(len(heads))
        return original(heads, *others)

    monkeypatch.setattr(probabilities, "rows", rows)
    answerer.answer_many([Asked(each.question) for each in QUESTIONS])
    named = {"lives_in": 3 + 1, "parent": 2, "friend": 1}  # by bob, eve, cat, ~Oslo; ann, bob; bob
    assert sizes[0] == sum(named.values())


@pytest.mark.parametrize(("at_once", "sizes"), [(2**21, [7]), (30, [2, 2, 2, 1])])
def test_a_batch_is_embedded_once(at_once, sizes, toy_graph, monkeypatch):
    batches = []

    def embed(model, queries, union):
        batches.append(len(queries))
        return original(model, queries, union)

    original = by_embedding.embed_queries
    answerer = untrained(toy_graph)
    expected = answerer.answer_many(QUESTIONS)
    monkeypatch.setattr(by_embedding, "embed_queries", embed)
    monkeypatch.setattr(by_embedding, "DISTANCES_AT_ONCE", at_once)
    found = answerer.answer_many(QUESTIONS)
    assert batches == sizes
    assert [each.to_json() for each in found] == [nearly(each.to_json()) for each in expected]


def test_no_question_is_no_answer_and_a_bad_one_is_an_error(toy_graph):
    answerer = guessing(toy_graph)
    assert answerer.answer_many([]) == []
    with pytest.raises(UnknownEntity, match="nobody"):
        answerer.answer_many([*QUESTIONS, Asked("?X . lives_in(nobody, ?X)")])
