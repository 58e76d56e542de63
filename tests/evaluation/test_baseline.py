"""The frequency baseline, by hand and on FB15k-237."""

import numpy as np
import pytest

from betae import KnowledgeGraph, Triples, sample_queries, train, world
from betae.datasets.release import read_release
from betae.datasets.release_queries import read_release_queries
from betae.evaluation.baseline import rank_by_frequency, tail_counts
from betae.evaluation.ranks import summarise
from betae.graph.ragged import Ragged
from betae.queries.structures import STRUCTURES
from betae.querysets.query_set import QueryBlock
from betae.training.config import make_config


def test_by_hand():
    edges = np.array([[0, 0, 3], [1, 0, 3], [2, 0, 4], [0, 1, 5]], dtype=np.int32)
    nothing = np.empty((0, 3), dtype=np.int32)
    splits = {"train": edges, "valid": nothing, "test": nothing}
    graph = KnowledgeGraph.from_triples(Triples(list("abcdef"), ["r", "s"], splits))
    counts = tail_counts(graph)
    assert counts(np.array([0]))[0].tolist() == [0, 0, 0, 2, 1, 0]  # r leads to d twice, to e once
    assert counts(np.array([1]))[0].tolist() == [1, 1, 1, 0, 0, 0]  # and ~r back to a, b and c
    block = QueryBlock(
        STRUCTURES["1p"],
        np.array([[2, 0], [1, 0], [0, 2]], dtype=np.int32),
        Ragged.from_rows([[4], [], []]),
        Ragged.from_rows([[3], [4], [0]]),
    )
    # d is first; e is second, after d; a shares the last five places with b, c, d and e
    assert rank_by_frequency(graph, block).tolist() == [1.0, 2.0, 4.0]


def test_fb15k_237(shared_data):
    graph = KnowledgeGraph.from_triples(read_release(shared_data / "FB15k-237-betae"))
    block = read_release_queries(graph, shared_data / "FB15k-237-q2b").blocks["1p"]
    metrics = summarise(rank_by_frequency(graph, block), block.hard.offsets)
    assert metrics.mrr == pytest.approx(31.5, abs=0.5)


def test_a_model_beats_it_on_world(tmp_path):
    graph = world()
    valid = sample_queries(graph, {"1p": 10**6}, "valid")
    block = valid.blocks["1p"]
    baseline = summarise(rank_by_frequency(graph, block), block.hard.offsets).mrr
    recipe = {
        "model": {"dim": 32, "hidden": 64},
        "batch_size": 256,
        "candidates": 512,
        "steps": 300,
        "validate_every": 300,
    }
    result = train(graph, make_config(recipe), tmp_path / "run", valid=valid)
    assert result.outcome.best_mrr > 1.2 * baseline
