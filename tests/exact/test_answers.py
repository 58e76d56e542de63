"""Exact answers, single and in batches, against Python sets and the release's own answers.

queries/test_oracle.py tests them against a SPARQL engine as well.
"""

import pickle
import re
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import betae
from betae.datasets.release import read_release, read_release_queries
from betae.errors import BetaeError, InvalidArgument, UnknownEntity, UnknownRelation
from betae.exact.answers import (
    answers,
    answers_batch,
    answers_of_structure,
    count_answers,
    refuted,
)
from betae.graph.edges import EDGES
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.queries.ast import PLACEHOLDER, Entity, Not, Project
from betae.queries.structures import STRUCTURES, fill, from_tuple, name_of, num_symbols
from betae.querysets.query_set import SET_EDGES
from betae.querysets.sample import sample_queries
from tests.queries.oracle import slow_answers, slow_refuted
from tests.queries.strategies import edge_choices, examples, graphs, trees


@pytest.fixture(scope="module")
def world():
    return betae.world()


def lists(rows):
    return [row.tolist() for row in rows]


def one_by_one(graph, queries, edges="all"):
    return [answers(graph, query, edges).tolist() for query in queries]


def larger_graph(seed):
    """A graph where sets are large enough for every way the kernel has to go through them."""
    random = np.random.default_rng(seed)
    num_entities = int(random.integers(17, 90))
    heads = random.integers(0, num_entities, 400)
    tails = random.integers(0, num_entities, 400)
    relations = random.choice(4, 400, p=[0.7, 0.25, 0.05, 0])  # the last one has no edges
    triples = np.unique(np.stack([heads, relations, tails], axis=1).astype(np.int32), axis=0)
    chosen = random.choice(3, len(triples), p=[0.8, 0.1, 0.1])
    splits = {split: triples[chosen == i] for i, split in enumerate(("train", "valid", "test"))}
    names = [f"e{number}" for number in range(num_entities)]
    return KnowledgeGraph.from_triples(Triples(names, ["r0", "r1", "r2", "r3"], splits))


# ---- batches equal single queries ---------------------------------------------------------------


@examples(70)
@given(st.data())
def test_a_batch_equals_single_answers_and_sets(data):
    graph, edges = data.draw(graphs()), data.draw(edge_choices)
    queries = data.draw(st.lists(trees(graph.num_entities, graph.num_relations, 4), max_size=6))
    found = lists(answers_batch(graph, queries, edges))
    assert found == one_by_one(graph, queries, edges)
    assert found == [sorted(slow_answers(graph, query, edges)) for query in queries]


@examples(30)
@given(st.integers(0, 2**32), st.data())
def test_large_sets(seed, data):
    graph, edges = larger_graph(seed), data.draw(edge_choices)
    queries = data.draw(st.lists(trees(graph.num_entities, 8, 4), min_size=1, max_size=6))
    queries += [query[0] for query in queries]  # steps from large sets, also of complements
    queries += [Not(query)[1] & ~query for query in queries[:2]]
    found = lists(answers_batch(graph, queries, edges))
    assert found == one_by_one(graph, queries, edges)
    assert found == [sorted(slow_answers(graph, query, edges)) for query in queries]


@pytest.mark.parametrize("name", ["3p", "inp", "pni", "up-DM"])
def test_many_rows_on_many_threads(name, world, monkeypatch):
    """Several chunks of every structure, on each choice of edges."""
    monkeypatch.setattr("betae.exact.answers.CHUNK", 40)
    queries = [query for query, _, _ in sample_queries(world, {name: 150})]
    for edges in EDGES:
        found = lists(answers_batch(world, queries, edges))
        assert found == one_by_one(world, queries, edges)
    assert len(queries) == 150
    assert len({str(row) for row in found}) > 20


def test_a_batch_of_several_thousand(world):
    random = np.random.default_rng(0)
    entities, relations = random.integers(0, world.num_entities, 3000), random.integers(0, 28, 3000)
    symbols = np.stack([entities, relations], axis=1).astype(np.int32)
    table = answers_of_structure(world.adjacency("all"), ~STRUCTURES["1p"], symbols)
    assert len(table) == 3000
    everything = np.arange(world.num_entities)
    for (entity, relation), found in zip(symbols.tolist(), table, strict=True):
        excluded = world.adjacency("all").neighbours(entity, relation)
        assert np.array_equal(found, np.setdiff1d(everything, excluded))


def test_the_order_and_the_repetitions_of_a_batch_stay(world):
    france, chad = Entity("France"), Entity("Chad")
    several = [
        france["borders"],
        chad["borders"]["capital"],
        ~france,
        chad["borders"],
        france["borders"],
        france["borders"] & chad["borders"],
        ~france,
        france["borders"]["capital"],
        chad,
    ]
    for queries in (several, several[::-1], several * 3):
        assert lists(answers_batch(world, queries, "all")) == one_by_one(world, queries, "all")
    assert len({str(row) for row in one_by_one(world, several, "all")}) == 7


@pytest.mark.parametrize("edges", EDGES)
def test_no_queries_have_no_answers(edges, toy_graph):
    assert len(answers_batch(toy_graph, [], edges)) == 0
    for name, structure in STRUCTURES.items():
        none = np.empty((0, num_symbols(structure)), dtype=np.int32)
        assert len(answers_of_structure(toy_graph.adjacency(edges), structure, none)) == 0, name


@pytest.mark.parametrize(
    "query",
    [
        ~Entity("ann"),
        ~~Entity("ann"),
        ~Entity("ann")["parent"],
        ~Entity("ann") & ~Entity("bob"),
        ~Entity("ann") | ~Entity("bob"),
        ~Entity("ann") | ~Entity("ann"),
        ~Entity("ann") & ~Entity("ann")["parent"] & ~Entity("Oslo")["~lives_in"],
        ~(~Entity("ann") | ~Entity("bob")["friend"]),
        (~Entity("ann"))["parent"],
        (~Entity("ann"))["parent"]["parent"],
        ~(~Entity("Oslo")["~lives_in"])["lives_in"],
        Entity("ann") & ~Entity("ann"),
        Entity("ann") | ~Entity("ann"),
        ~(Entity("ann") | ~Entity("ann")),
    ],
    ids=str,
)
def test_complements(query, toy_graph):
    for edges in EDGES:
        expected = sorted(slow_answers(toy_graph, query, edges))
        assert answers(toy_graph, query, edges).tolist() == expected
        # Twice, and with others around: nothing is left over from the query before.
        batch = [query, Entity("ann"), query, ~query, query]
        rows = lists(answers_batch(toy_graph, batch, edges))
        assert rows[0] == rows[2] == rows[4] == expected
        assert sorted(rows[3] + expected) == list(range(toy_graph.num_entities))


def test_the_edges_that_count_differ(toy_graph):
    query = Entity("Lima")["~lives_in"] | Entity("dan")["~friend"]
    names = {
        edges: {toy_graph.entities[entity] for entity in answers(toy_graph, query, edges)}
        for edges in EDGES
    }
    assert names == {
        "train": {"fay"},
        "train+valid": {"fay", "cat"},
        "all": {"fay", "cat", "eve"},
    }


def graph_with_relations_without_edges():
    def edges(*triples):
        return np.array(triples, dtype=np.int32).reshape(-1, 3)

    splits = {"train": edges((0, 1, 1), (1, 1, 2)), "valid": edges(), "test": edges((2, 3, 0))}
    names = [f"r{number}" for number in range(5)]
    return KnowledgeGraph.from_triples(Triples(["a", "b", "c", "d"], names, splits))


@pytest.mark.parametrize("edges", EDGES)
def test_relations_without_edges(edges):
    graph = graph_with_relations_without_edges()
    queries = []
    for relation in range(graph.num_relations):
        for start in (Entity(0), Entity(2), Entity(3), ~Entity(0), Entity(1) | Entity(2)):
            queries += [start[relation], ~start[relation], start[2][relation], start[relation][2]]
    found = lists(answers_batch(graph, queries, edges))
    assert found == [sorted(slow_answers(graph, query, edges)) for query in queries]
    assert found == one_by_one(graph, queries, edges)


def test_a_graph_without_edges():
    none = np.empty((0, 3), dtype=np.int32)
    splits = {"train": none, "valid": none, "test": none}
    graph = KnowledgeGraph.from_triples(Triples(["a", "b"], ["r"], splits))
    queries = [Entity(0), Entity(0)[0], ~Entity(1)[1], (~Entity(0))[0], Entity(0) & Entity(1)]
    assert lists(answers_batch(graph, queries, "all")) == [[0], [], [0, 1], [], []]
    assert one_by_one(graph, queries, "all") == [[0], [], [0, 1], [], []]


@pytest.mark.parametrize("answer", [answers, lambda graph, query: answers_batch(graph, [query])])
@pytest.mark.parametrize(
    ("query", "error"),
    [
        (Entity("anne"), UnknownEntity),
        (Entity("ann")["parents"], UnknownRelation),
        (Entity(12), UnknownEntity),
        (Entity(0)[8], UnknownRelation),
        (Entity(PLACEHOLDER)["parent"], BetaeError),
        (Entity("ann")[PLACEHOLDER], BetaeError),
    ],
    ids=str,
)
def test_names_that_are_not_there(answer, query, error, toy_graph):
    with pytest.raises(error):
        answer(toy_graph, query)


def test_the_two_ends_of_an_edge(world):
    """Every edge of the graph answers its own 1p query, both ways, and no other."""
    edges = world.written_ids["train"][::7]
    forward = [Project(Entity(head), 2 * rel) for head, rel, _ in edges.tolist()]
    backward = [Project(Entity(tail), 2 * rel + 1) for _, rel, tail in edges.tolist()]
    for queries, column in ((forward, 2), (backward, 0)):
        rows = answers_batch(world, queries)
        assert all(edge[column] in row for edge, row in zip(edges, rows, strict=True))
        assert lists(rows) == one_by_one(world, queries)


# ---- questions as text, and what is refused -----------------------------------------------------

TEXTS = ["?X . parent(ann, ?X)", "PREFIX : <> SELECT ?x { :ann :parent ?x }"]


def test_questions_as_text(toy_graph):
    expected = answers(toy_graph, Entity("ann")["parent"]).tolist()
    assert expected
    assert [answers(toy_graph, text).tolist() for text in TEXTS] == [expected] * 2
    assert lists(answers_batch(toy_graph, [*TEXTS, Entity("ann")["parent"]])) == [expected] * 3
    assert refuted(toy_graph, ["?X . !parent(ann, ?X)"])[0].tolist() == expected


def test_a_batch_is_a_list(toy_graph):
    for query in (TEXTS[0], Entity("ann")):
        with pytest.raises(InvalidArgument, match="a list of queries"):
            answers_batch(toy_graph, query)
    with pytest.raises(InvalidArgument, match="None is not a question"):
        answers_batch(toy_graph, [None])


@pytest.mark.parametrize("edges", ["valid", "test", "", None, ["all"]])
def test_edges_that_do_not_exist(edges, toy_graph):
    for ask in (
        lambda: answers(toy_graph, Entity("ann"), edges),
        lambda: answers_batch(toy_graph, [], edges),
        lambda: refuted(toy_graph, [Entity("ann")], edges)[0],
    ):
        with pytest.raises(InvalidArgument, match=r"train, train\+valid, all"):
            ask()


# ---- symbols ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRUCTURES)
def test_counts_are_the_lengths_of_the_answers(name, world):
    symbols = sample_queries(world, {name: 100}).blocks[name].symbols
    adjacency = world.adjacency("all")
    counts = count_answers(adjacency, STRUCTURES[name], symbols)
    expected = answers_of_structure(adjacency, STRUCTURES[name], symbols).lengths
    assert counts.dtype == np.int64
    assert np.array_equal(counts, expected)
    assert len(np.unique(counts)) > 1
    assert len(count_answers(adjacency, STRUCTURES[name], symbols[:0])) == 0


BAD_SYMBOLS = {
    "entity beyond": (STRUCTURES["1p"], [12, 0], "Row 1 of the symbols has the entity 12"),
    "entity far beyond": (STRUCTURES["1p"], [2**31 - 1, 0], "the entity 2147483647"),
    "negative entity": (STRUCTURES["2p"], [-1, 0, 0], "the entity -1; ids are 0 to 11"),
    "negative relation": (STRUCTURES["2p"], [0, 0, -3], "Row 1 of the symbols has the relation -3"),
    "fixed entity": (Entity(12)[PLACEHOLDER], [0], "The structure has the entity 12"),
    "too few": (STRUCTURES["2i"], [0, 0], "takes (n, 4)"),
    "too many": (STRUCTURES["1p"], [0, 0, 0], "takes (n, 2)"),
}


@pytest.mark.parametrize("name", BAD_SYMBOLS)
def test_ids_are_checked_before_compiled_loops_use_them(name, toy_graph):
    structure, row, message = BAD_SYMBOLS[name]
    symbols = np.array([[0] * len(row), row], dtype=np.int32)
    adjacency = toy_graph.adjacency("all")
    for use in (
        lambda: answers_of_structure(adjacency, structure, symbols),
        lambda: count_answers(adjacency, structure, symbols),
    ):
        with pytest.raises(InvalidArgument, match=re.escape(message)):
            use()


def test_a_relation_beyond_those_with_edges_has_no_answers(toy_graph):
    symbols = np.array([[0, 8], [0, 1000]], dtype=np.int32)
    assert count_answers(toy_graph.adjacency(), STRUCTURES["1p"], symbols).tolist() == [0, 0]


# ---- the answers that came with the papers ------------------------------------------------------

PER_STRUCTURE = 150


def cut_release(source, target, seed=0):
    """Write some queries of each structure of a release to `target`, with their answers."""
    random = np.random.default_rng(seed)

    def load(name):
        with (source / name).open("rb") as file:
            return pickle.load(file)

    chosen = {}
    for structure, queries in load("test-queries.pkl").items():
        ordered = sorted(queries)
        rows = random.choice(len(ordered), PER_STRUCTURE, replace=False)
        chosen[structure] = {ordered[row] for row in rows}
    kept = set().union(*chosen.values())
    files = {"test-queries.pkl": chosen}
    for name in ("test-easy-answers.pkl", "test-hard-answers.pkl"):
        if (source / name).is_file():
            answers_of = load(name)  # large: once, not for every query
            files[name] = {query: set(answers_of[query]) for query in kept}
    target.mkdir()
    for name, content in files.items():
        (target / name).write_bytes(pickle.dumps(content))
    return files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edges", "queries", "names"),
    [
        ("NELL-betae", "NELL-betae", set(STRUCTURES)),
        (
            "FB15k-237-betae",
            "FB15k-237-q2b",
            {"1p", "2p", "3p", "2i", "3i", "ip", "pi", "2u", "up"},
        ),
    ],
)
def test_the_official_answers(edges, queries, names, shared_data, tmp_path):
    graph = KnowledgeGraph.from_triples(read_release(shared_data / edges))
    files = cut_release(shared_data / queries, tmp_path / "some")
    hard, easy = files["test-hard-answers.pkl"], files.get("test-easy-answers.pkl")
    smaller, larger = SET_EDGES["test"]
    assert (smaller, larger) == ("train+valid", "all")
    found_names = set()
    for structure, nested in files["test-queries.pkl"].items():
        name = name_of(from_tuple(structure))
        found_names.add(name)
        nested = sorted(nested)
        trees = [from_tuple(query) for query in nested]
        on_smaller = [set(row) for row in lists(answers_batch(graph, trees, smaller))]
        on_larger = [set(row) for row in lists(answers_batch(graph, trees, larger))]
        if easy is not None:
            assert on_smaller == [easy[query] for query in nested], name
        computed = [full - known for full, known in zip(on_larger, on_smaller, strict=True)]
        assert computed == [hard[query] for query in nested], name
        assert len(computed) == PER_STRUCTURE
        for tree, full in islice(zip(trees, on_larger, strict=True), 2):
            assert set(answers(graph, tree, larger).tolist()) == full
    assert found_names == names

    stored = read_release_queries(graph, tmp_path / "some", "test")
    stored.check_graph(graph)
    assert set(stored.blocks) == names
    assert len(stored) == PER_STRUCTURE * len(names)
    for block in stored.blocks.values():
        queries = [block.query(row) for row in range(len(block))]
        assert lists(block.easy) == lists(answers_batch(graph, queries, smaller))
        assert all(len(row) for row in block.hard)


def test_official_easy_answers_may_be_wrong_on_the_larger_graph():
    """What "easy" means with a complement: an answer of the smaller graph, even if lost later."""
    triples = {"train": [(0, 0, 1)], "valid": [], "test": [(2, 0, 1), (0, 0, 3)]}
    splits = {
        split: np.array(edges, dtype=np.int32).reshape(-1, 3) for split, edges in triples.items()
    }
    graph = KnowledgeGraph.from_triples(Triples(["a", "b", "c", "d"], ["r"], splits))
    query = fill(STRUCTURES["2in"], (0, 0, 2, 0))
    assert answers(graph, query, "train+valid").tolist() == [1]
    assert answers(graph, query, "all").tolist() == [3]


# ---- what no missing edge can make an answer ---------------------------------------------------


@examples(100)
@given(st.data())
def test_what_is_refuted_is_no_answer_on_any_larger_graph(data):
    graph = data.draw(graphs())
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=4))
    for edges in EDGES:
        found = refuted(graph, [query], edges)[0].tolist()
        assert found == sorted(slow_refuted(graph, query, edges))
        assert not slow_answers(graph, query, "all").intersection(found)


def test_a_negated_fact_refutes_and_a_missing_edge_does_not(world):
    france, hosts = Entity("France"), Entity("FIFA World Cup")["hosted"]
    europeans = Entity("Europe")["~located_in"]
    assert set(refuted(world, [europeans & ~hosts])[0]) == set(answers(world, hosts))
    assert len(refuted(world, [europeans])[0]) == 0
    assert len(refuted(world, [(europeans & ~hosts)["capital"]])[0]) == 0
    assert len(refuted(world, [france & ~hosts])[0]) == world.num_entities
    assert len(refuted(world, [~~hosts])[0]) == 0
    assert set(refuted(world, [~hosts | ~europeans])[0]) == set(answers(world, hosts & europeans))
