"""Read files of triples into names and integers.

Names are numbered in sorted order, so the same set of triples gives the same graph whatever file,
order or format it came in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from betae.errors import InvalidArgument
from betae.graph.columns import COLUMNS, Columns
from betae.graph.edges import SPLITS, Ids, Packing, Split, distinct
from betae.graph.files import find_files
from betae.graph.formats import Table, read_labels, read_table
from betae.graph.frames import IN_MEMORY
from betae.graph.labels import Label, in_order
from betae.graph.source import STANDARD_INPUT, Reading

FileOrFraction = Any  # a file or a table in memory, or a fraction
Codes = list[NDArray[np.uint32]]  # of heads, relations and tails


@dataclass
class ReadReport:
    """What happened to the input on its way in."""

    read: int = 0
    blank_lines_skipped: int = 0
    comments_skipped: int = 0
    duplicates: int = 0  # the same triple again in the same split
    repeated_across_splits: int = 0  # in valid or test, but already in an earlier split
    literals_skipped: int = 0  # RDF triples whose object is a literal
    labels_unused: int = 0  # labels of names that are in no triple
    unseen_in_train: int = 0  # entities and relations that only valid or test mention
    headers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # file -> its header's cells
    doubtful_rows: dict[str, tuple[str, ...]] = field(default_factory=dict)  # read, but a header?


@dataclass(frozen=True)
class Triples:
    """Triples as integers, with the names behind them."""

    entities: list[str]
    relations: list[str]
    splits: dict[Split, Ids]  # each (n, 3): head, relation, tail; distinct and sorted
    labels: dict[str, str] = field(default_factory=dict)  # name -> the label to show
    report: ReadReport = field(default_factory=ReadReport)
    all_labels: Mapping[str, Sequence[Label]] = field(default_factory=dict)  # the one to show first
    prefixes: Mapping[str, str] = field(default_factory=dict)  # of IRIs, as the files have them
    blank_nodes: frozenset[str] = frozenset()  # names that mean something in their file only


def read_triples(
    *sources: Any,
    valid: FileOrFraction = 0.0,
    test: FileOrFraction = 0.0,
    labels: Path | str | None = None,
    seed: int = 0,
    columns: Columns | None = None,
    delimiter: str | None = None,
    comment: str | None = None,
    format: str | None = None,  # as in other libraries
    say: Callable[[str], None] = lambda _: None,
) -> Triples:
    """Read triples from files; `valid` and `test` are files too, or fractions to split off.

    A source is a file, a folder of files, a pattern such as `parts/*.parquet`, an address such as
    `s3://bucket/facts.parquet`, `-` for standard input, or in memory: a list of (head, relation,
    tail), a polars or pandas frame, a NumPy array (n, 3), an rdflib graph. A fraction is sampled
    (by `seed`) from the triples of `sources`; every entity and relation keeps an edge in train.
    `labels` is a two-column file of name and label, and wins over the labels of RDF files.
    `columns`, `delimiter`, `comment` and `format` are those of `Reading`. `say` is called with what
    is being done, for a person who waits.
    """
    everything, fractions = sources_and_fractions(sources, valid, test, seed)
    read = _read_sources(everything, Reading(columns, delimiter, comment, format), say)
    if labels is not None:
        for name, given in read_labels(Path(labels), comment).items():
            read.labels[name] = [*given, *read.labels.get(name, ())]

    say("Numbering entities and relations")
    codes, report = read.codes, read.report
    entities, entity_ids = _number(
        read.names["entity"], [codes[split][i] for split in SPLITS for i in (0, 2)]
    )
    relations, relation_ids = _number(read.names["relation"], [codes[split][1] for split in SPLITS])
    packing = Packing.of(len(entities), len(relations))
    keys = {
        split: packing.pack(entity_ids[head], relation_ids[relation], entity_ids[tail])
        for split, (head, relation, tail) in codes.items()
    }

    say("Sorting and dropping duplicates")
    _drop_duplicates(keys, report)
    splits = {split: np.stack(packing.unpack(keys[split]), axis=1) for split in SPLITS}
    if any(fractions):
        splits["train"], *held_out = split_triples(splits["train"], *fractions, seed=seed)
        for split, triples in zip(SPLITS[1:], held_out, strict=True):
            splits[split] = triples if len(triples) else splits[split]

    report.unseen_in_train = _num_unseen(splits["train"], len(entities), len(relations))
    report.labels_unused = len(read.labels.keys() - {*entities, *relations}) if read.labels else 0
    return _with_labels(Triples(entities, relations, splits, report=report), read)


def sources_and_fractions(
    sources: Sequence[Any], valid: FileOrFraction, test: FileOrFraction, seed: int
) -> tuple[list[tuple[Split, Any]], list[float]]:
    """Return what to read for which split, and the fractions to split off for valid and test."""
    fractions = [given if _is_fraction(given) else 0.0 for given in (valid, test)]
    if not (min(fractions) >= 0 and sum(fractions) < 1):
        raise InvalidArgument(
            "The fractions of valid and test must be at least 0 and below 1 together, "
            f"not {valid} and {test}."
        )
    if seed < 0:
        raise InvalidArgument(f"The seed must be at least 0, not {seed}.")
    everything: list[tuple[Split, Any]] = [("train", source) for source in sources]
    everything += [("valid", valid)] if not _is_fraction(valid) else []
    everything += [("test", test)] if not _is_fraction(test) else []
    if not sources:
        raise InvalidArgument("There is nothing to read: name at least one file of triples.")
    return everything, fractions


def _is_fraction(given: FileOrFraction) -> bool:
    return isinstance(given, float | int)


@dataclass
class _Read:
    """What the sources hold: triples as polars' codes, the names behind those, and the rest."""

    codes: dict[Split, Codes] = field(default_factory=dict)
    names: dict[str, pl.Series] = field(default_factory=dict)
    labels: dict[str, list[Label]] = field(default_factory=dict)
    prefixes: dict[str, str] = field(default_factory=dict)
    blank_nodes: set[str] = field(default_factory=set)
    report: ReadReport = field(default_factory=ReadReport)

    def add(self, source: str, table: Table) -> None:
        """Take over all but the triples of a table."""
        for name, given in table.labels.items():
            self.labels.setdefault(name, []).extend(given)
        self.prefixes = {**table.prefixes, **self.prefixes}  # the first file's meaning counts
        self.blank_nodes |= table.blank_nodes
        if table.header is not None:
            self.report.headers[source] = table.header
        if table.doubtful is not None:
            self.report.doubtful_rows[source] = table.doubtful
        self.report.read += len(table.triples)
        self.report.literals_skipped += table.literals_skipped
        self.report.blank_lines_skipped += table.blank_lines
        self.report.comments_skipped += table.comments


def _read_sources(
    everything: Sequence[tuple[Split, Any]], reading: Reading, say: Callable[[str], None]
) -> _Read:
    categories = {kind: pl.Categories.random(kind) for kind in ("entity", "relation")}
    entity, relation = (pl.Categorical(each) for each in categories.values())
    schema = {"head": entity, "relation": relation, "tail": entity}
    frames: dict[Split, list[pl.DataFrame]] = {
        split: [pl.DataFrame(schema=schema)] for split in SPLITS
    }
    read = _Read()
    files = [(split, file) for split, source in everything for file in _files_of(source)]
    for number, (split, source) in enumerate(files):
        shown = str(source) if isinstance(source, str | Path) else str(IN_MEMORY)
        shown = "standard input" if shown == STANDARD_INPUT else shown
        say(f"Reading {shown}")
        # Blank nodes of different files are different, though they may be written alike.
        prefix = f"{number}." if len(files) > 1 else ""
        table = read_table(source, schema, prefix, reading)
        frames[split].append(table.triples)
        read.add(shown, table)
    for split in SPLITS:
        joined = pl.concat(frames.pop(split))
        read.codes[split] = [joined[column].to_physical().to_numpy() for column in COLUMNS]
    read.names = {kind: each.to_series() for kind, each in categories.items()}
    return read


def _files_of(source: Any) -> list[Any]:
    return find_files(source) if isinstance(source, str | Path) else [source]


def _with_labels(triples: Triples, read: _Read) -> Triples:
    all_labels = {name: in_order(labels) for name, labels in read.labels.items()}
    return replace(
        triples,
        labels={name: labels[0].text for name, labels in all_labels.items()},
        all_labels=all_labels,
        prefixes=read.prefixes,
        blank_nodes=frozenset(read.blank_nodes),
    )


def _number(
    names: pl.Series, used_codes: Sequence[NDArray[np.uint32]]
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names in use, sorted by code point, and the id of each of polars' codes."""
    is_used = np.zeros(len(names), dtype=bool)
    for codes in used_codes:
        is_used[codes] = True
    order = names.arg_sort().to_numpy()
    order = order[is_used[order]]
    ids = np.full(len(names), -1)
    ids[order] = np.arange(len(order))
    return names[order].to_list(), ids


def _drop_duplicates(keys: dict[Split, NDArray[np.int64]], report: ReadReport) -> None:
    """Make the splits distinct and disjoint, sorted; an earlier split keeps a shared triple."""
    seen = np.empty(0, dtype=np.int64)
    for split in SPLITS:
        here = distinct(keys[split])
        fresh = here[~np.isin(here, seen)] if len(here) and len(seen) else here
        report.duplicates += len(keys[split]) - len(here)
        report.repeated_across_splits += len(here) - len(fresh)
        keys[split] = fresh
        seen = np.concatenate([seen, fresh])


def _num_unseen(train: Ids, num_entities: int, num_relations: int) -> int:
    seen_entities, seen_relations = np.zeros(num_entities, bool), np.zeros(num_relations, bool)
    seen_entities[train[:, [0, 2]]] = True
    seen_relations[train[:, 1]] = True
    return int((~seen_entities).sum() + (~seen_relations).sum())


def split_triples(
    triples: Ids, valid: float, test: float, *, seed: int = 0
) -> tuple[Ids, Ids, Ids]:
    """Hold out `valid` and `test` fractions at random; every entity and relation stays in train.

    In random order, the first triple that mentions an entity or a relation is kept in train; the
    held-out ones come from the rest, fewer than asked if the graph is too sparse.
    """
    shuffled = triples[np.random.default_rng(seed).permutation(len(triples))]
    keep = np.zeros(len(triples), dtype=bool)
    for column in (shuffled[:, [0, 2]].ravel(), shuffled[:, 1].repeat(2)):
        first_mention = np.full(column.max(initial=-1) + 1, -1)
        first_mention[column[::-1]] = np.arange(len(column))[::-1] // 2  # the last writer wins
        keep[first_mention[first_mention >= 0]] = True
    free = np.flatnonzero(~keep)
    num_valid, num_test = num_held_out(valid, test, len(triples), len(free))
    held_out_valid, held_out_test = free[:num_valid], free[num_valid : num_valid + num_test]
    rest = np.ones(len(triples), dtype=bool)
    rest[held_out_valid] = rest[held_out_test] = False

    def in_order(part: Ids) -> Ids:
        return part[np.lexsort(part.T[::-1])]

    return (
        in_order(shuffled[rest]),
        in_order(shuffled[held_out_valid]),
        in_order(shuffled[held_out_test]),
    )


def num_held_out(valid: float, test: float, num_triples: int, num_free: int) -> tuple[int, int]:
    """Return how many triples to hold out for valid and test if `num_free` may be."""
    num_valid, num_test = round(valid * num_triples), round(test * num_triples)
    if num_valid + num_test > num_free:  # too few: share them in the same proportion
        num_valid = round(num_free * valid / (valid + test))
        num_test = num_free - num_valid
    return num_valid, num_test
