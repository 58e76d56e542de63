"""Sample queries of any structure from a graph, with their easy and hard answers.

The paper's way: choose an answer at random and walk back from it along the structure, so that
every query has one. Rules for what is kept: training queries are answered on train; validation and
test queries have at least one answer that the smaller graph does not give, and not too many; a
complement takes something away (its branch is walked from the same answer as the others); no query
twice, no branch twice in one intersection or union, no edge followed by its own inverse. The sets
released with the paper follow other rules in part: see `Rules`.

Work is cut into batches, each with its own random numbers, and merged in order: the same seed gives
the same set whatever the number of threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any, Literal, get_args

import numpy as np

from betae import parallel
from betae.cluster import Cluster, map_blocks
from betae.errors import InvalidArgument
from betae.exact.answers import count_answers
from betae.exact.derivations import num_edges
from betae.graph.edges import Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.queries.ast import Query
from betae.queries.names import resolve
from betae.queries.structures import (
    EPFO,
    NEGATION,
    STRUCTURES,
    TRAINING,
    limits_of,
    num_symbols,
)
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.querysets.sampler import QuerySampler, Rules, SampledBatch
from betae.querysets.seeds import random_stream

PATIENCE = 16  # batches; fewer new queries than that in as many batches: the graph has no more
MAX_ANSWERS = 100  # of validation and test queries, as in the paper


@dataclass
class SampleReport:
    """What became of the walks for one structure."""

    asked: int
    sampled: int = 0
    walks: int = 0
    rejected: dict[str, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Tell whether all that was asked for was found."""
        return self.sampled == self.asked


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
    workers: int | None = None,
    cluster: Cluster | None = None,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> QuerySet:
    """Sample `counts[structure]` queries for each structure.

    A structure is a name of the paper (1p, 2in, ...) or logic text with `_` for the open entities
    and relations: `?X . located_in(?X, Europe) & !_(_, ?X)`. The set's `origin["report"]` says,
    per structure, what was sampled, what was rejected and why; where the graph has no more such
    queries it holds fewer than asked. `progress` is called with a structure and a number so far.

    Each split and each `purpose` (any text) has its own random stream under a seed. On a
    `cluster`, its workers make the batches; the queries are the same.

    Validation and test queries have at most `max_answers` (100) answers, as the paper says. With
    `rules="release"`, as in the sets released with the paper, they have at most so many hard
    answers, however many easy ones; those with negation also lose an answer, and at most so many,
    when the edges of the split are added.

    With `missing`, every hard answer needs at least so many edges that the smaller graph lacks, or
    all that a derivation uses; answers that need fewer are put among the easy ones. Structures that
    use fewer edges are left out; `origin["left_out"]` has them, with their numbers of edges.
    """
    _check_split(graph, split)
    _check_rules(rules)
    if any(number is not None and number < 1 for number in (max_answers, *counts.values())):
        raise InvalidArgument("The numbers of queries and of answers must be at least 1.")
    if seed < 0:
        raise InvalidArgument(f"The seed is 0 or more, not {seed}.")
    if max_answers is None and split != "train":
        max_answers = MAX_ANSWERS
    structures = {text: read_structure(text, graph) for text in counts}
    needed, left_out = _missing_by_structure(structures, split, missing)
    blocks: dict[str, QueryBlock] = {}
    reports: dict[str, Any] = {}
    for text, number in needed.items():
        settings = structures[text], split, seed, max_answers, purpose, rules, number
        make_sampler = partial(QuerySampler, graph, *settings)
        batches, tell = _batches(make_sampler, workers, cluster), partial(progress, text)
        blocks[text], report = _merge(structures[text], batches, counts[text], tell)
        reports[text] = asdict(report)
    origin = {"source": "sampled", "seed": seed, "max_answers": max_answers, "rules": rules}
    origin["report"] = reports
    if missing is not None:
        origin |= {"missing": missing, "left_out": left_out}
    return QuerySet(split, blocks, graph.fingerprint, origin)


def _check_split(graph: KnowledgeGraph, split: str) -> None:
    if split not in SET_EDGES:
        raise InvalidArgument(f"The split is train, valid or test, not {split!r}.")
    if split != "train" and not len(graph.splits[split]):  # type: ignore[index]
        raise InvalidArgument(
            f"The graph has no {split} edges, so no query has an answer that needs one. Ingest it "
            f"with --{split} 0.1, say, or sample for another split."
        )


def _check_rules(rules: Rules) -> None:
    if rules not in get_args(Rules):
        raise InvalidArgument(f"The rules are those of the paper or release, not {rules!r}.")


def _missing_by_structure(
    structures: Mapping[str, Query], split: str, missing: int | Literal["all"] | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many missing edges to ask of each structure, and the edges of those too short."""
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
            f"There is no structure {text!r}. Choose one of {', '.join(STRUCTURES)}, or write one "
            "with placeholders: '?X . _(_, ?X) & !_(_, ?X)'."
        )
    structure = parse(text)
    if not num_symbols(structure):
        raise InvalidArgument(f"{text!r} has no placeholder `_` to fill.")
    return resolve(structure, graph)


def _batches(
    make: Callable[[], QuerySampler], workers: int | None, cluster: Cluster | None
) -> Iterator[SampledBatch]:
    """Yield the batches in order, made in threads, or by a cluster."""
    sampler = make()
    numbers = range(sampler.num_batches) if sampler.num_batches else count()
    if cluster is None:
        return parallel.map_ahead(sampler.batch, numbers, workers)
    return map_blocks(partial(_open_sampler, make), numbers, cluster)


def _open_sampler(make: Callable[[], QuerySampler]) -> Callable[[int], SampledBatch]:
    return make().batch


def _merge(
    structure: Query,
    batches: Iterator[SampledBatch],
    wanted: int,
    progress: Callable[[int], None],
) -> tuple[QueryBlock, SampleReport]:
    """Merge batches in order until there are enough queries or the graph has no more."""
    report = SampleReport(wanted)
    rejected: Counter[str] = Counter()
    seen: set[bytes] = set()
    kept: list[QueryBlock] = []
    recent: list[int] = []  # new queries of the last batches
    for batch in batches:
        new = []
        for row, key in enumerate(map(bytes, batch.keys)):
            if key not in seen:
                seen.add(key)
                new.append(row)
        rejected += batch.rejected
        rejected["duplicate"] += len(batch.symbols) - len(new)
        rows = np.array(new[: wanted - report.sampled], dtype=np.int64)
        found = QueryBlock(structure, batch.symbols, batch.easy, batch.hard)
        kept.append(found.take(rows))
        report.walks += batch.walks
        report.sampled += len(rows)
        progress(report.sampled)
        recent = [*recent[-PATIENCE + 1 :], len(new)]
        if report.is_complete or (len(recent) == PATIENCE and sum(recent) < PATIENCE):
            break
    report.rejected = {reason: number for reason, number in rejected.items() if number}
    block = QueryBlock(
        structure,
        np.concatenate([part.symbols for part in kept]),
        Ragged.concatenate([part.easy for part in kept]),
        Ragged.concatenate([part.hard for part in kept]),
    )
    return block, report


MORE_THAN = 5  # answers of the queries that are told from those without


def sample_empty(
    graph: KnowledgeGraph, name: str, count: int, seed: int = 0, edges: Edges = "all"
) -> QueryBlock:
    """Sample queries without an answer on `edges`: entities and relations uniformly at random.

    The block holds fewer than `count` if a hundred times as many samples do not give them, or if
    the last five times as many gave no new one. Each choice of edges has its own random stream:
    training uses another one than evaluation.
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
    return _block(structure, random.permutation(found)[:count])


def sample_answered(graph: KnowledgeGraph, name: str, count: int, seed: int = 0) -> QueryBlock:
    """Sample queries with more than 5 answers on all edges, as training queries are sampled.

    The block holds fewer than `count` if ten times as many samples do not give them.
    """
    structure = read_structure(name, graph)
    sampled = sample_queries(
        graph, {name: 10 * count}, "train", seed=seed, purpose="answered queries"
    )
    symbols = sampled.blocks[name].symbols
    counts = count_answers(graph.adjacency("all"), structure, symbols)
    return _block(structure, symbols[counts > MORE_THAN][:count])


def _block(structure: Query, symbols: Ids) -> QueryBlock:
    none = Ragged.from_lengths(np.zeros(len(symbols), np.int64), np.empty(0, np.int32))
    return QueryBlock(structure, symbols, none, none)


def sample_validation(
    graph: KnowledgeGraph, names: Sequence[str], count: int, seed: int = 0
) -> QuerySet | None:
    """Sample up to `count` validation queries of each structure; None if there are none at all."""
    if not count or not len(graph.splits["valid"]):
        return None
    sampled = sample_queries(
        graph, dict.fromkeys(names, count), "valid", seed=seed, purpose="validation"
    )
    blocks = {name: block for name, block in sampled.blocks.items() if len(block)}
    return QuerySet("valid", blocks, graph.fingerprint, sampled.origin) if blocks else None
