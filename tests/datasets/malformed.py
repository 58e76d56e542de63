"""Files of the release, spoiled in many ways: what `malformed` yields must never be a surprise.

Each case is a name, and what files of a sound folder are replaced by: bytes, or None to remove one.
Hostile cases would make a file called EXECUTED if the pickle could run code.
"""

import gzip
import pickle
import struct
from collections import Counter, OrderedDict, defaultdict
from decimal import Decimal

EXECUTED = "executed"  # file that hostile pickles would make
KEY_1P, KEY_2P = ("e", ("r",)), ("e", ("r", "r"))
KEY_2IN, KEY_2U = (KEY_1P, ("e", ("r", "n"))), (KEY_1P, KEY_1P, ("u",))
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
    yield "one byte", content[:1]
    yield "truncated by a byte", content[:-1]
    yield "half", content[: len(content) // 2]
    yield "gzipped", gzip.compress(content)
    yield "text", b"0\t0\t1\n"
    yield "bad UTF-8", b"\x80\x04\x8c\x02\xff\xfe."
    yield "zeros", bytes(64)
    yield "bytes after the end", content + b"more"
    yield "a protocol of the future", b"\x80\xff" + content[2:]
    yield "a frame too long", b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"}."
    yield "a string too long", b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b"x."
    yield "bytes too long", b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x."
    yield "a bytearray too long", b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"x."
    yield "a number too long", b"\x80\x04\x8b" + struct.pack("<i", 2**31 - 1) + b"x."
    yield "a number of negative length", b"\x80\x04\x8b" + struct.pack("<i", -5) + b"x."
    yield "digits without end", b"I" + b"9" * 10_000 + b"\n."
    yield "an empty stack", b"\x80\x040."
    yield "no mark", b"\x80\x04}u."
    yield "marks alone", b"\x80\x04" + b"(" * 10_000 + b"."
    yield "a memo that is not there", b"\x80\x04h\x07."
    yield "a memo far away", b"\x80\x04}j" + struct.pack("<I", 2**32 - 1) + b"."
    yield "a memo put far away", b"\x80\x04}r" + struct.pack("<I", 2**32 - 1) + b"."
    yield "a memo put rather far away", b"\x80\x04}r" + struct.pack("<I", 2**28) + b"."
    yield "a memo by a text", b"}pmemo\n."
    yield "a memo by a negative number", b"}p-1\n."
    yield "a memo of a memo", b"\x80\x04}\x94h\x00h\x00s."
    yield "a list of itself", b"\x80\x04]\x94h\x00a."
    yield "a dictionary of itself", b"\x80\x04}\x94K\x00h\x00s."
    yield "a tuple of itself", b"\x80\x04](h\x00t\x94a."
    yield "an unhashable key", b"\x80\x04}]K\x01s."
    yield "an unhashable element", b"\x80\x04\x8f(]\x90."
    yield "an extension", b"\x80\x02\x82\x01."
    yield "an extension of four bytes", b"\x80\x02\x84\xff\xff\xff\x7f."
    yield "an extension below zero", b"\x80\x02\x84\xff\xff\xff\xff."
    yield "a persistent id", b"Pname\n."
    yield "a binary persistent id", b"\x80\x04K\x01Q."
    yield "a buffer out of band", b"\x80\x05\x97."
    yield "an unknown opcode", b"\x80\x04\xff."
    yield "os.system", call("os", "system", f"touch {EXECUTED}")
    yield "posix.system", call("posix", "system", f"touch {EXECUTED}")
    yield "eval", call("builtins", "eval", f"open({EXECUTED!r}, 'w')")
    yield "exec of Python 2", call("__builtin__", "eval", f"open({EXECUTED!r}, 'w')")
    yield "a dotted name", call("builtins", "dict.__class__", "x")
    yield "getattr", b"\x80\x04" + call("builtins", "getattr", "x")
    yield "an instance", b"(" + b"X\x01\x00\x00\x00xi" + b"os\nsystem\n."
    yield "an object", b"(" + global_of("subprocess", "Popen") + b"X\x01\x00\x00\x00xo."
    yield "new object", b"\x80\x02" + global_of("subprocess", "Popen") + b")\x81."
    yield "new object with names", b"\x80\x04" + global_of("subprocess", "Popen") + b")}\x92."
    yield "a global by the stack", b"\x80\x04\x8c\x02os\x8c\x06system\x93."
    yield "a global of numbers", b"\x80\x04K\x01K\x02\x93."
    yield "a global that is not ASCII", b"c\xff\xfe\nsystem\n."
    yield "a call of no function", b"\x80\x04K\x01)R."
    yield "a call without a tuple", global_of("builtins", "set") + b"K\x01R."
    yield "a set of a number", pickle.dumps(Reduced(set, (7,)))
    yield "a set of too much", pickle.dumps(Reduced(set, (1, 2)))
    yield "a dictionary of a number", pickle.dumps(Reduced(dict, (7,)))
    yield "a number of a list", pickle.dumps(Reduced(int, ([],)))
    yield "a number of a text", pickle.dumps(Reduced(int, ("9" * 10_000,)))
    yield "a text as long as memory", pickle.dumps(Reduced(str, (b"x", "no such encoding")))
    yield "a default that is a number", pickle.dumps(Reduced(defaultdict, (7,)))
    yield "a default that calls", pickle.dumps(Reduced(defaultdict, (defaultdict, {1: 2})))
    yield "a state for a dictionary", b"\x80\x04}}K\x01K\x02sb."
    yield "a state for a class", global_of("builtins", "set") + b"}b."
    yield "a state for a class with slots", global_of("collections", "defaultdict") + b"N}\x86b."
    yield "a class", pickle.dumps(set)
    yield "a type of numpy", global_of("numpy", "ndarray") + b"."
    yield "an ordered dictionary", pickle.dumps(OrderedDict({ONE: {1}}))
    yield "a counter", pickle.dumps(Counter([1]))
    yield "a decimal", pickle.dumps(Decimal(1))
    for value in (None, True, 7, 1.5, "text", b"bytes", bytearray(b"x"), (), [], set(), {}):
        yield f"{value!r} alone", pickle.dumps(value)
    yield "a very large number alone", pickle.dumps(2**100_000)
    yield "tuples in tuples", nested(DEEP) + b"."
    yield "tuples in tuples as a key", b"\x80\x04}" + nested(DEEP) + b"\x8fs."
    yield "tuples in tuples in a set", b"\x80\x04\x8f(" + nested(DEEP) + b"\x90."
    yield "far too many tuples as a key", b"\x80\x04}" + nested(10**6) + b"\x8fs."
    yield "lists in lists", b"]" * DEEP + b"a" * (DEEP - 1) + b"."
    yield f"of {file}, a file twice as long", content + content


BIG = 2**100_000
IDS = [None, True, 1.0, 0.5, float("nan"), float("inf"), "0", "Oslo", b"0", -1, 12, 10**9, 2**31]
IDS += [2**63, 2**64, -(2**63) - 1, BIG, -BIG, (), (0,), frozenset({1}), 1j]


def spoiled_queries():
    """Pickles that are in order, of queries that are not."""
    for value in IDS:
        told = _told(value)
        for place, query in (("entity", (value, (0,))), ("relation", (0, (value,)))):
            yield f"{told} for a {place}", KEY_1P, query
    for shape in ((), (0,), ((0,),), (0, ()), (0, 0), ONE * 2, (ONE, ONE), ((0, (0,)), (0,)), TWO):
        yield f"{shape} under 1p", KEY_1P, shape
    yield "a union with a wrong mark", KEY_2U, (ONE, ONE, (-2,))
    yield "a union without one", KEY_2U, (ONE, ONE)
    yield "a complement with a wrong mark", KEY_2IN, (ONE, (1, (2, -1)))


def _told(value):
    if isinstance(value, int) and abs(value) >= 2**70:
        return f"a number far {'above' if value > 0 else 'below'} zero"
    return repr(value)


def spoiled_keys():
    """What is no structure of queries."""
    yield from (None, 7, 1.5, "1p", "", "e", (), ("e",), ("r",), ("e", ()), ("e", "r"), ("e", (0,)))
    yield from (("e", (("r",),)), (("e",), ("r",)), ("x", ("r",)), (KEY_1P, ("u",), ("u",)), BIG)
    yield from ((("u",), KEY_1P), ("u",), ("n",), ("e", ("n", "u")), (("e", ("r",)), ("u", "u")))
    yield from (b"e", (b"e", (b"r",)), ("e", ("r",) * 5000), frozenset({"e"}), (float("nan"),))
    yield from (("e", ("r",) * 60), ((KEY_1P,) * 300), ("e", ("n",)), ("e", ("n", "n", "r")))


def malformed():
    """Yield the name of every case with the files that it changes."""
    files = sound()
    for file in (QUERIES, HARD, ENTITIES):
        for name, content in spoiled_bytes(file, files[file]):
            yield f"{file}: {name}", {file: content}
    for file in (QUERIES, HARD, ENTITIES, RELATIONS, "train.txt", "test.txt"):
        yield f"{file}: missing", {file: None}
    for name, key, query in spoiled_queries():
        answers = pickle.dumps({query: {1}})
        changes = {EASY: answers, HARD: answers}
        yield f"query: {name}", {QUERIES: pickle.dumps({key: {query}}), **changes}
        yield (
            f"query2box: {name}",
            {QUERIES: pickle.dumps({key: {query}}), HARD: answers, EASY: None},
        )
    for number, key in enumerate(spoiled_keys()):
        yield f"key {number}", {QUERIES: pickle.dumps({key: {ONE}})}
        yield f"key {number} without queries", {QUERIES: pickle.dumps({key: set()})}
    for value in IDS:
        told = _told(value)
        for file in (EASY, HARD):
            changed = {file: pickle.dumps({ONE: {value}, TWO: {0}})}
            yield f"{file}: the answer {told}", changed
        yield f"a name {told}", {ENTITIES: pickle.dumps({value: "x"})}
        yield f"a name of {told}", {ENTITIES: pickle.dumps({0: value})}
        yield f"answers that are {told}", {HARD: pickle.dumps({ONE: value, TWO: {0}})}
        yield f"queries that are {told}", {QUERIES: pickle.dumps({KEY_1P: value})}
    for content in ([ONE], [[0, [0]]], {ONE: {1}}, (ONE,), "queries", [[[]]], {}):
        yield f"queries in {content!r}", {QUERIES: pickle.dumps({KEY_1P: content})}
    yield "answers of no query", {HARD: pickle.dumps({ONE: {3}, TWO: {0}, (5, (0,)): {1}})}
    yield "a default for answers", {HARD: pickle.dumps(defaultdict(set, {ONE: {3}}))}
    yield "a default that is a list", {HARD: pickle.dumps(defaultdict(list, {ONE: {3}}))}
    yield (
        "the name of a relation twice",
        {RELATIONS: pickle.dumps({0: "+/a", 1: "-/a", 2: "+/a", 3: "-/a"})},
    )
    yield "an entity twice", {ENTITIES: pickle.dumps(dict.fromkeys(range(12), "same"))}
    yield (
        "half a character in a name",
        {ENTITIES: pickle.dumps({n: f"\ud800{n}" for n in range(12)})},
    )
    yield "an empty name", {ENTITIES: pickle.dumps({n: "" if not n else f"{n}" for n in range(12)})}
    for name, text in (
        ("no numbers", b"a\tb\tc\n"),
        ("bad UTF-8", b"\xff\xfe\t0\t1\n"),
        ("floats", b"0.5\t0\t1\n"),
        ("two columns", b"0\t0\n"),
        ("an id too large", b"99\t0\t1\n1\t1\t99\n"),
        ("an id far too large", b"99999999999999999999\t0\t1\n"),
        ("a negative id", b"-1\t0\t1\n1\t1\t-1\n"),
        ("no inverse", b"0\t0\t1\n"),
        ("empty", b""),
        ("a NUL", b"0\t0\t1\x00\n"),
        ("gzipped", gzip.compress(b"0\t0\t1\n")),
    ):
        yield f"train.txt: {name}", {"train.txt": text}
