"""ingest and export: headers, comments, standard input and output, what is said of them."""

import gzip
import os
import subprocess
import sys

import pytest
import typer.testing

from betae import KnowledgeGraph, cli
from betae.errors import InvalidArgument
from betae.graph.triples import read_triples
from tests.cli.test_cli import flat, run


def ingest(*arguments, **options):
    result = typer.testing.CliRunner().invoke(cli.app, ["ingest", *map(str, arguments)], **options)
    assert result.exit_code == 0, (result.output, result.exception)
    return flat(result.output)


def edges(folder):
    return sorted(KnowledgeGraph.open(folder).to_polars().rows())


# ---- what is read, and what is said of it -------------------------------------------------------


def test_what_is_taken_for_a_header_is_said(write, tmp_path):
    facts = write("facts.csv", "object,predicate,subject\nb,r,a\n")
    told = ingest(facts, "--out", tmp_path / "graph")
    assert f"{facts} has a header: object, predicate, subject" in told
    assert edges(tmp_path / "graph") == [("a", "r", "b")]
    plain = write("plain.csv", "a,r,b\n")
    assert "header" not in ingest(plain, "--out", tmp_path / "other")


@pytest.mark.parametrize(
    ("line", "is_doubtful"),
    [
        ("person,relation,company", True),
        ("who,predicate_name,what", True),
        ("source,kind,target", True),
        ("Oslo,type,City", False),
        ("head,part_of,body", False),
        ("a,r,b", False),
    ],
)
def test_a_first_line_that_may_be_a_header_is_a_fact_and_said(write, tmp_path, line, is_doubtful):
    facts = write("facts.csv", f"{line}\nann,knows,bob\n")
    told = ingest(facts, "--out", tmp_path / "graph")
    assert tuple(line.split(",")) in edges(tmp_path / "graph")
    assert ("was read as a fact. If it is a header, name" in told) == is_doubtful


def test_a_header_is_shown_without_escape_sequences(write, tmp_path):
    facts = write("facts.csv", "head,relation,tail,\x1b[31mred\na,r,b,c\n")
    told = ingest(facts, "--out", tmp_path / "graph")
    assert "\x1b" not in told
    assert r"\x1b[31mred" in told


def test_everything_skipped_is_said(write, tmp_path):
    tsv = write("facts.tsv", "% c\na\tr\tb\n\na\tr\tb\n% d\n#MeToo\tr\tb\n")
    rdf = write("facts.nt", '<x:a> <x:r> <x:b> .\n<x:a> <x:r> "1" .\n')
    told = ingest(tsv, rdf, "--comment", "%", "--out", tmp_path / "graph")
    for words in ("4 read", "1 blank lines skipped", "2 comments skipped", "1 duplicates",
                  "1 literals"):  # fmt: skip
        assert words in told
    assert ("#MeToo", "r", "b") in edges(tmp_path / "graph")


def test_columns_and_delimiter(write, tmp_path):
    trips = write("trips.csv", "from;mode;to;price\nOslo;train;Bergen;500\n")
    by_name = "head=from,relation=mode,tail=to"
    told = ingest(trips, "--columns", by_name, "--delimiter", ";", "--out", tmp_path / "one")
    assert "has a header: from, mode, to, price" in told
    assert edges(tmp_path / "one") == [("Oslo", "train", "Bergen")]
    tabs = write("trips.csv", "b\tr\ta\n")
    numbers = "head=3,relation=2,tail=1"
    ingest(tabs, "--columns", numbers, "--delimiter", r"\t", "--out", tmp_path / "two")
    assert edges(tmp_path / "two") == [("a", "r", "b")]


def test_format_counts_instead_of_the_ending(write, tmp_path):
    ingest(write("facts.dat", "a,r,b\n"), "--format", "csv", "--out", tmp_path / "graph")
    assert edges(tmp_path / "graph") == [("a", "r", "b")]


# ---- standard input and output ------------------------------------------------------------------

NT = "<x:a> <x:r> <x:b> .\n"
INPUTS = {
    "tsv": ("x:a\tx:r\tx:b\n", "tsv"),
    "csv": ("x:a,x:r,x:b\n", "csv"),
    "header": ("\nobject,predicate,subject\nx:b,x:r,x:a\n", "csv"),
    "nt": (NT, "nt"),
    "ttl": ("@prefix x: <x:> .\nx:a x:r x:b .\n", "ttl"),
    "PREFIX": ("PREFIX x: <x:>\nx:a x:r x:b .\n", "ttl"),
    "jsonld": ('[{"@id": "x:a", "x:r": {"@id": "x:b"}}]', "jsonld"),
    "gzip": (gzip.compress(NT.encode(), mtime=0), "nt"),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("is_told", [False, True])
def test_standard_input_is_read(tmp_path, name, is_told):
    content, format = INPUTS[name]
    told = ["--format", format] if is_told else []
    said = ingest("-", *told, "--out", tmp_path / "graph", input=content)
    assert edges(tmp_path / "graph") == [("x:a", "x:r", "x:b")]
    assert "1 read" in said
    assert ("standard input has a header: object" in said) == (name == "header")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a r b\n", "standard input: unknown format"),
        ("a\tr\tb\na\tr\n", "standard input, line 2: 2 columns"),
        ("", "standard input: the file is empty"),
        (gzip.compress(NT.encode(), mtime=0)[:-9], "standard input: the gzip file is truncated"),
    ],
)
def test_bad_standard_input_is_named(tmp_path, content, words):
    arguments = ["ingest", "-", "--out", str(tmp_path / "graph")]
    result = typer.testing.CliRunner().invoke(cli.app, arguments, input=content)
    assert words in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_pipe_from_one_graph_to_another(toy_store, tmp_path):
    betae = [sys.executable, "-m", "betae"]
    for format in ("tsv", "csv", "nt", "ttl", "parquet"):
        command = [*betae, "export", str(toy_store), "-", "--format", format]
        exported = subprocess.run(command, capture_output=True, check=True, env=os.environ).stdout
        told = ["--format", format] if format == "ttl" else []  # without prefixes it looks like nt
        ingest("-", *told, "--out", tmp_path / format, input=exported)
        assert edges(tmp_path / format) == edges(toy_store)


def test_standard_output_is_tsv_unless_told(toy_store):
    out = run("export", toy_store, "-", "--split", "valid").stdout
    assert sorted(out.splitlines()[1:]) == ["cat\tlives_in\tLima", "dan\tfriend\tfay"]


# ---- RDF out ------------------------------------------------------------------------------------

TURTLE = """@prefix schema: <https://schema.org/> .
@prefix : <http://x.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:heat schema:director :mann .
:heat rdfs:label "Heat"@en, "Heiß"@de .
schema:director rdfs:label "directed by" .
[] schema:director :mann .
"""


@pytest.mark.parametrize("name", ["out.ttl", "out.ttl.gz", "out.nt"])
def test_rdf_keeps_labels_and_blank_nodes(write, tmp_path, name):
    ingest(write("film.ttl", TURTLE), "--out", tmp_path / "graph")
    before = KnowledgeGraph.open(tmp_path / "graph")
    assert run("export", tmp_path / "graph", tmp_path / name).exit_code == 0
    triples = read_triples(tmp_path / name)
    after = KnowledgeGraph.from_triples(triples)
    assert after.fingerprint == before.fingerprint
    assert len(triples.blank_nodes) == 1
    for graph in (before, after):
        heat = graph.entity_id("http://x.org/heat")
        assert [(each.text, each.language) for each in graph.entities.labels_of(heat)] == [
            ("Heat", "en"),
            ("Heiß", "de"),
        ]
        assert graph.entity_id("Heiß") == heat
        assert graph.relation_id("directed by") == 0
    if "ttl" in name:
        assert after.prefixes == before.prefixes
        assert before.prefixes["schema"] == "https://schema.org/"


# ---- in bounded memory --------------------------------------------------------------------------


def test_bounded_memory_gives_the_same_graph_and_says_the_same(toy_folder, tmp_path):
    held_out = ["--valid", toy_folder / "valid.tsv", "--test", toy_folder / "test.tsv"]
    sources = [toy_folder / "train.tsv", toy_folder / "train.tsv", *held_out]
    told = ingest(*sources, "--out", tmp_path / "one")
    bounded = ingest(*sources, "--memory", "1GB", "--out", tmp_path / "two")
    assert "14 duplicates" in told
    assert bounded == told.replace(str(tmp_path / "one"), str(tmp_path / "two"))
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()


def test_a_folder_of_files_is_read_with_and_without_bounded_memory(write, tmp_path):
    (tmp_path / "parts").mkdir()
    write("parts/1.tsv", "a\tr\tb\n")
    write("parts/2.csv", "b,r,c\n")
    for number, options in enumerate([[], ["--memory", "1GB"]]):
        ingest(tmp_path / "parts", *options, "--out", tmp_path / f"{number}")
        assert edges(tmp_path / f"{number}") == [("a", "r", "b"), ("b", "r", "c")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--memory", "lots"], "write it as 4GB"),
        (["--memory", "1MB"], "at least 512MB"),
        (["--memory", "1GB", "--append"], "no --append, --remove or --labels"),
        (["--memory", "1GB", "--labels", "facts.tsv"], "no --append, --remove or --labels"),
    ],
    ids=str,
)
def test_what_bounded_memory_does_not_do_is_refused(write, toy_store, options, words):
    facts = write("facts.tsv", "a\tr\tb\n")
    before = {path: path.read_bytes() for path in toy_store.iterdir()}
    extra = [] if "--append" in options else ["--overwrite"]
    result = run("ingest", facts, *options, *extra, "--out", toy_store)
    assert isinstance(result.exception, InvalidArgument)
    assert words in str(result.exception)
    assert {path: path.read_bytes() for path in toy_store.iterdir()} == before


@pytest.mark.parametrize("options", [["--memory", "1GB"], ["facts.tsv"]], ids=str)
def test_a_release_is_read_alone_and_in_memory(write, tmp_path, options):
    (tmp_path / "release").mkdir()
    write("release/id2ent.pkl", b"")
    result = run("ingest", tmp_path / "release", *options, "--out", tmp_path / "graph")
    assert isinstance(result.exception, InvalidArgument)
    assert "BetaE release" in str(result.exception)
