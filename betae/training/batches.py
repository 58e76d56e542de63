"""Batches: queries by structure, shared candidates, and which candidates are answers.

What is sampled for a step is a function of the seed and of the step, so a resumed run sees the same
batches as one that never stopped.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from queue import Queue
from threading import Event, Thread
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from betae.errors import InvalidArgument
from betae.exact.answers import answers_of_structure
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.models.execute import Group, anchors_of
from betae.queries.ast import Not, Query, rebuild
from betae.queries.structures import has_negation
from betae.querysets.sample import sample_empty
from betae.querysets.seeds import random_stream
from betae.training.config import TrainConfig
from betae.training.streams import Position, Stream

EXCLUDED = 8  # candidates for each query with a negation: entities that it excludes
AHEAD = 4  # batches prepared while the trainer works


@dataclass(frozen=True)
class Batch:
    """One step: B queries, C candidates."""

    step: int
    groups: list[Group]  # positions 0 .. B - 1, in order
    candidates: Tensor  # (C,) entity ids, ascending
    degrees: Tensor  # (C,): training edges at each candidate
    is_answer: Tensor  # (B, C)
    positive: Tensor  # (B,): the column of one answer of each query
    negatives: Tensor  # (B, negatives): columns of non-answers; margin loss only
    weights: Tensor  # (B,): 1 / sqrt(4 + number of answers), with mean 1; margin loss only
    num_answers: Tensor  # (B,): of each query, candidates or not
    positions: dict[str, Position]  # of the streams, after this batch
    num_entities: int  # of the graph

    def __len__(self) -> int:
        return len(self.positive)

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its tensors on a device; the executor moves the groups."""
        names = "candidates degrees is_answer positive negatives weights num_answers"
        return replace(self, **{name: getattr(self, name).to(device) for name in names.split()})


class EmptyQueries:
    """Queries without answers in the training graph, of all structures of the mix in turn."""

    POOL = 20_000  # queries of each structure to choose from

    def __init__(self, graph: KnowledgeGraph, config: TrainConfig):
        pools = [
            sample_empty(graph, name, self.POOL, config.seed, "train") for name in config.structures
        ]
        self.pools, self.config = [pool for pool in pools if len(pool)], config

    def add_to(self, batch: Batch) -> Batch:
        """Return a batch with some of these queries appended."""
        number = round(self.config.empty * len(batch))
        if not number or not self.pools:
            return batch
        pool = self.pools[batch.step % len(self.pools)]
        generator = random_stream(self.config.seed, "empty queries of a step", batch.step)
        symbols = torch.from_numpy(pool.symbols[generator.integers(len(pool), size=number)])
        positions = torch.arange(len(batch), len(batch) + number)

        def more(tensor: Tensor) -> Tensor:
            return torch.cat([tensor, tensor.new_zeros(number, *tensor.shape[1:])])

        return replace(
            batch,
            groups=[*batch.groups, Group(pool.structure, symbols.long(), positions)],
            is_answer=more(batch.is_answer),
            positive=more(batch.positive),
            negatives=more(batch.negatives),
            weights=more(batch.weights),
            num_answers=more(batch.num_answers),
        )


def make_batch(
    step: int, streams: Mapping[str, Stream], config: TrainConfig, graph: KnowledgeGraph
) -> Batch:
    """Take queries for a step in the proportions of the mix, and sample its candidates."""
    groups, answers = _take_queries(step, streams, config)
    generator = random_stream(config.seed, "candidates", step)
    positive = answers.values[answers.offsets[:-1] + generator.integers(answers.lengths)]
    sure = [positive]
    if config.is_for_links:
        sure = [answers.values]  # a link predictor learns from all of them
    elif config.near_misses and config.loss == "softmax":
        sure += _near_misses(groups, graph, generator)
    negatives, candidates = _sample_candidates(
        answers, np.concatenate(sure), config, graph.num_entities, generator
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
    """Return the queries of a step by structure, and the answers of all of them in order."""
    total = sum(config.structures.values())
    groups, tables, start = [], [], 0
    for name, share in config.structures.items():
        # Rounding the running total, not each step, gives small shares their due.
        due = config.batch_size * share / total
        number = int(due * (step + 1)) - int(due * step)
        if number == 0:
            continue
        symbols, answers = streams[name].take(number)
        positions = torch.arange(start, start + number)
        ids = torch.from_numpy(symbols).long()
        groups.append(Group(streams[name].structure, ids, positions))
        tables.append(answers)
        start += number
    return groups, Ragged.concatenate(tables)


def _near_misses(
    groups: list[Group], graph: KnowledgeGraph, generator: np.random.Generator
) -> list[NDArray[Any]]:
    """Return entities that a model easily takes for answers of these queries, as candidates.

    Where a relation goes both ways, such as "is married to", a query is closest to its own anchor
    unless the model is told otherwise. And what a negated part excludes is closer than nearly all
    entities, of which few are sampled.
    """
    found: list[NDArray[Any]] = [anchors_of(groups, graph.num_entities).numpy()]
    for group in groups:
        if has_negation(group.structure):
            affirmed = rebuild(group.structure, _affirm)
            symbols = group.symbols.numpy().astype(np.int32)
            excluded = answers_of_structure(graph.adjacency("train"), affirmed, symbols)
            rows = np.repeat(np.flatnonzero(excluded.lengths), EXCLUDED)
            places = generator.integers(excluded.lengths[rows])
            found.append(excluded.values[excluded.offsets[rows] + places])
    return found


def _affirm(node: Query) -> Query:
    return node.operand if isinstance(node, Not) else node


def _sample_candidates(
    answers: Ragged,
    sure: NDArray[Any],
    config: TrainConfig,
    num_entities: int,
    generator: np.random.Generator,
) -> tuple[Ids, NDArray[Any]]:
    """Return negatives for each query, (B, negatives), and the candidates of all, distinct.

    The candidates are those that are `sure`, an answer of each query among them, and sampled ones.
    Only the margin loss has negatives.
    """
    no_negatives = np.empty((len(answers), 0), dtype=np.int32)
    if config.loss == "margin":
        sampled = generator.integers(num_entities, size=(len(answers), 2 * config.negatives + 64))
        negatives = _non_answers(answers, sampled, num_entities)[:, : config.negatives]
        return negatives, np.unique(np.concatenate([sure, negatives.ravel()]))
    if config.candidates >= num_entities:
        return no_negatives, np.arange(num_entities)
    sampled = generator.choice(num_entities, config.candidates, replace=False)
    return no_negatives, np.unique(np.concatenate([sure, sampled]))


@njit(nogil=True, cache=True)
def _mark_answers(offsets, values, candidates):  # type: ignore[no-untyped-def]
    """Return which candidates are answers of which query, (num_queries, num_candidates).

    By search, not by a list of all entities, which would be long.
    """
    marks = np.zeros((len(offsets) - 1, len(candidates)), dtype=np.bool_)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            place = np.searchsorted(candidates, values[i])
            if place < len(candidates) and candidates[place] == values[i]:
                marks[row, place] = True
    return marks


def _non_answers(answers: Ragged, sampled: NDArray[np.int64], num_entities: int) -> Ids:
    """Move the sampled entities that do not answer the query of their row to its front.

    Where too few are left (a query with very many answers), they are repeated.
    """
    try:
        kept: Ids = _front_non_answers(answers.offsets, answers.values, sampled, num_entities)
    except ValueError as error:
        raise InvalidArgument(f"The margin loss needs negatives: {error}.") from error
    return kept


@njit(nogil=True, cache=True)
def _front_non_answers(offsets, values, sampled, num_entities):  # type: ignore[no-untyped-def]
    kept = np.empty(sampled.shape, dtype=np.int32)
    for row in range(len(sampled)):
        answers = values[offsets[row] : offsets[row + 1]]
        count = 0
        for entity in sampled[row]:
            place = np.searchsorted(answers, entity)
            if place == len(answers) or answers[place] != entity:
                kept[row, count] = entity
                count += 1
        entity = 0
        while count == 0 and entity < num_entities:  # nearly all are answers: take any that is not
            place = np.searchsorted(answers, entity)
            if place == len(answers) or answers[place] != entity:
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
    empty: EmptyQueries | None = None,
) -> Generator[Batch]:
    """Yield the batches of the steps from `start` on, which a thread makes ahead."""
    queue: Queue[Batch | BaseException] = Queue(AHEAD)
    stop = Event()

    def work() -> None:
        try:
            for step in range(start, config.steps):
                batch = make_batch(step, streams, config, graph)
                if empty is not None:
                    batch = empty.add_to(batch)
                if stop.is_set():
                    return
                queue.put(batch)
        except BaseException as error:
            queue.put(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        for _ in range(start, config.steps):
            item = queue.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        while thread.is_alive():  # it may be waiting for room in the queue
            while not queue.empty():
                queue.get_nowait()
            thread.join(timeout=0.01)
