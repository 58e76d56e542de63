"""The frequency baseline, by hand and on FB15k-237."""

import numpy as np
import pytest

from betae import KnowledgeGraph, Triples, sample_queries, train, world
from betae.datasets.release import read_release
from betae.evaluation.baseline import rank_by_frequency, tail_counts
from betae.evaluation.ranks import summarise
from betae.exact.answers import answers_of_structure
from betae.graph.ragged import Ragged
from betae.queries.structures import STRUCTURES
from betae.querysets.query_set import SET_EDGES, QueryBlock
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
    """The official 1p queries are all that the test edges make: no need to read the pickles."""
    graph = KnowledgeGraph.from_triples(read_release(shared_data / "FB15k-237-betae"))
    heads, relations, tails = graph.splits["test"].T
    forward = np.stack([heads, 2 * relations], axis=1)
    backward = np.stack([tails, 2 * relations + 1], axis=1)
    symbols = np.unique(np.concatenate([forward, backward]), axis=0)
    assert len(symbols) == 22_812  # as in the release
    easy, every = (
        answers_of_structure(graph.adjacency(edges), STRUCTURES["1p"], symbols)
        for edges in SET_EDGES["test"]
    )
    hard = [np.setdiff1d(*rows) for rows in zip(every, easy, strict=True)]
    block = QueryBlock(STRUCTURES["1p"], symbols, easy, Ragged.from_rows(hard))
    metrics = summarise(rank_by_frequency(graph, block), block.hard.offsets)
    assert metrics.mrr == pytest.approx(31.23, abs=0.01)  # as on the pickles, in results/


@pytest.mark.usefixtures("_one_thread")
def test_a_model_beats_it_on_world(tmp_path):
    graph = world()
    valid = sample_queries(graph, {"1p": 10**6}, "valid")
    block = valid.blocks["1p"]
    baseline = summarise(rank_by_frequency(graph, block), block.hard.offsets).mrr
    recipe = {
        "model": {"dim": 32, "hidden": 64},
        "structures": {"1p": 1.0},
        "batch_size": 256,
        "candidates": 512,
        "learning_rate": 0.01,
        "warmup": 5,
        "steps": 150,
        "validate_every": 150,
    }
    result = train(graph, make_config(recipe), tmp_path / "run", valid=valid)
    assert result.outcome.best_mrr > 1.2 * baseline
