"""The few things that several processes of one run say to each other (torch.distributed)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from betae.errors import TrainingStopped
from betae.models.execute import Group
from betae.training.data import Batch
from betae.training.optimizer import Optimizer


def rank() -> int:
    """Return the number of this process; 0 writes and talks."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_one_of_several() -> bool:
    """Tell whether torchrun started this process among others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that torchrun started, if it did; leave them at the end."""
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
        raise TrainingStopped(
            f"Another process of this run has ended ({str(error).splitlines()[0]}). "
            "The last checkpoint is whole: go on with --resume."
        ) from error
    finally:
        dist.destroy_process_group()


def share_of(batch: Batch) -> Batch:
    """Return this process's part of a batch: every n-th query, all candidates."""
    if world_size() == 1:
        return batch
    groups, rows, start = [], [], 0
    for group in batch.groups:
        mine = (group.positions % world_size() == rank()).nonzero().flatten()
        positions = torch.arange(start, start + len(mine))
        groups.append(Group(group.structure, group.symbols[mine], positions))
        rows.append(group.positions[mine])
        start += len(mine)
    chosen = torch.cat(rows)
    return Batch(
        batch.step,
        [group for group in groups if len(group.positions)],
        batch.candidates,
        batch.is_answer[chosen],
        batch.positive[chosen],
        batch.negatives[chosen],
        batch.weights[chosen],
        batch.positions,
    )


def sum_gradients(optimizer: Optimizer) -> None:
    """Add the gradients of all processes, so that each takes the same step."""
    if world_size() == 1:
        return
    parameters = optimizer.dense_parameters()
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
    )
    has_gradient = flat.new_tensor([float(p.grad is not None) for p in parameters])
    dist.all_reduce(flat)
    dist.all_reduce(has_gradient)
    pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, piece, has in zip(parameters, pieces, has_gradient.tolist(), strict=True):
        # Where no process has one, none must remain: Adam leaves such a parameter alone.
        parameter.grad = piece.view_as(parameter) if has else None
    optimizer.entities.grad = _sum_sparse(optimizer.entities.grad)


def _sum_sparse(gradient: Tensor | None) -> Tensor:
    """Add sparse gradients with different rows: gather them all, padded to the longest."""
    assert gradient is not None
    gradient = gradient.coalesce()
    rows, values = gradient.indices()[0], gradient.values()
    sizes = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(world_size())]
    dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
    longest = int(max(sizes))
    padded_rows = rows.new_zeros(longest)
    padded_rows[: len(rows)] = rows
    padded_values = values.new_zeros(longest, values.shape[1])
    padded_values[: len(rows)] = values
    all_rows = [torch.empty_like(padded_rows) for _ in sizes]
    all_values = [torch.empty_like(padded_values) for _ in sizes]
    dist.all_gather(all_rows, padded_rows)
    dist.all_gather(all_values, padded_values)
    kept = [(r[: int(n)], v[: int(n)]) for r, v, n in zip(all_rows, all_values, sizes, strict=True)]
    return torch.sparse_coo_tensor(
        torch.cat([r for r, _ in kept]).unsqueeze(0),
        torch.cat([v for _, v in kept]),
        gradient.shape,
        check_invariants=False,
    )


def _device() -> str:
    """Return where tensors must be for this group of processes."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def wait_for_all() -> None:
    """Wait until every process is here."""
    if world_size() > 1:
        dist.barrier()


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes."""
    if world_size() > 1:
        values = values.to(_device())
        dist.all_reduce(values)
    return values


def same_everywhere(value: float) -> float:
    """Return process 0's value, for decisions that all must take alike."""
    if world_size() == 1:
        return value
    tensor = torch.tensor([value], dtype=torch.float64, device=_device())
    dist.broadcast(tensor, src=0)
    return float(tensor)
