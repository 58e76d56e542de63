"""Training by several processes: each takes part of a batch and holds part of the entity table.

In a step, a process borrows the rows it needs from the processes that hold them, and returns their
gradients. The networks are replicated, and their gradients are summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from betae.models.base import QueryModel
from betae.models.execute import Group
from betae.models.rows import Gathered, Rows, blocks
from betae.parallel import num_processes, process_index
from betae.training.batches import Batch


def share_of(batch: Batch) -> Batch:
    """Return this process's part of a batch: every n-th query, all candidates."""
    if num_processes() == 1:
        return batch
    groups, rows, start = [], [], 0
    for group in batch.groups:
        mine = (group.positions % num_processes() == process_index()).nonzero().flatten()
        if len(mine):
            positions = torch.arange(start, start + len(mine))
            groups.append(Group(group.structure, group.symbols[mine], positions))
            rows.append(group.positions[mine])
            start += len(mine)
    chosen = torch.cat(rows)
    return batch.with_queries(groups, lambda tensor: tensor[chosen])


def rows_of(rank: int, total: int, folder: Path | None = None) -> Rows:
    """Return the rows that a process holds: equal parts, in order."""
    size = num_processes()
    return Rows(total * rank // size, total * (rank + 1) // size, total, folder)


@dataclass(frozen=True)
class Borrowed(Gathered):
    """Rows that this process uses in a step, and rows that it lends to others."""

    counts: list[int]  # rows borrowed from each process
    lent: Tensor  # (any,): local indices of the rows it lends
    lent_counts: list[int]  # rows lent to each process


def borrow(model: QueryModel, ids: Tensor) -> Borrowed:
    """Fetch the rows of entities from the processes that hold them; a collective call."""
    ids, size = torch.unique(ids), num_processes()
    bounds = [rows_of(rank, model.num_entities).stop for rank in range(size)]
    ends = torch.searchsorted(ids, torch.tensor(bounds, device=ids.device))
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    lent_counts = torch.empty_like(counts)
    dist.all_to_all_single(lent_counts, counts)
    to_each, from_each = lent_counts.tolist(), counts.tolist()
    lent = _exchange(ids, from_each, to_each) - model.rows.start
    values = _exchange(model.entities.detach()[lent], to_each, from_each)
    return Borrowed(ids, values.requires_grad_(), from_each, lent, to_each)


def _exchange(values: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """Send `sent` rows to each process, in order, and return the rows received from each."""
    result = values.new_empty(sum(received), *values.shape[1:])
    dist.all_to_all_single(result, values.contiguous(), received, sent)
    return result


def sum_gradients(model: QueryModel, parameters: list[Tensor]) -> None:
    """Sum the gradients over processes: `parameters` everywhere, entity rows at their holder."""
    if num_processes() == 1:
        return
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
    )
    has_gradient = flat.new_tensor([float(p.grad is not None) for p in parameters])
    dist.all_reduce(flat)
    dist.all_reduce(has_gradient)
    pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, piece, has in zip(parameters, pieces, has_gradient.tolist(), strict=True):
        # Where no process has a gradient, none must appear: Adam skips such parameters.
        parameter.grad = piece.view_as(parameter) if has else None
    borrowed = model.gathered
    assert isinstance(borrowed, Borrowed)
    gradient = borrowed.values.grad
    assert gradient is not None
    model.entities.grad = torch.sparse_coo_tensor(
        borrowed.lent.unsqueeze(0),
        _exchange(gradient, borrowed.counts, borrowed.lent_counts),
        model.entities.shape,
        check_invariants=False,
    )


def whole_table(model: QueryModel, folder: Path) -> Tensor:
    """Collect the whole entity table at process 0, in a mapped file."""
    whole = table = model.entities.detach()
    total, width, rank = model.num_entities, table.shape[1], process_index()
    if rank == 0 and num_processes() > 1:
        whole = Rows(0, total, total, folder).allocate(width)
        whole[: len(table)] = table
    for owner in range(1, num_processes()):
        rows = rows_of(owner, total)
        for block in blocks(len(rows), width):
            if rank == owner:
                dist.send(table[block], 0)
            elif rank == 0:
                part = table.new_empty(block.stop - block.start, width)
                dist.recv(part, owner)
                whole[rows.start + block.start : rows.start + block.stop] = part
    return whole
