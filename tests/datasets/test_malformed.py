"""Releases that are broken in some way: read as they should be, or refused by a clear message."""

import pickle

import pytest

from betae import KnowledgeGraph
from betae.datasets.pickles import DEEPEST, read_pickle, shown
from betae.datasets.release import read_release
from betae.datasets.release_queries import open_queries
from betae.errors import BetaeError, TripleError
from tests.datasets.malformed import (
    BIG,
    ENTITIES,
    EXECUTED,
    HARD,
    QUERIES,
    malformed,
    nested,
    sound,
)

CASES = dict(malformed())
READ = {  # what may be read: nothing is lost, and nothing is taken for what it is not
    *(f"{file}: bytes after the end" for file in (QUERIES, HARD, ENTITIES)),
    *(f"{file}: of {file}, a file twice as long" for file in (QUERIES, HARD, ENTITIES)),
    *(f"key {number} without queries" for number in (5, 27, 28, 29, 30)),
    "answers of no query",
    "an empty name",
}


def test_there_are_many():
    assert len(CASES) > 500
    assert CASES.keys() >= READ


def read(folder):
    graph = KnowledgeGraph.from_triples(read_release(folder))
    graph.save(folder / "graph")
    return open_queries(graph, folder, "test")


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_release(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in (sound() | CASES[case]).items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    if case in READ:
        read(tmp_path)
    else:
        with pytest.raises(BetaeError) as info:
            read(tmp_path)
        message = str(info.value)
        assert any(str(tmp_path / name) in message for name in sound()) or "queries.pkl" in message
        assert len(message) < 1000
        assert "\n" not in message
    assert not (tmp_path / EXECUTED).exists()


def test_sound_ones_are_read(tmp_path):
    for name, content in sound().items():
        (tmp_path / name).write_bytes(content)
    assert len(read(tmp_path)) == 2


# ---- one by one -------------------------------------------------------------------------------


def pickled(tmp_path, content):
    (tmp_path / "x.pkl").write_bytes(content)
    return read_pickle(tmp_path / "x.pkl")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(tmp_path, protocol):
    """The opcodes of each are followed: strings, numbers and memos are written in other ways."""
    same = ("e", ("r",))
    content = {
        same: {(number, (number % 7,)) for number in range(3000)},
        (same, same): set(range(70_000)),
        "long" * 100: [2**70, -1, 2**40, "ü", None, True, *range(300)],
    }
    assert pickled(tmp_path, pickle.dumps(content, protocol)) == content


def test_as_deep_as_is_admitted(tmp_path):
    value = pickled(tmp_path, nested(DEEPEST, 3) + b".")
    for _ in range(DEEPEST):
        (value,) = value
    assert value == 3
    for content in (nested(DEEPEST + 1), b"\x80\x04" + nested(600) + b"\x94\x85" * 401):
        with pytest.raises(TripleError, match=f"more than {DEEPEST} tuples within each other"):
            pickled(tmp_path, content + b".")


def test_depth_is_remembered_with_the_object(tmp_path):
    """A deep tuple may be left and fetched again."""
    half = nested(600) + b"\x94" + b"0"  # remembered, and taken off the stack
    content = b"\x80\x04" + half + b"h\x00" + b"\x85" * 600 + b"."
    with pytest.raises(TripleError, match="tuples within each other"):
        pickled(tmp_path, content)


@pytest.mark.parametrize("put", [b"r\x00\x00\x00\x10", b"p268435456\n"])
def test_numbers_of_remembered_objects(tmp_path, put):
    with pytest.raises(TripleError, match="numbers an object 268435456, more than it can hold"):
        pickled(tmp_path, b"\x80\x04}" + put + b".")


def test_what_is_shown():
    assert shown((1, "a")) == "(1, 'a')"
    assert shown(BIG) == "a very large int"
    assert shown("x" * 1000) == "'" + "x" * 199 + "…"
