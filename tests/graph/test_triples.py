import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.errors import InvalidArgument, TripleError
from betae.graph.edges import SPLITS
from betae.graph.triples import read_triples, split_triples


def named(triples, split="train"):
    """Return the triples of a split as a list of names."""
    entities, relations = triples.entities, triples.relations
    rows = triples.splits[split].tolist()
    return [(entities[head], relations[relation], entities[tail]) for head, relation, tail in rows]


# ---- reading ------------------------------------------------------------------------------------


def test_names_are_numbered_in_sorted_order(write):
    triples = read_triples(write("facts.tsv", "é\tz\tb\nZ\ta\té\n"))
    assert triples.entities == ["Z", "b", "é"]
    assert triples.relations == ["a", "z"]
    assert triples.splits["train"].tolist() == [[0, 0, 2], [2, 1, 1]]
    assert triples.splits["train"].dtype == np.int32
    assert triples.splits["valid"].shape == triples.splits["test"].shape == (0, 3)


def test_order_and_files_do_not_matter(write):
    one = read_triples(write("all.tsv", "a\tr\tb\nb\tr\tc\nc\ts\ta\n"))
    two = read_triples(write("x.csv", "c,s,a\n"), write("y.tsv.gz", "b\tr\tc\na\tr\tb\n"))
    fingerprints = {KnowledgeGraph.from_triples(triples).fingerprint for triples in (one, two)}
    assert len(fingerprints) == 1


def test_the_fingerprint_tells_graphs_apart(write):
    texts = ["a\tr\tb\n", "b\tr\ta\n", "a\tr\tc\n", "a\ts\tb\n", "a\tr\tb\na\tr\ta\n"]
    graphs = [read_triples(write(f"{i}.tsv", text)) for i, text in enumerate(texts)]
    facts, more = write("facts.tsv", "a\tr\tb\n"), write("more.tsv", "a\tr\ta\n")
    graphs += [read_triples(facts, valid=more), read_triples(facts, test=more)]
    fingerprints = {KnowledgeGraph.from_triples(triples).fingerprint for triples in graphs}
    assert len(fingerprints) == len(graphs)


def test_duplicates_are_dropped_and_counted(write):
    train = write("train.tsv", "a\tr\tb\na\tr\tb\nb\tr\ta\na\tr\tb\n")
    again = write("again.csv", "b,r,a\n")
    triples = read_triples(train, again)
    assert named(triples) == [("a", "r", "b"), ("b", "r", "a")]
    assert (triples.report.read, triples.report.duplicates) == (5, 3)
    assert triples.report.repeated_across_splits == 0


def test_triples_repeated_across_splits_stay_in_the_earliest(write):
    triples = read_triples(
        write("train.tsv", "a\tr\tb\n"),
        valid=write("valid.tsv", "a\tr\tb\nb\tr\ta\nb\tr\ta\n"),
        test=write("test.tsv", "b\tr\ta\na\tr\tb\na\tr\ta\n"),
    )
    assert [named(triples, split) for split in SPLITS] == [
        [("a", "r", "b")],
        [("b", "r", "a")],
        [("a", "r", "a")],
    ]
    assert triples.report.repeated_across_splits == 3
    assert triples.report.duplicates == 1
    assert triples.report.read == 7


def test_what_train_does_not_mention_is_counted(write):
    triples = read_triples(
        write("train.tsv", "a\tr\tb\n"), valid=write("valid.tsv", "a\ts\tc\nd\tr\tb\n")
    )
    assert triples.report.unseen_in_train == 3  # s, c and d
    assert triples.entities == ["a", "b", "c", "d"]


# ---- splitting ----------------------------------------------------------------------------------

graphs = st.sets(
    st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=60
)
fractions = st.floats(0, 0.49)


def as_set(part):
    return set(map(tuple, part.tolist()))


@given(graphs, fractions, fractions, st.integers(0, 99))
def test_a_split_keeps_everything_and_every_name_in_train(triples, valid, test, seed):
    array = np.array(sorted(triples), dtype=np.int32)
    parts = split_triples(array, valid, test, seed=seed)
    train, valid_part, test_part = map(as_set, parts)
    assert train | valid_part | test_part == triples
    assert sum(map(len, parts)) == len(triples)  # so they are disjoint
    for part in parts:
        assert part.tolist() == sorted(part.tolist())
    assert {e for h, _, t in train for e in (h, t)} == {e for h, _, t in triples for e in (h, t)}
    assert {r for _, r, _ in train} == {r for _, r, _ in triples}
    assert len(valid_part) <= round(valid * len(triples))
    again = split_triples(array, valid, test, seed=seed)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


def dense_facts(write, num_entities=20):
    pairs = [(a, b) for a in range(num_entities) for b in range(num_entities)]
    return write("dense.tsv", "".join(f"e{a}\tr{(a + b) % 3}\te{b}\n" for a, b in pairs))


def test_sizes_and_seeds(write):
    path = dense_facts(write)
    triples = read_triples(path, valid=0.1, test=0.2, seed=7)
    assert {s: len(part) for s, part in triples.splits.items()} == {
        "train": 280,
        "valid": 40,
        "test": 80,
    }
    assert triples.report.unseen_in_train == 0
    same = read_triples(path, valid=0.1, test=0.2, seed=7)
    other = read_triples(path, valid=0.1, test=0.2, seed=8)
    assert np.array_equal(triples.splits["test"], same.splits["test"])
    assert not np.array_equal(triples.splits["test"], other.splits["test"])


def test_a_fraction_beside_a_file(write):
    test = write("test.tsv", "e0\tr9\te1\n")
    triples = read_triples(dense_facts(write), valid=0.1, test=test)
    assert len(triples.splits["valid"]) == 40
    assert named(triples, "test") == [("e0", "r9", "e1")]


def test_a_sparse_graph_gives_fewer_in_proportion(write):
    """A star of 10 edges and 6 more between its ends: at most the 6 or so can be spared."""
    star = [f"hub\tr\te{i}\n" for i in range(10)]
    extra = [f"e{i}\tr\te{i + 1}\n" for i in range(6)]
    triples = read_triples(write("star.tsv", "".join(star + extra)), valid=0.4, test=0.4)
    sizes = [len(triples.splits[split]) for split in SPLITS]
    assert sum(sizes) == 16
    assert triples.report.unseen_in_train == 0
    assert sizes[1] > 0
    assert abs(sizes[1] - sizes[2]) <= 1


@pytest.mark.parametrize(
    ("valid", "test"),
    [(-0.1, 0), (0, -0.1), (1, 0), (0.5, 0.5), (0, 1.5), (0.7, 0.7), (float("nan"), 0)],
)
def test_bad_fractions_are_refused(write, valid, test):
    with pytest.raises(InvalidArgument, match="fractions of valid and test"):
        read_triples(dense_facts(write), valid=valid, test=test)


def test_a_negative_seed_is_refused(write):
    with pytest.raises(InvalidArgument, match="seed"):
        read_triples(dense_facts(write), valid=0.1, seed=-1)


# ---- in, out and in again -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\rb"])
def test_tsv_refuses_what_it_cannot_hold(tmp_path, name):
    graph = KnowledgeGraph.from_triples([("x", "r", "y"), (name, "r", "b")])
    with pytest.raises(
        TripleError, match=r"does not survive TSV.*Write \.csv, \.parquet or"
    ) as info:
        graph.export(tmp_path / "out.tsv")
    assert repr(name) in str(info.value)
    assert not list(tmp_path.iterdir())


def test_export_of_single_splits(toy_folder, toy_graph, tmp_path):
    for split in SPLITS:
        toy_graph.export(tmp_path / "out.tsv", [split])
        lines = (toy_folder / f"{split}.tsv").read_text().splitlines()
        expected = {tuple(line.split("\t")) for line in lines}
        assert set(named(read_triples(tmp_path / "out.tsv"))) == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("out.rdf", "cannot write '.rdf'"),
        ("out", "the name has no ending"),
        ("out.parquet.gz", "cannot write '.parquet.gz'"),
    ],
)
def test_export_refuses_other_formats(toy_graph, tmp_path, name, words):
    with pytest.raises(TripleError, match=re.escape(words)):
        toy_graph.export(tmp_path / name)
    assert not list(tmp_path.glob("out*"))


def test_export_replaces_a_file_whole(toy_graph, tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")
    toy_graph.export(path)
    assert len(named(read_triples(path))) == 18
    assert not list(tmp_path.glob(".*"))
