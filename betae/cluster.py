"""Batch work in blocks, in this process or as tasks on a Ray cluster.

A block holds questions only. The graph and the tables are loaded by `open`, which each worker
process calls once; graphs and runs pickle as the paths of their folders, so `open` is small. Blocks
of a node that dies are run again by Ray.
"""

from __future__ import annotations

import os
import pickle
import platform
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import lru_cache, partial
from itertools import islice
from typing import Any, TypeVar

from betae.checks import needing
from betae.errors import BetaeError, ClusterError, InvalidArgument
from betae.parallel import Item, Result, num_threads

Opened = TypeVar("Opened")  # what a worker loads, once

BLOCKS_PER_WORKER = 3  # submitted at a time: results are used in order, so some wait
RETRIES = 5  # of a block whose worker process or node dies
CONNECT_TIMEOUT = 3.0  # seconds
NODE_CHECK_SECONDS = 1.0
OBJECT_STORE = 256 * 2**20  # bytes, of a local cluster: blocks and results are small
RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray announces a change of its defaults
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # else it prints a dead node's log to standard output
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of blocks whose results are no longer needed
    "RAY_worker_niceness": "0",  # of a local cluster, whose workers do this process's work
}


def map_blocks(
    open: Callable[[], Opened],
    function: Callable[[Opened, Item], Result],
    blocks: Iterable[Item],
    cluster: Cluster | None = None,
) -> Iterator[Result]:
    """Yield `function(open(), block)` for every block, in order, from this process or a cluster.

    On a cluster, `open` is pickled and called once in each worker process. Only a few blocks are
    submitted at a time, so `blocks` may be endless.
    """
    opener = partial(_bind, open, function)
    return map(opener(), blocks) if cluster is None else cluster.map(opener, blocks)


def _bind(open: Callable[[], Any], function: Callable[..., Result]) -> Callable[..., Result]:
    return partial(function, open())


class Cluster(AbstractContextManager["Cluster"]):
    """Connection to a Ray cluster; a context manager that closes it.

    `address` is HOST:PORT as printed by `ray start --head`, `auto` for the cluster that RAY_ADDRESS
    names or that runs on this machine, or `local` for worker processes of this machine alone. A
    process that is connected to Ray already keeps that connection. `notify` is called when a node
    is lost.
    """

    def __init__(self, address: str, notify: Callable[[str], None] = lambda _: None):
        self.ray = _import_ray()
        self.notify = notify
        self._is_mine = not self.ray.is_initialized()
        if self._is_mine:
            _connect(self.ray, address)
        self._checked = time.monotonic()
        self._alive = self._nodes()
        if not self.num_workers:
            self.close()
            raise ClusterError(f"The Ray cluster {address} has no CPU: add a node to it.")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; a cluster that was started for this process (`local`) is stopped."""
        if self._is_mine:
            self.ray.shutdown()

    @property
    def num_workers(self) -> int:
        """Number of blocks that can run at a time: one for each CPU of the nodes alive."""
        return sum(int(node["Resources"].get("CPU", 0)) for node in self._alive.values())

    def __str__(self) -> str:
        counts = {"node": len(self._alive), "worker": self.num_workers}
        return ", ".join(f"{n:,} {what}{'' if n == 1 else 's'}" for what, n in counts.items())

    def map(
        self, open: Callable[[], Callable[[Item], Result]], blocks: Iterable[Item]
    ) -> Iterator[Result]:
        """Yield `open()(block)` for every block, in order: see `map_blocks`."""
        task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(_run_block)
        opener, rest = pickle.dumps(open), iter(blocks)  # small, so it goes with each block
        # Blocks still running when the caller stops early are left to end by themselves:
        # `ray.cancel` of a block that ends at that moment aborts this process (Ray 2.60).
        running: deque[Any] = deque()
        while True:
            room = max(1, BLOCKS_PER_WORKER * self.num_workers) - len(running)
            running.extend(task.remote(opener, block) for block in islice(rest, max(0, room)))
            if not running:
                return
            result = self._result(running[0])
            running.popleft()
            yield result

    def _result(self, task: Any) -> Any:
        """Wait for the result of a block, watching for lost nodes meanwhile."""
        is_done: list[Any] = []
        while not is_done:
            is_done, _ = self.ray.wait([task], timeout=NODE_CHECK_SECONDS)
            if time.monotonic() - self._checked > NODE_CHECK_SECONDS:
                self._report_lost_nodes()
        try:
            return self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BetaeError):
                raise error.cause from None
            if "No module named 'betae'" in str(error):
                raise ClusterError(
                    "A node of the Ray cluster has no betae: install the same version on each."
                ) from None
            raise
        except self.ray.exceptions.RayError as error:
            raise ClusterError(
                f"A block was tried {RETRIES + 1} times, and each time its process or node died "
                f"({str(error).splitlines()[0]}). Do the nodes have enough memory? Each worker "
                "loads the tables of the model."
            ) from error

    def _report_lost_nodes(self) -> None:
        before, self._alive = self._alive, self._nodes()
        self._checked = time.monotonic()
        for lost in before.keys() - self._alive.keys():
            name = f"{before[lost]['NodeManagerAddress']} ({lost[:8]})"
            left = f"{self} left" if self.num_workers else "none is left, so they wait for one"
            self.notify(f"node {name} is lost; its blocks run again elsewhere: {left}")

    def _nodes(self) -> dict[str, Any]:
        return {node["NodeID"]: node for node in self.ray.nodes() if node["Alive"]}


# ---- connecting -------------------------------------------------------------------------------


def _import_ray() -> Any:
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with needing("Ray", "ray"):
        import ray
    return ray


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one on this machine's cores."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = (os.environ.get("RAY_ADDRESS") or address) if address == "auto" else address
    failure = f"The Ray cluster {address} cannot be joined"
    if address == "local":
        options |= {"num_cpus": num_threads(), "object_store_memory": OBJECT_STORE}
        options |= {"include_dashboard": False}
        failure = "The local Ray cluster cannot be started"
    elif address == "auto":
        failure = "No Ray cluster runs on this machine: `ray start --head`, or use --ray local"
    else:
        _check_head(address)
    try:
        ray.init(address, **options)
    except Exception as error:  # Ray raises plain ones, too
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ClusterError(f"{failure} ({reason}).") from error


def _check_head(address: str) -> None:
    """Raise within seconds if the address is not a head node's; Ray would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise InvalidArgument(f"A Ray address is HOST:PORT, auto or local, not {address!r}.")
    try:
        connection = socket.create_connection((host, int(port)), CONNECT_TIMEOUT)
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"Could not connect to {address} ({error}). Start a cluster with `ray start --head` "
            "and use the address that it prints."
        ) from error
    # A head node sends first, unless it expects a TLS handshake; HTTP servers wait for the client.
    # At ray:// a proxy may wait, too.
    if address.startswith("ray://") or os.environ.get("RAY_USE_TLS", "0") != "0":
        connection.close()
        return
    with connection, suppress(OSError):
        if connection.recv(1):
            return
    raise ClusterError(f"{address} is not a Ray head node.")


# ---- in a worker process ----------------------------------------------------------------------


def _run_block(opener: bytes, block: Any) -> Any:
    return _opened(opener)(block)


@lru_cache(maxsize=1)
def _opened(opener: bytes) -> Callable[[Any], Any]:
    """Load what the blocks need, once in this process, which has one core."""
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported
    # An interrupt is for the command, which ends its workers; here it would break off imports.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        function: Callable[[Any], Any] = pickle.loads(opener)()
    except BetaeError as error:
        raise ClusterError(
            f"Node {platform.node()} cannot work: {error} Every node needs the run and the graph "
            "at the same path, in a shared folder, or at an address such as s3://bucket/run."
        ) from error
    return function
