"""Graphs in memory and on disk; arrays that were changed together with their checksums."""

import hashlib
import json

import numpy as np
import pytest

from betae import KnowledgeGraph
from betae.errors import StoreError
from betae.graph.describe import describe_graph
from betae.graph.edges import EDGES, SPLITS
from betae.graph.triples import read_triples
from tests.manifests import approve_parts


def test_save_and_open_give_the_same_graph(toy_graph, toy_store, assert_same_graph):
    assert_same_graph(toy_graph, KnowledgeGraph.open(toy_store))
    assert_same_graph(toy_graph, KnowledgeGraph.open(str(toy_store), verify=False))


def test_the_manifest_tells_counts_version_and_checksums(toy_graph, toy_store):
    manifest = json.loads((toy_store / "manifest.json").read_text())
    assert manifest["kind"] == "graph"
    assert manifest["version"] == 3
    assert manifest["entities"] == 12
    assert manifest["relations"] == 4
    assert manifest["edges"] == {"train": 14, "valid": 2, "test": 2}
    assert manifest["fingerprint"] == toy_graph.fingerprint
    assert {path.name for path in toy_store.iterdir()} == {"manifest.json", *manifest["parts"]}
    for name, part in manifest["parts"].items():
        content = (toy_store / name).read_bytes()
        assert part["bytes"] == len(content)
        assert part["sha256"] == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("given", [(), ("valid",), ("test",), ("valid", "test")])
def test_empty_splits_survive_the_disk(toy_folder, tmp_path, given, assert_same_graph):
    files = {split: toy_folder / f"{split}.tsv" for split in given}
    graph = KnowledgeGraph.from_triples(read_triples(toy_folder / "train.tsv", **files))
    graph.save(tmp_path / "graph")
    opened = KnowledgeGraph.open(tmp_path / "graph")
    assert_same_graph(graph, opened)
    for edges, members in EDGES.items():
        expected = 2 * sum(len(graph.written_ids[split]) for split in members)
        assert len(opened.adjacency(edges).tails) == expected


def test_a_graph_shows_its_size(toy_graph):
    assert (
        repr(toy_graph)
        == "KnowledgeGraph(12 entities, 4 relations, 14 train + 2 valid + 2 test edges)"
    )


def test_splits_are_sorted_and_in_the_written_direction(toy_graph, toy_folder):
    for split in SPLITS:
        lines = (toy_folder / f"{split}.tsv").read_text().splitlines()
        expected = sorted(
            (
                toy_graph.entity_id(head),
                toy_graph.relation_id(relation) // 2,
                toy_graph.entity_id(tail),
            )
            for head, relation, tail in (line.split("\t") for line in lines)
        )
        assert list(map(tuple, toy_graph.written_ids[split].tolist())) == expected


def test_description_of_the_toy_graph(toy_graph, toy_folder):
    facts = [
        line.split("\t")
        for split in SPLITS
        for line in (toy_folder / f"{split}.tsv").read_text().splitlines()
    ]
    ends = [end for head, _, tail in facts for end in (head, tail)]
    degrees = sorted(ends.count(name) for name in set(ends))
    description = describe_graph(toy_graph)
    assert (description.entities, description.relations) == (12, 4)
    assert description.labelled
    assert description.edges == {"train": 14, "valid": 2, "test": 2}
    assert description.degree == {
        "min": degrees[0],
        "median": (degrees[5] + degrees[6]) / 2,
        "mean": sum(degrees) / 12,
        "max": degrees[-1],
    }
    assert description.isolated_in_train == 0
    assert [*description.frequent_relations.items()][:2] == [("lives_in", 6), ("parent", 6)]
    assert description.fingerprint == toy_graph.fingerprint


def test_entities_without_a_training_edge_are_counted(write):
    triples = read_triples(write("a.tsv", "a\tr\tb\n"), test=write("b.tsv", "c\tr\td\n"))
    assert describe_graph(KnowledgeGraph.from_triples(triples)).isolated_in_train == 2


# ---- arrays with a right checksum and wrong content ----------------------------------------------


def put(place, value):
    """Set one number of an array."""

    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


ORDER, INSIDE = "out of order", "has an id that is not from 0 to"
FAULTS = {
    "an entity too large in a split": ("train", put((3, 0), 12), INSIDE),
    "a relation too large in a split": ("valid", put((1, 1), 4), INSIDE),
    "a negative entity in a split": ("test", put((0, 2), -1), INSIDE),
    "a tail too large": ("train.tails", put(5, 12), INSIDE),
    "a negative tail": ("all.tails", put(5, -1), INSIDE),
    "a relation too large": ("train+valid.relations", put(0, 8), INSIDE),
    "a negative relation": ("train.relations", put(0, -1), INSIDE),
    "offsets of heads that fall": ("train.head_offsets", put(4, 1_000), ORDER),
    "a negative offset": ("train.head_offsets", put(4, -1), ORDER),
    "offsets of heads that end early": ("train.head_offsets", put(-1, 3), ORDER),
    "offsets of heads that end late": ("train.head_offsets", put(-1, 1_000), ORDER),
    "offsets that begin late": ("train.tail_offsets", put(0, 1), ORDER),
    "offsets of tails that fall": ("all.tail_offsets", put(2, 0), ORDER),
    "a pair without tails": ("all.tail_offsets", lambda old: put(2, old[1])(old), ORDER),
    "offsets that are too few": ("train.head_offsets", lambda old: old[1:], ORDER),
    "offsets of names that fall": ("entities.offsets", put(3, 0), ORDER),
    "names beyond the text": ("relations.offsets", put(-1, 10**6), ORDER),
    "an order beyond the names": ("entities.order", put(0, 12), "not an order of 12 names"),
    "too few labels": ("entity_labels.order", lambda old: old[:-1], "not an order of"),
    "floats for ids": ("train.tails", lambda old: old.astype(np.float32), "not an array of that"),
    "wide ids": ("train.tails", lambda old: old.astype(np.int64), "not an array of that kind"),
    "two columns": ("valid", lambda old: old[:, :2], "not an array of that kind"),
    "a single number": ("entities.order", lambda old: old[0], "not an array of that kind"),
}


@pytest.mark.parametrize("verify", [None, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(toy_store, fault, verify):
    name, change, words = FAULTS[fault]
    path = toy_store / f"{name}.npy"
    np.save(path, change(np.load(path)))
    approve_parts(toy_store)
    with pytest.raises(StoreError, match=f"toy is damaged: {name.replace('+', '.')}.*{words}"):
        KnowledgeGraph.open(toy_store, verify=verify)


def test_a_graph_of_training_edges_alone_is_sound(write, tmp_path):
    from betae.graph.triples import read_triples

    KnowledgeGraph.from_triples(read_triples(write("facts.tsv", "a\tr\tb\n"))).save(tmp_path / "g")
    assert KnowledgeGraph.open(tmp_path / "g").num_entities == 2
