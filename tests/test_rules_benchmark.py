"""benchmarks/rules.py: its ranks by hand, and both tables on small graphs."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest

from betae import KnowledgeGraph, world
from tests.training.helpers import graph_of

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def rules(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import rules

    yield rules
    for name in ("rules", "calibration"):
        del sys.modules[name]


@pytest.fixture
def graph(tmp_path):
    world().save(tmp_path / "graph")
    return KnowledgeGraph.open(tmp_path / "graph")


def options_of(**changes):
    defaults = {"known": "train+valid", "split": "test", "relations": [], "edges": 10, "seed": 0}
    return argparse.Namespace(**(defaults | changes))


def test_other_true_tails_are_not_asked(rules):
    graph = graph_of([[0, 0, 1], [0, 0, 2], [3, 0, 2]], [[0, 0, 4]], 5, 1)
    block = rules.questions(graph, rules.directed(np.array([[0, 0, 2], [0, 0, 4]])))
    found = {
        tuple(symbols): (block.easy[i].tolist(), block.hard[i].tolist())
        for i, symbols in enumerate(block.symbols.tolist())
    }
    assert found == {(0, 0): ([1], [2, 4]), (2, 1): ([3], [0]), (4, 1): ([], [0])}


def test_hidden_entities_come_back_with_their_edges(rules, graph):
    hidden = np.array([3, 17])
    small, added = rules.without_entities(graph, hidden)
    assert {*graph.entities} - {*small.entities} == {graph.entities[i] for i in (3, 17)}
    again = small.extended(added).to_polars(("train",))
    assert {*again.iter_rows()} == {*graph.to_polars(("train",)).iter_rows()}


@pytest.mark.slow
def test_a_row_by_rules_alone_lists_every_tail(rules, graph, tmp_path):
    from calibration import row_of

    run = rules.mine_and_fit(graph, tmp_path / "run", 0)
    completed = run.completed_graph("train+valid")
    assert completed.sparse is not None
    for head, relation in ((0, 0), (3, 1), (17, 2)):
        pair = np.array([head]), np.array([relation])
        expected = completed.probabilities.rows(*pair)[0]
        found = row_of(completed, head, relation)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
        known = completed.adjacency.neighbours(head, relation)
        assert np.flatnonzero(found == 1).tolist() == sorted(known.tolist())


@pytest.mark.slow
def test_by_relation(rules, graph, tmp_path, capsys):
    run = rules.mine_and_fit(graph, tmp_path / "run", 0)
    rules.by_relation(graph, run, options_of(relations=["borders"]))
    shown = capsys.readouterr().out
    assert "inverse of borders" in shown
    assert "capital" not in shown
    assert "expected calibration error" in shown


@pytest.mark.slow
def test_inductive(rules, graph, tmp_path, capsys):
    (tmp_path / "work").mkdir()
    rules.inductive(graph, tmp_path / "work", options_of(inductive=10))
    assert "10 entities" in capsys.readouterr().out
