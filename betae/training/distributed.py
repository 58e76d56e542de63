"""Training by several processes: each takes part of a batch and holds part of the entity table.

For a step, a process borrows the rows it needs from those that hold them, and returns their
gradients. The networks are the same in all processes, and their gradients are added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from betae.models.base import QueryModel
from betae.models.execute import Group
from betae.models.rows import Gathered, Rows, blocks
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


def rows_of(number: int, total: int, folder: Path | None = None) -> Rows:
    """Return the rows that a process holds: equal parts, in order."""
    size = num_processes()
    return Rows(total * number // size, total * (number + 1) // size, total, folder)


@dataclass(frozen=True)
class Borrowed(Gathered):
    """Rows that this process uses in a step, most of which others hold, and those it lends."""

    counts: list[int]  # how many are borrowed from each process
    lent: Tensor  # (any,): the places, in this process's part of the table, of what it lends
    lent_counts: list[int]  # how many of them to each process


def borrow(model: QueryModel, ids: Tensor) -> Borrowed:
    """Fetch the rows of entities from the processes that hold them; all call it together."""
    ids, size = torch.unique(ids), num_processes()
    bounds = [rows_of(number, model.num_entities).stop for number in range(size)]
    ends = torch.searchsorted(ids, torch.tensor(bounds, device=ids.device))
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    lent_counts = torch.empty_like(counts)
    dist.all_to_all_single(lent_counts, counts)
    to_each, from_each = lent_counts.tolist(), counts.tolist()
    lent = _exchange(ids, from_each, to_each) - model.rows.start
    values = _exchange(model.entities.detach()[lent], to_each, from_each)
    return Borrowed(ids, values.requires_grad_(), from_each, lent, to_each)


def _exchange(values: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """Send so many rows to each process, in order, and return the rows received from each."""
    result = values.new_empty(sum(received), *values.shape[1:])
    dist.all_to_all_single(result, values.contiguous(), received, sent)
    return result


def sum_gradients(model: QueryModel, optimizer: AnyOptimizer) -> None:
    """Add the gradients of all processes: each then has those of the networks and of its rows."""
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
    """Return the whole entity table to process 0, in a mapped file; the others send their rows."""
    number, table = process_number(), model.entities.detach()
    if num_processes() == 1:
        return table
    if number == 0:
        whole = Rows(0, model.num_entities, model.num_entities, folder).allocate(table.shape[1])
    for owner in range(num_processes()):
        rows = rows_of(owner, model.num_entities)
        for block in blocks(rows.number, table.shape[1]):
            if number == owner:
                part = table[block]
            elif number == 0:
                part = table.new_empty(block.stop - block.start, table.shape[1])
            if number == owner > 0:
                dist.send(part, 0)
            elif number == 0:
                if owner > 0:
                    dist.recv(part, owner)
                whole[rows.start + block.start : rows.start + block.stop] = part
    return whole if number == 0 else table
