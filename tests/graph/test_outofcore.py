"""Ingest in bounded memory: the same store, to the bit, as in memory; errors; nothing left."""

import functools
import gzip
import http.server
import socket
import subprocess
import sys
import threading

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from betae import KnowledgeGraph, ingest
from betae.errors import InvalidArgument, StoreError, TripleError
from betae.graph.outofcore import parse_memory
from betae.graph.triples import read_triples
from tests.graph.odd_names import odd_names

pytestmark = pytest.mark.slow


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces so small that there are several, and pairs and heads go on from one to the next."""
    monkeypatch.setattr("betae.graph.outofcore.KEYS_PER_BATCH", 7)
    monkeypatch.setattr("betae.graph.outofcore.NAMES_PER_BATCH", 3)
    monkeypatch.setattr("betae.graph.delimited.ROWS_PER_BATCH", 5)
    monkeypatch.setattr("betae.graph.triples.ROWS_PER_BATCH", 5)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same(folder, *sources, **options):
    """Ingest in both ways, and compare the folders byte by byte, and the reports."""
    triples = read_triples(*sources, **options)
    KnowledgeGraph.from_triples(triples).save(folder / "in memory", overwrite=True)
    report = ingest(*sources, out=folder / "bounded", overwrite=True, **options)
    expected, found = contents(folder / "in memory"), contents(folder / "bounded")
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name] == expected[name], name
    assert report == triples.report
    assert KnowledgeGraph.open(folder / "bounded", verify=True).num_entities
    return report


# ---- the same store -----------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["a", "b", "B", "é", "e\u0301", "日本", "🦊", "\uffff", "\U0010ffff", "z z"]
)
TRIPLES = st.lists(st.tuples(NAMES, st.sampled_from("rsé"), NAMES), min_size=1, max_size=30)
SUFFIXES = st.sampled_from([".tsv", ".csv", ".tsv.gz", ".parquet"])


def write_facts(path, rows, blank_every=4):
    frame = pl.DataFrame(rows, schema=["head", "relation", "tail"], orient="row")
    if path.suffix == ".parquet":
        frame.write_parquet(path)
        return path
    separator = "," if ".csv" in path.name else "\t"
    lines = [separator.join(row) + "\n" for row in rows]
    lines[::blank_every] = [line + "\n" for line in lines[::blank_every]]
    text = "".join(lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.usefixtures("small_pieces")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TRIPLES, SUFFIXES), min_size=3, max_size=5), st.integers(0, 2))
def test_random_files_give_the_same_store(tmp_path, tables, num_held_out):
    files = [
        write_facts(tmp_path / f"{number}{suffix}", rows)
        for number, (rows, suffix) in enumerate(tables)
    ]
    held_out = dict(zip(("valid", "test"), files[:num_held_out], strict=False))
    assert_same(tmp_path, *files[num_held_out:], **held_out)


@pytest.mark.usefixtures("small_pieces")
def test_each_split_and_what_is_dropped_of_it(tmp_path, write):
    train = write("train.tsv", "a\tr\tb\nb\tr\tc\n\na\tr\tb\n")
    valid = write("valid.tsv", "a\tr\tb\nc\tr\ta\nc\tr\ta\n")
    test = write("test.csv", "c,r,a\na,r,b\nd,s,d\n")
    report = assert_same(tmp_path, train, valid=valid, test=test)
    assert (report.read, report.duplicates, report.repeated_across_splits) == (9, 2, 3)
    assert (report.blank_lines_skipped, report.unseen_in_train) == (1, 2)
    graph = KnowledgeGraph.open(tmp_path / "bounded")
    assert [len(graph.written_ids[split]) for split in graph.written_ids] == [2, 1, 1]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("fractions", [(0.1, 0.2), (0.3, 0), (0, 0.1), (0.6, 0.39), (0.0001, 0)])
def test_a_random_split_is_the_same(tmp_path, fractions):
    rng = np.random.default_rng(0)
    rows = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in rng.integers(0, 12, (150, 3))]
    facts = write_facts(tmp_path / "facts.tsv", rows)
    valid, test = fractions
    assert_same(tmp_path, facts, valid=valid, test=test, seed=5)
    held_out = write_facts(tmp_path / "held-out.tsv", [*rows[:3], ("e1", "r", "new")])
    assert_same(tmp_path, facts, valid=held_out, test=test, seed=5)


def test_odd_names_survive(tmp_path):
    names = odd_names(2000)
    rows = [(names[i], names[i % 7], names[-i]) for i in range(len(names))]
    assert_same(tmp_path, write_facts(tmp_path / "odd.parquet", rows))


@pytest.mark.usefixtures("small_pieces")
def test_columns_by_any_name_in_any_order_and_type(tmp_path, write):
    frames = [
        pl.DataFrame({"tail": ["x"] * 9, "beside": range(9), "head": list("abcabcabc"),
                      "relation": ["r"] * 9}),
        pl.DataFrame({"head": ["x"] * 3, "relation": ["r"] * 3, "tail": list("abc")}),
        pl.DataFrame({"subject": [3, 10, 9], "predicate": [0.1, 1e20, 2.0], "object": [True] * 3}),
        pl.DataFrame({"head": ["c"] * 2, "relation": ["r"] * 2, "tail": ["d", "e"]},
                     schema_overrides={"tail": pl.Categorical}),
        pl.DataFrame({"A": ["p"], "a": ["q"], "b": ["s"]}),
    ]  # fmt: skip
    folder = tmp_path / "parts [1] it's"
    folder.mkdir()
    for number, frame in enumerate(frames):
        frame.write_parquet(folder / f"part [{number}]?.parquet")
    report = assert_same(tmp_path, folder)
    assert report.read == 18
    assert any("beside" in header for header in report.headers.values())
    trips = write("trips.csv", "% c\nto;mode;from;price\nBergen;train;Oslo;500\n\n% d\n")
    by_name = {"head": "from", "relation": "mode", "tail": "to"}
    report = assert_same(tmp_path, trips, columns=by_name, delimiter=";", comment="%")
    assert report.headers
    assert report.comments_skipped == 2


def test_many_rows_in_several_threads(tmp_path):
    rng = np.random.default_rng(1)
    facts = tmp_path / "facts"
    facts.mkdir()
    for number in range(3):
        columns = {
            "head": rng.zipf(1.3, 150_000) % 20_000,
            "relation": rng.integers(0, 50, 150_000),
            "tail": rng.integers(0, 20_000, 150_000),
        }
        frame = pl.DataFrame(columns).select(pl.format("{}/{}", pl.lit("x"), pl.all()).name.keep())
        frame.write_parquet(facts / f"{number}.parquet", row_group_size=10_000)
    report = assert_same(tmp_path, facts)
    assert report.duplicates > 0


# ---- folders, patterns, addresses ---------------------------------------------------------------


@pytest.fixture
def parts(tmp_path):
    """A folder of files, with one below it and some that are no triples."""
    folder = tmp_path / "parts"
    (folder / "relation=r").mkdir(parents=True)
    write_facts(folder / "1.parquet", [("a", "r", "b")])
    write_facts(folder / "2.tsv.gz", [("b", "r", "c")])
    write_facts(folder / "relation=r" / "3.parquet", [("c", "s", "d")])
    for name in ("_SUCCESS", ".hidden.tsv", "_temporary.tsv", "notes.md"):
        (folder / name).write_text("x")
    return folder


def rows_of(folder):
    return sorted(KnowledgeGraph.open(folder).to_polars().rows())


ALL = [("a", "r", "b"), ("b", "r", "c"), ("c", "s", "d")]


def test_a_folder_and_patterns(tmp_path, parts):
    assert_same(tmp_path, parts)
    assert rows_of(tmp_path / "bounded") == ALL
    assert_same(tmp_path, f"{parts}/*.parquet")
    assert rows_of(tmp_path / "bounded") == ALL[:1]
    assert_same(tmp_path, f"{parts}/**/*.parquet", valid=f"{parts}/2.*")
    assert rows_of(tmp_path / "bounded") == ALL


def test_addresses(tmp_path, parts):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(parts), "/bucket", recursive=True)
    try:
        for source in ("memory://bucket", "memory://bucket/"):
            assert_same(tmp_path, source)
            assert rows_of(tmp_path / "bounded") == ALL
        assert_same(tmp_path, "memory://bucket/*.parquet", valid="memory://bucket/2.tsv.gz")
        assert rows_of(tmp_path / "bounded") == ALL[:2]
        for bad, words in [
            ("memory://bucket/none.tsv", "there is no such file"),
            ("memory://bucket/*.csv", "no file matches the pattern"),
        ]:
            with pytest.raises(TripleError, match=words) as caught:
                ingest(bad, out=tmp_path / "none")
            assert bad in str(caught.value)
    finally:
        memory.rm("/bucket", recursive=True)


@pytest.fixture
def site(parts):
    """The address of a web server that has the files."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=parts)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_web_server(tmp_path, site):
    assert_same(tmp_path, f"{site}/1.parquet?token=x", f"{site}/2.tsv.gz")
    assert rows_of(tmp_path / "bounded") == ALL[:2]
    with pytest.raises(TripleError, match=f"{site}/none.tsv: there is no such file"):
        ingest(f"{site}/none.tsv", out=tmp_path / "none")


def test_an_error_in_what_was_fetched_names_the_address(tmp_path, parts, site):
    (parts / "bad.tsv").write_text("a\tr\tb\na\tb\n")
    for read in (read_triples, lambda source: ingest(source, out=tmp_path / "none")):
        with pytest.raises(TripleError, match=f"{site}/bad.tsv, line 2: 2 columns, 3 expected"):
            read(f"{site}/bad.tsv")


def test_a_server_that_does_not_answer(tmp_path):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{held.getsockname()[1]}/facts.parquet"
        with pytest.raises(TripleError, match="it cannot be read") as caught:
            ingest(address, out=tmp_path / "none")
    assert address in str(caught.value)


def test_a_backend_that_is_not_installed(tmp_path, monkeypatch):
    pytest.importorskip("fsspec.registry")
    known = sys.modules["fsspec.registry"].known_implementations
    missing = {"class": "no_such_package.Cloud", "err": "Install cloudfs to access it"}
    monkeypatch.setitem(known, "cloud", missing)
    with pytest.raises(InvalidArgument, match="Install cloudfs to access it"):
        ingest("cloud://bucket/x.parquet", out=tmp_path / "none")
    with pytest.raises(InvalidArgument, match=r"Protocol not known: nothing"):
        ingest("nothing://bucket/x.parquet", out=tmp_path / "none")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'betae\[ingest\]'"):
        ingest("s3://bucket/x.parquet", out=tmp_path / "none")


# ---- errors, and nothing left -------------------------------------------------------------------


@pytest.fixture
def nothing_left(tmp_path):
    """Check that what was there before is all that there is after."""
    before = set(tmp_path.rglob("*"))
    yield
    made = {path.relative_to(tmp_path).parts[0] for path in set(tmp_path.rglob("*")) - before}
    assert made <= {"given"}


def refused(tmp_path, source, kind=TripleError, **options):
    with pytest.raises(kind) as caught:
        ingest(source, out=tmp_path / "graph", **options)
    return str(caught.value)


@pytest.mark.usefixtures("nothing_left", "small_pieces")
def test_bad_files_are_named_with_the_line(tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    texts = {
        "columns.tsv": ("a\tr\tb\n" * 20 + "a\tb\n", "columns.tsv, line 21: 2 columns"),
        "empty.tsv": ("", "empty.tsv: the file is empty"),
        "header.tsv": ("head\trelation\ttail\n", "header.tsv: the file is empty"),
        "name.csv": ("a,r,b\n" * 9 + "\na,,b\n", "name.csv, line 11: the relation is empty"),
        "facts.nt": ("<x:a> <x:r> <x:b> .\n<x:a>", "facts.nt, line 2: not valid N-Triples"),
        "facts.parquet": ("no", "facts.parquet: not a valid Parquet file"),
    }
    for name, (text, words) in texts.items():
        (given / name).write_text(text)
        assert words in refused(tmp_path, given / name)
    whole = gzip.compress(b"a\tr\tb\n" * 1000)
    (given / "cut.tsv.gz").write_bytes(whole[:-20])
    assert "the gzip file is truncated" in refused(tmp_path, given / "cut.tsv.gz")
    (given / "bytes.tsv").write_bytes(b"a\tr\tb\n" * 10 + b"a\tr\t\xff\n")
    assert "bytes.tsv, line 11: not valid UTF-8" in refused(tmp_path, given / "bytes.tsv")
    assert "there is no such file" in refused(tmp_path, given / "none.tsv")
    assert "no file matches" in refused(tmp_path, given / "*.xyz")


@pytest.mark.usefixtures("nothing_left", "small_pieces")
@pytest.mark.parametrize("missing", ["", None])
def test_an_empty_name_in_parquet_is_named_with_the_row(tmp_path, missing):
    given = tmp_path / "given"
    given.mkdir()
    write_facts(given / "1.parquet", [("a", "r", "b")])
    for number, column in enumerate(("head", "relation", "tail"), 2):
        columns = {name: ["x"] * 12 for name in ("tail", "head", "relation")}
        columns[column][10] = missing
        pl.DataFrame(columns).write_parquet(given / f"{number}.parquet")
        sources = [given / "1.parquet", given / f"{number}.parquet"]
        with pytest.raises(TripleError, match=f"{number}.parquet, row 11: a name is empty"):
            ingest(*sources, out=tmp_path / "graph")


@pytest.mark.usefixtures("nothing_left")
def test_a_damaged_parquet_file_is_named(tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    write_facts(given / "1.parquet", [("a", "r", "b")])
    write_facts(given / "2.parquet", [(f"{i}", "r", f"{i * i}") for i in range(30_000)])
    content = bytearray((given / "2.parquet").read_bytes())
    content[5000:6000] = b"x" * 1000
    (given / "2.parquet").write_bytes(content)
    assert "2.parquet: not a valid Parquet file" in refused(tmp_path, given)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("-", {}, "write it to a file first"),
        ("", {}, "is empty"),
        ([("a", "r", "b")], {}, "read from files, not from a list"),
        ("x.tsv", {"memory": "much"}, "write it as 4GB"),
        ("x.tsv", {"memory": "100MB"}, "it must be at least 512MB"),
        ("x.tsv", {"valid": 1.5}, "fractions"),
        ("x.tsv", {"seed": -1}, "seed"),
    ],
    ids=str,
)
def test_bad_arguments(tmp_path, source, options, words):
    assert words in refused(tmp_path, source, InvalidArgument, **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4GB", 4 * 10**9), ("1.5 GiB", 3 * 2**29), ("700m", 7 * 10**8), ("800000000", 8 * 10**8)],
)
def test_memory_is_read_in_all_units(text, expected):
    assert parse_memory(text) == expected


@pytest.fixture
def facts(tmp_path):
    (tmp_path / "given").mkdir()
    rows = [(f"entity {i}", f"r{i % 5}", f"entity {i * i}") for i in range(50_000)]
    return write_facts(tmp_path / "given" / "facts.parquet", rows)


def test_too_little_memory_is_told(tmp_path, facts, monkeypatch):
    monkeypatch.setattr("betae.graph.outofcore.SHARE", 0.02)
    monkeypatch.setattr("betae.graph.outofcore.MEMORY_OF_A_THREAD", 1)
    words = refused(tmp_path, facts, InvalidArgument, memory="512MB")
    assert "512MB of memory is too little for these triples. Raise --memory" in words
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_too_little_memory_outside_the_engine_is_told_too(tmp_path, write):
    def fail(said):
        if "edges of train" in said:
            raise MemoryError

    facts = write("facts.tsv", "a\tr\tb\n")
    assert "1GB of memory is too" in refused(
        tmp_path, facts, InvalidArgument, memory="1GB", notify=fail
    )
    assert [path.name for path in tmp_path.iterdir()] == ["facts.tsv"]


def test_without_duckdb_it_is_said_what_to_install(tmp_path, facts, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "pip install 'betae[ingest]'" in refused(tmp_path, facts, InvalidArgument)


def test_an_old_graph_stays_unless_it_is_overwritten(tmp_path, facts, write):
    ingest(write("given/small.tsv", "a\tr\tb\n"), out=tmp_path / "graph")
    before = contents(tmp_path / "graph")
    assert "already exists" in refused(tmp_path, facts, StoreError)
    refused(tmp_path, write("given/bad.tsv", "a\n"), overwrite=True)
    assert contents(tmp_path / "graph") == before
    ingest(facts, out=tmp_path / "graph", overwrite=True)
    assert contents(tmp_path / "graph") != before
    assert {path.name for path in tmp_path.iterdir()} == {"given", "graph"}


def test_ctrl_c_in_any_phase_leaves_nothing(tmp_path):
    (tmp_path / "given").mkdir()
    facts = write_facts(tmp_path / "given" / "facts.tsv.gz", [(f"{i}", "r", "x") for i in range(9)])
    phases = []
    ingest(facts, out=tmp_path / "given" / "graph", valid=0.1, notify=phases.append)
    assert len(phases) > 8
    for phase in phases:

        def stop(said, phase=phase):
            if said == phase:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ingest(facts, out=tmp_path / "graph", valid=0.1, notify=stop)
        assert [path.name for path in tmp_path.iterdir()] == ["given"]


FULL_DISK = """
import resource, signal, sys
from betae import ingest
from betae.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    ingest(sys.argv[1], out=sys.argv[2])
except StoreError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize("limit", [1000, 200_000])
def test_a_full_disk_is_told_and_nothing_is_left(tmp_path, facts, limit):
    command = [sys.executable, "-c", FULL_DISK, facts, tmp_path / "graph", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"The disk is full: {tmp_path / 'graph'} was not written" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


LIMITED = """
import resource, sys
from betae import ingest
resource.setrlimit(resource.RLIMIT_DATA, (512 * 10**6, 512 * 10**6))
ingest(sys.argv[1], out=sys.argv[2], memory="512MB")
print(bytearray(400 * 10**6)[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit that the system enforces")
def test_the_system_may_enforce_the_limit(tmp_path, facts):
    command = [sys.executable, "-c", LIMITED, facts, tmp_path / "graph"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "MemoryError" in done.stderr.splitlines()[-1]  # of what comes after it
    expected = KnowledgeGraph.from_triples(read_triples(facts)).fingerprint
    assert KnowledgeGraph.open(tmp_path / "graph").fingerprint == expected
