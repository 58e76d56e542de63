"""QuerySampler: batch i of the queries of one structure, whatever was sampled before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from betae.exact import kernels
from betae.exact.derivations import MissingEdges
from betae.graph.edges import Adjacency, Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.queries.ast import PLACEHOLDER, And, Entity, Or, Project, Query
from betae.queries.structures import STRUCTURES, is_monotone, is_placeholder, num_symbols
from betae.querysets import walks as compiled
from betae.querysets.query_set import SET_EDGES
from betae.querysets.seeds import random_stream, seed_sequence

BATCH = 4096  # walks in a batch
NO_LIMIT = 2**31

# What the limit on answers counts, and what else is asked of a validation or test query.
#   paper: all answers, as the paper's text says.
#   release: as in the sets released with the paper, hard answers and refuted ones (easy answers
#   that are none on the larger graph), each by themselves; a query that can lose answers, which
#   takes a complement, loses at least one. A branch may begin with the inverse of the step after.
Rules = Literal["paper", "release"]

REASONS = {
    compiled.DEAD_END: "dead end",
    compiled.NO_ANSWER: "no answer",
    compiled.TOO_MANY: "too many answers",
    compiled.NOTHING_HARD: "no hard answer",
    compiled.NOTHING_REFUTED: "no refuted answer",
}


@dataclass(frozen=True)
class SampledBatch:
    """The queries of one batch that pass every rule but "no query twice"."""

    symbols: Ids
    keys: Ids  # the same for queries that differ in the order of operands only
    easy: Ragged
    hard: Ragged
    walks: int
    rejected: Counter[str]


class QuerySampler:
    """Makes batch `number` of the queries of one structure.

    A batch is a function of the graph, the split, the seed and the purpose: what is sampled for one
    split or purpose tells nothing about another. With `missing`, a query has an answer that needs
    so many missing edges; only such answers are hard, and all others count as easy.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        structure: Query,
        split: str,
        seed: int,
        max_answers: int | None = None,
        purpose: str = "queries",
        rules: Rules = "paper",
        missing: int = 0,
    ):
        smaller, larger = SET_EDGES[split]
        self.structure = structure
        limit = max_answers or NO_LIMIT
        # Of missing edges one that is walked there and back would count twice.
        self.may_turn = rules == "release" and not missing
        if split == "train":
            self.max_answers, self.min_refuted, self.max_changes = limit, 0, 0
        elif rules == "paper":
            self.max_answers, self.min_refuted, self.max_changes = limit, 0, NO_LIMIT
        else:
            self.max_answers, self.max_changes = NO_LIMIT, limit
            self.min_refuted = 0 if is_monotone(structure) else 1
        self.smaller = kernels.AdjacencyArrays.of(graph.adjacency(smaller))
        self.larger = kernels.AdjacencyArrays.of(graph.adjacency(larger))
        self.missing = missing
        self.walked = self.larger
        if missing:
            added = Adjacency.from_triples(
                graph.splits[split],  # type: ignore[index]
                graph.num_entities,
                len(graph.relations),
            )
            self.walked = kernels.AdjacencyArrays.of(added)
            self.missing_edges = MissingEdges.of(
                graph.adjacency(smaller), graph.adjacency(larger), structure
            )
        self.program = kernels.compile_program(structure)
        self.num_symbols = num_symbols(structure)
        self.constants, self.groups = _alike_operands(structure)
        self.stream = (seed, purpose, split, str(structure))
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
        return pairs[random_stream(*self.stream).permutation(len(pairs))]

    def batch(self, number: int) -> SampledBatch:
        """Walk, drop what is degenerate, answer, keep what the rules allow."""
        rejected: Counter[str] = Counter()
        if self.listed is not None:
            keys = symbols = self.listed[number * BATCH : (number + 1) * BATCH]
            walks = len(symbols)
        else:
            seed = seed_sequence(*self.stream, number).generate_state(1, np.uint64)[0]
            num_walks = BATCH if len(self.roots) else 0
            symbols, succeeded = compiled.walk_back(
                self.program,
                self.num_symbols,
                self.roots,
                self.larger,
                self.walked,
                self.missing > 0,
                seed,
                num_walks,
                self.may_turn,
            )
            walks = len(symbols)
            symbols = symbols[succeeded]
            rejected["dead end"] = walks - len(symbols)
            keys, has_twice = _in_canonical_order(symbols, self.constants, self.groups)
            symbols, keys = symbols[~has_twice], keys[~has_twice]
            rejected["same branch twice"] = int(has_twice.sum())
        verdicts, easy, hard = self.judge(symbols)
        for verdict, reason in REASONS.items():
            rejected[reason] += int((verdicts == verdict).sum())
        is_good = verdicts == compiled.ACCEPTED
        symbols, keys = symbols[is_good], keys[is_good]
        if self.missing:
            easy, hard = self.only_missing(symbols, easy, hard)
            rows = np.flatnonzero(hard.lengths)
            rejected["too few missing edges"] = len(symbols) - len(rows)
            symbols, keys, easy, hard = symbols[rows], keys[rows], easy.take(rows), hard.take(rows)
        return SampledBatch(symbols, keys, easy, hard, walks, rejected)

    def only_missing(self, symbols: Ids, easy: Ragged, hard: Ragged) -> tuple[Ragged, Ragged]:
        """Move the hard answers that need too few missing edges to the easy ones."""
        is_hard = self.missing_edges.count(symbols, hard) >= self.missing
        owners = np.repeat(np.arange(len(symbols)), hard.lengths)
        owners_of_easy = np.repeat(np.arange(len(symbols)), easy.lengths)
        values = np.concatenate([easy.values, hard.values[~is_hard]])
        rows = np.concatenate([owners_of_easy, owners[~is_hard]])
        order = np.lexsort((values, rows))
        return (
            Ragged.from_lengths(np.bincount(rows, minlength=len(symbols)), values[order]),
            Ragged.from_lengths(
                np.bincount(owners[is_hard], minlength=len(symbols)), hard.values[is_hard]
            ),
        )

    def judge(self, symbols: Ids) -> tuple[NDArray[np.int8], Ragged, Ragged]:
        """Return a verdict on each query, and the easy and hard answers of those accepted."""
        verdicts, easy_lengths, easy, hard_lengths, hard = compiled.judge_rows(
            self.program,
            np.ascontiguousarray(symbols),
            self.smaller,
            self.larger,
            self.max_answers,
            self.min_refuted,
            self.max_changes,
            kernels.Scratch.of(self.program, self.larger),
        )
        return (
            verdicts,
            Ragged.from_lengths(easy_lengths, easy),
            Ragged.from_lengths(hard_lengths, hard),
        )


def _alike_operands(structure: Query) -> tuple[Ids, list[NDArray[np.int64]]]:
    """Return a structure's ids, -1 for placeholders, and the columns of operands that are alike.

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
                names.append(-1 if is_placeholder(node) else int(name))
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
