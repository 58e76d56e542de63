"""Queries whose answers need many missing edges, against a list of all derivations."""

import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import betae
from betae import QuerySet
from betae.errors import InvalidArgument
from betae.graph.edges import Ragged
from betae.queries.ast import Entity
from betae.queries.rewrite import num_edges
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.query_set import SET_EDGES, QueryBlock
from betae.querysets.sample import sample_queries
from tests.cli.test_cli import run
from tests.exact.test_derivations import fewest_missing
from tests.queries.oracle import slow_answers
from tests.queries.strategies import examples, graphs
from tests.querysets.test_sample import (
    check_complements,
    check_form,
    check_report,
    graph_of,
    unordered,
)

TEST = (*EPFO, *NEGATION)


def split_by_missing(graph, query, split, needed):
    """Return the easy and hard answers of a query, by trying every derivation."""
    on_smaller, on_larger = (slow_answers(graph, query, edges) for edges in SET_EDGES[split])
    new = sorted(on_larger - on_smaller)
    rows = (Ragged.from_rows([on_smaller]), Ragged.from_rows([new]))
    costs = fewest_missing(graph, QueryBlock(query, np.empty((1, 0), np.int32), *rows), split)
    hard = {entity for entity, cost in zip(new, costs, strict=True) if cost >= needed}
    return on_smaller | (on_larger - hard), hard


def check_missing(graph, queries, needed):
    for query, easy, hard in queries:
        assert len(hard)
        expected = split_by_missing(graph, query, queries.split, needed)
        assert (easy.tolist(), hard.tolist()) == tuple(map(sorted, expected)), query


@pytest.mark.slow
@examples(40)
@given(st.data())
def test_every_hard_answer_needs_so_many(data):
    graph = data.draw(graphs(entities=(2, 7), relations=(1, 3), edges=(6, 30)))
    split = data.draw(st.sampled_from(["valid", "test"]))
    assume(len(graph.written_ids[split]) and len(graph.written_ids["train"]))
    name = data.draw(st.sampled_from([*TEST, "up-DM"]))
    edges = num_edges(STRUCTURES[name])
    missing = data.draw(st.sampled_from([*range(1, edges + 1), "all"]))
    rules = data.draw(st.sampled_from(["paper", "release"]))
    queries = sample_queries(graph, {name: 8}, split, missing=missing, rules=rules)
    check_report(queries, {name: 8})
    check_form(queries.blocks[name])  # no edge is walked there and back, whatever the rules
    check_missing(graph, queries, edges if missing == "all" else missing)
    if name in NEGATION:
        for query, _, _ in queries:
            check_complements(graph, query, SET_EDGES[split][1])


@pytest.mark.slow
@examples(10)
@given(
    graphs(entities=(2, 4), relations=(1, 2), edges=(3, 10)),
    st.sampled_from(["2p", "2i", "2in", "3in"]),
    st.sampled_from([1, 2]),
)
def test_nothing_is_left_out_on_tiny_graphs(graph, name, missing):
    """All queries with such an answer, found by trying every one, are sampled in the end."""
    assume(len(graph.written_ids["test"]) and missing <= num_edges(STRUCTURES[name]))
    relations = range(graph.num_relations)
    steps = [Entity(head)[relation] for head in range(graph.num_entities) for relation in relations]
    pairs = [(one, two) for one in steps for two in steps if one != two]
    candidates = {
        "2p": [step[next_] for step in steps for next_ in relations if next_ ^ 1 != step.relation],
        "2i": [one & two for one, two in pairs],
        "2in": [one & ~two for one, two in pairs],
        "3in": [one & two & ~no for one, two in pairs for no in steps if no not in (one, two)],
    }[name]

    def takes_away(query):  # its complement does, if it has one
        positive, negated = query.operands[:-1], query.operands[-1]
        kept = set.intersection(*(slow_answers(graph, part, "all") for part in positive))
        return kept & slow_answers(graph, negated.operands[0], "all")

    expected = {
        unordered(query)
        for query in candidates
        if split_by_missing(graph, query, "test", missing)[1]
        and (name not in NEGATION or takes_away(query))
    }
    sampled = sample_queries(graph, {name: 10_000}, "test", missing=missing)
    assert {unordered(query) for query, _, _ in sampled} == expected


def test_by_hand():
    """0 -r0-> 1 -r1-> 2 lacks both edges, 0 -r0-> 3 -r1-> 4 one of them."""
    graph = graph_of([(0, 0, 3)], test=[(0, 0, 1), (1, 1, 2), (3, 1, 4)])
    wanted = Entity(0)[0][2]

    def answers(**arguments):
        queries = sample_queries(graph, {"2p": 1000}, "test", **arguments)
        return {query: (easy.tolist(), hard.tolist()) for query, easy, hard in queries}[wanted]

    assert answers() == ([], [2, 4])
    assert answers(missing=1) == ([], [2, 4])
    assert answers(missing=2) == answers(missing="all") == ([4], [2])


@pytest.mark.slow
def test_on_world(tmp_path):
    graph = betae.world()
    counts = dict.fromkeys(TEST, 30)
    queries = sample_queries(graph, counts, "test", missing="all", rules="release", seed=3)
    assert all(len(block) == 30 for block in queries.blocks.values())
    few = {name: block.take(np.arange(2)) for name, block in queries.blocks.items()}
    for name in ("1p", "2p", "2i", "3i", "up", "2in", "3in", "inp"):  # others take too long
        one = QuerySet("test", {name: few[name]}, graph.fingerprint)
        check_missing(graph, one, num_edges(STRUCTURES[name]))
    again = sample_queries(graph, counts, "test", missing="all", rules="release", seed=3)
    for name, block in queries.blocks.items():
        assert np.array_equal(block.symbols, again.blocks[name].symbols)
    queries.save(tmp_path / "set")
    assert QuerySet.open(tmp_path / "set").origin["missing"] == "all"


def test_structures_with_too_few_edges_are_left_out():
    queries = sample_queries(betae.world(), {"1p": 5, "2p": 5, "pni": 5}, "test", missing=2)
    assert list(queries.blocks) == list(queries.origin["report"]) == ["2p"]
    assert queries.origin["left_out"] == {"1p": 1, "pni": 1}


@pytest.mark.parametrize(
    ("counts", "split", "missing", "message"),
    [
        (["1p", "2i"], "test", 3, "No answer needs 3 missing edges.*2i uses the most.*is 2"),
        (["2p"], "train", 1, "Training queries .* none of their edges is missing"),
        (["2p"], "test", 0, "at least 1, or all, not 0"),
        (["2p"], "test", "some", "or all, not 'some'"),
    ],
)
def test_what_cannot_be(counts, split, missing, message):
    with pytest.raises(InvalidArgument, match=message):
        sample_queries(betae.world(), dict.fromkeys(counts, 5), split, missing=missing)


def test_the_command(tmp_path):
    graph, target = tmp_path / "graph", tmp_path / "set"
    betae.world().save(graph)
    sample = ("sample", graph, "1p:5", "2p:5", "--split", "test", "--out", target)
    result = run(*sample, "--missing", "2")
    assert result.exit_code == 0, result.output
    assert re.search(r"left out, .* missing edges: 1p\n5 queries", result.output)
    assert QuerySet.open(target).origin["missing"] == 2
    assert run(*sample, "--missing", "all", "--overwrite").exit_code == 0
    assert QuerySet.open(target).origin["left_out"] == {}
    refused = run(*sample, "--missing", "most", "--overwrite").exception
    assert "or all, not 'most'" in str(refused)
