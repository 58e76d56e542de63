"""Read triples from files and tables in memory into names and ids.

Ids follow the sorted order of names, so the same set of triples gives the same graph whatever file,
order or format it came in. TSV (also .txt), CSV and Parquet go through polars, every RDF syntax
through pyoxigraph; all but Parquet may be gzipped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from betae.errors import InvalidArgument, TripleError
from betae.graph.databases import is_database, read_database, read_node_tables, shown
from betae.graph.delimited import (
    ROWS_PER_BATCH,
    SEPARATORS,
    STRINGS,
    Schema,
    layout_of,
    not_found,
    read_delimited,
    relation_of,
)
from betae.graph.edges import SPLITS, Ids, Packing, Split, distinct
from betae.graph.literals import ALT_LABEL, LABELS, NAMED, RDFS_LABEL, STRING
from betae.graph.mentions import Found, note_nodes
from betae.graph.names import Label, in_order
from betae.graph.neo4j import is_neo4j, read_neo4j
from betae.graph.objects import JSON_LINES, is_json_lines, read_objects
from betae.graph.rdf import rdf_format, read_rdf
from betae.graph.source import (
    COLUMNS,
    DEFAULT,
    EMPTY,
    ENDS,
    STANDARD_INPUT,
    Content,
    Reading,
    ReadOptions,
    ReadReport,
    Source,
    TripleSource,
    find_files,
    local_source,
)
from betae.graph.tables import nodes_of_frame, read_nodes, scanning_parquet
from betae.remote import is_address

Codes = list[NDArray[np.uint32]]  # of heads, relations and tails
IN_MEMORY = Path("the triples")  # how messages call tables in memory


@dataclass(frozen=True)
class Triples:
    """Triples as ids, with the names and labels of the ids, and literals by name.

    The literals include the labels.
    """

    entities: list[str]
    relations: list[str]
    splits: dict[Split, Ids]  # each (n, 3): head, relation, tail; distinct and sorted
    labels: dict[str, list[Label]] = field(default_factory=dict)  # by name, the one to show first
    literals: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=NAMED))
    report: ReadReport = field(default_factory=ReadReport)
    prefixes: Mapping[str, str] = field(default_factory=dict)  # of IRIs, as declared in the files
    blank_nodes: frozenset[str] = frozenset()  # local to their file


def read_triples(*sources: TripleSource, **options: Unpack[ReadOptions]) -> Triples:
    """Read triples from files or tables in memory; the arguments are those of `betae.read`."""
    reading, content = Reading(**options), Content()
    everything, fractions = sources_and_fractions(sources, reading)
    for table in tables_of(reading.nodes):
        _read_nodes(table, content, reading)
    codes, subjects, names = _read_sources(everything, content, reading)
    literals, report = pl.concat([pl.DataFrame(schema=NAMED), *content.literals]), content.report

    reading.notify("Numbering entities and relations")
    relations, relation_ids = _sorted_ids(names["relation"], [codes[split][1] for split in SPLITS])
    # What has literals is an entity, with or without edges, unless it is a relation only.
    subjects = subjects[~names["entity"][subjects].is_in(relations).to_numpy()]
    entities, entity_ids = _sorted_ids(
        names["entity"], [subjects, *(codes[split][i] for split in SPLITS for i in (0, 2))]
    )
    _note_nodes(literals, codes, names["entity"], everything, reading, report)
    if reading.labels is not None:
        listed = read_labels(Path(reading.labels), reading.comment)
        unused = {*listed["subject"]} - {*entities, *relations}
        report.labels_unused = len(unused)
        literals = pl.concat([listed, literals])
    packing = Packing.of(len(entities), len(relations))
    keys = {
        split: packing.pack(entity_ids[head], relation_ids[relation], entity_ids[tail])
        for split, (head, relation, tail) in codes.items()
    }

    reading.notify("Sorting and dropping duplicates")
    _drop_duplicates(keys, report)
    splits = {split: np.stack(packing.unpack(keys[split]), axis=1) for split in SPLITS}
    if any(fractions):
        splits["train"], *held_out = split_triples(splits["train"], *fractions, seed=reading.seed)
        for split, triples in zip(SPLITS[1:], held_out, strict=True):
            splits[split] = triples if len(triples) else splits[split]

    report.unseen_in_train = _num_unseen(splits["train"], len(entities), len(relations))
    return Triples(
        entities,
        relations,
        splits,
        labels_of(literals),
        literals,
        report,
        content.prefixes,
        frozenset(content.blank_nodes),
    )


def _note_nodes(
    literals: pl.DataFrame,
    codes: dict[Split, Codes],
    names: pl.Series,
    everything: Sequence[tuple[Split, TripleSource]],
    reading: Reading,
    report: ReadReport,
) -> None:
    """Note the entities that several rows of node tables are about, and those that none is."""
    listed = literals.filter(pl.col("property").is_null())["subject"]
    if not len(listed):
        return
    repeated = listed.filter(listed.is_duplicated()).unique()
    ends = names[np.unique(np.concatenate([codes[split][i] for split in SPLITS for i in (0, 2)]))]
    missing = ends.filter(~ends.is_in(listed.implode()))
    several, none = (Found(len(each), str(each.min())) for each in (repeated, missing))
    sources = [source for _, source in everything]
    note_nodes(several, none, tables_of(reading.nodes), sources, reading, report)


def tables_of(nodes: TripleSource | Sequence[TripleSource]) -> list[TripleSource]:
    """Return the node tables that `nodes` names: one source, or several; folders and patterns."""
    found: list[TripleSource] = []
    for each in nodes if isinstance(nodes, list | tuple) else [nodes]:
        found += find_files(each) if isinstance(each, str | Path) else [each]
    return found


def _read_nodes(table: TripleSource, content: Content, reading: Reading) -> None:
    """Add the literals of a node table to the content."""
    if not isinstance(table, str | Path):
        if _is_from("pandas", table):  # column by column: `pl.from_pandas` needs pyarrow
            cells: Any = table
            table = pl.DataFrame(
                {
                    str(name): [*cells[name].astype(object).where(cells[name].notna(), None)]
                    for name in cells.columns
                }
            )
        content.literals.append(nodes_of_frame(as_frame(table), IN_MEMORY))
        return
    reading.notify(f"Reading {table}")
    with tempfile.TemporaryDirectory() as folder:
        source = local_source(table, replace(reading, format=None), Path(folder))
        content.literals += read_nodes(source, content.report, reading)


def labels_of(literals: pl.DataFrame) -> dict[str, list[Label]]:
    """Return the labels among literals (by name), the one to show of each subject first."""
    labels: dict[str, list[Label]] = {}
    rows = literals.filter(pl.col("property").is_in([*LABELS]))
    for subject, name, text, _, language in rows.iter_rows():
        labels.setdefault(subject, []).append(Label(text, language, LABELS[name]))
    return {subject: in_order(listed) for subject, listed in labels.items()}


def sources_and_fractions(
    sources: Sequence[TripleSource], reading: Reading
) -> tuple[list[tuple[Split, TripleSource]], list[float]]:
    """Return the sources with their splits, and the fractions to hold out for valid and test."""
    valid, test = reading.valid, reading.test
    fractions = [given if isinstance(given, float | int) else 0.0 for given in (valid, test)]
    if not (min(fractions) >= 0 and sum(fractions) < 1):
        raise InvalidArgument(
            "The fractions of valid and test must be at least 0 and below 1 together, "
            f"not {valid} and {test}."
        )
    everything: list[tuple[Split, TripleSource]] = [("train", source) for source in sources]
    if not sources:
        raise InvalidArgument("There is nothing to read: name at least one file of triples.")
    everything += [("valid", valid)] if not isinstance(valid, float | int) else []
    everything += [("test", test)] if not isinstance(test, float | int) else []
    return everything, fractions


def _read_sources(
    everything: Sequence[tuple[Split, TripleSource]], content: Content, reading: Reading
) -> tuple[dict[Split, Codes], NDArray[np.uint32], dict[str, pl.Series]]:
    """Return the triples as codes of polars categories, the subjects of literals, and the names."""
    categories = {kind: pl.Categories.random(kind) for kind in ("entity", "relation")}
    entity, relation = (pl.Categorical(each) for each in categories.values())
    schema = {"head": entity, "relation": relation, "tail": entity}
    frames: dict[Split, list[pl.DataFrame]] = {
        split: [pl.DataFrame(schema=schema)] for split in SPLITS
    }
    files = [
        (split, file)
        for split, source in everything
        for file in (find_files(source) if isinstance(source, str | Path) else [source])
    ]
    for i, (split, source) in enumerate(files):
        name = shown(source) if isinstance(source, str | Path) else IN_MEMORY
        reading.notify(f"Reading {'standard input' if name == STANDARD_INPUT else name}")
        # Blank nodes of different files are different, even with the same name.
        prefix = f"{i}." if len(files) > 1 else ""
        frames[split].append(read_source(source, content, schema, reading, prefix))
    codes: dict[Split, Codes] = {}
    for split in SPLITS:
        joined = pl.concat(frames.pop(split))
        codes[split] = [joined[column].to_physical().to_numpy() for column in COLUMNS]
    subjects = pl.Series(dtype=entity)
    for frame in content.literals:
        subjects.extend(frame["subject"].unique().cast(entity))
    found = subjects.to_physical().unique().to_numpy()
    return codes, found, {kind: each.to_series() for kind, each in categories.items()}


def _sorted_ids(
    names: pl.Series, used_codes: Sequence[NDArray[np.uint32]]
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names in use, sorted by code point, and the id of each code."""
    is_used = np.zeros(len(names), dtype=bool)
    for codes in used_codes:
        is_used[codes] = True
    order = names.arg_sort().to_numpy()
    order = order[is_used[order]]
    ids = np.full(len(names), -1)
    ids[order] = np.arange(len(order))
    return names[order].to_list(), ids


def _drop_duplicates(keys: dict[Split, NDArray[np.int64]], report: ReadReport) -> None:
    """Make the splits distinct, disjoint and sorted; an earlier split keeps a shared triple."""
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

    In random order, the first triple with an entity or a relation is kept in train; the others may
    be held out. A sparse graph yields fewer than asked. The parts are in the order of `triples`.
    """
    order = np.random.default_rng(seed).permutation(len(triples))
    shuffled = triples[order]
    keep = np.zeros(len(triples), dtype=bool)
    for column in (shuffled[:, [0, 2]].ravel(), shuffled[:, 1].repeat(2)):
        first_mention = np.full(column.max(initial=-1) + 1, -1)
        first_mention[column[::-1]] = np.arange(len(column))[::-1] // 2  # the last writer wins
        keep[first_mention[first_mention >= 0]] = True
    free = order[~keep]
    num_valid, num_test = num_held_out(valid, test, len(triples), len(free))
    part = np.zeros(len(triples), dtype=np.int8)
    part[free[:num_valid]] = 1
    part[free[num_valid : num_valid + num_test]] = 2
    return triples[part == 0], triples[part == 1], triples[part == 2]


def num_held_out(valid: float, test: float, num_triples: int, num_free: int) -> tuple[int, int]:
    """Return the numbers of triples to hold out for valid and test, of `num_free` that may be."""
    num_valid, num_test = round(valid * num_triples), round(test * num_triples)
    if num_valid + num_test > num_free:  # keep the proportion
        num_valid = round(num_free * valid / (valid + test))
        num_test = num_free - num_valid
    return num_valid, num_test


# ---- one source ---------------------------------------------------------------------------------


def read_source(
    source: Any,
    content: Content,
    schema: Schema = STRINGS,
    reading: Reading = DEFAULT,
    blank_node_prefix: str = "",
) -> pl.DataFrame:
    """Return the triples of a file, an address, standard input (`-`) or a table in memory.

    The ending of a file's name gives its format (`.gz` may follow). `schema` gives the types of
    head, relation and tail: strings, or categories, which are faster and smaller for large files.
    """

    def joined(batches: Iterator[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat([batch.cast(dict(schema)) for batch in batches])

    def read(file: Source) -> pl.DataFrame:
        return joined(read_file(file, content, schema, reading, blank_node_prefix))

    if isinstance(source, str | Path) and is_database(source):
        frame = joined(read_tables(source, content, reading))
    elif isinstance(source, str | Path) and is_address(source):
        with tempfile.TemporaryDirectory() as folder:
            frame = read(local_source(source, reading, Path(folder)))
    elif isinstance(source, str | Path):
        frame = read(Source.of(Path(source), reading))
    elif _is_from("rdflib", source) and hasattr(source, "namespaces"):
        frame = read(Source(IN_MEMORY, ".nt", source.serialize(format="nt", encoding="utf-8")))
        content.prefixes = {**_prefixes_in_use(source), **content.prefixes}
    else:
        table = Source(IN_MEMORY, "", b"")
        width = len(COLUMNS) if reading.relation is None else len(ENDS)
        frame = triples_of_frame(as_frame(source, width), table, content.report, reading)
        frame = frame.cast(dict(schema))
    content.report.read += len(frame)
    return frame


def read_tables(source: str | Path, content: Content, reading: Reading) -> Iterator[pl.DataFrame]:
    """Yield the triples of a database in batches; the content gets the literals of its nodes."""

    def to_triples(
        frame: pl.DataFrame, name: str, table: str | None, first_row: int
    ) -> pl.DataFrame:
        how = reading
        if reading.relation is None and table is not None:
            layout = layout_of(frame.columns, reading, name)
            relation = table.rpartition(".")[2] if layout.columns == ENDS else None
            how = replace(reading, relation=relation)
        return triples_of_frame(frame, Source(name, "", b""), content.report, how, first_row)

    if reading.node_tables:
        for literals in read_node_tables(source, content, reading, nodes_of_frame):
            content.literals.append(literals)
            content.report.literals += len(literals.drop_nulls("property"))
            yield pl.DataFrame(schema=STRINGS)
    yield from read_database(source, content, reading, to_triples)


def read_file(
    source: Source,
    content: Content,
    schema: Schema = STRINGS,
    reading: Reading = DEFAULT,
    blank_node_prefix: str = "",
) -> Iterator[pl.DataFrame]:
    """Yield the triples of a file in batches: of the types of `schema`, or strings."""
    if source.suffix in SEPARATORS:
        if reading.columns is None and is_neo4j(source):
            return read_neo4j(source, content, reading)
        return read_delimited(source, content.report, schema, reading)
    if source.suffix == ".parquet":
        return read_parquet(source, content.report, reading)
    if source.suffix in JSON_LINES or (source.suffix == ".json" and is_json_lines(source)):
        return read_objects(source, content, reading)
    syntax = rdf_format(source.suffix)
    if syntax is None:
        raise TripleError(
            f"unknown format {source.suffix!r}. Known: {', '.join(SEPARATORS)}, .parquet, .jsonl, "
            ".ndjson and RDF (.nt, .ttl, .nq, .trig, .n3, .rdf, .xml, .jsonld), also with .gz. "
            "Name it: --format.",
            source.path,
        )
    return read_rdf(source, content, syntax, blank_node_prefix)


def read_parquet(
    source: Source, report: ReadReport, reading: Reading = DEFAULT
) -> Iterator[pl.DataFrame]:
    """Yield the triples of a Parquet file in batches."""
    num_rows = 0
    with scanning_parquet(source) as scanned:
        for frame in scanned.collect_batches(chunk_size=ROWS_PER_BATCH):
            if len(frame):
                yield triples_of_frame(frame, source, report, reading, num_rows)
            num_rows += len(frame)
    if not num_rows:
        raise TripleError(EMPTY, source.path)


def read_labels(path: Path, comment: str | None = None) -> pl.DataFrame:
    """Read a two-column TSV or CSV of name and label; the first label of a name is shown.

    They are returned as literals by name.
    """
    source = Source.of(path)
    if source.suffix not in SEPARATORS:
        raise TripleError(f"labels come as {', '.join(SEPARATORS)}, also with .gz.", path)
    schema = {"subject": pl.String(), "text": pl.String()}
    labels = pl.concat(read_delimited(source, ReadReport(), schema, Reading(comment=comment)))
    is_first = pl.col("subject").is_first_distinct()
    return labels.select(
        "subject",
        pl.when(is_first).then(pl.lit(RDFS_LABEL)).otherwise(pl.lit(ALT_LABEL)).alias("property"),
        "text",
        pl.lit(STRING).alias("datatype"),
        pl.lit("").alias("language"),
    )


# ---- tables in memory ---------------------------------------------------------------------------


def find_triples(
    columns: Sequence[str], name: Path | str, report: ReadReport, reading: Reading = DEFAULT
) -> dict[str, int]:
    """Return the indices of head, tail and perhaps relation in a frame.

    The report tells a header that reorders.
    """
    layout = layout_of(columns, replace(reading, header=None), name)
    if layout.width != len(columns):
        raise TripleError(not_found(columns, layout.columns), name)
    if not reading.columns and layout.is_header and layout.indices != (*range(layout.width),):
        report.headers[str(name)] = tuple(columns)
    return dict(zip(layout.columns, layout.indices, strict=True))


def triples_of_frame(
    frame: pl.DataFrame,
    source: Source,
    report: ReadReport,
    reading: Reading = DEFAULT,
    first_row: int = 0,
) -> pl.DataFrame:
    """Return head, relation and tail of a frame as strings.

    An error names the row; `first_row` is that of the first one.
    """
    indices = find_triples(frame.columns, source.path, report, reading)
    frame = frame.select(
        _names_of(frame.to_series(index), source.path).alias(column)
        for column, index in indices.items()
    )
    if not len(frame):
        raise TripleError(EMPTY, source.path)
    is_gap = pl.any_horizontal(pl.all().is_null() | (pl.all() == ""))
    gap = frame.select(is_gap.arg_true().first()).item()
    if gap is not None:
        raise TripleError("a name is empty.", source.path, first_row + gap + 1, unit="row")
    if "relation" not in indices:
        relation = pl.lit(relation_of(source, reading, report)).alias("relation")
        frame = frame.select("head", relation, "tail")
    return frame


def _names_of(column: pl.Series, file: Path | str) -> pl.Series:
    """Return the names in a column as strings; NaN is missing."""
    if column.dtype.is_float():
        column = column.fill_nan(None)
    try:
        if not column.dtype.is_nested():
            return column.cast(pl.String)
    except pl.exceptions.PolarsError:  # bytes that are not UTF-8, Python objects
        pass
    raise TripleError(
        f"the column {column.name!r} holds {column.dtype}, not names or numbers.", file
    )


def as_frame(rows: Any, width: int = len(COLUMNS)) -> pl.DataFrame:
    """Convert a polars or pandas frame, a NumPy array (n, 3) or rows of three to a polars frame.

    Rows of one relation have a `width` of two.
    """
    if isinstance(rows, pl.LazyFrame):
        return rows.collect()
    if isinstance(rows, pl.DataFrame):
        return rows
    if _is_from("pandas", rows) and hasattr(rows, "columns"):
        table = rows.astype(object).where(rows.notna(), None)
        return pl.DataFrame({str(column): _strings(table[column]) for column in table.columns})
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2 or rows.shape[1] != width:
            raise InvalidArgument(f"An array of triples is (n, {width}), not {rows.shape}.")
        rows = rows.tolist()
    if isinstance(rows, str | bytes | dict) or not isinstance(rows, Iterable):
        raise InvalidArgument(
            "Triples come as files, rows of three, a polars or pandas frame, a NumPy array (n, 3) "
            f"or an rdflib graph, not as a {type(rows).__name__}."
        )
    listed = []
    wanted = "a head, a relation and a tail" if width == len(COLUMNS) else "a head and a tail"
    for line, row in enumerate(rows, 1):
        names = () if isinstance(row, str) or not isinstance(row, Iterable) else tuple(row)
        if len(names) != width:
            raise TripleError(f"{row!r} is not {wanted}.", IN_MEMORY, line, unit="row")
        listed.append(names)
    columns = zip(*listed, strict=True) if listed else [()] * width
    return pl.DataFrame(
        {f"column {i}": _strings(column) for i, column in enumerate(columns)},
        schema_overrides={f"column {i}": pl.String for i in range(width)},
    )


def _strings(values: Iterable[Any]) -> list[str | None]:
    """Return names as strings, None where missing."""
    names = [None if value is None or value != value else str(value) for value in values]
    for number, name in enumerate(names, 1):
        try:
            (name or "").encode()
        except UnicodeEncodeError as error:
            raise TripleError(
                f"{name!r} is not valid Unicode.", IN_MEMORY, number, unit="row"
            ) from error
    return names


def _prefixes_in_use(graph: Any) -> dict[str, str]:
    """Return the prefixes of an rdflib graph that an IRI begins with: it declares some thirty."""
    iris = {str(term) for triple in graph.triples((None, None, None)) for term in triple}
    return {
        prefix: str(start)
        for prefix, start in graph.namespaces()
        if any(iri.startswith(str(start)) for iri in iris)
    }


def _is_from(package: str, rows: Any) -> bool:
    """Tell whether the class of an object is from a package, without importing that."""
    return any(kind.__module__.split(".")[0] == package for kind in type(rows).__mro__)
