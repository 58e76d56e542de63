"""Run a mixed batch of queries of any shapes on any model, level by level.

A structure is compiled once: unions rewritten, then a list of nodes whose symbols are columns of
the batch's matrix. A batch then takes one look-up for all its anchors, one projection for all the
steps of the same depth, one intersection for all of the same arity, whatever structures they belong
to. In disjunctive normal form a query has a row for each branch, and its best branch counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from betae.errors import InvalidArgument
from betae.models.base import QueryModel
from betae.queries.ast import And, Entity, Not, Project, Query
from betae.queries.rewrite import dnf_branches, to_de_morgan
from betae.queries.structures import columns_of, fill, num_symbols, structure_of

UnionForm = Literal["DNF", "DM"]
SCORES_AT_ONCE = 2**25  # numbers in a block of distances: 128 MiB in float32


@dataclass(frozen=True)
class Node:
    """A step of a plan; operands are numbers of earlier nodes."""

    kind: type[Query]
    operands: tuple[int, ...]
    column: int  # of the symbols, for Entity and Project
    depth: int  # projections below and at this node
    query: Query  # the tree it computes, with columns for names


Plan = tuple[Node, ...]  # the last node is the root


@lru_cache(maxsize=4096)
def plans(structure: Query, union: UnionForm) -> tuple[Plan, ...]:
    """Compile a structure without fixed names: one plan for each branch of the normal form."""
    if union not in ("DNF", "DM"):
        raise InvalidArgument(f"The union is 'DNF' or 'DM', not {union!r}.")
    columns = fill(structure, range(num_symbols(structure)))
    branches = dnf_branches(columns) if union == "DNF" else (to_de_morgan(columns),)
    return tuple(map(_plan, branches))


def _plan(query: Query) -> Plan:
    nodes: dict[Query, Node] = {}  # a subtree that occurs twice is computed once
    numbers: dict[Query, int] = {}

    def visit(node: Query) -> None:
        if node in nodes:
            return
        for operand in node.operands:
            visit(operand)
        depth = max((nodes[operand].depth for operand in node.operands), default=0)
        column = -1
        if isinstance(node, Project):
            depth, column = depth + 1, int(node.relation)
        elif isinstance(node, Entity):
            column = int(node.name)
        operands = tuple(numbers[operand] for operand in node.operands)
        numbers[node] = len(nodes)
        nodes[node] = Node(type(node), operands, column, depth, node)

    visit(query)
    return tuple(nodes.values())


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
    """Embed a batch of queries of ids, or of groups of them, in any mixture."""
    groups = [group.to(model.entities.device) for group in _as_groups(queries)]
    work = [(group, plan) for group in groups for plan in plans(group.structure, union)]
    values = _run(model, work)
    return Embedded(
        torch.cat([rows[-1] for rows in values]),
        torch.cat([group.positions for group, _ in work]),
        sum(len(group.positions) for group in groups),
    )


def embed_nodes(
    model: QueryModel, query: Query, union: UnionForm = "DNF"
) -> list[list[tuple[Query, Tensor]]]:
    """Return, for each branch of one query, every node with its embedding, (width,).

    Operands come before what is made of them; a part that occurs twice is there once.
    """
    group = group_queries([query])[0].to(model.entities.device)
    branches = plans(group.structure, union)
    values = _run(model, [(group, plan) for plan in branches])
    symbols = group.symbols[0].tolist()
    return [
        [
            (_with_symbols(node.query, symbols), value[0])
            for node, value in zip(plan, rows, strict=True)
        ]
        for plan, rows in zip(branches, values, strict=True)
    ]


def _with_symbols(query: Query, symbols: Sequence[int]) -> Query:
    """Replace columns by the symbols that stand there."""
    structure, columns = structure_of(query)
    return fill(structure, [symbols[column] for column in columns])


def _as_groups(queries: Sequence[Query] | Sequence[Group]) -> list[Group]:
    groups = [_opened(item) for item in queries if isinstance(item, Group)]
    trees = [item for item in queries if isinstance(item, Query)]
    if len(queries) not in (len(groups), len(trees)):
        raise InvalidArgument("A batch is a list of queries or a list of Groups, not of both.")
    groups = [group for group in groups or group_queries(trees) if len(group.positions)]
    if not groups:
        raise InvalidArgument("The batch is empty: there is no query to embed.")
    return groups


def _opened(group: Group) -> Group:
    """Turn names that are fixed in the structure into symbols, so that plans see only columns."""
    columns = columns_of(group.structure)
    if len(columns.names) == group.symbols.shape[1]:
        return group
    symbols = torch.from_numpy(columns.expand(group.symbols.cpu().numpy()))
    return Group(columns.structure, symbols.to(group.symbols), group.positions)


def _run(model: QueryModel, work: Sequence[tuple[Group, Plan]]) -> list[list[Tensor]]:
    """Return the value of every node of every plan, each (num_queries of its group, width)."""
    values: list[dict[int, Tensor]] = [{} for _ in work]

    def nodes_of(kind: type[Query], depth: int) -> Iterator[tuple[int, int, Node]]:
        for item, (_, plan) in enumerate(work):
            for number, node in enumerate(plan):
                if node.kind is kind and node.depth == depth:
                    yield item, number, node

    def symbols(places: Sequence[tuple[int, int, Node]], limit: int, what: str) -> Tensor:
        ids = torch.cat([work[item][0].symbols[:, node.column] for item, _, node in places])
        lowest, highest = int(ids.min()), int(ids.max())
        if lowest < 0 or highest >= limit:
            wrong = lowest if lowest < 0 else highest
            raise InvalidArgument(f"There is no {what} {wrong}: the model has 0 to {limit - 1}.")
        return ids

    results: dict[tuple[tuple[int, int], ...], Tensor] = {}  # by the nodes whose rows they hold

    def store(places: Sequence[tuple[int, int, Node]], result: Tensor) -> None:
        results[tuple((item, number) for item, number, _ in places)] = result
        sizes = [len(work[item][0].positions) for item, _, _ in places]
        for (item, number, _), rows in zip(places, torch.split(result, sizes), strict=True):
            values[item][number] = rows

    def operands(places: Sequence[tuple[int, int, Node]], which: int) -> Tensor:
        wanted = tuple((item, node.operands[which]) for item, _, node in places)
        if wanted in results:  # as they were stored: nothing to put together
            return results[wanted]
        return torch.cat([values[item][number] for item, number in wanted])

    anchors = list(nodes_of(Entity, 0))
    store(anchors, model.embed_entities(symbols(anchors, model.num_entities, "entity")))
    for depth in range(1 + max(node.depth for _, plan in work for node in plan)):
        steps = list(nodes_of(Project, depth))
        if steps:
            relations = symbols(steps, model.num_relations, "relation")
            store(steps, model.project(operands(steps, 0), relations))
        waiting = [*nodes_of(Not, depth), *nodes_of(And, depth)]
        while waiting:
            ready = [
                place
                for place in waiting
                if all(operand in values[place[0]] for operand in place[2].operands)
            ]
            # Complements first, so that intersections with and without them are one.
            complements = [place for place in ready if place[2].kind is Not]
            ready = complements or ready
            waiting = [place for place in waiting if place not in ready]
            by_arity: dict[int, list[tuple[int, int, Node]]] = defaultdict(list)
            for place in ready:
                by_arity[len(place[2].operands)].append(place)
            for arity, places in by_arity.items():
                branches = [operands(places, which) for which in range(arity)]
                combine = (
                    model.negate(branches[0])
                    if arity == 1
                    else model.intersect(torch.stack(branches, dim=1))
                )
                store(places, combine)
    return [[rows[number] for number in sorted(rows)] for rows in values]


def score_blocks(
    model: QueryModel, embedded: Embedded, table: Tensor, scores_at_once: int = SCORES_AT_ONCE
) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of the batch with their distances, (n, num_entities), one block at a time.

    A block holds at most `scores_at_once` distances (but at least one query), so memory does not
    grow with the batch; a geometry may need a few times a block while it works.
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
