"""Derivations: checked edge by edge against the triples, by a reader that knows only their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.answering.explain import Explainer
from betae.answering.results import Step
from betae.queries.ast import And, Entity, Not, Or, Project
from betae.queries.names import resolve, unresolve
from betae.queries.rewrite import MAX_BRANCHES
from betae.queries.syntax import parse
from tests.answering.helpers import CURVE, exact, random_model, untrained
from tests.evaluation.eval_in_two_processes import Symbolic
from tests.queries.oracle import edges_of, slow_answers
from tests.queries.strategies import cases, examples, trees

FAMILY = """\
?X . exists ?C : (parent(bob, ?C) & !friend(?C, dan) | parent(cat, ?C)) & lives_in(?C, ?X)"""


def explainer_of(graph, edges, knows="all"):
    model = Symbolic(graph, knows)
    return Explainer(model, model.table().detach(), graph, edges, CURVE)


def check(graph, edges, query, entity, step):
    """Follow a step through the query; return what in it the facts do not bear out.

    Edges are "known" only if they count as known, else "missing", and their ends must meet:
    the one at `entity`, the other where the next step goes on.
    """
    known = {
        (graph.entities[head], graph.relations[relation], graph.entities[tail])
        for head, relation, tail in edges_of(graph, edges)
    }
    assert 0 <= step.probability <= 1
    assert 0 <= step.whole_probability() <= 1

    def walk(query, entity, step):
        match query:
            case Entity(name):
                assert step.sources == ()
                assert (step.status == "known") == (name == entity)
                return [] if name == entity else [(step.status, step)]
            case Not(operand):
                inner = str(unresolve(operand, graph)).removeprefix("?X . ")
                text = f"{graph.entities[entity]} is none of: {inner}"
                if step.text != text and not isinstance(operand, Entity | Project):
                    return walk(pushed_down(operand), entity, step)  # as well said that way
                assert step.status == "not"
                assert step.sources == ()
                assert step.text == text
                is_inside = entity in slow_answers(graph, operand, edges)
                return [("inside", step)] if is_inside else []
            case And():
                assert step.status == "and"
                assert len(step.sources) == len(query.operands)
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

    return walk(resolve(query, graph), entity, step)


def pushed_down(query):
    """Return the complement of a query with the complement of each operand instead."""
    match query:
        case Not(operand):
            return operand
        case And():
            return Or(*map(Not, query.operands))
        case Or():
            return And(*map(Not, query.operands))
    raise AssertionError(query)


def shallow(num_entities, num_relations):
    return trees(num_entities, num_relations, depth=3)


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


def assert_explains(case, knows):
    graph, query, edges = case
    query = resolve(query, graph)
    explainer = explainer_of(graph, edges, knows)
    known = slow_answers(graph, query, edges)
    for entity in range(graph.num_entities):
        step = explainer.explain(query, entity)
        doubts = check(graph, edges, query, entity, step)
        assert bool(doubts) == (entity not in known), (entity, step)
        if entity in known:
            assert step.missing() == []
        assert {below.text for kind, below in doubts if kind == "missing"} == set(step.missing())


@examples(80)
@given(case=cases(plain), knows=st.sampled_from(["train", "all"]))
def test_derivations_are_real(case, knows):
    assert_explains(case, knows)


@examples(80)
@given(case=cases(shallow), knows=st.sampled_from(["train", "all"]))
def test_derivations_are_real_with_entities_anywhere(case, knows):
    assert_explains(case, knows)


@examples(30)
@given(case=cases(plain))
def test_a_model_that_knows_nothing_still_has_real_derivations_of_known_answers(case):
    graph, query, edges = case
    answers = untrained(graph, edges=edges).answer(query, 4, status="known", explain=True)
    for answer in answers:
        entity = graph.entity_id(answer.entity)
        assert check(graph, edges, query, entity, answer.why) == []
        assert answer.why.missing() == []


@examples(30)
@given(case=cases(plain))
def test_predicted_answers_say_what_is_missing(case):
    graph, query, edges = case
    for answer in untrained(graph, edges=edges).answer(query, 3, status="predicted", explain=True):
        assert check(graph, edges, query, graph.entity_id(answer.entity), answer.why)


# ---- by hand ----------------------------------------------------------------------------------


def only(answers, entity):
    (found,) = [answer for answer in answers if answer.entity == entity]
    return found.why


def why(graph, text, entity, edges="train"):
    return only(exact(graph, edges).answer(text, graph.num_entities, explain=True), entity)


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
    assert why(graph, "?X . lives_in(cat, ?X)", "Lima", "train+valid").status == "known"


def test_an_inverse_is_read_in_the_written_direction(graph):
    assert why(graph, "?X . lives_in(?X, Rome)", "dan") == Step("dan lives_in Rome", "known", 1.0)
    missing = why(graph, "?X . lives_in(?X, Lima)", "cat")
    assert (missing.text, missing.status) == ("cat lives_in Lima", "missing")


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
    but = why(graph, "?X . parent(bob, ?X) & !friend(eve, ?X)", "eve")
    assert [step.status for step in but.sources] == ["known", "not"]
    assert but.sources[1].text == "eve is none of: friend(eve, ?X)"
    assert but.sources[1].probability == pytest.approx(0.9)  # 0.1 is the curve's farthest
    assert but.whole_probability() == pytest.approx(0.9)


def test_a_negated_part_with_the_entity_inside(graph):
    query = resolve(parse("?X . parent(bob, ?X) & !lives_in(?X, Rome)"), graph)
    step = explainer_of(graph, "train").explain(query, graph.entity_id("dan"))
    inside = step.sources[1]
    assert inside.status == "not"
    assert inside.probability == 0
    assert step.whole_probability() == 0


def test_nested(graph):
    step = why(graph, FAMILY, "Lima")
    assert step.text == "fay lives_in Lima"
    assert [below.text for below in step.sources] == ["cat parent fay"]
    step = why(graph, FAMILY, "Rome")
    assert step.text in ("dan lives_in Rome", "eve lives_in Rome")
    assert step.missing() == []


def test_a_missing_edge_is_better_than_what_the_facts_rule_out(graph):
    """dan lives in Rome, so "not in Rome" is no way to him; a friendship with fay may be."""
    query = "?X . !lives_in(?X, Rome) | friend(?X, fay)"
    step = why(graph, query, "dan")
    assert step.text == "dan friend fay"
    assert step.status == "missing"


def test_an_entity_is_known_to_be_itself_only(graph):
    alone = exact(graph).answer("?X . ?X = ann", 12, explain=True)
    assert only(alone, "ann") == Step("ann", "known", 1.0)
    assert len(alone) == 1


def test_an_entity_or_an_edge(graph):
    step = why(graph, "?X . ?X = ann | parent(bob, ?X)", "dan")
    assert step == Step("bob parent dan", "known", 1.0)


@pytest.mark.parametrize("model_name", ["query2box", "gqe"])
@pytest.mark.parametrize(
    "query",
    [
        "?X . !(!parent(ann, ?X))",
        "?X . !(!parent(ann, ?X) & !parent(bob, ?X))",
        "?X . exists ?Y : parent(?Y, ?X) & (parent(ann, ?Y) | friend(bob, ?Y))",
        "?X . ?X = ann",
    ],
)
def test_what_a_model_answers_it_also_explains(graph, model_name, query):
    answerer = untrained(graph, model_name)
    answers = answerer.answer(query, 12)
    assert [a.rank for a in answerer.answer(query, 12, explain=True)] == [a.rank for a in answers]


def test_a_question_for_de_morgan_form_only_is_explained_too(graph):
    """Its disjunctive normal form would have 3 ** 9 branches."""
    pair = Entity("ann")["parent"] | Entity("bob")["parent"]
    parts = [pair | Entity(i)["friend"] for i in range(9)]
    query = And(*parts)["lives_in"]
    assert 3 ** len(parts) > MAX_BRANCHES
    answers = untrained(graph).answer(query, 3, union="DM", explain=True)
    assert len(answers) == 3
    assert all(answer.why for answer in answers)


def test_more_sources_than_are_tried(monkeypatch, graph):
    """The one that the facts lead from is found, whichever the model tries first."""
    monkeypatch.setattr("betae.answering.explain.SOURCES", 1)
    text = "?X . exists ?P : parent(ann, ?P) & parent(?P, ?X)"
    answers = untrained(graph).answer(text, 12, explain=True)
    for entity, edge in (("dan", "bob parent dan"), ("fay", "cat parent fay")):
        step = only(answers, entity)
        assert (step.text, step.missing()) == (edge, [])


def test_the_model_is_not_asked_for_what_it_need_not(graph):
    model = random_model("betae", graph)
    explainer = Explainer(model, model.table().detach(), graph, "train", CURVE)
    query = resolve(Entity("ann")["parent"]["parent"], graph)
    assert explainer.members(query) is explainer.members(query)
    members = explainer.members(query)
    known = {graph.entity_id(name) for name in ("dan", "eve", "fay")}
    assert {entity for entity in range(12) if members[entity] == 1} == known
