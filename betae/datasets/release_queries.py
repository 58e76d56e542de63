"""The release's queries: pickles of nested tuples, read and written."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from betae.checks import check_choice
from betae.datasets.release import read_pickle
from betae.errors import InvalidArgument
from betae.exact.answers import answers_of_structure
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.queries.structures import from_tuple, name_of, structure_of, to_tuple
from betae.querysets.query_set import SET_EDGES, QueryBlock, QuerySet
from betae.storage import write_manifest, writing_folder

FORMAT_VERSION = 1


def read_release_queries(
    graph: KnowledgeGraph, folder: Path | str, split: str = "test"
) -> QuerySet:
    """Read `{split}-queries.pkl` and its answers from a folder in the release's layout.

    Easy answers that are not stored are computed from the graph (Query2Box's release has none).
    """
    folder = Path(folder)
    by_structure = read_pickle(folder / f"{split}-queries.pkl")
    hard = read_pickle(folder / f"{split}-hard-answers.pkl") if split != "train" else {}
    easy_name = "train-answers.pkl" if split == "train" else f"{split}-easy-answers.pkl"
    has_easy = split == "train" or (folder / easy_name).is_file()
    easy = read_pickle(folder / easy_name) if has_easy else None
    blocks = {}
    for nested, queries in by_structure.items():
        structure, queries = from_tuple(nested), sorted(queries)
        symbols = np.array([structure_of(from_tuple(query))[1] for query in queries], np.int32)
        if easy is None:
            easy_answers = answers_of_structure(
                graph.adjacency(SET_EDGES[split][0]), structure, symbols
            )
        else:
            easy_answers = Ragged.from_rows([sorted(easy[query]) for query in queries])
        blocks[name_of(structure)] = QueryBlock(
            structure,
            symbols,
            easy_answers,
            Ragged.from_rows([sorted(hard.get(query, ())) for query in queries]),
        )
    ids = np.concatenate([t.values for b in blocks.values() for t in (b.easy, b.hard)])
    if len(ids) and not 0 <= ids.min() <= ids.max() < graph.num_entities:
        raise InvalidArgument(
            f"{folder} has an answer with the id {ids.max()}, but the graph has "
            f"{graph.num_entities:,} entities: they belong to another graph."
        )
    origin = {
        "source": f"release, {folder.name}",
        "kind": "query2box" if easy is None else "betae",  # whose release
    }
    return QuerySet(split, blocks, graph.fingerprint, origin)


def open_queries(graph: KnowledgeGraph, folder: Path | str, split: str = "test") -> QuerySet:
    """Open a query set, in its own format or as the release's pickles for `split`."""
    folder = Path(folder)
    check_choice("split", split, SET_EDGES)
    if (folder / f"{split}-queries.pkl").is_file():
        return read_release_queries(graph, folder, split)
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
        write_manifest(partial, "release queries", FORMAT_VERSION, {})
