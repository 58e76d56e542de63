"""Thousands of odd names go out to a file of every format and come back, or are refused."""

import csv
import gzip

import pytest
import rdflib

from betae import KnowledgeGraph
from tests.graph.odd_names import odd_names

NAMES = odd_names()
ROWS = [(name, "r", before) for name, before in zip(NAMES, NAMES[-1:] + NAMES, strict=False)]
ROWS += [("b", name, name) for name in NAMES]
PREFIXES = {"x": "http://x.org/", "": "urn:x:", "a": "a:"}


def breaks_tsv(*names):
    return any(set(name) & set("\t\r\n") for name in names)


@pytest.fixture(scope="module")
def graph():
    graph = KnowledgeGraph.from_triples(ROWS)
    graph.prefixes = PREFIXES
    return graph


def test_the_names_are_there(graph):
    assert len(NAMES) == 6000
    assert set(graph.entities) == {*NAMES, "b"}
    assert set(graph.relations) == {*NAMES, "r"}


@pytest.mark.parametrize("name", ["f.csv", "f.parquet", "f.nt", "f.ttl", "f.csv.gz", "f.nt.gz"])
def test_every_name_comes_back(graph, tmp_path, name):
    graph.export(tmp_path / name)
    back = KnowledgeGraph.from_triples(tmp_path / name)
    assert back.fingerprint == graph.fingerprint
    is_zipped = (tmp_path / name).read_bytes().startswith(b"\x1f\x8b")
    assert is_zipped == name.endswith(".gz")


@pytest.mark.parametrize("name", ["facts.tsv", "facts.tsv.gz", "facts.txt"])
def test_every_name_that_tsv_can_hold_comes_back(tmp_path, name):
    graph = KnowledgeGraph.from_triples([row for row in ROWS if not breaks_tsv(*row)])
    assert graph.num_entities > 4900
    graph.export(tmp_path / name)
    assert KnowledgeGraph.from_triples(tmp_path / name).fingerprint == graph.fingerprint


@pytest.mark.parametrize("name", ["facts.csv", "facts.tsv"])
def test_every_name_that_another_writer_wrote_is_read(tmp_path, name):
    is_csv = name == "facts.csv"
    rows = [row for row in ROWS if is_csv or not breaks_tsv(*row)]
    with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
        if is_csv:
            csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
        else:
            file.writelines("\t".join(row) + "\n" for row in rows)
    back = KnowledgeGraph.from_triples(tmp_path / name)
    assert back.fingerprint == KnowledgeGraph.from_triples(rows).fingerprint


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # rdflib warns of IRIs that it finds odd
@pytest.mark.parametrize("name", ["facts.nt", "facts.ttl"])
def test_another_reader_finds_as_many_triples(tmp_path, name):
    graph = KnowledgeGraph.from_triples(ROWS)  # no prefixes: rdflib does not know x:a\\. of Turtle
    graph.export(tmp_path / name)
    assert len(rdflib.Graph().parse(tmp_path / name)) == len(graph.written_ids["train"])


def test_the_same_graph_gives_the_same_bytes(toy_graph, tmp_path):
    toy_graph.export(tmp_path / "one.tsv.gz")
    toy_graph.export(tmp_path / "two.tsv.gz")
    assert (tmp_path / "one.tsv.gz").read_bytes() == (tmp_path / "two.tsv.gz").read_bytes()
    toy_graph.export(tmp_path / "plain.tsv")
    plain = (tmp_path / "plain.tsv").read_bytes()
    assert gzip.decompress((tmp_path / "one.tsv.gz").read_bytes()) == plain


def test_only_what_betae_has_encoded_is_decoded(write):
    others = ["urn:betae:", "urn:betae:%FF", "urn:betae:%FE", "urn:betae:%61"]
    text = "".join(f"<{iri}> <x:r> <urn:betae:a> .\n" for iri in [*others, "urn:betae:a%20b"])
    graph = KnowledgeGraph.from_triples(write("facts.nt", text))
    assert set(graph.entities) == {*others, "a", "a b"}
