"""Draw queries of any structure from a graph, with their easy and hard answers.

The paper's way: choose an answer at random and walk back from it along the structure, so that
every query has one. Rules for what is kept: training queries are answered on train; validation and
test queries have at least one answer that the smaller graph does not give, and not too many; a
complement takes something away (its branch is walked from the same answer as the others); no query
twice, no branch twice in one intersection or union, no edge followed by its own inverse.

Work is cut into batches, each with its own random numbers, and merged in order: the same seed gives
the same set whatever the number of threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from betae import parallel
from betae.errors import InvalidArgument
from betae.exact.answers import answers_of_structure
from betae.graph.edges import EDGES, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.queries.ast import Entity, Query, nodes
from betae.queries.names import resolve
from betae.queries.structures import (
    EPFO,
    NEGATION,
    STRUCTURES,
    TRAINING,
    is_placeholder,
    num_symbols,
)
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.querysets.sampler import QuerySampler

PATIENCE = 16  # batches; fewer new queries than that in as many batches: the graph has no more
MAX_ANSWERS = 100  # of validation and test queries, as in the paper


@dataclass
class DrawReport:
    """What became of the walks for one structure."""

    asked: int
    drawn: int = 0
    walks: int = 0
    rejected: dict[str, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Tell whether all that was asked for was found."""
        return self.drawn == self.asked


def sample_queries(
    graph: KnowledgeGraph,
    counts: Mapping[str, int],
    split: str = "train",
    *,
    seed: int = 0,
    max_answers: int | None = None,
    max_hard: int | None = None,
    workers: int | None = None,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> QuerySet:
    """Draw `counts[structure]` queries for each structure.

    A structure is a name of the paper (1p, 2in, ...) or logic text with `_` for the open entities
    and relations: `?X . located_in(?X, Europe) & !_(_, ?X)`. The set's `origin["report"]` says,
    per structure, what was drawn, what was rejected and why; where the graph has no more such
    queries it holds fewer than asked. `progress` is told a structure and how many are drawn.

    Validation and test queries have at most 100 answers, as the paper says. The paper's released
    sets limit only the hard ones: `max_hard=100` limits those, and then all answers only if
    `max_answers` is given too.
    """
    if split not in SET_EDGES:
        raise InvalidArgument(f"The split is train, valid or test, not {split!r}.")
    if any(
        number is not None and number < 1 for number in (max_answers, max_hard, *counts.values())
    ):
        raise InvalidArgument("The numbers of queries and of answers must be at least 1.")
    if seed < 0:
        raise InvalidArgument(f"The seed is 0 or more, not {seed}.")
    if max_answers is None and max_hard is None and split != "train":
        max_answers = MAX_ANSWERS
    blocks: dict[str, QueryBlock] = {}
    reports: dict[str, Any] = {}
    for text, wanted in counts.items():
        structure = read_structure(text, graph)
        sampler = QuerySampler(graph, structure, split, seed, max_answers, max_hard)
        blocks[text], report = _draw(sampler, wanted, workers, partial(progress, text))
        reports[text] = asdict(report)
    origin = {
        "source": "sampled",
        "seed": seed,
        "max_answers": max_answers,
        "max_hard": max_hard,
        "report": reports,
    }
    return QuerySet(split, blocks, graph.fingerprint, origin)


def parse_counts(structures: Sequence[str], split: str, default: int) -> dict[str, int]:
    """Read `NAME` and `NAME:COUNT`; with none, take the paper's training or test structures."""
    if not structures:
        structures = TRAINING if split == "train" else (*EPFO, *NEGATION)
    counts = {}
    for text in structures:
        name, colon, number = text.rpartition(":")
        has_count = colon and number.strip().isdecimal()
        counts[name if has_count else text] = int(number) if has_count else default
    return counts


def read_structure(text: str, graph: KnowledgeGraph) -> Query:
    """Return the structure of that name, or that logic text with placeholders describes."""
    from betae.queries.syntax import parse

    if text in STRUCTURES:
        return STRUCTURES[text]
    if "." not in text:
        raise InvalidArgument(
            f"There is no structure {text!r}. Choose of {', '.join(STRUCTURES)}, or write one "
            "with placeholders: '?X . _(_, ?X) & !_(_, ?X)'."
        )
    structure = parse(text)
    if not num_symbols(structure):
        raise InvalidArgument(f"{text!r} has no placeholder `_` to fill.")
    return resolve(structure, graph)


def _draw(
    sampler: QuerySampler, wanted: int, workers: int | None, progress: Callable[[int], None]
) -> tuple[QueryBlock, DrawReport]:
    """Merge batches in order until there are enough queries or the graph has no more."""
    report = DrawReport(wanted)
    rejected: Counter[str] = Counter()
    seen: set[bytes] = set()
    kept: list[QueryBlock] = []
    recent: list[int] = []  # new queries of the last batches
    numbers = range(sampler.num_batches) if sampler.num_batches else count()
    for batch in parallel.map_ahead(sampler.batch, numbers, workers):
        new = []
        for row, key in enumerate(map(bytes, batch.keys)):
            if key not in seen:
                seen.add(key)
                new.append(row)
        rejected += batch.rejected
        rejected["duplicate"] += len(batch.symbols) - len(new)
        rows = np.array(new[: wanted - report.drawn], dtype=np.int64)
        found = QueryBlock(sampler.structure, batch.symbols, batch.easy, batch.hard)
        kept.append(found.take(rows))
        report.walks += batch.walks
        report.drawn += len(rows)
        progress(report.drawn)
        recent = [*recent[-PATIENCE + 1 :], len(new)]
        if report.is_complete or (len(recent) == PATIENCE and sum(recent) < PATIENCE):
            break
    report.rejected = {reason: number for reason, number in rejected.items() if number}
    block = QueryBlock(
        sampler.structure,
        np.concatenate([part.symbols for part in kept]),
        Ragged.concatenate([part.easy for part in kept]),
        Ragged.concatenate([part.hard for part in kept]),
    )
    return block, report


MORE_THAN = 5  # answers of the queries that are told from those without


def sample_empty(
    graph: KnowledgeGraph, name: str, count: int, seed: int = 0, edges: Edges = "all"
) -> QueryBlock:
    """Draw queries without an answer: entities and relations uniformly at random.

    The block holds fewer than `count` if a hundred times as many draws do not give them. What is
    drawn in one edges, for training, is not what is drawn in another, for a test.
    """
    structure = read_structure(name, graph)
    random = np.random.default_rng((seed, 2, list(EDGES).index(edges)))
    limits = [
        graph.num_entities if isinstance(node, Entity) else graph.num_relations
        for node in nodes(structure)
        if is_placeholder(node)
    ]
    found = np.empty((0, len(limits)), dtype=np.int32)
    for _ in range(100):
        drawn = random.integers(limits, size=(count, len(limits)), dtype=np.int32)
        is_empty = answers_of_structure(graph.adjacency(edges), structure, drawn).lengths == 0
        found = np.unique(np.concatenate([found, drawn[is_empty]]), axis=0)
        if len(found) >= count:
            break
    return _block(structure, random.permutation(found)[:count])


def sample_answered(graph: KnowledgeGraph, name: str, count: int, seed: int = 0) -> QueryBlock:
    """Draw queries with more than 5 answers on all edges, as training queries are drawn.

    The block holds fewer than `count` if ten times as many draws do not give them.
    """
    structure = read_structure(name, graph)
    seed += 1_000_000  # not the very queries that a run with this seed was trained on
    drawn = sample_queries(graph, {name: 10 * count}, "train", seed=seed).blocks[name].symbols
    lengths = answers_of_structure(graph.adjacency("all"), structure, drawn).lengths
    return _block(structure, drawn[lengths > MORE_THAN][:count])


def _block(structure: Query, symbols: Ids) -> QueryBlock:
    none = Ragged.from_lengths(np.zeros(len(symbols), np.int64), np.empty(0, np.int32))
    return QueryBlock(structure, symbols, none, none)


def sample_validation(
    graph: KnowledgeGraph, names: Sequence[str], count: int, seed: int = 0
) -> QuerySet | None:
    """Sample up to `count` validation queries of each structure; None if there are none at all."""
    if not count or not len(graph.splits["valid"]):
        return None
    sampled = sample_queries(graph, dict.fromkeys(names, count), "valid", seed=seed)
    blocks = {name: block for name, block in sampled.blocks.items() if len(block)}
    return QuerySet("valid", blocks, graph.fingerprint, sampled.origin) if blocks else None
