"""Databases as sources: SQLite, DuckDB, PostgreSQL, and a server that speaks Bolt and Cypher."""

import importlib.util
import socket
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path

import duckdb
import pytest

import betae
from betae.errors import BetaeError, InvalidArgument, TripleError
from betae.graph.databases import is_database, shown
from betae.graph.literals import XSD
from betae.graph.source import Reading
from betae.graph.triples import read_triples
from tests.cli.test_cli import run

STATEMENTS = [
    "CREATE TABLE bought (customer TEXT, product TEXT, day DATE)",
    "INSERT INTO bought VALUES ('ann', 'lamp', '2020-01-02'), ('bob', 'desk', NULL)",
    "CREATE TABLE likes (a INTEGER, b TEXT)",
    "INSERT INTO likes VALUES (1, 'ann')",
    "CREATE TABLE links (source TEXT, kind TEXT, target TEXT)",
    "INSERT INTO links VALUES ('ann', 'knows', 'bob')",
    "CREATE TABLE people (id TEXT, name TEXT, born DATE, size NUMERIC(4, 1), type TEXT)",
    "INSERT INTO people VALUES ('ann', 'Ann', '1990-01-02', 1.5, 'Person'), "
    "('cid', 'C', NULL, NULL, NULL)",
]
BOUGHT = [("ann", "bought", "lamp"), ("bob", "bought", "desk")]


@pytest.fixture
def sqlite(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        for statement in STATEMENTS:
            connection.execute(statement)
    return tmp_path / "shop.db"


@pytest.fixture
def duck(tmp_path):
    with closing(duckdb.connect(tmp_path / "shop.duckdb")) as connection:
        for statement in STATEMENTS:
            connection.execute(statement)
    return tmp_path / "shop.duckdb"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    import psycopg

    with pytest.MonkeyPatch.context() as patch:  # else importing pgserver warns
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        pgserver = pytest.importorskip("pgserver")
    # As in test_search: a socket needs a short path, and the server of root one others may enter.
    server = pgserver.get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    with psycopg.connect(server.get_uri()) as connection:
        for statement in STATEMENTS:
            connection.execute(statement)
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(params=["sqlite", "duck", pytest.param("postgres", marks=pytest.mark.slow)])
def shop(request):
    return request.getfixturevalue(request.param)


def rows(graph):
    return sorted(graph.to_polars().iter_rows())


def test_tables_and_queries_are_edges(shop, tmp_path):
    columns = {"columns": ("customer", "product")}
    assert rows(betae.read(shop, tables=["bought"], **columns)) == BOUGHT
    renamed = betae.read(shop, tables=["bought"], relation="has", **columns)
    assert rows(renamed) == [(head, "has", tail) for head, _, tail in BOUGHT]
    both = betae.read(shop, tables=["likes", "links"], node_tables=["people"])
    assert rows(both) == [("1", "likes", "ann"), ("ann", "knows", "bob")]
    born = "1990-01-02" if str(shop).endswith(".db") else date(1990, 1, 2)  # no dates in SQLite
    assert both.values("born").row(0)[:2] == ("ann", born)
    assert both.values("size")["value"].to_list() == [1.5]
    assert [*both.classes] == ["Person"]
    assert both.entity_id("C") == both.entity_id("cid")
    sql = "SELECT customer AS head, 'r' AS relation, product AS tail FROM bought"
    assert rows(betae.read(shop, sql=sql)) == [(h, "r", t) for h, _, t in BOUGHT]
    options = {"tables": ["links", "likes"], "node_tables": ["people"]}
    betae.read(shop, **options).save(tmp_path / "whole")
    betae.ingest(str(shop), out=tmp_path / "bounded", **options)
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "bounded" / path.name).read_bytes() == path.read_bytes(), path.name


def test_what_is_wrong_is_said(shop):
    with pytest.raises(InvalidArgument, match="Its tables: bought, likes, links, people"):
        betae.read(shop)
    with pytest.raises(TripleError, match=r"it cannot be read .*nothing"):
        betae.read(shop, tables=["nothing"])
    with pytest.raises(TripleError, match="bought: There is no column 'x'"):
        betae.read(shop, tables=["bought"], columns=("x", "product"))
    with pytest.raises(TripleError, match="people: its columns are id, name"):
        betae.read(shop, tables=["people"])
    with pytest.raises(TripleError, match=r"the query: it has no column"):
        betae.read(shop, sql="SELECT a, b FROM likes")
    with pytest.raises(TripleError, match="the query: it has no rows"):
        betae.read(shop, sql="SELECT a, b, b FROM likes WHERE a = 7")
    with pytest.raises(TripleError, match="row 2: a name is empty"):
        betae.read(shop, tables=["bought"], columns=("customer", "day"))
    with pytest.raises(TripleError, match="cannot be read"):
        betae.read(shop, sql="DELETE FROM likes")


def test_a_column_of_several_types_is_told(sqlite):
    with closing(sqlite3.connect(sqlite)) as connection, connection:
        connection.execute("CREATE TABLE ages (id TEXT, age INTEGER)")
        ages = [(f"p{i}", i if i != 500 else "n/a") for i in range(1000)]
        connection.executemany("INSERT INTO ages VALUES (?, ?)", ages)
    triples = read_triples(sqlite, tables=["links"], node_tables=["ages"])
    note = f"{sqlite}, ages: the column age holds int and str, such as 'n/a': all are kept as text."
    assert note in triples.report.notes
    assert len(triples.literals.filter(property="age")) == 1000


def test_passwords_are_not_shown(tmp_path):
    address = "postgresql://me:secret@127.0.0.1:1/x?connect_timeout=1"
    assert is_database(address)
    assert shown(address) == "postgresql://me:***@127.0.0.1:1/x?connect_timeout=1"
    seen = []
    with pytest.raises(TripleError, match=r"me:\*\*\*@.* cannot be read") as caught:
        betae.read(address, tables=["x"], notify=seen.append)
    assert "secret" not in f"{caught.value}{seen}{Reading(password='secret')}"
    result = run("ingest", address, "--password-env", "NOT_SET_HERE", "--out", tmp_path / "g")
    assert "The environment variable NOT_SET_HERE is not set" in str(result.exception)


# ---- Bolt ---------------------------------------------------------------------------------------

CYPHER = [
    "CREATE (:Person:Boss {key: 'a', name: 'Ann', born: date('1990-01-02'), score: 1.5, "
    "tags: ['x', 'y'], age: 30})-[:KNOWS {since: 2001}]->(:Person {key: 'b', age: 'n/a'})",
    "MATCH (a {key: 'a'}) CREATE (a)-[:IN]->(:City {key: 'o', name: 'Oslo', age: 900})",
]


@contextmanager
def serving(folder):
    """Run a server that speaks Bolt, and yield its address."""
    package = importlib.util.find_spec("arcadedb_embedded")
    if package is None or package.origin is None:
        pytest.skip("arcadedb-embedded is not installed")
    home = Path(package.origin).parent
    ports = []
    for _ in range(2):
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    settings = {
        "server.rootPath": folder,
        "server.databaseDirectory": folder / "databases",
        "server.rootPassword": "playwithdata",
        "server.plugins": "BoltProtocolPlugin",
        "server.defaultDatabases": "test[root]",
        "server.httpIncomingPort": ports[0],
        "bolt.host": "127.0.0.1",
        "bolt.port": ports[1],
    }
    output = folder / "output.txt"
    with output.open("w") as file:
        server = subprocess.Popen(
            [
                home / "jre" / "bin" / "java",
                "-Xmx512m",
                *(f"-Darcadedb.{name}={value}" for name, value in settings.items()),
                *("-cp", f"{home / 'jars'}/*", "com.arcadedb.server.ArcadeDBServer"),
            ],
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in range(240):
            if "Server started" in output.read_text():
                break
            time.sleep(0.5)
        yield f"bolt://127.0.0.1:{ports[1]}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def bolt(tmp_path_factory):
    neo4j = pytest.importorskip("neo4j")
    with serving(tmp_path_factory.mktemp("arcade")) as address:
        with neo4j.GraphDatabase.driver(address, auth=("root", "playwithdata")) as driver:
            for statement in CYPHER:
                driver.execute_query(statement, database_="test")
        yield address


LOGIN = {"user": "root", "password": "playwithdata", "database": "test"}


@pytest.mark.slow
def test_a_server_is_read_over_bolt(bolt, tmp_path, monkeypatch):
    triples = read_triples(bolt, key="key", **LOGIN)
    graph = betae.KnowledgeGraph.from_triples(triples)
    assert rows(graph) == [("a", "IN", "o"), ("a", "KNOWS", "b")]
    assert [*graph.classes] == ["Boss", "City", "Person"]
    assert graph.entity_id("Oslo") == graph.entity_id("o")
    assert graph.values("born")["value"].to_list() == [date(1990, 1, 2)]
    assert sorted(graph.values("tags")["value"]) == ["x", "y"]
    assert graph.values("score").row(0)[1:3] == (1.5, XSD + "double")
    assert any("properties of edges are not kept: since" in each for each in triples.report.notes)
    assert any(
        "age is 'n/a', text, but a number elsewhere" in each for each in triples.report.notes
    )
    by_id = betae.read(bolt, **LOGIN)
    assert by_id.num_entities == 3
    assert {*by_id.entities}.isdisjoint({*graph.entities})
    monkeypatch.setenv("BOLT_PASSWORD", "playwithdata")
    options = ["--user", "root", "--password-env", "BOLT_PASSWORD", "--database", "test"]
    result = run("ingest", bolt, *options, "--key", "key", "--out", tmp_path / "graph")
    assert result.exit_code == 0, result.output
    assert betae.read(tmp_path / "graph").fingerprint == graph.fingerprint
    betae.ingest(bolt, key="key", out=tmp_path / "bounded", **LOGIN)
    assert betae.read(tmp_path / "bounded").fingerprint == graph.fingerprint


@pytest.mark.slow
def test_what_a_server_refuses_is_told(bolt):
    wrong = {**LOGIN, "password": "wrong"}
    with pytest.raises(TripleError, match="it cannot be read") as caught:
        betae.read(bolt, **wrong)
    assert "wrong" not in str(caught.value)
    with pytest.raises(TripleError, match=r"has no name\. Choose another --key"):
        betae.read(bolt, key="name", **LOGIN)
    with pytest.raises(BetaeError, match="leave out --table"):
        betae.read(bolt, tables=["x"], **LOGIN)


def test_no_server(monkeypatch):
    pytest.importorskip("neo4j")
    monkeypatch.delenv("NEO4J_PASSWORD", raising=False)
    with pytest.raises(TripleError, match=r"bolt://127\.0\.0\.1:1: it cannot be read"):
        betae.read("bolt://127.0.0.1:1")
