"""The paper's protocol on a query set, and more figures than the paper has.

Each hard answer is ranked against all entities that are not answers on the full graph; metrics are
means over the answers of a query, then over the queries of a structure, then over the 9 structures
without negation (EPFO) and the 5 with it. Beyond the paper: confidence intervals, results by the
number of missing edges, the frequency baseline, and estimates of the number of answers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial

import numpy as np

from betae.checks import check_positive
from betae.errors import InvalidArgument
from betae.evaluation.baseline import rank_by_frequency
from betae.evaluation.parts import (
    Progress,
    RankParts,
    all_forms,
    one_form,
    rank_all,
    rank_part,
    scores_by_embedding,
)
from betae.evaluation.ranks import Doubles, mean, per_query, summarise
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
from betae.exact.derivations import missing_edges, num_edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import SCORES_AT_ONCE
from betae.queries.structures import EPFO, NEGATION
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.querysets.seeds import random_stream

RESAMPLES = 1000  # of the bootstrap
POINTS = 300  # of each structure, kept for the plot of uncertainty against the number of answers


def evaluate(
    model: QueryModel,
    graph: KnowledgeGraph,
    queries: QuerySet,
    *,
    rank: RankParts | None = None,
    predictors: Sequence[str] = (),
    empty_queries: int = 1000,
    seed: int = 0,
    scores_at_once: int = SCORES_AT_ONCE,
    progress: Progress = lambda *_: None,
) -> Evaluation:
    """Evaluate a model on a query set of its graph.

    With `rank`, that ranks the hard answers, not this process by the model's embedding; if it does
    so by the completed graph, its `predictors` are named. `empty_queries` queries of each kind are
    sampled for the test of queries without answers (0: no test). `progress` is told what is being
    done, how much of it is done, and how much there is.
    """
    start = time.monotonic()
    check_positive("empty_queries", empty_queries, whole=True, or_zero=True)
    blocks = _blocks_to_rank(model, graph, queries)
    can = {
        name: block for name, block in blocks.items() if predictors or model.can(block.structure)
    }
    if not can:
        raise InvalidArgument(f"{type(model).__name__} cannot do {', '.join(blocks)}.")
    model.eval()
    results: dict[str, StructureResult] = {}
    means: dict[str, Doubles] = {}  # of the resamples
    tasks = one_form(can) if predictors else all_forms(model, can)
    if rank is None:
        score = scores_by_embedding(model, scores_at_once)
        rank = partial(map, partial(rank_part, score, graph, queries.split))
    for task, ranks in rank_all(rank, tasks, progress):
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
