"""Pickles of plain data, from anyone: they run no code, and no memory or stack is exhausted.

Python's unpickler admits only what `find_class` lets it, but trusts a pickle in two more things: it
makes room for as many objects to remember as the pickle numbers, and it hashes tuples within tuples
by recursion, without a limit. So the opcodes are followed once before it sees them.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae.errors import TripleError

DEEPEST = 1000  # tuples within tuples; those of a query are a handful
ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): set,
    ("builtins", "dict"): dict,
    ("builtins", "list"): list,
    ("builtins", "int"): int,
    ("builtins", "str"): str,
    ("collections", "defaultdict"): defaultdict,
}


class _PlainUnpickler(pickle.Unpickler):
    """Admit containers, ints and strings: a pickle cannot run code through it."""

    def find_class(self, module: str, name: str) -> Any:
        module = "builtins" if module == "__builtin__" else module  # as Python 2 wrote it
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it holds a {module}.{name}, which is not plain data")
        return ADMITTED[module, name]


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain containers, ints and strings; refuse anything else."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            raise pickle.UnpicklingError("it is compressed, unpack it with gunzip")
        _check(content)
        return _PlainUnpickler(io.BytesIO(content)).load()
    except FileNotFoundError:
        raise TripleError("there is no such file.", path) from None
    except OSError as error:
        raise TripleError(f"it cannot be read: {error.strerror or error}.", path) from error
    except Exception as error:  # bytes that are no pickle can raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TripleError(f"not a valid pickle of plain data: {reason}.", path) from error


def shown(value: Any) -> str:
    """Return what a pickle holds as a message shows it: not too long, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits, or more levels, than Python prints
        return f"a very large {type(value).__name__}"
    return shortened(text)


def shortened(text: str) -> str:
    """Return the beginning of a text, as much as a message can hold."""
    return text if len(text) <= 200 else f"{text[:200]}…"


# ---- following the opcodes ----------------------------------------------------------------------

LINE, TWO_LINES, UNKNOWN = -1, -7, -8  # beside pickletools' own marks, for the size of arguments
PLAIN, TUPLE, MARK, GET, PUT, MEMOIZE, STOP = range(7)  # what an opcode does
KINDS = {"MARK": MARK, "MEMOIZE": MEMOIZE, "STOP": STOP, "FROZENSET": TUPLE}
KINDS |= dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), TUPLE)
KINDS |= dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), GET)
KINDS |= dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), PUT)


@cache
def _opcodes() -> NDArray[np.int64]:
    """Return for each byte: the size of its argument, its kind, what it takes and what it leaves.

    If it takes all down to a mark, what it takes beside is given as -1, -2, ...: (256, 4).
    """
    table = np.zeros((256, 4), dtype=np.int64)
    table[:, 0] = UNKNOWN
    for opcode in pickletools.opcodes:
        size = opcode.arg.n if opcode.arg else 0
        if opcode.arg is pickletools.stringnl_noescape_pair:
            size = TWO_LINES
        takes = len(opcode.stack_before)
        if pickletools.markobject in opcode.stack_before:
            takes = -opcode.stack_before.index(pickletools.markobject) - 1
        kind = KINDS.get(opcode.name, PLAIN)
        table[ord(opcode.code)] = size, kind, takes, len(opcode.stack_after)
    return table


def _check(content: bytes) -> None:
    """Raise if reading a pickle would take far more room than it takes itself."""
    deepest, farthest = _follow(np.frombuffer(content, dtype=np.uint8), _opcodes())
    if farthest > len(content):
        raise pickle.UnpicklingError(f"it numbers an object {farthest}, more than it can hold")
    if deepest > DEEPEST:
        raise pickle.UnpicklingError(f"it holds more than {DEEPEST} tuples within each other")


@njit(cache=True)
def _follow(data, opcodes):  # type: ignore[no-untyped-def]
    """Return how deep tuples are nested, and the largest number of an object to remember.

    Where the pickle is broken it ends early: the unpickler will say so.
    """
    depths, top = np.zeros(1024, dtype=np.int32), 0  # of what is on the stack; -1 for a mark
    memo, remembered = np.zeros(1024, dtype=np.int32), 0
    deepest, farthest, place = 0, 0, 0
    while place < len(data):
        opcode = data[place]
        size, kind = opcodes[opcode, 0], opcodes[opcode, 1]
        takes, leaves = opcodes[opcode, 2], opcodes[opcode, 3]
        argument, place = _argument(data, place + 1, size)
        if size == UNKNOWN or kind == STOP or place > len(data):
            break
        if kind in (PUT, MEMOIZE):
            number = argument if kind == PUT else remembered
            farthest = max(farthest, number)
            if top == 0 or number < 0 or number > len(data):
                break
            if number >= len(memo):
                memo = _longer(memo, number)
            memo[number] = depths[top - 1]
            remembered += 1
            continue
        depth = 0
        if kind == GET:
            depth = memo[argument] if 0 <= argument < len(memo) else 0
        left = top - takes
        if takes < 0:  # down to a mark, and some more
            left = top - 1
            while left >= 0 and depths[left] >= 0:
                left -= 1
            left += takes + 1
        if left < 0:
            break
        for number in range(left, top):
            depth = max(depth, depths[number])
        if kind == TUPLE:
            depth += 1
        deepest = max(deepest, depth)
        if left + leaves > len(depths):
            depths = _longer(depths, left + leaves)
        for number in range(left, left + leaves):
            depths[number] = -1 if kind == MARK else depth
        top = left + leaves
    return deepest, farthest


@njit(cache=True)
def _longer(array, number):  # type: ignore[no-untyped-def]
    longer = np.zeros(2 * number + 2, dtype=np.int32)
    for place in range(len(array)):
        longer[place] = array[place]
    return longer


@njit(cache=True)
def _argument(data, place, size):  # type: ignore[no-untyped-def]
    """Return the argument that begins at a place, as far as it is a number, and where it ends."""
    if size in (LINE, TWO_LINES):
        number = 0
        for _ in range(1 if size == LINE else 2):
            while place < len(data) and data[place] != 10:
                if 48 <= data[place] <= 57 and number < 2**40:
                    number = 10 * number + (data[place] - 48)
                place += 1
            place += 1
        return number, place
    width = size
    if size < 0:  # the length comes first, in 1, 4 (signed or not) or 8 bytes
        width = 1 if size == -2 else 8 if size == -5 else 4
    number = 0
    for i in range(min(width, 7)):
        if place + i < len(data):
            number |= int(data[place + i]) << (8 * i)
    place += width
    if size < 0:
        place += min(number, len(data))
    return number, place
