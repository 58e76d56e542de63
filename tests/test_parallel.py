"""Threads that share work, and processes that talk: one has nothing to say, two hear the same.

torchrun starts this very file in the tests: torchrun --nproc-per-node 2 -m tests.test_parallel OUT
"""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from betae import parallel
from betae.errors import ProcessLost, StoreError

ROOT = Path(__file__).parents[1]
ADVICE = "Put the kettle on."


# ---- threads ----------------------------------------------------------------------------------


@pytest.fixture
def four(monkeypatch):
    """Four threads, whatever this machine has."""
    monkeypatch.setattr(parallel, "num_threads", lambda: 4)
    monkeypatch.setattr(parallel.os, "cpu_count", lambda: 4)
    parallel._pool.cache_clear()
    yield
    parallel._pool.cache_clear()


def meet(barrier):
    """Return only once as many threads are here as the barrier is for."""
    barrier.wait(timeout=10)
    return threading.current_thread().name


@pytest.mark.usefixtures("four")
def test_results_come_in_order():
    def slowly(number):
        time.sleep(0.002 * (number % 3))
        return number**2

    assert parallel.map_in_threads(slowly, range(50)) == [number**2 for number in range(50)]
    assert list(parallel.map_ahead(slowly, range(50))) == [number**2 for number in range(50)]
    assert parallel.map_in_threads(slowly, []) == []
    assert list(parallel.map_ahead(slowly, [])) == []


@pytest.mark.usefixtures("four")
def test_as_many_work_at_once_as_there_are_threads():
    names = parallel.map_in_threads(meet, [threading.Barrier(4)] * 4)
    assert len(set(names)) == 4
    assert threading.current_thread().name in names  # the caller works too
    assert len(set(parallel.map_ahead(meet, [threading.Barrier(4)] * 4))) == 4


@pytest.mark.usefixtures("four")
def test_no_more_are_computed_ahead_than_there_are_threads():
    begun = []
    results = parallel.map_ahead(lambda number: begun.append(number) or number, count())
    assert next(results) == 0
    time.sleep(0.05)
    assert len(begun) <= 5  # the one that was taken, and four ahead
    results.close()
    assert sorted(begun) == list(range(len(begun)))


@pytest.mark.parametrize("number", [1, 63, 64, 127, 128, 1000])
@pytest.mark.usefixtures("four")
def test_blocks_of_rows_cover_the_arrays_once(number):
    rows, counts = np.arange(number), np.zeros(number)

    def kernel(ids, out):
        assert len(ids) == len(out) >= min(number, parallel.ROWS_PER_THREAD)
        out += ids + 1

    parallel.in_threads(kernel, rows, counts)
    assert np.array_equal(counts, rows + 1)


@pytest.mark.parametrize("bad", [0, 7, 49])
@pytest.mark.usefixtures("four")
def test_errors_come_to_the_caller_and_end_the_work(bad):
    done = []

    def fail(number):
        if number == bad:
            raise ZeroDivisionError(f"number {bad}")
        time.sleep(0.001)
        done.append(number)

    with pytest.raises(ZeroDivisionError, match=f"number {bad}"):
        parallel.map_in_threads(fail, range(50))
    assert len(done) <= bad + 4
    with pytest.raises(ZeroDivisionError, match=f"number {bad}"):
        list(parallel.map_ahead(fail, range(50)))
    assert parallel.map_in_threads(str, range(3)) == ["0", "1", "2"]  # the pool is still good


@pytest.mark.parametrize("inner", [parallel.map_in_threads, parallel.map_ahead])
@pytest.mark.parametrize("outer", [parallel.map_in_threads, parallel.map_ahead])
@pytest.mark.usefixtures("four")
def test_work_within_work_does_not_wait_for_ever(outer, inner):
    """Every thread of the pool is in the outer call; the inner one must not need another."""

    def row(number):
        return list(inner(lambda other: number * other, range(20)))

    table = in_time(lambda: list(outer(row, range(20))))
    assert table == [[number * other for other in range(20)] for number in range(20)]


def in_time(function, seconds=20):
    """Call a function in a thread; fail if it hangs."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    return results[0]


@pytest.mark.usefixtures("four")
def test_a_busy_pool_keeps_nobody_waiting():
    free = threading.Event()
    busy = parallel.map_ahead(lambda _: free.wait(10), range(8))
    others = threading.Thread(target=next, args=(busy,))
    others.start()
    while len(parallel._pool(os.getpid())._threads) < 4:
        time.sleep(0.001)
    assert in_time(lambda: parallel.map_in_threads(str, range(8))) == list("01234567")
    free.set()
    others.join()
    busy.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.usefixtures("four")
def test_the_pool_works_after_a_fork():
    assert parallel.map_in_threads(meet, [threading.Barrier(4)] * 4)  # it has threads now
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork of a process with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            names = parallel.map_in_threads(meet, [threading.Barrier(4)] * 4)
            ahead = list(parallel.map_ahead(str, range(9)))
            code = 0 if len(set(names)) == 4 and ahead == list("012345678") else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_threads_follow_the_affinity_and_torch(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert parallel.num_threads() == 3
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert parallel.num_threads() == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4}, raising=False)
    assert parallel.num_threads() == 1
    caller = threading.current_thread().name
    names = parallel.map_in_threads(lambda _: threading.current_thread().name, range(9))
    assert set(names) == {caller}


def test_exact_answers_do_without_torch():
    code = (
        "import os, sys; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from betae import parallel; import betae.exact.answers, betae.querysets.sample\n"
        "assert 'torch' not in sys.modules; print(parallel.num_threads())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


# ---- one --------------------------------------------------------------------------------------


def test_one_process_is_alone():
    assert (parallel.process_index(), parallel.num_processes()) == (0, 1)
    values = torch.tensor([1.0, -2.0])
    assert parallel.sum_over_processes(values).tolist() == [1.0, -2.0]
    assert parallel.same_everywhere(0.1) == 0.1
    assert math.isnan(parallel.same_everywhere(float("nan")))
    parallel.from_all(None)


@pytest.mark.parametrize("size", [None, "1"])
def test_one_process_joins_nobody(monkeypatch, size):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    assert not parallel.is_one_of_several()
    with parallel.joined(ADVICE):
        assert not dist.is_initialized()
    with pytest.raises(RuntimeError, match="my own mistake"), parallel.joined(ADVICE):
        raise RuntimeError("my own mistake")


# ---- a group of one, as if torchrun had started more -------------------------------------------


@pytest.fixture
def _group(monkeypatch):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    place = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(parallel, "is_one_of_several", lambda: True)


@pytest.mark.usefixtures("_group")
def test_the_group_is_left_at_the_end():
    with parallel.joined(ADVICE):
        assert dist.is_initialized()
        with parallel.joined("not asked"):  # already there
            assert dist.is_initialized()
        assert dist.is_initialized()
    assert not dist.is_initialized()


@pytest.mark.usefixtures("_group")
@pytest.mark.parametrize(
    "error",
    [
        StoreError("the disk is full"),
        ValueError("bad"),
        torch.OutOfMemoryError("memory"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        NotImplementedError("not by gloo"),  # a RuntimeError too
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_ones_own_stay_as_they_are(error):
    with pytest.raises(type(error), match=str(error)), parallel.joined(ADVICE):
        raise error
    assert not dist.is_initialized()


@pytest.mark.usefixtures("_group")
def test_a_mistake_in_the_maths_stays_as_it_is():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), parallel.joined(ADVICE):
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not dist.is_initialized()


@pytest.mark.usefixtures("_group")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (dist.DistBackendError, "Connection closed by peer"),
        (dist.DistNetworkError, "The client socket has timed out"),
        (dist.DistStoreError, "wait timeout"),
        (RuntimeError, "[gloo/transport/tcp/pair.cc:538] Read error [127.0.0.1]:1"),
        (RuntimeError, "Connection reset by peer"),
        (RuntimeError, "NCCL communicator was aborted on rank 1."),
    ],
)
def test_errors_of_the_connection_are_explained(kind, text):
    with pytest.raises(ProcessLost) as info, parallel.joined(ADVICE):
        raise kind(f"{text}\nand a stack trace")
    assert str(info.value) == f"Another process of this run has ended ({text}). {ADVICE}"
    assert isinstance(info.value.__cause__, kind)
    assert not dist.is_initialized()


# ---- two --------------------------------------------------------------------------------------


def talk(out):
    """Say everything there is to say, write what was heard; then the second dies."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the other one: not too early
    me = int(os.environ["RANK"])
    heard = {"before": [parallel.process_index(), parallel.num_processes()], "groups": []}
    for number in range(20):
        with parallel.joined(ADVICE):
            heard["groups"].append(float(parallel.sum_over_processes(torch.tensor(1.0 + number))))
        time.sleep(0.02 if me == number % 2 else 0)  # each comes first to every other one
    try:
        with parallel.joined(ADVICE):
            heard["rank"], heard["size"] = parallel.process_index(), parallel.num_processes()
            doubles = torch.tensor([0.1 + me, 10.0], dtype=torch.float64)
            heard["sum"] = parallel.sum_over_processes(doubles).tolist()
            counts = torch.tensor([[2**40 + me], [me]])
            heard["counts"] = parallel.sum_over_processes(counts).tolist()
            heard["scalar"] = float(parallel.sum_over_processes(torch.tensor(1.5)))
            numbers = (1 / 3 + me, [math.inf, 0.0][me], float(me == 1))
            heard["same"] = [parallel.same_everywhere(number) for number in numbers]
            if me == 0:
                (out / "written").write_text("by the first")
            parallel.from_all(None)
            heard["seen"] = (out / "written").read_text()
            (out / f"{me}.json").write_text(json.dumps(heard))
            parallel.from_all(None)
            if me == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            parallel.same_everywhere(0.0)
            parallel.from_all(None)
    except ProcessLost as error:
        (out / "lost").write_text(str(error))
        assert not dist.is_initialized()
        sys.exit(2)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes heard, and how they ended."""
    out = tmp_path_factory.mktemp("two")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", "-m", "tests.test_parallel", str(out)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        check=False,
    )
    return out, done


@pytest.fixture
def heard(two):
    out, done = two
    files = [out / "0.json", out / "1.json"]
    assert all(file.is_file() for file in files), done.stderr[-2000:]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.slow
def test_two_may_join_and_leave_many_times(two):
    out, done = two
    for rank in range(2):
        heard = json.loads((out / f"{rank}.json").read_text())
        assert heard["groups"] == [2.0 + 2 * number for number in range(20)], done.stderr


@pytest.mark.slow
def test_two_know_their_numbers(heard):
    assert [each["before"] for each in heard] == [[0, 1], [0, 1]]
    assert [each["rank"] for each in heard] == [0, 1]
    assert [each["size"] for each in heard] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("sum", [1.2000000000000002, 20.0]),
        ("counts", [[2**41 + 1], [1]]),
        ("scalar", 3.0),
        ("same", [1 / 3, math.inf, 0.0]),  # what the first said, to the last bit
        ("seen", "by the first"),
    ],
)
def test_two_hear_the_same(heard, key, expected):
    assert [each[key] for each in heard] == [expected, expected]


@pytest.mark.slow
def test_the_one_that_is_left_says_what_to_do(two):
    out, done = two
    assert done.returncode != 0
    message = (out / "lost").read_text()
    assert message.startswith("Another process of this run has ended (")
    assert message.endswith(f"). {ADVICE}")
    assert "\n" not in message


if __name__ == "__main__":
    talk(Path(sys.argv[1]))
