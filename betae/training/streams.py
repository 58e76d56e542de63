"""Streams of training queries: stored ones shuffled, or fresh ones sampled on the fly.

A stream is a function of the seed and of its position, so a resumed run sees the queries that it
would have seen without the break.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from betae.errors import InvalidArgument
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.queries.ast import Query
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import read_structure
from betae.querysets.sampler import QuerySampler
from betae.querysets.seeds import random_stream
from betae.training.config import TrainConfig

EMPTY_BATCHES = 16  # of the sampler, in a row: the graph has no such query

Position = list[int]


class Stream(Protocol):
    """Queries of one structure without end."""

    structure: Query

    def take(self, number: int) -> tuple[Ids, Ragged]:
        """Return the symbols (number, num_symbols) and the answers of the next queries."""

    def position(self) -> Position:
        """Return where the stream stands, for a checkpoint."""

    def go_to(self, position: Position) -> None:
        """Continue from a position."""


class StoredStream:
    """The queries of a set, shuffled anew each round."""

    def __init__(self, structure: Query, symbols: Ids, answers: Ragged, seed: int):
        self.structure, self.symbols, self.answers = structure, symbols, answers
        self.seed = seed
        self.taken, self.round, self.order = 0, -1, np.empty(0, dtype=np.int64)

    def take(self, number: int) -> tuple[Ids, Ragged]:
        """Return the next queries of this round, and of the next one if it ends."""
        rows = np.empty(number, dtype=np.int64)
        for i in range(number):
            round_, place = divmod(self.taken + i, len(self.symbols))
            if round_ != self.round:
                generator = random_stream(self.seed, "order", str(self.structure), round_)
                self.round, self.order = round_, generator.permutation(len(self.symbols))
            rows[i] = self.order[place]
        self.taken += number
        return self.symbols[rows], self.answers.take(rows)

    def position(self) -> Position:
        """Return how many queries were taken."""
        return [self.taken]

    def go_to(self, position: Position) -> None:
        """Continue after that many queries."""
        (self.taken,) = position


class FreshStream:
    """Queries sampled from the graph on the fly, never the same set twice."""

    def __init__(self, sampler: QuerySampler):
        self.sampler, self.structure = sampler, sampler.structure
        self.go_to([0, 0])

    def take(self, number: int) -> tuple[Ids, Ragged]:
        """Return the next queries, sampling more where needed."""
        pieces: list[tuple[Ids, Ragged]] = []
        num_empty = 0  # batches without any query, in a row
        while number:
            rows = np.arange(self.taken, min(self.taken + number, len(self.symbols)))
            pieces.append((self.symbols[rows], self.answers.take(rows)))
            self.taken += len(rows)
            number -= len(rows)
            num_empty = 0 if len(rows) else num_empty + 1
            if num_empty > EMPTY_BATCHES:
                raise InvalidArgument(
                    f"The graph has no training queries like {self.structure}. Leave that "
                    "structure out of [structures] in the recipe."
                )
            if number:
                self.go_to([self.number + 1, 0])
        symbols, answers = zip(*pieces, strict=True)
        return np.concatenate(symbols), Ragged.concatenate(answers)

    def position(self) -> Position:
        """Return the number of the sampler's batch, and how many of its queries were taken."""
        return [self.number, self.taken]

    def go_to(self, position: Position) -> None:
        """Sample the batch of a position again and continue in it."""
        self.number, self.taken = position
        batch = self.sampler.batch(self.number % (self.sampler.num_batches or 2**62))
        self.symbols, self.answers = batch.symbols, batch.easy


def open_streams(
    graph: KnowledgeGraph, queries: QuerySet | None, config: TrainConfig
) -> dict[str, Stream]:
    """Return a stream for every structure of the mix: from a set, or sampled on the fly."""
    if queries is not None:
        queries.check_graph(graph)
        if queries.split != "train":
            raise InvalidArgument(
                f"The query set is for {queries.split}; training needs one sampled for train."
            )
    streams: dict[str, Stream] = {}
    for name in config.structures:
        if queries is None:
            structure = read_structure(name, graph)
            streams[name] = FreshStream(QuerySampler(graph, structure, "train", config.seed))
            continue
        if not len(queries.blocks.get(name, ())):
            raise InvalidArgument(
                f"The query set has no {name}; it has {', '.join(queries.blocks)}. "
                "Leave it out of [structures] in the recipe, or sample it."
            )
        block = queries.blocks[name]
        streams[name] = StoredStream(block.structure, block.symbols, block.easy, config.seed)
    return streams
