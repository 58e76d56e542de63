"""Truth values over the completed graph: against exact answers, and against slow definitions."""

from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.answering import truth
from betae.answering.completed import CompletedGraph
from betae.answering.edges import FULLNESS, ROW, EdgeWeights
from betae.answering.truth import best_derivations, both, evaluate, negations_inward
from betae.errors import InvalidArgument
from betae.exact.answers import answers
from betae.queries.ast import And, Entity, Not, Or, Project
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

    def rows(self, heads, relations, counts, num_entities):
        assert num_entities == self.table.shape[2]
        self.num_rows += len(heads)
        found = self.table[heads, relations]
        for row, (head, relation) in enumerate(zip(heads, relations, strict=True)):
            found[row, counts.adjacency.neighbours(head, relation)] = 1
        return found


def random_chances(graph, seed, fullness=0.0):
    """Probabilities of all sizes, some of them 0."""
    random = np.random.default_rng(seed)
    shape = (graph.num_entities, graph.num_relations, graph.num_entities)
    return Chances(random.random(shape) ** 2 * (random.random(shape) < 0.8), fullness)


def no_chances(graph):
    return Chances(np.zeros((graph.num_entities, graph.num_relations, graph.num_entities)))


def truth_of(graph, chances, query, edges="train", best=False):
    """The truth of every entity, or of its best derivation, by all sources, negligible or not."""
    completed = CompletedGraph(graph, chances, edges, MANY)
    structure, symbols = structure_of(query)
    symbols = np.array([symbols], np.int32)
    with patch.object(truth, "NEGLIGIBLE", 0.0):
        work = evaluate(completed, structure, symbols, graph.num_entities)
    return (best_derivations(completed, work) if best else work).root.values[0]


# ---- slow definitions ---------------------------------------------------------------------------


def all_edges(graph, chances, edges):
    """The probability of every edge, known ones included: (heads, relations, tails)."""
    table = chances.table.astype(np.float64)
    for head, relation, tail in edges_of(graph, edges):
        table[head, 2 * relation, tail] = table[tail, 2 * relation + 1, head] = 1
    return table


def normal(query, is_negated=False):
    """Nested tuples, in which "not" is around entities and projections only."""
    match query:
        case Not(operand):
            return normal(operand, not is_negated)
        case Entity(entity):
            form = ("entity", entity)
        case Project(operand, relation):
            form = ("project", relation, normal(operand))
        case _:
            kind = "and" if isinstance(query, And) != is_negated else "or"
            parts = [normal(operand, is_negated) for operand in query.operands]
            flat = [p for part in parts for p in (part[1:] if part[0] == kind else [part])]
            return (kind, *flat)
    return ("not", form) if is_negated else form


def all_hold(values):
    """The truth of conditions on one entity by the generator of the copula, in float64:
    g(t) = 1 - i + i / t, and g of all is the product of the g of each."""
    i = truth.INDEPENDENCE
    with np.errstate(divide="ignore"):
        g = np.prod([1 - i + i / np.asarray(value) for value in values], axis=0)
    return i / (g - 1 + i)


def slow_truth(form, table, best=False):
    """The definition, in float64."""
    match form:
        case ("entity", entity):
            return np.eye(len(table))[entity]
        case ("project", relation, operand):
            chances = slow_truth(operand, table, best)[:, None] * table[:, relation, :]
            return chances.max(axis=0) if best else 1 - np.prod(1 - chances, axis=0)
        case ("not", operand):
            return 1 - slow_truth(operand, table)
        case ("or", *parts):
            values = np.array([slow_truth(part, table, best) for part in dict.fromkeys(parts)])
            if best:
                return values.max(axis=0)
            is_all = any(("not", part) in parts for part in parts)
            return np.ones(len(table)) if is_all else 1 - np.prod(1 - values, axis=0)
        case ("and", *parts):
            values = {part: slow_truth(part, table, best) for part in parts}
            if any(("not", part) in parts for part in parts):
                return np.zeros(len(table))
            met = [value for part, value in values.items() if part[0] != "not"]
            absent = [value for part, value in values.items() if part[0] == "not"]
            return np.prod([all_hold(met) if met else np.ones(len(table)), *absent], axis=0)
    raise AssertionError(form)


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
            distinct = dict.fromkeys(query.operands)
            parts = [list(derivations(operand, entity, table)) for operand in distinct]
            yield from map(all_hold, product(*parts))


def without_complements(query):
    operands = [without_complements(operand) for operand in query.operands]
    return operands[0] if isinstance(query, Not) else query.with_operands(*operands)


# ---- certain edges ------------------------------------------------------------------------------


@examples(300)
@given(st.data())
def test_without_missing_edges_the_truth_is_the_exact_answers(data):
    """Whatever the number of sources: the known edges of all are followed."""
    graph, edges = data.draw(graphs()), data.draw(edge_choices)
    completed = CompletedGraph(graph, no_chances(graph), edges)
    num_sources = data.draw(st.integers(1, 12))
    queries = trees(graph.num_entities, graph.num_relations, depth=4)
    for query in data.draw(st.lists(queries, min_size=8, max_size=12)):
        structure, symbols = structure_of(query)
        found = evaluate(completed, structure, np.array([symbols], np.int32), num_sources)
        values = found.root.values[0]
        assert np.array_equal(best_derivations(completed, found).root.values[0], values)
        assert set(values.tolist()) <= {0.0, 1.0}
        assert np.flatnonzero(values).tolist() == answers(graph, query, edges).tolist()


@examples(200)
@given(st.data())
def test_moving_complements_inward_changes_no_answers(data):
    graph = data.draw(graphs())
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
    moved = negations_inward(query)
    assert answers(graph, moved).tolist() == answers(graph, query).tolist()
    assert normal(moved) == normal(query)
    waiting = [moved]
    while waiting:
        node = waiting.pop()
        assert not (isinstance(node, Not) and isinstance(node.operand, And | Or | Not))
        waiting.extend(node.operands)


# ---- uncertain edges ----------------------------------------------------------------------------


@pytest.mark.parametrize("best", [False, True])
@examples(300)
@given(st.data(), st.integers(0, 10**6))
def test_the_truth_is_as_defined(best, data, seed):
    graph, edges = data.draw(small_graphs), data.draw(edge_choices)
    chances = random_chances(graph, seed, fullness=-1.0)
    for _ in range(3):
        query = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
        found = truth_of(graph, chances, query, edges, best)
        expected = slow_truth(normal(query), all_edges(graph, chances, edges), best)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_an_answer_is_at_least_as_probable_as_its_best_derivation(data, seed):
    """With few sources, too, and with complements."""
    graph = data.draw(small_graphs)
    completed = CompletedGraph(graph, random_chances(graph, seed), "train")
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
    structure, symbols = structure_of(query)
    work = evaluate(
        completed, structure, np.array([symbols], np.int32), data.draw(st.integers(1, 5))
    )
    best = best_derivations(completed, work).root.values
    assert (best <= work.root.values + 1e-6).all()


def test_small_probabilities_are_as_exact_as_large_ones():
    """Many sources, each with a chance of a millionth: added up, and not rounded away."""
    graph = small_graph()
    chances = Chances(np.full((30, graph.num_relations, 30), 1e-6))
    query = (Entity(1)[0] | Entity(2)[2] | Entity(3)[4])[1]
    found = truth_of(graph, chances, query, "train")
    expected = slow_truth(normal(query), all_edges(graph, chances, "train"))
    assert 0 < found.min() < 1e-5
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@examples(150)
@given(st.data(), st.integers(0, 10**6))
def test_the_best_derivation_is_the_best_of_all_assignments(data, seed):
    graph = data.draw(graphs(entities=(2, 3), relations=(1, 2), edges=(0, 5)))
    chances = random_chances(graph, seed)
    query = without_complements(data.draw(trees(graph.num_entities, graph.num_relations, depth=3)))
    table = all_edges(graph, chances, "train")
    expected = [max(derivations(query, entity, table)) for entity in range(graph.num_entities)]
    found = truth_of(graph, chances, query, best=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)


@examples(150)
@given(st.data(), st.integers(0, 10**6))
def test_a_set_and_its_complement_have_nothing_in_common(data, seed):
    graph = data.draw(small_graphs)
    chances = random_chances(graph, seed)
    inner = data.draw(trees(graph.num_entities, graph.num_relations, depth=2))
    a = Project(inner, 0)
    b = data.draw(trees(graph.num_entities, graph.num_relations, depth=2))
    for query in (a & ~a, ~a & b & a, ~~a & ~a, Not(~a | b) & ~a, (a & ~a)[0]):
        assert not truth_of(graph, chances, query).any()
    for query in (~(a & ~a), a | ~a, b | ~a | a):
        assert truth_of(graph, chances, query).min() == 1


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_what_is_said_twice_counts_once(data, seed):
    graph = data.draw(small_graphs)
    chances = random_chances(graph, seed)
    a, b = (data.draw(trees(graph.num_entities, graph.num_relations, depth=2)) for _ in "ab")
    for best in (False, True):
        once = truth_of(graph, chances, a, best=best)
        for query in (a & a, a | a, a & a & a):
            assert np.array_equal(truth_of(graph, chances, query, best=best), once)
        assert np.array_equal(
            truth_of(graph, chances, a & b & a, best=best),
            truth_of(graph, chances, a & b, best=best),
        )


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


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_what_is_left_out_is_no_truer_than_the_bound(data, seed):
    """Few sources tried, and only those that are not negligible."""
    graph = data.draw(graphs(entities=(4, 8), relations=(1, 2)))
    chances = random_chances(graph, seed, fullness=-1.0)
    query = without_complements(data.draw(trees(graph.num_entities, graph.num_relations, depth=4)))
    (structure, symbols), num_sources = structure_of(query), data.draw(st.integers(1, 8))
    completed = CompletedGraph(graph, chances, "train")
    with patch.object(truth, "NEGLIGIBLE", 0.3):
        few = evaluate(completed, structure, np.array([symbols], np.int32), num_sources)
    assert (few.root.values[0] <= truth_of(graph, chances, query) + 1e-6).all()
    best = best_derivations(completed, few).root
    whole = truth_of(graph, chances, query, best=True)
    assert (whole <= np.maximum(best.values[0], few.root.bound[0])).all()


def test_the_sources_of_most_promise_are_tried():
    """Of heads of equal truth, those that lack the relation: a full one will not get more."""
    graph = small_graph()
    chances = random_chances(graph, 0, fullness=-2.0)
    completed = CompletedGraph(graph, chances, "train")
    query = (Entity(1)[0] | Entity(2)[2] | Entity(3)[4])[1]
    structure, symbols = structure_of(query)
    work = evaluate(completed, structure, np.array([symbols], np.int32), num_sources=5)
    before = work.nodes[work.structure.operand].values[0]
    worth = before * completed.promise(1)
    has_any = np.array([len(completed.adjacency.neighbours(head, 1)) > 0 for head in range(30)])
    assert (completed.promise(1)[~has_any] == 1).all()
    assert (completed.promise(1)[has_any] < 1).all()
    (tried,) = work.sources[work.structure]
    assert set(tried.tolist()) == set(np.argsort(-worth)[:5].tolist())


# ---- many queries, and the cache ----------------------------------------------------------------


def many(data, structure, graph, number):
    limits = limits_of(structure, graph.num_entities, graph.num_relations).tolist()
    row = st.tuples(*(st.integers(0, limit - 1) for limit in limits))
    rows = data.draw(st.lists(row, min_size=number, max_size=number))
    return np.array(rows, dtype=np.int32)


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_many_queries_are_evaluated_as_each_alone_and_with_any_cache(data, seed):
    graph = data.draw(small_graphs)
    chances = random_chances(graph, seed)
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=3))
    structure, _ = structure_of(query)
    symbols, num_sources = many(data, structure, graph, 7), data.draw(st.integers(1, 5))
    row_bytes = 4 * graph.num_entities
    for cache_bytes in (0, row_bytes, 2 * row_bytes, 3 * row_bytes, MANY):
        completed = CompletedGraph(graph, chances, "train", cache_bytes)
        found = evaluate(completed, structure, symbols, num_sources).root
        alone = CompletedGraph(graph, chances, "train")
        for row in range(len(symbols)):
            one = evaluate(alone, structure, symbols[row : row + 1], num_sources).root
            assert np.array_equal(one.values[0], found.values[row])
            assert one.bound[0] == found.bound[row]


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_structure_on_threads_and_with_a_cache_that_overflows(name):
    graph = small_graph()
    chances = random_chances(graph, 0)
    structure = STRUCTURES[name]
    limits = limits_of(structure, graph.num_entities, graph.num_relations)
    symbols = np.random.default_rng(1).integers(limits, size=(200, len(limits))).astype(np.int32)
    little, plenty = (
        CompletedGraph(graph, chances, "train", 4 * 30 * rows) for rows in (10, 10**4)
    )
    with patch.object(truth, "NEGLIGIBLE", 0.0):
        one, two = (evaluate(each, structure, symbols, 30).root.values for each in (little, plenty))
    assert np.array_equal(one, two)
    table = all_edges(graph, chances, "train")
    for row in range(0, 200, 20):
        expected = slow_truth(normal(fill(structure, symbols[row].tolist())), table)
        np.testing.assert_allclose(two[row], expected, rtol=1e-4, atol=1e-4)


def test_a_row_is_made_once_while_there_is_room():
    graph = small_graph()
    chances = random_chances(graph, 0)
    completed = CompletedGraph(graph, chances, "train", cache_bytes=4 * 30 * 3)
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
    completed = CompletedGraph(graph, chances, "train", cache_bytes)
    heads = np.array([3, 0, 8, 29, 11])
    expected = all_edges(graph, chances, "train")[heads, 4, 7]
    np.testing.assert_allclose(completed.edges_to(7, heads, 4), expected, rtol=1e-6)
    assert len(completed.edges_to(7, heads[:0], 4)) == 0


# ---- odd input ----------------------------------------------------------------------------------


def test_no_queries_and_names_fixed_in_the_structure():
    graph = small_graph()
    completed = CompletedGraph(graph, random_chances(graph, 0), "train")
    none = np.empty((0, 5), dtype=np.int32)
    assert evaluate(completed, STRUCTURES["ip"], none).root.values.shape == (0, 30)
    symbols = np.array([[3, 2], [4, 0]], dtype=np.int32)
    found = evaluate(completed, Entity(5)[1] & ~Entity("_")["_"], symbols).root.values
    for row, (entity, relation) in enumerate(symbols.tolist()):
        query = Entity(5)[1] & ~Entity(entity)[relation]
        assert np.array_equal(found[row], truth_of(graph, completed.probabilities, query))


def test_ids_are_checked_before_compiled_loops_use_them():
    graph = small_graph()
    completed = CompletedGraph(graph, random_chances(graph, 0), "train")
    for bad in ([30, 0], [-1, 0], [0, -1]):
        with pytest.raises(InvalidArgument, match="Row 0 of the symbols has the"):
            evaluate(completed, STRUCTURES["1p"], np.array([bad], dtype=np.int32))
