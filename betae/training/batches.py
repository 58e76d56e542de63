"""Training batches: queries by structure, shared candidates, and which candidates are answers.

Queries come from streams: stored ones shuffled, or fresh ones sampled on the fly. Streams and
samples are functions of the seed and the position, so a resumed run sees the same batches as one
that never stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from betae.errors import InvalidArgument
from betae.exact.answers import answers_of_structure
from betae.graph.edges import Ids, Ragged
from betae.graph.graph import KnowledgeGraph
from betae.models.execute import Group, anchors_of
from betae.queries.ast import Not, Query, rebuild
from betae.queries.structures import has_negation
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import QuerySampler, random_stream, read_structure, sample_empty
from betae.training.config import LinkLossConfig, MarginConfig, SoftmaxConfig, TrainConfig

EMPTY_BATCHES = 16  # in a row, after which a structure counts as having no queries

Position = list[int]


class StoredStream:
    """An endless stream of the queries of a set, reshuffled each epoch."""

    def __init__(self, structure: Query, symbols: Ids, answers: Ragged, seed: int):
        self.structure, self.symbols, self.answers = structure, symbols, answers
        self.seed = seed
        self.taken, self.epoch, self.order = 0, -1, np.empty(0, dtype=np.int64)

    def take(self, count: int) -> tuple[Ids, Ragged]:
        """Return the symbols, (count, num_symbols), and the answers of the next queries."""
        rows = np.empty(count, dtype=np.int64)
        for i in range(count):
            epoch, index = divmod(self.taken + i, len(self.symbols))
            if epoch != self.epoch:
                generator = random_stream(self.seed, "order", str(self.structure), epoch)
                self.epoch, self.order = epoch, generator.permutation(len(self.symbols))
            rows[i] = self.order[index]
        self.taken += count
        return self.symbols[rows], self.answers.take(rows)

    def position(self) -> Position:
        """Return the position for a checkpoint: the number of queries taken."""
        return [self.taken]

    def go_to(self, position: Position) -> None:
        """Continue after that many queries."""
        (self.taken,) = position


class FreshStream:
    """An endless stream of queries sampled from the graph on the fly."""

    def __init__(self, sampler: QuerySampler):
        self.sampler, self.structure = sampler, sampler.structure
        self.go_to([0, 0])

    def take(self, count: int) -> tuple[Ids, Ragged]:
        """Return the next queries, sampling more as needed."""
        pieces: list[tuple[Ids, Ragged]] = []
        num_empty = 0  # batches without a query, in a row
        while count:
            rows = np.arange(self.taken, min(self.taken + count, len(self.symbols)))
            pieces.append((self.symbols[rows], self.answers.take(rows)))
            self.taken += len(rows)
            count -= len(rows)
            num_empty = 0 if len(rows) else num_empty + 1
            if num_empty > EMPTY_BATCHES:
                raise InvalidArgument(
                    f"The graph has no training queries like {self.structure}. Leave that "
                    "structure out of [structures] in the recipe."
                )
            if count:
                self.go_to([self.batch_index + 1, 0])
        symbols, answers = zip(*pieces, strict=True)
        return np.concatenate(symbols), Ragged.concatenate(answers)

    def position(self) -> Position:
        """Return the index of the sampler's batch, and the number of its queries taken."""
        return [self.batch_index, self.taken]

    def go_to(self, position: Position) -> None:
        """Sample the batch of a position again and continue in it."""
        self.batch_index, self.taken = position
        batch = self.sampler.batch(self.batch_index % (self.sampler.num_batches or 2**62))
        self.symbols, self.answers = batch.block.symbols, batch.block.easy


Stream = StoredStream | FreshStream  # of queries of one structure


def open_streams(
    graph: KnowledgeGraph, queries: QuerySet | None, config: TrainConfig
) -> dict[str, Stream]:
    """Open a stream for every structure: from a query set, or sampled on the fly."""
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


EXCLUDED = 8  # hard negatives per query with a negation
AHEAD = 4  # batches prepared in advance


@dataclass(frozen=True)
class Batch:
    """One step: B queries, C candidates."""

    step: int
    groups: list[Group]  # positions 0 .. B - 1, in order
    candidates: Tensor  # (C,) entity ids, ascending
    degrees: Tensor  # (C,): training edges at each candidate
    is_answer: Tensor  # (B, C)
    positive: Tensor  # (B,): column of one answer of each query
    negatives: Tensor  # (B, negatives): columns of non-answers; margin loss only
    weights: Tensor  # (B,): 1 / sqrt(4 + number of answers), with mean 1; margin loss only
    num_answers: Tensor  # (B,): whether candidates or not
    positions: dict[str, Position]  # of the streams, after this batch
    num_entities: int  # of the graph

    def __len__(self) -> int:
        return len(self.positive)

    def to(self, device: torch.device) -> Batch:
        """Move the tensors to a device; the executor moves the groups."""
        candidates, degrees = self.candidates.to(device), self.degrees.to(device)
        moved = replace(self, candidates=candidates, degrees=degrees)
        return moved.with_queries(self.groups, lambda tensor: tensor.to(device))

    def with_queries(self, groups: list[Group], change: Callable[[Tensor], Tensor]) -> Batch:
        """Return a batch of other queries, with `change` applied to all tensors of (B, ...)."""
        names = ("is_answer", "positive", "negatives", "weights", "num_answers")
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in names}
        return replace(self, groups=groups, **changed)


class UnanswerableQueries:
    """Queries without answers in the training graph, added to batches as a `share` of them.

    Each step takes the next structure of the mix.
    """

    POOL = 20_000  # queries sampled for each structure

    def __init__(self, graph: KnowledgeGraph, config: TrainConfig, share: float):
        pools = [
            sample_empty(graph, name, self.POOL, config.seed, "train") for name in config.structures
        ]
        self.pools = [pool for pool in pools if len(pool)]
        self.seed, self.share = config.seed, share

    def add_to(self, batch: Batch) -> Batch:
        """Return a batch with some of these queries appended."""
        count = round(self.share * len(batch))
        if not count or not self.pools:
            return batch
        pool = self.pools[batch.step % len(self.pools)]
        generator = random_stream(self.seed, "empty queries of a step", batch.step)
        symbols = torch.from_numpy(pool.symbols[generator.integers(len(pool), size=count)])
        positions = torch.arange(len(batch), len(batch) + count)
        groups = [*batch.groups, Group(pool.structure, symbols.long(), positions)]

        def more(tensor: Tensor) -> Tensor:
            return torch.cat([tensor, tensor.new_zeros(count, *tensor.shape[1:])])

        return batch.with_queries(groups, more)


def make_batch(
    step: int, streams: Mapping[str, Stream], config: TrainConfig, graph: KnowledgeGraph
) -> Batch:
    """Take the queries of a step in the proportions of the mix, and sample candidates."""
    groups, answers = _take_queries(step, streams, config)
    generator = random_stream(config.seed, "candidates", step)
    positive = answers.values[answers.offsets[:-1] + generator.integers(answers.lengths)]
    sure = [positive]
    if isinstance(config.loss, LinkLossConfig):
        sure = [answers.values]  # a link predictor learns from all answers
    elif isinstance(config.loss, SoftmaxConfig) and config.loss.hard_negatives:
        sure += _hard_negatives(groups, graph, generator)
    negatives, candidates = _sample_candidates(
        answers, np.concatenate(sure), config.loss, graph.num_entities, generator
    )
    weights = (4 + answers.lengths) ** -0.5
    return Batch(
        step,
        groups,
        torch.from_numpy(candidates).long(),
        torch.from_numpy(graph.adjacency("train").degrees(candidates)),
        torch.from_numpy(_mark_answers(answers.offsets, answers.values, candidates)),
        torch.from_numpy(np.searchsorted(candidates, positive)),
        torch.from_numpy(np.searchsorted(candidates, negatives)),
        torch.from_numpy((weights / weights.mean()).astype(np.float32)),
        torch.from_numpy(answers.lengths),
        {name: stream.position() for name, stream in streams.items()},
        graph.num_entities,
    )


def _take_queries(
    step: int, streams: Mapping[str, Stream], config: TrainConfig
) -> tuple[list[Group], Ragged]:
    """Return the queries of a step by structure, and their answers in order."""
    total = sum(config.structures.values())
    groups, tables, start = [], [], 0
    for name, share in config.structures.items():
        # Rounding the running total, not each step, keeps small shares exact.
        due = config.batch_size * share / total
        count = int(due * (step + 1)) - int(due * step)
        if count == 0:
            continue
        symbols, answers = streams[name].take(count)
        positions = torch.arange(start, start + count)
        ids = torch.from_numpy(symbols).long()
        groups.append(Group(streams[name].structure, ids, positions))
        tables.append(answers)
        start += count
    return groups, Ragged.concatenate(tables)


def _hard_negatives(
    groups: list[Group], graph: KnowledgeGraph, generator: np.random.Generator
) -> list[NDArray[Any]]:
    """Return anchors, and entities excluded by a negation: non-answers that are close to a query.

    With a symmetric relation, such as "is married to", a query is closest to its own anchor unless
    the model learns otherwise. Neither kind is sampled often by chance.
    """
    found: list[NDArray[Any]] = [anchors_of(groups, graph.num_entities).numpy()]
    for group in groups:
        if has_negation(group.structure):
            affirmed = rebuild(
                group.structure, lambda node: node.operand if isinstance(node, Not) else node
            )
            symbols = group.symbols.numpy().astype(np.int32)
            excluded = answers_of_structure(graph.adjacency("train"), affirmed, symbols)
            rows = np.repeat(np.flatnonzero(excluded.lengths), EXCLUDED)
            picked = generator.integers(excluded.lengths[rows])
            found.append(excluded.values[excluded.offsets[rows] + picked])
    return found


def _sample_candidates(
    answers: Ragged,
    sure: NDArray[Any],
    loss: SoftmaxConfig | MarginConfig | LinkLossConfig,
    num_entities: int,
    generator: np.random.Generator,
) -> tuple[Ids, NDArray[Any]]:
    """Return the negatives of each query, (B, negatives), and the distinct candidates of all.

    The candidates are the `sure` ones, which include an answer of each query, and sampled ones.
    Only the margin loss has negatives.
    """
    no_negatives = np.empty((len(answers), 0), dtype=np.int32)
    if isinstance(loss, MarginConfig):
        sampled = generator.integers(num_entities, size=(len(answers), 2 * loss.negatives + 64))
        try:
            kept = _non_answers(answers.offsets, answers.values, sampled, num_entities)
        except ValueError as error:
            raise InvalidArgument(f"The margin loss needs negatives: {error}.") from error
        negatives = kept[:, : loss.negatives]
        return negatives, np.unique(np.concatenate([sure, negatives.ravel()]))
    if loss.candidates >= num_entities:
        return no_negatives, np.arange(num_entities)
    sampled = generator.choice(num_entities, loss.candidates, replace=False)
    return no_negatives, np.unique(np.concatenate([sure, sampled]))


@njit(nogil=True, cache=True)
def _mark_answers(offsets, values, candidates):  # type: ignore[no-untyped-def]
    """Mask of the candidates that answer each query, (num_queries, num_candidates)."""
    marks = np.zeros((len(offsets) - 1, len(candidates)), dtype=np.bool_)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            column = np.searchsorted(candidates, values[i])
            if column < len(candidates) and candidates[column] == values[i]:
                marks[row, column] = True
    return marks


@njit(nogil=True, cache=True)
def _non_answers(offsets, values, sampled, num_entities):  # type: ignore[no-untyped-def]
    """Keep the sampled entities of each row that do not answer its query, repeated to fill it."""
    kept = np.empty(sampled.shape, dtype=np.int32)
    for row in range(len(sampled)):
        answers = values[offsets[row] : offsets[row + 1]]
        count = 0
        for entity in sampled[row]:
            i = np.searchsorted(answers, entity)
            if i == len(answers) or answers[i] != entity:
                kept[row, count] = entity
                count += 1
        entity = 0
        while count == 0 and entity < num_entities:  # nearly all are answers: take any non-answer
            i = np.searchsorted(answers, entity)
            if i == len(answers) or answers[i] != entity:
                kept[row, 0] = entity
                count = 1
            entity += 1
        if count == 0:
            raise ValueError("every entity answers one of the queries")
        for i in range(count, sampled.shape[1]):
            kept[row, i] = kept[row, i % count]
    return kept


def prepare_batches(
    start: int,
    streams: Mapping[str, Stream],
    config: TrainConfig,
    graph: KnowledgeGraph,
    empty: UnanswerableQueries | None = None,
) -> Generator[Batch]:
    """Yield the batches from step `start` on, prepared in advance by a thread."""

    def prepare(step: int) -> Batch:
        batch = make_batch(step, streams, config, graph)
        return batch if empty is None else empty.add_to(batch)

    pool = ThreadPoolExecutor(1)
    try:
        steps = iter(range(start, config.steps))
        ahead = deque(pool.submit(prepare, step) for step in islice(steps, AHEAD))
        while ahead:
            batch = ahead.popleft().result()
            ahead.extend(pool.submit(prepare, step) for step in islice(steps, 1))
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)
