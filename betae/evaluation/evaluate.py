"""The paper's protocol on a query set, and what it does not tell.

Every hard answer is ranked against all entities that are no answers on the full graph; metrics are
means over the answers of a query, then over the queries of a structure, then over the 9 structures
without negation (EPFO) and the 5 with. Beside them: confidence intervals, the results by the number
of missing edges, the frequency baseline, and what the embeddings say of the number of answers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np
import torch

from betae import parallel
from betae.checks import check_positive
from betae.errors import InvalidArgument
from betae.evaluation.baseline import rank_by_frequency
from betae.evaluation.ranks import (
    Metrics,
    distances_of,
    mean,
    per_query,
    rank_rows,
    summarise,
)
from betae.evaluation.uncertainty import (
    MEASURED,
    Correlation,
    CountError,
    CountEstimate,
    EmptyResult,
    Floats,
    correlate,
    count_error,
    num_answers,
    tell_empty,
    uncertainty_of,
)
from betae.exact.answers import answers_of_structure
from betae.exact.derivations import missing_edges, normal_form, num_edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import SCORES_AT_ONCE, UnionForm
from betae.queries.ast import Or, nodes
from betae.queries.structures import EPFO, NEGATION, has_negation
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.querysets.sample import sample_queries
from betae.querysets.seeds import random_stream

RESAMPLES = 1000  # of the bootstrap
POINTS = 300  # of each structure kept for the plot of entropy against the number of answers
VALIDATION_QUERIES = 500  # of each structure, to fit the estimate of the number of answers
DE_MORGAN = "-DM"  # added to the name of a structure whose union is taken in De Morgan form


@dataclass(frozen=True)
class MissingResult:
    """The hard answers whose best derivation misses so many edges."""

    mrr: float
    num_answers: int


@dataclass(frozen=True)
class StructureResult:
    """The results of one structure."""

    metrics: Metrics
    interval: tuple[float, float]  # 95 % confidence of the MRR, by bootstrap over queries
    frequency: Metrics  # of the baseline
    num_edges: int  # of a derivation
    by_missing: dict[int, MissingResult]
    strict_mrr: float | None  # with negation: entities that stop being answers are not filtered
    answers: float  # mean number of hard answers
    correlation: Correlation | None = None
    count_error: CountError | None = None
    points: list[tuple[float, int]] | None = None  # some (uncertainty, number of answers)


@dataclass(frozen=True)
class Average:
    """The mean over the structures of a kind."""

    structures: list[str]
    metrics: Metrics
    interval: tuple[float, float]
    frequency: Metrics


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured of a model on a query set."""

    model: str  # betae, query2box or gqe
    graph: dict[str, Any]  # fingerprint and counts
    queries: dict[str, Any]  # split, origin and number
    structures: dict[str, StructureResult]  # "2u-DM": unions in De Morgan form
    averages: dict[str, Average]  # EPFO, negation
    cannot: list[str]  # structures that the model cannot do
    empty: dict[str, EmptyResult]  # queries without answers
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is not a number is None."""
        content: dict[str, Any] = _plain(asdict(self))
        return content


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def evaluate(
    model: QueryModel,
    graph: KnowledgeGraph,
    queries: QuerySet,
    *,
    empty_queries: int = 1000,
    seed: int = 0,
    scores_at_once: int = SCORES_AT_ONCE,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Evaluation:
    """Evaluate a model on a query set of its graph.

    `empty_queries` of each kind are drawn for the test of queries without answers (0: no test).
    `progress` is told what is being done, how much of it is done, and how much there is.
    """
    start = time.monotonic()
    check_positive("empty_queries", empty_queries, whole=True, or_zero=True)
    queries.check_graph(graph)
    if (model.num_entities, model.num_relations) != (graph.num_entities, graph.num_relations):
        raise InvalidArgument(
            f"The model has {model.num_entities:,} entities and {model.num_relations:,} directed "
            f"relations, the graph {graph.num_entities:,} and {graph.num_relations:,}: "
            "it was trained on another graph."
        )
    if queries.split == "train":
        raise InvalidArgument("Evaluation needs a query set for valid or test, not for train.")
    blocks = {name: _with_hard(block) for name, block in queries.blocks.items()}
    blocks = {name: block for name, block in blocks.items() if len(block)}
    if not blocks:
        raise InvalidArgument("The query set holds no query with a hard answer to rank.")
    can = {name: block for name, block in blocks.items() if model.can(block.structure)}
    if not can:
        raise InvalidArgument(f"{type(model).__name__} cannot do {', '.join(blocks)}.")
    model.eval()
    with torch.no_grad():
        table = model.table()
    work = [
        (label, block, union)
        for name, block in can.items()
        for label, union in _unions(model, name, block)
        if label == name or label not in blocks
    ]
    results: dict[str, StructureResult] = {}
    means: dict[str, Floats] = {}  # of the resamples
    done, total = 0, sum(len(block) for _, block, _ in work)
    for name, block, union in work:

        def tell(number: int, name: str = name, before: int = done) -> None:
            progress(f"ranking {name}", before + number, total)

        ranks, strict = _rank(
            model, table, graph, queries.split, block, union, scores_at_once, tell
        )
        means[name] = _resampled_means(per_query(100 / ranks, block.hard.offsets), seed)
        results[name] = _summarise(graph, queries.split, block, ranks, strict, means[name])
        done += len(block)
    empty: dict[str, EmptyResult] = {}
    if model.has_uncertainty:
        results = _measure_uncertainty(model, graph, queries.split, can, results, seed)
        named = [name for name in MEASURED if name in can and empty_queries]
        for number, name in enumerate(named):
            progress("queries without answers", number, len(named))
            if (result := tell_empty(model, graph, name, empty_queries, seed)) is not None:
                empty[name] = result
    return Evaluation(
        model.name,
        {
            "fingerprint": graph.fingerprint,
            "entities": graph.num_entities,
            "relations": graph.num_relations // 2,
        },
        {"split": queries.split, "origin": queries.origin, "count": len(queries)},
        results,
        {
            kind: _average(names, results, means)
            for kind, names in {"EPFO": EPFO, "negation": NEGATION}.items()
            if any(name in results for name in names)
        },
        [name for name in blocks if name not in can],
        empty,
        time.monotonic() - start,
    )


def _with_hard(block: QueryBlock) -> QueryBlock:
    return block.take(np.flatnonzero(block.hard.lengths))


def _unions(model: QueryModel, name: str, block: QueryBlock) -> list[tuple[str, UnionForm]]:
    """Return the ways to take a union that make a difference, each with a name."""
    if any(isinstance(node, Or) for node in nodes(block.structure)):
        forms: list[tuple[str, UnionForm]] = [(name, "DNF"), (name + DE_MORGAN, "DM")]
        return forms if model.has_complement else forms[:1]
    is_written_so = any(isinstance(node, Or) for node in nodes(normal_form(block.structure)))
    return [(name, "DM" if is_written_so else "DNF")]


def _rank(
    model: QueryModel,
    table: torch.Tensor,
    graph: KnowledgeGraph,
    split: str,
    block: QueryBlock,
    union: UnionForm,
    scores_at_once: int,
    tell: Callable[[int], None],
) -> tuple[Floats, Floats | None]:
    """Rank the hard answers of a block, by the release's reading of "easy" and, if the queries
    negate, by the strict one; each process its part of the queries.
    """
    readings = [block]
    if has_negation(normal_form(block.structure)):
        larger = graph.adjacency(SET_EDGES[split][1])
        answers = answers_of_structure(larger, block.structure, block.symbols)
        readings.append(replace(block, easy=answers))
    mine = np.arange(parallel.process_number(), len(block), parallel.num_processes())
    parts = [reading.take(mine) for reading in readings]
    pieces: list[list[Floats]] = [[] for _ in readings]
    for rows, distances in distances_of(model, table, parts[0], union, scores_at_once):
        for part, ranks in zip(parts, pieces, strict=True):
            ranks.append(rank_rows(distances, part.take(rows)))
        tell(min(len(block), (int(rows[-1]) + 1) * parallel.num_processes()))
    is_mine = np.isin(np.repeat(np.arange(len(block)), block.hard.lengths), mine)
    everyones = torch.zeros(len(readings), len(is_mine), dtype=torch.float64)
    for row, ranks in enumerate(pieces):
        everyones[row, torch.from_numpy(is_mine)] = torch.from_numpy(np.concatenate([[], *ranks]))
    found = parallel.sum_over_processes(everyones).cpu().numpy()
    return found[0], found[1] if len(found) > 1 else None


def _resampled_means(values: Floats, seed: int) -> Floats:
    """Return the means of as many values drawn with replacement, many times."""
    random = random_stream(seed, "bootstrap")
    return np.array(
        [values[random.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    )


def _interval(means: Floats) -> tuple[float, float]:
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _summarise(
    graph: KnowledgeGraph,
    split: str,
    block: QueryBlock,
    ranks: Floats,
    strict: Floats | None,
    means: Floats,
) -> StructureResult:
    smaller, larger = (graph.adjacency(edges) for edges in SET_EDGES[split])
    missing = missing_edges(smaller, larger, block.structure, block.symbols, block.hard)
    owners = np.repeat(np.arange(len(block)), block.hard.lengths)
    by_missing = {}
    for number in np.unique(missing).tolist():
        chosen = missing == number
        sums = np.bincount(owners[chosen], 1 / ranks[chosen], len(block))
        counts = np.bincount(owners[chosen], minlength=len(block))
        mrr = 100 * float((sums[counts > 0] / counts[counts > 0]).mean())
        by_missing[number] = MissingResult(mrr, int(chosen.sum()))
    return StructureResult(
        summarise(ranks, block.hard.offsets),
        _interval(means),
        summarise(rank_by_frequency(graph, block), block.hard.offsets),
        num_edges(block.structure),
        by_missing,
        None if strict is None else summarise(strict, block.hard.offsets).mrr,
        float(block.hard.lengths.mean()),
    )


def _average(
    names: Sequence[str], results: Mapping[str, StructureResult], means: Mapping[str, Floats]
) -> Average:
    there = [name for name in names if name in results]
    return Average(
        there,
        _mean_metrics([results[name].metrics for name in there]),
        _interval(np.mean([means[name] for name in there], axis=0)),
        _mean_metrics([results[name].frequency for name in there]),
    )


def _mean_metrics(metrics: Sequence[Metrics]) -> Metrics:
    mrr, one, three, ten, counts = zip(*map(astuple, metrics), strict=True)
    return Metrics(mean(mrr), mean(one), mean(three), mean(ten), sum(counts))


def fit_counts(
    model: QueryModel, graph: KnowledgeGraph, names: Sequence[str], seed: int = 0
) -> CountEstimate | None:
    """Fit an estimate of the number of answers on validation queries, if there are any edges."""
    if not len(graph.splits["valid"]):
        return None
    valid = sample_queries(
        graph,
        dict.fromkeys(names, VALIDATION_QUERIES),
        "valid",
        seed=seed,
        purpose="count estimates",
    )
    samples = {
        str(block.structure): (
            uncertainty_of(model, block),
            num_answers(graph, block, SET_EDGES["valid"][1]),
        )
        for block in valid.blocks.values()
        if len(block)
    }
    return CountEstimate.fit(samples) if samples else None


def _measure_uncertainty(
    model: QueryModel,
    graph: KnowledgeGraph,
    split: str,
    blocks: Mapping[str, QueryBlock],
    results: Mapping[str, StructureResult],
    seed: int,
) -> dict[str, StructureResult]:
    """Add what the embeddings say of the number of answers, for structures without a union."""
    measured = [name for name in blocks if name in MEASURED]
    estimate = fit_counts(model, graph, measured, seed) if measured else None
    random = random_stream(seed, "points of a plot")
    enriched = dict(results)
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
