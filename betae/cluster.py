"""Work cut into blocks, which run in this process or as tasks on the nodes of a Ray cluster.

A block holds questions only. What it takes to answer them, the graph and the tables, is loaded by
`open`, which each worker process calls once; graphs and runs pickle as the places of their folders,
so `open` is small. When a node dies, Ray runs its blocks again on another.
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
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from betae.errors import BetaeError, ClusterError, InvalidArgument
from betae.parallel import num_threads

Block = TypeVar("Block")
Result = TypeVar("Result")
Open = Callable[[], Callable[[Block], Result]]

BLOCKS_OF_A_WORKER = 3  # under way: results are used in order, so some wait for an earlier one
RETRIES = 5  # of a block whose worker process or node dies
SECONDS_TO_CONNECT = 3.0
SECONDS_BETWEEN_LOOKS = 1.0  # at the nodes that are alive
OBJECT_STORE = 256 * 2**20  # bytes, of a local cluster: blocks and results are small
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray announces a change of its defaults
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # else it prints a dead node's log to standard output
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of blocks that nobody waits for any more
}
# How a gRPC client greets its server; Ray's answers with a frame of settings.
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HTTP2_SETTINGS = 4  # the type of that frame


def map_blocks(
    open: Open[Block, Result], blocks: Iterable[Block], cluster: Cluster | None = None
) -> Iterator[Result]:
    """Yield `open()(block)` of every block, in order, from this process or from a cluster.

    On a cluster, `open` is pickled, and called once in each worker process. A few blocks are under
    way at a time, so `blocks` may be endless.
    """
    if cluster is None:
        yield from map(open(), blocks)
    else:
        yield from cluster.map(open, blocks)


class Cluster:
    """A connection to a Ray cluster, closed at the end of a `with`.

    `address` is that of a cluster (`host:6379`, as `ray start --head` prints it), `auto` for the
    one that runs on this machine or that RAY_ADDRESS names, or `local` for worker processes of this
    machine alone. A process that is connected to Ray already keeps that connection. `say` is told
    when a node is lost.
    """

    def __init__(self, address: str, say: Callable[[str], None] = lambda _: None):
        self.ray = _import_ray()
        self.say = say
        self._is_mine = not self.ray.is_initialized()
        if self._is_mine:
            _connect(self.ray, address)
        self._seen = time.monotonic()
        self._alive = self._nodes()
        if not self.num_workers:
            self.close()
            raise ClusterError(f"The Ray cluster {address} has no CPU: add a node to it.")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; end it if it was started for this process (`local`)."""
        if self._is_mine:
            self.ray.shutdown()

    @property
    def num_nodes(self) -> int:
        """The nodes that are alive."""
        return len(self._alive)

    @property
    def num_workers(self) -> int:
        """The blocks that can run at a time: one for each CPU of the nodes that are alive."""
        return sum(int(node["Resources"].get("CPU", 0)) for node in self._alive.values())

    def __str__(self) -> str:
        return f"{_number(self.num_nodes, 'node')}, {_number(self.num_workers, 'worker')}"

    def map(self, open: Open[Block, Result], blocks: Iterable[Block]) -> Iterator[Result]:
        """Yield the result of every block, in order: see `map_blocks`."""
        task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(_do_block)
        opener, rest = pickle.dumps(open), iter(blocks)  # small, so it goes with each block
        # The few that are still ahead when the caller has enough are left to end by themselves:
        # `ray.cancel` of a block that ends at that moment aborts this process (Ray 2.60).
        ahead: deque[Any] = deque()
        while True:
            room = max(1, BLOCKS_OF_A_WORKER * self.num_workers) - len(ahead)
            ahead.extend(task.remote(opener, block) for block in islice(rest, max(0, room)))
            if not ahead:
                return
            result = self._result(ahead[0])
            ahead.popleft()
            yield result

    def _result(self, task: Any) -> Any:
        """Wait for the result of a block, and watch the nodes meanwhile."""
        while True:
            is_done, _ = self.ray.wait([task], timeout=SECONDS_BETWEEN_LOOKS)
            if time.monotonic() - self._seen > SECONDS_BETWEEN_LOOKS:
                self._look_for_lost_nodes()
            if is_done:
                break
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
                f"A block was tried {RETRIES + 1} times, and each time the process or node that it "
                f"ran on died ({str(error).splitlines()[0]}). Do the nodes have enough memory? "
                "Each worker loads the tables of the model."
            ) from error

    def _look_for_lost_nodes(self) -> None:
        before, self._alive = self._alive, self._nodes()
        self._seen = time.monotonic()
        for lost in before.keys() - self._alive.keys():
            place = f"{before[lost]['NodeManagerAddress']} ({lost[:8]})"
            left = f"{self} left" if self.num_workers else "none is left, so they wait for one"
            self.say(f"node {place} is lost; its blocks run again elsewhere: {left}")

    def _nodes(self) -> dict[str, Any]:
        return {node["NodeID"]: node for node in self.ray.nodes() if node["Alive"]}


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


# ---- connecting -------------------------------------------------------------------------------


def _import_ray() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise InvalidArgument("Ray is not installed: pip install 'betae[ray]'") from error
    return ray


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one of this machine's cores."""
    options: dict[str, Any] = {}
    if address == "local":
        options = {
            "num_cpus": num_threads(),
            "object_store_memory": OBJECT_STORE,
            "include_dashboard": False,
            "_system_config": {"worker_niceness": 0},  # they do the work of this process
        }
    else:
        address = _running() if address == "auto" else address
        _check_listens(address)
    try:
        ray.init(address, **options, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises plain ones, too
        what = (str(error) or type(error).__name__).splitlines()[0]
        verb = "started" if address == "local" else "joined"
        raise ClusterError(f"The Ray cluster {address} cannot be {verb}: {what}") from error


def _running() -> str:
    """Return the address of the cluster that RAY_ADDRESS names, or that runs on this machine."""
    # Ray's public functions try for minutes to join one that has ended.
    from ray._private.services import get_ray_address_from_environment

    try:
        address: str = get_ray_address_from_environment("auto", None)
    except ConnectionError as error:
        raise ClusterError(
            "No Ray cluster runs on this machine, and RAY_ADDRESS names none. Start one with "
            "`ray start --head`, or use --ray local."
        ) from error
    return address


def _check_listens(address: str) -> None:
    """Raise within seconds unless Ray may be listening; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise InvalidArgument(f"A Ray address is HOST:PORT, auto or local, not {address!r}.")
    try:
        with socket.create_connection((host, int(port)), SECONDS_TO_CONNECT) as connection:
            connection.settimeout(SECONDS_TO_CONNECT)
            connection.sendall(HTTP2_GREETING)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"Nobody listens at {address} ({error}). Start a cluster with `ray start --head` and "
            "use the address that it prints."
        ) from error
    if len(answer) < 4 or answer[3] != HTTP2_SETTINGS:
        raise ClusterError(f"What listens at {address} is not Ray.")


# ---- in a worker process ----------------------------------------------------------------------


def _do_block(opener: bytes, block: Any) -> Any:
    return _opened(opener)(block)


@lru_cache(maxsize=1)
def _opened(opener: bytes) -> Callable[[Any], Any]:
    """Load what the blocks need, once in this process, which has one core."""
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported
    # An interrupt is for the command, which ends its workers; here it would end imports half-way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        function: Callable[[Any], Any] = pickle.loads(opener)()
    except BetaeError as error:
        raise ClusterError(
            f"Node {platform.node()} cannot work: {error} Every node needs the run and the graph "
            "at the same path, in a shared folder, or at an address such as s3://bucket/run."
        ) from error
    return function
