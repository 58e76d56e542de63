"""Threads of one process, and processes started by torchrun.

Importing this does not import torch, which exact answers do not need.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import count, pairwise
from threading import current_thread
from typing import TYPE_CHECKING, Any, TypeVar

from betae.errors import ProcessLost

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

Item = TypeVar("Item")
Result = TypeVar("Result")

ROWS_PER_THREAD = 64  # at least
POOL_NAME = "betae-pool"  # prefix of the names of its threads
# Words in plain RuntimeErrors of torch's backends when a peer is lost.
BACKEND_ERRORS = ("gloo", "nccl", "closed by peer", "reset by peer", "broken pipe")


# ---- threads ----------------------------------------------------------------------------------


def num_threads() -> int:
    """Return the number of cores of this process, at most as many as torch uses."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    num_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return num_cores if of_torch is None else min(num_cores, of_torch())


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return `function(item)` for every item, in order.

    The calling thread works too, so it never waits for a busy pool.
    """
    items = list(items)
    num_helpers = 0 if _is_in_pool() else min(num_threads(), len(items)) - 1
    if num_helpers < 1:
        return [function(item) for item in items]
    results: dict[int, Result] = {}
    indices = iter(range(len(items)))  # shared by the threads

    def work() -> None:
        try:
            for i in indices:
                results[i] = function(items[i])
        except BaseException:
            deque(indices, maxlen=0)  # exhaust it, so that no thread starts another item
            raise

    helpers = [_pool(os.getpid()).submit(work) for _ in range(num_helpers)]
    try:
        work()
    finally:
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)
    for helper in started:
        helper.result()  # re-raises its exception
    return [results[i] for i in range(len(items))]


def map_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `function(item)` for every item, in order, computing the next `num_threads()` ahead.

    `items` may be endless.
    """
    ahead = num_threads()
    if ahead == 1 or _is_in_pool():
        yield from map(function, items)
        return
    futures: deque[Future[Result]] = deque()
    try:
        for item in items:
            futures.append(_pool(os.getpid()).submit(function, item))
            if len(futures) > ahead:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        wait([future for future in futures if not future.cancel()])


def in_threads(kernel: Callable[..., None], *arrays: NDArray[Any]) -> None:
    """Run a kernel on blocks of rows of arrays of the same length."""
    num_rows = len(arrays[0])
    num_blocks = max(1, min(num_threads(), num_rows // ROWS_PER_THREAD))
    bounds = [num_rows * i // num_blocks for i in range(num_blocks + 1)]
    blocks = [slice(*pair) for pair in pairwise(bounds)]
    map_in_threads(lambda block: kernel(*(array[block] for array in arrays)), blocks)


def _is_in_pool() -> bool:
    """Tell whether this is a thread of the pool: waiting for the pool would deadlock."""
    return current_thread().name.startswith(POOL_NAME)


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return the thread pool; threads do not survive a fork, so each process has its own."""
    return ThreadPoolExecutor(os.cpu_count(), POOL_NAME)


# ---- processes --------------------------------------------------------------------------------


def process_index() -> int:
    """Return the index of this process; only process 0 writes and prints."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def num_processes() -> int:
    """Return the number of processes."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_initialized() else 1


def is_one_of_several() -> bool:
    """Tell whether torchrun started this process among others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


_groups = count()  # joined by this process so far


@cache
def _rendezvous() -> tuple[Any, int, int]:
    """Return the rendezvous store, the index of this process, and the number of processes.

    One store for the life of the process. Process 0 may serve it: with a store for each group, a
    process could connect to the last group's just before it closes, and wait forever.
    """
    from torch.distributed.rendezvous import rendezvous

    store, index, size = next(rendezvous("env://"))
    return store, index, size


@contextmanager
def joined(advice: str) -> Iterator[None]:
    """Join the process group of torchrun, if there is one, and leave it at the end.

    Nested uses do nothing. `advice` ends the error that is raised when another process dies.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    if not is_one_of_several() or dist.is_initialized():
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # Keys are prefixed by group: the first process would otherwise find the addresses of an earlier
    # group, and wait for them forever.
    store, index, size = _rendezvous()
    store = PrefixStore(f"betae/{next(_groups)}", store)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=index, world_size=size)
    try:
        yield
        dist.barrier()  # leave together: process 0 writes longer than the others
    except RuntimeError as error:
        text = str(error).lower()
        is_named = type(error) is RuntimeError and any(name in text for name in BACKEND_ERRORS)
        if not (is_named or isinstance(error, dist.DistError)):
            raise
        raise ProcessLost(
            f"Another process of this run has ended ({str(error).splitlines()[0]}). {advice}"
        ) from error
    finally:
        dist.destroy_process_group()


def _device() -> str:
    """Return the device of tensors exchanged by this process group."""
    import torch.distributed as dist

    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes."""
    import torch.distributed as dist

    if num_processes() > 1:
        values = values.to(_device())
        dist.all_reduce(values)
    return values


def from_all(value: Item) -> list[Item]:
    """Gather a picklable value from all processes, in order."""
    import torch.distributed as dist

    if num_processes() == 1:
        return [value]
    values: list[Any] = [None] * num_processes()
    dist.all_gather_object(values, value)
    return values


def same_everywhere(value: float) -> float:
    """Broadcast process 0's value, for decisions that all processes must share."""
    import torch
    import torch.distributed as dist

    if num_processes() == 1:
        return value
    tensor = torch.tensor([value], dtype=torch.float64, device=_device())
    dist.broadcast(tensor, src=0)
    return float(tensor)
