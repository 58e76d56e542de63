"""Files of triples -> a stored graph, in bounded memory.

An engine that spills to disk does what takes memory in proportion to the graph: names to ids,
duplicates, order. What comes back is in order, and goes to the store piece by piece. The store is
the same, to the bit, as the one that `KnowledgeGraph.from_triples(...).save(...)` writes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.graph.columns import COLUMNS, Columns
from betae.graph.edges import EDGES, SPLITS, Edges, Packing, Split
from betae.graph.engine import (
    Engine,
    EngineError,
    parse_memory,
    quoted,
    table_of_parquet,
    too_little,
)
from betae.graph.graph import FORMAT_VERSION
from betae.graph.pieces import fingerprint_of, write_adjacency, write_names, write_split
from betae.graph.source import Reading
from betae.graph.staging import ParquetFile, Staged, find_fault, stage, write_parquet
from betae.graph.triples import FileOrFraction, ReadReport, num_held_out, sources_and_fractions
from betae.storage import write_manifest, writing_folder

KEYS_AT_ONCE = 2**21
NAMES_AT_ONCE = 2**18
Say = Callable[[str], None]

# The table `edge` has the distinct triples, packed, each with the splits it is in: bits 1, 2, 4 of
# `splits`. It counts as in the first of them.
IN_SPLIT: dict[Split, str] = {
    "train": "splits & 1 = 1",
    "valid": "splits & 3 = 2",
    "test": "splits = 4",
}
IN_EDGES: dict[Edges, str] = {
    "train": "splits & 1 = 1",
    "train+valid": "splits & 3 > 0",
    "all": "true",
}


def ingest(
    *sources: Path | str,
    out: Path | str,
    memory: str = "4GB",
    overwrite: bool = False,
    valid: FileOrFraction = 0.0,
    test: FileOrFraction = 0.0,
    seed: int = 0,
    columns: Columns | None = None,
    delimiter: str | None = None,
    comment: str | None = None,
    format: str | None = None,  # as in other libraries
    say: Say = lambda _: None,
) -> ReadReport:
    """Make the folder of a graph from files of triples in bounded memory.

    A source is a file (Parquet, TSV, CSV), a folder of such files, a pattern, or an address that
    fsspec reads (`s3://bucket/triples/*.parquet`). What does not fit in `memory` goes to disk,
    beside `out`, and is removed at the end. The other arguments are those of `read_triples`, and
    the graph is the one that it leads to.
    """
    everything, fractions = sources_and_fractions(sources, valid, test, seed)
    reading, out = Reading(columns, delimiter, comment, format), Path(out)
    parse_memory(memory)
    with writing_folder(out, overwrite) as store:
        try:
            report, facts = _fill(store, memory, everything, reading, fractions, seed, say)
        except MemoryError as error:
            raise too_little(memory) from error
        say("Computing checksums")
        facts |= {"fingerprint": fingerprint_of(store), "ancestors": (), "prefixes": {}}
        write_manifest(store, "graph", FORMAT_VERSION, facts)
    return report


def _fill(
    store: Path,
    memory: str,
    everything: list[tuple[Split, Any]],
    reading: Reading,
    fractions: list[float],
    seed: int,
    say: Say,
) -> tuple[ReadReport, dict[str, Any]]:
    """Write all arrays of the graph; return what happened, and how large it is."""
    work = store / "work"
    work.mkdir()
    with Engine(work, memory) as engine:
        staged = stage(everything, reading, work, say)
        report = staged.report
        packing = _number(engine, staged, store, say)
        _find_edges(engine, staged, packing, say)
        if any(fractions):
            say("Splitting at random")
            _hold_out(engine, packing, fractions, seed, work)
        edges = _write_splits(engine, packing, store, say)
        report.unseen_in_train = _write_adjacencies(engine, packing, edges, store, say)
        names = {kind: engine.size(kind) for kind in ("entities", "relations")}
    shutil.rmtree(work)
    return report, {**names, "edges": edges}


# ---- names to ids, duplicates -------------------------------------------------------------------


def _number(engine: Engine, staged: Staged, store: Path, say: Say) -> Packing:
    """Make the tables of names, whose row numbers are the ids, and write them to the store."""
    tables = [
        f"SELECT {_columns(files)}, {2**number} AS splits "
        f"FROM {table_of_parquet([file.path for file in files])}"
        for number, split in enumerate(SPLITS)
        for files in _alike(staged.files[split])
    ]
    engine.run(f"CREATE VIEW triple AS {' UNION ALL '.join(tables)}")
    say("Numbering entities and relations")
    try:
        engine.run(
            "CREATE TABLE entities AS SELECT name FROM "
            "(SELECT head AS name FROM triple UNION SELECT tail FROM triple) ORDER BY name"
        )
        engine.run(
            "CREATE TABLE relations AS SELECT DISTINCT relation AS name FROM triple ORDER BY name"
        )
    except EngineError as error:
        raise find_fault(staged) or error from error
    for kind in ("entities", "relations"):
        if engine.row(f"SELECT count(*) FROM {kind} WHERE name IS NULL OR name = ''")[0]:
            raise find_fault(staged) or AssertionError("an empty name is in no file")
        say(f"Writing the names of {kind}")
        pieces = engine.pieces("name, strlen(name) AS length", kind, NAMES_AT_ONCE)
        write_names(((piece["name"], piece["length"]) for piece in pieces), kind, store)
    return Packing.of(engine.size("entities"), engine.size("relations"))


def _alike(files: list[ParquetFile]) -> Iterator[list[ParquetFile]]:
    """Yield lists of files with the same columns."""

    def columns(file: ParquetFile) -> tuple[tuple[str, ...], ...]:
        return file.columns, file.all_columns

    for _, alike in groupby(sorted(files, key=columns), key=columns):
        yield list(alike)


def _columns(files: list[ParquetFile]) -> str:
    pairs = zip(files[0].columns, COLUMNS, strict=True)
    return ", ".join(f"{quoted(theirs)} AS {ours}" for theirs, ours in pairs)


def _find_edges(engine: Engine, staged: Staged, packing: Packing, say: Say) -> None:
    """Make the table of distinct triples."""
    say("Replacing names by ids, dropping duplicates")
    key = _pack(packing, "head.rowid", "relation.rowid", "tail.rowid")
    engine.run(
        f"CREATE TABLE edge AS SELECT {key} AS key, bit_or(splits)::UTINYINT AS splits FROM triple "
        "JOIN entities AS head ON triple.head = head.name "
        "JOIN relations AS relation ON triple.relation = relation.name "
        "JOIN entities AS tail ON triple.tail = tail.name GROUP BY key"
    )
    report = staged.report
    report.read = report.duplicates = sum(staged.num_rows.values())
    for splits, count in engine.rows("SELECT splits, count(*) FROM edge GROUP BY splits"):
        report.duplicates -= splits.bit_count() * count
        report.repeated_across_splits += (splits.bit_count() - 1) * count


def _hold_out(
    engine: Engine, packing: Packing, fractions: list[float], seed: int, work: Path
) -> None:
    """Move training edges to valid and test, the same that `split_triples` holds out."""
    import polars as pl

    engine.run(
        f"CREATE TABLE ordered AS SELECT key FROM edge WHERE {IN_SPLIT['train']} ORDER BY key"
    )
    num_edges = engine.size("ordered")
    shuffled = np.memmap(work / "shuffled", dtype=np.int64, mode="w+", shape=num_edges)
    for first in range(0, num_edges, KEYS_AT_ONCE):
        shuffled[first : first + KEYS_AT_ONCE] = np.arange(
            first, min(first + KEYS_AT_ONCE, num_edges)
        )
    np.random.default_rng(seed).shuffle(np.asarray(shuffled))  # as its `permutation` does
    files = []
    for first in range(0, num_edges, KEYS_AT_ONCE):
        piece = np.array(shuffled[first : first + KEYS_AT_ONCE])
        files.append(work / f"shuffled-{first}.parquet")
        frame = pl.DataFrame({"row": piece, "turn": np.arange(first, first + len(piece))})
        write_parquet(frame, files[-1])
    engine.run(
        f"CREATE TABLE shuffled AS SELECT turn, key FROM {table_of_parquet(files)} AS place "
        "JOIN ordered ON place.row = ordered.rowid"
    )
    head, relation, tail = _unpack(packing)
    engine.run(  # the first edge in the shuffled order of every entity and relation stays
        "CREATE TABLE kept AS SELECT DISTINCT turn FROM ("
        f"SELECT min(turn) AS turn FROM (SELECT turn, {head} AS entity FROM shuffled UNION ALL "
        f"SELECT turn, {tail} FROM shuffled) GROUP BY entity UNION ALL "
        f"SELECT min(turn) FROM shuffled GROUP BY {relation})"
    )
    num_free = num_edges - engine.size("kept")
    num_valid, num_test = num_held_out(fractions[0], fractions[1], num_edges, num_free)
    engine.run(
        "CREATE TABLE held_out AS SELECT key FROM shuffled ANTI JOIN kept USING (turn) "
        f"ORDER BY turn LIMIT {num_valid + num_test}"
    )
    engine.run(
        "CREATE TABLE split AS SELECT edge.key, CASE WHEN held_out.rowid IS NULL THEN splits "
        f"WHEN held_out.rowid < {num_valid} THEN 2 ELSE 4 END::UTINYINT AS splits "
        "FROM edge LEFT JOIN held_out USING (key)"
    )
    for table in ("ordered", "shuffled", "kept", "held_out", "edge"):
        engine.run(f"DROP TABLE {table}")
    engine.run("ALTER TABLE split RENAME TO edge")


# ---- packed triples in SQL ----------------------------------------------------------------------


def _pack(packing: Packing, head: str, relation: str, tail: str) -> str:
    """Return `Packing.pack` as SQL."""
    return f"((({head} << {packing.relation_bits}) | {relation}) << {packing.entity_bits}) | {tail}"


def _unpack(packing: Packing) -> tuple[str, str, str]:
    """Return `Packing.unpack` of the column `key` as SQL."""
    entity_mask, relation_mask = 2**packing.entity_bits - 1, 2**packing.relation_bits - 1
    return (
        f"(key >> {packing.entity_bits + packing.relation_bits})",
        f"((key >> {packing.entity_bits}) & {relation_mask})",
        f"(key & {entity_mask})",
    )


# ---- to the store -------------------------------------------------------------------------------


def _ordered_keys(engine: Engine, select: str) -> Iterator[NDArray[np.int64]]:
    """Yield the keys that a query selects, ascending, piece by piece."""
    engine.run(f"CREATE TABLE ordered AS SELECT key FROM ({select}) ORDER BY key")
    for piece in engine.pieces("key", "ordered", KEYS_AT_ONCE):
        yield piece["key"]
    engine.run("DROP TABLE ordered")


def _write_splits(engine: Engine, packing: Packing, store: Path, say: Say) -> dict[Split, int]:
    """Write the edges of each split in order, and return how many there are."""
    lengths: dict[Split, int] = {}
    for split in SPLITS:
        say(f"Sorting and writing the edges of {split}")
        keys = _ordered_keys(engine, f"SELECT key FROM edge WHERE {IN_SPLIT[split]}")
        lengths[split] = write_split(keys, packing, split, store)
    return lengths


def _write_adjacencies(
    engine: Engine, packing: Packing, lengths: dict[Split, int], store: Path, say: Say
) -> int:
    """Write the adjacency of each choice of edges; return how many names are not in train."""
    num_entities, num_relations = engine.size("entities"), engine.size("relations")
    directed = Packing.of(num_entities, 2 * num_relations)
    head, relation, tail = _unpack(packing)
    as_written = _pack(directed, head, f"(2 * {relation})", tail)
    inverse = _pack(directed, tail, f"(2 * {relation} + 1)", head)
    unseen = 0
    for edges, splits in EDGES.items():
        if edges != "train" and not lengths[splits[-1]]:
            continue
        say(f"Sorting and writing the adjacency of {edges}")
        chosen = f"FROM edge WHERE {IN_EDGES[edges]}"
        keys = _ordered_keys(
            engine, f"SELECT {as_written} AS key {chosen} UNION ALL SELECT {inverse} {chosen}"
        )
        num_heads = write_adjacency(keys, directed, num_entities, edges, store)
        if edges == "train":
            seen = engine.row(f"SELECT count(DISTINCT {relation}) {chosen}")[0]
            unseen = num_entities - num_heads + num_relations - seen
    return unseen
