"""Files of triples -> a stored graph, in bounded memory.

Files become Parquet files of strings, unless they are some already. DuckDB, which spills to disk,
does the steps whose memory grows with the graph: names to ids, duplicates, order. Its results come
back sorted and go to the store in batches. The store is the same, to the bit, as the one that
`KnowledgeGraph.from_triples(...).save(...)` writes.
"""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from betae.checks import needing
from betae.errors import InvalidArgument, TripleError
from betae.graph.databases import is_database, shown
from betae.graph.edges import EDGES, SPLITS, Edges, Packing, Split
from betae.graph.graph import fingerprint_of
from betae.graph.literals import LABELS, NAMED, ORDER, ROWS_PER_PART, typed, write_part
from betae.graph.mentions import Found, note_nodes
from betae.graph.names import ALTERNATIVE, TABLES
from betae.graph.source import (
    COLUMNS,
    EMPTY,
    STANDARD_INPUT,
    Content,
    Notify,
    Reading,
    ReadOptions,
    ReadReport,
    Source,
    TripleSource,
    explaining_gzip,
    find_files,
    local_source,
)
from betae.graph.tables import read_nodes, scanning_parquet
from betae.graph.triples import (
    find_triples,
    num_held_out,
    read_file,
    read_parquet,
    read_tables,
    sources_and_fractions,
    tables_of,
)
from betae.parallel import num_threads
from betae.storage import ArrayWriter, read_arrays, write_manifest, writing_folder

KEYS_PER_BATCH = 2**21
NAMES_PER_BATCH = 2**18
Columns = tuple[str, ...]
# Parquet files of strings by split, columns of head, relation and tail, and all columns.
Staged = dict[tuple[Split, Columns, Columns], list[Source]]

# The table `edge` has the distinct triples, packed. Bits 1, 2 and 4 of `splits` say which splits a
# triple was read in; it belongs to the first of them.
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
    **options: Unpack[ReadOptions],
) -> ReadReport:
    """Write a graph to the folder `out` from files of triples, in bounded memory.

    A source is a file, a folder of files, a pattern, or an address that fsspec reads
    (`s3://bucket/triples/*.parquet`). What does not fit in `memory` goes to temporary
    files beside `out`. The other arguments are those of `betae.read`, and the graph is the same.
    """
    reading, content = Reading(**options), Content()
    if reading.labels is not None:
        raise InvalidArgument("In bounded memory, a file of labels cannot be read: use `nodes`.")
    everything, fractions = sources_and_fractions(sources, reading)
    report, notify = content.report, reading.notify
    with writing_folder(Path(out), overwrite) as store:
        work = store / "work"
        work.mkdir()
        with Engine(work, memory) as engine:
            literals = _stage_nodes(content, reading, work)
            staged = _stage_files(everything, content, literals, reading, work)
            engine.run(f"CREATE VIEW literal AS SELECT * FROM {table_of_parquet(literals.files)}")
            packing = _number_names(engine, staged, store, notify)
            notify("Replacing names by ids, dropping duplicates")
            _find_edges(engine, packing, report)
            if any(fractions):
                notify("Splitting at random")
                _hold_out(engine, packing, fractions, reading.seed, work)
            edges = _write_splits(engine, packing, store, notify)
            report.unseen_in_train = _write_adjacencies(engine, packing, edges, store, notify)
            if literals.num_rows:
                notify("Sorting and writing the literals")
                _write_literals(engine, store, work)
                _note_nodes(engine, everything, reading, report)
            names = {kind: engine.size(kind) for kind in ("entities", "relations")}
        shutil.rmtree(work)
        notify("Computing checksums")
        arrays = read_arrays(store, {"parts": [path.name for path in store.iterdir()]})
        facts = {
            **names,
            "edges": edges,
            "fingerprint": fingerprint_of(arrays),
            "ancestors": (),
            "prefixes": content.prefixes,
        }
        write_manifest(store, "graph", facts)
    return report


# ---- names to ids, duplicates -------------------------------------------------------------------


def _number_names(engine: Engine, staged: Staged, store: Path, notify: Notify) -> Packing:
    """Create the tables of names, whose row ids are the ids, and write them to the store."""
    tables = []
    for (split, columns, _), files in staged.items():
        pairs = zip(columns, COLUMNS, strict=True)
        names = ", ".join(f"{quoted(theirs)} AS {ours}" for theirs, ours in pairs)
        table = table_of_parquet([file.local_path for file in files])
        tables.append(f"SELECT {names}, {2 ** SPLITS.index(split)} AS splits FROM {table}")
    tables = tables or ["SELECT '' AS head, '' AS relation, '' AS tail, 0 AS splits WHERE false"]
    engine.run(f"CREATE VIEW triple AS {' UNION ALL '.join(tables)}")
    notify("Numbering entities and relations")
    try:
        engine.run(
            "CREATE TABLE relations AS SELECT DISTINCT relation AS name FROM triple ORDER BY name"
        )
        engine.run(  # what has literals is an entity too, unless it is a relation only
            "CREATE TABLE entities AS SELECT name FROM (SELECT head AS name FROM triple UNION "
            "SELECT tail FROM triple UNION (SELECT subject FROM literal ANTI JOIN relations ON "
            "subject = relations.name)) ORDER BY name"
        )
    except EngineError as error:
        raise _find_error(staged) or error from error
    for kind in ("entities", "relations"):
        if engine.value(f"SELECT count(*) FROM {kind} WHERE name IS NULL OR name = ''"):
            raise _find_error(staged) or AssertionError("an empty name is in no file")
        notify(f"Writing the names of {kind}")
        _write_names(engine, kind, "name", kind, store)
    return Packing.of(engine.size("entities"), engine.size("relations"))


def _find_edges(engine: Engine, packing: Packing, report: ReadReport) -> None:
    """Create the table of distinct triples."""
    key = _pack(packing, "head.rowid", "relation.rowid", "tail.rowid")
    engine.run(
        f"CREATE TABLE edge AS SELECT {key} AS key, bit_or(splits)::UTINYINT AS splits FROM triple "
        "JOIN entities AS head ON triple.head = head.name "
        "JOIN relations AS relation ON triple.relation = relation.name "
        "JOIN entities AS tail ON triple.tail = tail.name GROUP BY key"
    )
    report.duplicates = report.read
    for splits, count in engine.run("SELECT splits, count(*) FROM edge GROUP BY splits"):
        report.duplicates -= splits.bit_count() * count
        report.repeated_across_splits += (splits.bit_count() - 1) * count


def _hold_out(
    engine: Engine, packing: Packing, fractions: list[float], seed: int, work: Path
) -> None:
    """Move to valid and test the same training edges as `split_triples`."""
    engine.run(
        f"CREATE TABLE ordered AS SELECT key FROM edge WHERE {IN_SPLIT['train']} ORDER BY key"
    )
    num_edges = engine.size("ordered")
    batches = [
        slice(first, min(first + KEYS_PER_BATCH, num_edges))
        for first in range(0, num_edges, KEYS_PER_BATCH)
    ]
    shuffled = np.memmap(work / "shuffled", dtype=np.int64, mode="w+", shape=num_edges)
    for batch in batches:
        shuffled[batch] = np.arange(batch.start, batch.stop)
    np.random.default_rng(seed).shuffle(np.asarray(shuffled))  # equal to its `permutation`
    files = [work / f"shuffled-{batch.start}.parquet" for batch in batches]
    for file, batch in zip(files, batches, strict=True):
        turns = np.arange(batch.start, batch.stop)
        _write_parquet(pl.DataFrame({"row": shuffled[batch], "turn": turns}), file)
    engine.run(
        f"CREATE TABLE shuffled AS SELECT turn, key FROM {table_of_parquet(files)} AS turns "
        "JOIN ordered ON turns.row = ordered.rowid"
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
    """Yield the keys that a query selects, ascending, in batches."""
    engine.run(f"CREATE TABLE ordered AS SELECT key FROM ({select}) ORDER BY key")
    for batch in engine.batches("key", "ordered", KEYS_PER_BATCH):
        yield batch["key"]
    engine.run("DROP TABLE ordered")


def _write_splits(
    engine: Engine, packing: Packing, store: Path, notify: Notify
) -> dict[Split, int]:
    """Write the edges of each split, and return their counts."""
    lengths: dict[Split, int] = {}
    for split in SPLITS:
        notify(f"Sorting and writing the edges of {split}")
        with ArrayWriter(store, split, np.int32, width=3) as triples:
            for keys in _ordered_keys(engine, f"SELECT key FROM edge WHERE {IN_SPLIT[split]}"):
                triples.write(np.stack(packing.unpack(keys), axis=1))
        lengths[split] = triples.length
    return lengths


def _write_adjacencies(
    engine: Engine, packing: Packing, lengths: dict[Split, int], store: Path, notify: Notify
) -> int:
    """Write the adjacency of each choice of edges; return the number of names unseen in train."""
    num_entities, num_relations = engine.size("entities"), engine.size("relations")
    directed = Packing.of(num_entities, 2 * num_relations)
    head, relation, tail = _unpack(packing)
    as_written = _pack(directed, head, f"(2 * {relation})", tail)
    inverse = _pack(directed, tail, f"(2 * {relation} + 1)", head)
    unseen = 0
    for edges, splits in EDGES.items():
        if edges != "train" and not lengths[splits[-1]]:
            continue
        notify(f"Sorting and writing the adjacency of {edges}")
        chosen = f"FROM edge WHERE {IN_EDGES[edges]}"
        keys = _ordered_keys(
            engine, f"SELECT {as_written} AS key {chosen} UNION ALL SELECT {inverse} {chosen}"
        )
        num_heads = _write_adjacency(keys, directed, num_entities, edges, store)
        if edges == "train":
            seen = engine.value(f"SELECT count(DISTINCT {relation}) {chosen}")
            unseen = num_entities - num_heads + num_relations - seen
    return unseen


# ---- sorted batches to arrays -------------------------------------------------------------------


def _write_names(
    engine: Engine, table: str, column: str, parts: str, store: Path, is_sorted: bool = True
) -> None:
    """Write a column of text as the arrays of `Names`."""
    with (
        ArrayWriter(store, f"{parts}.text", np.uint8) as text,
        ArrayWriter(store, f"{parts}.offsets", np.int64) as offsets,
        ArrayWriter(store, f"{parts}.order", np.int32) as order,
    ):
        offsets.write(np.zeros(1))
        select = f"{column} AS name, strlen({column}) AS length"
        for batch in engine.batches(select, table, NAMES_PER_BATCH):
            offsets.write(text.length + np.cumsum(batch["length"]))
            text.write(np.frombuffer("".join(batch["name"]).encode(), dtype=np.uint8))
            if is_sorted:
                order.write(np.arange(order.length, order.length + len(batch["name"])))
        if not is_sorted:
            engine.run(
                f"CREATE TABLE ordered AS SELECT rowid AS id FROM {table} ORDER BY {column}, rowid"
            )
            for batch in engine.batches("id", "ordered", KEYS_PER_BATCH):
                order.write(batch["id"])
            engine.run("DROP TABLE ordered")


def _write_literals(engine: Engine, store: Path, work: Path) -> None:
    """Write the literals as `Literals` does, and the labels among them."""
    engine.run(
        "CREATE TABLE properties AS SELECT DISTINCT property AS name FROM literal "
        "WHERE property IS NOT NULL ORDER BY name"
    )
    if not engine.size("properties"):
        return
    _write_names(engine, "properties", "name", "properties", store)
    order = ", ".join(map(quoted, ORDER))
    # Tables of names are smaller than literals, whatever DuckDB expects.
    engine.run("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    engine.run(
        "CREATE TABLE stored AS SELECT DISTINCT properties.rowid::INTEGER AS property, "
        "coalesce(entities.rowid, -1 - relations.rowid)::INTEGER AS subject, "
        "text, datatype, language FROM literal "
        "JOIN properties ON property = properties.name "
        "LEFT JOIN entities ON subject = entities.name "
        f"LEFT JOIN relations ON subject = relations.name ORDER BY {order}"
    )
    engine.run("SET disabled_optimizers = ''")
    batch = work / "batch.parquet"
    for number, first in enumerate(range(0, engine.size("stored"), ROWS_PER_PART)):
        bounds = f"rowid >= {first} AND rowid < {first + ROWS_PER_PART}"
        engine.run(  # by a file, since only that brings text to polars without Python objects
            f"COPY (SELECT * FROM stored WHERE {bounds} ORDER BY rowid) TO "
            f"{quoted(str(batch), mark=chr(39))} (FORMAT parquet)"
        )
        write_part(typed(pl.read_parquet(batch)), store, number)
        batch.unlink()
    engine.run("DROP TABLE stored")
    for kind in TABLES:
        _write_labels(engine, kind, store)


def _note_nodes(
    engine: Engine,
    everything: Sequence[tuple[Split, TripleSource]],
    reading: Reading,
    report: ReadReport,
) -> None:
    """Note the entities that several rows of node tables are about, and those that none is."""
    engine.run(
        "CREATE TABLE listed AS SELECT subject AS name, count(*) AS number FROM literal "
        "WHERE property IS NULL GROUP BY subject"
    )
    if not engine.size("listed"):
        return
    engine.run("CREATE TABLE unlisted AS SELECT name FROM entities ANTI JOIN listed USING (name)")
    ends = "SELECT head FROM triple UNION ALL SELECT tail FROM triple"
    several, none = (
        Found(*engine.run(f"SELECT count(*), coalesce(min(name), '') FROM {table}")[0])
        for table in ("listed WHERE number > 1", f"unlisted WHERE name IN ({ends})")
    )
    sources = [source for _, source in everything]
    note_nodes(several, none, tables_of(reading.nodes), sources, reading, report)


def _write_labels(engine: Engine, kind: str, store: Path) -> None:
    """Write the labels of entities or relations as `Labels` does, in the order of `in_order`."""
    table, listed = f"{kind}_labels", ", ".join(quoted(name, "'") for name in LABELS)
    ranks = " ".join(f"WHEN {quoted(name, chr(39))} THEN {rank}" for name, rank in LABELS.items())
    is_plain = "lower(split_part(language, '-', 1)) IN ('', 'en')"
    rank = f"CASE property {ranks} END"
    engine.run(
        f"CREATE TABLE {table} AS SELECT owner, text, language FROM (SELECT owner, text, language, "
        "min({'last': rank = "
        f"{ALTERNATIVE}, 'foreign': NOT is_plain, 'rank': rank, 'place': place}}) AS turn "
        f"FROM (SELECT names.rowid AS owner, text, language, place, {rank} AS rank, "
        f"{is_plain} AS is_plain FROM literal JOIN {TABLES[kind]} AS names ON subject = names.name "
        f"WHERE property IN ({listed})) GROUP BY owner, text, language) ORDER BY owner, turn"
    )
    if not engine.size(table):
        return
    _write_names(engine, table, "text", table, store, is_sorted=False)
    with ArrayWriter(store, f"{table}.owners", np.int32) as owners:
        for batch in engine.batches("owner", table, KEYS_PER_BATCH):
            owners.write(batch["owner"])
    if engine.value(f"SELECT count(*) FROM {table} WHERE language <> ''"):
        _write_names(engine, table, "language", f"{kind}_languages", store, is_sorted=False)


def _write_adjacency(
    batches: Iterable[NDArray[np.int64]],
    packing: Packing,
    num_entities: int,
    edges: Edges,
    store: Path,
) -> int:
    """Write sorted keys as `Adjacency.from_triples` does, and return the number of heads."""
    num_heads = 0
    last_pair = -1  # may continue in the next batch
    with (
        ArrayWriter(store, f"{edges}.head_offsets", np.int64) as head_offsets,
        ArrayWriter(store, f"{edges}.relations", np.int32) as relations,
        ArrayWriter(store, f"{edges}.tail_offsets", np.int64) as tail_offsets,
        ArrayWriter(store, f"{edges}.tails", np.int32) as tails,
    ):
        for keys in batches:
            pairs = keys >> packing.entity_bits
            starts = np.flatnonzero(np.diff(pairs, prepend=last_pair))
            heads, pair_relations, _ = packing.unpack(keys[starts])
            next_head = head_offsets.length  # the first whose offset is not written
            new_heads = np.arange(next_head, heads[-1] + 1 if len(heads) else next_head)
            num_heads += int(np.count_nonzero(np.diff(heads, prepend=next_head - 1)))
            head_offsets.write(relations.length + np.searchsorted(heads, new_heads))
            relations.write(pair_relations)
            tail_offsets.write(tails.length + starts)
            tails.write(packing.unpack(keys)[2])
            last_pair = int(pairs[-1])
        head_offsets.write(np.full(num_entities + 1 - head_offsets.length, relations.length))
        tail_offsets.write(np.array([tails.length]))
    return num_heads


# ---- files to Parquet files of strings ----------------------------------------------------------


class _StagedLiterals:
    """Parquet files of literals by name, numbered in the order in which they were read."""

    def __init__(self, folder: Path):
        self.folder, self.num_rows = folder, 0
        self.files: list[Path] = []
        self.add(pl.DataFrame(schema=NAMED))

    def add(self, literals: pl.DataFrame) -> None:
        """Write literals to a file."""
        self.files.append(self.folder / f"literals-{len(self.files)}.parquet")
        places = literals.with_row_index("place", self.num_rows)
        _write_parquet(places.cast({"place": pl.Int64}), self.files[-1])
        self.num_rows += len(literals)


def _stage_nodes(content: Content, reading: Reading, folder: Path) -> _StagedLiterals:
    """Convert node tables to Parquet files of literals in `folder`."""
    staged = _StagedLiterals(folder)
    for table in tables_of(reading.nodes):
        if not isinstance(table, str | Path):
            raise InvalidArgument("In bounded memory, node tables are read from files.")
        reading.notify(f"Reading {table}")
        copies = folder / "nodes"
        copies.mkdir()
        source = _open_local(str(table), replace(reading, format=None), copies)
        for literals in read_nodes(source, content.report, reading):
            staged.add(literals)
        shutil.rmtree(copies)
    return staged


def _stage_files(
    everything: Sequence[tuple[Split, TripleSource]],
    content: Content,
    literals: _StagedLiterals,
    reading: Reading,
    folder: Path,
) -> Staged:
    """Convert every source, unless it is plain Parquet, to Parquet files in `folder`."""
    files: list[tuple[Split, str]] = []
    for split, each in everything:
        if not isinstance(each, str | Path):
            raise InvalidArgument(
                f"In bounded memory, triples are read from files, not from a {type(each).__name__}."
            )
        if str(each) == STANDARD_INPUT:
            raise InvalidArgument(
                "Standard input cannot be read in bounded memory: write it to a file first."
            )
        files += [(split, file) for file in find_files(each)]
    staged: Staged = defaultdict(list)
    for number, (split, file) in enumerate(files, 1):
        reading.notify(f"Reading {shown(file)} ({number} of {len(files)})")
        copies = folder / f"source-{number}"
        copies.mkdir()
        if is_database(file):
            source, batches = Source(shown(file), ""), read_tables(file, content, reading)
        else:
            source = _open_local(file, reading, copies)
            if columns := _plain_columns(source, content.report, reading):
                staged[split, *columns].append(source)
                continue
            # Blank nodes of different files are different, even with the same name.
            prefix = f"{number - 1}." if len(files) > 1 else ""
            batches = read_file(source, content, reading=reading, blank_node_prefix=prefix)
        for i, frame in enumerate(batches):
            while content.literals:
                literals.add(content.literals.pop(0))
            if not len(frame):
                continue
            content.report.read += len(frame)
            path = folder / f"staged-{number}-{i}.parquet"
            _write_parquet(frame, path)
            staged[split, COLUMNS, COLUMNS].append(Source(source.path, ".parquet", copy=path))
        shutil.rmtree(copies)
    return staged


def _open_local(file: str, reading: Reading, folder: Path) -> Source:
    """Return a local, unzipped source; copies go to `folder`."""
    try:
        source = local_source(file, reading, folder)
    except PermissionError as error:
        raise TripleError(f"it cannot be read ({error.strerror}).", file) from error
    if source.content is not None:
        raise TripleError("a pipe cannot be read in bounded memory: write it to a file.", file)
    if not source.is_zipped:
        return source
    unzipped = folder / "unzipped"
    with explaining_gzip(source.path), source.open() as zipped, unzipped.open("wb") as target:
        shutil.copyfileobj(zipped, target, 2**20)
    return replace(source, copy=unzipped, is_zipped=False)


def _plain_columns(
    source: Source, report: ReadReport, reading: Reading
) -> tuple[Columns, Columns] | None:
    """Return the columns of head, relation and tail, and all, of a file that DuckDB can read."""
    if source.suffix != ".parquet":
        return None
    with scanning_parquet(source) as scanned:
        schema, num_rows = scanned.collect_schema(), scanned.select(pl.len()).collect().item()
    if not num_rows:
        raise TripleError(EMPTY, source.path)
    names = tuple(schema)
    indices = find_triples(names, source.path, report, reading)
    columns = tuple(names[i] for i in indices.values())
    # DuckDB ignores case in names of columns.
    is_unique = len({name.lower() for name in names}) == len(names)
    has_others = len(columns) != len(COLUMNS) or not is_unique
    if has_others or any(schema[column] != pl.String for column in columns):
        return None
    report.read += num_rows
    return columns, names


def _write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a small frame; a full disk is an OSError."""
    buffer = io.BytesIO()  # polars' errors do not tell a full disk from any other
    frame.write_parquet(buffer, compression="lz4")
    path.write_bytes(buffer.getbuffer())


def _find_error(staged: Staged) -> TripleError | None:
    """Return the error of the first file that has an empty name or cannot be read."""
    for (_, columns, _), files in staged.items():
        reading = Reading(columns=dict(zip(COLUMNS, columns, strict=True)))
        for file in files:
            try:
                for _ in read_parquet(file, ReadReport(), reading):
                    pass
            except TripleError as error:
                return error
    return None


# ---- DuckDB -------------------------------------------------------------------------------------

MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?)B?|B)?", re.IGNORECASE)
LEAST_MEMORY = "512MB"
OWN_MEMORY = 150 * 10**6  # of Python, polars and numpy
SHARE = 0.75  # of the rest is for DuckDB; it does not count all, and batches take some
MEMORY_OF_A_THREAD = 128 * 2**20
DUCKDB_INTERRUPTED = "Query interrupted"  # by Ctrl-C, as a RuntimeError
NO_SPACE = ("No space left", "File too large", "quota", "max_temp_directory_size")


def parse_memory(text: str) -> int:
    """Read `4GB`, `512 MiB` or a number of bytes."""
    found = MEMORY.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(f"The memory is {text!r}; write it as 4GB, 500MB or 2GiB.")
    number, unit, is_binary = found.groups()
    power = " KMGT".index((unit or " ").upper())
    num_bytes = int(float(number) * (1024 if is_binary else 1000) ** power)
    if text != LEAST_MEMORY and num_bytes < parse_memory(LEAST_MEMORY):
        raise InvalidArgument(f"The memory is {text}; it must be at least {LEAST_MEMORY}.")
    return num_bytes


class Engine:
    """Tables in DuckDB, a context manager; what does not fit in `memory` spills to `folder`."""

    def __init__(self, folder: Path, memory: str):
        self.memory, limit = memory, int(SHARE * (parse_memory(memory) - OWN_MEMORY))
        # Return freed memory to the system: its addresses count towards limits such as RLIMIT_AS.
        os.environ.setdefault("DUCKDB_JE_MALLOC_CONF", "retain:false")  # read once, on import
        with needing("DuckDB", "ingest"):
            import duckdb
        self._errors = duckdb
        config: dict[str, Any] = {
            "memory_limit": f"{limit}B",
            "temp_directory": str(folder),
            "threads": max(1, min(num_threads(), limit // MEMORY_OF_A_THREAD)),
            "autoinstall_known_extensions": False,
        }
        self._connection = duckdb.connect(":memory:", config=config)
        self._connection.execute("SET enable_progress_bar = false")  # callers show their own

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._connection.close()
        if isinstance(error, MemoryError):  # of polars or numpy
            raise self._too_little() from error

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute a statement, and return its rows."""
        with self._explaining():
            found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
        return found

    def value(self, sql: str) -> int:
        """Return the only value of a query."""
        return int(self.run(sql)[0][0])

    def size(self, table: str) -> int:
        """Return the number of rows of a table."""
        return self.value(f"SELECT count(*) FROM {table}")

    def batches(self, select: str, table: str, size: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield columns of a table in batches of rows, in the order of insertion."""
        for first in range(0, self.size(table), size):
            bounds = f"rowid >= {first} AND rowid < {first + size}"
            with self._explaining():
                found = self._connection.execute(f"SELECT {select} FROM {table} WHERE {bounds}")
                batch = found.fetchnumpy()
            yield batch

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn errors into one for too little memory, one for a full disk, or an EngineError."""
        try:
            yield
        except (self._errors.Error, MemoryError, RuntimeError) as error:
            if str(error) == DUCKDB_INTERRUPTED or isinstance(
                error, self._errors.InterruptException
            ):
                raise KeyboardInterrupt from error
            if any(words in str(error) for words in NO_SPACE):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            if isinstance(error, MemoryError | self._errors.OutOfMemoryException):
                raise self._too_little() from error
            raise EngineError(str(error).partition("\n")[0]) from error

    def _too_little(self) -> InvalidArgument:
        message = f"{self.memory} of memory is too little for these triples. Raise --memory."
        return InvalidArgument(message)


class EngineError(Exception):
    """An error of DuckDB, such as a damaged file."""


def table_of_parquet(files: Sequence[Path]) -> str:
    """Return the SQL table of Parquet files that have the same columns."""
    paths = ", ".join(quoted(glob.escape(str(file.absolute())), "'") for file in files)
    return f"read_parquet([{paths}], hive_partitioning = false)"


def quoted(text: str, mark: str = '"') -> str:
    """Quote text for SQL: with `"` as a name, with `'` as a string."""
    return mark + text.replace(mark, 2 * mark) + mark
