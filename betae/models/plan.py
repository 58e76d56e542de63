"""Plans and schedules: in which order, and how much at once, a batch of queries is computed.

A structure is compiled once into plans, one for each branch of its normal form: lists of nodes
whose symbols are columns of the batch's matrix. A mix of structures is scheduled once: a stage is
what a single call of the model computes, such as all projections of the same depth, or all
intersections of the same number of sets, whatever structures they belong to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from betae.errors import InvalidArgument
from betae.queries.ast import And, Entity, Not, Project, Query
from betae.queries.rewrite import dnf_branches, to_de_morgan
from betae.queries.structures import fill, num_symbols

UnionForm = Literal["DNF", "DM"]


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


# ---- schedules ----------------------------------------------------------------------------------

Place = tuple[int, int]  # the number of a plan in the schedule, and of a node in the plan


@dataclass(frozen=True)
class Stage:
    """Nodes that one call of the model computes; all tuples are parallel to `places`."""

    kind: type[Query]
    places: tuple[Place, ...]
    structures: tuple[int, ...]  # the number of the structure that a node belongs to
    columns: tuple[int, ...]  # of its symbols, for Entity and Project
    operands: tuple[tuple[Place, ...], ...]  # first operands, second operands, ...


@dataclass(frozen=True)
class Schedule:
    """The plans of a mix of structures, and the stages that compute all their nodes."""

    plans: tuple[Plan, ...]
    structures: tuple[int, ...]  # for each plan, the number of its structure
    stages: tuple[Stage, ...]

    @property
    def roots(self) -> list[Place]:
        """The last node of every plan."""
        return [(number, len(plan) - 1) for number, plan in enumerate(self.plans)]


@lru_cache(maxsize=256)
def schedule(structures: tuple[Query, ...], union: UnionForm) -> Schedule:
    """Arrange the nodes of some structures in as few stages as possible."""
    pairs = [
        (number, plan)
        for number, structure in enumerate(structures)
        for plan in plans(structure, union)
    ]
    owners, all_plans = zip(*pairs, strict=True)
    stages = tuple(_stage(nodes, owners) for nodes in _steps(all_plans))
    return Schedule(all_plans, owners, stages)


def _steps(all_plans: Sequence[Plan]) -> Iterator[dict[Place, Node]]:
    """Yield the nodes that are computed together: anchors, then depth by depth."""
    by_level: dict[tuple[int, type[Query]], dict[Place, Node]] = defaultdict(dict)
    for number, plan in enumerate(all_plans):
        for place, node in enumerate(plan):
            by_level[node.depth, node.kind][number, place] = node
    done: set[Place] = set()
    for depth in range(1 + max(depth for depth, _ in by_level)):
        for kind in (Entity, Project):
            if level := by_level.get((depth, kind)):
                yield level
                done.update(level)
        yield from _combinations({**by_level[depth, Not], **by_level[depth, And]}, done)


def _combinations(waiting: dict[Place, Node], done: set[Place]) -> Iterator[dict[Place, Node]]:
    """Yield the complements and intersections of one depth, and add them to `done`."""
    while waiting:
        ready = {
            place: node
            for place, node in waiting.items()
            if all((place[0], operand) in done for operand in node.operands)
        }
        # Complements first, so that intersections with and without them are one stage.
        ready = {place: node for place, node in ready.items() if node.kind is Not} or ready
        waiting = {place: node for place, node in waiting.items() if place not in ready}
        by_arity: dict[int, dict[Place, Node]] = defaultdict(dict)
        for place, node in ready.items():
            by_arity[len(node.operands)][place] = node
        yield from by_arity.values()
        done.update(ready)


def _stage(nodes: dict[Place, Node], owners: Sequence[int]) -> Stage:
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
