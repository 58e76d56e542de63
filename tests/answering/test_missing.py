"""The most probable missing edges: against loops over all edges, and in each file format."""

import csv
import math
import os
import subprocess
import sys
from collections import Counter
from urllib.parse import unquote

import numpy as np
import polars as pl
import pyoxigraph as ox
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from betae.answering import missing
from betae.answering.completed import CompletedGraph
from betae.answering.missing import LABEL_COLUMNS, MissingEdges
from betae.errors import (
    AmbiguousName,
    InvalidArgument,
    StoreError,
    TripleError,
    UnknownEntity,
    UnknownRelation,
)
from betae.graph.change import append_triples
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.models.execute import score_queries
from betae.queries.ast import Entity
from betae.run import Run
from tests.answering.helpers import (
    completed_graph,
    edge_weights,
    probabilities_of,
    random_model,
    save_run,
)
from tests.evaluation.eval_in_two_processes import Symbolic, split_graph
from tests.graph.test_change import triples_of
from tests.queries.oracle import edges_of
from tests.queries.strategies import edge_choices, examples, graphs
from tests.training.helpers import graph_of, small_graph

KEY = ("head", "relation", "tail")
FORMATS = (".tsv", ".parquet", ".nt")
REASONS = ("reason", "rule", "support", "cases")
ENDS = ("head_has", "heads_have", "tail_has", "tails_have")


def guessed(graph, edges="train", models=("complex",), of=None):
    """A graph completed by models, of the graph `of`, that were never trained."""
    predictors = [random_model(name, of or graph) for name in models]
    weights = edge_weights(dict.fromkeys(models, 1.0), (0.1, -0.5, 0.2), total=-0.5, full=-1)
    return CompletedGraph(graph, probabilities_of(predictors, weights, graph, edges))


def missing_edges(*arguments, **options):
    return missing.complete(*arguments, **options).to_polars()


def write_edges(frame, path):
    MissingEdges(None, frame).write(path)


def listed(frame):
    """The edges by name, with their probabilities, as they come."""
    return {row[:3]: row[3] for row in frame.select(*KEY, "probability").iter_rows()}


def assert_same(one, two):
    """Compare edges; products of another number of rows may differ in the last digits."""
    assert_frame_equal(one.sort(KEY), two.sort(KEY), rel_tol=1e-4, abs_tol=1e-6)


def slow_edges(graph, completed, edges, relation=None, entity=None):
    """Every edge that some end proposes, by name, with its larger probability."""
    known = edges_of(graph, edges)
    pairs = {(h, 2 * r) for h, r, _ in known} | {(t, 2 * r + 1) for _, r, t in known}
    if entity is not None:
        pairs = {(entity, directed) for directed in range(graph.num_relations)}
    found = {}
    for head, directed in pairs:
        if relation not in (None, directed // 2):
            continue
        pair = np.array([head]), np.array([directed])
        (row,) = completed.probabilities.rows(*pair)
        for tail, probability in enumerate(row.tolist()):
            first, last = (tail, head) if directed % 2 else (head, tail)
            if (first, directed // 2, last) not in known and probability > 0:
                names = graph.entities[first], graph.relations[directed // 2], graph.entities[last]
                found[names] = max(probability, found.get(names, 0.0))
    return found


# ---- which edges ------------------------------------------------------------------------------


@examples(100)
@given(graph=graphs(entities=(2, 7), relations=(1, 3)), edges=edge_choices, data=st.data())
def test_the_edges_are_those_of_the_loops(graph, edges, data):
    relation = data.draw(st.none() | st.integers(0, graph.num_relations // 2 - 1))
    entity = data.draw(st.none() | st.integers(0, graph.num_entities - 1))
    above = data.draw(st.sampled_from([0.0, 0.1, 0.3, 0.6]))
    completed = guessed(graph, edges)
    frame = missing_edges(
        graph,
        completed,
        relation=None if relation is None else graph.relations[relation],
        entity=None if entity is None else graph.entities[entity],
        above=above,
    )
    found, expected = listed(frame), slow_edges(graph, completed, edges, relation, entity)
    assert len(found) == len(frame)  # each once
    assert {names for names, p in expected.items() if p > above + 1e-5} <= found.keys()
    assert found.keys() <= {names for names, p in expected.items() if p > above - 1e-5}
    assert found == pytest.approx({names: expected[names] for names in found}, rel=1e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all(above < p < 1 for p in found.values())


def test_an_edge_that_both_ends_propose_has_the_larger_probability():
    graph = split_graph()
    completed = guessed(graph)
    found = listed(missing_edges(graph, completed, above=0))
    by_head, by_tail = Counter(), Counter()
    for head, relation, tail in found:
        h, r, t = graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail)
        for (start, directed, end), sides in (((h, r, t), by_head), ((t, r + 1, h), by_tail)):
            if len(completed.adjacency.neighbours(start, directed)):
                rows, (slot,) = completed.rows(np.array([start]), np.array([directed]))
                sides[head, relation, tail] = float(rows[slot, end])
    both = by_head.keys() & by_tail.keys()
    larger = [by_head[names] > by_tail[names] for names in both]
    assert min(sum(larger), len(both) - sum(larger)) > 100  # either may be the larger
    assert found == pytest.approx(by_head | by_tail, rel=1e-4)


@pytest.mark.parametrize("edges", ["train", "train+valid", "all"])
def test_who_knows_all_edges_lists_those_that_are_held_out(edges):
    """They have 80 %, all others 10 %."""
    graph = split_graph()
    completed = completed_graph(graph, edges)
    held_out = edges_of(graph, "all") - edges_of(graph, edges)
    pairs = {(h, r) for h, r, _ in edges_of(graph, edges)}
    pairs |= {(t, r + 3) for _, r, t in edges_of(graph, edges)}
    proposed = {(h, r, t) for h, r, t in held_out if {(h, r), (t, r + 3)} & pairs}
    found = listed(missing_edges(graph, completed, above=0.5))
    assert found == pytest.approx({by_name(graph, edge): 0.8 for edge in proposed}, rel=1e-5)
    assert bool(found) == (edges != "all")
    more = listed(missing_edges(graph, completed, above=0.05))
    assert not more.keys() & {by_name(graph, edge) for edge in edges_of(graph, edges)}
    assert len(more) > 2000


def by_name(graph, edge):
    head, relation, tail = edge
    return graph.entities[head], graph.relations[relation], graph.entities[tail]


def test_a_relation_or_an_entity_alone():
    graph = split_graph()
    completed = guessed(graph)
    whole = missing_edges(graph, completed, above=0.2)
    of_one = missing_edges(graph, completed, relation="r1", above=0.2)
    assert_same(of_one, whole.filter(pl.col("relation") == "r1"))
    assert 0 < len(of_one) < len(whole)
    assert missing_edges(graph, completed, relation="~r1", above=0.2).equals(of_one)

    # An entity is tried with relations of which it has no edge, too.
    at_one = missing_edges(graph, completed, entity="e58", above=0.2)
    assert set(at_one["relation"]) == {"r0", "r1", "r2"}
    assert all("e58" in (row[0], row[2]) for row in at_one.iter_rows())
    both = missing_edges(graph, completed, entity="e58", relation="r2", above=0.2)
    assert_same(both, at_one.filter(pl.col("relation") == "r2"))
    assert 0 < len(both) < len(at_one)


def test_names_and_labels(toy_graph):
    completed = guessed(toy_graph)
    by_label = missing_edges(toy_graph, completed, entity="Bob Lee", above=0.01)
    assert by_label.equals(missing_edges(toy_graph, completed, entity="bob", above=0.01))
    assert "bob" in [*by_label["head"], *by_label["tail"]]
    with pytest.raises(UnknownEntity, match=r"no entity 'Bob Le'\. Closest: 'Bob Lee'"):
        missing_edges(toy_graph, completed, entity="Bob Le")
    with pytest.raises(UnknownRelation, match=r"no relation 'live_in'\. Closest: 'lives_in'"):
        missing_edges(toy_graph, completed, relation="live_in")
    with pytest.raises(AmbiguousName, match="Sam"):
        missing_edges(toy_graph, completed, entity="Sam")


@pytest.mark.parametrize("above", [-0.01, 1, 1.5, math.nan])
def test_a_threshold_is_a_probability_below_1(toy_graph, above):
    with pytest.raises(InvalidArgument, match="at least 0 and below 1"):
        missing_edges(toy_graph, guessed(toy_graph), above=above)


def test_what_was_added_after_training_is_in_no_missing_edge():
    before = small_graph()
    new = [("e1", "r0", "new"), ("new", "r1", "e2"), ("e1", "fresh", "e2"), ("e3", "r0", "e4")]
    graph = append_triples(before, triples_of(new))
    found = listed(missing_edges(graph, guessed(graph, of=before), above=0))
    named = {name for edge in found for name in edge}
    assert {"e1", "e2", "e3", "e4", "r0"} <= named
    assert not named & {"new", "fresh"}
    assert ("e3", "r0", "e4") not in found  # known by now
    assert ("e3", "r0", "e4") in listed(missing_edges(before, guessed(before), above=0))
    of_new = missing_edges(graph, guessed(graph, of=before), entity="new", above=0)
    assert len(of_new) == 0


# ---- what is said of them ---------------------------------------------------------------------


@examples(30)
@given(graph=graphs(entities=(2, 7), relations=(1, 3), edges=(1, 30)), edges=edge_choices)
def test_the_columns_beside_an_edge(graph, edges):
    """How many edges its ends have, what others have on average, and the scores."""
    known, models = edges_of(graph, edges), ("betae", "complex")
    completed = guessed(graph, edges, models)
    frame = missing_edges(graph, completed, above=0)
    assert frame.columns == [*KEY, "probability", *LABEL_COLUMNS, *REASONS, *ENDS, *models]
    heads = Counter((r, h) for h, r, _ in known)
    tails = Counter((r, t) for _, r, t in known)

    def mean(counts, relation):
        numbers = [number for (r, _), number in counts.items() if r == relation]
        return np.mean(numbers) if numbers else 1.0

    pairs = list(np.ndindex(graph.num_entities, graph.num_relations // 2))
    with torch.no_grad():
        distances = {
            model.name: score_queries(model, [Entity(head)[2 * r] for head, r in pairs]).numpy()
            for model in completed.probabilities.predictors.models
        }
    for row in frame.iter_rows(named=True):
        h, t = graph.entity_id(row["head"]), graph.entity_id(row["tail"])
        r = graph.relation_id(row["relation"]) // 2
        expected = heads[r, h], mean(heads, r), tails[r, t], mean(tails, r)
        assert [row[name] for name in ENDS] == pytest.approx(expected)
        for name in models:
            distance = distances[name][pairs.index((h, r)), t]
            assert row[name] == pytest.approx(-distance, rel=1e-3, abs=1e-4)


def test_blocks_and_progress(monkeypatch):
    graph = split_graph()
    completed = guessed(graph)
    steps, whole = [], missing_edges(graph, completed, above=0.2)
    monkeypatch.setattr(missing, "PAIRS_PER_BATCH", 7)
    found = missing_edges(graph, completed, above=0.2, progress=lambda *step: steps.append(step))
    assert_same(found, whole)
    number = len(completed.adjacency.relations)  # of (head, relation) that have edges
    scored = [(min(done, number), number) for done in range(7, number + 7, 7)]
    assert steps == [*scored, *((i + 1, len(whole)) for i in range(len(whole)))]  # and reasons


def test_a_graph_without_edges_and_one_that_lacks_nothing():
    empty = graph_of([], num_entities=3, num_relations=1)
    assert len(missing_edges(empty, guessed(empty), above=0)) == 0
    assert len(missing_edges(empty, guessed(empty), entity="e1", above=0)) == 5  # e1 e1 is one
    everything = [(h, 0, t) for h in range(3) for t in range(3)]
    full = graph_of(everything, num_entities=3, num_relations=1)
    assert len(missing_edges(full, completed_graph(full, model=Symbolic(full, "all")))) == 0


def test_no_edges_have_columns_of_the_same_types():
    graph = small_graph()
    none, some = (missing_edges(graph, guessed(graph), above=above) for above in (0.99, 0.1))
    assert (len(none), len(some) > 0) == (0, True)
    assert none.schema == some.schema


# ---- by a run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", ["train", "all"])
def test_a_run_lists_its_missing_edges(tmp_path, edges):
    graph = small_graph()
    run = Run.open(save_run(tmp_path / "run", graph))
    found = run.complete(edges=edges, above=0.01).to_polars()
    assert found.equals(missing_edges(graph, run.completed_graph(edges), above=0.01))
    held_out = {by_name(graph, edge) for edge in edges_of(graph, "all") - edges_of(graph, "train")}
    assert bool(held_out & listed(found).keys()) == (edges == "train")
    part = run.complete(edges=edges, above=0.01, entity="e1", relation="r2").to_polars()
    assert part.equals(
        missing_edges(graph, run.completed_graph(edges), above=0.01, entity="e1", relation="r2")
    )
    assert len(part) > 0


def test_a_run_without_validation_edges_has_nothing_to_go_by(tmp_path):
    run = Run.open(save_run(tmp_path / "run", graph_of([(0, 0, 1), (1, 0, 2)])))
    with pytest.raises(InvalidArgument, match=r"fitted on validation edges.*--valid 0\.05"):
        run.complete()


# ---- how they print ---------------------------------------------------------------------------


def test_it_prints_as_a_table():
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "<i>"), ("<i>", "likes", "a")])
    edges = [("a", "likes", "b"), ("b", "r", "<i>")]
    rows = [(*edges[0], 0.5, *edges[0]), (*edges[1], 0.0625, *edges[1])]
    frame = pl.DataFrame(rows, schema=[*KEY, "probability", *LABEL_COLUMNS], orient="row")
    assert repr(MissingEdges(graph, frame)) == (
        "probability  head  relation  tail\n"
        "      50.0%  a     likes     b\n"
        "       6.2%  b     r         <i>\n"
        "2 missing edges"
    )
    html = MissingEdges(graph, frame)._repr_html_()
    assert "<td>6.2%</td><td>b</td><td>r</td><td>&lt;i&gt;</td>" in html
    assert "<i>" not in html
    assert next(iter(MissingEdges(graph, frame)))["tail"] == "b"
    assert len(MissingEdges(graph, frame)) == 2
    none = MissingEdges(graph, frame.head(0))
    assert repr(none) == "probability  head  relation  tail\n0 missing edges"
    many = MissingEdges(graph, pl.concat([frame] * 20))
    assert len(repr(many).splitlines()) == 22
    assert repr(many).endswith("40 missing edges, 20 of them shown")


# ---- files ------------------------------------------------------------------------------------

IRIS = ["http://x.org/é?a=b#c", "urn:isbn:123", "https://x.org/%20"]
ODD = [
    'a,"b"',
    "two\nlines",
    "a\ttab",
    "http://x.org/a b",
    "http://x.org/<a>",
    "see http://x.org",
    "#",
    " ",
    "%41",
    "a\\b",
    "<b>",
    "é/ü",
    "'",
    "null",
    "1.0",
]


@pytest.fixture(scope="module")
def odd():
    """Missing edges between entities, and of relations, with names that are hard to write."""
    names = [*IRIS, *ODD]
    edges = np.array([[e, e, (e + 1) % len(names)] for e in range(len(names))], dtype=np.int32)
    splits = {"train": edges, "valid": edges[:0], "test": edges[:0]}
    graph = KnowledgeGraph.from_triples(Triples(names, names, splits))
    frame = missing_edges(graph, guessed(graph), above=0)
    for column in KEY:
        assert set(frame[column]) == set(names)
    return frame


def test_tsv(odd, tmp_path):
    write_edges(odd, tmp_path / "edges.tsv")
    again = pl.read_csv(tmp_path / "edges.tsv", separator="\t", schema=odd.schema)
    assert again.equals(odd)
    with (tmp_path / "edges.tsv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    assert header == [*KEY, "probability", *LABEL_COLUMNS, *REASONS, *ENDS, "complex"]
    assert [tuple(row[:3]) for row in rows] == list(odd.select(KEY).iter_rows())


def test_parquet(odd, tmp_path):
    write_edges(odd, str(tmp_path / "edges.parquet"))
    assert pl.read_parquet(tmp_path / "edges.parquet").equals(odd)


def test_predicted_and_exported_edges_have_equal_iris(tmp_path):
    """Or predictions would not join back to the graph in a triple store."""
    names = [
        "wd:Q90",
        "a b",
        "日本",
        "é:ü",
        "http://x.org/a",
        "urn:x:y",
        "urn:betae:x",
        "%41",
        "~x",
    ]
    names = sorted([*names, "http://x.org/a b", "mailto:a@b", "_:b0", "plain"])
    rows = [(name, name, other) for name in names for other in names]
    graph = KnowledgeGraph.from_triples(rows)
    graph.export(tmp_path / "exported.nt")
    write_edges(graph.to_polars(), tmp_path / "predicted.nt")
    exported, predicted = (tmp_path / f"{name}.nt" for name in ("exported", "predicted"))
    assert predicted.read_text() == exported.read_text()
    assert "<wd:Q90>" in predicted.read_text()


def test_n_triples(odd, tmp_path):
    """What is an IRI stays as it is; any other name can be read from its IRI."""
    write_edges(odd, tmp_path / "edges.nt")

    def name(node):
        assert isinstance(node, ox.NamedNode)
        coded = node.value.removeprefix("urn:betae:")
        found = node.value if coded == node.value else unquote(coded)
        assert (coded == node.value) == (found in IRIS)
        return found

    quads = list(ox.parse(path=tmp_path / "edges.nt", format=ox.RdfFormat.N_TRIPLES))
    again = [tuple(map(name, (quad.subject, quad.predicate, quad.object))) for quad in quads]
    assert again == list(odd.select(KEY).iter_rows())
    assert len({(quad.subject, quad.predicate, quad.object) for quad in quads}) == len(odd)


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_edges_are_a_file_without_rows(odd, tmp_path, suffix):
    write_edges(odd.head(0), tmp_path / f"edges{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [f"edges{suffix}"]
    if suffix == ".parquet":
        assert pl.read_parquet(tmp_path / "edges.parquet").equals(odd.head(0))
    else:
        lines = (tmp_path / f"edges{suffix}").read_text().splitlines()
        assert len(lines) == (1 if suffix == ".tsv" else 0)


@pytest.mark.parametrize("name", ["edges.xls", "edges", "edges.parquet.gz", ".tsv"])
def test_another_suffix_is_refused(odd, tmp_path, name):
    with pytest.raises(TripleError, match=r"Choose \.tsv, "):
        write_edges(odd, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_is_replaced_whole_or_not_at_all(odd, tmp_path, suffix, monkeypatch):
    file = tmp_path / f"edges{suffix}"
    write_edges(odd.head(3), file)
    before = file.read_bytes()

    def fail(*_):
        raise OSError("no more")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", fail)
        with pytest.raises(StoreError, match=f"Cannot write .*edges{suffix}: no more"):
            write_edges(odd, file)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {file: before}
    write_edges(odd, file)
    assert file.stat().st_size > len(before)
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(StoreError, match="Cannot write"):
        write_edges(odd, tmp_path / "nowhere" / file.name)


FULL_DISK = """
import resource, signal, sys
import polars as pl
from betae.errors import StoreError
from betae.answering.missing import LABEL_COLUMNS, MissingEdges
names = [str(hash(str(number))) for number in range(2000)]
edges = pl.DataFrame({"head": names, "relation": names[::-1], "tail": names})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
for path in sys.argv[1:]:
    try:
        MissingEdges(None, edges).write(path)
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


@pytest.fixture(scope="module")
def on_a_full_disk(tmp_path_factory):
    """What is said of each format, and what is left."""
    folder = tmp_path_factory.mktemp("full")
    files = [folder / f"edges{suffix}" for suffix in FORMATS]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *files],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return dict(zip(FORMATS, done.stdout.splitlines(), strict=True)), list(folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize(
    "suffix",
    [
        ".tsv",
        ".parquet",
        ".nt",
    ],
)
def test_a_full_disk_is_told(on_a_full_disk, suffix):
    said, _ = on_a_full_disk
    assert said[suffix].startswith("StoreError The disk is full: ")


def test_a_full_disk_leaves_nothing(on_a_full_disk):
    assert on_a_full_disk[1] == []
