"""The paper's protocol on a query set, and more figures than the paper has.

Each hard answer is ranked against all entities that are not answers on the full graph; metrics are
means over the answers of a query, then over the queries of a structure, then over the 9 structures
without negation (EPFO) and the 5 with it. Beyond the paper: confidence intervals, results by the
number of missing edges, the frequency baseline, and estimates of the number of answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from betae import parallel
from betae.checks import check_positive
from betae.errors import InvalidArgument
from betae.evaluation.baseline import rank_by_frequency
from betae.evaluation.ranks import Doubles, distances_of, mean, per_query, rank_rows, summarise
from betae.evaluation.results import (
    Average,
    EmptyResult,
    Evaluation,
    GraphFacts,
    Metrics,
    MissingResult,
    QueryFacts,
    StructureResult,
)
from betae.evaluation.uncertainty import (
    MEASURED,
    correlate,
    count_error,
    fit_counts,
    num_answers,
    tell_empty,
    uncertainty_of,
)
from betae.exact.answers import answers_of_structure
from betae.exact.derivations import missing_edges, normal_form, num_edges
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.models.base import QueryModel
from betae.models.execute import SCORES_AT_ONCE, UnionForm
from betae.queries.ast import Or, Query, nodes
from betae.queries.structures import EPFO, NEGATION, has_negation
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.querysets.seeds import random_stream

RESAMPLES = 1000  # of the bootstrap
POINTS = 300  # of each structure, kept for the plot of uncertainty against the number of answers
DE_MORGAN = "-DM"  # added to the name of a structure whose union is taken in De Morgan form

# Queries and a form of their unions -> rows of the block with their distances, (n, num_entities).
Score = Callable[[QueryBlock, UnionForm], Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]]
Progress = Callable[[str, int, int], None]  # what is being done, how much is done, how much in all


def evaluate(
    model: QueryModel,
    graph: KnowledgeGraph,
    queries: QuerySet,
    *,
    score: Score | None = None,
    predictors: Sequence[str] = (),
    empty_queries: int = 1000,
    seed: int = 0,
    scores_at_once: int = SCORES_AT_ONCE,
    progress: Progress = lambda *_: None,
) -> Evaluation:
    """Evaluate a model on a query set of its graph.

    With `score`, entities are ranked by it, not by the model's embedding: that of the completed
    graph, whose `predictors` are then named. `empty_queries` queries of each kind are sampled for
    the test of queries without answers (0: no test). `progress` is told what is being done, how
    much of it is done, and how much there is.
    """
    start = time.monotonic()
    check_positive("empty_queries", empty_queries, whole=True, or_zero=True)
    blocks = _blocks_to_rank(model, graph, queries)
    can = {name: block for name, block in blocks.items() if score or model.can(block.structure)}
    if not can:
        raise InvalidArgument(f"{type(model).__name__} cannot do {', '.join(blocks)}.")
    model.eval()
    results: dict[str, StructureResult] = {}
    means: dict[str, Doubles] = {}  # of the resamples
    tasks = _tasks(model, can)
    if score is None:
        with torch.no_grad():
            score = partial(distances_of, model, model.table(), scores_at_once=scores_at_once)
    else:
        tasks = [_Task(name, block, "DNF") for name, block in can.items()]
    for task, ranks in _rank_all(score, graph, queries.split, tasks, progress):
        values = per_query(100 / ranks[0], task.block.hard.offsets)
        means[task.name] = _resampled_means(values, seed)
        interval = _interval(means[task.name])
        results[task.name] = _summarise(graph, queries.split, task.block, ranks, interval)
    empty: dict[str, EmptyResult] = {}
    if model.has_uncertainty and not predictors:
        results |= _measure_uncertainty(model, graph, queries.split, can, results, seed)
        if empty_queries:
            empty = _tell_all_empty(model, graph, can, empty_queries, seed, progress)
    return Evaluation(
        model=model.name,
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
        method="completed" if predictors else "embedding",
        predictors=[*predictors],
        seconds=time.monotonic() - start,
    )


def _blocks_to_rank(
    model: QueryModel, graph: KnowledgeGraph, queries: QuerySet
) -> dict[str, QueryBlock]:
    """Return the queries that have a hard answer; raise unless model, graph and queries fit."""
    queries.check_graph(graph)
    if (model.num_entities, model.num_relations) != (graph.num_entities, graph.num_relations):
        raise InvalidArgument(
            f"The model has {model.num_entities:,} entities and {model.num_relations:,} directed "
            f"relations, the graph {graph.num_entities:,} and {graph.num_relations:,}: "
            "it was trained on another graph."
        )
    if queries.split == "train":
        raise InvalidArgument("Evaluation needs a query set for valid or test, not for train.")
    blocks = queries.with_hard_answers().blocks
    if not blocks:
        raise InvalidArgument("The query set holds no query with a hard answer to rank.")
    return blocks


# ---- ranks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """Queries to rank, with a form for their unions."""

    name: str
    block: QueryBlock
    union: UnionForm


def _tasks(model: QueryModel, blocks: Mapping[str, QueryBlock]) -> list[_Task]:
    """Return a task for each block and each form of its unions that makes a difference."""
    tasks = []
    for name, block in blocks.items():
        if _has_union(block.structure):
            tasks.append(_Task(name, block, "DNF"))
            # A release may hold the De Morgan form as queries of its own.
            if model.has_complement and name + DE_MORGAN not in blocks:
                tasks.append(_Task(name + DE_MORGAN, block, "DM"))
        else:
            is_written_so = _has_union(normal_form(block.structure))
            tasks.append(_Task(name, block, "DM" if is_written_so else "DNF"))
    return tasks


def _has_union(structure: Query) -> bool:
    return any(isinstance(node, Or) for node in nodes(structure))


def _rank_all(
    score: Score,
    graph: KnowledgeGraph,
    split: str,
    tasks: Sequence[_Task],
    progress: Progress,
) -> Iterator[tuple[_Task, Doubles]]:
    """Yield each task with the ranks of its hard answers, (num_readings, num_hard_answers)."""
    done, total = 0, sum(len(task.block) for task in tasks)
    for task in tasks:

        def tell(number: int, name: str = task.name, before: int = done) -> None:
            progress(f"ranking {name}", before + number, total)

        readings = _readings(graph, split, task.block)
        yield task, _rank(score, readings, task.union, tell)
        done += len(task.block)


def _readings(graph: KnowledgeGraph, split: str, block: QueryBlock) -> list[QueryBlock]:
    """Return a block by the release's reading of "easy" and, with negation, by the strict one."""
    if not has_negation(normal_form(block.structure)):
        return [block]
    larger = graph.adjacency(SET_EDGES[split][1])
    answers = answers_of_structure(larger, block.structure, block.symbols)
    return [block, replace(block, easy=answers)]


def _rank(
    score: Score,
    readings: Sequence[QueryBlock],
    union: UnionForm,
    tell: Callable[[int], None],
) -> Doubles:
    """Rank the hard answers of a block by each reading; the processes share the queries."""
    block = readings[0]
    mine = np.arange(parallel.process_number(), len(block), parallel.num_processes())
    parts = [reading.take(mine) for reading in readings]
    hard = parts[0].hard
    places = Ragged(hard.offsets, np.arange(len(hard.values), dtype=np.int32))
    ranks, done = np.empty((len(readings), len(hard.values))), 0
    for rows, distances in score(parts[0], union):
        for part, of_part in zip(parts, ranks, strict=True):
            of_part[places.take(rows).values] = rank_rows(distances, part.take(rows))
        done += len(rows)
        tell(min(len(block), done * parallel.num_processes()))
    is_mine = np.isin(np.repeat(np.arange(len(block)), block.hard.lengths), mine)
    everyones = torch.zeros(len(readings), len(is_mine), dtype=torch.float64)
    everyones[:, torch.from_numpy(is_mine)] = torch.from_numpy(ranks)
    found: Doubles = parallel.sum_over_processes(everyones).cpu().numpy()
    return found


# ---- figures ----------------------------------------------------------------------------------


def _resampled_means(values: Doubles, seed: int) -> Doubles:
    """Return the means of many resamples of the values with replacement (bootstrap)."""
    random = random_stream(seed, "bootstrap")
    return np.array(
        [values[random.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    )


def _interval(means: Doubles) -> tuple[float, float]:
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _summarise(
    graph: KnowledgeGraph,
    split: str,
    block: QueryBlock,
    ranks: Doubles,
    interval: tuple[float, float],
) -> StructureResult:
    release, *strict = (summarise(row, block.hard.offsets) for row in ranks)
    return StructureResult(
        metrics=release,
        interval=interval,
        frequency=summarise(rank_by_frequency(graph, block), block.hard.offsets),
        num_edges=num_edges(block.structure),
        by_missing=_by_missing(graph, split, block, ranks[0]),
        strict_mrr=strict[0].mrr if strict else None,
        answers=float(block.hard.lengths.mean()),
    )


def _by_missing(
    graph: KnowledgeGraph, split: str, block: QueryBlock, ranks: Doubles
) -> dict[int, MissingResult]:
    """Return the results by how many edges the best derivation of an answer lacks."""
    smaller, larger = (graph.adjacency(edges) for edges in SET_EDGES[split])
    missing = missing_edges(smaller, larger, block.structure, block.symbols, block.hard)
    owners = np.repeat(np.arange(len(block)), block.hard.lengths)
    results = {}
    for number in np.unique(missing).tolist():
        chosen = missing == number
        sums = np.bincount(owners[chosen], 1 / ranks[chosen], len(block))
        counts = np.bincount(owners[chosen], minlength=len(block))
        mrr = 100 * float((sums[counts > 0] / counts[counts > 0]).mean())
        results[number] = MissingResult(mrr, int(chosen.sum()))
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


def _mean_metrics(metrics: Sequence[Metrics]) -> Metrics:
    mrr, one, three, ten, counts = zip(*map(astuple, metrics), strict=True)
    return Metrics(mean(mrr), mean(one), mean(three), mean(ten), sum(counts))


# ---- uncertainty ------------------------------------------------------------------------------


def _measure_uncertainty(
    model: QueryModel,
    graph: KnowledgeGraph,
    split: str,
    blocks: Mapping[str, QueryBlock],
    results: Mapping[str, StructureResult],
    seed: int,
) -> dict[str, StructureResult]:
    """Return the results of structures without a union, with what uncertainty says of answers."""
    measured = [name for name in blocks if name in MEASURED]
    estimate = fit_counts(model, graph, measured, seed) if measured else None
    random = random_stream(seed, "points of a plot")
    enriched = {}
    for name in measured:
        block = blocks[name]
        uncertainty = uncertainty_of(model, block)
        counts = num_answers(graph, block, SET_EDGES[split][1])
        chosen = random.permutation(len(block))[:POINTS]
        error = None
        if estimate is not None:
            error = count_error(estimate(block.structure, uncertainty), counts)
        enriched[name] = replace(
            results[name],
            correlation=correlate(uncertainty, counts),
            count_error=error,
            points=[(float(uncertainty[row]), int(counts[row])) for row in chosen],
        )
    return enriched


def _tell_all_empty(
    model: QueryModel,
    graph: KnowledgeGraph,
    blocks: Mapping[str, QueryBlock],
    empty_queries: int,
    seed: int,
    progress: Progress,
) -> dict[str, EmptyResult]:
    names = [name for name in MEASURED if name in blocks]
    found = {}
    for number, name in enumerate(names):
        progress("queries without answers", number, len(names))
        if (result := tell_empty(model, graph, name, empty_queries, seed)) is not None:
            found[name] = result
    return found
