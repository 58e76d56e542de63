"""Found: those behind the ones that are left out move up."""

import numpy as np

from betae.answering.ranking import Found, ascending

IDS = np.array([5, 3, 8, 1])
DISTANCES = np.array([0.5, 1, 1, 2], dtype=np.float32)


def test_the_order_is_ascending_and_stable():
    generator = np.random.default_rng(0)
    for values in (
        generator.normal(size=5000).astype(np.float32),
        generator.integers(-3, 3, size=5000).astype(np.float32) * np.float32(1e-38),
        -np.abs(generator.integers(-1, 2, size=50).astype(np.float32)),
        np.array([0.0, -0.0, 0.0, np.inf, -np.inf, -0.0], dtype=np.float32),
        np.array([], dtype=np.float32),
    ):
        assert ascending(values).tolist() == np.argsort(values, kind="stable").tolist()


def test_what_is_left_out():
    found = Found(IDS, np.array([0.9, 0.5, 0.5, 0.1]), DISTANCES, 3, entropy=2.0)
    left = found.without(np.array([3, 1, 7]))
    assert left.ids.tolist() == [5, 8]
    assert left.probabilities.tolist() == [0.9, 0.5]
    assert left.distances.tolist() == [0.5, 1]
    assert left.num_ranked == 2  # of the first three
    assert left.entropy == 2.0


def test_what_there_is_not_is_not_there():
    left = Found(IDS, None).without(np.array([], dtype=int))
    assert left.ids.tolist() == IDS.tolist()
    assert (left.probabilities, left.distances, left.explain) == (None, None, None)
    assert left.num_ranked == 4
