"""Ranking cut into parts of some hundreds of queries, done in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from betae import parallel
from betae.cluster import Cluster, map_blocks
from betae.evaluation.ranks import Doubles, distances_of, rank_rows
from betae.exact.answers import answers_of_structure
from betae.exact.derivations import normal_form
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.models.base import QueryModel
from betae.models.execute import SCORES_AT_ONCE, UnionForm
from betae.queries.ast import Entity, Or, Project, Query, nodes
from betae.queries.structures import columns_of, fill, has_negation
from betae.querysets.query_set import SET_EDGES, QueryBlock

QUERIES_OF_A_PART = 512
DE_MORGAN = "-DM"  # added to the name of a structure whose union is taken in De Morgan form


@dataclass(frozen=True)
class Task:
    """Queries of one structure to rank, with a form for their unions."""

    name: str
    block: QueryBlock
    union: UnionForm

    @property
    def num_readings(self) -> int:
        """How many readings of "easy" there are."""
        return 2 if has_negation(normal_form(self.block.structure)) else 1


@dataclass(frozen=True)
class Part:
    """Some queries of a task."""

    block: QueryBlock
    union: UnionForm


# Queries and a form of their unions -> rows of the block with their distances, (n, num_entities).
Score = Callable[[QueryBlock, UnionForm], Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]]
# Parts -> the ranks of their hard answers, (num_readings, num_hard_answers), in order.
RankParts = Callable[[Iterable[Part]], Iterator[Doubles]]
Progress = Callable[[str, int, int], None]  # what is being done, how much is done, how much in all


def all_forms(model: QueryModel, blocks: Mapping[str, QueryBlock]) -> list[Task]:
    """Return a task for each block and each form of its unions that makes a difference."""
    tasks = []
    for name, block in blocks.items():
        if _has_union(block.structure):
            tasks.append(Task(name, block, "DNF"))
            # A release may hold the De Morgan form as queries of its own.
            if model.has_complement and name + DE_MORGAN not in blocks:
                tasks.append(Task(name + DE_MORGAN, block, "DM"))
        else:
            is_written_so = _has_union(normal_form(block.structure))
            tasks.append(Task(name, block, "DM" if is_written_so else "DNF"))
    return tasks


def one_form(blocks: Mapping[str, QueryBlock]) -> list[Task]:
    """Return a task for each block, for a method that does not mind the form of a union."""
    return [Task(name, block, "DNF") for name, block in blocks.items()]


def _has_union(structure: Query) -> bool:
    return any(isinstance(node, Or) for node in nodes(structure))


def rank_all(
    rank: RankParts, tasks: Sequence[Task], progress: Progress
) -> Iterator[tuple[Task, Doubles]]:
    """Yield each task with the ranks of its hard answers, (num_readings, num_hard_answers).

    The processes of a torchrun share the queries of each.
    """
    cuts = [_cut(task.block) for task in tasks]
    ranks = rank(
        Part(task.block.take(rows), task.union)
        for task, cut in zip(tasks, cuts, strict=True)
        for rows in cut
    )
    done, total = 0, sum(len(task.block) for task in tasks)
    for task, cut in zip(tasks, cuts, strict=True):
        progress(f"ranking {task.name}", done, total)
        hard, finished = task.block.hard, 0
        places = Ragged(hard.offsets, np.arange(len(hard.values), dtype=np.int32))
        found = np.zeros((task.num_readings, len(hard.values)))
        for rows in cut:
            found[:, places.take(rows).values] = next(ranks)
            finished += len(rows) * parallel.num_processes()
            progress(f"ranking {task.name}", done + min(finished, len(task.block)), total)
        yield task, parallel.sum_over_processes(torch.from_numpy(found)).cpu().numpy()
        done += len(task.block)


def _cut(block: QueryBlock) -> list[NDArray[np.int64]]:
    """Return the rows of each part: those of this process, in an order that suits the cache.

    Queries that continue by the same relations come together, since they share most of the rows of
    a completed graph.
    """
    columns = columns_of(block.structure)
    continued = [
        int(node.relation)
        for node in nodes(fill(columns.structure, range(len(columns.names))))
        if isinstance(node, Project) and not isinstance(node.operand, Entity)
    ]
    keys = columns.expand(block.symbols)[:, continued].T
    order = np.lexsort(keys) if continued else np.arange(len(block))
    mine = order[parallel.process_number() :: parallel.num_processes()]
    return [
        mine[start : start + QUERIES_OF_A_PART] for start in range(0, len(mine), QUERIES_OF_A_PART)
    ]


# ---- one part, in any process -----------------------------------------------------------------


def ranking_on(
    cluster: Cluster | None, open_score: Callable[[], Score], graph: KnowledgeGraph, split: str
) -> RankParts:
    """Return what ranks parts: this process, or a cluster, whose workers each open the scores."""
    return partial(map_blocks, partial(open_ranker, open_score, graph, split), cluster=cluster)


def open_ranker(
    open_score: Callable[[], Score], graph: KnowledgeGraph, split: str
) -> Callable[[Part], Doubles]:
    """Load what ranks entities, and return the function that ranks a part."""
    return partial(rank_part, open_score(), graph, split)


def scores_by_embedding(model: QueryModel, scores_at_once: int = SCORES_AT_ONCE) -> Score:
    """Return what gives the distances of entities from embedded queries."""
    model.eval()
    with torch.no_grad():
        return partial(distances_of, model, model.table(), scores_at_once=scores_at_once)


def rank_part(score: Score, graph: KnowledgeGraph, split: str, part: Part) -> Doubles:
    """Rank the hard answers of a part by each reading, (num_readings, num_hard_answers)."""
    readings = _readings(graph, split, part.block)
    hard = part.block.hard
    places = Ragged(hard.offsets, np.arange(len(hard.values), dtype=np.int32))
    ranks = np.empty((len(readings), len(hard.values)))
    for rows, distances in score(part.block, part.union):
        for reading, of_reading in zip(readings, ranks, strict=True):
            of_reading[places.take(rows).values] = rank_rows(distances, reading.take(rows))
    return ranks


def _readings(graph: KnowledgeGraph, split: str, block: QueryBlock) -> list[QueryBlock]:
    """Return a block by the release's reading of "easy" and, with negation, by the strict one."""
    if not has_negation(normal_form(block.structure)):
        return [block]
    larger = graph.adjacency(SET_EDGES[split][1])
    answers = answers_of_structure(larger, block.structure, block.symbols)
    return [block, replace(block, easy=answers)]
