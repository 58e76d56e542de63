"""Queries without answers beside the batches."""

import numpy as np
import pytest
import torch

from betae import world
from betae.errors import InvalidArgument
from betae.exact.answers import answers_of_structure
from betae.querysets.sample import sample_empty
from betae.training.batches import EmptyQueries, make_batch, prepare_batches
from betae.training.streams import open_streams
from tests.training.helpers import small_config


@pytest.fixture(scope="module")
def made(graph):
    config = small_config(empty=0.25)
    streams = open_streams(graph, None, config)
    return config, make_batch(3, streams, config, graph), EmptyQueries(graph, config)


def test_they_have_no_answers_in_the_training_graph(graph, made):
    _, _, empty = made
    assert empty.pools
    for pool in empty.pools:
        found = answers_of_structure(graph.adjacency("train"), pool.structure, pool.symbols)
        assert not found.lengths.any()


def test_they_come_behind_the_batch_and_change_nothing_in_it(made):
    config, batch, empty = made
    longer = empty.add_to(batch)
    number = round(0.25 * config.batch_size)
    assert len(longer) == len(batch) + number
    assert longer.groups[:-1] == batch.groups
    assert longer.groups[-1].positions.tolist() == list(range(len(batch), len(longer)))
    assert not longer.is_answer[len(batch) :].any()
    assert longer.num_answers[len(batch) :].tolist() == [0] * number
    assert torch.equal(longer.is_answer[: len(batch)], batch.is_answer)
    assert torch.equal(longer.num_answers[: len(batch)], batch.num_answers)


def test_a_step_always_has_the_same(graph, made):
    config, _, empty = made
    streams = open_streams(graph, None, config)
    for batch in prepare_batches(0, streams, config, graph, empty):
        last = batch.groups[-1]
        if batch.step == 3:
            break
    again = empty.add_to(made[1])
    assert np.array_equal(again.groups[-1].symbols, last.symbols)


def test_the_margin_loss_cannot():
    with pytest.raises(InvalidArgument, match="softmax"):
        small_config(empty=0.1, loss="margin")


def test_no_query_of_the_evaluation_is_trained_on():
    graph, config = world(), small_config(empty=0.1)
    for name, pool in zip(config.structures, EmptyQueries(graph, config).pools, strict=True):
        trained = set(map(tuple, pool.symbols.tolist()))
        tested = set(map(tuple, sample_empty(graph, name, 500, config.seed).symbols.tolist()))
        if name != "1p":  # there are few of those, so that some meet by chance
            assert len(trained & tested) < 50  # of 500
