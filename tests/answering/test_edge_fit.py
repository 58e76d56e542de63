"""Fitting probabilities of edges: slopes against differences, and a structure that was planted."""

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

from betae.answering.edge_fit import (
    LOOP_PRIOR,
    Shares,
    _fit_bend,
    _fit_listwise,
    _fit_logistic,
    _halves,
    _Tails,
    fit_edges,
)
from betae.answering.edges import bent
from betae.errors import InvalidArgument
from tests.answering.helpers import probabilities_of, random_model
from tests.evaluation.eval_in_two_processes import Symbolic, split_graph
from tests.training.helpers import graph_of, small_graph


def random_tails(seed=0, num_rows=20, num_features=4):
    """Rows of a few tails each, of which about a quarter are edges, at least one in each row."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, 9, num_rows)
    rows = np.repeat(np.arange(num_rows), lengths)
    is_edge = random.random(len(rows)) < 0.25
    is_edge[np.searchsorted(rows, np.arange(num_rows))] = True
    features = random.normal(size=(len(rows), num_features)) + is_edge[:, None]
    weights = np.where(is_edge, 1.0, random.uniform(1, 30, len(rows)))
    return _Tails(rows, features, weights, is_edge.astype(np.int8))


@pytest.fixture
def costs(monkeypatch):
    """The functions that are minimised, each with a place to look at, in units of its scale."""
    found, minimize = [], optimize.minimize

    def spy(cost, start, **options):
        found.append((cost, start))
        return minimize(cost, start, **options)

    monkeypatch.setattr(optimize, "minimize", spy)
    return found


@pytest.mark.parametrize("shares", [None, (0, 1), (0, 0.4), (0, 0.01), (0.2, 0.3), (0.5, 0.5)])
def test_slopes_are_those_of_the_cost(costs, shares):
    """Of the listwise cost, or of the logistic one with these shares."""
    tails = random_tails()
    if shares is None:
        _fit_listwise(tails, 20, tails.features.std(axis=0))
    else:
        _fit_logistic(tails, Shares(*shares))
    ((cost, start),) = costs
    random = np.random.default_rng(1)
    for _ in range(5):
        place = random.normal(size=len(start))
        differences = [
            (cost(place + step)[0] - cost(place - step)[0]) / 2e-5
            for step in 1e-5 * np.eye(len(start))
        ]
        np.testing.assert_allclose(cost(place)[1], differences, rtol=1e-5, atol=1e-7)


def test_the_listwise_cost_by_a_loop(costs):
    """The mean of -ln softmax of the edges in their rows, in which a tail stands for several."""
    tails = random_tails()
    scale = tails.features.std(axis=0)
    _fit_listwise(tails, 20, scale)
    ((cost, _),) = costs
    place, losses = np.array([0.5, -1.0, 2.0, 0.1]), []
    scores = tails.features / scale @ place
    for row in range(20):
        mine = tails.rows == row
        total = np.log((tails.weights[mine] * np.exp(scores[mine])).sum())
        losses += [total - score for score in scores[mine & tails.is_edge]]
    priors = np.full(4, 1e-4)
    priors[2:] += LOOP_PRIOR / scale[2:] ** 2 / len(losses)  # of loops
    assert cost(place)[0] == pytest.approx(np.mean(losses) + priors @ place**2)


@pytest.mark.parametrize(("knee", "slope"), [(-1.0, 0.4), (-3.0, 0.8), (0.0, 1.0)])
def test_a_planted_bend_comes_back(knee, slope):
    random = np.random.default_rng(0)
    logits = random.normal(-1.5, 2.0, size=200_000)
    is_edge = random.random(len(logits)) < 0.5 * expit(bent(logits, knee, slope))
    found = _fit_bend(logits, np.ones(len(logits)), is_edge, Shares(0, 0.5))
    expected = bent(logits, knee, slope)
    assert np.abs(bent(logits, *found) - expected).mean() < 0.05


@pytest.mark.parametrize(("used", "seen"), [(0, 1.0), (0, 0.4), (0.3, 0.3)])
def test_the_logistic_cost_by_a_loop(costs, used, seen):
    """An edge that is held out is left out, or else seen as one, with these probabilities."""
    tails = random_tails()
    _fit_logistic(tails, Shares(used, seen))
    ((cost, _),) = costs
    place = np.array([0.5, -1.0, 0.2, 0.1])
    p = 1 / (1 + np.exp(-tails.features / tails.features.std(axis=0) @ place))
    each = -np.log(np.where(tails.is_edge, p, 1 - (used + seen) * p) / (1 - used * p))
    expected = tails.weights @ each / (tails.is_edge.sum() + 1) + 1e-4 * place @ place
    assert cost(place)[0] == pytest.approx(expected)


@pytest.mark.parametrize("used", [0.0, 0.3])
def test_a_planted_logistic_regression_comes_back(used):
    """Although only a part of the positive ones is seen, and another part is left out."""
    random, number = np.random.default_rng(0), 40_000
    features = np.column_stack([random.normal(size=(number, 2)), np.ones(number)])
    planted = np.array([2.0, -1.0, -1.5])
    is_held_out = random.random(number) < 1 / (1 + np.exp(-features @ planted))
    which = random.random(number)
    is_edge = is_held_out & (which >= used) & (which < used + 0.4)
    kept = ~(is_held_out & (which < used))
    tails = _Tails(np.arange(number), features, np.ones(number), is_edge.astype(np.int8))
    found = _fit_logistic(tails.where(kept), Shares(used, 0.4))
    np.testing.assert_allclose(found, planted, atol=0.2)


def test_certain_scores_do_no_harm():
    """Numbers so large that 1 - p is 0, and every held-out edge is seen."""
    tails = random_tails()
    features = tails.features * 1e4
    tails = _Tails(tails.rows, features, tails.weights, tails.halves)
    found = _fit_logistic(tails, Shares(0, 1))
    assert np.isfinite(found).all()


def test_edges_are_halved_alike_in_both_directions():
    heads, tails = np.random.default_rng(0).integers(0, 20_000, (2, 5000))
    halves = _halves(heads, tails)
    assert np.array_equal(halves, _halves(tails, heads))
    assert set(halves.tolist()) == {1, 2}
    assert np.mean(halves == 1) == pytest.approx(0.5, abs=0.03)


# ---- whole fits -------------------------------------------------------------------------------


def test_the_fit_is_the_same_twice():
    graph = small_graph()
    models = [random_model("betae", graph), random_model("complex", graph)]
    weights = fit_edges(models, graph)
    assert fit_edges(models, graph) == weights
    assert list(weights.predictors) == ["betae", "complex"]


def test_without_validation_edges():
    graph = graph_of([(0, 0, 1)])
    with pytest.raises(InvalidArgument, match=r"--valid 0\.05"):
        fit_edges([random_model("complex", graph)], graph)


def test_a_model_that_knows_counts_for_more_than_one_that_does_not():
    graph = split_graph()
    knowing, guessing = Symbolic(graph, "train+valid"), random_model("complex", graph)
    weights = fit_edges([knowing, guessing], graph)
    assert weights.predictors["symbolic"] > 5
    assert abs(weights.predictors["complex"]) < 1
    probabilities = probabilities_of([knowing, guessing], weights, graph)
    heads, relations, tails = graph.written_ids["valid"].astype(np.int64).T
    rows = probabilities.rows(heads, 2 * relations)
    held_out = rows[np.arange(len(tails)), tails]
    others = rows[(rows < 1) & (rows < held_out.min())]
    assert held_out.min() > 0.5
    assert np.median(others) < 0.01


def planted_graph(num_heads=150, num_tails=20):
    """Every head has one tail by the relation `one`, and 6 by `many`; a tenth of it held out."""
    random = np.random.default_rng(0)
    edges = []
    for head in range(num_heads):
        tails = num_heads + random.permutation(num_tails)
        edges += [(head, 0, tails[0])] + [(head, 1, tail) for tail in tails[:6]]
    edges = random.permutation(edges)
    return graph_of(edges[150:], edges[:150], num_heads + num_tails, 2)


def test_who_has_one_of_one_will_not_get_another():
    """A model that knows nothing but which entities are tails; the rest is how full heads are."""
    graph = planted_graph()
    knows_tails = Symbolic(graph, "train")
    knows_tails.leads[::2, :, 150:] = 1
    weights = fit_edges([knows_tails], graph)
    probabilities = probabilities_of([knows_tails], weights, graph)
    adjacency = graph.adjacency("train")

    def expected(relation, is_full):
        heads = [
            head
            for head in range(150)
            if bool(len(adjacency.neighbours(head, relation))) == is_full
        ]
        pairs = np.array(heads), np.full(len(heads), relation)
        rows = probabilities.rows(*pairs)
        return np.where(rows < 1, rows, 0).sum(axis=1).mean()

    assert expected(relation=0, is_full=True) < 0.1  # missing edges of a head that has its one
    assert expected(relation=0, is_full=False) > 0.5
    assert 0.3 < expected(relation=2, is_full=True) < 1.2  # 0.6 of 6 are held out


def test_an_entity_is_its_own_tail_only_where_others_are():
    """Groups of 6: by relation 0 all others of a group are tails, by relation 1 oneself, too."""
    random = np.random.default_rng(0)
    groups = np.arange(120).reshape(20, 6)
    pairs = [(head, tail) for group in groups for head in group for tail in group]
    edges = [(h, r, t) for r in (0, 1) for h, t in pairs if h != t or r == 1]
    edges = random.permutation(edges)
    graph = graph_of(edges[200:], edges[:200], 120, 2)
    knows_groups = Symbolic(graph, "train")
    for head, tail in pairs:
        knows_groups.leads[:, head, tail] = 1
    probabilities = probabilities_of([knows_groups], fit_edges([knows_groups], graph), graph)
    heads, relations, tails = graph.written_ids["valid"].astype(np.int64).T
    rows = probabilities.rows(heads, 2 * relations)
    to_tail, to_itself = rows[np.arange(len(heads)), tails], rows[np.arange(len(heads)), heads]
    is_loop = heads == tails
    assert relations[is_loop].all()
    assert to_tail[is_loop].mean() > 0.5 * to_tail[~is_loop].mean() > 0.1
    assert (to_itself[relations == 0] < 0.1 * to_tail[relations == 0]).all()
