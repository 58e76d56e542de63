"""Ranking: what is left out, what is added, and who has a rank."""

import numpy as np
import pytest

from betae.answering.ranking import NOTHING, Ranking


def ranking(ids, distances):
    return Ranking.of(np.array(ids), np.array(distances, dtype=np.float32))


def rows(found):
    """Entity, rank and score at each place."""
    places = range(len(found))
    return [(int(found.ids[place]), found.rank(place), found.score(place)) for place in places]


FOUND = ranking([5, 3, 8, 1], [0.5, 1, 1, 2])


def test_what_was_searched_for_is_ranked():
    assert rows(FOUND) == [(5, 1, -0.5), (3, 2, -1), (8, 3, -1), (1, 4, -2)]
    assert rows(ranking([4, -1, -1], [1, np.inf, np.inf])) == [(4, 1, -1)]
    assert rows(NOTHING) == []


def test_those_behind_the_ones_left_out_move_up():
    assert rows(FOUND.without(np.array([3, 1, 7]))) == [(5, 1, -0.5), (8, 2, -1)]
    assert rows(FOUND.without(np.array([], dtype=int))) == rows(FOUND)


def test_the_missed_have_a_rank_only_before_the_farthest_that_was_found():
    both = FOUND.with_missed(np.array([7, 2]), np.array([3, 1.5], dtype=np.float32))
    assert rows(both) == [
        (5, 1, -0.5), (3, 2, -1), (8, 3, -1), (2, 4, -1.5), (1, 5, -2), (7, None, -3),
    ]  # fmt: skip
    assert rows(both.without(np.array([5])))[-2:] == [(1, 4, -2), (7, None, -3)]
    assert rows(NOTHING.with_missed(np.array([7]), np.array([3], np.float32))) == [(7, None, -3)]


@pytest.mark.parametrize("known", [[9, 3, 6], [6, 9]])
def test_known_answers_without_an_embedding_come_first(known):
    found = FOUND.with_known(np.array(known))
    assert rows(found) == [(6, None, None), (9, None, None), *rows(FOUND)]
    left = found.without(np.array([6, 5]))
    assert rows(left) == [(9, None, None), (3, 1, -1), (8, 2, -1), (1, 3, -2)]
