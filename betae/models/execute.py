"""Run a mixed batch of queries of any shapes on any model, stage by stage (see `plan`).

In disjunctive normal form a query has a row for each branch, and its best branch counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from betae.errors import InvalidArgument
from betae.models.base import QueryModel
from betae.models.plan import Place, Schedule, Stage, schedule
from betae.models.plan import UnionForm as UnionForm
from betae.queries.ast import Entity, Not, Project, Query
from betae.queries.structures import columns_of, fill, structure_of

SCORES_AT_ONCE = 2**25  # numbers in a block of distances: 128 MiB in float32


@dataclass(frozen=True)
class Group:
    """Queries of one structure in a batch."""

    structure: Query
    symbols: Tensor  # (num_queries, num_symbols)
    positions: Tensor  # (num_queries,): where they stand in the batch

    def to(self, device: torch.device) -> Group:
        """Return the group on a device."""
        return Group(self.structure, self.symbols.to(device), self.positions.to(device))


@dataclass(frozen=True)
class Embedded:
    """The embeddings of a batch; a query of a union in DNF has several rows."""

    sets: Tensor  # (num_rows, width)
    owners: Tensor  # (num_rows,): the position of the query that a row belongs to
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
        """Return the numbers of the rows of every query, found by one sort."""
        order = torch.argsort(self.owners, stable=True)
        counts = torch.bincount(self.owners, minlength=self.num_queries)
        return torch.split(order, counts.tolist())


def group_queries(queries: Sequence[Query]) -> list[Group]:
    """Group queries of ids by structure."""
    rows: dict[Query, list[tuple[int, ...]]] = defaultdict(list)
    positions: dict[Query, list[int]] = defaultdict(list)
    for position, query in enumerate(queries):
        structure, symbols = structure_of(query)
        rows[structure].append(symbols)
        positions[structure].append(position)
    return [
        Group(structure, torch.tensor(rows[structure]), torch.tensor(positions[structure]))
        for structure in rows
    ]


def embed_queries(
    model: QueryModel, queries: Sequence[Query] | Sequence[Group], union: UnionForm = "DNF"
) -> Embedded:
    """Embed a batch of queries of ids, or of groups of them, in any mix."""
    groups = [group.to(model.entities.device) for group in _as_groups(queries)]
    work = schedule(tuple(group.structure for group in groups), union)
    _check_branches(model, groups, work)
    values = _run(model, groups, work)
    return Embedded(
        torch.cat([values[root] for root in work.roots]),
        torch.cat([groups[number].positions for number in work.structures]),
        sum(len(group.positions) for group in groups),
    )


def anchors_of(groups: Sequence[Group], num_entities: int) -> Tensor:
    """Return the ids of the entities that `embed_queries` will look up, in any order."""
    groups = _as_groups(groups)
    stages = schedule(tuple(group.structure for group in groups), "DNF").stages
    return torch.cat(
        [
            _symbols(groups, stage, num_entities, "entity")
            for stage in stages
            if stage.kind is Entity
        ]
    )


def embed_nodes(
    model: QueryModel, query: Query, union: UnionForm = "DNF"
) -> list[list[tuple[Query, Tensor]]]:
    """Return, for each branch of one query, every node with its embedding, (width,).

    Operands come before the nodes that use them; a part that occurs twice is listed once.
    """
    group = group_queries([query])[0].to(model.entities.device)
    work = schedule((group.structure,), union)
    _check_branches(model, [group], work)
    values = _run(model, [group], work)
    symbols = group.symbols[0].tolist()
    return [
        [
            (_with_symbols(node.query, symbols), values[branch, place][0])
            for place, node in enumerate(plan)
        ]
        for branch, plan in enumerate(work.plans)
    ]


def _with_symbols(query: Query, symbols: Sequence[int]) -> Query:
    """Replace columns by the symbols that stand there."""
    structure, columns = structure_of(query)
    return fill(structure, [symbols[column] for column in columns])


def _check_branches(model: QueryModel, groups: Sequence[Group], work: Schedule) -> None:
    """Raise UnsupportedQuery, with the structure, if the model cannot do one of its branches."""
    for plan, number in zip(work.plans, work.structures, strict=True):
        if not model.can(plan[-1].query):
            model.require([groups[number].structure])


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
    """Turn names that are fixed in the structure into symbols, so that plans see only columns."""
    columns = columns_of(group.structure)
    if len(columns.names) == group.symbols.shape[1]:
        return group
    symbols = torch.from_numpy(columns.expand(group.symbols.cpu().numpy()))
    return Group(columns.structure, symbols.to(group.symbols), group.positions)


def _run(model: QueryModel, groups: Sequence[Group], work: Schedule) -> dict[Place, Tensor]:
    """Return the value of every node of every plan, each (num_queries of its group, width)."""
    values: dict[Place, Tensor] = {}
    results: dict[tuple[Place, ...], Tensor] = {}  # of whole stages

    def gather(places: tuple[Place, ...]) -> Tensor:
        if places in results:  # the rows of a stage as they are: nothing to put together
            return results[places]
        return torch.cat([values[place] for place in places])

    for stage in work.stages:
        result = _apply(model, groups, stage, [gather(places) for places in stage.operands])
        results[stage.places] = result
        sizes = [len(groups[number].positions) for number in stage.structures]
        values.update(zip(stage.places, torch.split(result, sizes), strict=True))
    return values


def _apply(
    model: QueryModel, groups: Sequence[Group], stage: Stage, operands: list[Tensor]
) -> Tensor:
    """Call the verb of a stage."""
    if stage.kind is Entity:
        return model.embed_entities(_symbols(groups, stage, model.num_entities, "entity"))
    if stage.kind is Project:
        relations = _symbols(groups, stage, model.num_relations, "relation")
        return model.project(operands[0], relations)
    if stage.kind is Not:
        return model.negate(operands[0])
    return model.intersect(torch.stack(operands, dim=1))


def _symbols(groups: Sequence[Group], stage: Stage, limit: int, what: str) -> Tensor:
    """Return the ids that the nodes of a stage name, once they are ids of the model."""
    columns = zip(stage.structures, stage.columns, strict=True)
    ids = torch.cat([groups[number].symbols[:, column] for number, column in columns])
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest < 0 or highest >= limit:
        wrong = lowest if lowest < 0 else highest
        raise InvalidArgument(f"There is no {what} {wrong}: the model has 0 to {limit - 1}.")
    return ids


def score_blocks(
    model: QueryModel, embedded: Embedded, table: Tensor, scores_at_once: int = SCORES_AT_ONCE
) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of the batch with their distances, (n, num_entities), one block at a time.

    A block holds at most `scores_at_once` distances (but at least one query), so memory does not
    grow with the batch; a model may need a few times a block while it works.
    """
    order = torch.argsort(embedded.owners, stable=True)
    sets, owners = embedded.sets[order], embedded.owners[order]
    counts = torch.bincount(owners, minlength=embedded.num_queries)
    ends = counts.cumsum(0)
    first = 0
    while first < embedded.num_queries:
        start = int(ends[first] - counts[first])
        limit = start + max(1, scores_at_once // max(1, len(table)))
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
