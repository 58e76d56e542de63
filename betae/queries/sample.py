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

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from betae import kernels
from betae.edges import Ids
from betae.errors import InvalidArgument
from betae.graph import KnowledgeGraph
from betae.queries.ast import PLACEHOLDER, And, Entity, Or, Project, Query, resolve
from betae.queries.files import SET_VIEWS, QueryBlock, QuerySet
from betae.queries.structures import (
    EPFO,
    NEGATION,
    STRUCTURES,
    TRAINING,
    is_open,
    num_symbols,
)
from betae.ragged import Ragged

BATCH = 4096  # walks in a batch
PATIENCE = 16  # batches; fewer new queries than that in as many batches: the graph has no more
MAX_ANSWERS = 100  # of validation and test queries, as in the paper
NO_LIMIT = 2**31
REASONS = {
    kernels.DEAD_END: "dead end",
    kernels.NO_ANSWER: "no answer",
    kernels.TOO_MANY: "too many answers",
    kernels.NOTHING_HARD: "no hard answer",
}


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


@dataclass(frozen=True)
class SampledBatch:
    """The queries of one batch that pass every rule but "no query twice"."""

    symbols: Ids
    keys: Ids  # the same for queries that differ in the order of operands only
    easy: Ragged
    hard: Ragged
    walks: int
    rejected: Counter[str]


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
    if split not in SET_VIEWS:
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
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for text, wanted in counts.items():
            structure = read_structure(text, graph)
            sampler = QuerySampler(graph, structure, split, seed, max_answers, max_hard)
            blocks[text], report = _draw(sampler, wanted, pool, partial(progress, text))
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


def draw_report(queries: QuerySet) -> Table:
    """Lay out for the terminal what was drawn, what was rejected and why."""
    table = Table(box=None, padding=(0, 1))
    for column in ("structure", "drawn", "of", "easy", "hard", "walks"):
        table.add_column(column, justify="left" if column == "structure" else "right")
    table.add_column("rejected", style="dim")
    for name, report in queries.origin["report"].items():
        block, is_complete = queries.blocks[name], report["drawn"] == report["asked"]
        reasons = sorted(report["rejected"].items(), key=lambda item: -item[1])[:3]
        rejected = ", ".join(
            f"{reason} {number / report['walks']:.0%}" for reason, number in reasons
        )
        table.add_row(
            Text(name),
            f"{report['drawn']:,}" if is_complete else f"[yellow]{report['drawn']:,}[/yellow]",
            f"{report['asked']:,}",
            *(
                f"{rows.lengths.mean():.1f}" if len(rows) else "-"
                for rows in (block.easy, block.hard)
            ),
            f"{report['walks']:,}",
            rejected if is_complete else f"the graph has no more; {rejected}",
        )
    return table


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
    sampler: QuerySampler, wanted: int, pool: ThreadPoolExecutor, progress: Callable[[int], None]
) -> tuple[QueryBlock, DrawReport]:
    """Merge batches in order until there are enough queries or the graph has no more."""
    report = DrawReport(wanted)
    rejected: Counter[str] = Counter()
    seen: set[bytes] = set()
    kept: list[QueryBlock] = []
    recent: list[int] = []  # new queries of the last batches
    for batch in _in_order(sampler, pool):
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


def _in_order(sampler: QuerySampler, pool: ThreadPoolExecutor) -> Iterator[SampledBatch]:
    """Yield the batches 0, 1, 2, … while a few more are being made ahead."""
    numbers = iter(range(sampler.num_batches)) if sampler.num_batches else count()
    ahead: list[Future[SampledBatch]] = []
    try:
        for number in numbers:
            ahead.append(pool.submit(sampler.batch, number))
            if len(ahead) > pool._max_workers:
                yield ahead.pop(0).result()
        while ahead:
            yield ahead.pop(0).result()
    finally:
        for future in ahead:
            future.cancel()


class QuerySampler:
    """Makes batch `number` of the queries of one structure, a function of the seed alone."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        structure: Query,
        split: str,
        seed: int,
        max_answers: int | None = None,
        max_hard: int | None = None,
    ):
        smaller, larger = SET_VIEWS[split]
        self.structure = structure
        self.max_answers = max_answers or NO_LIMIT
        self.max_hard = 0 if split == "train" else max_hard or NO_LIMIT
        self.smaller = kernels.Edges.of(graph.adjacency(smaller))
        self.larger = kernels.Edges.of(graph.adjacency(larger))
        self.program = kernels.compile_program(structure)
        self.num_symbols = num_symbols(structure)
        self.constants, self.groups = _alike_operands(structure)
        self.entropy = (seed, zlib.crc32(str(structure).encode()))
        self.roots = np.flatnonzero(np.diff(self.larger.head_offsets))
        # Single steps are few enough to list: every pair (head, relation) once, shuffled.
        self.listed = self._all_pairs() if structure == STRUCTURES["1p"] else None

    @property
    def num_batches(self) -> int | None:
        """How many batches there are, if that is known."""
        return None if self.listed is None else -(-len(self.listed) // BATCH)

    def _all_pairs(self) -> Ids:
        heads = np.repeat(
            np.arange(len(self.larger.head_offsets) - 1), np.diff(self.larger.head_offsets)
        )
        pairs = np.stack([heads, self.larger.relations], axis=1).astype(np.int32)
        return pairs[np.random.default_rng(self.entropy).permutation(len(pairs))]

    def batch(self, number: int) -> SampledBatch:
        """Walk, drop what is degenerate, answer, keep what the rules allow."""
        rejected: Counter[str] = Counter()
        if self.listed is not None:
            keys = symbols = self.listed[number * BATCH : (number + 1) * BATCH]
            walks = len(symbols)
        else:
            seed = np.random.SeedSequence((*self.entropy, number)).generate_state(1, np.uint64)[0]
            num_walks = BATCH if len(self.roots) else 0
            symbols, succeeded = kernels.walk_back(
                self.program, self.num_symbols, self.roots, self.larger, seed, num_walks
            )
            walks = len(symbols)
            symbols = symbols[succeeded]
            rejected["dead end"] = walks - len(symbols)
            keys, has_twice = _in_canonical_order(symbols, self.constants, self.groups)
            symbols, keys = symbols[~has_twice], keys[~has_twice]
            rejected["same branch twice"] = int(has_twice.sum())
        scratch = kernels.Scratch.of(self.program, self.larger)
        verdicts, *tables = kernels.judge_rows(
            self.program,
            np.ascontiguousarray(symbols),
            self.smaller,
            self.larger,
            self.max_answers,
            self.max_hard,
            scratch,
        )
        for verdict, reason in REASONS.items():
            rejected[reason] += int((verdicts == verdict).sum())
        easy_lengths, easy, hard_lengths, hard = tables
        return SampledBatch(
            symbols[verdicts == kernels.ACCEPTED],
            keys[verdicts == kernels.ACCEPTED],
            Ragged.from_lengths(easy_lengths, easy),
            Ragged.from_lengths(hard_lengths, hard),
            walks,
            rejected,
        )


def _alike_operands(structure: Query) -> tuple[Ids, list[NDArray[np.int64]]]:
    """Return the names of a structure, -1 where open, and the columns of operands that are alike.

    A group (num_alike, width) is for operands of one And or Or that may become the same, whatever
    the order of their own operands. Inner ones come first: their order must be settled before the
    outer ones are compared.
    """
    names: list[int] = []
    groups: list[NDArray[np.int64]] = []

    def visit(node: Query) -> tuple[Query, list[int]]:
        parts = [visit(operand) for operand in node.operands]
        if isinstance(node, And | Or):
            parts.sort(key=lambda part: str(part[0]))
            alike: dict[Query, list[list[int]]] = {}
            for shape, columns in parts:
                alike.setdefault(shape, []).append(columns)
            groups.extend(np.array(same) for same in alike.values() if len(same) > 1)
        shapes = [shape for shape, _ in parts]
        columns = [column for _, columns in parts for column in columns]
        match node:
            case Entity(name) | Project(_, name):
                columns.append(len(names))
                names.append(-1 if is_open(node) else int(name))
                opened = Project(shapes[0], PLACEHOLDER) if shapes else Entity(PLACEHOLDER)
                return opened, columns
        return node.with_operands(*shapes), columns

    visit(structure)
    return np.array(names, dtype=np.int32), groups


def _in_canonical_order(
    symbols: Ids, names: Ids, groups: list[NDArray[np.int64]]
) -> tuple[Ids, NDArray[np.bool_]]:
    """Return a key for each query, whatever the order of its operands, and mark equal operands."""
    keys = np.repeat(names[None], len(symbols), axis=0)
    keys[:, names < 0] = symbols
    has_twice = np.zeros(len(symbols), dtype=bool)
    for columns in groups:
        operands = keys[:, columns]  # (num_queries, num_alike, width)
        order = np.lexsort(tuple(operands[:, :, i] for i in reversed(range(columns.shape[1]))))
        operands = np.take_along_axis(operands, order[:, :, None], axis=1)
        has_twice |= (operands[:, 1:] == operands[:, :-1]).all(axis=2).any(axis=1)
        keys[:, columns] = operands
    return keys, has_twice
