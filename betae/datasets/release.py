"""The BetaE release layout: integer triples in both directions, names in pickles.

A folder holds `train.txt`, `valid.txt`, `test.txt` (head, relation, tail as ids, separated by
tabs; relation 2i is a relation and 2i + 1 its inverse), `id2ent.pkl` and `id2rel.pkl`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from betae.datasets.pickles import read_pickle
from betae.errors import TripleError
from betae.graph.columns import COLUMNS
from betae.graph.delimited import line_of_row
from betae.graph.edges import SPLITS, Ids, Split
from betae.graph.formats import read_labels, read_table
from betae.graph.triples import Triples

ENTITIES, RELATIONS = "id2ent.pkl", "id2rel.pkl"


def is_release(folder: Path) -> bool:
    """Tell whether a folder is laid out like the BetaE release."""
    return (folder / ENTITIES).is_file()


def read_release(folder: Path | str, labels: Path | str | None = None) -> Triples:
    """Read a folder in the BetaE release layout; ids stay as they are there."""
    folder = Path(folder)
    entities = _names(folder / ENTITIES)
    relations = _undirected(_names(folder / RELATIONS), folder / RELATIONS)
    splits: dict[Split, Ids] = {
        split: _edges(folder / f"{split}.txt", len(entities), len(relations)) for split in SPLITS
    }
    all_labels = {} if labels is None else read_labels(Path(labels))
    shown = {name: given[0].text for name, given in all_labels.items()}
    return Triples(entities, relations, splits, shown, all_labels=all_labels)


def _names(path: Path) -> list[str]:
    table = read_pickle(path)
    if (
        not isinstance(table, dict)
        or set(table) != set(range(len(table)))
        or not all(isinstance(name, str) for name in table.values())
    ):
        raise TripleError("a dictionary of the ids 0, 1, 2, … to names is expected.", path)
    names = [table[index] for index in range(len(table))]
    ids: dict[str, int] = {}
    for index, name in enumerate(names):
        if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
            raise TripleError(f"{name!r}, the name of {index}, cannot be written as UTF-8.", path)
        if name in ids:
            raise TripleError(f"{name!r} is the name of both {ids[name]} and {index}.", path)
        ids[name] = index
    return names


def _undirected(directed: list[str], path: Path) -> list[str]:
    """Return one name per pair of directed relations: `+/x` and `-/x`, or `x` and `x_reverse`."""
    if len(directed) % 2:
        raise TripleError(f"{len(directed)} relations: the last one has no inverse.", path)
    names = []
    for forward, backward in zip(directed[::2], directed[1::2], strict=True):
        bare = forward.removeprefix("+")
        if backward not in (f"-{bare}", f"{forward}_reverse"):
            raise TripleError(f"{backward!r} is not the inverse of {forward!r}.", path)
        names.append(bare)
    return names


def _edges(path: Path, num_entities: int, num_relations: int) -> Ids:
    """Read one split; keep the written direction, (n, 3), after checking that both are there."""
    names = read_table(path).triples
    numbers = names.select(pl.all().cast(pl.Int32, strict=False))
    limits = dict(zip(COLUMNS, (num_entities, 2 * num_relations, num_entities), strict=True))
    for column, limit in limits.items():
        inside = numbers[column].is_between(0, limit - 1).fill_null(False)
        if not inside.all():
            row = int(inside.arg_min())  # type: ignore[arg-type]
            raise TripleError(
                f"the {column} {names[column][row]!r} is not an id from 0 to {limit - 1}.",
                path,
                line_of_row(path, row),
            )
    heads, relations, tails = numbers.to_numpy().T
    forward, backward = relations % 2 == 0, relations % 2 == 1
    written = np.stack([heads, relations // 2, tails], axis=1)[forward]
    mirrored = np.stack([tails, relations // 2, heads], axis=1)[backward]
    written, mirrored = np.unique(written, axis=0), np.unique(mirrored, axis=0)
    if not np.array_equal(written, mirrored):
        raise TripleError("not every edge has its inverse (relation 2i and 2i + 1).", path)
    return written
