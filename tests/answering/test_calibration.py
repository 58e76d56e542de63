"""From distances to probabilities: synthetic curves that must come back, and cases by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from betae.answering.calibration import (
    SUREST,
    Calibration,
    calibrate,
    calibration_error,
    fit,
    gather,
)
from betae.errors import BetaeError
from betae.models.execute import score_queries
from betae.queries.sample import sample_queries
from tests.answering.helpers import random_model
from tests.evaluation.eval_in_two_processes import Symbolic, split_graph
from tests.queries.oracle import slow_answers
from tests.queries.strategies import examples

STRUCTURES = ("1p", "2p", "2i", "2u", "2in")


def true_curve(distances):
    return 0.9 / (1 + np.exp(distances - 5))


def drawn(number, seed):
    """Distances, and answers that are drawn with the probability of the curve."""
    random = np.random.default_rng(seed)
    distances = random.uniform(0, 15, number).astype(np.float32)
    return distances, random.random(number) < true_curve(distances)


def fit_to(distances, is_answer):
    half = len(distances) // 2
    return fit(lambda: [(distances[:half], is_answer[:half]), (distances[half:], is_answer[half:])])


# ---- fit --------------------------------------------------------------------------------------


def test_a_known_curve_comes_back():
    curve = fit_to(*drawn(200_000, seed=1))
    places = np.linspace(0.2, 14, 200).astype(np.float32)
    error = np.abs(curve(places) - true_curve(places))
    # 0.08 units of distance hold about 1000 draws: a standard error of at most 0.016.
    assert error.max() < 0.06
    assert error.mean() < 0.015


def test_a_fitted_curve_is_calibrated_on_fresh_data():
    curve = fit_to(*drawn(200_000, seed=1))
    distances, is_answer = drawn(100_000, seed=2)
    error, rows = calibration_error(curve(distances), is_answer)
    assert error < 0.01
    assert sum(number for _, _, number in rows) == 100_000
    wrong, _ = calibration_error(curve(distances) ** 2, is_answer)
    assert wrong > 0.05


@examples(100)
@given(data=st.data())
def test_the_curve_falls_and_is_a_probability(data):
    number = data.draw(st.integers(1, 60))
    values = st.floats(-1e6, 1e6, width=32)
    distances = data.draw(arrays(np.float32, number, elements=values))
    is_answer = data.draw(arrays(np.bool_, number))
    is_answer[data.draw(st.integers(0, number - 1))] = True
    curve = fit_to(distances, is_answer)
    assert np.all(np.diff(curve.distances) > 0)
    assert np.all(np.diff(curve.probabilities) <= 0)
    probabilities = curve(np.sort(distances))
    assert np.all((probabilities >= 0) & (probabilities <= SUREST))
    assert np.all(np.diff(probabilities) <= 0)


def test_the_points_keep_the_number_of_answers():
    """Isotonic regression moves shares, not their weighted mean."""
    distances, is_answer = drawn(5000, seed=3)
    curve = fit_to(distances, is_answer)
    assert curve(distances).mean() == pytest.approx(is_answer.mean(), abs=0.01)


def test_perfect_order():
    distances = np.arange(100, dtype=np.float32)
    curve = fit_to(distances, distances < 20)
    assert np.all(curve(distances[:19]) == SUREST)
    assert curve(np.float32([1e9]))[0] < 0.02


def test_one_answer():
    distances = np.array([1, 2, 3, 4], dtype=np.float32)
    curve = fit_to(distances, distances == 2)
    at_answer = curve(distances[1:2])[0]
    assert 1 / 4 <= at_answer <= 1 / 2
    assert curve(distances[:1])[0] >= at_answer >= curve(distances[-1:])[0]
    alone = fit_to(np.float32([7]), np.array([True]))
    assert alone(np.float32([0, 7, 9])).tolist() == [SUREST] * 3


def test_equal_distances():
    curve = fit_to(np.full(10, 3, dtype=np.float32), np.arange(10) < 4)
    assert curve(np.float32([0, 3, 9])).tolist() == pytest.approx([0.4] * 3)


def test_all_are_answers():
    curve = fit_to(np.arange(5, dtype=np.float32), np.ones(5, dtype=bool))
    assert curve(np.float32([-1, 2, 9])).tolist() == [SUREST] * 3


def test_no_answers_at_all():
    """Nothing was ever an answer: either no probability at all, or an error that says so."""
    try:
        curve = fit_to(np.arange(5, dtype=np.float32), np.zeros(5, dtype=bool))
    except BetaeError:
        return
    assert curve(np.float32([0, 2, 9])).tolist() == pytest.approx([0] * 3)


def test_nothing_is_certain():
    curve = Calibration([0.0, 1.0], [1.0, 0.0])
    values = curve(np.float32([-5, 0, 0.5, 1, 5]))
    assert values.tolist() == pytest.approx([SUREST, SUREST, 0.5, 0, 0])


# ---- the error --------------------------------------------------------------------------------


def test_calibration_error_by_hand():
    probabilities = np.array([0.05, 0.15, 0.15, 0.95, 1.0])
    is_answer = np.array([False, True, False, True, True])
    error, rows = calibration_error(probabilities, is_answer)
    assert [number for _, _, number in rows] == [1, 2, 2]
    assert [share for _, share, _ in rows] == [0, 0.5, 1]
    assert [mean for mean, _, _ in rows] == pytest.approx([0.05, 0.15, 0.975])
    assert error == pytest.approx((1 * 0.05 + 2 * 0.35 + 2 * 0.025) / 5)
    one_bin, rows = calibration_error(probabilities, is_answer, bins=1)
    assert rows == [(pytest.approx(0.46), pytest.approx(0.6), 5)]
    assert one_bin == pytest.approx(0.14)


def test_calibration_error_of_nothing():
    assert calibration_error(np.empty(0), np.empty(0, dtype=bool)) == (0, [])


# ---- gather -----------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", ["beta", "symbolic"])
def test_gather_leaves_out_easy_answers_and_marks_hard_ones(geometry):
    graph = split_graph()
    model = Symbolic(graph, "train") if geometry == "symbolic" else random_model("beta", graph)
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
    distances, marks = map(np.concatenate, zip(*gather(model, table, queries), strict=True))
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-5, atol=1e-5)
    assert marks.tolist() == expected_marks


def test_a_model_that_knows_all_is_sure_and_one_that_knows_nothing_is_not():
    graph = split_graph()
    knowing, ignorant = Symbolic(graph, "train+valid"), Symbolic(graph, "train")
    sure = calibrate(knowing, graph, knowing.table().detach())
    near, far = sure(np.float32([0, 1]))
    assert near > 0.95
    assert far < 0.05
    unsure = calibrate(ignorant, graph, ignorant.table().detach())
    assert np.all(unsure(np.float32([0, 1])) < 0.3)


def test_calibrate_is_the_same_twice():
    graph = split_graph()
    model = random_model("vector", graph)  # only what it can do
    table = model.table().detach()
    assert calibrate(model, graph, table) == calibrate(model, graph, table)
    assert calibrate(model, graph, table, seed=1) != calibrate(model, graph, table)
