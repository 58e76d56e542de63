"""Blocks for the tests of clusters; the workers import this module, so it imports little."""

import os
import time
from functools import partial


def open_nothing():
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
    """Leave a file for each process that opens it, and for each block that begins and ends."""
    (folder / f"opened-{os.getpid()}").write_text("")
    return partial(note_block, folder, open_block())


def note_block(folder, function, numbered):
    import ray

    number, block = numbered
    name = f"{number}-{os.getpid()}-{ray.get_runtime_context().get_node_id()}"
    (folder / f"begun-{name}").write_text("")
    while (folder / "hold").exists():
        time.sleep(0.05)
    result = function(block)
    (folder / f"ended-{name}").write_text("")
    return result


def noted(folder, kind):
    """Return (number, process, node) of the blocks that have begun, or ended."""
    return {tuple(path.name.split("-")[1:]) for path in folder.glob(f"{kind}-*")}
