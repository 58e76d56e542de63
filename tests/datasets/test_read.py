"""One function reads a graph from whatever holds it."""

import gzip

import polars as pl
import pytest

from betae import KnowledgeGraph
from betae.datasets import read
from betae.datasets.release import read_release
from betae.errors import InvalidArgument, StoreError, TripleError
from betae.graph.triples import read_triples
from tests.datasets.test_malformed import sound

ROWS = [("ann", "knows", "bob"), ("bob", "knows", "cat"), ("ann", "likes", "cat")]
TEXT = "".join("\t".join(row) + "\n" for row in ROWS)


@pytest.fixture
def sources(tmp_path):
    """The same triples in every form."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, row in enumerate(ROWS):
        (folder / f"{number}.tsv").write_text("\t".join(row) + "\n")
    (tmp_path / "facts.tsv").write_text(TEXT)
    (tmp_path / "facts.csv.gz").write_bytes(gzip.compress(TEXT.replace("\t", ",").encode()))
    frame = pl.DataFrame(ROWS, schema=["head", "relation", "tail"], orient="row")
    KnowledgeGraph.from_triples(ROWS).save(tmp_path / "stored")
    return {
        "a file": [tmp_path / "facts.tsv"],
        "a file by its name": [str(tmp_path / "facts.tsv")],
        "a zipped file": [tmp_path / "facts.csv.gz"],
        "several files": sorted(folder.iterdir()),
        "a folder": [folder],
        "a pattern": [f"{folder}/*.tsv"],
        "rows": [ROWS],
        "a polars frame": [frame],
        "a stored graph": [tmp_path / "stored"],
        "a stored graph by its name": [str(tmp_path / "stored")],
    }


def test_the_same_graph_from_every_source(sources, assert_same_graph):
    expected = KnowledgeGraph.from_triples(ROWS)
    for given in sources.values():
        assert_same_graph(read(*given), expected)


def test_a_stored_graph_is_opened_in_its_folder(sources):
    (folder,) = sources["a stored graph"]
    assert read(folder).folder == folder.resolve()
    for options in ({"valid": 0.1}, {"test": ROWS}, {"labels": "labels.tsv"}):
        with pytest.raises(InvalidArgument, match="is a stored graph"):
            read(folder, **options)
    (folder / "train.npy").write_bytes(b"")
    with pytest.raises(StoreError, match=r"train\.npy is truncated"):
        read(folder)


def test_a_release(tmp_path, assert_same_graph):
    for name, content in sound().items():
        (tmp_path / name).write_bytes(content)
    assert_same_graph(read(tmp_path), KnowledgeGraph.from_triples(read_release(tmp_path)))
    with pytest.raises(InvalidArgument, match="read alone"):
        read(tmp_path, ROWS)
    with pytest.raises(InvalidArgument, match="it has its splits"):
        read(tmp_path, valid=0.1)


def test_held_out_edges(assert_same_graph):
    rows = [(f"e{i % 20}", f"r{i % 3}", f"e{i * i % 20}") for i in range(200)]
    graph = read(rows, valid=0.1, test=0.2, seed=3)
    total = sum(map(len, graph.written_ids.values()))
    assert len(graph.written_ids["valid"]) == round(0.1 * total)
    assert len(graph.written_ids["test"]) == round(0.2 * total)
    again = KnowledgeGraph.from_triples(read_triples(rows, valid=0.1, test=0.2, seed=3))
    assert_same_graph(graph, again)
    assert read(rows, valid=0.1, seed=4).fingerprint != read(rows, valid=0.1).fingerprint
    given = read(rows, valid=ROWS, test=[ROWS[0], ("ann", "likes", "bob")])
    assert [len(given.written_ids[split]) for split in ("valid", "test")] == [3, 1]


def test_the_words_of_ingest(tmp_path):
    path = tmp_path / "facts.data"
    path.write_text("# from ; to ; how\nann;bob;knows\n")
    (tmp_path / "labels.tsv").write_text("ann\tAnn Lee\n")
    told = []
    graph = read(
        path,
        labels=tmp_path / "labels.tsv",
        columns={"head": 1, "relation": 3, "tail": 2},
        delimiter=";",
        comment="#",
        format="csv",
        notify=told.append,
    )
    assert list(graph.relations) == ["knows"]
    assert graph.entity_label(0) == "Ann Lee"
    assert told[0] == f"Reading {path}"


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(TripleError, match="no such file"):
        read(tmp_path / "nowhere.tsv")
    with pytest.raises(TripleError, match="no files of triples"):
        read(tmp_path)
    with pytest.raises(InvalidArgument, match="not as a int"):
        read(7)
    with pytest.raises(InvalidArgument, match="nothing to read"):
        read()
    with pytest.raises(InvalidArgument, match="fractions"):
        read(ROWS, valid=1.5)
