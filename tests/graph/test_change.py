"""Edges added and removed: ids stay, the rest is as if read at once; runs know the graph."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.errors import InvalidArgument
from betae.graph.change import append_triples, remove_triples
from betae.graph.edges import EDGES, SPLITS
from betae.graph.triples import Triples, read_triples
from betae.queries.ast import Entity, Project, nodes
from betae.queries.structures import STRUCTURES
from betae.querysets.sample import sample_queries
from betae.run import Run
from betae.training import loop
from betae.training.folder import RunFolder
from tests.cli.test_cli import flat, run
from tests.manifests import edit_manifest
from tests.queries.strategies import examples, graphs
from tests.training.helpers import small_config, small_graph, validation_queries

# A new entity and a new relation that sort before others; an edge of train, and one of valid.
MORE = "abe\tadores\tfay\nabe\tlives_in\tOslo\nann\tparent\tbob\ncat\tlives_in\tLima\n"


def by_name(graph, split):
    edges = graph.written_ids[split].tolist()
    return {(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in edges}


def adjacency_by_name(graph, edges):
    """The directed edges that count, as its adjacency has them."""
    return sorted(
        (
            graph.entities[head],
            "~" * (relation % 2) + graph.relations[relation // 2],
            graph.entities[int(tail)],
        )
        for head, relation in np.ndindex(graph.num_entities, graph.num_relations)
        for tail in graph.adjacency(edges).neighbours(head, relation)
    )


def triples_of(train, valid=(), test=()):
    """Edges by name as a reader gives them: distinct, sorted, names numbered in sorted order."""
    everything = [*train, *valid, *test]
    entities = sorted({end for head, _, tail in everything for end in (head, tail)})
    relations = sorted({relation for _, relation, _ in everything})
    splits = {}
    for split, edges in zip(SPLITS, (train, valid, test), strict=True):
        rows = {(entities.index(h), relations.index(r), entities.index(t)) for h, r, t in edges}
        splits[split] = np.array(sorted(rows), dtype=np.int32).reshape(-1, 3)
    return Triples(entities, relations, splits)


@st.composite
def additions(draw, graph, most=12):
    """Edges by name to add to a graph: among its names and new ones, some already there."""
    entities, relations = ["a0", *graph.entities, "z0", "z1"], ["a0", *graph.relations, "z0"]
    edge = st.tuples(*map(st.sampled_from, (entities, relations, entities)))
    there = sorted(set().union(*(by_name(graph, split) for split in SPLITS)))
    return draw(st.lists(edge | st.sampled_from(there) if there else edge, max_size=most))


def contents(folder):
    """Every file and folder below a folder, with its bytes."""
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def append(graph, file, *arguments):
    result = run("ingest", file, "--append", "--out", graph, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return flat(result.output)


# ---- append ---------------------------------------------------------------------------------


@examples(60)
@given(graph=graphs(), data=st.data())
def test_a_graph_with_added_edges_is_that_of_all_edges_with_the_old_ids(graph, data):
    train, valid, test = (by_name(graph, split) for split in SPLITS)
    for _ in range(2):
        before, added = graph, data.draw(additions(graph))
        graph, is_same = append_triples(before, triples_of(added)), train.issuperset(added)
        train, valid, test = train.union(added), valid.difference(added), test.difference(added)
        assert (graph.fingerprint == before.fingerprint) == is_same
        of_added = {end for head, _, tail in added for end in (head, tail)}
        for names, old, new in (
            (graph.entities, before.entities, of_added),
            (graph.relations, before.relations, {relation for _, relation, _ in added}),
        ):
            assert list(names)[: len(old)] == list(old)
            assert sorted(names) == sorted({*old, *new})
        scratch = KnowledgeGraph.from_triples(triples_of(train, valid, test))
        for split in SPLITS:
            assert by_name(graph, split) == by_name(scratch, split)
            rows = list(map(tuple, graph.written_ids[split].tolist()))
            assert rows == sorted(set(rows))
        for edges in EDGES:
            assert adjacency_by_name(graph, edges) == adjacency_by_name(scratch, edges)


def test_labels_are_kept_and_added(toy_graph, write):
    labels = write("labels.tsv", "abe\tAbe Ray\nadores\tis fond of\ncat\tCat Lee\n")
    graph = append_triples(toy_graph, read_triples(write("more.tsv", MORE), labels=labels))
    graph = append_triples(graph, read_triples(write("more.tsv", "Oslo\tin\tEurope\n")))
    before = {name: toy_graph.entity_label(i) for i, name in enumerate(toy_graph.entities)}
    told = {name: graph.entity_label(i) for i, name in enumerate(graph.entities)}
    assert told == before | {"cat": "Cat Lee", "abe": "Abe Ray", "Europe": "Europe"}
    assert graph.relation_id("~is fond of") == graph.relation_id("~adores")


def test_ancestors_are_kept_on_disk_and_through_appends(toy_graph, write, tmp_path):
    first = append_triples(toy_graph, read_triples(write("more.tsv", MORE)))
    first.save(tmp_path / "graph")
    opened = KnowledgeGraph.open(tmp_path / "graph")
    assert opened.ancestors == first.ancestors == (toy_graph.fingerprint,)
    second = append_triples(opened, read_triples(write("more.tsv", "abe\tadores\tann\n")))
    assert second.ancestors == (toy_graph.fingerprint, first.fingerprint)


def test_adding_what_is_there_changes_nothing(toy_graph, write, assert_same_graph):
    first = append_triples(toy_graph, read_triples(write("more.tsv", MORE)))
    again = append_triples(first, read_triples(write("more.tsv", MORE)))
    assert_same_graph(again, first)
    assert again.ancestors == first.ancestors


def test_a_graph_of_an_older_betae_opens(toy_store, toy_graph, write):
    edit_manifest(toy_store, lambda manifest: manifest.pop("ancestors"))
    graph = append_triples(KnowledgeGraph.open(toy_store), read_triples(write("more.tsv", MORE)))
    assert graph.ancestors == (toy_graph.fingerprint,)


# ---- betae ingest --append --------------------------------------------------------------------


def test_append_says_what_it_added(toy_store, toy_folder, write):
    file = write("more.tsv", MORE + "abe\tlives_in\tOslo\n")
    told, appended = append(toy_store, file), KnowledgeGraph.open(toy_store)
    held_out = {split: toy_folder / f"{split}.tsv" for split in ("valid", "test")}
    together = KnowledgeGraph.from_triples(read_triples(toy_folder / "train.tsv", file, **held_out))
    for edges in EDGES:
        assert adjacency_by_name(appended, edges) == adjacency_by_name(together, edges)
    moved = "3 training edges added, 1 of them held out before"
    news = ("1 new entities", "1 new relations", repr(together))
    for words in ("5 read", "1 duplicates", moved, *news):
        assert words in told
    assert "0 training edges added, 0 of them held out before" in append(toy_store, file)
    assert [path.name for path in toy_store.parent.iterdir()] == ["toy"]


def test_a_label_of_an_entity_of_the_graph_is_used(toy_store, write):
    labels = write("labels.tsv", "dan\tDan Lee\nzed\tNobody\n")
    told = append(toy_store, write("more.tsv", MORE), "--labels", labels)
    graph = KnowledgeGraph.open(toy_store)
    assert graph.entity_id("Dan Lee") == graph.entity_id("dan")
    assert "1 labels unused" in told


STORE = "stores/toy"
ONLY_EDGES = "--append adds training edges from files: no folder, --valid, --test or --overwrite"


@pytest.mark.parametrize(
    ("arguments", "target", "message"),
    [
        (["more.tsv", "--valid", "0.1"], STORE, ONLY_EDGES),
        (["more.tsv", "--test", "more.tsv"], STORE, ONLY_EDGES),
        (["more.tsv", "--overwrite"], STORE, ONLY_EDGES),
        (["more.tsv", "toy"], STORE, ONLY_EDGES),
        (["more.tsv", "bad.tsv"], STORE, "bad.tsv, line 2: 2 columns, 3 expected"),
        (["bad.nt"], STORE, "bad.nt, line 2: not valid"),
        (["more.tsv"], "nowhere", "nowhere is not a betae graph"),
        (["more.tsv"], "toy", "toy is not a betae graph"),
        (["more.tsv"], "queries", "queries holds a query set, not a graph"),
    ],
)
@pytest.mark.usefixtures("toy_store")
def test_what_cannot_be_added_leaves_everything(
    toy_graph, write, tmp_path, monkeypatch, arguments, target, message
):
    write("more.tsv", MORE)
    write("bad.tsv", "abe\tadores\tfay\nabe\tadores\n")
    write("bad.nt", "<x:a> <x:r> <x:b> .\n<x:a> <x:r> .\n")
    sample_queries(toy_graph, {"1p": 2}).save(tmp_path / "queries")
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path)
    result = run("ingest", *arguments, "--append", "--out", target)
    assert message in str(result.exception)
    assert contents(tmp_path) == before


# ---- a run on the graph before ----------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A graph, a run of 20 steps on it, and queries."""
    folder, threads = tmp_path_factory.mktemp("made"), torch.get_num_threads()
    torch.set_num_threads(1)  # faster
    small_graph().save(folder / "graph")
    graph = KnowledgeGraph.open(folder / "graph")
    validation_queries(graph).save(folder / "queries")
    loop.fit(
        graph, small_config(steps=20), RunFolder(folder / "run"), valid=validation_queries(graph)
    )
    torch.set_num_threads(threads)
    return folder


@pytest.fixture
def grown(made, tmp_path, write, monkeypatch):
    """A copy of it whose graph has gained edges of old and new names, twice."""
    monkeypatch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 5)
    monkeypatch.setattr("betae.querysets.sample.WALK_BATCH", 256)
    folder = shutil.copytree(made, tmp_path / "made")
    append(folder / "graph", write("more.tsv", "e1\tr0\te2\ne1\tr0\tx\nx\tlikes\te3\n"))
    append(folder / "graph", write("more.tsv", "e1\tr0\ty\n"))
    return folder


def known(folder):
    answers = Run.open(folder / "run").answerer().answer("?X . r0(e1, ?X)", 50, status="known")
    return {answer.entity for answer in answers}


@pytest.mark.slow
def test_a_run_answers_on_the_grown_graph(made, grown):
    assert "e2" not in known(made)
    assert known(grown) == known(made) | {"e2", "x", "y"}


def test_a_run_answers_without_removed_edges(grown, write):
    before = known(grown)
    file = write("gone.tsv", "e1\tr0\te2\ne1\tr0\ty\n")
    assert run("ingest", file, "--remove", "--out", grown / "graph").exit_code == 0
    assert known(grown) == before - {"e2", "y"}


def test_anything_else_is_refused_on_the_grown_graph(grown):
    message = (
        r"graph has gained or lost edges since .*run was trained\. The run still answers questions"
    )
    with pytest.raises(InvalidArgument, match=message):
        RunFolder(grown / "run").open_graph()
    assert len(RunFolder(grown / "run").open_graph(may_have_grown=True).ancestors) == 2
    with pytest.raises(InvalidArgument, match=message):
        raise run("eval", grown / "run", "--queries", grown / "queries").exception
    graph, before = KnowledgeGraph.open(grown / "graph"), contents(grown)
    with pytest.raises(InvalidArgument, match="was trained on another graph"):
        loop.fit(graph, small_config(steps=20), RunFolder(grown / "run"), resume=True)
    assert contents(grown) == before


def test_a_graph_that_did_not_grow_from_that_of_the_run_is_refused(made, tmp_path, write):
    more = read_triples(write("more.tsv", "e1\tr0\tx\n"))
    append_triples(small_graph(seed=1), more).save(tmp_path / "other")
    for may_have_grown in (False, True):
        with pytest.raises(InvalidArgument, match="was trained on another graph than"):
            RunFolder(made / "run").open_graph(tmp_path / "other", may_have_grown=may_have_grown)


# ---- queries within the graph before ----------------------------------------------------------


@pytest.mark.parametrize(
    "structures", [tuple(STRUCTURES), ("?X . _(x, ?X)", "?X . r0(e1, ?X) & _(?X, _)")], ids=len
)
def test_queries_within_have_no_names_and_answers_beyond(grown, structures):
    queries = sample_queries(KnowledgeGraph.open(grown / "graph"), dict.fromkeys(structures, 20))
    for limits in ((30, 6), (20, 6), (30, 4)):
        expected = []
        for query, easy, hard in queries:
            entities = [node.name for node in nodes(query) if isinstance(node, Entity)]
            relations = [node.relation for node in nodes(query) if isinstance(node, Project)]
            if max([*entities, *easy, *hard]) < limits[0] and max(relations) < limits[1]:
                expected.append((query, set(easy), set(hard)))
        found = queries.within(*limits)
        assert [(query, set(easy), set(hard)) for query, easy, hard in found] == expected
        assert 0 < len(found) < len(queries)


# ---- removal -------------------------------------------------------------------------------------


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
    assert smaller.entities.labels_of(0) == graph.entities.labels_of(0)
    assert len(smaller.entities.labels_of(0)) == 2


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
    assert len(graph.without([("_:x", "x:r", "x:a")]).written_ids["train"]) == 1


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
        "2 edges not found",
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
    assert "5 edges not found" in again


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--append"], "--remove cannot be combined with --append or --labels"),
        (["--labels", "gone.tsv"], "--remove cannot be combined with --append or --labels"),
        (["--valid", "0.1"], "--remove removes edges from files: no folder"),
        (["--overwrite"], "--remove removes edges from files: no folder"),
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
