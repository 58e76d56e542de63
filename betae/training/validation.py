"""Validation during training: which queries, and their MRR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae import parallel
from betae.errors import InvalidArgument
from betae.evaluation.baseline import rank_by_frequency
from betae.evaluation.ranks import (
    QUERIES_AT_ONCE,
    Doubles,
    answers_within,
    as_group,
    count_closer,
    mean,
    per_query,
    rank_block,
)
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, anchors_of, embed_queries, score_blocks
from betae.models.rows import Gathered, blocks
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.query_set import QueryBlock, QuerySet
from betae.querysets.sample import sample_validation
from betae.training.config import TrainConfig
from betae.training.distributed import borrow

QUERIES_OF_A_PASS = 2**14  # for which a large table is read
TABLE_AT_ONCE = 2**25  # numbers of a table that are worked on: 128 MiB in float32


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
    """Return the MRR of every structure, in percent; each process ranks by the rows it holds."""
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
    """Yield the queries in lists of pieces of blocks, up to QUERIES_OF_A_PASS in a list."""
    pieces: list[tuple[str, QueryBlock]] = []
    for name, block in blocks.items():
        for start in range(0, len(block), QUERIES_AT_ONCE):
            rows = np.arange(start, min(start + QUERIES_AT_ONCE, len(block)))
            pieces.append((name, block.take(rows)))
            if sum(len(piece) for _, piece in pieces) > QUERIES_OF_A_PASS - QUERIES_AT_ONCE:
                yield pieces
                pieces = []
    if pieces:
        yield pieces


def _rank(model: QueryModel, pieces: list[QueryBlock]) -> list[Doubles]:
    """Return the ranks of the hard answers of some queries.

    A large table, or one that several processes hold, is made a block of rows at a time, and all
    queries are set against the block. That is done twice: for the distances of the hard answers,
    then to count who is closer.
    """
    parts = [*blocks(model.rows.number, model.entities.shape[1], TABLE_AT_ONCE)]
    if len(parts) == 1 and parallel.num_processes() == 1:
        table = model.table()
        return [rank_block(model, table, piece) for piece in pieces]
    embedded = _embed(model, pieces)

    def scores() -> Iterator[tuple[int, slice, QueryBlock, int, NDArray[np.float32]]]:
        """Yield number of a piece, its hard answers, some of its queries, their distances."""
        for part in parts if model.rows.number else []:
            first = model.rows.start + part.start
            ids = torch.arange(first, model.rows.start + part.stop, device=model.entities.device)
            model.gathered = Gathered(ids, model.entities[part])
            table = model.table(ids)
            for number, (piece, sets) in enumerate(zip(pieces, embedded, strict=True)):
                for some, distances in score_blocks(model, sets, table):
                    answers = slice(*piece.hard.offsets[[some.start, some.stop]])
                    queries = piece.take(np.arange(some.start, some.stop))
                    yield number, answers, queries, first, distances.float().cpu().numpy()

    limits = [np.zeros(len(piece.hard.values), dtype=np.float32) for piece in pieces]
    for number, answers, queries, first, distances in scores():
        places, found = answers_within(distances, first, queries)
        limits[number][answers][places] = found
    limits = [*map(_sum, limits)]  # each is that of the one process that holds the answer
    closer = [np.zeros(len(piece.hard.values)) for piece in pieces]
    for number, answers, queries, first, distances in scores():
        closer[number][answers] += count_closer(distances, first, queries, limits[number][answers])
    return [1 + _sum(counts) for counts in closer]


def _embed(model: QueryModel, pieces: list[QueryBlock]) -> list[Embedded]:
    groups = [as_group(piece, np.arange(len(piece))) for piece in pieces]
    model.gathered = None
    if parallel.num_processes() > 1:
        anchors = anchors_of(groups, model.num_entities).to(model.entities.device)
        model.gathered = borrow(model, anchors)
    return [embed_queries(model, [group]) for group in groups]


def _sum(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sum over all processes."""
    return parallel.sum_over_processes(torch.from_numpy(values)).cpu().numpy()


def frequency_mrr(graph: KnowledgeGraph, queries: QuerySet) -> float:
    """Return the MRR of ranking by frequency, mean over the structures, in percent."""
    return mean(
        [
            100 * float(per_query(1 / rank_by_frequency(graph, block), block.hard.offsets).mean())
            for block in queries.blocks.values()
        ]
    )
