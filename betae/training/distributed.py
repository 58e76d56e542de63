"""Data-parallel training: each process takes part of a batch, and the gradients are added."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from betae.models.execute import Group
from betae.parallel import num_processes, process_number
from betae.training.batches import Batch
from betae.training.optimizer import AnyOptimizer


def share_of(batch: Batch) -> Batch:
    """Return this process's part of a batch: every n-th query, all candidates."""
    if num_processes() == 1:
        return batch
    groups, rows, start = [], [], 0
    for group in batch.groups:
        mine = (group.positions % num_processes() == process_number()).nonzero().flatten()
        positions = torch.arange(start, start + len(mine))
        groups.append(Group(group.structure, group.symbols[mine], positions))
        rows.append(group.positions[mine])
        start += len(mine)
    chosen = torch.cat(rows)
    return replace(
        batch,
        groups=[group for group in groups if len(group.positions)],
        is_answer=batch.is_answer[chosen],
        positive=batch.positive[chosen],
        negatives=batch.negatives[chosen],
        weights=batch.weights[chosen],
        num_answers=batch.num_answers[chosen],
    )


def sum_gradients(optimizer: AnyOptimizer) -> None:
    """Add the gradients of all processes, so that each takes the same step."""
    if num_processes() == 1:
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
    sizes = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(num_processes())]
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
