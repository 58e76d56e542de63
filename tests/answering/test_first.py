"""Only the first entities are sorted: the answers are those of a list of all."""

import itertools

import numpy as np
import pytest

from betae import KnowledgeGraph, read_triples
from betae.answering import by_completion, by_embedding
from betae.answering.answerer import Asked
from betae.answering.calibration import LAST_RANKS, Calibration
from betae.answering.ranking import ascending, first
from tests.answering.helpers import by_distance, guessing, random_model
from tests.answering.test_many import nearly

NUMBER = 1500  # entities: more than the ranks that have a curve of their own


@pytest.mark.parametrize("also", [[], [3], [7, 499, 20]])
@pytest.mark.parametrize("number", [1, 10, 400, 600])
def test_the_first_are_as_all_in_order(number, also):
    generator = np.random.default_rng(0)
    for values in (
        generator.normal(size=500).astype(np.float32),
        generator.integers(-5, 5, size=500).astype(np.float32),  # many are equal
        np.zeros(500, dtype=np.float32),
    ):
        in_order = ascending(values).tolist()
        found = first(values, number, np.array(also, dtype=np.int32)).tolist()
        assert found[:number] == in_order[:number]
        assert set(also) <= set(found)
        assert found == sorted(found, key=in_order.index)


@pytest.fixture(scope="module")
def graph():
    generator = np.random.default_rng(1)
    rows = zip(*generator.integers(0, [[NUMBER], [4], [NUMBER]], (3, 9000)), strict=True)
    often = [(i % 7, 4, i) for i in range(0, NUMBER, 3)]  # many answers
    triples = {(f"e{head}", f"r{relation}", f"e{tail}") for head, relation, tail in [*rows, *often]}
    return KnowledgeGraph.from_triples(read_triples(sorted(triples), test=0.3))


def answerers(graph, edges):
    curves = [([0.0, 60.0], [0.9 / (i + 1), 0.1 / (i + 1)]) for i in range(len(LAST_RANKS) + 1)]
    curves[-1] = ([5.0, 12.0, 40.0], [0.3, 0.02, 0.0])  # the class before may end below
    yield guessing(graph, edges)
    for calibration in (Calibration(tuple(curves)), None):
        yield by_distance(graph, random_model("betae", graph), calibration, edges)


TEXTS = [
    "?X . r0(e1, ?X)",
    "?X . exists ?Y : r1(e2, ?Y) & r4(?Y, ?X)",
    "?X . r4(e3, ?X) & !r2(e5, ?X)",
    "?X . r4(e1, ?X) | r4(e2, ?X) | r0(e9, ?X)",
    "?X . !r4(e4, ?X) & !r0(?X, e7)",
]
WANTED = [
    {},
    {"k": 300},
    {"k": 1400},
    {"status": "predicted"},
    {"k": 30, "status": "assumed"},
    {"k": 700, "threshold": 0.03},
]


@pytest.mark.parametrize("edges", ["train", "all"])
def test_answers_are_those_of_a_list_of_all(edges, graph, monkeypatch):
    asked = [Asked(text, **wanted) for text, wanted in itertools.product(TEXTS, WANTED)]

    def answer(answerer):
        together = answerer.answer_many(asked)
        return [each.to_json() for each in (*together, *map(answerer.answer, TEXTS))]

    for answerer in answerers(graph, edges):
        found = answer(answerer)
        with monkeypatch.context() as patch:
            for module in (by_completion, by_embedding):
                patch.setattr(module, "first", lambda values, *_: ascending(values))
            patch.setattr(by_embedding, "CANDIDATES", NUMBER)  # so all have a rank at once
            everything = answer(answerer)
        assert found == [nearly(each) for each in everything]
        statuses = {answer["status"] for each in found for answer in each["answers"]}
        assert statuses == {"known", "assumed", "predicted"}
