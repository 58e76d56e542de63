"""Blocks for the tests of clusters; the workers import this module, so it imports little."""

import os
import time
from functools import partial


def open_negative():
    return negative


def negative(number):
    return -number


def open_identity():
    return identity


def identity(block):
    return block


def open_failing(kind):
    return partial(fail, kind)


def fail(kind, _):
    if kind is None:
        os._exit(1)
    raise kind("no use")


def open_noting(folder, open_block):
    """Leave a file for each process that opens it, and for each block that begins.

    To open it twice in a process is an error. No block ends while there is a file `hold`.
    """
    (folder / f"opened-{os.getpid()}").touch(exist_ok=False)
    return partial(note_block, folder, open_block())


def note_block(folder, function, numbered):
    import ray

    number, block = numbered
    node = ray.get_runtime_context().get_node_id()
    (folder / f"begun-{number}-{os.getpid()}-{node}").touch()
    while (folder / "hold").exists():
        time.sleep(0.05)
    return function(block)


def noted(folder, kind):
    """Return (process,) of those that opened it, or (number, process, node) of blocks begun."""
    return [tuple(path.name.split("-")[1:]) for path in folder.glob(f"{kind}-*")]
