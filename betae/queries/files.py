"""Query sets: queries by structure with their easy and hard answers, in memory and on disk.

On disk a set is a folder: `queries.parquet` with the columns structure, symbols, easy, hard, and a
manifest with the structures as logic text, the graph's fingerprint and how the set was made. The
release's pickles can be read and written.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.datasets.release import read_pickle
from betae.edges import Ids, View
from betae.errors import InvalidArgument
from betae.graph import KnowledgeGraph
from betae.queries.ast import Entity, Query, nodes
from betae.queries.structures import (
    fill,
    from_tuple,
    is_open,
    name_of,
    num_symbols,
    open_columns,
    structure_of,
    to_tuple,
)
from betae.ragged import Ragged
from betae.storage import check_parts, read_manifest, write_manifest, writing_folder
from betae.symbolic import answers_of_structure

FORMAT_VERSION = 1
QUERIES = "queries.parquet"

# The split of a query set: the graph that gives the easy answers, and the one that gives all.
# Training queries have easy answers only.
SET_VIEWS: dict[str, tuple[View, View]] = {
    "train": ("train", "train"),
    "valid": ("train", "train+valid"),
    "test": ("train+valid", "all"),
}


@dataclass(frozen=True)
class QueryBlock:
    """Queries of one structure: row i of `symbols` fills it; `easy` and `hard` answer it.

    Easy answers are those on the smaller graph; hard ones are answers on the larger graph that
    are not easy. With a negation, some easy answers may not be answers on the larger graph.
    """

    structure: Query
    symbols: Ids  # (num_queries, num_symbols)
    easy: Ragged
    hard: Ragged

    def __len__(self) -> int:
        return len(self.symbols)

    def query(self, row: int) -> Query:
        """Return one query as a tree of ids."""
        return fill(self.structure, self.symbols[row].tolist())

    def take(self, rows: NDArray[np.int64]) -> QueryBlock:
        """Return some of the queries."""
        return QueryBlock(
            self.structure, self.symbols[rows], self.easy.take(rows), self.hard.take(rows)
        )


@dataclass(frozen=True)
class QuerySet:
    """Blocks of queries by structure name, made on one graph."""

    split: str  # train, valid or test
    blocks: dict[str, QueryBlock]
    graph_fingerprint: str
    origin: dict[str, Any] = field(default_factory=dict)  # how it was made: seed, rules, source

    def __len__(self) -> int:
        return sum(map(len, self.blocks.values()))

    def within(self, num_entities: int, num_relations: int) -> QuerySet:
        """Return the queries whose names and answers have ids below these numbers."""
        blocks = {}
        for name, block in self.blocks.items():
            opened, columns = open_columns(block.structure)
            limits = [
                num_entities if isinstance(node, Entity) else num_relations
                for node in nodes(opened)
                if is_open(node)
            ]
            is_within = np.ones(len(block), dtype=bool)
            for (is_fixed, name_or_column), limit in zip(columns, limits, strict=True):
                ids = name_or_column if is_fixed else block.symbols[:, name_or_column]
                is_within &= ids < limit
            for answers in (block.easy, block.hard):
                owners = np.repeat(np.arange(len(block)), answers.lengths)
                is_within[owners[answers.values >= num_entities]] = False
            blocks[name] = block.take(np.flatnonzero(is_within))
        return replace(self, blocks=blocks)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(block):,} {name}" for name, block in self.blocks.items())
        return f"QuerySet({self.split}: {counts})"

    def __iter__(self) -> Iterator[tuple[Query, Ids, Ids]]:
        """Yield every query with its easy and hard answers."""
        for block in self.blocks.values():
            for row in range(len(block)):
                yield block.query(row), block.easy[row], block.hard[row]

    def check_graph(self, graph: KnowledgeGraph) -> None:
        """Raise if the set was made on another graph: its ids would mean something else."""
        if graph.fingerprint != self.graph_fingerprint:
            raise InvalidArgument(
                "The query set was made on another graph "
                f"({self.graph_fingerprint[:12]}…, this one is {graph.fingerprint[:12]}…)."
            )

    def save(self, folder: Path | str, overwrite: bool = False) -> None:
        """Write the set to `folder`, whole or not at all."""
        facts = {
            "split": self.split,
            "graph": self.graph_fingerprint,
            "structures": {name: str(block.structure) for name, block in self.blocks.items()},
            "counts": {name: len(block) for name, block in self.blocks.items()},
            "origin": self.origin,
        }
        frames = [
            pl.DataFrame(
                {
                    "structure": pl.Series([name], dtype=pl.String).new_from_index(0, len(block)),
                    "symbols": _rows_of_matrix(block.symbols),
                    "easy": _rows(block.easy),
                    "hard": _rows(block.hard),
                }
            )
            for name, block in self.blocks.items()
        ]
        with writing_folder(Path(folder), overwrite) as partial:
            buffer = io.BytesIO()  # polars' own errors do not tell a full disk from any other
            pl.concat(frames).write_parquet(buffer)
            (partial / QUERIES).write_bytes(buffer.getbuffer())
            write_manifest(partial, "query set", FORMAT_VERSION, facts)

    @classmethod
    def open(cls, folder: Path | str) -> QuerySet:
        """Read a set from `folder`."""
        from betae.queries.syntax import parse

        folder = Path(folder)
        manifest = read_manifest(folder, "query set", FORMAT_VERSION)
        check_parts(folder, manifest)
        frame = pl.read_parquet(folder / QUERIES)
        blocks = {}
        for name, text in manifest["structures"].items():
            structure, rows = parse(text), frame.filter(pl.col("structure") == name)
            symbols = _ragged(rows["symbols"])
            blocks[name] = QueryBlock(
                structure,
                symbols.values.reshape(len(rows), num_symbols(structure)),
                _ragged(rows["easy"]),
                _ragged(rows["hard"]),
            )
        return cls(manifest["split"], blocks, manifest["graph"], manifest["origin"])


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
                graph.adjacency(SET_VIEWS[split][0]), structure, symbols
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
    check_choice("split", split, SET_VIEWS)
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


# ---- ragged tables as polars lists ------------------------------------------------------------


def _rows(table: Ragged) -> pl.Series:
    number = np.arange(len(table), dtype=np.uint32)
    flat = pl.DataFrame({"row": np.repeat(number, table.lengths), "ids": table.values})
    lists = flat.group_by("row", maintain_order=True).agg("ids")
    rows = pl.DataFrame({"row": number}).join(lists, on="row", how="left", maintain_order="left")
    return rows["ids"].fill_null([])


def _rows_of_matrix(matrix: Ids) -> pl.Series:
    return _rows(Ragged.from_lengths(np.full(len(matrix), matrix.shape[1]), matrix.ravel()))


def _ragged(lists: pl.Series) -> Ragged:
    lengths = lists.list.len().to_numpy().astype(np.int64)
    values = lists.explode().drop_nulls().to_numpy()  # an empty list explodes to a null
    return Ragged.from_lengths(lengths, values.astype(np.int32))
