import collections
import datetime
import os
import pickle
import re
import time
from pathlib import Path

import numpy as np
import pytest

from betae import KnowledgeGraph, world
from betae.datasets.release import is_release, read_pickle, read_release
from betae.errors import TripleError

# ---- the benchmark graphs -----------------------------------------------------------------------

COUNTS = {  # entities, relations, edges of train, valid, test, (head, relation) pairs of train
    "FB15k-237-betae": (14_505, 237, (272_115, 17_526, 20_438), 149_689),
    "NELL-betae": (63_361, 200, (114_213, 14_324, 14_267), 107_982),
    "FB15k-betae": (14_951, 1_345, (483_142, 50_000, 59_071), 273_710),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_benchmark_graphs_have_their_counts(shared_data, name):
    graph = KnowledgeGraph.from_triples(read_release(shared_data / name))
    entities, relations, edges, num_pairs = COUNTS[name]
    assert graph.num_entities == entities
    assert graph.num_relations == 2 * relations
    assert tuple(len(part) for part in graph.written_ids.values()) == edges
    adjacency = graph.adjacency("train")
    assert len(adjacency.relations) == num_pairs
    assert len(adjacency.tails) == 2 * edges[0]
    assert len(graph.adjacency("all").tails) == 2 * sum(edges)


def test_ids_stay_as_the_release_has_them(shared_data):
    folder = shared_data / "NELL-betae"
    graph = KnowledgeGraph.from_triples(read_release(folder))
    names, relations = read_pickle(folder / "id2ent.pkl"), read_pickle(folder / "id2rel.pkl")
    adjacency = graph.adjacency("train")
    with (folder / "train.txt").open() as lines:
        for line, _ in zip(lines, range(2000), strict=False):
            head, relation, tail = map(int, line.split())
            assert tail in adjacency.neighbours(head, relation)
            assert graph.entities[head] == names[head]
            assert graph.relations[relation // 2] in relations[relation]


@pytest.mark.slow
def test_a_benchmark_graph_is_saved_and_opens_at_once(shared_data, tmp_path, assert_same_graph):
    labels = shared_data / "names" / "FB15k_mid2name.txt"
    graph = KnowledgeGraph.from_triples(read_release(shared_data / "FB15k-237-betae", labels))
    graph.save(tmp_path / "graph")
    assert_same_graph(graph, KnowledgeGraph.open(tmp_path / "graph"))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        KnowledgeGraph.open(tmp_path / "graph", verify=False)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.1  # about 5 ms; ten times that on a busy machine


# ---- the release layout -------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Three entities, two relations, both directions of every edge."""
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "id2ent.pkl").write_bytes(pickle.dumps({0: "/m/a", 1: "/m/b", 2: "/m/c"}))
    names = {0: "+/x", 1: "-/x", 2: "y", 3: "y_reverse"}
    (folder / "id2rel.pkl").write_bytes(pickle.dumps(names))
    (folder / "train.txt").write_text("0\t0\t1\n1\t1\t0\n2\t2\t0\n0\t3\t2\n")
    (folder / "valid.txt").write_text("1\t0\t2\n2\t1\t1\n")
    (folder / "test.txt").write_text("0\t2\t2\n2\t3\t0\n")
    return folder


def test_a_release_is_read(release, write):
    assert is_release(release)
    assert not is_release(release.parent)
    triples = read_release(release, labels=write("labels.tsv", "/m/a\tAlpha\n"))
    assert triples.entities == ["/m/a", "/m/b", "/m/c"]
    assert triples.relations == ["/x", "y"]
    assert {split: part.tolist() for split, part in triples.splits.items()} == {
        "train": [[0, 0, 1], [2, 1, 0]],
        "valid": [[1, 0, 2]],
        "test": [[0, 1, 2]],
    }
    assert KnowledgeGraph.from_triples(triples).entity_id("Alpha") == 0


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("0\t0\t1\n1\t1\t0\n0\t0\t3\n", 3, "tail '3' is not an id from 0 to 2"),
        ("0\t0\t1\n\n  \n1\t1\t0\n7\t0\t1\n1\t1\t7\n", 5, "head '7' is not an id from 0 to 2"),
        ("0\t4\t1\n", 1, "relation '4' is not an id from 0 to 3"),
        ("0\t0\t1\n1\t1\t0\n-1\t0\t0\n", 3, "head '-1'"),
        ("0\t0\t1\n1\t1\tzero\n", 2, "tail 'zero'"),
        ("0\t0\t99999999999\n", 1, "tail '99999999999'"),
        ("0\t0\n", 1, "'valid' is not an id"),
        ("0\t0\t1\n", None, "not every edge has its inverse"),
        ("1\t1\t0\n", None, "not every edge has its inverse"),
        ("0\t0\t1\n1\t3\t0\n", None, "not every edge has its inverse"),
        ("", None, "empty"),
    ],
)
def test_bad_edges_of_a_release(release, text, line, words):
    (release / "valid.txt").write_text(text)
    with pytest.raises(TripleError, match=re.escape(words)) as info:
        read_release(release)
    assert (info.value.file, info.value.line) == (release / "valid.txt", line)


class Boom:
    """Pickles as a call of os.system."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_cannot_run_code(release, protocol):
    trace = release / "trace"
    content = pickle.dumps({0: Boom(trace)}, protocol=protocol)
    (release / "id2ent.pkl").write_bytes(content)
    with pytest.raises(TripleError, match=r"posix\.system|nt\.system") as info:
        read_release(release)
    assert info.value.file == release / "id2ent.pkl"
    assert not trace.exists()
    pickle.loads(content)  # the same bytes, trustingly read, do run it
    assert trace.exists()


@pytest.mark.parametrize(
    "thing", [datetime.date(2020, 1, 1), len, np.int64(3), collections.Counter("a"), eval, getattr]
)
def test_a_pickle_holds_plain_data_only(tmp_path, thing):
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps({0: thing}))
    with pytest.raises(TripleError, match="not plain data"):
        read_pickle(path)


def test_a_truncated_pickle_is_refused(release):
    path = release / "id2ent.pkl"
    sound = path.read_bytes()
    for end in range(len(sound)):
        path.write_bytes(sound[:end])
        with pytest.raises(TripleError, match="not a valid pickle") as info:
            read_release(release)
        assert info.value.file == path


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("id2ent.pkl", ["a", "b"], "dictionary"),
        ("id2ent.pkl", {1: "a", 2: "b"}, "dictionary"),
        ("id2ent.pkl", {0: "a", "1": "b"}, "dictionary"),
        ("id2ent.pkl", {0: 1, 1: 2, 2: 3}, "names"),
        ("id2ent.pkl", {0: "a", 1: "b", 2: "a"}, "'a' is the name of both 0 and 2"),
        ("id2ent.pkl", {0: "\ud800"}, "cannot be written as UTF-8"),
        ("id2rel.pkl", {0: "+/x", 1: "-/y"}, "'-/y' is not the inverse of '+/x'"),
        ("id2rel.pkl", {0: "+/x", 1: "-/x", 2: "+/y"}, "inverse"),
    ],
)
def test_bad_tables_of_a_release(release, file, data, words):
    (release / file).write_bytes(pickle.dumps(data))
    with pytest.raises(TripleError, match=re.escape(words)) as info:
        read_release(release)
    assert info.value.file == release / file


@pytest.mark.parametrize("file", ["id2ent.pkl", "id2rel.pkl", "train.txt", "test.txt"])
def test_a_release_without_a_file(release, file):
    (release / file).unlink()
    with pytest.raises(TripleError, match="there is no such file") as info:
        read_release(release)
    assert info.value.file == release / file


# ---- world --------------------------------------------------------------------------------------

WORLD = Path(__file__).parents[2] / "betae" / "datasets" / "world"


@pytest.fixture(scope="module")
def facts() -> dict[str, list[tuple[str, ...]]]:
    return {
        path.stem: [tuple(line.split("\t")) for line in path.read_text("utf-8").splitlines()]
        for path in WORLD.glob("*.tsv")
    }


def test_world_opens_with_every_fact(facts):
    graph = world()
    assert {split: len(part) for split, part in graph.written_ids.items()} == {
        split: len(rows) for split, rows in facts.items()
    }
    assert set(graph.entities) == {n for rows in facts.values() for h, _, t in rows for n in (h, t)}
    assert sum(map(len, facts.values())) > 2000


def test_world_hides_edges_but_no_names(facts):
    def names(rows):
        return {n for head, _, tail in rows for n in (head, tail)}, {r for _, r, _ in rows}

    assert len(facts["valid"]) > 100
    assert len(facts["test"]) > 100
    assert names(facts["train"]) == names([row for rows in facts.values() for row in rows])
    rows = [row for rows in facts.values() for row in rows]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    "fact",
    [
        ("France", "capital", "Paris"),
        ("Germany", "located_in", "Europe"),
        ("France", "borders", "Spain"),
        ("Brazil", "official_language", "Portuguese language"),
        ("2014 FIFA World Cup", "hosted", "Brazil"),
        ("2022 FIFA World Cup", "won_by", "Argentina"),
    ],
    ids=" ".join,
)
def test_world_knows(facts, fact):
    assert any(fact in rows for rows in facts.values())


def test_world_borders_both_ways(facts):
    borders = {(h, t) for rows in facts.values() for h, r, t in rows if r == "borders"}
    assert borders == {(tail, head) for head, tail in borders}
    assert all(head != tail for head, tail in borders)
