"""Batches: true to the mix, to the seed and to the answers; no answer is ever a negative."""

import threading
import tracemalloc
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from betae import world
from betae.errors import BetaeError, InvalidArgument
from betae.exact.answers import answers_of_structure
from betae.graph.edges import Ragged
from betae.queries.structures import STRUCTURES, fill
from betae.querysets.query_set import QueryBlock, QuerySet
from betae.querysets.sample import QuerySampler, sample_empty, sample_queries
from betae.training.batches import (
    FreshStream,
    StoredStream,
    UnanswerableQueries,
    make_batch,
    open_streams,
    prepare_batches,
)
from betae.training.config import MarginConfig
from tests.queries.oracle import slow_answers
from tests.queries.strategies import examples, graphs
from tests.training.helpers import MIX, graph_of, small_config, small_graph


def queries_of(batch):
    """The queries of a batch in order, as trees of ids."""
    found = {}
    for group in batch.groups:
        for symbols, position in zip(group.symbols.tolist(), group.positions.tolist(), strict=True):
            found[position] = fill(group.structure, symbols)
    assert sorted(found) == list(range(len(batch)))
    return [found[position] for position in range(len(batch))]


def check_batch(batch, graph, config):
    """Check every claim of a batch by Python sets."""
    candidates = batch.candidates.tolist()
    assert sorted(set(candidates)) == candidates
    assert set(candidates) <= set(range(graph.num_entities))
    for row, query in enumerate(queries_of(batch)):
        answers = slow_answers(graph, query, "train")
        marked = {candidates[column] for column in batch.is_answer[row].nonzero().flatten()}
        assert marked == answers & set(candidates)
        assert candidates[batch.positive[row]] in answers
        negatives = {candidates[column] for column in batch.negatives[row]}
        assert not negatives & answers
    if isinstance(config.loss, MarginConfig):
        assert batch.negatives.shape == (len(batch), config.loss.negatives)
    else:
        assert batch.negatives.numel() == 0
        assert len(candidates) >= min(config.loss.candidates, graph.num_entities)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "margin"])
@pytest.mark.parametrize("is_stored", [True, False])
@examples(15)
@given(graph=graphs(entities=(3, 12), relations=(1, 3), edges=(4, 40)), numbers=st.data())
def test_no_answer_is_a_negative(loss, is_stored, graph, numbers):
    assume(len(graph.written_ids["train"]))
    config = small_config(
        loss=loss,
        candidates=numbers.draw(st.integers(1, 15)),
        negatives=numbers.draw(st.integers(1, 20)),
        batch_size=numbers.draw(st.integers(4, 20)),
        structures={"1p": 1, "2u": 1, "up": 0.5},
        seed=numbers.draw(st.integers(0, 100)),
    )
    queries = None
    if is_stored:
        with patch("betae.querysets.sample.WALK_BATCH", 64):
            queries = sample_queries(graph, dict.fromkeys(config.structures, 20), "train")
        assume(all(len(block) for block in queries.blocks.values()))
    try:
        streams = open_streams(graph, queries, config)
        batches = [make_batch(step, streams, config, graph) for step in range(3)]
    except InvalidArgument as error:  # no such query, or one that everything answers
        assume("no training queries like" not in str(error))
        sizes = (
            len(slow_answers(graph, query, "train"))
            for stream in streams.values()
            for query in (fill(stream.structure, row.tolist()) for row in stream.symbols)
        )
        if "every entity" not in str(error) or graph.num_entities not in sizes:
            raise
        return
    for batch in batches:
        check_batch(batch, graph, config)


@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_no_answer_is_a_negative_of_a_complement(loss, graph):
    config = small_config(loss=loss, structures={"2in": 1, "pni": 1, "inp": 1}, batch_size=30)
    streams = open_streams(graph, None, config)
    for step in range(3):
        check_batch(make_batch(step, streams, config, graph), graph, config)


def entities(number):
    """What a batch without negation needs to know of a graph."""
    edges = SimpleNamespace(degrees=np.zeros_like)
    return SimpleNamespace(num_entities=number, adjacency=lambda _: edges)


def stream_of(*answers, num_symbols=2):
    symbols = np.zeros((len(answers), num_symbols), dtype=np.int32)
    return StoredStream(STRUCTURES["1p"], symbols, Ragged.from_rows(answers), 0)


def test_the_edges_of_candidates_are_counted(graph):
    config = small_config(candidates=10)
    batch = make_batch(0, open_streams(graph, None, config), config, graph)
    ends = graph.written_ids["train"][:, [0, 2]].ravel().tolist()
    assert batch.degrees.tolist() == [ends.count(each) for each in batch.candidates.tolist()]


@pytest.mark.parametrize("non_answer", [0, 1, 250, 499])
def test_one_non_answer_among_very_many(non_answer):
    """However few non-answers a query has, they are found."""
    answers = [entity for entity in range(500) if entity != non_answer]
    config = small_config(loss="margin", structures={"1p": 1}, batch_size=1, negatives=4)
    for seed in range(10):
        changed = replace(config, seed=seed)
        batch = make_batch(0, {"1p": stream_of(answers)}, changed, entities(500))
        assert batch.candidates[batch.negatives].unique().tolist() == [non_answer]
        assert int(batch.candidates[batch.positive]) in answers


def test_everything_is_an_answer():
    config = small_config(loss="margin", structures={"1p": 1}, batch_size=2)
    with pytest.raises(InvalidArgument, match="every entity answers one of the queries"):
        make_batch(0, {"1p": stream_of(range(20))}, config, entities(20))


def test_weights_of_queries():
    config = small_config(loss="margin", structures={"1p": 1}, batch_size=3)
    stream = stream_of([0], [1, 2], [3, 4, 5, 6, 7])
    batch = make_batch(0, {"1p": stream}, config, entities(50))
    rows = Ragged.from_rows([[0], [1, 2], [3, 4, 5, 6, 7]])
    first = [int(batch.candidates[column]) for column in batch.positive]
    counts = [next(len(row) for row in rows if entity in row) for entity in first]
    raw = np.array([1 / np.sqrt(4 + count) for count in counts])
    assert batch.weights.tolist() == pytest.approx(raw / raw.mean())
    assert float(batch.weights.mean()) == pytest.approx(1)


def test_all_entities_when_as_many_are_asked_for(graph):
    for asked, number in ((30, 30), (2048, 30), (29, None)):
        config = small_config(candidates=asked, batch_size=4)
        batch = make_batch(0, open_streams(graph, None, config), config, graph)
        if number:
            assert batch.candidates.tolist() == list(range(30))
        else:
            assert 29 <= len(batch.candidates) <= 30


def test_candidates_are_sampled_evenly(graph):
    config = small_config(candidates=10, hard_negatives=False, batch_size=1, structures={"1p": 1})
    streams = open_streams(graph, None, config)
    seen = Counter()
    for step in range(400):
        batch = make_batch(step, streams, config, graph)
        assert 10 <= len(batch.candidates) <= 11
        seen.update(batch.candidates.tolist())
    assert set(seen) == set(range(30))
    assert min(seen.values()) > 80  # about 400 / 3 each


@pytest.mark.parametrize("is_asked", [True, False])
def test_anchors_are_candidates(is_asked, graph):
    config = small_config(candidates=1, hard_negatives=is_asked, batch_size=2, structures={"2i": 1})
    streams = open_streams(graph, None, config)
    missing = 0
    for step in range(50):
        batch = make_batch(step, streams, config, graph)
        check_batch(batch, graph, config)
        anchors = batch.groups[0].symbols[:, [0, 2]].flatten().tolist()
        missing += not set(anchors) <= set(batch.candidates.tolist())
    assert bool(missing) is not is_asked


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize(
    ("name", "affirmed"), [("2in", "2i"), ("3in", "3i"), ("pin", "pi"), ("inp", "ip")]
)
def test_what_negation_excludes_is_a_candidate(name, affirmed, is_asked, graph):
    """One entity of the negated part at least, wherever there is one; up to four are sampled."""
    config = small_config(candidates=1, hard_negatives=is_asked, batch_size=1, structures={name: 1})
    streams = open_streams(graph, None, config)
    found = []
    for step in range(80):
        batch = make_batch(step, streams, config, graph)
        check_batch(batch, graph, config)
        query = fill(STRUCTURES[affirmed], batch.groups[0].symbols[0].tolist())
        excluded = slow_answers(graph, query, "train")
        anchors = set(batch.groups[0].symbols[0].tolist())  # relations too: a few ids too many
        if excluded - anchors:
            found.append(len(excluded & set(batch.candidates.tolist())))
    assert len(found) > 20
    assert (min(found) >= 1) is is_asked
    assert max(found) <= 7  # the four, an answer, an anchor, the one that is sampled


@pytest.mark.parametrize(
    "structures",
    [MIX, {"1p": 1}, {"1p": 5, "2p": 0.01}, {"1p": 0.001, "2p": 0.001, "2i": 0.004}],
)
@pytest.mark.parametrize("batch_size", [7, 24])
def test_the_mix_is_kept(structures, batch_size, graph):
    config = small_config(structures=structures, batch_size=batch_size, candidates=30)
    streams = open_streams(graph, None, config)
    counts, num_steps = Counter(), 300
    for step in range(num_steps):
        batch = make_batch(step, streams, config, graph)
        assert abs(len(batch) - batch_size) <= len(structures)
        for group in batch.groups:
            counts[group.structure] += len(group.positions)
    for name, share in structures.items():
        due = num_steps * batch_size * share / sum(structures.values())
        assert abs(counts[STRUCTURES[name]] - due) <= 1 + 1e-6


def test_no_batch_is_empty(graph):
    """Also where the batch is no larger than the number of structures; smaller is refused."""
    with pytest.raises(InvalidArgument, match="batch_size is 2, below the 3 structures"):
        small_config(structures={"1p": 1, "2p": 1, "2i": 1}, batch_size=2)
    config = small_config(structures={"1p": 1, "2p": 1.2, "2i": 1}, batch_size=3)
    streams = open_streams(graph, None, config)
    for step in range(6):
        assert len(make_batch(step, streams, config, graph)) >= 1


@pytest.mark.parametrize("loss", ["softmax", "margin"])
@pytest.mark.parametrize("is_stored", [True, False])
def test_the_same_seed_and_step_give_the_same_batch(loss, is_stored, graph, queries):
    def some(seed):
        config = small_config(loss=loss, seed=seed)
        streams = open_streams(graph, queries if is_stored else None, config)
        return [make_batch(step, streams, config, graph) for step in range(4)]

    def flat(batch):
        tensors = [batch.candidates, batch.is_answer, batch.positive, batch.negatives]
        symbols = [group.symbols for group in batch.groups]
        return [tensor.tolist() for tensor in (*tensors, *symbols, batch.weights)]

    first, again, other = map(list, (some(3), some(3), some(4)))
    assert list(map(flat, first)) == list(map(flat, again))
    assert len({str(flat(batch)) for batch in (*first, *other)}) == 8


def test_prepared_batches_are_those_of_the_steps(graph, queries):
    config = small_config(steps=12)
    streams = open_streams(graph, queries, config)
    expected = [make_batch(step, streams, config, graph) for step in range(12)]
    fresh = open_streams(graph, queries, config)
    for name, position in expected[4].positions.items():
        fresh[name].go_to(position)
    found = list(prepare_batches(5, fresh, config, graph))
    assert [batch.step for batch in found] == list(range(5, 12))
    for one, two in zip(expected[5:], found, strict=True):
        assert one.positions == two.positions
        assert torch.equal(one.candidates, two.candidates)
        assert torch.equal(one.is_answer, two.is_answer)


def test_an_error_of_the_worker_is_raised_to_the_trainer():
    config = small_config(loss="margin", structures={"1p": 1})
    batches = prepare_batches(0, {"1p": stream_of(range(20))}, config, entities(20))
    with pytest.raises(InvalidArgument, match="every entity"):
        next(batches)


def test_closing_ends_the_worker(graph):
    before = threading.active_count()
    config = small_config()
    batches = prepare_batches(0, open_streams(graph, None, config), config, graph)
    next(batches)
    assert threading.active_count() == before + 1
    batches.close()
    assert threading.active_count() == before


# ---- streams ----------------------------------------------------------------------------------


@given(
    number=st.integers(1, 9),
    takes=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    seed=st.integers(0, 3),
)
def test_every_round_of_a_stored_stream_has_every_query_once(number, takes, seed):
    symbols = np.arange(2 * number, dtype=np.int32).reshape(number, 2)
    answers = Ragged.from_rows([[10 * i, 10 * i + 1] for i in range(number)])

    def open_stream():
        return StoredStream(STRUCTURES["1p"], symbols, answers, seed)

    stream, taken = open_stream(), []
    for count in takes:
        there = stream.position()
        rows, of_rows = stream.take(count)
        assert len(rows) == len(of_rows) == count
        for row, answers_of_row in zip(rows.tolist(), of_rows, strict=True):
            assert answers_of_row.tolist() == [5 * row[0], 5 * row[0] + 1]
        again = open_stream()
        again.go_to(there)
        rows_again, answers_again = again.take(count)
        assert np.array_equal(rows, rows_again)
        assert np.array_equal(of_rows.values, answers_again.values)
        assert again.position() == stream.position()
        taken.extend(row[0] // 2 for row in rows.tolist())
    for start in range(0, len(taken) - number + 1, number):
        assert sorted(taken[start : start + number]) == list(range(number))


def test_rounds_and_structures_differ_in_order():
    symbols = np.arange(40, dtype=np.int32).reshape(20, 2)
    answers = Ragged.from_rows([[0]] * 20)
    stream = StoredStream(STRUCTURES["1p"], symbols, answers, 0)
    first, second = stream.take(20)[0].tolist(), stream.take(20)[0].tolist()
    other = StoredStream(STRUCTURES["2u"], symbols, answers, 0).take(20)[0].tolist()
    assert first != second
    assert first != other


@pytest.mark.parametrize("name", ["1p", "2p", "2in"])
def test_fresh_streams_go_on_from_any_position(name, graph, monkeypatch):
    monkeypatch.setattr("betae.querysets.sample.WALK_BATCH", 32)

    def open_stream():
        return FreshStream(QuerySampler(graph, STRUCTURES[name], "train", 0))

    stream, everything = open_stream(), []
    for count in (5, 1, 40, 100, 3, 64, 7):
        there = stream.position()
        symbols, answers = stream.take(count)
        assert len(symbols) == len(answers) == count
        for other in (open_stream(), stream_after(open_stream(), 11)):
            other.go_to(there)
            symbols_again, answers_again = other.take(count)
            assert np.array_equal(symbols, symbols_again)
            assert np.array_equal(answers.values, answers_again.values)
            assert other.position() == stream.position()
        everything.extend(symbols.tolist())
        for row, found in zip(symbols.tolist(), answers, strict=True):
            query = fill(STRUCTURES[name], row)
            assert set(found.tolist()) == slow_answers(graph, query, "train")
    whole = open_stream().take(len(everything))[0].tolist()
    assert whole == everything  # however it is cut


def stream_after(stream, number):
    stream.take(number)
    return stream


def test_single_steps_come_round_again():
    """A graph has only so many 1p queries: after the last comes the first."""
    graph = small_graph(num_edges=10, num_valid=0)
    sampler = QuerySampler(graph, STRUCTURES["1p"], "train", 0)
    number = len(sampler.listed)
    symbols = FreshStream(sampler).take(2 * number)[0].tolist()
    assert symbols[:number] == symbols[number:]
    assert len(set(map(tuple, symbols))) == number


@pytest.mark.parametrize("edges", [[(0, 0, 1)], []])
def test_a_graph_without_such_queries(edges):
    graph = graph_of(edges, num_entities=3, num_relations=1)
    config = small_config(structures={"3i": 1})
    with pytest.raises(InvalidArgument, match="The graph has no training queries like"):
        open_streams(graph, None, config)["3i"].take(1)


# ---- sets that do not fit ---------------------------------------------------------------------


def test_a_structure_that_the_set_does_not_have(graph, queries):
    config = small_config(structures={"1p": 1, "3i": 1})
    with pytest.raises(InvalidArgument, match=r"has no 3i; it has 1p, 2p, 2i, 2in"):
        open_streams(graph, queries, config)


def test_a_structure_that_does_not_exist(graph):
    with pytest.raises(InvalidArgument, match="There is no structure '9p'"):
        open_streams(graph, None, small_config(structures={"9p": 1}))


def test_a_structure_of_which_the_set_has_no_query(graph):
    nothing = np.empty((0, 2), dtype=np.int32)
    empty = QueryBlock(STRUCTURES["1p"], nothing, Ragged.from_rows([]), Ragged.from_rows([]))
    queries = QuerySet("train", {"1p": empty}, graph.fingerprint)
    config = small_config(structures={"1p": 1})
    with pytest.raises(BetaeError, match="1p"):
        open_streams(graph, queries, config)["1p"].take(1)


def test_validation_queries_are_not_for_training(graph):
    """They may have no easy answer at all."""
    queries = sample_queries(graph, {"1p": 20}, "valid")
    assert min(queries.blocks["1p"].easy.lengths) == 0
    config = small_config(structures={"1p": 1})
    with pytest.raises(BetaeError, match="train"):
        make_batch(0, open_streams(graph, queries, config), config, graph)


def test_a_structure_with_fixed_names(graph):
    text = "?X . r0(e1, ?X) | _(_, ?X)"
    config = small_config(structures={text: 1}, batch_size=6)
    batch = make_batch(0, open_streams(graph, None, config), config, graph)
    check_batch(batch, graph, config)
    assert all(str(graph.entity_id("e1")) in str(query) for query in queries_of(batch))


class Answered:
    """A stream of queries that have the same few answers."""

    structure = STRUCTURES["1p"]

    def take(self, number):
        answers = Ragged.from_rows([[3, 5_000_000]] * number)
        return np.zeros((number, 2), dtype=np.int32), answers

    def position(self):
        return [0]


def test_memory_for_a_batch_does_not_grow_with_the_graph():
    config = small_config(structures={"1p": 1.0})
    make_batch(0, {"1p": Answered()}, config, entities(10_000_000))  # compiles
    tracemalloc.start()
    batch = make_batch(1, {"1p": Answered()}, config, entities(10_000_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20  # a number for each entity would take 40 MB
    answers = torch.isin(batch.candidates, torch.tensor([3, 5_000_000]))
    assert answers.any()
    assert (batch.is_answer == answers).all()


@pytest.fixture(scope="module")
def made(graph):
    config = small_config(unanswerable=0.25)
    streams = open_streams(graph, None, config)
    return config, make_batch(3, streams, config, graph), UnanswerableQueries(graph, config, 0.25)


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


def test_no_query_of_the_evaluation_is_trained_on():
    graph, config = world(), small_config(unanswerable=0.1)
    for name, pool in zip(
        config.structures, UnanswerableQueries(graph, config, 0.1).pools, strict=True
    ):
        trained = set(map(tuple, pool.symbols.tolist()))
        tested = set(map(tuple, sample_empty(graph, name, 500, config.seed).symbols.tolist()))
        if name != "1p":  # there are few of those, so that some meet by chance
            assert len(trained & tested) < 50  # of 500
