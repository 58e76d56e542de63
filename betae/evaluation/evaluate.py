"""Evaluation on a query set by the paper's protocol (https://arxiv.org/abs/2010.11465), and more.

Each hard answer is ranked against all entities that are not answers on the full graph; metrics are
means over the answers of a query, then over the queries of a structure, then over the 9 structures
without negation (EPFO) and the 5 with it. Beyond the paper: confidence intervals, results by
number of missing edges, the frequency baseline, and estimates of the number of answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from betae import parallel
from betae.checks import check_positive
from betae.cluster import Cluster, map_blocks
from betae.errors import InvalidArgument
from betae.evaluation.ranks import (
    Doubles,
    Ranker,
    per_query,
    rank_by_frequency,
    rank_rows,
    summarise,
)
from betae.evaluation.results import (
    Average,
    EmptyResult,
    Evaluation,
    GraphFacts,
    MissingResult,
    QueryFacts,
    RankMetrics,
    StructureResult,
)
from betae.evaluation.uncertainty import MEASURED, measure_uncertainty, tell_empty
from betae.exact.answers import answers_of_structure
from betae.exact.kernels import MissingEdgeCounter
from betae.graph.edges import Ragged
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Entity, Project, nodes
from betae.queries.rewrite import UnionForm, normal_form, num_edges
from betae.queries.structures import EPFO, NEGATION, columns_of, fill, has_negation
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.querysets.sample import random_stream

RESAMPLES = 1000  # of the bootstrap
RANK_BATCH = 512  # queries ranked together, the unit of work on a cluster
DE_MORGAN = "-DM"  # suffix of a structure whose unions are taken in De Morgan form
_Progress = Callable[[str, int, int], None]  # what is being done, how much is done, the total


def evaluate(
    ranker: Ranker,
    graph: KnowledgeGraph,
    queries: QuerySet,
    *,
    empty_queries: int = 1000,
    cluster: Cluster | None = None,
    open_ranker: Callable[[], Ranker] | None = None,
    progress: _Progress = lambda *_: None,
) -> Evaluation:
    """Evaluate a ranker on a query set of its graph.

    `empty_queries` unanswerable queries of each structure, and as many answerable ones, are sampled
    for the ROC-AUC (0: skip). On a `cluster`, each worker ranks with a ranker of its own, opened by
    `open_ranker`, which must be picklable; all other figures are computed here.
    """
    start = time.monotonic()
    check_positive("empty_queries", empty_queries, whole=True, or_zero=True)
    if cluster is not None and open_ranker is None:
        raise InvalidArgument("On a cluster, evaluate needs open_ranker.")
    model = ranker.models[0] if ranker.models else None
    if model and (model.num_entities, model.num_relations) != (
        graph.num_entities,
        graph.num_relations,
    ):
        raise InvalidArgument(
            f"The model has {model.num_entities:,} entities and {model.num_relations:,} directed "
            f"relations, the graph {graph.num_entities:,} and {graph.num_relations:,}: "
            "it was trained on another graph."
        )
    blocks = queries.rankable(graph).blocks
    can = {name: block for name, block in blocks.items() if ranker.can(block.structure)}
    if not can:
        raise InvalidArgument(f"{type(model).__name__} cannot do {', '.join(blocks)}.")
    results: dict[str, StructureResult] = {}
    means: dict[str, Doubles] = {}  # of the resamples
    open_here = open_ranker if cluster is not None and open_ranker else lambda: ranker
    rank_hard = partial(_rank_hard, graph, queries.split)
    rank = partial(map_blocks, open_here, rank_hard, cluster=cluster)
    for task, ranks in _rank_all(rank, _tasks(ranker, can), progress):
        block, name, offsets = task.block, task.name, task.block.hard.offsets
        metrics, *strict = (summarise(row, offsets) for row in ranks)
        means[name] = _resampled_means(per_query(100 / ranks[0], offsets), name)
        results[name] = StructureResult(
            metrics=metrics,
            interval=_interval(means[name]),
            frequency=summarise(rank_by_frequency(graph, block), offsets),
            num_edges=num_edges(block.structure),
            by_missing=_by_missing(graph, queries.split, block, ranks[0]),
            strict_mrr=strict[0].mrr if strict else None,
            answers=float(block.hard.lengths.mean()),
        )
    empty: dict[str, EmptyResult] = {}
    is_completed = ranker.method == "completed"
    if model and model.has_uncertainty and not is_completed:
        results |= measure_uncertainty(model, graph, queries.split, can, results)
        if empty_queries:
            measured = [name for name in MEASURED if name in can]
            empty = tell_empty(model, graph, measured, empty_queries, progress)
    return Evaluation(
        model=model.name if model else ranker.predictors[0],
        graph=GraphFacts(graph.fingerprint, graph.num_entities, graph.num_relations // 2),
        queries=QueryFacts(queries.split, dict(queries.origin), len(queries)),
        structures=results,
        averages={
            kind: _average(names, results, means)
            for kind, names in {"EPFO": EPFO, "negation": NEGATION}.items()
            if any(name in results for name in names)
        },
        cannot=[name for name in blocks if name not in can],
        empty=empty,
        method=ranker.method,
        predictors=list(ranker.predictors) if is_completed else [],
        seconds=time.monotonic() - start,
    )


# ---- ranking ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """Queries of one structure to rank, with a form for their unions."""

    name: str
    block: QueryBlock
    union: UnionForm

    @property
    def num_readings(self) -> int:
        """Number of readings of "easy": with negation, the release's and the strict one."""
        return 2 if has_negation(normal_form(self.block.structure)) else 1


def _tasks(ranker: Ranker, blocks: Mapping[str, QueryBlock]) -> list[_Task]:
    """Return a task for each block and each form of its unions that makes a difference."""
    tasks = []
    for name, block in blocks.items():
        first, *others = ranker.union_forms(block.structure)
        tasks.append(_Task(name, block, first))
        # A release may hold the De Morgan form as queries of its own.
        if name + DE_MORGAN not in blocks:
            tasks += [_Task(name + DE_MORGAN, block, form) for form in others]
    return tasks


def _rank_all(
    rank: Callable[[Iterable[_Task]], Iterator[Doubles]],
    tasks: Sequence[_Task],
    progress: _Progress,
) -> Iterator[tuple[_Task, Doubles]]:
    """Yield each task with the ranks of its hard answers, (num_readings, num_hard_answers).

    Under torchrun the processes share the queries of each task.
    """
    batches = [_batches(task.block) for task in tasks]
    parts = (
        replace(task, block=task.block.take(rows))
        for task, of_task in zip(tasks, batches, strict=True)
        for rows in of_task
    )
    ranks = rank(parts)
    done, total = 0, sum(len(task.block) for task in tasks)
    for task, of_task in zip(tasks, batches, strict=True):
        progress(f"ranking {task.name}", done, total)
        hard, finished = task.block.hard, 0
        indices = Ragged(hard.offsets, np.arange(len(hard.values), dtype=np.int32))
        found = np.zeros((task.num_readings, len(hard.values)))
        for rows in of_task:
            found[:, indices.take(rows).values] = next(ranks)
            finished += len(rows) * parallel.num_processes()
            progress(f"ranking {task.name}", done + min(finished, len(task.block)), total)
        yield task, parallel.sum_over_processes(torch.from_numpy(found)).cpu().numpy()
        done += len(task.block)


def _batches(block: QueryBlock) -> list[NDArray[np.int64]]:
    """Return the rows of each batch of this process.

    Queries whose later steps have the same relations come together: they share most of the rows of
    a completed graph, which are cached.
    """
    columns = columns_of(block.structure)
    continued = [
        int(node.relation)
        for node in nodes(fill(columns.structure, range(len(columns.fixed))))
        if isinstance(node, Project) and not isinstance(node.operand, Entity)
    ]
    keys = columns.expand(block.symbols)[:, continued].T
    order = np.lexsort(keys) if continued else np.arange(len(block))
    mine = order[parallel.process_index() :: parallel.num_processes()]
    return [mine[start : start + RANK_BATCH] for start in range(0, len(mine), RANK_BATCH)]


def _rank_hard(graph: KnowledgeGraph, split: str, ranker: Ranker, task: _Task) -> Doubles:
    """Rank the hard answers of a task by each reading, (num_readings, num_hard_answers)."""
    block = task.block
    readings = [block]
    if task.num_readings == 2:
        larger = graph.adjacency(SET_EDGES[split][1])
        answers = answers_of_structure(larger, block.structure, block.symbols)
        readings.append(replace(block, easy=answers))
    ranks = [
        [rank_rows(distances, reading.take(rows)) for reading in readings]
        for rows, distances in ranker.score(block, task.union)
    ]
    return np.concatenate(ranks, axis=1)


# ---- figures ----------------------------------------------------------------------------------


def _resampled_means(values: Doubles, name: str) -> Doubles:
    """Return the means of bootstrap resamples; each structure has a random stream of its own."""
    random = random_stream(0, "bootstrap", name)
    return np.array(
        [values[random.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    )


def _interval(means: Doubles) -> tuple[float, float]:
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _by_missing(
    graph: KnowledgeGraph, split: str, block: QueryBlock, ranks: Doubles
) -> dict[int, MissingResult]:
    """Return the results by the number of missing edges in an answer's best derivation."""
    smaller, larger = (graph.adjacency(edges) for edges in SET_EDGES[split])
    counter = MissingEdgeCounter(smaller, larger, block.structure)
    missing = counter.count(block.symbols, block.hard)
    owners = np.repeat(np.arange(len(block)), block.hard.lengths)
    results = {}
    for num_missing in np.unique(missing).tolist():
        chosen = missing == num_missing
        sums = np.bincount(owners[chosen], 1 / ranks[chosen], len(block))
        counts = np.bincount(owners[chosen], minlength=len(block))
        mrr = 100 * float((sums[counts > 0] / counts[counts > 0]).mean())
        results[num_missing] = MissingResult(mrr, int(chosen.sum()))
    return results


def _average(
    names: Sequence[str], results: Mapping[str, StructureResult], means: Mapping[str, Doubles]
) -> Average:
    there = [name for name in names if name in results]
    return Average(
        structures=there,
        metrics=_mean_metrics([results[name].metrics for name in there]),
        interval=_interval(np.mean([means[name] for name in there], axis=0)),
        frequency=_mean_metrics([results[name].frequency for name in there]),
    )


def _mean_metrics(metrics: Sequence[RankMetrics]) -> RankMetrics:
    *values, counts = zip(*map(astuple, metrics), strict=True)
    mrr, one, three, ten = (float(np.mean(each)) for each in values)
    return RankMetrics(mrr, one, three, ten, sum(counts))
