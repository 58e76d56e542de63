"""Read pickles of plain data from untrusted sources.

`pickle.Unpickler` with an allow-list (`find_class`) runs no code, but it is not enough: the
unpickler allocates as much room for its memo as the highest index in the pickle (up to 64 GiB), and
hashing tuples nested in tuples overflows the C stack. Neither can be intercepted from Python, and
the process dies of both. So a compiled pass over the opcodes first bounds memo indices and the
depth of tuples; it takes a small part of the time of loading.
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

MAX_TUPLE_DEPTH = 1000  # of tuples in tuples; those of a query are a handful
ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): set,
    ("builtins", "dict"): dict,
    ("builtins", "list"): list,
    ("builtins", "int"): int,
    ("builtins", "str"): str,
    ("collections", "defaultdict"): defaultdict,
}


class _PlainUnpickler(pickle.Unpickler):
    """Load containers, ints and strings only."""

    def find_class(self, module: str, name: str) -> Any:
        module = "builtins" if module == "__builtin__" else module  # written by Python 2
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it holds a {module}.{name}, which is not plain data")
        return ALLOWED[module, name]


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain containers, ints and strings; refuse anything else."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            raise pickle.UnpicklingError("it is compressed, unpack it with gunzip")
        _check_opcodes(content)
        return _PlainUnpickler(io.BytesIO(content)).load()
    except FileNotFoundError:
        raise TripleError("there is no such file.", path) from None
    except OSError as error:
        raise TripleError(f"it cannot be read: {error.strerror or error}.", path) from error
    except Exception as error:  # the unpickler can raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TripleError(f"not a valid pickle of plain data: {reason}.", path) from error


def shown(value: Any) -> str:
    """Return a short representation of any value, for messages."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # too many digits or levels
        return f"a very large {type(value).__name__}"
    return shortened(text)


def shortened(text: str) -> str:
    """Truncate a text for a message."""
    return text if len(text) <= 200 else f"{text[:200]}…"


# ---- opcodes ------------------------------------------------------------------------------------

LINE, TWO_LINES, UNKNOWN = -1, -7, -8  # sizes of arguments, beside pickletools' negative ones
OTHER, TUPLE, MARK, GET, PUT, MEMOIZE, STOP = range(7)
EFFECTS = {"MARK": MARK, "MEMOIZE": MEMOIZE, "STOP": STOP, "FROZENSET": TUPLE}
EFFECTS |= dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), TUPLE)
EFFECTS |= dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), GET)
EFFECTS |= dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), PUT)


@cache
def _opcodes() -> NDArray[np.int64]:
    """Build a table (256, 4): size of the argument, effect, number of items popped and pushed.

    Items popped down to a mark, and n more, are -1 - n.
    """
    table = np.zeros((256, 4), dtype=np.int64)
    table[:, 0] = UNKNOWN
    for opcode in pickletools.opcodes:
        size = opcode.arg.n if opcode.arg else 0
        if opcode.arg is pickletools.stringnl_noescape_pair:
            size = TWO_LINES
        popped = len(opcode.stack_before)
        if pickletools.markobject in opcode.stack_before:
            popped = -1 - opcode.stack_before.index(pickletools.markobject)
        effect = EFFECTS.get(opcode.name, OTHER)
        table[ord(opcode.code)] = size, effect, popped, len(opcode.stack_after)
    return table


def _check_opcodes(content: bytes) -> None:
    """Raise if loading a pickle would take far more memory or stack than its size."""
    # Room for the worst case; only pages that are used take memory.
    stack, memo = (np.zeros(len(content) + 4, dtype=np.int32) for _ in range(2))
    data = np.frombuffer(content, dtype=np.uint8)
    depth, memo_index = _largest(data, _opcodes(), stack, memo)
    if memo_index > len(content):
        raise pickle.UnpicklingError(f"it numbers an object {memo_index}, more than it can hold")
    if depth > MAX_TUPLE_DEPTH:
        raise pickle.UnpicklingError(
            f"it holds more than {MAX_TUPLE_DEPTH} tuples within each other"
        )


@njit(cache=True)
def _largest(data, opcodes, stack, memo):  # type: ignore[no-untyped-def]
    """Return the largest depth of nested tuples and the largest index in the memo.

    `stack` and `memo` hold depths, -1 for a mark. A broken pickle ends the pass early; the
    unpickler will report the error.
    """
    top, num_memoized, deepest, farthest, position = 0, 0, 0, 0, 0
    while position < len(data):
        size, effect, popped, pushed = opcodes[data[position]]
        argument, position = _argument(data, position + 1, size)
        if size == UNKNOWN or effect == STOP or position > len(data):
            break
        if effect in (PUT, MEMOIZE):
            index = argument if effect == PUT else num_memoized
            farthest = max(farthest, index)
            if top == 0 or index > len(data):
                break
            memo[index] = stack[top - 1]
            num_memoized += 1
            continue
        depth = memo[argument] if effect == GET and argument < len(memo) else 0
        left = top - popped
        if popped < 0:
            left = top - 1
            while left >= 0 and stack[left] >= 0:
                left -= 1
            left += popped + 1
        if left < 0:
            break
        for index in range(left, top):
            depth = max(depth, stack[index])
        depth += effect == TUPLE
        deepest = max(deepest, depth)
        stack[left : left + pushed] = -1 if effect == MARK else depth
        top = left + pushed
    return deepest, farthest


@njit(cache=True)
def _argument(data, position, size):  # type: ignore[no-untyped-def]
    """Return the argument at a position as an integer, if it is one, and the position after it."""
    number = 0
    if size in (LINE, TWO_LINES):
        for _ in range(1 if size == LINE else 2):
            while position < len(data) and data[position] != 10:
                if 48 <= data[position] <= 57 and number < 2**40:
                    number = 10 * number + (data[position] - 48)
                position += 1
            position += 1
        return number, position
    width = size
    if size < 0:  # the length comes first, in 1, 4 (signed or not) or 8 bytes
        width = 1 if size == -2 else 8 if size == -5 else 4
    for i in range(min(width, 7)):
        if position + i < len(data):
            number |= int(data[position + i]) << (8 * i)
    position += width
    if size < 0:
        position += min(number, len(data))
    return number, position
