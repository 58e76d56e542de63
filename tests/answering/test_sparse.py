"""Sparse rows by rules alone have the probabilities of dense ones, and so have questions."""

import numpy as np
import pytest

from betae.answering.completed import CACHE_BYTES, CompletedGraph
from betae.answering.edge_fit import fit_edges
from betae.answering.edges import (
    ROW,
    RULES,
    TAIL,
    Counts,
    EdgePredictors,
    EdgeProbabilities,
    EdgeWeights,
)
from betae.answering.sparse import RowCache, SparseProbabilities
from betae.answering.truth import best_derivations, truth_trees
from betae.queries.structures import STRUCTURES, fill, limits_of
from betae.rules.mining import mine_rules
from tests.training.helpers import small_graph


def random_weights(seed):
    """Weights of all signs, of some relations their own."""
    random = np.random.default_rng(seed)

    def draw(names):
        return dict(zip(names, random.normal(0, 1, len(names)).tolist(), strict=True))

    own = {str(r): random.normal(0, 1, len(RULES) + len(TAIL)).tolist() for r in (0, 3)}
    rates = {str(r): (float(random.uniform(0.5, 2)), float(random.normal())) for r in (1, 3)}
    row = {**draw(ROW), "score": 1.0, "1": -1.0}
    relations = {"by_relation": own, "rates": rates}
    return EdgeWeights({}, draw(TAIL), row, rules=draw(RULES), bend=(-2.0, 0.6), **relations)


@pytest.fixture(params=range(4))
def case(request):
    """A random graph with loops, completed densely and sparsely by its rules."""
    graph = small_graph(request.param, num_entities=30, num_edges=90)
    rules = mine_rules(graph.adjacency("train"), graph.num_relations)
    weights = random_weights(request.param)
    predictors = EdgePredictors((), weights, log_odds=-0.3, rules=rules)
    counts = Counts(graph.adjacency("all"), fitted=graph.adjacency("train"))
    return (
        graph,
        EdgeProbabilities(predictors, counts),
        SparseProbabilities(predictors, counts),
    )


def all_pairs(graph):
    return np.indices((graph.num_entities, graph.num_relations)).reshape(2, -1)


def test_a_sparse_row_has_the_probabilities_of_a_dense_one(case):
    graph, dense, sparse = case
    heads, relations = all_pairs(graph)
    expected = dense.rows(heads, relations)
    num_listed = 0
    for row, relation, found in zip(
        expected, relations.tolist(), sparse.sparse_rows(heads, relations), strict=True
    ):
        np.testing.assert_allclose(sparse.dense(found, relation), row, rtol=2e-5, atol=1e-7)
        assert (np.diff(found.tails) > 0).all()
        num_listed += len(found.tails)
    assert num_listed < 0.9 * expected.size  # some are left to their class


def test_the_log_odds_of_one_edge(case):
    graph, dense, sparse = case
    heads, relations = all_pairs(graph)
    expected = dense.log_odds(heads, relations)
    for i in range(0, len(heads), 7):
        for tail in (0, int(heads[i]), 29):
            edge = int(heads[i]), int(relations[i]), tail
            assert sparse.log_odds_of(*edge) == pytest.approx(expected[i, tail], abs=1e-4)
            assert dense.log_odds_of(*edge) == pytest.approx(expected[i, tail], abs=1e-4)


@pytest.mark.parametrize("above", [0.0, 0.1, 0.5, 0.9])
def test_the_missing_edges_above_a_probability(case, above):
    graph, dense, sparse = case
    pairs = all_pairs(graph)
    one, other = dense.edges_above(*pairs, above), sparse.edges_above(*pairs, above)
    close = np.abs(dense.rows(*pairs) - above) < 1e-5  # rounding decides
    kept = [~close[found[0], found[1]] for found in (one, other)]
    for expected, values in zip(one, other, strict=True):
        np.testing.assert_allclose(values[kept[1]], expected[kept[0]], rtol=2e-5)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("cache_bytes", [0, CACHE_BYTES])
def test_questions_have_the_truth_of_dense_rows(case, name, cache_bytes):
    graph, dense, sparse = case
    structure = STRUCTURES[name]
    random = np.random.default_rng(0)
    limits = limits_of(structure, graph.num_entities, graph.num_relations)
    queries = [fill(structure, random.integers(limits).tolist()) for _ in range(10)]
    by_dense = CompletedGraph(graph, dense)
    by_sparse = CompletedGraph(graph, sparse, cache_bytes)
    number = graph.num_entities  # of sources: rounding must not decide which
    trees = zip(
        truth_trees(by_dense, queries, number),
        truth_trees(by_sparse, queries, number),
        strict=True,
    )
    for (places, expected), (found_places, found) in trees:
        assert places.tolist() == found_places.tolist()
        np.testing.assert_allclose(found.root, expected.root, rtol=1e-4, atol=1e-6)
        best = best_derivations(by_dense, expected).root
        np.testing.assert_allclose(
            best_derivations(by_sparse, found).root, best, rtol=1e-4, atol=1e-6
        )
    assert by_sparse.sparse.num_bytes <= cache_bytes


def test_edges_to_one_tail(case):
    graph, dense, sparse = case
    heads = np.array([3, 0, 8, 29, 11])
    for tail in (3, 7):
        expected = CompletedGraph(graph, dense).probabilities_to(tail, heads, 4)
        found = CompletedGraph(graph, sparse).probabilities_to(tail, heads, 4)
        np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_the_cache_keeps_the_rows_used_last(case):
    _, _, sparse = case
    heads, relations = np.arange(10), np.zeros(10, dtype=np.int64)
    all_rows = sparse.sparse_rows(heads, relations)
    cache = RowCache(sparse, sum(row.num_bytes for row in all_rows[-3:]))
    for head in range(10):
        cache.rows(heads[head : head + 1], relations[:1])
    (last,) = cache.rows(heads[-1:], relations[:1])
    assert last is cache.rows(heads[-1:], relations[:1])[0]
    (first,) = cache.rows(heads[:1], relations[:1])
    assert first.tails.tolist() == all_rows[0].tails.tolist()
    assert cache.num_bytes <= cache.max_bytes


def test_a_relation_without_rules_has_known_edges_only(case):
    graph, _, sparse = case
    added = graph.extended([("e0", "new", "e1")])
    relation = added.relation_id("new")
    found = SparseProbabilities(sparse.predictors, Counts(added.adjacency("all")))
    (row,) = found.sparse_rows(np.array([0]), np.array([relation]))
    values = found.dense(row, relation)
    assert np.flatnonzero(values).tolist() == [1]
    assert values[1] == 1


def test_the_fit_is_that_of_dense_rows(monkeypatch):
    """On a graph whose rows are used whole, up to the sample of the others."""
    graph = small_graph(0, num_entities=40, num_edges=240)
    rules = mine_rules(graph.adjacency("train"), graph.num_relations)
    found = fit_edges([], graph, rules=rules)
    monkeypatch.setattr("betae.answering.edge_fit.edge_probabilities", EdgeProbabilities)
    expected = fit_edges([], graph, rules=rules)
    assert found.rules == expected.rules  # the order needs no scores of whole rows
    for name in ROW:
        assert found.row[name] == pytest.approx(expected.row[name], rel=0.2, abs=0.2)
