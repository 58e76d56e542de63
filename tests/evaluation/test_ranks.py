"""Ranks by counting, against ranks by the obvious loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph, train, world
from betae.datasets.release import read_release
from betae.evaluation import ranks
from betae.evaluation.ranks import (
    EmbeddingRanker,
    per_query,
    rank_block,
    rank_by_frequency,
    rank_rows,
    summarise,
)
from betae.exact.answers import answers_of_structure
from betae.graph.edges import Ragged
from betae.graph.triples import Triples
from betae.models import MODELS
from betae.models.execute import score_queries
from betae.queries.ast import PLACEHOLDER, Entity
from betae.queries.structures import STRUCTURES
from betae.querysets.query_set import SET_EDGES, QueryBlock
from betae.querysets.sample import sample_queries
from betae.training.config import TrainConfig
from tests.queries.strategies import examples
from tests.training.helpers import SMALL, small_graph


def block_of(easy, hard):
    symbols = np.zeros((len(easy), 2), dtype=np.int32)
    return QueryBlock(STRUCTURES["1p"], symbols, Ragged.from_rows(easy), Ragged.from_rows(hard))


def slow_ranks(distances, easy, hard):
    """For every hard answer: the mean of its best and its worst place among non-answers."""
    found = []
    for row, known, wanted in zip(distances, easy, hard, strict=True):
        others = [row[e] for e in range(len(row)) if e not in known and e not in wanted]
        for entity in wanted:
            best = 1 + sum(other < row[entity] for other in others)
            worst = 1 + sum(other <= row[entity] for other in others)
            found.append((best + worst) / 2)
    return found


@st.composite
def scored_queries(draw):
    num_entities = draw(st.integers(1, 12))
    few = st.sampled_from([0.0, 0.5, 1.0, 2.0])  # many ties
    value = few if draw(st.booleans()) else st.floats(-100, 100, width=32)
    rows, easy, hard = [], [], []
    for _ in range(draw(st.integers(1, 5))):
        rows.append(draw(st.lists(value, min_size=num_entities, max_size=num_entities)))
        wanted = draw(st.sets(st.integers(0, num_entities - 1), min_size=1))
        known = draw(st.sets(st.integers(0, num_entities - 1)))
        easy.append(sorted(known - wanted))
        hard.append(sorted(wanted))
    return np.array(rows, dtype=np.float32), easy, hard


@examples(300)
@given(scored_queries())
def test_ranks_equal_those_of_the_loops(case):
    distances, easy, hard = case
    found = rank_rows(distances, block_of(easy, hard))
    assert found.tolist() == slow_ranks(distances, easy, hard)


def test_a_hand_worked_example():
    #                  e0   e1   e2   e3   e4   e5   e6
    distances = [[0.1, 0.5, 0.3, 0.5, 0.9, 0.2, 0.5]]
    easy, hard = [[0]], [[1, 4]]
    # e0 is easy and does not count. e1: e2 and e5 are closer, e3 and e6 are tied: 1 + 2 + 2/2 = 4.
    # e4: e2, e3, e5, e6 are closer; e1 is an answer: 1 + 4 = 5.
    found = rank_rows(np.array(distances, dtype=np.float32), block_of(easy, hard))
    assert found.tolist() == [4.0, 5.0]


def test_the_order_of_the_hard_answers_is_kept():
    distances = np.array([[3.0, 2.0, 1.0, 0.0, 2.5]], dtype=np.float32)
    assert rank_rows(distances, block_of([[]], [[0, 1]])).tolist() == [4.0, 3.0]
    assert rank_rows(distances, block_of([[]], [[1, 0]])).tolist() == [3.0, 4.0]


@pytest.mark.parametrize(("easy", "hard", "rank"), [([], [3], 5.5), ([0, 1], [2, 3], 4.0)])
def test_constant_scores_give_the_middle_rank(easy, hard, rank):
    distances = np.full((1, 10), 7.0, dtype=np.float32)
    assert rank_rows(distances, block_of([easy], [hard])).tolist() == [rank] * len(hard)


@pytest.mark.parametrize("bad", ["all", "answer", "others"])
def test_scores_that_are_no_numbers_are_not_good(bad):
    """A model that has diverged must not look perfect."""
    distances = np.arange(10, dtype=np.float32)[None].copy()
    where = {"all": slice(None), "answer": slice(0, 1), "others": slice(1, None)}[bad]
    distances[0, where] = np.nan
    (rank,) = rank_rows(distances, block_of([[]], [[0]]))
    if bad == "others":
        assert rank >= 1  # nothing is known to be closer
    else:
        assert rank >= 5.5


def test_infinite_scores_are_ties():
    distances = np.full((1, 9), np.inf, dtype=np.float32)
    assert rank_rows(distances, block_of([[]], [[0]])).tolist() == [5.0]


def test_metrics_by_hand():
    # Two queries: ranks 1, 2, 4 and 20.
    offsets = np.array([0, 3, 4])
    values = np.array([1.0, 2.0, 4.0, 20.0])
    found = summarise(values, offsets)
    assert found.mrr == pytest.approx(100 * ((1 + 1 / 2 + 1 / 4) / 3 + 1 / 20) / 2)
    assert found.hits_at_1 == pytest.approx(100 * (1 / 3 + 0) / 2)
    assert found.hits_at_3 == pytest.approx(100 * (2 / 3 + 0) / 2)
    assert found.hits_at_10 == pytest.approx(100 * (1 + 0) / 2)
    assert found.num_queries == 2


def test_a_tie_at_the_border_is_no_hit():
    found = summarise(np.array([1.5, 3.5, 10.5]), np.array([0, 1, 2, 3]))
    assert (found.hits_at_1, found.hits_at_3) == pytest.approx((0, 100 / 3))
    assert found.hits_at_10 == pytest.approx(200 / 3)


def test_means():
    assert per_query(np.array([1.0, 3.0, 5.0]), np.array([0, 2, 3])).tolist() == [2.0, 5.0]


@pytest.mark.parametrize("model_name", list(MODELS))
@pytest.mark.parametrize("at_once", [7, 2048])
def test_blocks_are_ranked_by_the_model(model_name, at_once, monkeypatch):
    """In pieces or at once, unions by their best branch: the ranks of the model's distances."""
    monkeypatch.setattr(ranks, "EMBED_BATCH", at_once)
    graph = small_graph()
    config_class, model_class = MODELS[model_name]
    torch.manual_seed(0)
    model = model_class(graph.num_entities, graph.num_relations, config_class(**SMALL[model_name]))
    names = ["1p"] if model_name == "complex" else ["2i", "up"]
    for block in sample_queries(graph, dict.fromkeys(names, 20), "valid").blocks.values():
        assert len(block) == 20
        with torch.no_grad():
            distances = score_queries(model, [block.query(row) for row in range(len(block))])
            found = rank_block(EmbeddingRanker(model), block)
        expected = slow_ranks(
            distances.numpy(), list(map(list, block.easy)), list(map(list, block.hard))
        )
        # Sums in another order may make or break near-ties.
        assert found.tolist() == pytest.approx(expected, abs=1.0)
        assert np.mean(found == expected) > 0.9


def test_an_empty_block_has_no_ranks():
    config_class, model_class = MODELS["gqe"]
    model = model_class(5, 2, config_class(dim=4))
    nothing = block_of([], [])
    assert len(rank_block(EmbeddingRanker(model), nothing)) == 0
    assert nothing.structure == Entity(PLACEHOLDER)[PLACEHOLDER]


# ---- the frequency baseline ---------------------------------------------------------------------


def test_frequency_by_hand():
    edges = np.array([[0, 0, 3], [1, 0, 3], [2, 0, 4], [0, 1, 5]], dtype=np.int32)
    nothing = np.empty((0, 3), dtype=np.int32)
    splits = {"train": edges, "valid": nothing, "test": nothing}
    graph = KnowledgeGraph.from_triples(Triples(list("abcdef"), ["r", "s"], splits))
    block = QueryBlock(
        STRUCTURES["1p"],
        np.array([[2, 0], [1, 0], [0, 2]], dtype=np.int32),
        Ragged.from_rows([[4], [], []]),
        Ragged.from_rows([[3], [4], [0]]),
    )
    # r leads to d twice and to e once, ~r back to a, b and c:
    # d is first; e is second, after d; a shares the last five places with b, c, d and e
    assert rank_by_frequency(graph, block).tolist() == [1.0, 2.0, 4.0]


@pytest.mark.slow
def test_fb15k_237(shared_data):
    """The official 1p queries are all that the test edges make: no need to read the pickles."""
    graph = KnowledgeGraph.from_triples(read_release(shared_data / "FB15k-237-betae"))
    heads, relations, tails = graph.written_ids["test"].T
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


@pytest.mark.slow
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
        "loss": {"candidates": 512},
        "optimizer": {"learning_rate": 0.01, "warmup": 5},
        "steps": 150,
        "validation": {"every": 150},
    }
    result = train(graph, tmp_path / "run", TrainConfig.from_json(recipe), valid=valid)
    assert result.outcome.best_mrr > 1.2 * baseline
