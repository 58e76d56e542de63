"""Validation during training: which queries, and their MRR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae import parallel
from betae.evaluation.ranks import (
    EMBED_BATCH,
    Doubles,
    EmbeddingRanker,
    answers_within,
    as_group,
    count_closer,
    per_query,
    rank_block,
    rank_by_frequency,
)
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import anchors_of, embed_queries, score_blocks
from betae.models.rows import Gathered, blocks
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.query_set import QueryBlock, QuerySet
from betae.querysets.sample import sample_queries
from betae.training.config import TrainConfig
from betae.training.distributed import borrow

QUERIES_PER_PASS = 2**14  # over a large table
VALUES_PER_PASS = 2**25  # of a table in memory at a time: 128 MiB in float32


def validation_queries(
    given: QuerySet | None, model: QueryModel, graph: KnowledgeGraph, config: TrainConfig
) -> QuerySet | None:
    """Return the given queries with hard answers, or sampled ones; None if there are none."""
    if given is not None:
        return given.rankable(graph)
    if not config.validation.queries or not len(graph.written_ids["valid"]):
        return None
    names = [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])]
    counts = dict.fromkeys(names, config.validation.queries)
    sampled = sample_queries(graph, counts, "valid", seed=config.seed, purpose="validation")
    sampled = sampled.with_hard_answers()
    return sampled if sampled.blocks else None


def validate(model: QueryModel, queries: QuerySet) -> dict[str, float]:
    """Return the MRR of every structure, in percent; each process scores the rows it holds."""
    model.eval()
    sums = dict.fromkeys(queries.blocks, 0.0)
    with torch.no_grad():
        for pieces in _bundles(queries.blocks):
            ranks = _rank(model, [block for _, block in pieces])
            for (name, block), of_block in zip(pieces, ranks, strict=True):
                sums[name] += float(per_query(1 / of_block, block.hard.offsets).sum())
    model.gathered = None
    model.train()
    return {name: 100 * total / len(queries.blocks[name]) for name, total in sums.items()}


def _bundles(blocks: Mapping[str, QueryBlock]) -> Iterator[list[tuple[str, QueryBlock]]]:
    """Yield lists of pieces of blocks, each with up to QUERIES_PER_PASS queries."""
    pieces: list[tuple[str, QueryBlock]] = []
    for name, block in blocks.items():
        for start in range(0, len(block), EMBED_BATCH):
            rows = np.arange(start, min(start + EMBED_BATCH, len(block)))
            pieces.append((name, block.take(rows)))
            if sum(len(piece) for _, piece in pieces) > QUERIES_PER_PASS - EMBED_BATCH:
                yield pieces
                pieces = []
    if pieces:
        yield pieces


def _rank(model: QueryModel, pieces: list[QueryBlock]) -> list[Doubles]:
    """Return the ranks of the hard answers of some queries.

    A large table, or one held by several processes, is scored in blocks of rows, in two passes:
    one for the distances of the hard answers, one to count closer entities.
    """
    parts = [*blocks(len(model.rows), model.entities.shape[1], VALUES_PER_PASS)]
    if len(parts) == 1 and parallel.num_processes() == 1:
        ranker = EmbeddingRanker(model)
        return [rank_block(ranker, piece) for piece in pieces]
    groups = [as_group(piece, np.arange(len(piece))) for piece in pieces]
    model.gathered = None
    if parallel.num_processes() > 1:
        anchors = anchors_of(groups, model.num_entities).to(model.entities.device)
        model.gathered = borrow(model, anchors)
    embedded = [embed_queries(model, [group]) for group in groups]

    def scores() -> Iterator[tuple[int, slice, QueryBlock, int, NDArray[np.float32]]]:
        """Yield the index of a piece, its hard answers, some of its queries, their distances."""
        for part in parts if len(model.rows) else []:
            first = model.rows.start + part.start
            ids = torch.arange(first, model.rows.start + part.stop, device=model.entities.device)
            model.gathered = Gathered(ids, model.entities[part])
            table = model.table(ids)
            for i, (piece, sets) in enumerate(zip(pieces, embedded, strict=True)):
                for some, distances in score_blocks(model, sets, table):
                    answers = slice(*piece.hard.offsets[[some.start, some.stop]])
                    queries = piece.take(np.arange(some.start, some.stop))
                    yield i, answers, queries, first, distances.float().cpu().numpy()

    limits = [np.zeros(len(piece.hard.values), dtype=np.float32) for piece in pieces]
    for i, answers, queries, first, distances in scores():
        columns, found = answers_within(distances, first, queries)
        limits[i][answers][columns] = found
    limits = [*map(_sum, limits)]  # one process holds each answer; the others have 0
    closer = [np.zeros(len(piece.hard.values)) for piece in pieces]
    for i, answers, queries, first, distances in scores():
        closer[i][answers] += count_closer(distances, first, queries, limits[i][answers])
    return [1 + _sum(counts) for counts in closer]


def _sum(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sum over all processes."""
    return parallel.sum_over_processes(torch.from_numpy(values)).cpu().numpy()


def frequency_mrr(graph: KnowledgeGraph, queries: QuerySet) -> float:
    """Return the MRR of ranking by frequency, in percent, averaged over the structures."""
    mrr = [
        100 * float(per_query(1 / rank_by_frequency(graph, block), block.hard.offsets).mean())
        for block in queries.blocks.values()
    ]
    return float(np.mean(mrr))
