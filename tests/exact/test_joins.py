"""Tables of ids against Python sets, also where the keys of rows do not fit in an integer."""

import numpy as np
import pytest

from betae.exact import joins
from betae.exact.joins import Bindings, concatenate, extend, is_in, join
from betae.queries.formula import Variable

NAMES = [Variable(name) for name in "abcdef"]


def random_table(names, size, seed):
    """Few distinct values, of which some are large."""
    values = np.array([0, 1, 2, 999_998, 999_999], dtype=np.int32)
    generator = np.random.default_rng(seed)
    return Bindings(size, {name: generator.choice(values, size) for name in names})


def rows(table, names):
    return list(zip(*(table.columns[name].tolist() for name in names), strict=True))


@pytest.mark.parametrize("width", [1, 3, 6])
@pytest.mark.parametrize("num_entities", [10**6, 2**31 - 1])
def test_distinct_rows(width, num_entities):
    names = NAMES[:width]
    table = random_table(names, 300, width)
    found = rows(table.distinct(num_entities), names)
    assert len(found) == len(set(found))
    assert set(found) == set(rows(table, names))


@pytest.mark.parametrize("shared", [1, 3, 5])
def test_rows_that_another_table_has(shared):
    one = random_table(NAMES, 200, 1)
    two = random_table(NAMES[:shared], 50, 2)
    wanted = set(rows(two, NAMES[:shared]))
    mask = is_in(one, two, 10**6)
    assert mask.tolist() == [row in wanted for row in rows(one, NAMES[:shared])]


def test_a_table_without_columns():
    table = random_table(NAMES[:1], 3, 0)
    assert is_in(table, Bindings(1, {}), 10**6).tolist() == [True] * 3
    assert is_in(table, Bindings(0, {}), 10**6).tolist() == [False] * 3
    assert Bindings(5, {}).distinct(10).size == 1
    assert Bindings(0, {}).distinct(10).size == 0


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize("shared", range(4))
def test_joins(monkeypatch, chunk, shared):
    monkeypatch.setattr(joins, "PIECE_ROWS", chunk)
    left, right = NAMES[:4], [*NAMES[:shared], *NAMES[4:]]
    one, two = random_table(left, 20, 3), random_table(right, 30, 4)
    found = concatenate(list(join(one, two, 10**6)))
    wanted = [
        a + b[shared:]
        for a in rows(one, left)
        for b in rows(two, right)
        if a[:shared] == b[:shared]
    ]
    assert sorted(rows(found, NAMES)) == sorted(wanted)
    assert wanted


def test_pieces_are_small(monkeypatch):
    monkeypatch.setattr(joins, "PIECE_ROWS", 10)
    table = random_table(NAMES[:1], 25, 5)
    assert [piece.size for piece in table.pieces()] == [10, 10, 5]
    none = np.zeros(25, dtype=np.int64)
    values = np.arange(4, dtype=np.int32)
    pieces = list(extend(table, none, none + 4, {NAMES[1]: values}))
    assert max(piece.size for piece in pieces) <= 10
    assert sum(piece.size for piece in pieces) == 100
