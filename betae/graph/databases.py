"""Databases: tables of SQL, and a running Neo4j over Bolt.

PostgreSQL is read at its address (`postgresql://host/database`), SQLite and DuckDB from their
files. Rows come in batches. Passwords are never part of a message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from betae.checks import needing
from betae.errors import InvalidArgument, TripleError
from betae.graph.names import printable
from betae.graph.objects import Objects
from betae.graph.source import BOLT_ADDRESSES, DATABASES, SQL_ADDRESSES, Content, Reading

ROWS_PER_BATCH = 2**16
SQLITE_MAGIC, DUCKDB_MAGIC = b"SQLite format 3\0", b"DUCK"
IN_SQLITE = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
IN_SCHEMA = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN "
    "('pg_catalog', 'information_schema') ORDER BY table_name"
)
# Ids by a property of the nodes (`key`), or else those of Neo4j itself.
NODES = "MATCH (n) RETURN elementId(n) AS id, n[$key] AS name, labels(n), properties(n)"
EDGES = "MATCH (a)-[r]->(b) RETURN elementId(a), a[$key], type(r), elementId(b), b[$key], keys(r)"


def is_database(source: object) -> bool:
    """Tell whether a source is an address of a database, or a file of one."""
    text = str(source)
    if text.startswith(DATABASES):
        return True
    if not isinstance(source, str | Path) or "://" in text or not Path(text).is_file():
        return False
    with Path(text).open("rb") as file:
        beginning = file.read(16)
    return beginning == SQLITE_MAGIC or beginning[8:12] == DUCKDB_MAGIC


def shown(source: object) -> str:
    """Return a source without the password in its address."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", str(source))


def read_database(
    source: str | Path, content: Content, reading: Reading, to_triples: Callable[..., pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """Yield the edges of a database in batches; the content gets the literals of its nodes.

    `to_triples` makes edges of a frame, what to call it in messages, its table, if it is one, and
    the number of its first row.
    """
    if str(source).startswith(BOLT_ADDRESSES):
        yield from _read_neo4j(str(source), content, reading)
        return
    with closing(_connect(source, reading)) as connection, _explaining(source):
        queries: list[tuple[str | None, str]] = [(each, _all_of(each)) for each in reading.tables]
        queries += [(None, reading.sql)] if reading.sql is not None else []
        if not queries:
            raise _no_tables(connection, source)
        for table, query in queries:
            name, num_rows = f"{shown(source)}, {table or 'the query'}", 0
            for frame in _batches(connection, query, name, content):
                yield to_triples(frame, name, table, num_rows)
                num_rows += len(frame)
            if not num_rows:
                raise TripleError("it has no rows.", name)


def read_node_tables(
    source: str | Path, content: Content, reading: Reading, to_literals: Callable[..., pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """Yield the literals of the node tables of a database in batches."""
    if str(source).startswith(BOLT_ADDRESSES):
        raise InvalidArgument(f"{shown(source)} is read whole: leave out --node-table.")
    with closing(_connect(source, reading)) as connection, _explaining(source):
        for table in reading.node_tables:
            name, num_rows = f"{shown(source)}, {table}", 0
            for frame in _batches(connection, _all_of(table), name, content):
                yield to_literals(frame, name, num_rows)
                num_rows += len(frame)


# ---- SQL ----------------------------------------------------------------------------------------


def _all_of(table: str) -> str:
    """Return the query of a table, whose name may have a schema: `public.edges`."""
    parts = ('"' + part.replace('"', '""') + '"' for part in table.split("."))
    return f"SELECT * FROM {'.'.join(parts)}"


def _connect(source: str | Path, reading: Reading) -> Any:
    """Open a database, for reading only."""
    with _explaining(source):
        if str(source).startswith(SQL_ADDRESSES):
            with needing("psycopg", "sql"):
                import psycopg
            given: dict[str, Any] = {"user": reading.user, "password": reading.password}
            connection = psycopg.connect(str(source), **{k: v for k, v in given.items() if v})
            connection.read_only = True
            return connection
        path = Path(source)
        with path.open("rb") as file:
            is_sqlite = file.read(16) == SQLITE_MAGIC
        if is_sqlite:
            import sqlite3

            return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        with needing("DuckDB", "ingest"):
            import duckdb
        return duckdb.connect(str(path), read_only=True)


def _batches(connection: Any, query: str, name: str, content: Content) -> Iterator[pl.DataFrame]:
    """Yield the rows of a query; columns whose values are of several types are noted."""
    is_postgres = type(connection).__module__.startswith("psycopg")
    # A cursor with a name stays on the server, which sends some rows at a time.
    cursor = connection.cursor("betae") if is_postgres else connection.cursor()
    try:
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS_PER_BATCH):
            names = [column[0] for column in cursor.description]
            columns = zip(*rows, strict=True)
            notes: list[str] = []
            yield pl.DataFrame([_series(*each, notes) for each in zip(names, columns, strict=True)])
            notes = [printable(f"{name}: {each}") for each in notes]
            content.report.notes += [each for each in notes if each not in content.report.notes]
    finally:
        cursor.close()


TYPES = {"bool", "int", "float", "Decimal", "str", "date", "datetime", "time"}


def _series(name: str, values: tuple[Any, ...], notes: list[str]) -> pl.Series:
    """Return a column; values of several types, or of types that polars has not, are text."""
    kinds = {type(value).__name__ for value in values if value is not None}
    if kinds == {"int", "float"} or (len(kinds) == 1 and kinds <= TYPES):
        return pl.Series(name, values, strict=False)
    if len(kinds) > 1:
        text = next((each for each in values if isinstance(each, str)), "")
        listed = " and ".join(sorted(kinds))
        notes.append(f"the column {name} holds {listed}, such as {text!r}: all are kept as text.")
    texts = [None if each is None else str(each) for each in values]
    return pl.Series(name, texts, dtype=pl.String)


def _no_tables(connection: Any, source: str | Path) -> InvalidArgument:
    """Build the error that lists the tables of a database."""
    is_sqlite = type(connection).__module__ == "sqlite3"
    cursor = connection.cursor()
    cursor.execute(IN_SQLITE if is_sqlite else IN_SCHEMA)
    listed = ", ".join(str(name) for (name,) in cursor.fetchall()) or "none"
    return InvalidArgument(
        printable(
            f"{shown(source)} is a database. Name its tables of edges, --table edges, or a query: "
            f"--sql 'select ...'. Its tables: {listed}."
        )
    )


@contextmanager
def _explaining(source: str | Path) -> Iterator[None]:
    """Turn errors of any database into one that names it."""
    try:
        yield
    except (TripleError, InvalidArgument, GeneratorExit):
        raise
    except Exception as error:
        kind = type(error).__module__.split(".")[0]
        if kind not in ("psycopg", "sqlite3", "duckdb", "_duckdb", "neo4j"):
            raise
        why = (str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")
        raise TripleError(f"it cannot be read ({why}).", shown(source)) from error


# ---- Neo4j --------------------------------------------------------------------------------------


def _read_neo4j(address: str, content: Content, reading: Reading) -> Iterator[pl.DataFrame]:
    """Yield the edges of a running Neo4j; the content gets its nodes."""
    with needing("neo4j", "neo4j"):
        import neo4j
    if reading.tables or reading.sql is not None:
        raise InvalidArgument(f"{shown(address)} is read whole: leave out --table and --sql.")
    password = reading.password or os.environ.get("NEO4J_PASSWORD")
    user = reading.user or os.environ.get("NEO4J_USERNAME") or "neo4j"
    login = (user, password) if password else None
    found, key = Objects(shown(address), content, unit="node"), reading.key or ""
    names: dict[str, str] = {}
    with (
        _explaining(address),
        neo4j.GraphDatabase.driver(address, auth=login) as driver,
        driver.session(
            database=reading.database,
            default_access_mode=neo4j.READ_ACCESS,
            fetch_size=ROWS_PER_BATCH,
        ) as session,
    ):
        for number, row in enumerate(session.run(NODES, key=key), 1):
            identity, name, labels, properties = row.values()
            name = _name(identity, name, reading, address)
            if reading.key is not None and names.setdefault(name, identity) != identity:
                raise TripleError(
                    f"two nodes have the {reading.key} {name!r}: {names[name]} and {identity}. "
                    "Choose another --key.",
                    shown(address),
                )
            found.add_node(name, sorted(labels), properties, number)
            if len(found) >= ROWS_PER_BATCH:
                yield found.take()
        for row in session.run(EDGES, key=key):
            head, head_name, relation, tail, tail_name, others = row.values()
            found.add_edge(
                _name(head, head_name, reading, address),
                relation,
                _name(tail, tail_name, reading, address),
                others,
            )
            if len(found) >= ROWS_PER_BATCH:
                yield found.take()
    yield found.take()
    found.note()


def _name(identity: str, name: Any, reading: Reading, address: str) -> str:
    """Return the name of a node: the value of its key, or Neo4j's id."""
    if reading.key is None:
        return identity
    if name is None or name == "":
        raise TripleError(
            f"the node {identity} has no {reading.key}. Choose another --key, or none: names are "
            "then the ids of Neo4j.",
            shown(address),
        )
    return str(name)
