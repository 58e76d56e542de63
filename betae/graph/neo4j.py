"""Files for Neo4j's importer, `neo4j-admin`: read, and written.

A file of nodes has a column `:ID`, perhaps `:LABEL`, and one for each property; a file of edges has
`:START_ID`, `:END_ID` and `:TYPE`. Ids may be unique within a space only, such as `:ID(Gene)`: the
name of an entity is `Gene::1` then.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import polars as pl

from betae.errors import TripleError
from betae.graph.delimited import STRINGS, Table, relation_of_file
from betae.graph.literals import BOOLEAN, NAME, RDF_TYPE, TIME
from betae.graph.source import Content, Reading, ReadReport, Source
from betae.graph.tables import (
    DATE,
    DATE_TIME,
    INTEGER,
    NUMBER,
    SPACE,
    in_space,
    parse_header,
    read_nodes,
)


def is_neo4j(source: Source) -> bool:
    """Tell whether the first line of a TSV or CSV file is a header of Neo4j's importer."""
    with closing(source.lines()) as lines:
        return bool(re.search(r":(START_ID|ID)\b", next(lines, "")))


def read_neo4j(source: Source, content: Content, reading: Reading) -> Iterator[pl.DataFrame]:
    """Yield the edges of a file for Neo4j's importer; the content gets the literals of its nodes.

    A file of edges has the columns :START_ID, :END_ID and :TYPE; without :TYPE, the relation is the
    file's name, such as `edges-Compound_Treats_Disease.tsv`.
    """
    table = Table(source, reading)
    columns = parse_header(table.header)
    roles = [column.role for column in columns]
    if "ID" in roles and not {"START_ID", "END_ID"} & {*roles}:
        for literals in read_nodes(source, content.report, reading):
            content.literals.append(literals)
            content.report.literals += len(literals.drop_nulls("property"))
            yield pl.DataFrame(schema=STRINGS)
        return
    for role in ("START_ID", "END_ID"):
        if roles.count(role) != 1:
            raise TripleError(f"one column must be :{role}.", source.path, 1)
        table.require(roles.index(role))
    if "TYPE" in roles:
        table.require(roles.index("TYPE"))
    if others := [column.name for column in columns if column.role == "PROPERTY"]:
        note = f"{source.path}: properties of edges are not kept: {', '.join(others)}."
        content.report.notes.append(note)
    start, end = (columns[roles.index(role)] for role in ("START_ID", "END_ID"))
    relation: pl.Expr | pl.Series = pl.lit(relation_of_file(source.path))
    for batch in table.batches():
        if "TYPE" in roles:
            relation = batch.to_series(roles.index("TYPE"))
        yield pl.DataFrame(
            {
                "head": in_space(batch.to_series(roles.index("START_ID")), start.space),
                "tail": in_space(batch.to_series(roles.index("END_ID")), end.space),
            }
        ).select("head", relation.alias("relation"), "tail")


# ---- writing ------------------------------------------------------------------------------------

NAME_IN_SPACE = r"^([^:()]+)::(.+)$"
TYPES = (  # the datatypes of all values of a property -> its type
    ({INTEGER}, "long"),
    ({*NUMBER}, "double"),
    ({BOOLEAN}, "boolean"),
    ({DATE}, "date"),
    ({DATE_TIME}, "datetime"),
    ({TIME}, "time"),
)


def write_edge_files(edges: pl.DataFrame, target: Path, shown: Path | None = None) -> None:
    """Write edges (head, relation, tail and perhaps probability) to a folder, or to a file.

    A folder gets a file for each pair of id spaces; a file, `shown` in errors, holds only one pair.
    """
    parts = edges.with_columns(
        pl.col("head").str.extract(NAME_IN_SPACE, 1).fill_null("").alias("start"),
        pl.col("tail").str.extract(NAME_IN_SPACE, 1).fill_null("").alias("end"),
    ).partition_by("start", "end", as_dict=True, maintain_order=True)
    if shown is not None and len(parts) > 1:
        spaces = sorted({str(space) for pair in parts for space in pair})
        raise TripleError(
            f"the edges are between nodes of several id spaces ({', '.join(spaces)}), and a file "
            "holds those of one pair. Name a folder: --out missing",
            shown,
        )
    if not parts:
        parts = {("", ""): edges.with_columns(start=pl.lit(""), end=pl.lit(""))}
    for (start, end), part in parts.items():
        columns = [
            _id_in(part["head"], str(start)).alias(_header("START_ID", str(start))),
            part["relation"].alias(":TYPE"),
            _id_in(part["tail"], str(end)).alias(_header("END_ID", str(end))),
        ]
        if "probability" in part.columns:
            columns.append(part["probability"].alias("probability:double"))
        name = "-".join(["edges", *(_file_name(str(space)) for space in (start, end) if space)])
        _write_csv(pl.DataFrame(columns), target if shown else target / f"{name}.csv")


def write_node_files(entities: Sequence[str], literals: pl.DataFrame, folder: Path) -> list[str]:
    """Write a file of nodes for each id space; return notes on what Neo4j cannot hold."""
    names = pl.DataFrame({"subject": pl.Series([*entities], dtype=pl.String)})
    spaces = names.with_columns(
        pl.col("subject").str.extract(NAME_IN_SPACE, 1).fill_null("").alias("space")
    )
    kept = [literals.clear()]
    for (space,), part in spaces.partition_by("space", as_dict=True).items():
        found = literals.join(part, on="subject", how="semi")
        file = folder / f"{'-'.join(['nodes', *([_file_name(str(space))] if space else [])])}.csv"
        _write_csv(_table(part["subject"], str(space), found), file)
        source = Source.of(file)
        kept += read_nodes(source, ReadReport(), Reading())
    lost = literals.join(pl.concat(kept), on=literals.columns, how="anti")
    if not len(lost):
        return []
    first = lost.row(0, named=True)
    return [
        f"{len(lost):,} literals are not in these files, or with another type: Neo4j has no "
        "languages, no values of relations, no empty text and few types. One is "
        f"{first['property']} of {first['subject']}, {first['text']!r}."
    ]


def _table(names: pl.Series, space: str, literals: pl.DataFrame) -> pl.DataFrame:
    """Return nodes with their labels and properties as columns."""
    table = pl.DataFrame({"subject": names})
    is_class = (pl.col("datatype") == NAME) & (pl.col("property") == RDF_TYPE)
    labels = literals.filter(is_class).group_by("subject").agg(pl.col("text").sort().str.join(";"))
    table = table.join(labels, on="subject", how="left").rename({"text": ":LABEL"})
    for (key,), rows in (
        literals.filter(pl.col("datatype") != NAME).partition_by("property", as_dict=True).items()
    ):
        values = rows.group_by("subject").agg(pl.col("text").sort().str.join(";"))
        kind = _type_of(rows) + "[]" * (len(values) < len(rows))
        header = f"{key}:{kind}" if kind else str(key)
        table = table.join(values, on="subject", how="left").rename({"text": header})
    ids = _id_in(table["subject"], space).alias(_header("ID", space))
    return table.select(ids, pl.exclude("subject"))


def _type_of(rows: pl.DataFrame) -> str:
    """Return Neo4j's type of a property; without one, it is text there, but read by content."""
    kinds = {*rows["datatype"]}
    is_mixed = len(kinds) > 1 and rows["subject"].is_unique().all()
    return next(
        (name for datatypes, name in TYPES if kinds <= datatypes), "" if is_mixed else "string"
    )


def _header(role: str, space: str) -> str:
    return f":{role}({space})" if space else f":{role}"


def _id_in(names: pl.Series, space: str) -> pl.Series:
    return names.str.strip_prefix(space + SPACE) if space else names


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text)


def _write_csv(frame: pl.DataFrame, file: Path) -> None:
    buffer = io.BytesIO()  # polars' errors do not tell a full disk from any other
    frame.write_csv(buffer)
    file.write_bytes(buffer.getbuffer())
