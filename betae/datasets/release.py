"""The layout of the BetaE release (https://github.com/snap-stanford/KGReasoning).

A folder holds `train.txt`, `valid.txt`, `test.txt` (head, relation, tail as ids between tabs;
relation 2i is a relation and 2i + 1 its inverse), the names in `id2ent.pkl` and `id2rel.pkl`, and
queries with their answers as pickles of nested tuples. A pickle may hold anything, and compiled
kernels trust their ids, so everything is checked once as it is read.
"""

from __future__ import annotations

import pickle
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.datasets.pickles import read_pickle, shortened, shown
from betae.errors import BetaeError, InvalidArgument, StoreError, TripleError
from betae.exact.answers import answers_of_structure
from betae.graph.edges import SPLITS, Ids, Ragged, Split
from betae.graph.graph import KnowledgeGraph
from betae.graph.source import COLUMNS, Content, Source
from betae.graph.triples import Triples, labels_of, read_labels, read_source
from betae.queries.ast import Query
from betae.queries.structures import from_tuple, name_of, structure_of, to_tuple
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.storage import MANIFEST, read_manifest, write_manifest, writing_folder

ENTITIES, RELATIONS = "id2ent.pkl", "id2rel.pkl"
KIND = "release queries"
NOT_AN_ID = -(2**62)
OTHER_GRAPH = "Do the queries belong to another graph?"


def is_release(folder: Path | str) -> bool:
    """Tell whether a folder has the layout of the BetaE release."""
    return (Path(folder) / ENTITIES).is_file()


def read_release(folder: Path | str, labels: Path | str | None = None) -> Triples:
    """Read a folder in the BetaE release layout, keeping its ids."""
    folder = Path(folder)
    entities = _names(folder / ENTITIES)
    relations = _undirected(_names(folder / RELATIONS), folder / RELATIONS)
    splits: dict[Split, Ids] = {
        split: _edges_of_split(folder / f"{split}.txt", len(entities), len(relations))
        for split in SPLITS
    }
    if labels is None:
        return Triples(entities, relations, splits)
    listed = read_labels(Path(labels))
    return Triples(entities, relations, splits, labels_of(listed), listed)


def _names(path: Path) -> list[str]:
    table = read_pickle(path)
    if (
        not isinstance(table, dict)
        or set(table) != set(range(len(table)))
        or not all(isinstance(name, str) for name in table.values())
    ):
        raise TripleError("a dictionary of the ids 0, 1, 2, … to names is expected.", path)
    ids: dict[str, int] = {}
    for index, name in sorted(table.items()):
        if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
            raise TripleError(f"{name!r}, the name of {index}, cannot be written as UTF-8.", path)
        if ids.setdefault(name, index) != index:
            raise TripleError(f"{name!r} is the name of both {ids[name]} and {index}.", path)
    return list(ids)


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


def _edges_of_split(path: Path, num_entities: int, num_relations: int) -> Ids:
    """Read the edges (n, 3) of one split in the written direction; check that both exist."""
    names = read_source(path, Content())
    ids = names.select(pl.all().cast(pl.Int32, strict=False))
    limits = dict(zip(COLUMNS, (num_entities, 2 * num_relations, num_entities), strict=True))
    for column, limit in limits.items():
        inside = ids[column].is_between(0, limit - 1).fill_null(False)
        if not inside.all():
            row = int(inside.arg_min())  # type: ignore[arg-type]
            filled = (i for i, line in enumerate(Source.of(path).lines(), 1) if line.strip())
            raise TripleError(
                f"the {column} {names[column][row]!r} is not an id from 0 to {limit - 1}.",
                path,
                next(islice(filled, row, None)),
            )
    heads, relations, tails = ids.to_numpy().T
    forward, backward = relations % 2 == 0, relations % 2 == 1
    written = np.stack([heads, relations // 2, tails], axis=1)[forward]
    mirrored = np.stack([tails, relations // 2, heads], axis=1)[backward]
    written, mirrored = np.unique(written, axis=0), np.unique(mirrored, axis=0)
    if not np.array_equal(written, mirrored):
        raise TripleError("not every edge has its inverse (relation 2i and 2i + 1).", path)
    return written


# ---- queries ------------------------------------------------------------------------------------


def read_release_queries(
    graph: KnowledgeGraph, folder: Path | str, split: str = "test"
) -> QuerySet:
    """Read `{split}-queries.pkl` and its answers from a folder in the release's layout.

    Easy answers that are not stored are computed from the graph (Query2Box's release has none).
    """
    check_choice("split", split, SET_EDGES)
    folder = Path(folder)
    file = folder / f"{split}-queries.pkl"
    easy_file = folder / ("train-answers.pkl" if split == "train" else f"{split}-easy-answers.pkl")
    hard_file = folder / f"{split}-hard-answers.pkl"
    by_structure = _read_dictionary(file)
    if not by_structure:
        raise TripleError("it holds no queries.", file)
    easy = _read_dictionary(easy_file) if split == "train" or easy_file.is_file() else None
    hard = _read_dictionary(hard_file) if split != "train" else None
    blocks: dict[str, QueryBlock] = {}
    for key, unordered in by_structure.items():
        structure = _read_structure(key, file)
        name = name_of(structure)
        short = shortened(name)
        if name in blocks:
            raise TripleError(f"it holds {short} twice, once under the key {shown(key)}.", file)
        queries, symbols = _read_symbols(key, unordered, short, graph, file)
        if easy is None:
            smaller = graph.adjacency(SET_EDGES[split][0])
            easy_answers = answers_of_structure(smaller, structure, symbols)
        else:
            easy_answers = _read_answers(easy, queries, short, graph.num_entities, easy_file)
        hard_answers = Ragged.from_rows([()] * len(queries))
        if hard is not None:
            hard_answers = _read_answers(hard, queries, short, graph.num_entities, hard_file)
        blocks[name] = QueryBlock(structure, symbols, easy_answers, hard_answers)
    kind = "query2box" if easy is None else "betae"  # of two releases
    origin = {"source": f"release, {folder.name}", "kind": kind}
    if (folder / MANIFEST).is_file():  # pickles that betae wrote
        origin = {"source": "sampled", **read_manifest(folder, KIND).get("origin", {})}
    return QuerySet(split, blocks, graph.fingerprint, origin)


# ---- checked content of pickles -----------------------------------------------------------------


def _read_dictionary(file: Path) -> dict[Any, Any]:
    content = read_pickle(file)
    if not isinstance(content, dict):
        raise TripleError(f"a dictionary is expected, found {type(content).__name__}.", file)
    return content


def _read_structure(key: Any, file: Path) -> Query:
    try:
        letters: list[Any] = []
        _collect_leaves(key, key, letters)
        if not all(letter in ("e", "r", "u", "n") for letter in letters):
            raise InvalidArgument("The letters of a structure are e, r, u and n.")
        return from_tuple(key)
    except (BetaeError, RecursionError) as error:
        message = f"the key {shown(key)} is not the structure of a query, such as ('e', ('r',))."
        raise TripleError(message, file) from error


def _read_symbols(
    key: Any, unordered: Any, name: str, graph: KnowledgeGraph, file: Path
) -> tuple[list[Any], Ids]:
    """Return the queries of one structure, sorted, and their symbols (n, num_symbols)."""
    if not isinstance(unordered, set):
        kind = type(unordered).__name__
        raise TripleError(f"{name}: a set of queries is expected, found {kind}.", file)
    queries, leaves, letters = list(unordered), list[Any](), list[str]()
    for query in queries:
        if not _collect_leaves(key, query, leaves):
            raise TripleError(
                f"{name}: the query {shown(query)} does not have the structure {shown(key)} of its "
                "key.",
                file,
            )
    _collect_leaves(key, key, letters)
    bounds = {  # of the integers for each letter
        "e": ("an entity", 0, graph.num_entities - 1),
        "r": ("a relation", 0, graph.num_relations - 1),
        "u": ("a union", -1, -1),
        "n": ("a complement", -2, -2),
    }
    kinds, lowest, highest = zip(*(bounds[letter] for letter in letters), strict=True)
    numbers = _to_integers(leaves).reshape(len(queries), len(letters))
    outside = np.argwhere((numbers < np.array(lowest)) | (numbers > np.array(highest)))
    if len(outside):
        row, column = outside[0].tolist()
        value = shown(leaves[row * len(letters) + column])
        raise TripleError(
            f"{name}: the query {shown(queries[row])} has {value} for {kinds[column]}: a whole "
            f"number from {lowest[column]} to {highest[column]} is expected. {OTHER_GRAPH}",
            file,
        )
    order = np.lexsort(numbers.T[::-1])
    is_symbol = [letter in "er" for letter in letters]
    symbols = np.ascontiguousarray(numbers[order][:, is_symbol], dtype=np.int32)
    return [queries[row] for row in order.tolist()], symbols


def _read_answers(
    stored: dict[Any, Any], queries: list[Any], name: str, num_entities: int, file: Path
) -> Ragged:
    """Return the stored answers of the queries, each row ascending."""
    rows: list[Any] = [stored.get(query) for query in queries]
    for query, row in zip(queries, rows, strict=True):
        if not isinstance(row, set):
            found = "none" if row is None else type(row).__name__
            message = f"a set of answers to the query {shown(query)} is expected, found {found}."
            raise TripleError(f"{name}: {message}", file)
    leaves = list(chain.from_iterable(rows))
    numbers = _to_integers(leaves)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    owners = np.repeat(np.arange(len(rows)), lengths)
    outside = np.flatnonzero((numbers < 0) | (numbers >= num_entities))
    if len(outside):
        query, value = queries[owners[outside[0]]], leaves[outside[0]]
        raise TripleError(
            f"{name}: the query {shown(query)} has the answer {shown(value)}: a whole number from "
            f"0 to {num_entities - 1} is expected. {OTHER_GRAPH}",
            file,
        )
    numbers = np.sort(owners * num_entities + numbers) - owners * num_entities
    return Ragged.from_lengths(lengths, numbers.astype(np.int32))


def _collect_leaves(shape: Any, nested: Any, leaves: list[Any]) -> bool:
    """Append the leaves of nested tuples; tell whether they are nested like `shape`."""
    if not isinstance(shape, tuple):
        leaves.append(nested)
        return not isinstance(nested, tuple)
    if not isinstance(nested, tuple) or len(nested) != len(shape):
        return False
    for inner_shape, inner in zip(shape, nested, strict=True):
        if not _collect_leaves(inner_shape, inner, leaves):
            return False
    return True


def _to_integers(leaves: list[Any]) -> NDArray[np.int64]:
    """Return the leaves (n,) as integers: NOT_AN_ID for other types, clipped to 62 bits."""
    if not set(map(type, leaves)) <= {int}:  # bool is not an id
        leaves = [leaf if type(leaf) is int else NOT_AN_ID for leaf in leaves]
    try:
        return np.array(leaves, dtype=np.int64)
    except OverflowError:
        return np.array([max(min(leaf, 2**62), NOT_AN_ID) for leaf in leaves], dtype=np.int64)


# ---- opening and writing ------------------------------------------------------------------------


def open_queries(graph: KnowledgeGraph, folder: Path | str, split: str = "test") -> QuerySet:
    """Open a query set, in betae's format or as pickles of the release for `split`."""
    folder = Path(folder)
    check_choice("split", split, SET_EDGES)
    if (folder / f"{split}-queries.pkl").is_file():
        return read_release_queries(graph, folder, split)
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} is not a query set: no {MANIFEST}, no {split}-queries.pkl.")
    queries = QuerySet.open(folder)
    queries.check_graph(graph)
    return queries


def write_release_queries(queries: QuerySet, folder: Path | str, overwrite: bool = False) -> None:
    """Write a query set as pickles in the layout of the release."""
    by_structure: dict[Any, set[Any]] = {}
    easy: dict[Any, set[int]] = {}
    hard: dict[Any, set[int]] = {}
    for block in queries.blocks.values():
        for row in range(len(block)):
            query = block.query(row)
            key = to_tuple(query)
            by_structure.setdefault(to_tuple(structure_of(query)[0]), set()).add(key)
            easy[key], hard[key] = set(block.easy[row].tolist()), set(block.hard[row].tolist())
    split = queries.split
    files: dict[str, Any] = {f"{split}-queries.pkl": by_structure}
    if split == "train":
        files["train-answers.pkl"] = easy
    else:
        files |= {f"{split}-easy-answers.pkl": easy, f"{split}-hard-answers.pkl": hard}
    with writing_folder(Path(folder), overwrite) as partial:
        for name, content in files.items():
            with (partial / name).open("wb") as file:
                pickle.dump(content, file)
        write_manifest(partial, KIND, {"origin": queries.origin})
