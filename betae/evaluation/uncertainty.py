"""What the uncertainty of a query says about the number of its answers, and whether it has any.

The uncertainty is the entropy of a Beta embedding, or the size of a box. The paper correlates it
with the number of answers, and uses it to separate queries without answers from others. Here it
also gives an estimate of that number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from betae.evaluation.ranks import QUERIES_AT_ONCE, Doubles, as_group
from betae.evaluation.results import Correlation, CountError, EmptyResult
from betae.exact.answers import count_answers
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import embed_queries
from betae.queries.ast import Query
from betae.queries.structures import NEGATION
from betae.querysets.query_set import SET_EDGES, QueryBlock
from betae.querysets.sample import sample_answered, sample_empty, sample_queries

MEASURED = ("1p", "2p", "3p", "2i", "3i", "pi", "ip", *NEGATION)  # the paper's 12: no unions
VALIDATION_QUERIES = 500  # of each structure, to fit the estimate of the number of answers


def uncertainty_of(model: QueryModel, block: QueryBlock) -> Doubles:
    """Return the uncertainty of each query (n,); a union has that of its most uncertain branch."""
    pieces = [np.empty(0)]
    with torch.no_grad():
        for start in range(0, len(block), QUERIES_AT_ONCE):
            rows = np.arange(start, min(start + QUERIES_AT_ONCE, len(block)))
            embedded = embed_queries(model, [as_group(block, rows)])
            largest = -embedded.best(-model.uncertainty(embedded.sets))
            pieces.append(largest.double().cpu().numpy())
    return np.concatenate(pieces)


def num_answers(
    graph: KnowledgeGraph, block: QueryBlock, edges: Edges = "all"
) -> NDArray[np.int64]:
    """Return the number of answers of each query (n,) on the edges that count."""
    return count_answers(graph.adjacency(edges), block.structure, block.symbols)


def correlate(uncertainty: Doubles, counts: NDArray[np.int64]) -> Correlation:
    """Correlate uncertainty (n,) with the number of answers (n,); NaN if either is constant."""
    from scipy import stats  # half a second to import: a question does not need it

    if len(counts) < 2 or np.ptp(counts) == 0 or np.ptp(uncertainty) == 0:
        return Correlation(float("nan"), float("nan"))
    return Correlation(
        float(stats.spearmanr(uncertainty, counts).statistic),
        float(stats.pearsonr(uncertainty, counts).statistic),
    )


# ---- queries without answers ------------------------------------------------------------------


def tell_empty(
    model: QueryModel, graph: KnowledgeGraph, name: str, count: int, seed: int = 0
) -> EmptyResult | None:
    """Run the paper's test on `count` queries of each kind; None if the graph lacks either kind."""
    empty = sample_empty(graph, name, count, seed)
    answered = sample_answered(graph, name, count, seed)
    if not len(empty) or not len(answered):
        return None
    return separate(uncertainty_of(model, answered), uncertainty_of(model, empty))


def separate(positive: Doubles, negative: Doubles) -> EmptyResult:
    """Return the ROC curve of the scores of positives and negatives, and the area under it."""
    from scipy import stats  # half a second to import: a question does not need it

    area = stats.mannwhitneyu(positive, negative).statistic / (len(positive) * len(negative))
    thresholds = np.quantile(np.concatenate([positive, negative]), np.linspace(1, 0, 51))
    curve = [
        (float((negative >= threshold).mean()), float((positive >= threshold).mean()))
        for threshold in thresholds
    ]
    return EmptyResult(float(area), len(negative), len(positive), [(0.0, 0.0), *curve])


# ---- the number of answers --------------------------------------------------------------------


@dataclass(frozen=True)
class CountEstimate:
    """A straight line for each structure: uncertainty -> ln(number of answers).

    `lines` maps a structure's logic text to (intercept, slope); "" is for structures not fitted.
    """

    lines: dict[str, tuple[float, float]]

    @classmethod
    def fit(cls, samples: Mapping[str, tuple[Doubles, NDArray[np.int64]]]) -> CountEstimate:
        """Fit to the uncertainties and numbers of answers (at least 1) of queries, by structure."""
        uncertainties, counts = map(list, zip(*samples.values(), strict=True))
        pooled = (np.concatenate(uncertainties), np.concatenate(counts))
        return cls({text: _line(*pair) for text, pair in {**samples, "": pooled}.items()})

    def __call__(self, structure: Query, uncertainty: Doubles) -> Doubles:
        """Return the expected number of answers of queries of one structure."""
        intercept, slope = self.lines.get(str(structure), self.lines[""])
        return np.exp(np.clip(intercept + slope * uncertainty, 0, 20))


def fit_counts(
    model: QueryModel, graph: KnowledgeGraph, names: Sequence[str], seed: int = 0
) -> CountEstimate | None:
    """Fit an estimate to sampled validation queries; None if the graph has no validation edges."""
    if not len(graph.splits["valid"]):
        return None
    counts = dict.fromkeys(names, VALIDATION_QUERIES)
    valid = sample_queries(graph, counts, "valid", seed=seed, purpose="count estimates")
    samples = {
        str(block.structure): (
            uncertainty_of(model, block),
            num_answers(graph, block, SET_EDGES["valid"][1]),
        )
        for block in valid.blocks.values()
        if len(block)
    }
    return CountEstimate.fit(samples) if samples else None


def _line(uncertainty: Doubles, counts: NDArray[np.int64]) -> tuple[float, float]:
    logarithms = np.log(counts)
    if len(counts) < 2 or np.ptp(uncertainty) == 0:
        return float(logarithms.mean()), 0.0
    from scipy import stats

    line = stats.linregress(uncertainty, logarithms)
    return float(line.intercept), float(line.slope)


def count_error(estimates: Doubles, counts: NDArray[np.int64]) -> CountError:
    """Compare estimates (n,) with the numbers of answers (n,), which are at least 1."""
    logarithms = np.log(counts)
    errors = np.abs(np.log(estimates) - logarithms)
    # The best single number is the middle of the shortest interval that holds half of the counts.
    ordered, half = np.sort(logarithms), len(logarithms) // 2
    shortest = np.min(ordered[half:] - ordered[: len(ordered) - half])
    return CountError(float(np.exp(np.median(errors))), float(np.exp(shortest / 2)))
