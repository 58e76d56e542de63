"""The BetaE release layout: integer triples in both directions, names in pickles.

A folder holds `train.txt`, `valid.txt`, `test.txt` (head, relation, tail as ids, separated by
tabs; relation 2i is a relation and 2i + 1 its inverse), `id2ent.pkl` and `id2rel.pkl`.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from betae.errors import TripleError
from betae.graph.columns import COLUMNS
from betae.graph.delimited import line_of_row
from betae.graph.edges import SPLITS, Ids, Split
from betae.graph.formats import read_labels, read_table
from betae.graph.triples import Triples

ENTITIES, RELATIONS = "id2ent.pkl", "id2rel.pkl"
ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): set,
    ("builtins", "dict"): dict,
    ("builtins", "tuple"): tuple,
    ("builtins", "int"): int,
    ("builtins", "str"): str,
    ("collections", "defaultdict"): defaultdict,
}


class _PlainUnpickler(pickle.Unpickler):
    """Admit containers, ints and strings: a pickle cannot run code through it."""

    def find_class(self, module: str, name: str) -> Any:
        module = "builtins" if module == "__builtin__" else module  # as Python 2 wrote it
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it holds a {module}.{name}, which is not plain data")
        return ADMITTED[module, name]


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain containers, ints and strings; refuse anything else."""
    try:
        with path.open("rb") as file:
            return _PlainUnpickler(file).load()
    except FileNotFoundError:
        raise TripleError("there is no such file.", path) from None
    except OSError as error:
        raise TripleError(f"it cannot be read: {error.strerror or error}.", path) from error
    except Exception as error:  # bytes that are no pickle can raise anything
        raise TripleError(f"not a valid pickle of plain data: {error}.", path) from error


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
    return [table[index] for index in range(len(table))]


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
