"""Truth values over the completed graph: against exact answers, and against slow definitions."""

from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.answering import truth
from betae.answering.completed import CACHE_BYTES, CompletedGraph
from betae.answering.edges import FULLNESS, ROW, Counts, EdgeWeights
from betae.answering.identities import apply_identities
from betae.answering.truth import best_derivations, both, truth_trees
from betae.errors import InvalidArgument
from betae.exact.answers import answers
from betae.queries.ast import And, Condition, Entity, Not, Or, Project
from betae.queries.structures import STRUCTURES, fill, limits_of, structure_of
from tests.queries.oracle import edges_of
from tests.queries.strategies import edge_choices, examples, graphs, trees
from tests.training.helpers import small_graph

MANY = 10**9  # bytes of a cache
small_graphs = graphs(entities=(2, 5), relations=(1, 2), edges=(0, 8))


class Chances:
    """EdgeProbabilities from a table, (heads, relations, tails), and how often it was asked."""

    def __init__(self, table, fullness=0.0):
        self.table, self.num_rows = np.asarray(table, dtype=np.float32), 0
        self.weights = EdgeWeights(
            {}, {}, dict.fromkeys(ROW, 0.0) | dict.fromkeys(FULLNESS, fullness)
        )

    def rows(self, heads, relations):
        self.num_rows += len(heads)
        found = self.table[heads, relations]
        for row, (head, relation) in enumerate(zip(heads, relations, strict=True)):
            found[row, self.counts.adjacency.neighbours(head, relation)] = 1
        return found


def random_chances(graph, seed, fullness=0.0):
    """Probabilities of all sizes, some of them 0."""
    random = np.random.default_rng(seed)
    shape = (graph.num_entities, graph.num_relations, graph.num_entities)
    return Chances(random.random(shape) ** 2 * (random.random(shape) < 0.8), fullness)


def no_chances(graph):
    return Chances(np.zeros((graph.num_entities, graph.num_relations, graph.num_entities)))


def completed_by(graph, chances, edges="train", cache_bytes=CACHE_BYTES):
    chances.counts = Counts(graph.adjacency(edges))
    return CompletedGraph(graph, chances, cache_bytes)


def truth_of(graph, chances, query, edges="train", best=False):
    """The truth of every entity, or of its best derivation, by all sources, negligible or not."""
    completed = completed_by(graph, chances, edges, MANY)
    with patch.object(truth, "NEGLIGIBLE", 0.0):
        tree = tree_of(completed, query, graph.num_entities)
    return (best_derivations(completed, tree) if best else tree).root[0]


def values_of(completed, queries, num_sources):
    """The truth values of many queries, (num_queries, num_entities)."""
    values = np.full((len(queries), completed.num_entities), np.nan)
    for positions, tree in truth_trees(completed, queries, num_sources):
        values[positions] = tree.root
    return values


def tree_of(completed, query, num_sources=truth.SOURCES):
    """The truth values of one query."""
    ((_, tree),) = truth_trees(completed, [query], num_sources)
    return tree


# ---- slow definitions ---------------------------------------------------------------------------


def all_edges(graph, chances, edges):
    """The probability of every edge, known ones included: (heads, relations, tails)."""
    table = chances.table.astype(np.float64)
    for head, relation, tail in edges_of(graph, edges):
        table[head, 2 * relation, tail] = table[tail, 2 * relation + 1, head] = 1
    return table


def all_hold(values):
    """The truth of conditions on one entity by the generator of the copula, in float64:
    g(t) = 1 - i + i / t, and g of all is the product of the g of each."""
    i = truth.INDEPENDENCE
    with np.errstate(divide="ignore"):
        g = np.prod([1 - i + i / np.asarray(value) for value in values], axis=0)
    return i / (g - 1 + i)


def by_sources(chances):
    """The truth by the chances of sources, (sources, entities): the best, and of what is left at
    most a share by the noisy-or of the others."""
    ordered = np.sort(chances, axis=0)
    best, none = ordered[-1], np.prod(1 - ordered[:-1], axis=0)
    with np.errstate(divide="ignore"):
        others = truth.OTHERS * (1 - np.exp(np.log(none) / truth.OTHERS))
    return best + (1 - best) * others


def slow_truth(query, table, best=False):
    """The definition, in float64, of a query to which the identities were applied."""
    match query:
        case Entity(entity):
            return np.eye(len(table))[entity]
        case Condition():
            return np.isin(np.arange(len(table)), query.members).astype(float)
        case Project(operand, relation):
            chances = slow_truth(operand, table, best)[:, None] * table[:, relation, :]
            return chances.max(axis=0) if best else by_sources(chances)
        case Not(operand):
            return 1 - slow_truth(operand, table)
    values = {part: slow_truth(part, table, best) for part in query.operands}
    if isinstance(query, Or):
        every = np.array(list(values.values()))
        return every.max(axis=0) if best else 1 - np.prod(1 - every, axis=0)
    met = [value for part, value in values.items() if not isinstance(part, Not | Condition)]
    factors = [value for part, value in values.items() if isinstance(part, Not | Condition)]
    return np.prod([all_hold(met) if met else np.ones(len(table)), *factors], axis=0)


def derivations(query, entity, table):
    """The truth of every derivation by its edges: an entity for every variable, one branch of
    every union."""
    match query:
        case Entity(name):
            yield float(name == entity)
        case Project(operand, relation):
            for head in range(len(table)):
                for before in derivations(operand, head, table):
                    yield before * table[head, relation, entity]
        case Or():
            for operand in query.operands:
                yield from derivations(operand, entity, table)
        case And():
            parts = [list(derivations(operand, entity, table)) for operand in query.operands]
            yield from map(all_hold, product(*parts))


def without_complements(query):
    operands = [without_complements(operand) for operand in query.operands]
    return operands[0] if isinstance(query, Not) else query.with_operands(*operands)


# ---- certain edges ------------------------------------------------------------------------------


@pytest.mark.slow
@examples(300)
@given(st.data())
def test_without_missing_edges_the_truth_is_the_exact_answers(data):
    """Whatever the number of sources: the known edges of all are followed."""
    graph, edges = data.draw(graphs()), data.draw(edge_choices)
    completed = completed_by(graph, no_chances(graph), edges)
    num_sources = data.draw(st.integers(1, 12))
    queries = trees(graph.num_entities, graph.num_relations, depth=4)
    for query in data.draw(st.lists(queries, min_size=8, max_size=12)):
        found = tree_of(completed, query, num_sources)
        values = found.root[0]
        assert np.array_equal(best_derivations(completed, found).root[0], values)
        assert set(values.tolist()) <= {0.0, 1.0}
        assert np.flatnonzero(values).tolist() == answers(graph, query, edges).tolist()


# ---- uncertain edges ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("best", [False, True])
@examples(300)
@given(st.data(), st.integers(0, 10**6))
def test_the_truth_is_as_defined(best, data, seed):
    graph, edges = data.draw(small_graphs), data.draw(edge_choices)
    chances = random_chances(graph, seed, fullness=-1.0)
    for _ in range(3):
        query = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
        found = truth_of(graph, chances, query, edges, best)
        expected = slow_truth(apply_identities(query), all_edges(graph, chances, edges), best)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_an_answer_is_at_least_as_probable_as_its_best_derivation(data, seed):
    """With few sources, too, and with complements."""
    graph = data.draw(small_graphs)
    completed = completed_by(graph, random_chances(graph, seed))
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
    work = tree_of(completed, query, data.draw(st.integers(1, 5)))
    best = best_derivations(completed, work).root
    assert (best <= work.root + 1e-6).all()


def test_small_probabilities_are_as_exact_as_large_ones():
    """Many sources, each with a chance of a millionth: added up, and not rounded away."""
    graph = small_graph()
    chances = Chances(np.full((30, graph.num_relations, 30), 1e-6))
    query = (Entity(1)[0] | Entity(2)[2] | Entity(3)[4])[1]
    found = truth_of(graph, chances, query, "train")
    expected = slow_truth(apply_identities(query), all_edges(graph, chances, "train"))
    assert 0 < found.min() < 1e-5
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@examples(150)
@given(st.data(), st.integers(0, 10**6))
def test_the_best_derivation_is_the_best_of_all_assignments(data, seed):
    graph = data.draw(graphs(entities=(2, 3), relations=(1, 2), edges=(0, 5)))
    chances = random_chances(graph, seed)
    query = without_complements(data.draw(trees(graph.num_entities, graph.num_relations, depth=3)))
    table = all_edges(graph, chances, "train")
    same = apply_identities(query)
    expected = [max(derivations(same, entity, table)) for entity in range(graph.num_entities)]
    found = truth_of(graph, chances, query, best=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)


def test_conditions_on_an_entity_tend_to_hold_together():
    chances = np.array([0, 1e-6, 0.01, 0.5, 0.999, 1])
    one, other = np.meshgrid(chances, chances)
    found = both(one, other)
    assert np.array_equal(found, found.T)
    assert (found >= one * other - 1e-15).all()
    assert (found <= np.minimum(one, other) + 1e-15).all()
    np.testing.assert_allclose(both(chances, 1.0), chances, rtol=1e-12)
    np.testing.assert_allclose(both(both(0.2, 0.3), 0.4), both(0.2, both(0.3, 0.4)), rtol=1e-12)
    assert both(0.01, 0.01) > 5e-4  # five times as likely as independent conditions
    with patch.object(truth, "INDEPENDENCE", 1.0):
        np.testing.assert_allclose(both(one, other), one * other)


@pytest.mark.slow
@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_what_is_left_out_is_no_truer_than_its_source(data, seed):
    """Few sources tried, and only those that are not negligible."""
    graph = data.draw(graphs(entities=(4, 8), relations=(1, 2)))
    chances = random_chances(graph, seed, fullness=-1.0)
    query = without_complements(data.draw(trees(graph.num_entities, graph.num_relations, depth=4)))
    completed = completed_by(graph, chances)
    with patch.object(truth, "NEGLIGIBLE", 0.3):
        few = tree_of(completed, query, data.draw(st.integers(1, 8)))
    assert (few.root[0] <= truth_of(graph, chances, query) + 1e-6).all()
    best = best_derivations(completed, few)
    left_out = [0.0]
    for node, sources in few.sources.items():
        if not isinstance(node.operand, Entity):
            left_out.append(
                np.delete(best.nodes[node.operand][0], sources[sources >= 0]).max(initial=0)
            )
    whole = truth_of(graph, chances, query, best=True)
    assert (whole <= np.maximum(best.root[0], max(left_out)) + 1e-6).all()


def test_the_sources_of_most_promise_are_tried():
    """Of heads of equal truth, those that lack the relation: a full one will not get more."""
    graph = small_graph()
    chances = random_chances(graph, 0, fullness=-2.0)
    completed = completed_by(graph, chances)
    query = (Entity(1)[0] | Entity(2)[2] | Entity(3)[4])[1]
    work = tree_of(completed, query, num_sources=5)
    before = work.nodes[work.structure.operand][0]
    promise = completed.promise(np.arange(graph.num_entities), 1)
    worth = before * promise
    has_any = np.array([len(completed.adjacency.neighbours(head, 1)) > 0 for head in range(30)])
    assert (promise[~has_any] == 1).all()
    assert (promise[has_any] < 1).all()
    (tried,) = work.sources[work.structure]
    assert set(tried.tolist()) == set(np.argsort(-worth)[:5].tolist())


# ---- many queries, and the cache ----------------------------------------------------------------


def many(data, structure, graph, number):
    limits = limits_of(structure, graph.num_entities, graph.num_relations).tolist()
    row = st.tuples(*(st.integers(0, limit - 1) for limit in limits))
    rows = data.draw(st.lists(row, min_size=number, max_size=number))
    return [fill(structure, row) for row in rows]


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_many_queries_are_evaluated_as_each_alone_and_with_any_cache(data, seed):
    graph = data.draw(small_graphs)
    chances = random_chances(graph, seed)
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=3))
    structure, _ = structure_of(query)
    queries, num_sources = many(data, structure, graph, 7), data.draw(st.integers(1, 5))
    row_bytes = 4 * graph.num_entities
    for cache_bytes in (0, row_bytes, 2 * row_bytes, 3 * row_bytes, MANY):
        completed = completed_by(graph, chances, "train", cache_bytes)
        alone = completed_by(graph, chances)
        for positions, tree in truth_trees(completed, queries, num_sources):
            for row, position in enumerate(positions.tolist()):
                one = tree_of(alone, queries[position], num_sources).root
                assert np.array_equal(one[0], tree.root[row])


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
def test_every_structure_on_threads_and_with_a_cache_that_overflows(name):
    graph = small_graph()
    chances = random_chances(graph, 0)
    structure = STRUCTURES[name]
    limits = limits_of(structure, graph.num_entities, graph.num_relations)
    symbols = np.random.default_rng(1).integers(limits, size=(200, len(limits)))
    queries = [fill(structure, row) for row in symbols.tolist()]
    little, plenty = (completed_by(graph, chances, "train", 4 * 30 * rows) for rows in (10, 10**4))
    with patch.object(truth, "NEGLIGIBLE", 0.0):
        one, two = (values_of(each, queries, 30) for each in (little, plenty))
    assert np.array_equal(one, two)
    table = all_edges(graph, chances, "train")
    for row in range(0, 200, 20):
        expected = slow_truth(apply_identities(queries[row]), table)
        np.testing.assert_allclose(two[row], expected, rtol=1e-4, atol=1e-4)


def test_a_row_is_made_once_while_there_is_room():
    graph = small_graph()
    chances = random_chances(graph, 0)
    completed = completed_by(graph, chances, "train", cache_bytes=4 * 30 * 3)
    heads, relation = np.array([4, 7, 9]), np.array([1, 1, 0])

    def rows_of(chosen):
        rows, slots = completed.rows(heads[chosen], relation[chosen])
        for place, slot in zip(chosen, slots.tolist(), strict=True):
            known = completed.adjacency.neighbours(heads[place], relation[place])
            expected = chances.table[heads[place], relation[place]].copy()
            expected[known] = 1
            assert np.array_equal(rows[slot], expected)
        return chances.num_rows

    assert [rows_of([0, 1]), rows_of([1, 0]), rows_of([2, 0, 1])] == [2, 2, 3]
    completed.rows(np.array([11]), np.array([5]))  # takes the place of the one used longest ago
    assert chances.num_rows == 4
    assert [rows_of([0]), rows_of([1]), rows_of([2])] == [4, 4, 5]


@pytest.mark.parametrize("cache_bytes", [0, 4 * 30 * 3, MANY])
def test_edges_to_one_tail(cache_bytes):
    graph = small_graph()
    chances = random_chances(graph, 0)
    completed = completed_by(graph, chances, "train", cache_bytes)
    heads = np.array([3, 0, 8, 29, 11])
    expected = all_edges(graph, chances, "train")[heads, 4, 7]
    np.testing.assert_allclose(completed.probabilities_to(7, heads, 4), expected, rtol=1e-6)
    assert len(completed.probabilities_to(7, heads[:0], 4)) == 0


# ---- odd input ----------------------------------------------------------------------------------


def test_ids_are_checked_before_compiled_loops_use_them():
    graph = small_graph()
    completed = completed_by(graph, random_chances(graph, 0))
    assert list(truth_trees(completed, [])) == []
    with pytest.raises(InvalidArgument, match="Row 0 of the symbols has the"):
        tree_of(completed, Entity(30)[0])
