"""What the embedding of a whole question adds: against the definition, and what it must not do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from betae.answering import whole
from betae.answering.whole import adjust_by_embedding, fit_scale
from betae.models.execute import score_queries
from betae.queries.structures import STRUCTURES, fill, limits_of
from betae.querysets.sample import sample_queries
from tests.answering.helpers import edge_weights, probabilities_of, random_model
from tests.training.helpers import small_graph


def symbols_of(structure, graph, number, seed=0):
    limits = limits_of(structure, graph.num_entities, graph.num_relations)
    return np.random.default_rng(seed).integers(limits, size=(number, len(limits))).astype(np.int32)


def truth(graph, number, seed=0):
    """Values of all sizes, some of them 0 or 1."""
    values = np.random.default_rng(seed).random((number, graph.num_entities)) ** 8
    values[values < 1e-6] = 0
    values[values > 0.8] = 1
    return values.astype(np.float32)


def distances_of(model, structure, symbols):
    queries = [fill(structure, row) for row in symbols.tolist()]
    with torch.no_grad():
        return score_queries(model, queries, model.table()).double().numpy()


def adjusted(model, graph, *arguments):
    weights = replace(edge_weights({model.name: 1.0}), whole=0.5)
    return adjust_by_embedding(probabilities_of([model], weights, graph), *arguments)


@pytest.fixture
def graph():
    return small_graph()


@pytest.mark.parametrize("name", ["3p", "3i", "pi", "ip", "3in", "pni"])
def test_it_is_as_defined(graph, name):
    model, structure = random_model("betae", graph), STRUCTURES[name]
    symbols, values = symbols_of(structure, graph, 7), truth(graph, 7)
    found = adjusted(model, graph, values, structure, symbols)
    shares = np.exp(-0.5 * distances_of(model, structure, symbols))
    shares /= shares.sum(axis=1, keepdims=True)
    for row in range(7):
        doubtful = values[row][values[row] < 1].astype(np.float64).sum()
        for entity, value in enumerate(values[row].astype(np.float64)):
            gained = whole.WEIGHT * min(1, doubtful) * shares[row, entity]
            expected = 1 - (1 - value) * (1 - gained) if value else 0
            assert found[row, entity] == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert ((values == 0) == (found == 0)).all()
    assert ((values == 1) == (found == 1)).all()
    assert (found > values).any()


@pytest.mark.parametrize("name", ["1p", "2p", "2i", "2in", "2u"])
def test_questions_of_fewer_edges_stay_as_they_are(graph, name):
    model, structure = random_model("betae", graph), STRUCTURES[name]
    values = truth(graph, 3)
    symbols = symbols_of(structure, graph, 3)
    assert adjusted(model, graph, values, structure, symbols) is values


@pytest.mark.parametrize(("model", "name"), [("complex", "3p"), ("query2box", "3in")])
def test_a_model_that_cannot_embed_a_question_adds_nothing(graph, model, name):
    model, values = random_model(model, graph), truth(graph, 3)
    symbols = symbols_of(STRUCTURES[name], graph, 3)
    assert adjusted(model, graph, values, STRUCTURES[name], symbols) is values


def test_what_is_new_to_the_graph_gains_nothing(graph):
    """An entity that was added after training: as an answer, and named in a question."""
    model, structure = random_model("betae", graph), STRUCTURES["3p"]
    symbols, values = symbols_of(structure, graph, 4), truth(graph, 4)
    values = np.concatenate([values, np.full((4, 1), 0.5, np.float32)], axis=1)
    symbols[2, 0] = graph.num_entities
    found = adjusted(model, graph, values, structure, symbols)
    assert (found[:, -1] == 0.5).all()
    assert np.array_equal(found[2], values[2])
    assert (found[[0, 1, 3], :-1] > values[[0, 1, 3], :-1]).any(axis=1).all()


def test_the_scale_makes_missing_answers_likeliest(graph, monkeypatch):
    monkeypatch.setattr(whole, "SCALE_QUERIES", {"3p": 20, "pi": 20})
    model = random_model("betae", graph)
    scale = fit_scale(model, graph)
    sampled = sample_queries(graph, whole.SCALE_QUERIES, "valid", purpose="whole questions")

    def cost(scale):
        costs = []
        for block in sampled.with_hard_answers().blocks.values():
            scores = -scale * distances_of(model, block.structure, np.asarray(block.symbols))
            for row, of_query in enumerate(scores):
                is_known = np.isin(np.arange(graph.num_entities), block.easy[row])
                total = np.log(np.exp(of_query[~is_known]).sum())
                costs.append(np.mean(total - of_query[block.hard[row]]))
        return np.mean(costs)

    assert all(cost(scale) <= cost(scale * factor) + 1e-9 for factor in (0.5, 0.9, 1.1, 2))
    assert fit_scale(random_model("complex", graph), graph) is None
