"""Derivations: checked edge by edge against the triples, by a reader that knows only their text."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.answering.by_completion import Derivations
from betae.answering.identities import apply_identities
from betae.answering.results import Step
from betae.answering.truth import best_derivations, truth_trees
from betae.queries.ast import And, Entity, Not, Or, Project
from betae.queries.read import resolve, unresolve
from tests.answering.helpers import exact, guessing
from tests.queries.oracle import edges_of, slow_answers
from tests.queries.strategies import cases, examples, trees

FAMILY = """\
?X . exists ?C : (parent(bob, ?C) & !friend(?C, dan) | parent(cat, ?C)) & lives_in(?C, ?X)"""


def check(graph, edges, query, entity, step):
    """Follow a step through the query; return what in it the facts do not bear out.

    Edges are "known" only if they count as known, else "missing", and their ends must meet:
    the one at `entity`, the other where the next step goes on.
    """
    known = {
        (graph.entities[head], graph.relations[relation], graph.entities[tail])
        for head, relation, tail in edges_of(graph, edges)
    }

    def walk(query, entity, step):
        assert 0 <= step.probability <= 1
        match query:
            case Entity(name):
                assert step == Step(graph.entities[entity], "known", 1.0)
                assert name == entity
                return []
            case Not(operand):
                inner = str(unresolve(operand, graph)).removeprefix("?X . ")
                assert (step.status, step.sources) == ("not", ())
                assert step.text == f"{graph.entities[entity]} is not among {inner}"
                is_inside = entity in slow_answers(graph, operand, edges)
                return [("inside", step)] if is_inside else []
            case And():
                assert step.status == "and"
                pairs = zip(query.operands, step.sources, strict=True)
                return [doubt for part, below in pairs for doubt in walk(part, entity, below)]
            case Or():
                found = []
                for part in query.operands:
                    try:
                        found.append(walk(part, entity, step))
                    except (AssertionError, ValueError):
                        continue
                assert found, "it derives none of the branches"
                return min(found, key=len)
            case Project(operand, relation):
                head, name, tail = step.text.split(" ")
                assert name == graph.relations[relation // 2]
                assert step.status == ("known" if (head, name, tail) in known else "missing")
                assert (step.probability == 1) == (step.status == "known")
                source, end = (head, tail) if relation % 2 == 0 else (tail, head)
                assert end == graph.entities[entity]
                doubts = [("missing", step)] if step.status == "missing" else []
                source = graph.entity_id(source)
                if isinstance(operand, Entity):
                    assert step.sources == ()
                    assert source == operand.name
                    return doubts
                (below,) = step.sources
                return doubts + walk(operand, source, below)
        raise AssertionError(query)

    return walk(apply_identities(resolve(query, graph)), entity, step)


def shallow(num_entities, num_relations):
    return trees(num_entities, num_relations, depth=3)


@cache
def plain(num_entities, num_relations, depth=3):
    """Trees whose entities stand only before a projection, as in the paper's queries."""
    first = st.builds(
        lambda entity, relation: Entity(entity)[relation],
        st.integers(0, num_entities - 1),
        st.integers(0, num_relations - 1),
    )
    if depth == 0:
        return first
    smaller = st.deferred(lambda: plain(num_entities, num_relations, depth - 1))
    several = st.lists(smaller, min_size=2, max_size=3)
    return st.one_of(
        first,
        st.builds(Project, smaller, st.integers(0, num_relations - 1)),
        several.map(lambda operands: And(*operands)),
        several.map(lambda operands: Or(*operands)),
        smaller.map(Not),
    )


# ---- random questions -------------------------------------------------------------------------


def assert_explains(graph, query, edges, answerer):
    """Every answer has a derivation of real edges, the best one, and is at least as probable."""
    answers = answerer.answer(query, graph.num_entities, explain=True)
    completed = answerer.ranker.completed
    ((_, work),) = truth_trees(completed, [resolve(query, graph)])
    best = best_derivations(completed, work).root[0]
    for answer in answers:
        entity = graph.entity_id(answer.entity)
        assert answer.why.whole_probability() == pytest.approx(best[entity], abs=1e-5)
        assert answer.why.whole_probability() <= answer.probability + 1e-5
        doubts = check(graph, edges, query, entity, answer.why)
        if answer.status == "known":
            assert answer.why.missing() == []
        if answer.status == "predicted":
            assert doubts
        assert {below.text for kind, below in doubts if kind == "missing"} <= set(
            answer.why.missing()
        )


@examples(100)
@given(case=cases(plain))
def test_derivations_are_real_and_the_best_ones(case):
    graph, query, edges = case
    assert_explains(graph, query, edges, guessing(graph, edges))


@examples(100)
@given(case=cases(shallow))
def test_the_same_with_entities_anywhere(case):
    graph, query, edges = case
    assert_explains(graph, query, edges, guessing(graph, edges))


@examples(30)
@given(case=cases(plain))
def test_the_same_if_few_sources_are_tried(case):
    """The known edges of the others count all the same."""
    graph, query, edges = case
    query = resolve(query, graph)
    completed = guessing(graph, edges).ranker.completed
    ((_, work),) = truth_trees(completed, [query], num_sources=1)
    best, derivations = best_derivations(completed, work), Derivations(graph, completed, work)
    for entity in np.flatnonzero(work.root[0]).tolist():
        step = derivations(entity).best[0]
        assert step.whole_probability() == pytest.approx(best.root[0, entity], abs=1e-5)
        check(graph, edges, query, entity, step)


# ---- by hand ----------------------------------------------------------------------------------


def why(graph, text, entity, edges="train"):
    answers = exact(graph, edges).answer(text, graph.num_entities, explain=True)
    (found,) = [answer for answer in answers if answer.entity == entity]
    return found.why


@pytest.fixture
def graph(toy_triples):
    """The toy graph without labels, so that a text names its entities."""
    toy_triples.labels.clear()
    return KnowledgeGraph.from_triples(toy_triples)


def test_one_edge(graph):
    assert why(graph, "?X . parent(ann, ?X)", "bob") == Step("ann parent bob", "known", 1.0)
    missing = why(graph, "?X . lives_in(cat, ?X)", "Lima")
    assert missing == Step("cat lives_in Lima", "missing", pytest.approx(0.8))
    assert missing.missing() == ["cat lives_in Lima"]
    assert missing.edge == ("cat", "lives_in", "Lima")
    assert why(graph, "?X . lives_in(cat, ?X)", "Lima", "train+valid").status == "known"


def test_labels_are_shown(toy_graph):
    assert why(toy_graph, "?X . parent(ann, ?X)", "bob").text == "Ann Lee parent Bob Lee"


def test_an_inverse_is_read_in_the_written_direction(graph):
    assert why(graph, "?X . lives_in(?X, Rome)", "dan") == Step("dan lives_in Rome", "known", 1.0)
    missing = why(graph, "?X . lives_in(?X, Lima)", "cat")
    assert (missing.text, missing.status) == ("cat lives_in Lima", "missing")
    assert missing.edge == ("cat", "lives_in", "Lima")


def test_a_path(graph):
    text = "?X . exists ?P, ?C : parent(cat, ?P) & lives_in(?P, ?C) & in(?C, ?X)"
    end = Step("Lima in Peru", "known", 1.0, (
        Step("fay lives_in Lima", "known", 1.0, (Step("cat parent fay", "known", 1.0),)),
    ))  # fmt: skip
    assert why(graph, text, "Peru") == end


def test_one_missing_edge_of_a_path(graph):
    text = "?X . exists ?C : lives_in(cat, ?C) & in(?C, ?X)"
    step = why(graph, text, "Peru")
    assert (step.text, step.status) == ("Lima in Peru", "known")
    assert step.missing() == ["cat lives_in Lima"]
    assert step.whole_probability() == pytest.approx(0.8)


def test_both_and_either_and_not(graph):
    both = why(graph, "?X . parent(bob, ?X) & lives_in(?X, Rome)", "eve")
    assert both.status == "and"
    assert [step.text for step in both.sources] == ["bob parent eve", "eve lives_in Rome"]
    either = why(graph, "?X . parent(bob, ?X) | parent(cat, ?X)", "fay")
    assert either == Step("cat parent fay", "known", 1.0)
    but = why(graph, "?X . parent(bob, ?X) & !friend(ann, ?X)", "eve")
    assert [step.status for step in but.sources] == ["known", "not"]
    assert but.sources[1].text == "eve is not among friend(ann, ?X)"
    assert but.whole_probability() == pytest.approx(0.9)


def test_nested(graph):
    step = why(graph, FAMILY, "Lima")
    assert step.text == "fay lives_in Lima"
    assert [below.text for below in step.sources] == ["cat parent fay"]
    step = why(graph, FAMILY, "Rome")
    assert step.text in ("dan lives_in Rome", "eve lives_in Rome")
    assert step.missing() == []


def test_a_missing_edge_is_better_than_what_the_facts_rule_out(graph):
    """dan lives in Rome, so "not in Rome" is no way to him; a friendship with fay may be."""
    step = why(graph, "?X . !lives_in(?X, Rome) | friend(?X, fay)", "dan")
    assert (step.text, step.status) == ("dan friend fay", "missing")


def test_an_entity_or_an_edge(graph):
    assert why(graph, "?X . ?X = ann | parent(bob, ?X)", "ann") == Step("ann", "known", 1.0)
    step = why(graph, "?X . ?X = ann | parent(bob, ?X)", "dan")
    assert step == Step("bob parent dan", "known", 1.0)
