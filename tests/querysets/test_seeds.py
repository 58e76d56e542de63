"""Random streams by name: what one seed gives for one purpose tells nothing about another."""

from itertools import combinations

import numpy as np
import pytest

import betae
from betae.querysets import sampler, walks
from betae.querysets.sample import (
    sample_answered,
    sample_empty,
    sample_queries,
    sample_validation,
)
from betae.querysets.seeds import random_stream, seed_sequence

PURPOSES = ["queries", "validation", "answered queries", "calibration", "count estimates"]


@pytest.fixture(scope="module")
def world():
    return betae.world()


@pytest.fixture
def walked(monkeypatch):
    """Note the seed of every batch of walks."""
    seeds, walk_back = [], walks.walk_back

    def spy(*arguments):
        seeds.append(int(arguments[6]))
        return walk_back(*arguments)

    monkeypatch.setattr(walks, "walk_back", spy)
    monkeypatch.setattr(sampler, "BATCH", 256)
    return seeds


def test_streams_by_other_names_are_others():
    names = [
        (0,), (1,), (0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", 1), (0, "a", 1, 0),
        (0, "a", 10), (0, "a", "1"), (0, "ab"), (0, "a", "b"), (0, 1), (10,), (0, "a, 'b'"),
    ]  # fmt: skip
    streams = [tuple(random_stream(*name).integers(2**60, size=4)) for name in names]
    assert len(set(streams)) == len(names)
    assert streams == [tuple(random_stream(*name).integers(2**60, size=4)) for name in names]


def test_a_stream_is_the_same_for_any_kind_of_integer():
    for seed in (np.int64(7), np.int32(7)):
        assert seed_sequence(seed, "a").entropy == seed_sequence(7, "a").entropy


def test_a_stream_stays_what_it_is():
    """Runs are resumed and sets sampled again by other versions of betae, too."""
    assert random_stream(0, "queries", "train").integers(1000, size=4).tolist() == [
        920,
        736,
        643,
        630,
    ]


def test_splits_and_purposes_share_no_walks(world, walked):
    by_purpose = {}
    for split in ("train", "valid", "test"):
        for purpose in PURPOSES:
            walked.clear()
            sample_queries(world, {"2p": 20}, split, seed=3, purpose=purpose, workers=1)
            by_purpose[split, purpose] = set(walked)
    for one, two in combinations(by_purpose, 2):
        assert by_purpose[one].isdisjoint(by_purpose[two]), (one, two)


def test_no_sampler_of_a_seed_repeats_another_s_walks(world, walked):
    found = []
    for sample in (
        lambda: sample_queries(world, {"2p": 20}, seed=3, workers=1),
        lambda: sample_answered(world, "2p", 5, seed=3),
        lambda: sample_queries(world, {"2p": 20}, "valid", seed=3, workers=1),
        lambda: sample_validation(world, ["2p"], 20, seed=3),
    ):
        walked.clear()
        sample()
        assert walked
        found.append(set(walked))
    assert len(set.union(*found)) == sum(map(len, found))


def test_empty_queries_for_training_and_for_evaluation_are_others(world):
    rows = [
        set(map(tuple, sample_empty(world, "3i", 500, 3, edges).symbols.tolist()))
        for edges in ("train", "all")
    ]
    assert all(len(some) == 500 for some in rows)
    assert rows[0].isdisjoint(rows[1])


def test_empty_queries_of_two_structures_are_others(world):
    one, two = (sample_empty(world, name, 50, 3).symbols for name in ("2p", "2in"))
    anchors = [set(symbols[:, 0].tolist()) for symbols in (one, two)]
    assert anchors[0] != anchors[1]


def test_listed_pairs_are_shuffled_by_split_and_purpose(world):
    """1p is listed, not walked: its order must differ too."""
    orders = [
        sample_queries(world, {"1p": 50}, "train", seed=3, purpose=purpose).blocks["1p"].symbols
        for purpose in PURPOSES
    ]
    for one, two in combinations(orders, 2):
        assert one.tolist() != two.tolist()
