"""Rows and evidence against sums over paths one by one."""

import numpy as np
import pytest

from betae.rules.evidence import rules_for, votes_for
from betae.rules.mining import mine_rules
from betae.rules.rows import KINDS, RuleRows, features_of
from tests.rules.slow import SlowGraph
from tests.training.helpers import small_graph


@pytest.fixture(params=range(4))
def rows(request):
    graph = small_graph(request.param, num_entities=15, num_edges=70)
    adjacency = graph.adjacency("train")
    return RuleRows(mine_rules(adjacency, graph.num_relations), adjacency), SlowGraph(adjacency)


def all_pairs(slow, num_relations=6):
    pairs = [(h, r) for h in range(slow.num_entities) for r in range(num_relations)]
    return tuple(np.array(pairs).T)


def test_rows_are_the_sums_over_all_paths(rows):
    found, slow = rows
    heads, relations = all_pairs(slow)
    sparse = found.rows(heads, relations)
    for i, pair in enumerate(zip(heads.tolist(), relations.tolist(), strict=True)):
        tails, sums = sparse.row(i)
        expected = slow.sums(found.rules, *pair)
        assert tails.tolist() == sorted(expected)
        for tail, row in zip(tails.tolist(), sums, strict=True):
            assert row == pytest.approx(expected[tail], rel=1e-5)


def test_the_evidence_for_an_edge_adds_up_to_its_sums(rows):
    found, slow = rows
    for head, relation in zip(*(ids[::5].tolist() for ids in all_pairs(slow)), strict=True):
        tails, sums = found.rows(np.array([head]), np.array([relation])).row(0)
        for tail, row in zip(tails.tolist(), sums, strict=True):
            rules = rules_for(found, slow.adjacency, head, relation, tail)
            votes = votes_for(found, head, relation, tail)
            totals = dict.fromkeys(KINDS, 0.0)
            for each in (*rules, *votes):
                totals[each.kind] += each.amount
            totals["best"] = max((each.rule.confidence for each in rules), default=0.0)
            assert row == pytest.approx([*totals.values()], rel=1e-5)
            for each in rules:
                expected = [p for p in slow.paths(head, each.rule.body) if p[-1] == tail]
                assert each.num_paths == len(expected)
                assert each.paths
                assert {*each.paths} <= {*expected}


def test_votes_say_who_was_asked(rows):
    found, slow = rows
    seen = set()
    for head, relation in zip(*(ids.tolist() for ids in all_pairs(slow)), strict=True):
        tails, _ = found.rows(np.array([head]), np.array([relation])).row(0)
        for vote in votes_for(found, head, relation, int(tails[-1])) if len(tails) else ():
            holders = set(slow.holders(vote.relation, vote.shared))
            if vote.kind == "like head":
                others = holders - {head}
                votes = [e for e in others if tails[-1] in slow.tails[e, relation]]
            else:
                others, votes = holders, holders & {*slow.tails[head, relation]}
            assert (vote.votes, vote.asked) == (len(votes), len(others))
            seen.add(vote.kind)
    assert seen == {"like head", "like tails"}


def test_tails_that_were_known_to_the_fit_vote():
    """When more edges are known than in the fit; only where it knew none do later tails vote."""
    graph = small_graph(0, num_entities=15, num_edges=70, num_valid=20)
    known, fitted = graph.adjacency("all"), graph.adjacency("train")
    rows = RuleRows(mine_rules(fitted, graph.num_relations), known, fitted)
    slow, slow_fitted = SlowGraph(known), SlowGraph(fitted)
    heads, relations = all_pairs(slow)
    sparse, is_new = rows.rows(heads, relations), 0
    for i, pair in enumerate(zip(heads.tolist(), relations.tolist(), strict=True)):
        tails, sums = sparse.row(i)
        expected = slow.sums(rows.rules, *pair, slow_fitted)
        is_new += expected != slow.sums(rows.rules, *pair)
        assert tails.tolist() == sorted(expected)
        for tail, row in zip(tails.tolist(), sums, strict=True):
            assert row == pytest.approx(expected[tail], rel=1e-5)
            votes = [v for v in votes_for(rows, *pair, tail) if v.kind == "like tails"]
            assert sum(vote.amount for vote in votes) == pytest.approx(row[4], rel=1e-5)
    assert is_new > 20


def test_no_row_is_left_behind_by_the_one_before(rows):
    found, slow = rows
    heads, relations = all_pairs(slow)
    together = found.rows(heads, relations)
    for i in range(0, len(heads), 11):
        alone = found.rows(heads[i : i + 1], relations[i : i + 1])
        assert all(map(np.array_equal, alone.row(0), together.row(i)))


def test_a_relation_that_is_new_has_an_empty_row(rows):
    found, _ = rows
    assert not len(found.rows(np.array([0]), np.array([100])).tails)
    assert rules_for(found, None, 0, 100, 1) == []
    assert votes_for(found, 0, 100, 1) == []


def test_nothing_has_features_of_zero():
    assert not features_of(np.zeros((1, len(KINDS)), np.float32)).any()
