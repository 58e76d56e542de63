"""Answerer: which entities, in which order, how sure, known or predicted; and what it refuses."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae import KnowledgeGraph
from betae.answering import by_completion, by_embedding, truth
from betae.answering.answerer import QuestionRequest
from betae.answering.calibration import LAST_RANKS, Calibration
from betae.answering.results import STATUSES, as_shown, smallest, stable_argsort
from betae.errors import (
    BetaeError,
    InvalidArgument,
    QuerySyntaxError,
    UnknownEntity,
    UnknownRelation,
)
from betae.exact.answers import refuted
from betae.graph.triples import Triples, read_triples
from betae.queries.ast import PLACEHOLDER, Entity, Not
from betae.queries.read import resolve
from tests.answering.helpers import (
    answerer_by,
    by_distance,
    completed_graph,
    edge_weights,
    exact,
    guessing,
    random_model,
    untrained,
)
from tests.evaluation.eval_in_two_processes import Symbolic
from tests.queries.oracle import slow_answers
from tests.queries.strategies import cases, examples, trees

CHILDREN = "?X . parent(ann, ?X)"
EVERYWHERE = 100  # more answers than the toy graph has entities
MAKERS = {"completed": guessing, "embedding": untrained}
methods = st.sampled_from(list(MAKERS))


def shallow(num_entities, num_relations):
    return trees(num_entities, num_relations, depth=3)


# ---- random questions -------------------------------------------------------------------------


@examples(80)
@given(case=cases(shallow), method=methods)
def test_every_answer_has_its_status_and_place(case, method):
    graph, query, edges = case
    found = MAKERS[method](graph, edges=edges).answer(query, graph.num_entities)
    known = {graph.entities[i] for i in slow_answers(graph, query, edges)}
    certain = {graph.entities[i] for i in refuted(graph, [Not(resolve(query, graph))], edges)[0]}
    ruled_out = {graph.entities[i] for i in refuted(graph, [query], edges)[0]}
    by_status = {
        status: {answer.entity for answer in found if answer.status == status}
        for status in STATUSES
    }
    assert by_status["known"] == certain <= known
    assert by_status["known"] | by_status["assumed"] == known
    assert not by_status["predicted"] & (known | ruled_out)
    assert (found.num_known, found.num_assumed) == (len(known), len(known - certain))
    assert found.num_by_all == len(slow_answers(graph, query, "all"))
    assert (found.method, found.edges) == (method, edges)
    for answer in found:
        assert 0 < answer.probability <= 1
        assert (answer.probability == 1) == (answer.status == "known")
    places = []  # facts first, then by falling probability
    for answer in found:
        by_ways = method == "completed" and answer.status != "predicted"
        shown = float(as_shown(np.array(answer.probability)))
        order = (-shown, -answer.num_derivations) if by_ways else (-answer.probability,)
        places.append((list(STATUSES).index(answer.status), *order))
    assert places == sorted(places)
    assert found.expected == pytest.approx(sum(answer.probability for answer in found))
    assert found.looks_empty == (found.expected < 0.5)


@examples(40)
@given(case=cases(shallow), data=st.data(), method=methods)
def test_filters_choose_from_the_whole_list(case, data, method):
    graph, query, edges = case
    answerer = MAKERS[method](graph, edges=edges)
    k = data.draw(st.integers(1, 15))
    status = data.draw(st.sampled_from([None, *STATUSES]))
    threshold = data.draw(st.sampled_from([0.0, 0.3, 0.7, 0.85, 1.0]))
    whole = answerer.answer(query, graph.num_entities)
    kept = [
        answer
        for answer in whole
        if answer.probability >= threshold and status in (None, answer.status)
    ]
    found = answerer.answer(query, k, status=status, threshold=threshold)
    assert list(found) == kept[:k]  # with their ranks among all
    assert (found.expected, found.num_known) == (whole.expected, whole.num_known)


# ---- by hand ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "known"), [("train", set()), ("train+valid", {"Lima"}), ("all", {"Lima"})]
)
def test_the_edges_say_what_is_known(toy_graph, edges, known):
    found = exact(toy_graph, edges).answer("?X . lives_in(cat, ?X)", EVERYWHERE)
    assert {answer.entity for answer in found if answer.status == "known"} == known
    assert found[0].entity == "Lima"
    assert found[0].probability == (1 if known else pytest.approx(0.8))
    assert found.expected == pytest.approx(found[0].probability + 10 * 0.1)  # none for the loop
    assert found.num_by_all == 1


def test_an_answer_has_the_label_and_the_name(toy_graph):
    first, second = exact(toy_graph).answer(CHILDREN, status="known")
    assert {(first.entity, first.label), (second.entity, second.label)} == {
        ("bob", "Bob Lee"),
        ("cat", "Sam"),
    }
    assert (first.rank, second.rank) == (1, 2)
    assert first.score is second.score is None  # there is no distance
    assert first.why is None


def test_what_rests_on_an_absence_is_assumed(toy_graph):
    """Nothing says that bob's child eve lives in Lima, and nothing that she does not."""
    found = exact(toy_graph).answer("?X . parent(bob, ?X) & !lives_in(?X, Lima)", EVERYWHERE)
    (eve,) = [answer for answer in found if answer.entity == "eve"]
    assert (eve.status, eve.probability) == ("assumed", pytest.approx(0.9))
    assert (found.num_known, found.num_assumed) == (2, 2)
    assert "fay" not in {answer.entity for answer in found}  # she lives there
    assert "2 known answers, 2 assumed (training edges only)" in repr(found)


def test_an_assumed_answer_is_never_certain(toy_graph):
    """However sure the model is that the fact is not missing, it is not known."""
    weights = edge_weights({"symbolic": 1.0}, bias=-100.0)
    for answerer in (
        answerer_by(completed_graph(toy_graph, weights=weights), toy_graph),
        untrained(toy_graph),
    ):
        found = answerer.answer("?X . parent(bob, ?X) & !lives_in(?X, Lima)")
        assert [answer.status for answer in found][:2] == ["assumed", "assumed"]
        assert all(0.99 < answer.probability < 1 for answer in found.answers[:2])
        assert "100.0%" not in repr(found)
        assert ">99.9%" in repr(found)


def test_a_contradiction_has_no_answers(toy_graph):
    parts = ["parent(ann, ?X)", "(exists ?Y : parent(ann, ?Y) & friend(?Y, ?X))"]
    for part in parts:
        for answerer in (exact(toy_graph), exact(toy_graph, knows="train")):
            found = answerer.answer(f"?X . {part} & !{part}")
            assert len(found) == found.expected == 0
            assert found.looks_empty


def test_logic_text_sparql_and_tree_are_one(toy_graph):
    answerer = exact(toy_graph)
    sparql = "PREFIX : <> SELECT ?x WHERE { :ann :parent ?x }"
    tree = Entity("ann")["parent"]
    forms = [CHILDREN, sparql, tree, resolve(tree, toy_graph)]
    results = [answerer.answer(form, explain=True) for form in forms]
    assert all(result == results[0] for result in results)
    assert results[0].query == '?X . parent("Ann Lee", ?X)'


def test_a_question_is_never_read_from_disk(toy_graph, write):
    with pytest.raises(InvalidArgument, match="not a question"):
        exact(toy_graph).answer(str(write("q.rq", CHILDREN)))


def test_a_union_is_true_by_any_of_its_parts(toy_graph):
    answerer = exact(toy_graph)
    found = answerer.answer("?X . parent(ann, ?X) | lives_in(cat, ?X)", EVERYWHERE)
    known = {answer.entity for answer in found if answer.status == "known"}
    assert known == {"bob", "cat"}
    chances = {answer.entity: answer.probability for answer in found}
    assert chances["Lima"] == pytest.approx(1 - (1 - 0.8) * (1 - 0.1))
    assert chances["Oslo"] == pytest.approx(1 - (1 - 0.1) * (1 - 0.1))


def test_a_question_that_looks_empty(toy_graph):
    weights = edge_weights({"symbolic": 7.0}, bias=2.0)  # 88 % and 0.7 %
    answerer = answerer_by(completed_graph(toy_graph, weights=weights), toy_graph)
    empty = answerer.answer("?X . parent(Peru, ?X)")
    assert empty.looks_empty
    assert empty.expected == pytest.approx(11 / (1 + math.exp(5)))  # none for the loop
    assert not answerer.answer(CHILDREN).looks_empty
    assert not answerer.answer("?X . lives_in(cat, ?X)").looks_empty  # predicted only


def test_an_entity_alone_and_everything(toy_graph):
    answerer = exact(toy_graph)
    (ann,) = answerer.answer("?X . ?X = ann", EVERYWHERE)
    assert (ann.entity, ann.status, ann.probability) == ("ann", "known", 1)
    everything = answerer.answer(Entity("ann") | ~Entity("ann"), EVERYWHERE)
    assert everything.expected == len(everything) == everything.num_known == 12
    assert everything.num_assumed == 0


def test_no_answer_passes(toy_graph):
    found = exact(toy_graph).answer("?X . parent(Peru, ?X)", threshold=1.0)
    assert len(found) == 0
    assert found.num_known == 0
    assert found.expected == pytest.approx(11 * 0.1)


def test_names_may_be_anything():
    names = ["a", "b\tc", "[x]", "ü", ""]
    splits = {
        split: np.array(edges, dtype=np.int32).reshape(-1, 3)
        for split, edges in (("train", [[0, 0, 1]]), ("valid", [[1, 0, 2]]), ("test", []))
    }
    graph = KnowledgeGraph.from_triples(Triples(names, ["r"], splits))
    found = exact(graph).answer(Entity(0)["r"], 5, explain=True)
    assert {answer.entity for answer in found} == set(names)
    assert [answer.probability for answer in found] == pytest.approx(
        [1, 0.1, 0.1, 0.1, 0], abs=1e-6
    )


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 2.5, 2.0, "3", True, math.nan])
def test_k_is_a_whole_number_above_zero(toy_graph, k):
    with pytest.raises(InvalidArgument, match="k is"):
        exact(toy_graph).answer(CHILDREN, k)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, math.inf])
def test_a_threshold_is_a_probability(toy_graph, threshold):
    with pytest.raises(InvalidArgument, match="threshold"):
        exact(toy_graph).answer(CHILDREN, threshold=threshold)


def test_words_that_are_no_choice(toy_graph):
    with pytest.raises(InvalidArgument, match="known, assumed, predicted"):
        exact(toy_graph).answer(CHILDREN, status="sure")
    completed = completed_graph(toy_graph, "train", Symbolic(toy_graph, "train"))
    with pytest.raises(InvalidArgument, match=r"train, train\+valid, all"):
        answerer_by(completed, toy_graph, edges="valid")


def test_unknown_names_offer_the_closest(toy_graph):
    answerer = exact(toy_graph)
    with pytest.raises(UnknownEntity, match="'Oslo'"):
        answerer.answer("?X . lives_in(?X, Osslo)")
    with pytest.raises(UnknownRelation, match="'lives_in'"):
        answerer.answer("?X . livesin(?X, Oslo)")
    with pytest.raises(UnknownEntity, match="#12"):
        answerer.answer(Entity(12)["parent"])


@pytest.mark.parametrize(
    "query", [Entity(PLACEHOLDER)["parent"], Entity("ann")[PLACEHOLDER], "?X . _(ann, ?X)"]
)
def test_placeholders(toy_graph, query):
    with pytest.raises(InvalidArgument, match="_ is a placeholder"):
        exact(toy_graph).answer(query)


@pytest.mark.parametrize("text", ["", "ann", "?X . parent(ann, ?X", "?X . parent(ann, bob)"])
def test_what_is_no_question(toy_graph, text):
    with pytest.raises(BetaeError):
        exact(toy_graph).answer(text)


def test_a_syntax_error_has_its_place(toy_graph):
    with pytest.raises(QuerySyntaxError, match=r"\^"):
        exact(toy_graph).answer("?X . parent(ann, ?X")


# ---- many questions at once ---------------------------------------------------------------------

QUESTIONS = [
    QuestionRequest("?X . lives_in(bob, ?X)"),
    QuestionRequest("?X . exists ?C : parent(ann, ?C) & lives_in(?C, ?X)", explain=True),
    QuestionRequest("?X . lives_in(eve, ?X)", k=2, status="predicted", explain=True),
    QuestionRequest("SELECT ?x { <cat> <lives_in> ?x } LIMIT 3"),
    QuestionRequest("?X . parent(ann, ?X) & !lives_in(?X, Oslo)", threshold=0.2),
    QuestionRequest("?X . exists ?C : parent(bob, ?C) & lives_in(?C, ?X)", k=4, explain=True),
    QuestionRequest("?X . parent(ann, ?X) | friend(bob, ?X)", k=5),
]


def nearly(value):
    """Return plain values to compare with: a batch may round the last digits otherwise."""
    if isinstance(value, dict):
        return {key: nearly(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(map(nearly, value))
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


@pytest.mark.parametrize("make", [guessing, untrained])
@pytest.mark.parametrize("edges", ["train", "all"])
def test_they_are_answered_as_one_by_one(make, edges, toy_graph):
    answerer = make(toy_graph, edges=edges)
    one_by_one = [
        answerer.answer(
            each.question,
            each.k,
            status=each.status,
            threshold=each.threshold,
            explain=each.explain,
        )
        for each in QUESTIONS
    ]
    for many, one in zip(answerer.answer_many(QUESTIONS), one_by_one, strict=True):
        assert many.to_json() == nearly(one.to_json())


def test_a_structure_is_evaluated_once(toy_graph, monkeypatch):
    sizes = []

    def evaluate(completed, structure, symbols, num_sources):
        sizes.append(len(symbols))
        return original(completed, structure, symbols, num_sources)

    original = truth._evaluate
    monkeypatch.setattr(truth, "_evaluate", evaluate)
    guessing(toy_graph).answer_many(QUESTIONS)
    assert sorted(sizes) == [1, 1, 2, 3]


def test_rows_of_named_entities_are_made_in_one_go(toy_graph, monkeypatch):
    answerer, sizes = guessing(toy_graph), []
    probabilities = answerer.ranker.completed.probabilities
    original = probabilities.rows

    def rows(heads, *others):
        sizes.append(len(heads))
        return original(heads, *others)

    monkeypatch.setattr(probabilities, "rows", rows)
    answerer.answer_many([QuestionRequest(each.question) for each in QUESTIONS])
    named = {"lives_in": 3 + 1, "parent": 2, "friend": 1}  # by bob, eve, cat, ~Oslo; ann, bob; bob
    assert sizes[0] == sum(named.values())


@pytest.mark.parametrize(("at_once", "sizes"), [(2**21, [7]), (30, [2, 2, 2, 1])])
def test_a_batch_is_embedded_once(at_once, sizes, toy_graph, monkeypatch):
    batches = []

    def embed(model, queries, union):
        batches.append(len(queries))
        return original(model, queries, union)

    original = by_embedding.embed_queries
    answerer = untrained(toy_graph)
    expected = answerer.answer_many(QUESTIONS)
    monkeypatch.setattr(by_embedding, "embed_queries", embed)
    monkeypatch.setattr(by_embedding, "DISTANCES_PER_BATCH", at_once)
    found = answerer.answer_many(QUESTIONS)
    assert batches == sizes
    assert [each.to_json() for each in found] == [nearly(each.to_json()) for each in expected]


def test_no_question_is_no_answer_and_a_bad_one_is_an_error(toy_graph):
    answerer = guessing(toy_graph)
    assert answerer.answer_many([]) == []
    with pytest.raises(UnknownEntity, match="nobody"):
        answerer.answer_many([*QUESTIONS, QuestionRequest("?X . lives_in(nobody, ?X)")])


# ---- only the first entities are sorted ---------------------------------------------------------

NUMBER = 1500  # entities: more than the ranks that have a curve of their own


@pytest.mark.parametrize("also", [[], [3], [7, 499, 20]])
@pytest.mark.parametrize("number", [1, 10, 400, 600])
def test_the_first_are_as_all_in_order(number, also):
    generator = np.random.default_rng(0)
    for values in (
        generator.normal(size=500).astype(np.float32),
        generator.integers(-5, 5, size=500).astype(np.float32),  # many are equal
        np.zeros(500, dtype=np.float32),
    ):
        in_order = stable_argsort(values).tolist()
        found = smallest(values, number, np.array(also, dtype=np.int32)).tolist()
        assert found[:number] == in_order[:number]
        assert set(also) <= set(found)
        assert found == sorted(found, key=in_order.index)


@pytest.fixture(scope="module")
def graph():
    generator = np.random.default_rng(1)
    rows = zip(*generator.integers(0, [[NUMBER], [4], [NUMBER]], (3, 9000)), strict=True)
    often = [(i % 7, 4, i) for i in range(0, NUMBER, 3)]  # many answers
    triples = {(f"e{head}", f"r{relation}", f"e{tail}") for head, relation, tail in [*rows, *often]}
    return KnowledgeGraph.from_triples(read_triples(sorted(triples), test=0.3))


def answerers(graph, edges):
    curves = [([0.0, 60.0], [0.9 / (i + 1), 0.1 / (i + 1)]) for i in range(len(LAST_RANKS) + 1)]
    curves[-1] = ([5.0, 12.0, 40.0], [0.3, 0.02, 0.0])  # the class before may end below
    yield guessing(graph, edges)
    for calibration in (Calibration(tuple(curves)), None):
        yield by_distance(graph, random_model("betae", graph), calibration, edges)


TEXTS = [
    "?X . r0(e1, ?X)",
    "?X . exists ?Y : r1(e2, ?Y) & r4(?Y, ?X)",
    "?X . r4(e3, ?X) & !r2(e5, ?X)",
    "?X . r4(e1, ?X) | r4(e2, ?X) | r0(e9, ?X)",
    "?X . !r4(e4, ?X) & !r0(?X, e7)",
]
WANTED = [
    {},
    {"k": 300},
    {"k": 1400},
    {"status": "predicted"},
    {"k": 30, "status": "assumed"},
    {"k": 700, "threshold": 0.03},
]


@pytest.mark.parametrize("edges", ["train", "all"])
def test_answers_are_those_of_a_list_of_all(edges, graph, monkeypatch):
    asked = [QuestionRequest(text, **wanted) for text, wanted in itertools.product(TEXTS, WANTED)]

    def answer(answerer):
        together = answerer.answer_many(asked)
        return [each.to_json() for each in (*together, *map(answerer.answer, TEXTS))]

    for answerer in answerers(graph, edges):
        found = answer(answerer)
        with monkeypatch.context() as patch:
            for module in (by_completion, by_embedding):
                patch.setattr(module, "smallest", lambda values, *_: stable_argsort(values))
            patch.setattr(by_embedding, "CALIBRATED_RANKS", NUMBER)  # so all have a rank at once
            everything = answer(answerer)
        assert found == [nearly(each) for each in everything]
        statuses = {answer["status"] for each in found for answer in each["answers"]}
        assert statuses == {"known", "assumed", "predicted"}
