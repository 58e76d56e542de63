"""The few things that several processes of one command say to each other (torch.distributed)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from betae.errors import ProcessLost


def process_number() -> int:
    """Return the number of this process; 0 writes and talks."""
    return dist.get_rank() if dist.is_initialized() else 0


def num_processes() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_one_of_several() -> bool:
    """Tell whether torchrun started this process among others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def joined(advice: str) -> Iterator[None]:
    """Join the processes that torchrun started, if it did; leave them at the end.

    `advice` says what to do when one of them dies.
    """
    if not is_one_of_several() or dist.is_initialized():
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
        dist.barrier()  # leave together: the first one writes longer than the others
    except (RuntimeError, dist.DistError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise ProcessLost(
            f"Another process of this run has ended ({str(error).splitlines()[0]}). {advice}"
        ) from error
    finally:
        dist.destroy_process_group()


def _device() -> str:
    """Return where tensors must be for this group of processes."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def wait_for_all() -> None:
    """Wait until every process is here."""
    if num_processes() > 1:
        dist.barrier()


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes."""
    if num_processes() > 1:
        values = values.to(_device())
        dist.all_reduce(values)
    return values


def same_everywhere(value: float) -> float:
    """Return process 0's value, for decisions that all must take alike."""
    if num_processes() == 1:
        return value
    tensor = torch.tensor([value], dtype=torch.float64, device=_device())
    dist.broadcast(tensor, src=0)
    return float(tensor)
