"""The derivations of an answer: the best of all, their number, and what the others add."""

import itertools
import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.answering import derivations as module
from betae.answering import truth as truth_module
from betae.answering.derivations import Derivations
from betae.answering.identities import apply_identities
from betae.answering.support import count_ways
from betae.cli.show import draw_answers
from betae.queries.ast import And, Entity, Or, Project
from tests.answering.helpers import exact
from tests.answering.test_results import drawn, read
from tests.answering.test_support import DRUGS, graph_of
from tests.answering.test_truth import (
    all_edges,
    all_hold,
    completed_by,
    random_chances,
    slow_truth,
    tree_of,
    without_complements,
)
from tests.queries.strategies import examples, graphs, trees


def found_by(graph, chances, query):
    """The derivations of a query, none of them negligible."""
    completed = completed_by(graph, chances)
    with (
        patch.object(module, "NEGLIGIBLE", 1e-30),
        patch.object(truth_module, "NEGLIGIBLE", 0.0),
        patch.object(module, "explain_edge", lambda *_: None),
    ):
        tree = tree_of(completed, query, graph.num_entities)
        found = Derivations(graph, completed, tree)
        return [found(entity) for entity in range(graph.num_entities)], tree.root[0]


def slow_count(query, entity, table):
    """How many derivations there are; where one is by facts alone, only such ones count."""
    match query:
        case Project(operand, relation):
            before = slow_truth(operand, table)
            parts = [
                (operand, head, before[head] * table[head, relation, entity])
                for head in range(len(table))
            ]
        case Or():
            parts = [(part, entity, slow_truth(part, table)[entity]) for part in query.operands]
        case And():
            return math.prod(slow_count(part, entity, table) for part in query.operands)
        case _:
            return 1
    largest = max(truth for _, _, truth in parts)
    return sum(
        slow_count(part, source, table)
        for part, source, truth in parts
        if truth > 0 and (truth == 1 or largest < 1)
    )


def slow_derivations(query, entity, table):
    """The truth of every derivation; where one is by facts alone, only such ones count."""
    match query:
        case Project(operand, relation):
            found = [
                before * table[head, relation, entity]
                for head in range(len(table))
                for before in slow_derivations(operand, head, table)
            ]
        case Or():
            found = [
                each for part in query.operands for each in slow_derivations(part, entity, table)
            ]
        case And():
            parts = [slow_derivations(part, entity, table) for part in query.operands]
            found = [*map(all_hold, itertools.product(*parts))]
        case _:
            found = [float(query.name == entity)]
    return [each for each in found if each == 1] or found


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_the_best_and_the_number_are_those_of_all_assignments(data, seed):
    graph = data.draw(graphs(entities=(2, 4), relations=(1, 2), edges=(0, 6)))
    chances = random_chances(graph, seed)
    chances.table = np.where(chances.table > 1e-3, chances.table, 0)  # no product underflows
    query = without_complements(data.draw(trees(graph.num_entities, graph.num_relations, depth=3)))
    found, truth = found_by(graph, chances, query)
    table, same = all_edges(graph, chances, "train"), apply_identities(query)
    ways = count_ways(graph.adjacency("train"), query).to(np.arange(graph.num_entities))
    for entity, derived in enumerate(found):
        expected = sorted(
            (each for each in slow_derivations(same, entity, table) if each), reverse=True
        )
        if not expected:
            continue
        shown = [step.whole_probability() for step in derived.best]
        np.testing.assert_allclose(shown, expected[: len(shown)], rtol=1e-4)
        assert derived.number == slow_count(same, entity, table)
        worth = [each for each in expected[:3] if each > 0.101 * expected[0]]
        assert len(shown) >= min(derived.number, len(worth))
        if truth[entity] == 1:
            assert derived.number == ways[entity]
            assert derived.others == 0


@examples(100)
@given(st.data(), st.integers(0, 10**6))
def test_those_shown_and_the_others_make_up_the_probability(data, seed):
    """No answer is less probable than its best derivation, and one derivation is all there is."""
    graph = data.draw(graphs(entities=(2, 5), relations=(1, 2), edges=(0, 8)))
    query = data.draw(trees(graph.num_entities, graph.num_relations, depth=3))
    found, truth = found_by(graph, random_chances(graph, seed), query)
    for derived, value in zip(found, truth.tolist(), strict=True):
        best = derived.best[0].whole_probability()
        assert 0 <= derived.others <= value - best + 1e-5
        if derived.number == 1 and value:
            assert math.isclose(best, value, rel_tol=1e-4)
        if derived.number <= len(derived.best):
            assert derived.others == pytest.approx(0, abs=1e-5)


def test_where_facts_settle_a_part_no_other_derivation_is_shown():
    """That e1 is not e0 is certain, so an edge between them adds nothing to it as a source."""
    graph = graph_of(("e0", "r", "e0"), ("e0", "s", "e1"))
    zero = graph.entity_id("e0")
    query = (Entity(zero)[2] | ~Entity(zero))[2]
    for seed in range(20):
        found, _ = found_by(graph, random_chances(graph, seed), query)
        for derived in found:
            assert derived.number > len(derived.best) or derived.others < 1e-5


# ---- as they are shown --------------------------------------------------------------------------


@pytest.fixture
def genes():
    """Four genes by which a drug might be linked to a disease; the facts have one of the edges."""
    known = [(f"g{number}", "causes", "sick") for number in range(4)]
    known += [("d1", "binds", f"g{number}") for number in range(4)]
    return graph_of(*known, ("d2", "binds", "g9"))


def test_facts_are_told_with_their_number(genes):
    (first,) = exact(genes).answer(DRUGS, 1, explain=True)
    assert (first.entity, first.num_derivations, len(first.derivations)) == ("d1", 4, 3)
    assert first.why == first.derivations[0]
    assert len({step.text for step in first.derivations}) == 3
    assert all(step.missing() == [] for step in first.derivations)
    assert first.rest() == "and 1 more"


def test_predictions_are_told_with_what_the_others_add(genes):
    answers = exact(genes).answer(DRUGS, status="predicted", explain=True)
    (found,) = [answer for answer in answers if answer.entity == "d2"]
    listed = [step.whole_probability() for step in found.derivations]
    assert listed == [pytest.approx(0.1)] * 3  # by d2 binds g0 to g2, of 10 % each
    assert found.num_derivations == 6  # g3 and g9 as well, and d1 by 1 %
    lines = [line.strip() for line in drawn(draw_answers(answers)).splitlines()]
    start = lines.index("d2")
    assert lines[start + 1] == "├── derivation 1 of 6: 10.0%"
    together = found.probability - found.others
    assert together > 0.15  # more than the best alone
    last = f"together {together:.1%}; 3 more add {found.others:.1%}"
    assert f"└── {last}" in lines
    page = read(answers._repr_html_())
    assert last in page.text
    assert "derivation 3 of 6: 10.0%" in page.text
    (told,) = [row for row in answers.to_json()["answers"] if row["entity"] == "d2"]
    assert (len(told["further"]), told["num_derivations"]) == (2, 6)
    assert told["others"] == found.others
