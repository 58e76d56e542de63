"""From distances to probabilities: synthetic curves that must come back, and cases by hand."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from betae.answering.by_embedding import calibrate
from betae.answering.calibration import LAST_RANKS, Candidates, candidates_of, fit_curves
from betae.answering.results import MAX_PREDICTED
from betae.errors import InvalidArgument
from betae.models.execute import score_queries
from betae.querysets.sample import sample_queries
from tests.answering.helpers import random_model, same_curve
from tests.evaluation.eval_in_two_processes import Symbolic, split_graph
from tests.queries.oracle import slow_answers
from tests.queries.strategies import examples

STRUCTURES = ("1p", "2p", "2i", "2u", "2in")


def true_curve(distances):
    return 0.9 / (1 + np.exp(distances - 5))


def drawn(number, seed, spread=0.0):
    """Queries of 100 entities: distances, and answers drawn by the curve.

    With a `spread`, distances mean something else in every query: each has an offset of its own.
    """
    random = np.random.default_rng(seed)
    queries = []
    for _ in range(number):
        distances = random.uniform(0, 15, 100).astype(np.float32)
        is_answer = random.random(100) < true_curve(distances)
        queries.append(Candidates(distances + np.float32(spread * random.normal()), is_answer))
    return queries


def on(curve, queries):
    """Return the probabilities of all entities of all queries, and which are answers."""
    probabilities = [curve(each.distances) for each in queries]
    return np.concatenate(probabilities), np.concatenate([each.is_answer for each in queries])


def error_of(probabilities, is_answer):
    """Return the expected calibration error, over ten bins of the probability."""
    bins = np.minimum((10 * probabilities).astype(int), 9)
    gaps = np.bincount(bins, probabilities - is_answer)  # of a bin: mean gap times its size
    return np.abs(gaps).sum() / len(probabilities)


# ---- fit --------------------------------------------------------------------------------------


def test_a_known_curve_comes_back():
    queries = drawn(3000, seed=1)
    curve = fit_curves(lambda: queries)
    for distances, *_ in drawn(20, seed=2):
        error = np.abs(curve(distances) - true_curve(distances))
        assert error.mean() < 0.03


@pytest.mark.parametrize("spread", [0.0, 4.0])
def test_it_is_calibrated_on_fresh_queries(spread):
    curve = fit_curves(partial(drawn, 2000, 1, spread))
    probabilities, is_answer = on(curve, drawn(500, 2, spread))
    assert error_of(probabilities, is_answer) < 0.02
    assert error_of(probabilities**2, is_answer) > 0.05


def test_the_nearest_are_calibrated_even_if_distances_differ_from_query_to_query():
    curve, best, is_true = fit_curves(partial(drawn, 2000, 1, 4.0)), [], []
    for distances, marks, _ in drawn(500, 2, 4.0):
        nearest = np.argsort(distances)[:10]
        best.append(curve(distances)[nearest])
        is_true.append(marks[nearest])
    assert error_of(np.concatenate(best), np.concatenate(is_true)) < 0.03


@examples(100)
@given(data=st.data())
def test_probabilities_fall_with_the_distance(data):
    number = data.draw(st.integers(1, 60))
    values = st.floats(-1e6, 1e6, width=32)
    distances = data.draw(arrays(np.float32, number, elements=values))
    is_answer = data.draw(arrays(np.bool_, number))
    is_answer[data.draw(st.integers(0, number - 1))] = True
    curve = fit_curves(lambda: [Candidates(distances, is_answer)])
    assert len(curve.curves) == len(LAST_RANKS) + 1
    for places, shares in curve.curves:
        assert np.all(np.diff(places) > 0)
        assert np.all(np.diff(shares) <= 0)
    probabilities = curve(np.sort(distances))
    assert np.all((probabilities >= 0) & (probabilities <= MAX_PREDICTED))
    assert np.all(np.diff(probabilities) <= 0)


def test_the_number_of_answers_is_kept():
    """Isotonic regression moves shares, not their weighted mean."""
    queries = drawn(200, seed=3)
    probabilities, is_answer = on(fit_curves(lambda: queries), queries)
    assert probabilities.mean() == pytest.approx(is_answer.mean(), abs=0.02)


def test_perfect_order():
    distances = np.arange(100, dtype=np.float32)
    found = fit_curves(lambda: [Candidates(distances, distances < 10)])(distances)
    assert np.all(found[:10] == MAX_PREDICTED)
    assert np.all(found[10:] == 0)


def test_by_rank_if_all_distances_are_equal():
    curve = fit_curves(lambda: [Candidates(np.full(10, 3, dtype=np.float32), np.arange(10) < 4)])
    ranks = np.array([1, 2, 3, 4, 10])
    found = curve.at(np.full(5, 3, np.float32), ranks)
    assert found.tolist() == pytest.approx(
        [MAX_PREDICTED, MAX_PREDICTED, MAX_PREDICTED, 1 / 7, 1 / 7]
    )


def test_known_ones_are_certain_and_take_no_rank():
    curve = fit_curves(lambda: [Candidates(np.full(10, 3, dtype=np.float32), np.arange(10) < 1)])
    known = np.array([True, True, False, False])
    found = curve(np.array([1, 2, 3, 4], dtype=np.float32), known)
    assert found.tolist() == pytest.approx([1, 1, MAX_PREDICTED, 0])


def test_no_answers_at_all():
    with pytest.raises(InvalidArgument, match="No validation query has an answer"):
        fit_curves(lambda: [Candidates(np.arange(5, dtype=np.float32), np.zeros(5, dtype=bool))])


def test_nothing_is_certain():
    curve = same_curve([0.0, 1.0], [1.0, 0.0])
    values = curve(np.float32([-5, 0, 0.5, 1, 5]))
    assert values.tolist() == pytest.approx([MAX_PREDICTED, MAX_PREDICTED, 0.5, 0, 0])


# ---- candidates -------------------------------------------------------------------------------


@pytest.mark.parametrize("model_name", ["betae", "symbolic"])
def test_gather_leaves_out_easy_answers_and_marks_hard_ones(model_name):
    graph = split_graph()
    model = Symbolic(graph, "train") if model_name == "symbolic" else random_model("betae", graph)
    table = model.table().detach()
    queries = sample_queries(graph, dict.fromkeys(STRUCTURES, 4), "valid")
    expected_distances, expected_marks = [], []
    for query, _, _ in queries:
        easy = slow_answers(graph, query, "train")
        hard = slow_answers(graph, query, "train+valid") - easy
        assert hard
        distances = score_queries(model, [query], table)[0].tolist()
        for entity in set(range(graph.num_entities)) - easy:
            expected_distances.append(distances[entity])
            expected_marks.append(entity in hard)
    found = [*candidates_of(model, queries)]
    distances = np.concatenate([each.distances for each in found])
    marks = np.concatenate([each.is_answer for each in found])
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-5, atol=1e-5)
    assert marks.tolist() == expected_marks


def test_a_model_that_knows_all_is_sure_and_one_that_knows_nothing_is_not():
    graph = split_graph()
    knowing, ignorant = Symbolic(graph, "train+valid"), Symbolic(graph, "train")
    sure = calibrate(knowing, graph)
    near, far = sure(np.float32([0, 1]))
    assert near > 0.95
    assert far < 0.05
    unsure = calibrate(ignorant, graph)
    assert np.all(unsure(np.float32([0, 1])) < 0.3)


def test_calibrate_is_the_same_twice():
    graph = split_graph()
    model = random_model("gqe", graph)  # only what it can do
    assert calibrate(model, graph) == calibrate(model, graph)
