"""The tree: what its nodes accept, and what Python must not take it for."""

import copy
import pickle

import numpy as np
import pytest

from betae.errors import InvalidArgument, UnsupportedQuery
from betae.queries.ast import MAX_DEPTH, And, Entity, Not, Or, Project, nodes

a, b = Entity("a"), Entity("b")["r"]


@pytest.mark.parametrize("query", [a, b, ~a, a & b, a | b], ids=str)
def test_a_query_is_no_sequence_and_no_container(query):
    with pytest.raises(TypeError, match="not iterable"):
        list(query)
    with pytest.raises(TypeError, match="not a container"):
        _ = a in query
    with pytest.raises(TypeError):
        len(query)


@pytest.mark.parametrize("query", [a, b, ~a, a & b, a | b], ids=str)
def test_a_query_is_neither_true_nor_false(query):
    for use in (bool, lambda q: not q, lambda q: q and a, lambda q: q or a):
        with pytest.raises(TypeError, match=r"use & \| ~"):
            use(query)


NO_NAMES = [None, True, np.True_, 1.5, np.float32(2), -1, np.int64(-1), 2**31, b"a", ("a",), a]


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_what_is_no_name(name):
    with pytest.raises(InvalidArgument) as caught:
        Entity(name)
    assert str(caught.value).startswith(f"{name!r} is not an entity: ")
    for make in (lambda: Project(a, name), lambda: a[name]):
        with pytest.raises(InvalidArgument) as caught:
            make()
        assert str(caught.value).startswith(f"{name!r} is not a relation: ")


@pytest.mark.parametrize("value", ["x", None, 3, Entity, [a]], ids=repr)
def test_what_is_no_query(value):
    makers = {
        "And": [lambda: a & value, lambda: And(a, value), lambda: And(value, a)],
        "Or": [lambda: a | value, lambda: Or(a, a, value)],
        "Not": [lambda: Not(value)],
        "Project": [lambda: Project(value, "r")],
    }
    for kind, several in makers.items():
        for make in several:
            with pytest.raises(InvalidArgument) as caught:
                make()
            assert str(caught.value).startswith(f"{kind} takes queries, not {value!r}")


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, int])
def test_integers_of_numpy_are_ids(kind):
    query = Entity(kind(3))[kind(5)]
    assert query == Entity(3)[5]
    assert hash(query) == hash(Entity(3)[5])
    assert repr(query) == repr(Entity(3)[5])
    assert [type(query.relation), type(query.operand.name)] == [int, int]


def test_strings_of_numpy_are_names():
    assert type(Entity(np.str_("a")).name) is str


def test_depth_counts_operators():
    assert [query.depth for query in (a, b, ~b, a & ~b, (a & b) & (b & ~b))] == [0, 1, 2, 3, 3]


def test_copies_are_equal_and_as_deep():
    query = (a & ~b)["s"] | b
    for again in (copy.copy(query), copy.deepcopy(query), pickle.loads(pickle.dumps(query))):
        assert again == query
        assert hash(again) == hash(query)
        assert again.depth == query.depth


def test_a_tree_cannot_be_too_deep():
    query = a
    for _ in range(MAX_DEPTH):
        query = query["r"]
    assert query.depth == MAX_DEPTH
    wider = And(b, query.operand)  # a parallel branch adds nothing
    assert wider.depth == MAX_DEPTH
    for deeper in (
        lambda: query["r"],
        lambda: ~query,
        lambda: query & a,
        lambda: a | query,
    ):
        with pytest.raises(UnsupportedQuery, match=f"more than {MAX_DEPTH} operators deep"):
            deeper()


def test_nodes_come_after_their_operands():
    query = (Entity(1)[2] & ~Entity(3)) | Entity(4)
    one, two, three, four = Entity(1), Entity(1)[2], Entity(3), Entity(4)
    assert list(nodes(query)) == [one, two, three, ~three, two & ~three, four, query]
