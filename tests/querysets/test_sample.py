"""Every rule of the sampler, checked by Python sets on random small graphs and on `world`."""

import io
import subprocess
import sys
from collections import Counter
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console

import betae
from betae import parallel
from betae.cli.show import draw_report
from betae.errors import InvalidArgument, QuerySyntaxError, UnknownEntity, UnknownRelation
from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.queries.ast import And, Entity, Not, Or, Project, nodes
from betae.queries.structures import (
    EPFO,
    NEGATION,
    STRUCTURES,
    TRAINING,
    has_negation,
    name_of,
    num_symbols,
    structure_of,
)
from betae.querysets import sample, walks
from betae.querysets.query_set import SET_EDGES
from betae.querysets.sample import (
    Rules,
    parse_counts,
    random_stream,
    sample_answered,
    sample_empty,
    sample_queries,
    seed_sequence,
)
from tests.queries.oracle import edges_of, slow_answers
from tests.queries.strategies import examples, graphs

OWN = {  # structures of a user's own, for the graph `world`
    "union and complement": "?X . exists ?V : (_(_, ?V) | _(_, ?V)) & !_(_, ?V) & _(?V, ?X)",
    "fixed branch": "?X . located_in(?X, Europe) & !_(_, ?X)",
    "fixed relation beside an open one": "?X . borders(_, ?X) & _(_, ?X)",
    "fixed relation below an open one": "?X . exists ?V : borders(_, ?V) & _(?V, ?X)",
    "fixed relation above an open one": "?X . exists ?V : _(_, ?V) & borders(?V, ?X)",
    "fixed entity": "?X . _(France, ?X) | _(_, ?X)",
    "alike but for the order": "?X . (_(_, ?X) | !_(_, ?X)) & (!_(_, ?X) | _(_, ?X))",
}


@pytest.fixture(scope="module")
def world():
    return betae.world()


def graph_of(train, valid=(), test=(), num_entities=6, num_relations=3):
    splits = {
        split: np.array(list(edges), dtype=np.int32).reshape(-1, 3)
        for split, edges in (("train", train), ("valid", valid), ("test", test))
    }
    entities = [f"e{number}" for number in range(num_entities)]
    relations = [f"r{number}" for number in range(num_relations)]
    return KnowledgeGraph.from_triples(Triples(entities, relations, splits))


@pytest.fixture
def small_batches():
    """On a graph of a dozen entities a small batch holds every query already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "WALK_BATCH", 64)
        yield


# ---- the rules ----------------------------------------------------------------------------------


def unordered(query):
    """Forget the order of the operands of And and Or; fail if two are the same."""
    parts = [unordered(operand) for operand in query.operands]
    if isinstance(query, And | Or):
        assert len(set(parts)) == len(parts), f"the same operand twice: {query}"
        return type(query).__name__, frozenset(parts)
    own = {Entity: "name", Project: "relation"}.get(type(query))
    return type(query).__name__, own and getattr(query, own), *parts


def steps_below(query, rules):
    """Return the relations of the steps that lead to this set, seen through And, Or and Not.

    The release does not look through And and Or.
    """
    if isinstance(query, Project):
        return [query.relation]
    if isinstance(query, And | Or) and rules == "release":
        return []
    return [relation for operand in query.operands for relation in steps_below(operand, rules)]


def check_form(block, rules="paper"):
    queries = [block.query(row) for row in range(len(block))]
    seen = {unordered(query) for query in queries}
    assert len(seen) == len(queries), "the same query twice"
    for query in queries:
        for node in nodes(query):
            if isinstance(node, Project):
                below = steps_below(node.operand, rules)
                assert node.relation ^ 1 not in below, f"back again: {query}"


def check_complements(graph, query, edges):
    """A complement takes something away from what the rest of its intersection holds."""
    for node in nodes(query):
        if isinstance(node, And):
            positive = [part for part in node.operands if not isinstance(part, Not)]
            negated = [part.operand for part in node.operands if isinstance(part, Not)]
            if positive:
                kept = set.intersection(*(slow_answers(graph, part, edges) for part in positive))
                for part in negated:
                    assert kept & slow_answers(graph, part, edges), f"nothing removed: {query}"


def check_answers(graph, queries, max_answers, rules="paper"):
    smaller, larger = SET_EDGES[queries.split]
    for query, easy, hard in queries:
        on_larger = slow_answers(graph, query, larger)
        limited = [on_larger]
        if queries.split == "train":
            assert easy.tolist() == sorted(on_larger)
            assert len(easy) > 0
            assert len(hard) == 0
        else:
            on_smaller = slow_answers(graph, query, smaller)
            assert easy.tolist() == sorted(on_smaller)
            assert hard.tolist() == sorted(on_larger - on_smaller)
            assert len(hard) > 0
            if rules == "release":
                refuted = on_smaller - on_larger
                limited = [hard, refuted]
                assert refuted or name_of(structure_of(query)[0]) not in NEGATION
        assert max_answers is None or max(map(len, limited)) <= max_answers


def check_report(queries, asked):
    report = queries.origin["report"]
    assert list(report) == list(queries.blocks) == list(asked)
    for name, told in report.items():
        assert told["asked"] == asked[name]
        assert told["sampled"] == len(queries.blocks[name]) <= asked[name]
        assert all(number > 0 for number in told["rejected"].values())
        accounted = told["sampled"] + sum(told["rejected"].values())
        if told["sampled"] < told["asked"]:  # then nothing good was left over
            assert told["walks"] == accounted
        assert told["walks"] >= accounted


@pytest.mark.usefixtures("small_batches")
@examples(60)
@given(st.data())
def test_every_rule_on_random_graphs(data):
    graph = data.draw(graphs(edges=(1, 40)))
    split = data.draw(st.sampled_from(list(SET_EDGES)))
    assume(edges_of(graph, SET_EDGES[split][1]))  # for none, see the test in its own process
    assume(split == "train" or len(graph.written_ids[split]))  # else they are refused
    structures = data.draw(st.lists(st.sampled_from(list(STRUCTURES)), min_size=1, max_size=3))
    max_answers = data.draw(st.sampled_from([None, 1, 3]))
    rules = data.draw(st.sampled_from(get_args(Rules)))
    asked = dict.fromkeys(structures, 15)
    queries = sample_queries(
        graph,
        asked,
        split,
        seed=data.draw(st.integers(0, 100)),
        max_answers=max_answers,
        rules=rules,
    )
    check_report(queries, asked)
    check_answers(graph, queries, max_answers, rules)
    for name, block in queries.blocks.items():
        check_form(block, rules)
        for row in range(len(block)):
            assert name_of(structure_of(block.query(row))[0]) == name
            if name in NEGATION:
                check_complements(graph, block.query(row), SET_EDGES[split][1])


@pytest.mark.usefixtures("small_batches")
@examples(15)
@given(graphs(entities=(2, 4), relations=(1, 2), edges=(1, 8)), st.sampled_from(["2p", "2i"]))
def test_nothing_is_left_out_on_tiny_graphs(graph, name):
    """All queries that the rules allow, found by trying every one, are sampled in the end."""
    assume(len(graph.written_ids["train"]))
    entities, relations = range(graph.num_entities), range(graph.num_relations)
    steps = [Entity(entity)[relation] for entity in entities for relation in relations]
    allowed = set()
    for step in steps:
        for relation in relations:
            if (
                name == "2p"
                and relation ^ 1 != step.relation
                and slow_answers(graph, step, "train")
            ):
                allowed.add(step[relation])
    if name == "2i":
        allowed = {one & two for one in steps for two in steps if one != two}
    expected = {unordered(query) for query in allowed if slow_answers(graph, query, "train")}
    sampled = sample_queries(graph, {name: 10_000})
    assert {unordered(query) for query, _, _ in sampled} == expected


@pytest.mark.slow
@pytest.mark.parametrize("split", SET_EDGES)
def test_every_rule_on_world(split, world):
    asked = dict.fromkeys(STRUCTURES, 200)
    queries = sample_queries(world, asked, split, seed=3)
    check_report(queries, asked)
    assert len(queries) == 200 * len(STRUCTURES)
    for name, block in queries.blocks.items():
        check_form(block)
        assert block.structure == STRUCTURES[name]
    few = betae.QuerySet(
        split,
        {name: block.take(np.arange(4)) for name, block in queries.blocks.items()},
        queries.graph_fingerprint,
    )
    check_answers(world, few, None if split == "train" else 100)
    for name in NEGATION:
        for row in range(4):
            check_complements(world, few.blocks[name].query(row), SET_EDGES[split][1])


@pytest.mark.parametrize("text", OWN.values(), ids=OWN)
def test_structures_of_the_user_s_own(text, world):
    queries = sample_queries(world, {text: 400}, "valid", max_answers=2000)
    block = queries.blocks[text]
    assert len(block) > 5
    check_report(queries, {text: 400})
    check_form(block)
    some = betae.QuerySet("valid", {text: block.take(np.arange(6))}, queries.graph_fingerprint)
    check_answers(world, some, 2000)
    if text == OWN["union and complement"]:
        for query, _, _ in some:
            check_complements(world, query, "train+valid")


def test_fixed_names_stay(world):
    text = OWN["fixed branch"]
    fixed = Entity(world.entity_id("Europe"))[world.relation_id("~located_in")]
    block = sample_queries(world, {text: 50}).blocks[text]
    assert len(block) == 50
    assert block.symbols.shape == (50, 2)
    for row in range(50):
        first, second = block.query(row).operands
        assert first == fixed
        assert isinstance(second, Not)
        assert second.operand != fixed
    assert len({block.query(row) for row in range(50)}) == 50


def test_an_inverse_that_the_user_wrote_stays(world):
    text = "?X . exists ?V : located_in(_, ?V) & located_in(?X, ?V)"  # what lies in the same place
    queries = sample_queries(world, {text: 20})
    there, back = world.relation_id("located_in"), world.relation_id("~located_in")
    assert len(queries) == 20
    for query, _, _ in queries:
        assert (query.relation, query.operand.relation) == (back, there)


def test_limits_on_the_answers(world):
    def sizes(**limits):
        queries = sample_queries(world, {"3p": 300, "2u": 300}, "test", **limits)
        full = [set(easy.tolist()) | set(hard.tolist()) for _, easy, hard in queries]
        return max(map(len, full)), max(len(hard) for _, _, hard in queries)

    assert sizes()[0] <= 100
    assert sizes(max_answers=5)[0] <= 5
    all_answers, hard_answers = sizes(max_answers=3, rules="release")
    assert hard_answers <= 3
    assert all_answers > 100  # only the hard ones are limited
    train = sample_queries(world, {"2p": 300}, "train")
    assert max(len(easy) for _, easy, _ in train) > 100  # training queries are not limited
    few = sample_queries(world, {"2p": 300}, "train", max_answers=4)
    assert max(len(easy) for _, easy, _ in few) <= 4


# ---- what the graph cannot fill -----------------------------------------------------------------


def pairs(graph, edges):
    edges = edges_of(graph, edges)
    return {(h, 2 * r) for h, r, _ in edges} | {(t, 2 * r + 1) for _, r, t in edges}


def test_every_single_step_once(world):
    queries = sample_queries(world, {"1p": 10**6})
    sampled = Counter(map(tuple, queries.blocks["1p"].symbols.tolist()))
    assert set(sampled) == pairs(world, "train")
    assert set(sampled.values()) == {1}
    report = queries.origin["report"]["1p"]
    assert report == {
        "asked": 10**6,
        "sampled": len(sampled),
        "walks": len(sampled),
        "rejected": {},
    }


@pytest.mark.parametrize(("split", "reason"), [("valid", "no hard"), ("test", "no hard")])
def test_every_single_step_with_a_hard_answer(split, reason, world):
    queries = sample_queries(world, {"1p": 10**6}, split)
    sampled = Counter(map(tuple, queries.blocks["1p"].symbols.tolist()))
    assert set(sampled.values()) == {1}
    smaller, larger = (edges_of(world, edges) for edges in SET_EDGES[split])
    new = larger - smaller
    touched = {(h, 2 * r) for h, r, _ in new} | {(t, 2 * r + 1) for _, r, t in new}
    tails = Counter((h, 2 * r) for h, r, _ in larger)
    tails += Counter((t, 2 * r + 1) for _, r, t in larger)
    assert set(sampled) == {pair for pair in touched if tails[pair] <= 100}
    rejected = queries.origin["report"]["1p"]["rejected"]
    assert any(reason in told for told in rejected)


TWO_EDGES = [(0, 0, 1), (1, 1, 2)]


@pytest.mark.parametrize(
    ("structure", "train", "split", "reasons"),
    [
        ("3i", TWO_EDGES, "train", {"same branch twice"}),
        ("3in", TWO_EDGES, "train", {"same branch twice", "no answer"}),
        ("2in", TWO_EDGES, "train", {"no answer"}),
        ("2p", [(0, 0, 1)], "train", {"dead end"}),
        ("?X . r2(_, ?X)", TWO_EDGES, "train", {"dead end"}),
        ("?X . _(_, ?X) & r2(_, ?X)", TWO_EDGES, "train", {"dead end"}),
        ("?X . _(e5, ?X)", TWO_EDGES, "train", {"dead end"}),
        ("?X . exists ?V : r0(_, ?V) & r0(?V, ?X)", TWO_EDGES, "train", {"dead end"}),
    ],
)
def test_a_structure_that_the_graph_cannot_fill(structure, train, split, reasons):
    graph = graph_of(train)
    queries = sample_queries(graph, {structure: 10, "?X . r0(_, ?X)": 10}, split)
    report = queries.origin["report"]
    assert len(queries.blocks[structure]) == report[structure]["sampled"] == 0
    assert set(report[structure]["rejected"]) == reasons
    assert report[structure]["walks"] == sum(report[structure]["rejected"].values())
    assert report[structure]["walks"] <= sample.WALK_BATCH * sample.PATIENCE
    if split == "train":  # the others are sampled all the same
        assert report["?X . r0(_, ?X)"]["sampled"] == 1


WITHOUT_EDGES = """
from betae.querysets.sample import sample_queries
from tests.querysets.test_sample import STRUCTURES, graph_of
counts = {**dict.fromkeys(STRUCTURES, 3), "?X . r0(_, ?X)": 3}
queries = sample_queries(graph_of([]), counts, "train")
assert len(queries) == 0
assert all(told["sampled"] == 0 for told in queries.origin["report"].values())
"""


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_split_without_edges_is_refused(split):
    """No query could have an answer that needs one of its edges."""
    with pytest.raises(InvalidArgument, match=f"no {split} edges.* --{split} 0.1"):
        sample_queries(graph_of(TWO_EDGES), {"1p": 3}, split)


@pytest.mark.slow
def test_a_graph_without_edges():
    """In a process of its own: reading beyond an array may end it."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_EDGES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_report_says_how_far_it_got():
    queries = sample_queries(graph_of(TWO_EDGES), {"2p": 50, "3i": 5, "1p": 4})
    console = Console(width=200, file=io.StringIO())
    console.print(draw_report(queries))
    shown = console.file.getvalue().splitlines()
    lines = {line.split()[0]: line for line in shown if line.split()}
    assert lines["2p"].split()[1:3] == ["2", "50"]
    assert "no more in the graph" in lines["2p"]
    assert "dead end" in lines["2p"]
    assert lines["3i"].split()[1:5] == ["0", "5", "-", "-"]
    assert "same branch twice 100%" in lines["3i"]
    assert lines["1p"].split()[1:3] == ["4", "4"]
    assert "no more" not in lines["1p"]


# ---- seeds --------------------------------------------------------------------------------------


def content(queries):
    return [(str(query), easy.tolist(), hard.tolist()) for query, easy, hard in queries]


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_same_seed_gives_the_same_set(split, world, monkeypatch):
    monkeypatch.setattr(sample, "WALK_BATCH", 256)
    asked = {"1p": 100, "3p": 300, "2in": 100, OWN["union and complement"]: 50}
    sets = []
    for num_threads in (1, 2, 5):
        monkeypatch.setattr(parallel, "num_threads", lambda: num_threads)  # noqa: B023
        sets.append(sample_queries(world, asked, split, seed=7))
    assert all(content(queries) == content(sets[0]) for queries in sets[1:])
    assert all(queries.origin == sets[0].origin for queries in sets[1:])
    assert sets[0].origin["seed"] == 7
    assert sets[0].origin["report"]["3p"]["walks"] > 2 * sample.WALK_BATCH  # several batches


@pytest.mark.slow
def test_another_seed_gives_another_set(world):
    asked = dict.fromkeys(STRUCTURES, 50)
    one, two = (sample_queries(world, asked, seed=seed) for seed in (1, 2))
    for name in STRUCTURES:
        assert one.blocks[name].symbols.tolist() != two.blocks[name].symbols.tolist()


def test_structures_do_not_influence_one_another(world):
    together = sample_queries(world, dict.fromkeys(["3p", "2i", "1p", "pni"], 60), seed=5)
    for name, block in together.blocks.items():
        alone = sample_queries(world, {name: 60}, seed=5).blocks[name]
        assert alone.symbols.tolist() == block.symbols.tolist()
        more = sample_queries(world, {name: 90}, seed=5).blocks[name]
        assert more.symbols.tolist()[:60] == block.symbols.tolist()


def test_progress_is_told(world):
    told = []
    sample_queries(world, {"2p": 20, "1p": 5}, progress=lambda *news: told.append(news))
    assert told == [("2p", 20), ("1p", 5)]


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "arguments", "message"),
    [
        ({"4p": 5}, {}, "no structure '4p'.*1p, 2p, 3p, 2i.*up"),
        ({"": 5}, {}, "no structure"),
        ({"?X . borders(France, ?X)": 5}, {}, "no placeholder"),
        ({"2p": 0}, {}, "at least 1"),
        ({"2p": -3}, {}, "at least 1"),
        ({"1p": 3, "2p": 0}, {}, "at least 1"),
        ({"2p": 5}, {"split": "dev"}, "split is 'dev'; choose one of train, valid, test"),
        ({"2p": 5}, {"split": "test", "max_answers": 0}, "at least 1"),
        ({"2p": 5}, {"rules": "published"}, "rules.*published"),
        ({"2p": 5}, {"seed": -1}, "seed"),
        ({"1p": 5}, {"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_asked(counts, arguments, message, toy_graph):
    with pytest.raises(InvalidArgument, match=message):
        sample_queries(toy_graph, counts, **arguments)


def test_a_structure_with_an_error_in_it(toy_graph):
    with pytest.raises(QuerySyntaxError) as info:
        sample_queries(toy_graph, {"?X . _(_ ?X)": 5})
    *_, text, caret = str(info.value).splitlines()
    assert text[caret.index("^") :] == "?X)"
    with pytest.raises(UnknownEntity, match="Oslo"):
        sample_queries(toy_graph, {"?X . _(Osla, ?X)": 5})
    with pytest.raises(UnknownRelation, match="parent"):
        sample_queries(toy_graph, {"?X . parents(_, ?X)": 5})


@pytest.mark.parametrize(
    ("structures", "split", "expected"),
    [
        ([], "train", dict.fromkeys(TRAINING, 9)),
        ([], "valid", dict.fromkeys((*EPFO, *NEGATION), 9)),
        ([], "test", dict.fromkeys((*EPFO, *NEGATION), 9)),
        (["2p"], "train", {"2p": 9}),
        (["2p:50", "3i"], "test", {"2p": 50, "3i": 9}),
        (["2p: 50"], "train", {"2p": 50}),
        (["2u-DM:7"], "train", {"2u-DM": 7}),
        (["?X . _(_, ?X) & !_(_, ?X):12"], "train", {"?X . _(_, ?X) & !_(_, ?X)": 12}),
        (
            ["?X . exists ?V : _(_, ?V) & _(?V, ?X)"],
            "train",
            {"?X . exists ?V : _(_, ?V) & _(?V, ?X)": 9},
        ),
        (
            ["?X . exists ?V : _(_, ?V) & _(?V, ?X):3"],
            "train",
            {"?X . exists ?V : _(_, ?V) & _(?V, ?X)": 3},
        ),
        (["2p:x"], "train", {"2p:x": 9}),
        (["2p:"], "train", {"2p:": 9}),
        (["2p:-1"], "train", {"2p:-1": 9}),
        (["2p:²"], "train", {"2p:²": 9}),
    ],
)
def test_counts_are_read(structures, split, expected):
    assert parse_counts(structures, split, 9) == expected


def test_the_default_structures_are_the_paper_s():
    assert len(parse_counts([], "train", 1)) == 10
    assert len(parse_counts([], "test", 1)) == 14
    assert not any(has_negation(STRUCTURES[name]) for name in EPFO)
    assert num_symbols(STRUCTURES["3in"]) == 6


# ---- random streams -----------------------------------------------------------------------------


PURPOSES = ["queries", "validation", "answered queries", "calibration", "count estimates"]


@pytest.fixture
def walked(monkeypatch):
    """Note the seed of every batch of walks."""
    seeds, walk_back = [], walks.walk_back

    def spy(*arguments):
        seeds.append(int(arguments[6]))
        return walk_back(*arguments)

    monkeypatch.setattr(walks, "walk_back", spy)
    monkeypatch.setattr("betae.querysets.sample.WALK_BATCH", 256)
    return seeds


def test_streams_by_other_names_are_others():
    names = [
        (0,), (1,), (0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", 1), (0, "a", 1, 0),
        (0, "a", 10), (0, "a", "1"), (0, "ab"), (0, "a", "b"), (0, 1), (10,), (0, "a, 'b'"),
    ]  # fmt: skip
    streams = [tuple(random_stream(*name).integers(2**60, size=4)) for name in names]
    assert len(set(streams)) == len(names)
    assert streams == [tuple(random_stream(*name).integers(2**60, size=4)) for name in names]


def test_a_stream_is_the_same_for_any_kind_of_integer():
    for seed in (np.int64(7), np.int32(7)):
        assert seed_sequence(seed, "a").entropy == seed_sequence(7, "a").entropy


def test_a_stream_stays_what_it_is():
    """Runs are resumed and sets sampled again by other versions of betae, too."""
    assert random_stream(0, "queries", "train").integers(1000, size=4).tolist() == [
        920,
        736,
        643,
        630,
    ]


def test_splits_and_purposes_share_no_walks(world, walked):
    by_purpose = {}
    for split in ("train", "valid", "test"):
        for purpose in PURPOSES:
            walked.clear()
            sample_queries(world, {"2p": 20}, split, seed=3, purpose=purpose)
            by_purpose[split, purpose] = set(walked)
    for one, two in combinations(by_purpose, 2):
        assert by_purpose[one].isdisjoint(by_purpose[two]), (one, two)


def test_no_sampler_of_a_seed_repeats_another_s_walks(world, walked):
    found = []
    for make in (
        lambda: sample_queries(world, {"2p": 20}),
        lambda: sample_answered(world, "2p", 5),
        lambda: sample_queries(world, {"2p": 20}, "valid"),
    ):
        walked.clear()
        make()
        assert walked
        found.append(set(walked))
    assert len(set.union(*found)) == sum(map(len, found))


def test_empty_queries_for_training_and_for_evaluation_are_others(world):
    rows = [
        set(map(tuple, sample_empty(world, "3i", 500, 3, edges).symbols.tolist()))
        for edges in ("train", "all")
    ]
    assert all(len(some) == 500 for some in rows)
    assert rows[0].isdisjoint(rows[1])


def test_empty_queries_of_two_structures_are_others(world):
    one, two = (sample_empty(world, name, 50, 3).symbols for name in ("2p", "2in"))
    anchors = [set(symbols[:, 0].tolist()) for symbols in (one, two)]
    assert anchors[0] != anchors[1]


def test_listed_pairs_are_shuffled_by_split_and_purpose(world):
    """1p is listed, not walked: its order must differ too."""
    orders = [
        sample_queries(world, {"1p": 50}, "train", seed=3, purpose=purpose).blocks["1p"].symbols
        for purpose in PURPOSES
    ]
    for one, two in combinations(orders, 2):
        assert one.tolist() != two.tolist()
