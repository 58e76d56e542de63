"""What processes say to each other: nothing if there is one; the same to all if there are two.

torchrun starts this very file in the tests: torchrun --nproc-per-node 2 -m tests.test_parallel OUT
"""

import json
import math
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from betae import parallel
from betae.errors import ProcessLost, StoreError

ROOT = Path(__file__).parents[1]
ADVICE = "Put the kettle on."


# ---- one --------------------------------------------------------------------------------------


def test_one_process_is_alone():
    assert (parallel.process_number(), parallel.num_processes()) == (0, 1)
    values = torch.tensor([1.0, -2.0])
    assert parallel.sum_over_processes(values).tolist() == [1.0, -2.0]
    assert parallel.same_everywhere(0.1) == 0.1
    assert math.isnan(parallel.same_everywhere(float("nan")))
    parallel.wait_for_all()


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
    [StoreError("the disk is full"), ValueError("bad"), torch.OutOfMemoryError("memory")],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_ones_own_stay_as_they_are(error):
    with pytest.raises(type(error), match=str(error)), parallel.joined(ADVICE):
        raise error
    assert not dist.is_initialized()


@pytest.mark.usefixtures("_group")
def test_errors_of_the_connection_are_explained():
    with pytest.raises(ProcessLost) as info, parallel.joined(ADVICE):
        raise dist.DistBackendError("Connection closed by peer\nand a stack trace")
    assert str(info.value) == (
        f"Another process of this run has ended (Connection closed by peer). {ADVICE}"
    )
    assert isinstance(info.value.__cause__, dist.DistBackendError)
    assert not dist.is_initialized()


# ---- two --------------------------------------------------------------------------------------


def talk(out):
    """Say everything there is to say, write what was heard; then the second dies."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the other one: not too early
    me = int(os.environ["RANK"])
    heard = {"before": [parallel.process_number(), parallel.num_processes()]}
    try:
        with parallel.joined(ADVICE):
            heard["rank"], heard["size"] = parallel.process_number(), parallel.num_processes()
            doubles = torch.tensor([0.1 + me, 10.0], dtype=torch.float64)
            heard["sum"] = parallel.sum_over_processes(doubles).tolist()
            counts = torch.tensor([[2**40 + me], [me]])
            heard["counts"] = parallel.sum_over_processes(counts).tolist()
            heard["scalar"] = float(parallel.sum_over_processes(torch.tensor(1.5)))
            numbers = (1 / 3 + me, [math.inf, 0.0][me], float(me == 1))
            heard["same"] = [parallel.same_everywhere(number) for number in numbers]
            if me == 0:
                (out / "written").write_text("by the first")
            parallel.wait_for_all()
            heard["seen"] = (out / "written").read_text()
            (out / f"{me}.json").write_text(json.dumps(heard))
            parallel.wait_for_all()
            if me == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            parallel.same_everywhere(0.0)
            parallel.wait_for_all()
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


def test_two_know_their_numbers(heard):
    assert [each["before"] for each in heard] == [[0, 1], [0, 1]]
    assert [each["rank"] for each in heard] == [0, 1]
    assert [each["size"] for each in heard] == [2, 2]


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


def test_the_one_that_is_left_says_what_to_do(two):
    out, done = two
    assert done.returncode != 0
    message = (out / "lost").read_text()
    assert message.startswith("Another process of this run has ended (")
    assert message.endswith(f"). {ADVICE}")
    assert "\n" not in message


if __name__ == "__main__":
    talk(Path(sys.argv[1]))
