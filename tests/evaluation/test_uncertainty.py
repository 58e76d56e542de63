"""What uncertainty says about answers, against hand-made cases and slow versions."""

from math import isnan, log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from betae.evaluation import ranks
from betae.evaluation.uncertainty import (
    MEASURED,
    correlate,
    count_error,
    fit_counts,
    fit_line,
    separate,
    tell_empty,
    uncertainty_of,
)
from betae.exact.answers import answers
from betae.models.execute import embed_queries
from betae.queries.rewrite import dnf_branches
from betae.queries.structures import has_negation
from betae.querysets.sample import sample_answered, sample_empty, sample_queries
from tests.evaluation.eval_in_two_processes import Symbolic, random_model
from tests.queries.strategies import examples
from tests.training.helpers import graph_of

FIXED = "?X . r0(e30, ?X) & _(_, ?X)"


def queries_of(block):
    return [block.query(row) for row in range(len(block))]


# ---- queries without answers ------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MEASURED, "2u", "up", FIXED])
def test_empty_queries_are_empty(name, graph):
    found = queries_of(sample_empty(graph, name, 40))
    assert len(set(found)) == len(found) == 40
    assert not any(len(answers(graph, query, "all")) for query in found)


@pytest.mark.parametrize("name", MEASURED)
def test_answered_queries_have_more_than_five_answers(name, graph):
    found = queries_of(sample_answered(graph, name, 15))
    assert 5 < len(set(found)) == len(found) <= 15
    assert all(len(answers(graph, query, "all")) > 5 for query in found)
    assert all(len(answers(graph, query, "train")) for query in found)


def test_the_seed_decides(graph):
    one, same, other = (sample_empty(graph, "2p", 30, seed).symbols.tolist() for seed in (5, 5, 6))
    assert len(one) == len(other) == 30
    assert one == same != other


def test_there_may_be_fewer_empty_queries_than_asked(graph):
    """Of single steps, all that there are."""
    found = sample_empty(graph, "1p", 2000).symbols
    pairs = np.ndindex(graph.num_entities, graph.num_relations)
    has_answers = graph.adjacency("all").neighbours
    expected = {pair for pair in pairs if not len(has_answers(*pair))}
    assert 0 < len(found) == len(expected)
    assert set(map(tuple, found.tolist())) == expected


def test_an_oracle_tells_them_all(graph):
    told = []
    model = Symbolic(graph, "all")
    result = tell_empty(model, graph, ["2i"], 25, lambda *step: told.append(step))["2i"]
    assert (result.roc_auc, result.num_empty) == (1.0, 25)
    assert 0 < result.num_answered <= 25
    assert told == [("queries without answers", 0, 1)]


def test_a_graph_without_queries_of_a_kind():
    graph = graph_of([[0, 0, 1], [1, 0, 2]])  # no query with more than 5 answers
    assert tell_empty(Symbolic(graph, "all"), graph, ["1p"], 10, lambda *_: None) == {}


scores = st.lists(st.sampled_from([0.0, 1.0, 2.5]) | st.floats(-9, 9), min_size=1, max_size=20)


@examples(100)
@given(scores, scores)
def test_the_area_is_the_share_of_pairs_in_order(positive, negative):
    found = separate(np.array(positive), np.array(negative))
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    assert found.roc_auc == pytest.approx(wins / (len(positive) * len(negative)))
    assert (found.num_answered, found.num_empty) == (len(positive), len(negative))


@examples(100)
@given(scores, scores)
def test_the_curve(positive, negative):
    """It rises from (0, 0) to (1, 1); of so few scores it has every corner, hence the area."""
    found = separate(np.array(positive), np.array(negative))
    false, true = np.array(found.curve).T
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()
    assert np.trapezoid(true, false) == pytest.approx(found.roc_auc)


# ---- correlation ------------------------------------------------------------------------------


def test_correlations_by_hand():
    counts = np.array([1, 2, 3, 4])
    rising = correlate(np.array([1.0, 10.0, 100.0, 1000.0]), counts)
    assert rising.spearman == pytest.approx(1)
    assert 0.7 < rising.pearson < 0.9
    straight = correlate(np.array([5.0, 3.0, 1.0, -1.0]), counts)
    assert (straight.spearman, straight.pearson) == pytest.approx((-1, -1))
    # Ranks 1, 2.5, 2.5, 4 with 1, 2, 3, 4.
    tied = correlate(np.array([0.0, 7.0, 7.0, 8.0]), counts)
    assert tied.spearman == pytest.approx(4.5 / sqrt(4.5 * 5))


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [([2.0, 2.0, 2.0], [1, 2, 3]), ([1.0, 2.0], [4, 4]), ([1.0], [1]), ([], [])],
)
def test_what_is_constant_has_no_correlation(sizes, counts):
    found = correlate(np.array(sizes), np.array(counts, dtype=np.int64))
    assert isnan(found.spearman)
    assert isnan(found.pearson)


# ---- the number of answers --------------------------------------------------------------------

SIZES = np.array([0.0, 1.0, 2.0, 3.0])
COUNTS = np.array([1, 2, 4, 8])


def test_the_estimate_recovers_a_line():
    assert fit_line(SIZES, COUNTS) == pytest.approx((0, log(2)))


@pytest.mark.parametrize(("sizes", "counts"), [([3.0, 3.0, 3.0], [1, 2, 4]), ([3.0], [2])])
def test_without_a_line_it_is_the_mean(sizes, counts):
    assert fit_line(np.array(sizes), np.array(counts)) == pytest.approx((log(2), 0))


def test_each_structure_has_its_line_and_all_have_one(graph):
    model = Symbolic(graph, "train+valid")
    lines = fit_counts(model, graph, ["1p", "2p"])
    assert list(lines) == ["1p", "2p", "all"]
    assert len({*lines.values()}) == 3
    assert fit_counts(model, graph, []) == {}


def test_the_error_by_hand():
    # Off by 2, 2, 1, 8; with 2 for all, by 2.
    found = count_error(np.array([2.0, 2.0, 4.0, 32.0]), np.array([1, 1, 4, 4]))
    assert (found.factor, found.factor_of_constant) == pytest.approx((2, 2))
    exact = count_error(COUNTS.astype(float), COUNTS)
    assert exact.factor == pytest.approx(1)


@examples(50)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=9))
def test_no_constant_is_better_than_the_best(counts):
    """The yardstick beside the estimates must be as good as one number can be."""
    constants = np.exp(np.linspace(0, np.log(100), 50))
    errors = [count_error(np.full(len(counts), c), np.array(counts)) for c in constants]
    best = errors[0].factor_of_constant
    assert best <= min(error.factor for error in errors) + 1e-9


# ---- models -----------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [7, 2048])
@pytest.mark.parametrize("model_name", ["betae", "query2box"])
def test_uncertainty_is_that_of_each_query(model_name, at_once, graph, monkeypatch):
    """Of a union, that of its most uncertain branch."""
    monkeypatch.setattr(ranks, "EMBED_BATCH", at_once)
    model = random_model(model_name, graph)
    names = ["1p", "3p", "2i", "2in", "2u", "up", "2u-DM", "?X . r0(e48, ?X) | _(_, ?X)"]
    for block in sample_queries(graph, dict.fromkeys(names, 15)).blocks.values():
        if has_negation(block.structure) and model_name == "query2box":
            continue
        expected = []
        for query in queries_of(block):
            with torch.no_grad():
                branches = [embed_queries(model, [branch]).sets for branch in dnf_branches(query)]
                expected.append(max(float(model.uncertainty(sets)) for sets in branches))
        assert len(expected) > 10
        assert uncertainty_of(model, block) == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert np.ptp(expected) > 0.01


def test_no_queries_have_no_uncertainty(graph):
    block = sample_empty(graph, "2u", 5).take(np.empty(0, dtype=np.int64))
    assert uncertainty_of(random_model("betae", graph), block).tolist() == []
