"""Evaluate a query in a thread of its own: without a network, and not waited for after Ctrl-C.

pyoxigraph neither checks signals while it evaluates nor has an option against SERVICE.
"""

from __future__ import annotations

import ctypes
import platform
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from errno import EACCES
from itertools import islice
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
MAX_BATCH = 1024
WAITING_BATCHES = 4
CHECK_SECONDS = 0.5
SYSTEMS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # AUDIT_ARCH, socket()
CAN_DENY = sys.platform == "linux" and platform.machine() in SYSTEMS


def isolated(produce: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Iterate over what a function returns, in a thread that cannot open sockets.

    Ctrl-C raises at once where this is read; the thread ends with its next item, or the process.
    """
    batches: Queue[list[T] | BaseException] = Queue(WAITING_BATCHES)
    is_left = Event()

    def put(batch: list[T] | BaseException) -> None:
        is_put = False
        while not (is_put or is_left.is_set()):
            with suppress(Full):
                batches.put(batch, timeout=CHECK_SECONDS)
                is_put = True

    def work() -> None:
        deny_network()
        try:
            items, size = iter(produce()), 1
            while not is_left.is_set():
                batch = list(islice(items, size))
                put(batch)
                if not batch:
                    return
                size = min(2 * size, MAX_BATCH)
        except BaseException as error:
            put(error)

    Thread(target=work, name="query", daemon=True).start()
    try:
        while True:
            try:
                batch = batches.get(timeout=CHECK_SECONDS)  # the signal may go to any thread
            except Empty:
                continue
            if isinstance(batch, BaseException):
                raise batch
            if not batch:
                return
            yield from batch
    finally:
        is_left.set()


def deny_network() -> bool:
    """Deny this thread all sockets but Unix ones, for good; return whether the system can.

    Threads and processes that it starts later are denied them as well. A seccomp filter (Linux on
    x86-64 and ARM64) needs no privileges:
    https://docs.kernel.org/userspace-api/seccomp_filter.html
    """
    if not CAN_DENY:
        return False
    architecture, socket_call = SYSTEMS[platform.machine()]
    load, jump_if_equal, leave = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    program = [  # operation, jump if true, jump if false, operand; offsets in struct seccomp_data
        (load, 0, 0, 4),
        (jump_if_equal, 0, 5, architecture),
        (load, 0, 0, 0),
        (jump_if_equal, 0, 3, socket_call),
        (load, 0, 0, 16),
        (jump_if_equal, 1, 0, socket.AF_UNIX),
        (leave, 0, 0, 0x00050000 | EACCES),  # SECCOMP_RET_ERRNO
        (leave, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filter_ = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    no_new_privileges = (38, 1, 0, 0, 0)
    set_filter = (22, 2, ctypes.addressof(filter_), 0, 0)
    return all(prctl(*map(ctypes.c_ulong, call)) == 0 for call in (no_new_privileges, set_filter))
