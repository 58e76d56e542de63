"""Embed mixed batches of queries of any shape with any model.

A structure is compiled once into plans, one per branch of its normal form: lists of nodes whose
symbols are columns of the batch's symbol matrix. A mix of structures is scheduled once into stages:
a stage is one call of the model, such as all projections of the same depth, or all intersections of
the same number of sets, whatever structures they belong to.

In disjunctive normal form a query has a row per branch, and its closest branch counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

import torch
from torch import Tensor

from betae.checks import check_choice
from betae.errors import InvalidArgument
from betae.models.base import QueryModel
from betae.queries.ast import And, Entity, Not, Project, Query
from betae.queries.rewrite import UnionForm, dnf_branches, to_de_morgan
from betae.queries.structures import by_structure, columns_of, fill, num_symbols


@dataclass(frozen=True)
class Node:
    """A step of a plan; operands are indices of earlier nodes."""

    kind: type[Query]
    operands: tuple[int, ...]
    column: int  # of the symbols, for Entity and Project
    depth: int  # projections below and at this node
    query: Query  # the subtree it computes, with columns for names


Plan = tuple[Node, ...]  # the last node is the root


@lru_cache(maxsize=4096)
def plans(structure: Query, union: UnionForm) -> tuple[Plan, ...]:
    """Compile a structure without fixed names: one plan per branch of the normal form."""
    check_choice("union", union, get_args(UnionForm))
    columns = fill(structure, range(num_symbols(structure)))
    branches = dnf_branches(columns) if union == "DNF" else (to_de_morgan(columns),)
    return tuple(map(_plan, branches))


def _plan(query: Query) -> Plan:
    plan: list[Node] = []
    indices: dict[Query, int] = {}  # a subtree that occurs twice is computed once

    def visit(node: Query) -> int:
        if node not in indices:
            operands = tuple(map(visit, node.operands))
            depth, column = max((plan[i].depth for i in operands), default=0), -1
            if isinstance(node, Project):
                depth, column = depth + 1, int(node.relation)
            elif isinstance(node, Entity):
                column = int(node.name)
            indices[node] = len(plan)
            plan.append(Node(type(node), operands, column, depth, node))
        return indices[node]

    visit(query)
    return tuple(plan)


# ---- schedules ----------------------------------------------------------------------------------

NodeId = tuple[int, int]  # index of a plan in the schedule, and of a node in the plan


@dataclass(frozen=True)
class Stage:
    """Nodes that one call of the model computes; all tuples are parallel to `ids`."""

    kind: type[Query]
    ids: tuple[NodeId, ...]
    structures: tuple[int, ...]  # index of each node's structure
    columns: tuple[int, ...]  # of its symbols, for Entity and Project
    operands: tuple[tuple[NodeId, ...], ...]  # first operands, second operands, ...


@dataclass(frozen=True)
class Schedule:
    """The plans of a mix of structures, and the stages that compute all their nodes."""

    plans: tuple[Plan, ...]
    structures: tuple[int, ...]  # index of each plan's structure
    stages: tuple[Stage, ...]


@lru_cache(maxsize=256)
def schedule(structures: tuple[Query, ...], union: UnionForm) -> Schedule:
    """Arrange the nodes of some structures in as few stages as possible."""
    pairs = [(i, plan) for i, each in enumerate(structures) for plan in plans(each, union)]
    owners, all_plans = zip(*pairs, strict=True)
    stages = tuple(_stage(nodes, owners) for nodes in _steps(all_plans))
    return Schedule(all_plans, owners, stages)


def _steps(all_plans: Sequence[Plan]) -> Iterator[dict[NodeId, Node]]:
    """Yield nodes that are computed together, depth by depth.

    Complements come before intersections, so that those with and without them are one stage.
    """
    kinds = (Entity, Project, Not, And)
    waiting = {(i, j): node for i, plan in enumerate(all_plans) for j, node in enumerate(plan)}
    while waiting:
        by_step: dict[tuple[int, int], dict[NodeId, Node]] = defaultdict(dict)
        for (i, j), node in waiting.items():
            if not any((i, operand) in waiting for operand in node.operands):
                by_step[node.depth, kinds.index(node.kind)][i, j] = node
        by_arity: dict[int, dict[NodeId, Node]] = defaultdict(dict)
        for key, node in by_step[min(by_step)].items():
            by_arity[len(node.operands)][key] = waiting.pop(key)
        yield from by_arity.values()


def _stage(nodes: dict[NodeId, Node], owners: Sequence[int]) -> Stage:
    first = next(iter(nodes.values()))
    return Stage(
        first.kind,
        tuple(nodes),
        tuple(owners[plan] for plan, _ in nodes),
        tuple(node.column for node in nodes.values()),
        tuple(
            tuple((plan, node.operands[which]) for (plan, _), node in nodes.items())
            for which in range(len(first.operands))
        ),
    )


SCORES_PER_BLOCK = 2**25  # 128 MiB in float32


@dataclass(frozen=True)
class Group:
    """Queries of one structure in a batch."""

    structure: Query
    symbols: Tensor  # (num_queries, num_symbols)
    positions: Tensor  # (num_queries,): indices in the batch

    def to(self, device: torch.device) -> Group:
        """Move the group to a device."""
        return Group(self.structure, self.symbols.to(device), self.positions.to(device))


@dataclass(frozen=True)
class Embedded:
    """The embeddings of a batch; a union in DNF has a row per branch."""

    sets: Tensor  # (num_rows, width)
    owners: Tensor  # (num_rows,): index of each row's query
    num_queries: int

    def best(self, per_row: Tensor) -> Tensor:
        """Return the smallest value over the rows of each query: (num_rows, ...) -> (n, ...)."""
        in_order = torch.arange(self.num_queries, device=self.owners.device)
        if torch.equal(self.owners, in_order):
            return per_row
        if len(self.owners) == self.num_queries:
            return per_row[torch.argsort(self.owners)]
        shape = (self.num_queries, *per_row.shape[1:])
        index = self.owners.view(-1, *[1] * (per_row.dim() - 1)).expand_as(per_row)
        start = per_row.new_full(shape, float("inf"))
        return start.scatter_reduce(0, index, per_row, reduce="amin")

    def rows_by_query(self) -> tuple[Tensor, ...]:
        """Return the row indices of every query."""
        order = torch.argsort(self.owners, stable=True)
        counts = torch.bincount(self.owners, minlength=self.num_queries)
        return torch.split(order, counts.tolist())


def group_queries(queries: Sequence[Query]) -> list[Group]:
    """Group queries of ids by structure."""
    return [
        Group(structure, torch.from_numpy(symbols), torch.from_numpy(positions))
        for structure, symbols, positions in by_structure(queries)
    ]


def embed_queries(
    model: QueryModel, queries: Sequence[Query] | Sequence[Group], union: UnionForm = "DNF"
) -> Embedded:
    """Embed a batch of queries of ids, or of groups of such queries."""
    groups = [group.to(model.entities.device) for group in _as_groups(queries)]
    work = schedule(tuple(group.structure for group in groups), union)
    for plan, i in zip(work.plans, work.structures, strict=True):
        if not model.can(plan[-1].query):
            model.require([groups[i].structure])
    values = _run(model, groups, work)
    return Embedded(
        torch.cat([values[i, len(plan) - 1] for i, plan in enumerate(work.plans)]),
        torch.cat([groups[i].positions for i in work.structures]),
        sum(len(group.positions) for group in groups),
    )


def anchors_of(groups: Sequence[Group], num_entities: int) -> Tensor:
    """Return the ids of the entities that `embed_queries` looks up, in any order."""
    groups = _as_groups(groups)
    stages = schedule(tuple(group.structure for group in groups), "DNF").stages
    of_anchors = [stage for stage in stages if stage.kind is Entity]
    return torch.cat([_symbols(groups, stage, num_entities, "entity") for stage in of_anchors])


def _as_groups(queries: Sequence[Query] | Sequence[Group]) -> list[Group]:
    groups = [with_all_symbols(item) for item in queries if isinstance(item, Group)]
    trees = [item for item in queries if isinstance(item, Query)]
    if len(queries) not in (len(groups), len(trees)):
        raise InvalidArgument("A batch is a list of queries or a list of Groups, not of both.")
    groups = [group for group in groups or group_queries(trees) if len(group.positions)]
    if not groups:
        raise InvalidArgument("The batch is empty: there is no query to embed.")
    return groups


def with_all_symbols(group: Group) -> Group:
    """Turn names that are fixed in the structure into symbols: plans have columns only."""
    columns = columns_of(group.structure)
    if len(columns.fixed) == group.symbols.shape[1]:
        return group
    symbols = torch.from_numpy(columns.expand(group.symbols.cpu().numpy()))
    return Group(columns.structure, symbols.to(group.symbols), group.positions)


def _run(model: QueryModel, groups: Sequence[Group], work: Schedule) -> dict[NodeId, Tensor]:
    """Return the value of every node of every plan, each (num_queries of its group, width)."""
    values: dict[NodeId, Tensor] = {}
    results: dict[tuple[NodeId, ...], Tensor] = {}  # of whole stages

    def gather(ids: tuple[NodeId, ...]) -> Tensor:
        if ids in results:  # exactly the rows of a stage
            return results[ids]
        return torch.cat([values[each] for each in ids])

    for stage in work.stages:
        operands = [gather(ids) for ids in stage.operands]
        if stage.kind is Entity:
            result = model.embed_entities(_symbols(groups, stage, model.num_entities, "entity"))
        elif stage.kind is Project:
            relations = _symbols(groups, stage, model.num_relations, "relation")
            result = model.project(operands[0], relations)
        elif stage.kind is Not:
            result = model.negate(operands[0])
        else:
            result = model.intersect(torch.stack(operands, dim=1))
        results[stage.ids] = result
        sizes = [len(groups[i].positions) for i in stage.structures]
        values.update(zip(stage.ids, torch.split(result, sizes), strict=True))
    return values


def _symbols(groups: Sequence[Group], stage: Stage, limit: int, what: str) -> Tensor:
    """Return the ids of the nodes of a stage; raise InvalidArgument if out of range."""
    columns = zip(stage.structures, stage.columns, strict=True)
    ids = torch.cat([groups[i].symbols[:, column] for i, column in columns])
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest < 0 or highest >= limit:
        wrong = lowest if lowest < 0 else highest
        raise InvalidArgument(f"There is no {what} {wrong}: the model has 0 to {limit - 1}.")
    return ids


def score_blocks(
    model: QueryModel, embedded: Embedded, table: Tensor, scores_per_block: int = SCORES_PER_BLOCK
) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of the batch with their distances, (n, num_entities).

    A block has at most `scores_per_block` distances, but at least one query; a model may need a few
    times the memory of a block.
    """
    order = torch.argsort(embedded.owners, stable=True)
    sets, owners = embedded.sets[order], embedded.owners[order]
    counts = torch.bincount(owners, minlength=embedded.num_queries)
    ends = counts.cumsum(0)
    first = 0
    while first < embedded.num_queries:
        start = int(ends[first] - counts[first])
        limit = start + max(1, scores_per_block // max(1, len(table)))
        last = max(first + 1, int(torch.searchsorted(ends, limit, right=True)))
        stop = int(ends[last - 1])
        block = Embedded(sets[start:stop], owners[start:stop] - first, last - first)
        yield slice(first, last), block.best(model.distance(block.sets, table))
        first = last


def score_queries(
    model: QueryModel,
    queries: Sequence[Query] | Sequence[Group],
    table: Tensor | None = None,
    union: UnionForm = "DNF",
) -> Tensor:
    """Return the distance of every entity from every query, (num_queries, num_entities)."""
    embedded = embed_queries(model, queries, union)
    distances = model.distance(embedded.sets, model.table() if table is None else table)
    return embedded.best(distances)
