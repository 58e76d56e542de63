"""Identities: what is the same is recognised as the same, whatever its order and nesting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.answering.identities import apply_identities
from betae.exact.answers import answers
from betae.queries.ast import And, Entity, Not, Or, Project, nodes
from tests.answering.test_truth import random_chances, small_graphs, truth_of
from tests.queries.strategies import examples, graphs, trees

A, B, C, D = (Project(Entity(entity), 0) for entity in range(4))


def shuffled(query, data):
    """The same query with all operands in another order, and some complements moved."""
    operands = [shuffled(operand, data) for operand in query.operands]
    if not isinstance(query, And | Or):
        return query.with_operands(*operands)
    operands = data.draw(st.permutations(operands))
    if data.draw(st.booleans()):
        other = Or if isinstance(query, And) else And
        return Not(other(*(Not(operand) for operand in operands)))
    return query.with_operands(*operands)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (A & A, A),
        (A | A | A, A),
        (A & B & A, A & B),
        (~~A, A),
        (~(A | B), ~A & ~B),
        (~(~A & ~B), A | B),
        (A & (A | B), A),
        (A | (A & B), A),
        (A & (~A | B), A & B),
        (A | (~A & B), A | B),
        (A & (B | (C & ~A)), A & B),
        ((A & B) | (C & (B & A)), A & B),
        (A & B & C & (D | ~(B & A)), A & B & C & D),
        ((A & B)[0] & (B & A)[0], (A & B)[0]),
        (((A & B)[0] | C) & (~(B & A)[0] | D) & (A & B)[0], D & (A & B)[0]),
        ((A & ~A) | B, B),
        ((A | ~A) & B, B),
        ((A & ~A)[0] | B, B),
        (~(A & ~A)[0] & B, B),
        ((A & B) | (A & ~B), (A & B) | (A & ~B)),  # needs distribution
        ((A | B)[0] & ~A[0], (A | B)[0] & ~A[0]),  # so does this
        (B & A & ~C, B & A & ~C),  # the order stays
    ],
)
def test_identities(query, expected):
    assert apply_identities(query) == expected


NOTHING = [
    A & ~A,
    A & (B & ~A),
    (A & B) & ~(B & A),
    (A | B) & ~(B | A),
    ((A | B) & (C | D)) & ~((D | C) & (B | A)),
    (A & B)[0] & ~(B & A)[0],
    A & ~(A | B),
    (A & ~A)[0],
    (A & ~A)[0][1] & B,
]


@pytest.mark.parametrize("query", NOTHING)
def test_nothing_and_everything(query):
    assert apply_identities(query) == Entity(0) & ~Entity(0)
    assert apply_identities(~query) == Entity(0) | ~Entity(0)
    assert apply_identities((~query)[1]) == (Entity(0) | ~Entity(0))[1]


@examples(300)
@given(st.data())
def test_the_answers_stay_and_complements_move_inward(data):
    graph = data.draw(graphs())
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
    simplified = apply_identities(query)
    assert answers(graph, simplified).tolist() == answers(graph, query).tolist()
    assert apply_identities(simplified) == simplified
    for node in nodes(simplified):
        assert not (isinstance(node, Not) and isinstance(node.operand, And | Or | Not))


@examples(150)
@given(st.data(), st.integers(0, 10**6))
def test_another_order_has_the_same_truth(data, seed):
    graph = data.draw(small_graphs)
    chances = random_chances(graph, seed)
    a = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
    again = shuffled(a, data)
    once = truth_of(graph, chances, a)
    np.testing.assert_allclose(truth_of(graph, chances, again), once, atol=1e-6)
    for query in (a & again, a | again, a & again & a):
        assert np.array_equal(truth_of(graph, chances, query), once)
        assert np.array_equal(
            truth_of(graph, chances, query, best=True), truth_of(graph, chances, a, best=True)
        )


@examples(150)
@given(st.data(), st.integers(0, 10**6))
def test_a_set_and_its_complement_have_nothing_in_common(data, seed):
    graph = data.draw(small_graphs)
    chances = random_chances(graph, seed)
    a, b = (data.draw(trees(graph.num_entities, graph.num_relations, depth=3)) for _ in "ab")
    again = shuffled(a, data)
    for query in (a & ~again, ~a & b & again, Not(~a | b) & ~again, (a & ~again)[0]):
        assert not truth_of(graph, chances, query).any()
    for query in (~(a & ~again), a | ~again, b | ~a | again):
        assert truth_of(graph, chances, query).min() == 1


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_absorption(data, seed):
    graph = data.draw(graphs(entities=(2, 5), relations=(2, 2), edges=(0, 8)))
    chances = random_chances(graph, seed)
    a, b = (data.draw(trees(graph.num_entities, 2, depth=2)) for _ in "ab")
    again, b = shuffled(a, data), b[3]  # so they have nothing in common
    for query, same in (
        (a & (b | again), a),
        (a | (b & again), a),
        (a & (b | ~again), a & b),
        (a | (b & ~again), a | b),
    ):
        found, expected = (truth_of(graph, chances, each) for each in (query, same))
        np.testing.assert_allclose(found, expected, atol=1e-6)
