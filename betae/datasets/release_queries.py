"""The release's queries: pickles of nested tuples, read and written.

A pickle may hold anything, and the compiled kernels trust the ids they are given: everything that
is read here is checked once, before it is used.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.datasets.pickles import read_pickle, shortened, shown
from betae.errors import BetaeError, InvalidArgument, StoreError, TripleError
from betae.exact.answers import answers_of_structure
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.queries.ast import Query
from betae.queries.structures import from_tuple, name_of, structure_of, to_tuple
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.storage import MANIFEST, read_manifest, write_manifest, writing_folder

FORMAT_VERSION, KIND = 1, "release queries"
NOT_AN_ID = -(2**62)
OTHER_GRAPH = "Do the queries belong to another graph?"


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
        if name in blocks:
            raise TripleError(
                f"it holds {shortened(name)} twice, once under the key {shown(key)}.", file
            )
        told = shortened(name)
        queries, symbols = _read_symbols(key, unordered, told, graph, file)
        if easy is None:
            smaller = graph.adjacency(SET_EDGES[split][0])
            easy_answers = answers_of_structure(smaller, structure, symbols)
        else:
            easy_answers = _read_answers(easy, queries, told, graph.num_entities, easy_file)
        hard_answers = Ragged.from_rows([()] * len(queries))
        if hard is not None:
            hard_answers = _read_answers(hard, queries, told, graph.num_entities, hard_file)
        blocks[name] = QueryBlock(structure, symbols, easy_answers, hard_answers)
    return QuerySet(split, blocks, graph.fingerprint, _origin(folder, has_easy=easy is not None))


def _origin(folder: Path, has_easy: bool) -> dict[str, Any]:
    """Return where the queries of a folder come from: betae's own pickles have a manifest."""
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder, KIND, FORMAT_VERSION)
        return {"source": "sampled", **manifest.get("origin", {})}
    kind = "betae" if has_easy else "query2box"  # whose release
    return {"source": f"release, {folder.name}", "kind": kind}


# ---- checks of what a pickle holds --------------------------------------------------------------


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
    queries, leaves = list(unordered), list[Any]()
    for query in queries:
        if not _collect_leaves(key, query, leaves):
            raise TripleError(
                f"{name}: the query {shown(query)} does not have the structure {shown(key)}, under "
                "which it is filed.",
                file,
            )
    letters: list[str] = []
    _collect_leaves(key, key, letters)
    bounds = {  # of the numbers that stand for a letter
        "e": ("an entity", 0, graph.num_entities - 1),
        "r": ("a relation", 0, graph.num_relations - 1),
        "u": ("a union", -1, -1),
        "n": ("a complement", -2, -2),
    }
    kinds, lowest, highest = zip(*(bounds[letter] for letter in letters), strict=True)
    numbers = _to_numbers(leaves).reshape(len(queries), len(letters))
    is_outside = (numbers < np.array(lowest)) | (numbers > np.array(highest))
    if is_outside.any():
        row, column = np.argwhere(is_outside)[0].tolist()
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
    rows = []
    for query in queries:
        row = stored.get(query)
        if not isinstance(row, set):
            found = "none" if row is None else type(row).__name__
            message = f"a set of answers to the query {shown(query)} is expected, found {found}."
            raise TripleError(f"{name}: {message}", file)
        rows.append(row)
    leaves = list(chain.from_iterable(rows))
    numbers = _to_numbers(leaves)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    owners = np.repeat(np.arange(len(rows)), lengths)
    is_outside = (numbers < 0) | (numbers >= num_entities)
    if is_outside.any():
        place = int(is_outside.argmax())
        raise TripleError(
            f"{name}: the query {shown(queries[owners[place]])} has the answer "
            f"{shown(leaves[place])}: a whole number from 0 to {num_entities - 1} is expected. "
            + OTHER_GRAPH,
            file,
        )
    numbers = np.sort(owners * num_entities + numbers) - owners * num_entities
    return Ragged.from_lengths(lengths, numbers.astype(np.int32))


def _collect_leaves(shape: Any, nested: Any, leaves: list[Any]) -> bool:
    """Append what is in nested tuples, from the left; tell whether they are nested like `shape`."""
    if not isinstance(shape, tuple):
        leaves.append(nested)
        return not isinstance(nested, tuple)
    if not isinstance(nested, tuple) or len(nested) != len(shape):
        return False
    for inner_shape, inner in zip(shape, nested, strict=True):
        if not _collect_leaves(inner_shape, inner, leaves):
            return False
    return True


def _to_numbers(leaves: list[Any]) -> NDArray[np.int64]:
    """Return the leaves (n,) as numbers: NOT_AN_ID if not whole, clipped if beyond 62 bits."""
    if not set(map(type, leaves)) <= {int}:  # no bool, though it is an int
        leaves = [leaf if type(leaf) is int else NOT_AN_ID for leaf in leaves]
    try:
        return np.array(leaves, dtype=np.int64)
    except OverflowError:
        return np.array([max(min(leaf, 2**62), NOT_AN_ID) for leaf in leaves], dtype=np.int64)


# ---- opening and writing ------------------------------------------------------------------------


def open_queries(graph: KnowledgeGraph, folder: Path | str, split: str = "test") -> QuerySet:
    """Open a query set, in its own format or as the release's pickles for `split`."""
    folder = Path(folder)
    check_choice("split", split, SET_EDGES)
    if (folder / f"{split}-queries.pkl").is_file():
        return read_release_queries(graph, folder, split)
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} is not a query set: it has no {split}-queries.pkl either.")
    queries = QuerySet.open(folder)
    queries.check_graph(graph)
    return queries


def write_release_queries(queries: QuerySet, folder: Path | str, overwrite: bool = False) -> None:
    """Write a set as the release's pickles."""
    by_structure: dict[Any, set[Any]] = {}
    easy: dict[Any, set[int]] = {}
    hard: dict[Any, set[int]] = {}
    for block in queries.blocks.values():
        keys = [to_tuple(block.query(row)) for row in range(len(block))]
        for row, key in enumerate(keys):
            structure, _ = structure_of(block.query(row))
            by_structure.setdefault(to_tuple(structure), set()).add(key)
        easy |= {key: set(block.easy[row].tolist()) for row, key in enumerate(keys)}
        hard |= {key: set(block.hard[row].tolist()) for row, key in enumerate(keys)}
    split = queries.split
    files: Mapping[str, Any] = {f"{split}-queries.pkl": by_structure}
    if split == "train":
        files = {**files, "train-answers.pkl": easy}
    else:
        files = {**files, f"{split}-easy-answers.pkl": easy, f"{split}-hard-answers.pkl": hard}
    with writing_folder(Path(folder), overwrite) as partial:
        for name, content in files.items():
            with (partial / name).open("wb") as file:
                pickle.dump(content, file)
        write_manifest(partial, KIND, FORMAT_VERSION, {"origin": queries.origin})
