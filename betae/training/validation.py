"""Validation during training: which queries, and their MRR."""

from __future__ import annotations

import numpy as np
import torch

from betae import parallel
from betae.errors import InvalidArgument
from betae.evaluation.baseline import rank_by_frequency
from betae.evaluation.ranks import mean, per_query, rank_block
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import sample_validation
from betae.training.config import TrainConfig


def validation_queries(
    given: QuerySet | None, model: QueryModel, graph: KnowledgeGraph, config: TrainConfig
) -> QuerySet | None:
    """Return the given queries that can be ranked, or sampled ones; None if there are none."""
    if given is not None:
        return _rankable(given, graph)
    names = [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])]
    return sample_validation(graph, names, config.validation_queries, config.seed)


def _rankable(queries: QuerySet, graph: KnowledgeGraph) -> QuerySet:
    """Return the queries of a set that have a hard answer, without blocks that have none."""
    queries.check_graph(graph)
    if queries.split == "train":
        raise InvalidArgument("Validation needs a query set sampled for valid, not for train.")
    queries = queries.with_hard_answers()
    if not len(queries):
        raise InvalidArgument(
            "The validation set holds no query with a hard answer to rank. Sample another, or "
            "leave it out: queries are then sampled from the validation edges."
        )
    return queries


def validate(model: QueryModel, queries: QuerySet) -> dict[str, float]:
    """Return the MRR of every structure, in percent; each process ranks a part of the queries."""
    model.eval()
    with torch.no_grad():
        table = model.table()
    sums = []
    for block in queries.blocks.values():
        mine = block.take(
            np.arange(parallel.process_number(), len(block), parallel.num_processes())
        )
        ranks = rank_block(model, table, mine)
        sums.append(per_query(1 / ranks, mine.hard.offsets).sum() if len(mine) else 0.0)
    totals = parallel.sum_over_processes(torch.tensor(sums, dtype=torch.float64))
    model.train()
    return {
        name: 100 * float(total) / len(block)
        for (name, block), total in zip(queries.blocks.items(), totals, strict=True)
    }


def frequency_mrr(graph: KnowledgeGraph, queries: QuerySet) -> float:
    """Return the MRR of ranking by frequency, mean over the structures, in percent."""
    return mean(
        [
            100 * float(per_query(1 / rank_by_frequency(graph, block), block.hard.offsets).mean())
            for block in queries.blocks.values()
        ]
    )
