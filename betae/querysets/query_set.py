"""Query sets: queries by structure with their easy and hard answers, in memory and on disk.

On disk a set is a folder: `queries.parquet` with the columns structure, symbols, easy, hard, and a
manifest with the structures as logic text, the graph's fingerprint and how the set was made.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.errors import BetaeError, InvalidArgument, StoreError
from betae.graph.edges import Edges, Ids, Ragged
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.structures import columns_of, fill, limits_of, num_symbols
from betae.storage import check_parts, read_manifest, write_manifest, writing_folder

if TYPE_CHECKING:
    import polars as pl

QUERIES_FILE = "queries.parquet"

# split of a query set -> edges that give the easy answers, edges that give all answers.
# Training queries have easy answers only.
SET_EDGES: dict[str, tuple[Edges, Edges]] = {
    "train": ("train", "train"),
    "valid": ("train", "train+valid"),
    "test": ("train+valid", "all"),
}


@dataclass(frozen=True)
class QueryBlock:
    """Queries of one structure: row i of `symbols` fills it; `easy` and `hard` answer it.

    Easy answers are those on the smaller graph; hard ones are answers on the larger graph that
    are not easy. With a negation, some easy answers may not be answers on the larger graph. In a
    set sampled by missing edges, hard answers that need too few of them are among the easy ones.
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

    @classmethod
    def concatenate(cls, blocks: Sequence[QueryBlock]) -> QueryBlock:
        """Concatenate blocks of one structure."""
        return cls(
            blocks[0].structure,
            np.concatenate([block.symbols for block in blocks]),
            Ragged.concatenate([block.easy for block in blocks]),
            Ragged.concatenate([block.hard for block in blocks]),
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
        """Return the queries whose symbols and answers have ids below these counts."""
        blocks = {
            name: block.take(np.flatnonzero(_is_within(block, num_entities, num_relations)))
            for name, block in self.blocks.items()
        }
        return replace(self, blocks=blocks)

    def with_hard_answers(self) -> QuerySet:
        """Return the queries that have a hard answer to rank, without blocks that have none."""
        blocks = {
            name: block.take(np.flatnonzero(block.hard.lengths))
            for name, block in self.blocks.items()
        }
        return replace(self, blocks={name: block for name, block in blocks.items() if len(block)})

    def rankable(self, graph: KnowledgeGraph) -> QuerySet:
        """Return the queries that have a hard answer; raise if none has, or on another graph."""
        self.check_graph(graph)
        if self.split == "train":
            raise InvalidArgument("Ranking needs a query set for valid or test, not for train.")
        queries = self.with_hard_answers()
        if not queries.blocks:
            raise InvalidArgument(
                "The query set has no query with a hard answer to rank: sample another."
            )
        return queries

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(block):,} {name}" for name, block in self.blocks.items())
        return f"QuerySet({self.split}: {counts})"

    def __iter__(self) -> Iterator[tuple[Query, Ids, Ids]]:
        """Yield every query with its easy and hard answers."""
        for block in self.blocks.values():
            for row in range(len(block)):
                yield block.query(row), block.easy[row], block.hard[row]

    def check_graph(self, graph: KnowledgeGraph) -> None:
        """Raise if the set was made on another graph, or has ids out of range.

        A set of a graph also fits a run that holds out some of its edges.
        """
        if self.graph_fingerprint not in (graph.fingerprint, graph.held_out_of):
            raise InvalidArgument(
                "The query set was made on another graph "
                f"({self.graph_fingerprint[:12]}…, this one is {graph.fingerprint[:12]}…)."
            )
        for name, block in self.blocks.items():
            if not _is_within(block, graph.num_entities, graph.num_relations).all():
                raise InvalidArgument(
                    f"The queries {name} of the set have ids that the graph does not have: the set "
                    "is damaged. Make it again."
                )

    def save(self, folder: Path | str, overwrite: bool = False) -> None:
        """Write the set to `folder`, whole or not at all."""
        import polars as pl

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
                    "symbols": pl.Series(block.symbols.ravel())
                    .reshape(block.symbols.shape)
                    .arr.to_list(),
                    "easy": _rows(block.easy),
                    "hard": _rows(block.hard),
                }
            )
            for name, block in self.blocks.items()
        ]
        with writing_folder(Path(folder), overwrite) as partial:
            buffer = io.BytesIO()  # polars' own errors do not tell a full disk from any other
            pl.concat(frames).write_parquet(buffer)
            (partial / QUERIES_FILE).write_bytes(buffer.getbuffer())
            write_manifest(partial, "query set", facts)

    @classmethod
    def open(cls, folder: Path | str) -> QuerySet:
        """Read a set from `folder`; `check_graph` then tells whether it belongs to a graph."""
        import polars as pl
        from polars.exceptions import PolarsError

        folder = Path(folder)
        manifest = read_manifest(folder, "query set")
        check_parts(folder, manifest)
        try:
            frame = pl.read_parquet(folder / QUERIES_FILE, glob=False).select(
                pl.col("structure").cast(pl.String),
                pl.col("symbols", "easy", "hard").cast(pl.List(pl.Int32)),
            )
            blocks = {
                name: _read_block(text, frame.filter(pl.col("structure") == name))
                for name, text in manifest["structures"].items()
            }
            if {name: len(block) for name, block in blocks.items()} != manifest["counts"]:
                raise ValueError("the counts in its manifest are wrong")
            check_choice("split", manifest["split"], SET_EDGES)
            return cls(manifest["split"], blocks, manifest["graph"], manifest["origin"])
        except (KeyError, ValueError, AttributeError, BetaeError, PolarsError) as error:
            reason = str(error).partition("\n")[0]
            raise StoreError(
                f"{folder} is damaged ({reason}). Make the query set again."
            ) from error


def _read_block(text: str, rows: pl.DataFrame) -> QueryBlock:
    from betae.queries.syntax import parse

    structure = parse(text)
    width = num_symbols(structure)
    symbols = _ragged(rows["symbols"])
    if (symbols.lengths != width).any():
        raise ValueError(f"a query of {text} does not have {width} symbols")
    return QueryBlock(
        structure,
        symbols.values.reshape(len(rows), width),
        _ragged(rows["easy"]),
        _ragged(rows["hard"]),
    )


def _is_within(block: QueryBlock, num_entities: int, num_relations: int) -> NDArray[np.bool_]:
    """Mask of the queries whose symbols and answers have ids from 0 to below these counts."""
    columns = columns_of(block.structure)
    limits = limits_of(columns.structure, num_entities, num_relations)
    symbols = columns.expand(block.symbols)
    is_within: NDArray[np.bool_] = np.all((symbols >= 0) & (symbols < limits), axis=1)
    for answers in (block.easy, block.hard):
        outside = np.flatnonzero((answers.values < 0) | (answers.values >= num_entities))
        is_within[np.searchsorted(answers.offsets, outside, side="right") - 1] = False
    return is_within


# ---- ragged tables as polars lists ------------------------------------------------------------


def _rows(table: Ragged) -> pl.Series:
    import polars as pl

    indices = np.arange(len(table), dtype=np.uint32)
    flat = pl.DataFrame({"row": np.repeat(indices, table.lengths), "ids": table.values})
    lists = flat.group_by("row", maintain_order=True).agg("ids")
    rows = pl.DataFrame({"row": indices}).join(lists, on="row", how="left", maintain_order="left")
    return rows["ids"].fill_null([])


def _ragged(lists: pl.Series) -> Ragged:
    lengths = lists.list.len().to_numpy().astype(np.int64)
    values = lists.explode().drop_nulls().to_numpy()  # an empty list explodes to a null
    return Ragged.from_lengths(lengths, values.astype(np.int32))
