"""Work shared among threads of one process, and among processes that torchrun started.

Importing this does not import torch: exact answers need threads, but not torch.
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
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar

from betae.errors import ProcessLost

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

Item = TypeVar("Item")
Result = TypeVar("Result")

ROWS_OF_A_THREAD = 64  # fewer are not worth a thread
# How the backends name themselves, or a lost peer, in errors that have no class of their own.
OF_A_BACKEND = ("gloo", "nccl", "closed by peer", "reset by peer", "broken pipe")


# ---- threads ----------------------------------------------------------------------------------


def num_threads() -> int:
    """Return how many threads to use: the cores of this process, and no more than torch uses."""
    if hasattr(os, "sched_getaffinity"):
        number = len(os.sched_getaffinity(0))
    else:
        number = os.cpu_count() or 1
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return number if of_torch is None else min(number, of_torch())


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return `function(item)` of every item, in order.

    The calling thread works too, so it never waits for a busy pool.
    """
    items = list(items)
    num_helpers = 0 if _is_in_pool() else min(num_threads(), len(items)) - 1
    if num_helpers < 1:
        return [function(item) for item in items]
    results: dict[int, Result] = {}
    numbers = iter(range(len(items)))  # the threads share it

    def work() -> None:
        try:
            for number in numbers:
                results[number] = function(items[number])
        except BaseException:
            deque(numbers, maxlen=0)  # use them up: nobody need begin another
            raise

    helpers = [_pool(os.getpid()).submit(work) for _ in range(num_helpers)]
    try:
        work()
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()  # raises what it raised
    return [results[number] for number in range(len(items))]


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], at_once: int | None = None
) -> Iterator[Result]:
    """Yield `function(item)` of every item, in order, while the next few are made ahead.

    `at_once` items [`num_threads()`] are made ahead while the caller uses one. There may be no end
    of items.
    """
    at_once = at_once or num_threads()
    if at_once == 1 or _is_in_pool():
        yield from map(function, items)
        return
    ahead: deque[Future[Result]] = deque()
    try:
        for item in items:
            ahead.append(_pool(os.getpid()).submit(function, item))
            if len(ahead) > at_once:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        wait([future for future in ahead if not future.cancel()])


def in_threads(kernel: Callable[..., None], *arrays: NDArray[Any]) -> None:
    """Run a kernel on blocks of rows of all arrays, which have the same length."""
    num_rows = len(arrays[0])
    num_blocks = max(1, min(num_threads(), num_rows // ROWS_OF_A_THREAD))
    bounds = [num_rows * number // num_blocks for number in range(num_blocks + 1)]
    blocks = [slice(*pair) for pair in pairwise(bounds)]
    map_in_threads(lambda block: kernel(*(array[block] for array in arrays)), blocks)


_thread = local()


def _is_in_pool() -> bool:
    """Tell whether this is a thread of the pool, which must not wait for others of the pool."""
    return getattr(_thread, "is_in_pool", False)


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return the pool of a process: threads do not survive a fork, so a child needs its own."""

    def mark() -> None:
        _thread.is_in_pool = True

    return ThreadPoolExecutor(os.cpu_count(), "betae", mark)


# ---- processes --------------------------------------------------------------------------------


def process_number() -> int:
    """Return the number of this process; only number 0 writes and prints."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def num_processes() -> int:
    """Return the number of processes."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_initialized() else 1


def is_one_of_several() -> bool:
    """Tell whether torchrun started this process among others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


_groups = count()  # that this process has joined


@cache
def _meeting_point() -> tuple[Any, int, int]:
    """Return the store by which processes meet, the number of this one, and how many they are.

    One for as long as the process lives. Process 0 may be its server: if each group had one of its
    own, a process could come to that of the last group just before it is closed, and be left alone.
    """
    from torch.distributed.rendezvous import rendezvous

    store, number, size = next(rendezvous("env://"))
    return store, number, size


@contextmanager
def joined(advice: str) -> Iterator[None]:
    """Join the processes that torchrun started, if it did, and leave them at the end.

    Within another `joined` it does nothing. `advice` says what to do when one of them dies.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    if not is_one_of_several() or dist.is_initialized():
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # Each group has keys of its own: in those of an earlier one, a process that comes first would
    # find the addresses of the others as they were then, and wait for them forever.
    store, number, size = _meeting_point()
    store = PrefixStore(f"betae/{next(_groups)}", store)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=number, world_size=size)
    try:
        yield
        dist.barrier()  # leave together: the first one writes longer than the others
    except RuntimeError as error:
        if not _is_of_connection(error):
            raise
        raise ProcessLost(
            f"Another process of this run has ended ({str(error).splitlines()[0]}). {advice}"
        ) from error
    finally:
        dist.destroy_process_group()


def _is_of_connection(error: RuntimeError) -> bool:
    """Tell an error of torch.distributed from any other, which is this process's own."""
    import torch.distributed as dist

    text = str(error).lower()
    is_named = type(error) is RuntimeError and any(name in text for name in OF_A_BACKEND)
    return isinstance(error, dist.DistError) or is_named


def _device() -> str:
    """Return where tensors must be for this group of processes."""
    import torch.distributed as dist

    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def wait_for_all() -> None:
    """Wait until every process is here."""
    import torch.distributed as dist

    if num_processes() > 1:
        dist.barrier()


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes."""
    import torch.distributed as dist

    if num_processes() > 1:
        values = values.to(_device())
        dist.all_reduce(values)
    return values


def from_all(value: Item) -> list[Item]:
    """Return the values of all processes, in order; they can be pickled."""
    import torch.distributed as dist

    if num_processes() == 1:
        return [value]
    values: list[Any] = [None] * num_processes()
    dist.all_gather_object(values, value)
    return values


def same_everywhere(value: float) -> float:
    """Return process 0's value, for what all processes must decide alike."""
    import torch
    import torch.distributed as dist

    if num_processes() == 1:
        return value
    tensor = torch.tensor([value], dtype=torch.float64, device=_device())
    dist.broadcast(tensor, src=0)
    return float(tensor)
