"""Edges removed from a graph: ids stay, the rest is as if they had never been there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import InvalidArgument, KnowledgeGraph, read_triples
from betae.graph.edges import EDGES, SPLITS
from betae.graph.remove import remove_triples
from tests.cli.test_cli import flat, run
from tests.graph.test_append import adjacency_by_name, by_name, contents, triples_of
from tests.queries.strategies import examples, graphs

GONE = [("ann", "parent", "bob"), ("cat", "lives_in", "Lima"), ("eve", "friend", "dan")]


@examples(40)
@given(graph=graphs(), data=st.data())
def test_a_graph_without_edges_is_that_of_the_others_with_the_old_ids(graph, data):
    there = sorted(set().union(*(by_name(graph, split) for split in SPLITS)))
    names = st.sampled_from([*graph.entities, "new"])
    other = st.tuples(names, st.sampled_from([*graph.relations, "new"]), names)
    gone = data.draw(st.lists(st.sampled_from(there) | other if there else other, min_size=1))
    rest = [by_name(graph, split) - set(gone) for split in SPLITS]
    if not rest[0]:
        with pytest.raises(InvalidArgument, match="No training edge would be left"):
            graph.without(gone)
        return
    smaller, report = remove_triples(graph, gone)
    assert list(smaller.entities) == list(graph.entities)
    assert list(smaller.relations) == list(graph.relations)
    assert [by_name(smaller, split) for split in SPLITS] == rest
    scratch = KnowledgeGraph.from_triples(triples_of(*rest))
    for edges in EDGES:
        assert adjacency_by_name(smaller, edges) == adjacency_by_name(scratch, edges)
    num_removed = len(set(gone) & set(there))
    assert sum(report.removed.values()) == num_removed
    assert report.absent == len(set(gone)) - num_removed
    grew = (graph.fingerprint,) if num_removed else ()
    assert smaller.ancestors == (*graph.ancestors, *grew)


def test_what_was_added_can_be_removed_again(toy_graph):
    more = [("ann", "friend", "eve"), ("new", "friend", "ann")]
    back = toy_graph.extended(more).without(more)
    for split in SPLITS:
        assert by_name(back, split) == by_name(toy_graph, split)
    assert toy_graph.extended(more).entity_id("new") == back.entity_id("new") == 12


def test_labels_and_prefixes_stay(write):
    turtle = """@prefix : <http://x.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    :a :r :b , :c . :a rdfs:label "One"@en , "Eins"@de ."""
    graph = KnowledgeGraph.from_triples(write("facts.ttl", turtle))
    smaller = graph.without([("http://x.org/a", "http://x.org/r", "http://x.org/b")])
    assert smaller.prefixes == graph.prefixes
    assert smaller.labels_of_entity(0) == graph.labels_of_entity(0)
    assert len(smaller.labels_of_entity(0)) == 2


def test_unknown_names_are_explained(toy_graph):
    gone = [("anne", "parent", "bob"), ("ann", "parents", "bob"), ("Ann Lee", "parent", "bob")]
    _, report = remove_triples(toy_graph, [*gone, GONE[0]])
    assert (report.absent, report.num_unknown) == (3, 3)
    told = " ".join(report.unknown)
    assert "no entity 'anne'. Closest: 'ann'" in told
    assert "no relation 'parents'. Closest: 'parent'" in told
    assert "'Ann Lee' is a label: edges are removed by name" in told


def test_only_a_few_unknown_names_are_explained(toy_graph):
    gone = [(f"x{i}", "parent", "bob") for i in range(50)]
    _, report = remove_triples(toy_graph, gone)
    assert (report.absent, report.num_unknown, len(report.unknown)) == (50, 50, 5)


def test_a_blank_node_of_a_file_is_not_one_of_the_graph(write):
    graph = KnowledgeGraph.from_triples(write("a.nt", "_:x <x:r> <x:a> .\n_:x <x:r> <x:b> .\n"))
    with pytest.raises(InvalidArgument, match=r"blank node .*_:x.* in a TSV or CSV"):
        graph.without(write("gone.nt", "_:x <x:r> <x:a> .\n"))
    assert len(graph.without([("_:x", "x:r", "x:a")]).splits["train"]) == 1


# ---- betae ingest --remove ----------------------------------------------------------------------


def test_remove_says_what_it_removed(toy_store, write):
    rows = [*GONE, GONE[0], ("ann", "parent", "Oslo"), ("ann", "parent", "Osloo")]
    file = write("gone.tsv", "".join("\t".join(row) + "\n" for row in rows))
    before = KnowledgeGraph.open(toy_store)
    result = run("ingest", "--remove", file, "--out", toy_store)
    assert result.exit_code == 0, result.exception
    told = flat(result.output)
    for words in (
        "6 read",
        "1 duplicates",
        "3 edges removed (1 train, 1 valid, 1 test)",
        "2 edges were not there",
        "The graph has no entity 'Osloo'. Closest: 'Oslo'",
        "13 train + 1 valid + 1 test edges",
    ):
        assert words in told
    graph = KnowledgeGraph.open(toy_store)
    assert graph.ancestors == (before.fingerprint,)
    assert {row for split in SPLITS for row in by_name(graph, split)} == {
        row for split in SPLITS for row in by_name(before, split)
    } - set(GONE)
    again = flat(run("ingest", "--remove", file, "--out", toy_store).output)
    assert "0 edges removed" in again
    assert "5 edges were not there" in again


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--append"], "no --append, no --labels"),
        (["--labels", "gone.tsv"], "no --append, no --labels"),
        (["--valid", "0.1"], "--remove removes files of edges: no folder"),
        (["--overwrite"], "--remove removes files of edges: no folder"),
    ],
)
def test_what_cannot_be_removed_leaves_everything(
    toy_store, write, tmp_path, monkeypatch, arguments, message
):
    write("gone.tsv", "ann\tparent\tbob\n")
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path)
    result = run("ingest", "gone.tsv", "--remove", "--out", toy_store, *arguments)
    assert message in str(result.exception)
    assert contents(tmp_path) == before


def test_all_training_edges_cannot_be_removed(toy_store, toy_folder):
    before = contents(toy_store)
    result = run("ingest", toy_folder / "train.tsv", "--remove", "--out", toy_store)
    assert "No training edge would be left" in str(result.exception)
    assert contents(toy_store) == before


# ---- blank nodes of appended files --------------------------------------------------------------


def test_blank_nodes_are_new_each_time(write):
    file = write("facts.nt", "_:x <x:r> <x:a> .\n")
    graph = KnowledgeGraph.from_triples(file)
    assert graph.extended(file).num_entities == 3
    assert graph.extended(file).extended(read_triples(file)).num_entities == 4
    # A name of a table is a name: it leads to the node that has it.
    assert graph.extended([("_:x", "x:r", "x:b")]).num_entities == 3


def test_blank_nodes_of_an_exported_graph_are_not_taken_for_new_ones(write, tmp_path):
    file = write("facts.nt", "_:x <x:r> <x:a> .\n")
    KnowledgeGraph.from_triples(file).extended(file).export(tmp_path / "all.nt")
    again = KnowledgeGraph.from_triples(tmp_path / "all.nt")
    assert not again.ancestors
    assert again.extended(file).num_entities == 4
