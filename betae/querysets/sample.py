"""Sample queries of any structure from a graph, with their easy and hard answers.

The paper's way: choose an answer at random and walk back from it along the structure, so that
every query has one. Rules for what is kept: training queries are answered on train; validation and
test queries have at least one answer that the smaller graph does not give, and not too many; a
complement takes something away (its branch is walked from the same answer as the others); no query
twice, no branch twice in one intersection or union, no edge followed by its own inverse. The sets
released with the paper follow other rules in part: see `sample_queries`.

Walks come in batches, each with its own random stream, and are merged in order: a seed gives the
same set whatever the number of threads.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from betae import parallel
from betae.checks import check_choice, check_positive
from betae.cluster import Cluster, map_blocks
from betae.errors import InvalidArgument, UnsupportedQuery
from betae.exact import kernels
from betae.exact.answers import count_answers
from betae.graph.edges import Adjacency, Edges, Ids, Ragged
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import PLACEHOLDER, And, Entity, Or, Project, Query
from betae.queries.read import resolve
from betae.queries.rewrite import num_edges
from betae.queries.structures import (
    EPFO,
    NEGATION,
    STRUCTURES,
    TRAINING,
    columns_of,
    is_monotone,
    limits_of,
    num_symbols,
)
from betae.querysets import walks as compiled
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet

WALK_BATCH = 4096  # walks of a batch
PATIENCE = 16  # batches; if that many give fewer new queries than that, the graph has no more
MAX_ANSWERS = 100  # of validation and test queries, as in the paper
MORE_THAN = 5  # answers of the answerable queries in the test of unanswerable ones
NO_LIMIT = 2**31

Rules = Literal["paper", "release"]  # of the paper's text, or of its released sets

REASONS = {
    compiled.NO_ANSWER: "no answer",
    compiled.TOO_MANY: "too many answers",
    compiled.NOTHING_HARD: "no hard answer",
    compiled.NOTHING_REFUTED: "no refuted answer",
}


# ---- random streams -----------------------------------------------------------------------------


def random_stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random generator for a purpose, given by names, under a seed.

    Seed and names are hashed together, so that queries sampled for training, validation and test,
    candidates, shuffles and resampling never share a stream; seed + 1, seed + 2, ... would under
    another seed.
    """
    return np.random.default_rng(seed_sequence(seed, *names))


def seed_sequence(seed: int, *names: str | int) -> np.random.SeedSequence:
    """Return the entropy of a random stream."""
    digest = hashlib.sha256(repr((int(seed), *names)).encode()).digest()
    return np.random.SeedSequence(int.from_bytes(digest))


# ---- structures as people write them ------------------------------------------------------------


def parse_counts(
    structures: Sequence[str], split: str = "train", count: int = 1000
) -> dict[str, int]:
    """Read structures written as `1p`, `1p:20` or logic text with placeholders, each with a count.

    Without any: the structures that the paper trains on, or those that it tests on.
    """
    if not structures:
        structures = TRAINING if split == "train" else (*EPFO, *NEGATION)
    counts = {}
    for text in structures:
        name, colon, number = text.rpartition(":")
        has_count = colon and number.strip().isdecimal()
        counts[name if has_count else text] = int(number) if has_count else count
    return counts


def read_structure(text: str, graph: KnowledgeGraph) -> Query:
    """Return the structure of a name such as `2p`, or of logic text with placeholders."""
    from betae.queries.syntax import parse

    if text in STRUCTURES:
        return STRUCTURES[text]
    if "." not in text:
        raise InvalidArgument(
            f"There is no structure {text!r}. Choose one of {', '.join(STRUCTURES)}, or write one "
            "with placeholders: '?X . _(_, ?X) & !_(_, ?X)'."
        )
    structure = parse(text)
    if structure.has_conditions:
        raise UnsupportedQuery(f"Query sets have no conditions or classes, as in {text!r}.")
    if not num_symbols(structure):
        raise InvalidArgument(f"{text!r} has no placeholder `_` to fill.")
    return resolve(structure, graph)


# ---- sampling -----------------------------------------------------------------------------------


def sample_queries(
    graph: KnowledgeGraph,
    counts: Mapping[str, int],
    split: str = "train",
    *,
    seed: int = 0,
    purpose: str = "queries",
    max_answers: int | None = None,
    rules: Rules = "paper",
    missing: int | Literal["all"] | None = None,
    cluster: Cluster | None = None,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> QuerySet:
    """Sample `counts[structure]` queries of each structure.

    A structure is a name of the paper (1p, 2in, ...) or logic text with the placeholder `_` for
    entities and relations: `?X . located_in(?X, Europe) & !_(_, ?X)`. The set holds fewer queries
    where the graph has no more; `origin["report"]` has what was sampled, and what was rejected and
    why, by structure. `progress(structure, num_sampled)` is called after each batch.

    Each split and each `purpose` (any text) has its own random stream under a seed. A `cluster`
    makes the batches instead of the threads of this process; the queries are the same.

    Validation and test queries have at most `max_answers` (100) answers, as the paper says. With
    `rules="release"`, as in the sets released with the paper, the limit is on the hard answers
    only; queries with negation also lose an answer, and at most as many, when the edges of the
    split are added; and a branch may begin with the inverse of the following step.

    With `missing`, every hard answer needs at least that many edges that the smaller graph lacks
    ("all": every edge of its derivation); other answers count as easy. Structures with too few
    edges are left out and listed in `origin["left_out"]`, with their numbers of edges.
    """
    check_choice("split", split, SET_EDGES)
    if split != "train" and not len(graph.written_ids[split]):  # type: ignore[index]
        raise InvalidArgument(
            f"The graph has no {split} edges, so no query has an answer that needs one. Ingest it "
            f"with --{split} 0.1, say, or sample for another split."
        )
    check_choice("rules", rules, get_args(Rules))
    check_positive("seed", seed, whole=True, or_zero=True)
    if any(number is not None and number < 1 for number in (max_answers, *counts.values())):
        raise InvalidArgument("The numbers of queries and of answers must be at least 1.")
    if max_answers is None and split != "train":
        max_answers = MAX_ANSWERS
    structures = {text: read_structure(text, graph) for text in counts}
    needed, left_out = _missing_by_structure(structures, split, missing)
    blocks: dict[str, QueryBlock] = {}
    reports: dict[str, Any] = {}
    for text, num_missing in needed.items():
        settings = structures[text], split, seed, max_answers, purpose, rules, num_missing
        batches = _batches(partial(QuerySampler, graph, *settings), cluster)
        blocks[text], reports[text] = _merge(batches, counts[text], partial(progress, text))
    origin = {"source": "sampled", "seed": seed, "max_answers": max_answers, "rules": rules}
    origin["report"] = reports
    if missing is not None:
        origin |= {"missing": missing, "left_out": left_out}
    return QuerySet(split, blocks, graph.fingerprint, origin)


def _missing_by_structure(
    structures: Mapping[str, Query], split: str, missing: int | Literal["all"] | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the missing edges to require of each structure, and the edges of those too short."""
    if missing is None:
        return dict.fromkeys(structures, 0), {}
    if split == "train":
        raise InvalidArgument(
            "Training queries are answered on the training edges, so none of their edges is "
            "missing. Sample for valid or test."
        )
    if missing != "all" and (not isinstance(missing, int) or missing < 1):
        raise InvalidArgument(f"Missing edges are a number, at least 1, or all, not {missing!r}.")
    edges = {text: num_edges(structure) for text, structure in structures.items()}
    needed = {
        text: number if missing == "all" else missing
        for text, number in edges.items()
        if number >= (1 if missing == "all" else missing)
    }
    left_out = {text: number for text, number in edges.items() if text not in needed}
    if not needed:
        most = max(left_out, key=left_out.__getitem__)
        raise InvalidArgument(
            f"No answer needs {missing} missing edges: of these structures {most} uses the most, "
            f"and that is {left_out[most]}. Ask for fewer, or for structures with more edges."
        )
    return needed, left_out


def _batches(make: Callable[[], QuerySampler], cluster: Cluster | None) -> Iterator[SampledBatch]:
    """Yield the batches in order, made in threads or by a cluster."""
    sampler = make()
    indices = range(sampler.num_batches) if sampler.num_batches else count()
    if cluster is None:
        return parallel.map_ahead(sampler.batch, indices)
    return map_blocks(make, QuerySampler.batch, indices, cluster)


def _merge(
    batches: Iterator[SampledBatch], wanted: int, progress: Callable[[int], None]
) -> tuple[QueryBlock, dict[str, Any]]:
    """Merge batches until there are enough queries or the graph has no more; report on them."""
    rejected: Counter[str] = Counter()
    seen: set[bytes] = set()
    kept: list[QueryBlock] = []
    recent: deque[int] = deque(maxlen=PATIENCE)  # numbers of new queries in the last batches
    num_sampled = num_walks = 0
    for batch in batches:
        new = []
        for row, key in enumerate(map(bytes, batch.keys)):
            if key not in seen:
                seen.add(key)
                new.append(row)
        rejected += batch.rejected
        rejected["duplicate"] += len(batch.keys) - len(new)
        kept.append(batch.block.take(np.array(new[: wanted - num_sampled], dtype=np.int64)))
        num_walks += batch.num_walks
        num_sampled += len(kept[-1])
        progress(num_sampled)
        recent.append(len(new))
        if num_sampled == wanted or (len(recent) == PATIENCE and sum(recent) < PATIENCE):
            break
    report = {"asked": wanted, "sampled": num_sampled, "walks": num_walks}
    return QueryBlock.concatenate(kept), report | {"rejected": dict(+rejected)}


# ---- one batch ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledBatch:
    """The queries of one batch that pass every rule but "no query twice"."""

    block: QueryBlock
    keys: Ids  # the same for queries that differ in the order of operands only
    num_walks: int
    rejected: Counter[str]


class QuerySampler:
    """Makes batch `index` of the queries of one structure.

    A batch is a function of the graph, the split, the seed, the purpose and its index. With
    `missing`, a query has an answer that needs that many missing edges; only such answers are hard,
    all others count as easy.
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
        # A missing edge that is walked there and back would count twice.
        self.may_turn = rules == "release" and not missing
        self.max_answers, self.min_refuted, self.max_changes = limit, 0, NO_LIMIT
        if split == "train":
            self.max_changes = 0
        elif rules == "release":
            self.max_answers, self.max_changes = NO_LIMIT, limit
            self.min_refuted = 0 if is_monotone(structure) else 1
        self.smaller = kernels.AdjacencyArrays.of(graph.adjacency(smaller))
        self.larger = kernels.AdjacencyArrays.of(graph.adjacency(larger))
        self.missing = missing
        self.walked = self.larger
        if missing:
            added = graph.written_ids[split]  # type: ignore[index]
            sizes = graph.num_entities, len(graph.relations)
            self.walked = kernels.AdjacencyArrays.of(Adjacency.from_triples(added, *sizes))
            edges = graph.adjacency(smaller), graph.adjacency(larger)
            self.missing_edges = kernels.MissingEdgeCounter(*edges, structure)
        self.program = kernels.compile_program(structure)
        self.groups = _alike_operands(structure)
        self.stream = (seed, purpose, split, str(structure))
        self.roots = np.flatnonzero(np.diff(self.larger.head_offsets))
        # Single steps are few enough to list: every pair (head, relation) once, shuffled.
        self.listed = self._all_pairs() if structure == STRUCTURES["1p"] else None

    @property
    def num_batches(self) -> int | None:
        """Number of batches; None if unlimited."""
        return None if self.listed is None else -(-len(self.listed) // WALK_BATCH)

    def _all_pairs(self) -> Ids:
        num_pairs = np.diff(self.larger.head_offsets)
        heads = np.repeat(np.arange(len(num_pairs)), num_pairs)
        pairs = np.stack([heads, self.larger.relations], axis=1).astype(np.int32)
        return pairs[random_stream(*self.stream).permutation(len(pairs))]

    def batch(self, index: int) -> SampledBatch:
        """Walk, drop degenerate queries, answer the others and keep what the rules allow."""
        rejected: Counter[str] = Counter()
        if self.listed is not None:
            keys = symbols = self.listed[index * WALK_BATCH : (index + 1) * WALK_BATCH]
            num_walks = len(symbols)
        else:
            num_walks = WALK_BATCH if len(self.roots) else 0
            symbols, succeeded = compiled.walk_back(
                self.program,
                num_symbols(self.structure),
                self.roots,
                self.larger,
                self.walked,
                self.missing > 0,
                seed_sequence(*self.stream, index).generate_state(1, np.uint64)[0],
                num_walks,
                self.may_turn,
            )
            symbols = symbols[succeeded]
            rejected["dead end"] = num_walks - len(symbols)
            keys, has_twice = self._keys(symbols)
            symbols, keys = symbols[~has_twice], keys[~has_twice]
            rejected["same branch twice"] = int(has_twice.sum())
        verdicts, easy, hard = self.judge(symbols)
        for verdict, reason in REASONS.items():
            rejected[reason] = int((verdicts == verdict).sum())
        is_good = verdicts == compiled.ACCEPTED
        block, keys = QueryBlock(self.structure, symbols[is_good], easy, hard), keys[is_good]
        if self.missing:
            block = self._only_missing(block)
            rows = np.flatnonzero(block.hard.lengths)
            rejected["too few missing edges"] = len(block) - len(rows)
            block, keys = block.take(rows), keys[rows]
        return SampledBatch(block, keys, num_walks, rejected)

    def _keys(self, symbols: Ids) -> tuple[Ids, NDArray[np.bool_]]:
        """Return a key for each query, whatever the order of its operands; mark equal operands."""
        keys = columns_of(self.structure).expand(symbols)
        has_twice = np.zeros(len(symbols), dtype=bool)
        for columns in self.groups:
            operands = keys[:, columns]  # (num_queries, num_alike, width)
            order = np.lexsort(tuple(operands[:, :, i] for i in reversed(range(columns.shape[1]))))
            operands = np.take_along_axis(operands, order[:, :, None], axis=1)
            has_twice |= (operands[:, 1:] == operands[:, :-1]).all(axis=2).any(axis=1)
            keys[:, columns] = operands
        return keys, has_twice

    def _only_missing(self, block: QueryBlock) -> QueryBlock:
        """Move the hard answers that need too few missing edges to the easy ones."""
        hard, indices = block.hard, np.arange(len(block))
        is_hard = self.missing_edges.count(block.symbols, hard) >= self.missing
        owners = np.repeat(indices, hard.lengths)
        values = np.concatenate([block.easy.values, hard.values[~is_hard]])
        rows = np.concatenate([np.repeat(indices, block.easy.lengths), owners[~is_hard]])
        order = np.lexsort((values, rows))
        num_easy, num_hard = (
            np.bincount(of, minlength=len(block)) for of in (rows, owners[is_hard])
        )
        return replace(
            block,
            easy=Ragged.from_lengths(num_easy, values[order]),
            hard=Ragged.from_lengths(num_hard, hard.values[is_hard]),
        )

    def judge(self, symbols: Ids) -> tuple[NDArray[np.int8], Ragged, Ragged]:
        """Return a verdict on each query, and the easy and hard answers of the accepted ones."""
        verdicts, easy_lengths, easy, hard_lengths, hard = compiled.judge_rows(
            self.program,
            np.ascontiguousarray(symbols),
            self.smaller,
            self.larger,
            self.max_answers,
            self.min_refuted,
            self.max_changes,
            kernels.Scratch.of(
                self.program, self.larger, kernels.members_of_conditions(self.structure)
            ),
        )
        easy, hard = (
            Ragged.from_lengths(easy_lengths, easy),
            Ragged.from_lengths(hard_lengths, hard),
        )
        return verdicts, easy, hard


def _alike_operands(structure: Query) -> list[NDArray[np.int64]]:
    """Return the columns of symbols of operands that are alike.

    A group (num_alike, width) is for operands of one And or Or that may become the same, whatever
    the order of their own operands. Inner ones come first: their order must be settled before the
    outer ones are compared.
    """
    groups: list[NDArray[np.int64]] = []
    next_column = count()

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
        if isinstance(node, Entity | Project):
            columns.append(next(next_column))
            return (Project(shapes[0], PLACEHOLDER) if shapes else Entity(PLACEHOLDER)), columns
        return node.with_operands(*shapes), columns

    visit(structure)
    return groups


# ---- sets for a purpose -------------------------------------------------------------------------


def sample_empty(
    graph: KnowledgeGraph, name: str, count: int, seed: int = 0, edges: Edges = "all"
) -> QueryBlock:
    """Sample queries without an answer on `edges`: entities and relations uniformly at random.

    The block holds fewer than `count` if 100 rounds of `count` samples do not give them, or if five
    rounds in a row gave no new one. Each choice of edges has its own random stream, so training
    and evaluation sample different ones.
    """
    structure = read_structure(name, graph)
    random = random_stream(seed, "empty queries", edges, str(structure))
    limits = limits_of(structure, graph.num_entities, graph.num_relations)
    found, rounds_in_vain = np.empty((0, len(limits)), dtype=np.int32), 0
    for _ in range(100):
        sampled = random.integers(limits, size=(count, len(limits)), dtype=np.int32)
        is_empty = count_answers(graph.adjacency(edges), structure, sampled) == 0
        before = len(found)
        found = np.unique(np.concatenate([found, sampled[is_empty]]), axis=0)
        rounds_in_vain = 0 if len(found) > before else rounds_in_vain + 1
        if len(found) >= count or rounds_in_vain == 5:
            break
    symbols = random.permutation(found)[:count]
    none = Ragged.from_rows([()] * len(symbols))
    return QueryBlock(structure, symbols, none, none)


def sample_answered(graph: KnowledgeGraph, name: str, count: int) -> QueryBlock:
    """Sample queries with more than 5 answers on all edges, as training queries are sampled.

    The block holds fewer than `count` if 10 x `count` samples do not give them.
    """
    sampled = sample_queries(graph, {name: 10 * count}, "train", purpose="answered queries")
    block = sampled.blocks[name]
    counts = count_answers(graph.adjacency("all"), block.structure, block.symbols)
    return block.take(np.flatnonzero(counts > MORE_THAN)[:count])
