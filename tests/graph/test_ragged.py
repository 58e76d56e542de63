from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.graph.ragged import Ragged

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
