"""Pickles of queries that are not what they should be: refused before a kernel sees an id."""

import collections
import contextlib
import pickle
import random

import numpy as np
import pytest

from betae import KnowledgeGraph
from betae.datasets.release import (
    open_queries,
    read_pickle,
    read_release,
    read_release_queries,
    write_release_queries,
)
from betae.errors import InvalidArgument, TripleError
from betae.queries.structures import STRUCTURES, to_tuple
from betae.querysets.sample import sample_queries

KEY_1P, KEY_2P = ("e", ("r",)), ("e", ("r", "r"))
KEY_2IN, KEY_2U = (KEY_1P, ("e", ("r", "n"))), (KEY_1P, KEY_1P, ("u",))
ONE, TWO = (0, (0,)), (1, (2, 3))
QUERIES = "test-queries.pkl"
EASY, HARD = "test-easy-answers.pkl", "test-hard-answers.pkl"


@pytest.fixture
def put(tmp_path):
    """Write pickles: sound ones of one 1p and one 2p, some of them replaced."""

    def write_pickles(changes=None, split="test"):
        content = {
            "queries.pkl": {KEY_1P: {ONE}, KEY_2P: {TWO}},
            "easy-answers.pkl": {ONE: {1, 2}, TWO: set()},
            "hard-answers.pkl": {ONE: {3}, TWO: {0}},
        }
        content = {f"{split}-{name}": data for name, data in content.items()}
        for name, data in (content | (changes or {})).items():
            if data is not None:
                (tmp_path / name).write_bytes(pickle.dumps(data))
        return tmp_path

    return write_pickles


def test_sound_pickles_are_read(put, toy_graph):
    found = read_release_queries(toy_graph, put())
    assert {name: len(block) for name, block in found.blocks.items()} == {"1p": 1, "2p": 1}
    assert found.blocks["2p"].symbols.tolist() == [[1, 2, 3]]
    assert found.blocks["1p"].easy[0].tolist() == [1, 2]
    assert found.blocks["2p"].hard[0].tolist() == [0]


# The toy graph has 12 entities and 8 directed relations.
BAD_QUERIES = {
    "a float entity": (KEY_1P, (1.0, (0,)), "1.0 for an entity: a whole number from 0 to 11"),
    "a float relation": (KEY_1P, (1, (0.5,)), "0.5 for a relation: a whole number from 0 to 7"),
    "a name": (KEY_1P, ("Oslo", (0,)), "'Oslo' for an entity"),
    "a truth value": (KEY_1P, (5, (True,)), "True for a relation"),
    "a negative entity": (KEY_1P, (-1, (0,)), "-1 for an entity"),
    "a negative relation": (KEY_1P, (0, (-3,)), "-3 for a relation"),
    "an entity too large": (KEY_1P, (12, (0,)), "12 for an entity.*another graph"),
    "an entity beyond 64 bits": (KEY_1P, (2**70, (0,)), f"{2**70} for an entity"),
    "a relation too large": (KEY_1P, (0, (8,)), "8 for a relation.*another graph"),
    "a 2p under 1p": (KEY_1P, TWO, "does not have the structure"),
    "a 2p under 1p, by nesting": (KEY_1P, (ONE, (2,)), "does not have the structure|for an entity"),
    "a bare entity": (KEY_1P, 3, "does not have the structure"),
    "a 2i under 2in": (KEY_2IN, (ONE, (1, (2, 3))), "3 for a complement: .* -2"),
    "a 2in under 2i": ((KEY_1P, KEY_1P), (ONE, (1, (2, -2))), "does not have the structure"),
    "a 3i under 2u": (KEY_2U, (ONE, ONE, (0, (1,))), "does not have the structure"),
    "no mark of a union": (KEY_2U, (ONE, ONE, (4,)), "4 for a union"),
}


@pytest.mark.parametrize("case", BAD_QUERIES)
@pytest.mark.parametrize("has_easy", [True, False], ids=["betae", "query2box"])
def test_a_bad_query_is_named(put, toy_graph, case, has_easy):
    key, query, words = BAD_QUERIES[case]
    sound = {KEY_1P: ONE, KEY_2P: TWO, KEY_2IN: (ONE, (1, (2, -2))), KEY_2U: (ONE, ONE, (-1,))}
    there = {sound[key]} if key in sound else set()
    answers = {query: {1}, **{each: {1} for each in there}}
    folder = put(
        {QUERIES: {key: {*there, query}}, EASY: answers if has_easy else None, HARD: answers}
    )
    if not has_easy:
        (folder / EASY).unlink(missing_ok=True)
    with pytest.raises(TripleError, match=words) as info:
        read_release_queries(toy_graph, folder)
    assert info.value.file == folder / QUERIES
    structure = {KEY_1P: "1p", KEY_2P: "2p", KEY_2IN: "2in", KEY_2U: "2u"}.get(key, "2i")
    assert f"{structure}: the query {query!r}" in str(info.value)


BAD_ANSWERS = {
    "an id too large": ({12}, "has the answer 12: a whole number from 0 to 11.*another graph"),
    "an id far too large": ({1, 2**70}, f"has the answer {2**70}"),
    "a negative id": ({1, -1}, "has the answer -1"),
    "a float": ({1, 2.5}, r"has the answer 2\.5"),
    "a name": ({1, "Oslo"}, "has the answer 'Oslo'"),
    "a pair": ({(1, 2)}, r"has the answer \(1, 2\)"),
    "a list": ([1, 2], "a set of answers to the query .* is expected, found list"),
    "none": (..., "a set of answers to the query .* is expected, found none"),
}


@pytest.mark.parametrize("file", [EASY, HARD])
@pytest.mark.parametrize("case", BAD_ANSWERS)
@pytest.mark.parametrize("kind", [dict, lambda data: collections.defaultdict(set, data)])
def test_bad_answers_are_named(put, toy_graph, case, file, kind):
    stored, words = BAD_ANSWERS[case]
    answers = {ONE: {1, 2}, TWO: stored}
    if stored is ...:
        del answers[TWO]
    folder = put({file: kind(answers)})
    with pytest.raises(TripleError, match=words) as info:
        read_release_queries(toy_graph, folder)
    assert info.value.file == folder / file
    assert "2p: " in str(info.value)
    assert repr(TWO) in str(info.value)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        (QUERIES, [ONE, TWO], "a dictionary is expected, found list"),
        (QUERIES, None, "there is no such file"),
        (QUERIES, {}, "no queries"),
        (QUERIES, {KEY_1P: [ONE]}, "1p: a set of queries is expected, found list"),
        (QUERIES, {KEY_1P: 7}, "1p: a set of queries is expected, found int"),
        (QUERIES, {KEY_2P: {TWO}, (KEY_1P, ("r",)): {(ONE, (0,))}}, "2p twice"),
        (QUERIES, {"1p": {ONE}}, "the key '1p' is not the structure"),
        (QUERIES, {7: {ONE}}, "the key 7 is not the structure"),
        (QUERIES, {(): {ONE}}, r"the key \(\) is not the structure"),
        (QUERIES, {("e", ()): {ONE}}, "is not the structure"),
        (QUERIES, {("e", (0,)): {ONE}}, "is not the structure"),
        (QUERIES, {(("u",),): {((-1,),)}}, "is not the structure"),
        (QUERIES, {("e", ("x",)): {ONE}}, "is not the structure"),
        (QUERIES, {("e", ("r",) * 5000): {ONE}}, "is not the structure"),
        (QUERIES, {2**100_000: {ONE}}, "a very large int is not the structure"),
        (EASY, [ONE], "a dictionary is expected, found list"),
        (HARD, {1, 2}, "a dictionary is expected, found set"),
        (HARD, None, "there is no such file"),
    ],
)
def test_a_bad_container_is_named(put, toy_graph, tmp_path, file, content, words):
    put()
    if content is None:
        (tmp_path / file).unlink()
    else:
        put({file: content})
    with pytest.raises(TripleError, match=words) as info:
        read_release_queries(toy_graph, tmp_path)
    assert info.value.file == tmp_path / file


def test_training_queries_need_answers_too(put, toy_graph):
    folder = put({"train-answers.pkl": {ONE: {1}}}, "train")
    with pytest.raises(TripleError, match="2p: a set of answers"):
        read_release_queries(toy_graph, folder, "train")
    found = read_release_queries(
        toy_graph, put({"train-answers.pkl": {ONE: {1}, TWO: {2}}}, "train"), "train"
    )
    assert [len(block.hard.values) for block in found.blocks.values()] == [0, 0]


def test_a_split_that_does_not_exist(put, toy_graph):
    for read in (read_release_queries, open_queries):
        with pytest.raises(InvalidArgument, match="split is 'dev'"):
            read(toy_graph, put(), "dev")


def test_a_structure_without_queries(put, toy_graph):
    found = read_release_queries(toy_graph, put({QUERIES: {KEY_1P: {ONE}, KEY_2IN: set()}}))
    assert found.blocks["2in"].symbols.shape == (0, 4)
    assert len(found.blocks["2in"].hard) == 0


def test_bytes_that_are_no_pickle(tmp_path):
    """Overwritten bytes: plain data still, or betae's own error.

    No byte becomes LONG_BINPUT: Python's unpickler allocates as many slots as its argument says.
    """
    path, chance = tmp_path / "x.pkl", random.Random(0)
    sound = pickle.dumps({to_tuple(shape): {1, 2} for shape in STRUCTURES.values()})
    for _ in range(2000):
        content = bytearray(sound)
        for _ in range(chance.randint(1, 3)):
            byte = chance.choice([byte for byte in range(256) if byte != pickle.LONG_BINPUT[0]])
            content[chance.randrange(len(content))] = byte
        path.write_bytes(content)
        with contextlib.suppress(TripleError):
            read_pickle(path)


def test_a_set_of_another_graph_is_refused(shared_data):
    """Query2Box's layout has no easy answers: they are computed, so ids reach the kernels."""
    graph = KnowledgeGraph.from_triples(read_release(shared_data / "FB15k-237-betae"))
    with pytest.raises(TripleError, match="Do the queries belong to another graph") as info:
        read_release_queries(graph, shared_data / "NELL-q2b")
    assert info.value.file == shared_data / "NELL-q2b" / QUERIES


def test_rows_are_sorted_as_tuples_are(toy_graph, tmp_path):
    queries = sample_queries(toy_graph, dict.fromkeys(STRUCTURES, 8))
    write_release_queries(queries, tmp_path / "pickles")
    for block in read_release_queries(toy_graph, tmp_path / "pickles", "train").blocks.values():
        rows = [to_tuple(block.query(row)) for row in range(len(block))]
        assert rows == sorted(rows)
        assert block.symbols.flags.c_contiguous
        assert block.symbols.dtype == np.int32
        for answers in block.easy:
            assert answers.tolist() == sorted(answers.tolist())
