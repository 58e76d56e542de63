"""Uncertainty of queries against the number of their answers.

The uncertainty is the entropy of a Beta embedding, or the size of a box. The paper correlates it
with the number of answers and uses it to detect queries without any; here it also estimates that
number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from betae.evaluation.ranks import Doubles, embed_block
from betae.evaluation.results import Correlation, CountError, EmptyResult, StructureResult
from betae.exact.answers import count_answers
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.queries.structures import NEGATION
from betae.querysets.query_set import SET_EDGES, QueryBlock
from betae.querysets.sample import random_stream, sample_answered, sample_empty, sample_queries

POINTS = 300  # of each structure, for the plot of uncertainty against the number of answers
MEASURED = ("1p", "2p", "3p", "2i", "3i", "pi", "ip", *NEGATION)  # the paper's 12: no unions
VALIDATION_QUERIES = 500  # of each structure, to fit the estimate of the number of answers


def measure_uncertainty(
    model: QueryModel,
    graph: KnowledgeGraph,
    split: str,
    blocks: Mapping[str, QueryBlock],
    results: Mapping[str, StructureResult],
) -> dict[str, StructureResult]:
    """Add correlation, count error and points of a plot to the results without unions."""
    measured = [name for name in blocks if name in MEASURED]
    larger = graph.adjacency(SET_EDGES[split][1])
    lines = fit_counts(model, graph, measured)
    random = random_stream(0, "points of a plot")
    enriched = {}
    for name in measured:
        block = blocks[name]
        uncertainty = uncertainty_of(model, block)
        counts = count_answers(larger, block.structure, block.symbols)
        chosen = random.permutation(len(block))[:POINTS]
        error = None
        if lines:
            intercept, slope = lines.get(name, lines["all"])
            estimates = np.exp(np.clip(intercept + slope * uncertainty, 0, 20))
            error = count_error(estimates, counts)
        enriched[name] = replace(
            results[name],
            correlation=correlate(uncertainty, counts),
            count_error=error,
            points=[(float(uncertainty[row]), int(counts[row])) for row in chosen],
        )
    return enriched


def uncertainty_of(model: QueryModel, block: QueryBlock) -> Doubles:
    """Return the uncertainty of each query (n,); for a union, the largest of its branches."""
    pieces = [np.empty(0)]
    with torch.no_grad():
        for _, embedded in embed_block(model, block):
            largest = -embedded.best(-model.uncertainty(embedded.sets))
            pieces.append(largest.double().cpu().numpy())
    return np.concatenate(pieces)


def correlate(uncertainty: Doubles, counts: NDArray[np.int64]) -> Correlation:
    """Correlate uncertainty (n,) with the number of answers (n,); NaN if either is constant."""
    from scipy import stats  # slow to import

    if len(counts) < 2 or np.ptp(counts) == 0 or np.ptp(uncertainty) == 0:
        return Correlation(float("nan"), float("nan"))
    return Correlation(
        float(stats.spearmanr(uncertainty, counts).statistic),
        float(stats.pearsonr(uncertainty, counts).statistic),
    )


# ---- queries without answers ------------------------------------------------------------------


def tell_empty(
    model: QueryModel,
    graph: KnowledgeGraph,
    names: Sequence[str],
    count: int,
    progress: Callable[[str, int, int], None],
) -> dict[str, EmptyResult]:
    """Tell queries without answers from as many with answers, `count` of each structure.

    Structures of which the graph has no such queries are left out.
    """
    found = {}
    for i, name in enumerate(names):
        progress("queries without answers", i, len(names))
        empty = sample_empty(graph, name, count)
        answered = sample_answered(graph, name, count)
        if len(empty) and len(answered):
            found[name] = separate(uncertainty_of(model, answered), uncertainty_of(model, empty))
    return found


def separate(positive: Doubles, negative: Doubles) -> EmptyResult:
    """Compute the ROC curve of the scores of positives and negatives, and the area under it."""
    from scipy import stats  # slow to import

    area = stats.mannwhitneyu(positive, negative).statistic / (len(positive) * len(negative))
    thresholds = np.quantile(np.concatenate([positive, negative]), np.linspace(1, 0, 51))
    curve = [
        (float((negative >= threshold).mean()), float((positive >= threshold).mean()))
        for threshold in thresholds
    ]
    return EmptyResult(float(area), len(negative), len(positive), [(0.0, 0.0), *curve])


# ---- the number of answers --------------------------------------------------------------------


def fit_counts(
    model: QueryModel, graph: KnowledgeGraph, names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Fit ln(number of answers) = intercept + slope * uncertainty to sampled validation queries.

    Returns the lines of the structures, and of "all" together; none without validation edges.
    """
    if not names or not len(graph.written_ids["valid"]):
        return {}
    counts = dict.fromkeys(names, VALIDATION_QUERIES)
    valid = sample_queries(graph, counts, "valid", purpose="count estimates")
    edges = graph.adjacency(SET_EDGES["valid"][1])
    samples = {
        name: (uncertainty_of(model, block), count_answers(edges, block.structure, block.symbols))
        for name, block in valid.blocks.items()
        if len(block)
    }
    if not samples:
        return {}
    uncertainties, numbers = zip(*samples.values(), strict=True)
    samples["all"] = np.concatenate(uncertainties), np.concatenate(numbers)
    return {name: fit_line(*sample) for name, sample in samples.items()}


def fit_line(uncertainty: Doubles, counts: NDArray[np.int64]) -> tuple[float, float]:
    """Regress ln(counts) on uncertainty: intercept and slope; the mean if that is constant."""
    from scipy import stats  # slow to import

    logarithms = np.log(counts)
    if len(counts) < 2 or np.ptp(uncertainty) == 0:
        return float(logarithms.mean()), 0.0
    line = stats.linregress(uncertainty, logarithms)
    return float(line.intercept), float(line.slope)


def count_error(estimates: Doubles, counts: NDArray[np.int64]) -> CountError:
    """Compare estimated with true numbers of answers, both (n,) and at least 1."""
    logarithms = np.log(counts)
    errors = np.abs(np.log(estimates) - logarithms)
    # The best single number is the middle of the shortest interval that holds half of the counts.
    ordered, half = np.sort(logarithms), len(logarithms) // 2
    shortest = np.min(ordered[half:] - ordered[: len(ordered) - half])
    return CountError(float(np.exp(np.median(errors))), float(np.exp(shortest / 2)))
