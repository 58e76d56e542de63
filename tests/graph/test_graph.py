import hashlib
import json

import pytest

from betae import KnowledgeGraph, read_triples
from betae.graph.describe import describe_graph
from betae.graph.edges import EDGES, SPLITS


def test_save_and_open_give_the_same_graph(toy_graph, toy_store, assert_same_graph):
    assert_same_graph(toy_graph, KnowledgeGraph.open(toy_store))
    assert_same_graph(toy_graph, KnowledgeGraph.open(str(toy_store), verify=False))


def test_the_manifest_tells_counts_version_and_checksums(toy_graph, toy_store):
    manifest = json.loads((toy_store / "manifest.json").read_text())
    assert manifest["kind"] == "graph"
    assert manifest["version"] == 2
    assert manifest["entities"] == 12
    assert manifest["relations"] == 4
    assert manifest["edges"] == {"train": 14, "valid": 2, "test": 2}
    assert manifest["fingerprint"] == toy_graph.fingerprint
    assert {path.name for path in toy_store.glob("*.npy")} == set(manifest["parts"])
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
        expected = 2 * sum(len(graph.splits[split]) for split in members)
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
        assert list(map(tuple, toy_graph.splits[split].tolist())) == expected


def test_description_of_the_toy_graph(toy_graph, toy_folder):
    facts = [
        line.split("\t")
        for split in SPLITS
        for line in (toy_folder / f"{split}.tsv").read_text().splitlines()
    ]
    ends = [end for head, _, tail in facts for end in (head, tail)]
    degrees = sorted(ends.count(name) for name in set(ends))
    description = describe_graph(toy_graph, num_frequent=2)
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
    assert description.frequent_relations == {"lives_in": 6, "parent": 6}
    assert description.fingerprint == toy_graph.fingerprint


def test_entities_without_a_training_edge_are_counted(write):
    triples = read_triples(write("a.tsv", "a\tr\tb\n"), test=write("b.tsv", "c\tr\td\n"))
    assert describe_graph(KnowledgeGraph.from_triples(triples)).isolated_in_train == 2
