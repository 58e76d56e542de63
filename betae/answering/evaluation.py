"""The evaluation of a run by either method, in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from betae.answering.by_completion import queries_at_once
from betae.answering.completed import CompletedGraph
from betae.answering.truth import evaluate as evaluate_truth
from betae.cluster import Cluster
from betae.evaluation.evaluate import evaluate
from betae.evaluation.parts import Progress, Score, ranking_on, scores_by_embedding
from betae.evaluation.results import Evaluation
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.plan import UnionForm
from betae.querysets.query_set import QueryBlock, QuerySet

Load = Callable[[], QueryModel | CompletedGraph]


def evaluate_on(
    cluster: Cluster | None,
    load: Load,
    graph: KnowledgeGraph,
    queries: QuerySet,
    *,
    empty_queries: int,
    progress: Progress,
) -> Evaluation:
    """Evaluate the model, by embedding, or the completed graph that `load` gives.

    On a cluster, each worker process loads its own. It is loaded here too, so that what must be
    fitted is fitted once, and for figures other than ranks.
    """
    loaded = load()
    predictors = [] if isinstance(loaded, QueryModel) else loaded.probabilities.predictors
    open_score = partial(_open_scores, load if cluster else lambda: loaded)
    return evaluate(
        loaded if isinstance(loaded, QueryModel) else predictors[0],
        graph,
        queries,
        rank=ranking_on(cluster, open_score, graph, queries.split),
        predictors=[model.name for model in predictors],
        empty_queries=empty_queries,
        progress=progress,
    )


def _open_scores(load: Load) -> Score:
    loaded = load()
    if isinstance(loaded, QueryModel):
        return scores_by_embedding(loaded)
    return partial(distances_of, loaded)


def distances_of(
    completed: CompletedGraph,
    block: QueryBlock,
    union: UnionForm = "DNF",  # noqa: ARG001
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yield rows of a block with the truth of all entities, negated, (n, num_entities).

    The form of a union makes no difference here.
    """
    at_once = queries_at_once(completed)
    for start in range(0, len(block), at_once):
        rows = np.arange(start, min(start + at_once, len(block)))
        yield rows, -evaluate_truth(completed, block.structure, block.symbols[rows]).root.values
