"""Packed triples, adjacency and ragged tables."""

from collections import defaultdict
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.errors import InvalidArgument
from betae.graph.edges import EDGES, SPLITS, Adjacency, Packing, Ragged, distinct
from betae.graph.triples import Triples

NUM_ENTITIES, NUM_RELATIONS = 7, 3


@st.composite
def random_splits(draw):
    """Disjoint sorted splits of a random graph; valid and test may be empty."""
    triple = st.tuples(
        st.integers(0, NUM_ENTITIES - 1),
        st.integers(0, NUM_RELATIONS - 1),
        st.integers(0, NUM_ENTITIES - 1),
    )
    homes = draw(st.dictionaries(triple, st.sampled_from(SPLITS), max_size=40))
    kept = draw(st.sets(st.sampled_from(SPLITS)))
    return {
        split: sorted(t for t, home in homes.items() if home == split and split in kept)
        for split in SPLITS
    }


def graph_of(splits):
    return KnowledgeGraph.from_triples(
        Triples(
            [f"e{i}" for i in range(NUM_ENTITIES)],
            [f"r{i}" for i in range(NUM_RELATIONS)],
            {s: np.array(t, dtype=np.int32).reshape(-1, 3) for s, t in splits.items()},
        )
    )


@given(random_splits())
def test_neighbours_match_a_dictionary(splits):
    graph = graph_of(splits)
    for edges, members in EDGES.items():
        expected = defaultdict(set)
        for head, relation, tail in (t for split in members for t in splits[split]):
            expected[head, 2 * relation].add(tail)
            expected[tail, 2 * relation + 1].add(head)
        adjacency = graph.adjacency(edges)
        for head in range(NUM_ENTITIES):
            for relation in range(2 * NUM_RELATIONS):
                found = adjacency.neighbours(head, relation).tolist()
                assert found == sorted(expected.get((head, relation), ()))
        assert len(adjacency.tails) == sum(map(len, expected.values()))
        assert len(adjacency.relations) == len(expected)
        degrees = [sum(len(t) for (h, _), t in expected.items() if h == e) for e in range(7)]
        assert adjacency.degrees().tolist() == degrees
        assert adjacency.degrees(np.array([4, 0, 4])).tolist() == [
            degrees[4],
            degrees[0],
            degrees[4],
        ]


def test_views_of_the_toy_graph(toy_graph):
    def parents_of_ann(edges):
        found = toy_graph.adjacency(edges).neighbours(
            toy_graph.entity_id("ann"), toy_graph.relation_id("~parent")
        )
        return [toy_graph.entities[entity] for entity in found]

    assert parents_of_ann("train") == parents_of_ann("train+valid") == []
    assert parents_of_ann("all") == ["fay"]


@given(
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 99), st.integers(0, 999))),
    st.integers(1000, 5000),
    st.integers(100, 500),
)
def test_packing_keeps_triples_and_their_order(triples, num_entities, num_relations):
    packing = Packing.of(num_entities, num_relations)
    columns = np.array(triples, dtype=np.int32).reshape(-1, 3).T
    keys = packing.pack(*columns)
    assert np.array_equal(np.stack(packing.unpack(keys)), columns)
    back = packing.unpack(distinct(keys))
    assert list(zip(*(column.tolist() for column in back), strict=True)) == sorted(set(triples))


def test_a_graph_too_large_to_pack_is_refused():
    assert Packing.of(2**24 - 1, 2**14 - 1)
    with pytest.raises(InvalidArgument, match="63 bits"):
        Packing.of(2**29, 2**10)


def test_an_adjacency_without_edges():
    adjacency = Adjacency.from_triples(np.empty((0, 3), dtype=np.int32), 2, 1)
    assert adjacency.neighbours(1, 0).tolist() == []
    assert adjacency.degrees().tolist() == [0, 0]


def test_tails_of_a_head():
    """Relation 0 leads from 0 to 1 and 2 and from 3 to 1; relation 1 has no edges."""
    triples = np.array([[0, 0, 1], [0, 0, 2], [3, 0, 1], [0, 2, 0]], dtype=np.int32)
    adjacency = Adjacency.from_triples(triples, 4, 3)
    assert adjacency.tails_of_a_head.tolist() == [1.5, 1.5, 0, 0, 1, 1]


# ---- ragged tables -------------------------------------------------------------------------------


tables = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=8)


def lists(table):
    return [row.tolist() for row in table]


@given(tables)
def test_rows_come_back(rows):
    table = Ragged.from_rows(rows)
    assert len(table) == len(rows)
    assert lists(table) == rows
    assert table.lengths.tolist() == [len(row) for row in rows]
    assert table.values.dtype == np.int32
    assert table.offsets.dtype == np.int64


@given(tables)
def test_rows_are_indexed_like_those_of_a_list(rows):
    table = Ragged.from_rows(rows)
    for row in range(-len(rows), len(rows)):
        assert table[row].tolist() == rows[row]
    for row in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError):
            table[row]


@given(st.data())
def test_take_chooses_rows_in_any_order_and_more_than_once(data):
    rows = [[3], *data.draw(tables)]
    chosen = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=10))
    taken = Ragged.from_rows(rows).take(np.array(chosen, dtype=np.int64))
    assert lists(taken) == [rows[row] for row in chosen]
    assert lists(taken.take(np.arange(len(taken)))) == lists(taken)


@given(st.lists(tables, max_size=4))
def test_concatenate_is_that_of_lists(parts):
    whole = Ragged.concatenate([Ragged.from_rows(rows) for rows in parts])
    assert lists(whole) == list(chain(*parts))
    assert whole.values.dtype == np.int32


@given(tables)
def test_from_lengths(rows):
    values = np.array(list(chain(*rows)), dtype=np.int32)
    table = Ragged.from_lengths(np.array([len(row) for row in rows], dtype=np.int64), values)
    assert lists(table) == rows


def test_rows_may_be_any_iterables():
    rows = [range(3), iter([7]), np.array([5, 5]), ()]
    assert lists(Ragged.from_rows(rows)) == [[0, 1, 2], [7], [5, 5], []]
