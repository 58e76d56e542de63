"""How fast and how well indexes search, and typical queries to measure and tune them with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, embed_queries
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.sample import sample_queries
from betae.search.approximate import KINDS, Index, build_index, threads_for
from betae.search.nearest import nearest, recall


def typical_queries(
    model: QueryModel, graph: KnowledgeGraph, count: int = 20, seed: int = 0
) -> Embedded:
    """Embed `count` sampled queries of every structure that the model can do, to measure with."""
    names = [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])]
    split = "valid" if len(graph.splits["valid"]) else "train"
    counts = dict.fromkeys(names, count)
    sampled = sample_queries(graph, counts, split, seed=seed, purpose="index queries")
    sampled = sampled.within(model.num_entities, model.num_relations)
    if not len(sampled):
        raise InvalidArgument("The graph has no queries to measure an index with.")
    with torch.no_grad():
        return embed_queries(model, [query for query, _, _ in sampled])


@dataclass(frozen=True)
class Speed:
    """How fast and how well a search finds the 10 nearest entities, one query at a time."""

    name: str
    milliseconds: float  # the median
    recall: float  # at 10, against exact search


def measure(
    model: QueryModel, table: torch.Tensor, queries: Embedded, indexes: Sequence[Index]
) -> list[Speed]:
    """Search for each query by itself, exactly and by each index."""
    singles = [
        Embedded(queries.sets[rows], torch.zeros_like(rows), 1) for rows in queries.rows_by_query()
    ]
    truth = np.concatenate([nearest(model, single, table, 10)[1] for single in singles])
    speeds = []
    for index in (None, *indexes):
        found, times = [], []
        with threads_for(model):
            for single in singles:
                start = time.perf_counter()
                if index is None:
                    found.append(nearest(model, single, table, 10)[1])
                else:
                    found.append(index.nearest(model, single, 10)[1])
                times.append(time.perf_counter() - start)
        name = "exact" if index is None else index.kind
        speeds.append(
            Speed(name, 1000 * float(np.median(times)), recall(np.concatenate(found), truth))
        )
    return speeds


def measure_all(
    model: QueryModel, graph: KnowledgeGraph, name: str, say: Callable[[str], None]
) -> list[Speed]:
    """Build every kind of index for a model, and measure them beside exact search."""
    queries = typical_queries(model, graph)
    indexes = [build_index(model, queries, name, kind, say) for kind in KINDS[model.metric]]
    say("Searching")
    fresh = typical_queries(model, graph, seed=1)  # the effort was tuned on the others
    return measure(model, model.table(), fresh, indexes)
