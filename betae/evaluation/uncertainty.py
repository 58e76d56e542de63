"""What the size of an embedding tells: the number of answers, and whether there are any.

The uncertainty of a query is the entropy of its Beta embedding, or the size of its box. The paper
correlates it with the number of answers, and tells queries without answers from others by it. Here
it is also turned into an estimate of that number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from betae.evaluation.ranks import QUERIES_AT_ONCE, as_group
from betae.exact.answers import answers_of_structure
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import embed_queries
from betae.queries.ast import Query
from betae.queries.structures import NEGATION
from betae.querysets.query_set import QueryBlock
from betae.querysets.sample import sample_answered, sample_empty

MEASURED = ("1p", "2p", "3p", "2i", "3i", "pi", "ip", *NEGATION)  # the paper's 12: no unions
Floats = NDArray[np.float64]


def uncertainty_of(model: QueryModel, block: QueryBlock) -> Floats:
    """Return the uncertainty of every query; of a union, that of its most uncertain branch."""
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
    """Return how many answers each query has on the edges that count."""
    return answers_of_structure(graph.adjacency(edges), block.structure, block.symbols).lengths


@dataclass(frozen=True)
class Correlation:
    """Of uncertainty with the number of answers; NaN if either is the same everywhere."""

    spearman: float
    pearson: float


def correlate(uncertainty: Floats, counts: NDArray[np.int64]) -> Correlation:
    """Correlate uncertainty with the number of answers."""
    from scipy import stats  # half a second to import: a question does not need it

    if len(counts) < 2 or np.ptp(counts) == 0 or np.ptp(uncertainty) == 0:
        return Correlation(float("nan"), float("nan"))
    return Correlation(
        float(stats.spearmanr(uncertainty, counts).statistic),
        float(stats.pearsonr(uncertainty, counts).statistic),
    )


# ---- queries without answers ------------------------------------------------------------------


@dataclass(frozen=True)
class EmptyResult:
    """How well uncertainty tells queries with more than 5 answers from those without any."""

    roc_auc: float
    num_empty: int
    num_answered: int
    curve: list[tuple[float, float]]  # (false, true) positive rates, a few dozen points


def tell_empty(
    model: QueryModel, graph: KnowledgeGraph, name: str, count: int, seed: int = 0
) -> EmptyResult | None:
    """Run the paper's test on `count` queries of each kind; None if the graph has none of one."""
    empty, answered = (draw(graph, name, count, seed) for draw in (sample_empty, sample_answered))
    if not len(empty) or not len(answered):
        return None
    return separate(uncertainty_of(model, answered), uncertainty_of(model, empty))


def separate(positive: Floats, negative: Floats) -> EmptyResult:
    """Return the area under the ROC curve of a score, and the curve."""
    from scipy import stats

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
    """ln(number of answers) as a line in the uncertainty: one for each structure that was fitted.

    `lines` maps a structure's logic text to (intercept, slope); "" is for all others.
    """

    lines: dict[str, tuple[float, float]]

    @classmethod
    def fit(cls, samples: Mapping[str, tuple[Floats, NDArray[np.int64]]]) -> CountEstimate:
        """Fit on the uncertainties and numbers of answers, at least 1, of some queries."""
        uncertainties, counts = map(list, zip(*samples.values(), strict=True))
        pooled = (np.concatenate(uncertainties), np.concatenate(counts))
        return cls({text: _line(*pair) for text, pair in {**samples, "": pooled}.items()})

    def __call__(self, structure: Query, uncertainty: Floats) -> Floats:
        """Return the expected number of answers of queries of one structure."""
        intercept, slope = self.lines.get(str(structure), self.lines[""])
        return np.exp(np.clip(intercept + slope * uncertainty, 0, 20))


def _line(uncertainty: Floats, counts: NDArray[np.int64]) -> tuple[float, float]:
    logarithms = np.log(counts)
    if len(counts) < 2 or np.ptp(uncertainty) == 0:
        return float(logarithms.mean()), 0.0
    from scipy import stats

    line = stats.linregress(uncertainty, logarithms)
    return float(line.intercept), float(line.slope)


@dataclass(frozen=True)
class CountError:
    """Half of the estimates are within this factor of the number of answers."""

    factor: float
    factor_of_constant: float  # of one number for all queries of the structure, the best there is


def count_error(estimates: Floats, counts: NDArray[np.int64]) -> CountError:
    """Compare estimates with the numbers of answers, at least 1."""
    logarithms = np.log(counts)
    off = np.abs(np.log(estimates) - logarithms)
    # The best single number is in the middle of the shortest interval with half of the truths.
    ordered, half = np.sort(logarithms), len(logarithms) // 2
    shortest = np.min(ordered[half:] - ordered[: len(ordered) - half])
    return CountError(float(np.exp(np.median(off))), float(np.exp(shortest / 2)))
