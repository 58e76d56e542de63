"""Read files of triples into names and integers.

Names are numbered in sorted order, so the same set of triples gives the same graph whatever file,
order or format it came in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from betae.errors import InvalidArgument
from betae.graph.edges import SPLITS, Ids, Packing, Split, distinct
from betae.graph.formats import COLUMNS, Label, add_label, read_labels, read_table

FileOrFraction = Path | str | float
Codes = list[NDArray[np.uint32]]  # of heads, relations and tails


@dataclass
class ReadReport:
    """What happened to the input on its way in."""

    read: int = 0
    duplicates: int = 0  # the same triple again in the same split
    repeated_across_splits: int = 0  # in valid or test, but already in an earlier split
    literals_skipped: int = 0  # RDF triples whose object is a literal
    labels_unused: int = 0  # labels of names that are in no triple
    unseen_in_train: int = 0  # entities and relations that only valid or test mention


@dataclass(frozen=True)
class Triples:
    """Triples as integers, with the names behind them."""

    entities: list[str]
    relations: list[str]
    splits: dict[Split, Ids]  # each (n, 3): head, relation, tail; distinct and sorted
    labels: dict[str, str] = field(default_factory=dict)  # name -> label
    report: ReadReport = field(default_factory=ReadReport)


def read_triples(
    *sources: Path | str,
    valid: FileOrFraction = 0.0,
    test: FileOrFraction = 0.0,
    labels: Path | str | None = None,
    seed: int = 0,
    blank_node_prefix: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> Triples:
    """Read triples from files; `valid` and `test` are files too, or fractions to split off.

    A fraction is sampled (by `seed`) from the triples of `sources`; every entity and
    relation keeps an edge in train. `labels` is a two-column file of name and label, and wins over
    the `rdfs:label` of RDF files. `blank_node_prefix` keeps blank nodes apart from those
    read before. `say` is called with what is being done, for a person who waits.
    """
    fractions = [given if isinstance(given, float | int) else 0.0 for given in (valid, test)]
    if not (min(fractions) >= 0 and sum(fractions) < 1):
        raise InvalidArgument(
            "The fractions of valid and test must be at least 0 and below 1 together, "
            f"not {valid} and {test}."
        )
    if seed < 0:
        raise InvalidArgument(f"The seed must be at least 0, not {seed}.")
    files: dict[Split, list[Path]] = {
        "train": [Path(source) for source in sources],
        "valid": [] if isinstance(valid, float | int) else [Path(valid)],
        "test": [] if isinstance(test, float | int) else [Path(test)],
    }
    report = ReadReport()
    texts, codes, names = _read_files(files, blank_node_prefix, report, say)
    if labels is not None:
        texts |= read_labels(Path(labels))

    say("Numbering entities and relations")
    entities, entity_ids = _number(
        names["entity"], [codes[split][i] for split in SPLITS for i in (0, 2)]
    )
    relations, relation_ids = _number(names["relation"], [codes[split][1] for split in SPLITS])
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
    report.labels_unused = len(texts.keys() - {*entities, *relations}) if texts else 0
    return Triples(entities, relations, splits, texts, report)


def _read_files(
    files: dict[Split, list[Path]],
    blank_node_prefix: str,
    report: ReadReport,
    say: Callable[[str], None],
) -> tuple[dict[str, str], dict[Split, Codes], dict[str, pl.Series]]:
    """Return the labels in the files, the triples as polars' codes, and the names behind those."""
    categories = {kind: pl.Categories.random(kind) for kind in ("entity", "relation")}
    entity, relation = (pl.Categorical(each) for each in categories.values())
    schema = {"head": entity, "relation": relation, "tail": entity}
    frames: dict[Split, list[pl.DataFrame]] = {
        split: [pl.DataFrame(schema=schema)] for split in SPLITS
    }
    labels: dict[str, Label] = {}
    everything = [(split, file) for split in SPLITS for file in files[split]]
    for number, (split, file) in enumerate(everything):
        say(f"Reading {file}")
        # Blank nodes of different files are different, though they may be written alike.
        prefix = blank_node_prefix + (f"{number}." if len(everything) > 1 else "")
        table = read_table(file, schema, blank_node_prefix=prefix)
        frames[split].append(table.triples)
        for name, label in table.labels.items():
            add_label(labels, name, label)
        report.read += len(table.triples)
        report.literals_skipped += table.literals_skipped
    codes: dict[Split, Codes] = {}
    for split in SPLITS:
        joined = pl.concat(frames.pop(split))
        codes[split] = [joined[column].to_physical().to_numpy() for column in COLUMNS]
    texts = {name: label.text for name, label in labels.items()}
    return texts, codes, {kind: each.to_series() for kind, each in categories.items()}


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
    num_valid, num_test = round(valid * len(triples)), round(test * len(triples))
    if num_valid + num_test > len(free):  # too few: share them in the same proportion
        num_valid = round(len(free) * valid / (valid + test))
        num_test = len(free) - num_valid
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
