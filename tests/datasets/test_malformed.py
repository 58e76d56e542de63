"""Releases that are broken in some way: read as they should be, or refused by a clear message.

Each case is a name, and what files of a sound folder are replaced by: bytes, or None to remove one.
Hostile cases would make a file called EXECUTED if the pickle could run code.
"""

import gzip
import pickle
import struct
from collections import defaultdict

import pytest

from betae import KnowledgeGraph
from betae.datasets.pickles import MAX_TUPLE_DEPTH, read_pickle, shown
from betae.datasets.release import open_queries, read_release
from betae.errors import BetaeError, TripleError

EXECUTED = "executed"  # file that hostile pickles would make
KEY_1P, KEY_2P = ("e", ("r",)), ("e", ("r", "r"))
ONE, TWO = (0, (0,)), (1, (2, 3))
QUERIES, EASY, HARD = "test-queries.pkl", "test-easy-answers.pkl", "test-hard-answers.pkl"
ENTITIES, RELATIONS = "id2ent.pkl", "id2rel.pkl"
DEEP = 5000


def sound(num_entities=12, num_relations=8):
    """Files of a small release that are in order."""
    entities = {number: f"/m/{number}" for number in range(num_entities)}
    relations = {number: f"{'+-'[number % 2]}/r{number // 2}" for number in range(num_relations)}
    edges = "".join(f"0\t{r}\t1\n1\t{r + 1}\t0\n" for r in range(0, num_relations, 2))
    return {
        ENTITIES: pickle.dumps(entities),
        RELATIONS: pickle.dumps(relations),
        "train.txt": edges.encode(),
        "valid.txt": b"2\t0\t3\n3\t1\t2\n",
        "test.txt": b"4\t0\t5\n5\t1\t4\n",
        QUERIES: pickle.dumps({KEY_1P: {ONE}, KEY_2P: {TWO}}),
        EASY: pickle.dumps({ONE: {1, 2}, TWO: set()}),
        HARD: pickle.dumps({ONE: {3}, TWO: {0}}),
    }


def global_of(module, name):
    """The opcodes that ask for an object of a module."""
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def call(module, name, argument):
    """A pickle that calls a function with a string."""
    text = argument.encode()
    return global_of(module, name) + b"(X" + struct.pack("<I", len(text)) + text + b"tR."


def nested(depth, value=0):
    """The opcodes of a number in that many tuples."""
    return b"K" + bytes([value]) + b"\x85" * depth


class Reduced:
    """Pickled as a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def spoiled_bytes(file, content):
    """What can happen to the bytes of any pickle."""
    yield "empty", b""
    yield "truncated by a byte", content[:-1]
    yield "half", content[: len(content) // 2]
    yield "gzipped", gzip.compress(content)
    yield "text", b"0\t0\t1\n"
    yield "bad UTF-8", b"\x80\x04\x8c\x02\xff\xfe."
    yield "bytes after the end", content + b"more"
    yield "a protocol of the future", b"\x80\xff" + content[2:]
    yield "a frame too long", b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"}."
    yield "a number too long", b"\x80\x04\x8b" + struct.pack("<i", 2**31 - 1) + b"x."
    yield "digits without end", b"I" + b"9" * 10_000 + b"\n."
    yield "an empty stack", b"\x80\x040."
    yield "no mark", b"\x80\x04}u."
    yield "marks alone", b"\x80\x04" + b"(" * 10_000 + b"."
    yield "a memo that is not there", b"\x80\x04h\x07."
    yield "a memo far away", b"\x80\x04}j" + struct.pack("<I", 2**32 - 1) + b"."
    yield "a memo put far away", b"\x80\x04}r" + struct.pack("<I", 2**32 - 1) + b"."
    yield "a memo put rather far away", b"\x80\x04}r" + struct.pack("<I", 2**28) + b"."
    yield "a memo of a memo", b"\x80\x04}\x94h\x00h\x00s."
    yield "a list of itself", b"\x80\x04]\x94h\x00a."
    yield "a dictionary of itself", b"\x80\x04}\x94K\x00h\x00s."
    yield "a tuple of itself", b"\x80\x04](h\x00t\x94a."
    yield "an unhashable key", b"\x80\x04}]K\x01s."
    yield "an unhashable element", b"\x80\x04\x8f(]\x90."
    yield "an extension", b"\x80\x02\x82\x01."
    yield "a persistent id", b"Pname\n."
    yield "a buffer out of band", b"\x80\x05\x97."
    yield "an unknown opcode", b"\x80\x04\xff."
    yield "os.system", call("os", "system", f"touch {EXECUTED}")
    yield "eval", call("builtins", "eval", f"open({EXECUTED!r}, 'w')")
    yield "exec of Python 2", call("__builtin__", "eval", f"open({EXECUTED!r}, 'w')")
    yield "an instance", b"(" + b"X\x01\x00\x00\x00xi" + b"os\nsystem\n."
    yield "an object", b"(" + global_of("subprocess", "Popen") + b"X\x01\x00\x00\x00xo."
    yield "new object", b"\x80\x02" + global_of("subprocess", "Popen") + b")\x81."
    yield "a global by the stack", b"\x80\x04\x8c\x02os\x8c\x06system\x93."
    yield "a global of numbers", b"\x80\x04K\x01K\x02\x93."
    yield "a global that is not ASCII", b"c\xff\xfe\nsystem\n."
    yield "a call of no function", b"\x80\x04K\x01)R."
    yield "a call without a tuple", global_of("builtins", "set") + b"K\x01R."
    yield "a set of a number", pickle.dumps(Reduced(set, (7,)))
    yield "a dictionary of a number", pickle.dumps(Reduced(dict, (7,)))
    yield "a number of a text", pickle.dumps(Reduced(int, ("9" * 10_000,)))
    yield "a text as long as memory", pickle.dumps(Reduced(str, (b"x", "no such encoding")))
    yield "a default that is a number", pickle.dumps(Reduced(defaultdict, (7,)))
    yield "a default that calls", pickle.dumps(Reduced(defaultdict, (defaultdict, {1: 2})))
    yield "a state for a dictionary", b"\x80\x04}}K\x01K\x02sb."
    yield "a state for a class with slots", global_of("collections", "defaultdict") + b"N}\x86b."
    yield "a class", pickle.dumps(set)
    yield "a type of numpy", global_of("numpy", "ndarray") + b"."
    for value in (None, True, 7, 1.5, "text", b"bytes", bytearray(b"x"), (), [], set(), {}):
        yield f"{value!r} alone", pickle.dumps(value)
    yield "a very large number alone", pickle.dumps(2**100_000)
    yield "tuples in tuples", nested(DEEP) + b"."
    yield "tuples in tuples as a key", b"\x80\x04}" + nested(DEEP) + b"\x8fs."
    yield "tuples in tuples in a set", b"\x80\x04\x8f(" + nested(DEEP) + b"\x90."
    yield "far too many tuples as a key", b"\x80\x04}" + nested(10**6) + b"\x8fs."
    yield "lists in lists", b"]" * DEEP + b"a" * (DEEP - 1) + b"."
    yield f"of {file}, a file twice as long", content + content


def malformed():
    """Yield the name of every case with the files that it changes."""
    files = sound()
    for name, content in spoiled_bytes(QUERIES, files[QUERIES]):
        yield f"{QUERIES}: {name}", {QUERIES: content}
    for file in (HARD, ENTITIES):
        for name in ("half", "bytes after the end", "os.system"):
            yield f"{file}: {name}", {file: dict(spoiled_bytes(file, files[file]))[name]}
    for file in (QUERIES, HARD, ENTITIES, RELATIONS, "train.txt", "test.txt"):
        yield f"{file}: missing", {file: None}
    yield "answers of no query", {HARD: pickle.dumps({ONE: {3}, TWO: {0}, (5, (0,)): {1}})}
    yield "a default for answers", {HARD: pickle.dumps(defaultdict(set, {ONE: {3}}))}
    yield "an empty name", {ENTITIES: pickle.dumps({n: "" if not n else f"{n}" for n in range(12)})}
    yield "train.txt: a NUL", {"train.txt": b"0\t0\t1\x00\n"}
    yield "train.txt: gzipped", {"train.txt": gzip.compress(b"0\t0\t1\n")}


CASES = dict(malformed())
READ = {  # what may be read: nothing is lost, and nothing is taken for what it is not
    *(f"{file}: bytes after the end" for file in (QUERIES, HARD, ENTITIES)),
    f"{QUERIES}: of {QUERIES}, a file twice as long",
    "answers of no query",
    "an empty name",
}


def read(folder):
    graph = KnowledgeGraph.from_triples(read_release(folder))
    graph.save(folder / "graph")
    return open_queries(graph, folder, "test")


@pytest.mark.slow
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
    value = pickled(tmp_path, nested(MAX_TUPLE_DEPTH, 3) + b".")
    for _ in range(MAX_TUPLE_DEPTH):
        (value,) = value
    assert value == 3
    for content in (nested(MAX_TUPLE_DEPTH + 1), b"\x80\x04" + nested(600) + b"\x94\x85" * 401):
        with pytest.raises(
            TripleError, match=f"more than {MAX_TUPLE_DEPTH} tuples within each other"
        ):
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
    assert shown(2**100_000) == "a very large int"
    assert shown("x" * 1000) == "'" + "x" * 199 + "…"
