"""The completed graph around a question: the same as the whole, if all is in it, and near it."""

import numpy as np
import pytest

from betae.answering import by_parts, edge_fit, edges
from betae.answering.answerer import Answerer
from betae.answering.by_completion import ByCompletion
from betae.answering.by_parts import ByParts, LargeGraph
from betae.answering.completed import CompletedGraph
from betae.answering.edge_fit import fit_edges
from betae.answering.edges import Counts, EdgePredictors
from betae.answering.scores import project
from betae.errors import UnsupportedQuery
from betae.graph.edges import Adjacency
from betae.models import QueryModel
from betae.models.execute import embed_queries
from betae.queries.ast import Entity
from betae.search import build_index
from tests.answering.helpers import edge_weights, probabilities_of, random_model
from tests.training.helpers import graph_of, small_graph

QUESTIONS = [
    "?X . r0(e1, ?X)",
    "?X . exists ?Y : r0(e1, ?Y) & r1(?Y, ?X)",
    "?X . exists ?Y, ?Z : r0(e1, ?Y) & r1(?Y, ?Z) & r0(?X, ?Z)",
    "?X . r0(e1, ?X) & r1(?X, e2)",
    "?X . r0(e1, ?X) & !r1(e2, ?X)",
    "?X . r0(e1, ?X) | r1(e2, ?X)",
    "?X . exists ?Y : (r0(e1, ?Y) | r1(e2, ?Y)) & !r2(e3, ?Y) & r1(?Y, ?X)",
]
WEIGHTS = edge_weights(
    {"betae": 1.0, "complex": 2.0}, tail=(0.1, -0.5, 0.2), loop=(0.3, 0.2), total=-0.5, full=-1
)
NUMBER = 3000


def completing(graph):
    """Two models that complete a graph, and their indexes."""
    models = [random_model(name, graph).eval().requires_grad_(False) for name in WEIGHTS.predictors]
    queries = [Entity(entity)[relation] for entity in range(20) for relation in range(4)]
    return models, [build_index(model, embed_queries(model, queries)) for model in models]


@pytest.fixture(scope="module")
def small():
    graph = small_graph(0, 200, num_edges=1500, num_valid=100)
    return graph, *completing(graph)


@pytest.fixture(scope="module")
def large():
    graph = small_graph(0, NUMBER, num_edges=18_000, num_valid=100)
    return graph, *completing(graph)


def both(graph, models, indexes, edges="train"):
    """Answers from the whole completed graph, and from parts of it."""
    completed = CompletedGraph(graph, probabilities_of(models, WEIGHTS, graph, edges))
    large = LargeGraph(graph, EdgePredictors(models, WEIGHTS, 0.0, indexes), edges)
    rankers = ByCompletion(graph, completed), ByParts(large)
    return [Answerer(graph, ranker, edges) for ranker in rankers]


@pytest.mark.parametrize("edges", ["train", "all"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_if_the_sample_is_all_entities_the_answers_are_the_same(small, question, edges):
    by_all, by_part = both(*small, edges)
    one = by_all.answer(question, 20, explain=True)
    two = by_part.answer(question, 20, explain=True)
    assert one.expected == pytest.approx(two.expected, rel=1e-5)
    for expected, found in zip(one, two, strict=True):
        assert found.probability == pytest.approx(expected.probability, rel=1e-5)
        assert (found.entity, found.status, found.rank) == (
            expected.entity,
            expected.status,
            expected.rank,
        )
        assert found.why.text == expected.why.text
        assert found.why.missing() == expected.why.missing()


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_part_gives_about_the_same_answers_and_number(large, question, monkeypatch):
    monkeypatch.setattr(by_parts, "PART_SAMPLE", 500)
    by_all, by_part = both(*large)
    one, two = by_all.answer(question, 10), by_part.answer(question, 10)
    assert two.expected == pytest.approx(one.expected, rel=0.1)
    assert len({each.entity for each in one} & {each.entity for each in two}) >= 8
    for expected, found in zip(one, two, strict=True):
        assert found.probability == pytest.approx(expected.probability, rel=0.1)


def test_few_rows_are_read(large, monkeypatch):
    graph, models, indexes = large
    monkeypatch.setattr(by_parts, "PART_SAMPLE", 100)
    monkeypatch.setattr(by_parts, "PROPOSED_TAILS", 20)
    read, look_up = set(), QueryModel.look_up

    def note(self, ids):
        read.update(ids.tolist())
        return look_up(self, ids)

    def refuse(*_):
        raise AssertionError("the whole table was asked for")

    large = LargeGraph(graph, EdgePredictors(models, WEIGHTS, 0.0, indexes))
    answerer = Answerer(graph, ByParts(large))
    monkeypatch.setattr(QueryModel, "look_up", note)
    for model in models:
        table = model.table
        monkeypatch.setattr(
            model, "table", lambda ids=None, table=table: refuse() if ids is None else table(ids)
        )
    assert len(answerer.answer(QUESTIONS[0])) == 10
    assert 100 < len(read) < NUMBER / 5
    assert answerer.answer(QUESTIONS[1], explain=True)[0].why is not None


@pytest.mark.parametrize(
    "question",
    [
        "?X . !r0(e1, ?X)",
        "?X . r0(e1, ?X) | !r1(e2, ?X)",
        "?X . exists ?Y : !r0(e1, ?Y) & r1(?Y, ?X)",
        "?X . r0(e1, ?X) & !(r1(e2, ?X) & exists ?Y : !r0(e1, ?Y) & r1(?Y, ?X))",
    ],
)
def test_what_holds_of_nearly_all_entities_is_refused(small, question):
    _, by_part = both(*small)
    with pytest.raises(UnsupportedQuery, match=r"nearly all entities.*without the index"):
        by_part.answer(question)


def test_entities_that_came_after_training_have_their_known_edges(small):
    graph, models, indexes = small
    grown = graph.extended([("e1", "r0", "new"), ("new", "r1", "e2"), ("e1", "r9", "e3")])
    by_all, by_part = both(grown, models, indexes, "all")
    for question in ("?X . r0(e1, ?X)", "?X . r1(new, ?X)", "?X . r9(e1, ?X)", QUESTIONS[1]):
        one, two = by_all.answer(question, 30), by_part.answer(question, 30)
        found = {each.entity: each.probability for each in two}
        assert found == pytest.approx({each.entity: each.probability for each in one}, rel=1e-5)


# ---- parts of a graph ---------------------------------------------------------------------------


@pytest.mark.parametrize("heavy", [0, 20, 10**6])
def test_the_edges_among_some_entities(heavy, monkeypatch):
    monkeypatch.setattr(by_parts, "MANY_EDGES", heavy)
    graph = small_graph(3, 60, num_edges=800)
    adjacency, ids = graph.adjacency("all"), np.random.default_rng(0).integers(60, size=25)
    ids = np.unique(ids)
    found = by_parts._among(adjacency, ids, graph.num_relations)
    triples = np.concatenate([*graph.written_ids.values()])
    inside = triples[np.isin(triples[:, 0], ids) & np.isin(triples[:, 2], ids)]
    inside[:, [0, 2]] = np.searchsorted(ids, inside[:, [0, 2]])
    expected = Adjacency.from_triples(inside, len(ids), graph.num_relations // 2)
    for name in ("head_offsets", "relations", "tail_offsets", "tails"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_what_a_part_counts_is_of_the_whole_graph(small, monkeypatch):
    monkeypatch.setattr(edges, "COUNT_BATCH", 70)
    monkeypatch.setattr(by_parts, "PART_SAMPLE", 5)
    graph, models, _ = small
    large = LargeGraph(graph, EdgePredictors(models, WEIGHTS))
    counts = Counts(graph.adjacency("all"))
    of = large.part(np.arange(0, 200, 7))
    for relation in range(graph.num_relations + 2):
        ours = of.completed.counts
        assert ours.mean(relation) == pytest.approx(counts.mean(relation))
        assert ours.log_loops(relation) == pytest.approx(counts.log_loops(relation))
        numbers = counts.num_tails(of.ids, np.full(len(of.ids), relation))
        heads = np.arange(len(of.ids))
        assert ours.num_tails(heads, np.full(len(heads), relation)).tolist() == numbers.tolist()
        assert ours.heads(relation)[0].tolist() == np.flatnonzero(numbers).tolist()
    assert of.represents.sum() == pytest.approx(200)


# ---- the fit ------------------------------------------------------------------------------------


@pytest.fixture
def _few_rows(monkeypatch):
    monkeypatch.setattr(edge_fit, "FIT_ROWS", 100)
    monkeypatch.setattr(edge_fit, "FIT_PAIRS", 200)


@pytest.mark.slow
@pytest.mark.usefixtures("_few_rows")
def test_if_the_sample_is_all_entities_the_weights_are_the_same(small, monkeypatch):
    graph, models, _ = small
    expected, found = fit_edges(models, graph), fit_edges(models, graph, in_parts=True)
    for kind in ("predictors", "tail", "row"):
        assert getattr(found, kind) == pytest.approx(getattr(expected, kind), rel=1e-2, abs=1e-2)
    monkeypatch.setattr(edge_fit, "SCORES_PER_BATCH", 7 * 200)  # seven rows at a time
    again = fit_edges(models, graph)
    for kind in ("predictors", "tail", "row"):
        assert getattr(again, kind) == pytest.approx(getattr(expected, kind), rel=1e-2, abs=1e-2)


def planted(num_entities=1000):
    """A model, and a graph of its 6 best tails for each head, of which a tenth is held out."""
    random = np.random.default_rng(0)
    model = random_model("complex", small_graph(0, num_entities, 1)).eval().requires_grad_(False)
    heads = np.arange(num_entities)
    scores = -model.distance(project(model, heads, 0 * heads), model.table())
    tails = scores.topk(6).indices.numpy().ravel()
    edges = np.stack([np.repeat(heads, 6), 0 * tails, tails], axis=1)
    edges = random.permutation(edges)
    return model, graph_of(edges[600:], edges[:600], num_entities, 1)


@pytest.mark.usefixtures("_few_rows")
def test_the_fit_reads_no_whole_table_and_is_about_the_same(monkeypatch):
    model, graph = planted()
    monkeypatch.setattr(by_parts, "PART_SAMPLE", 200)
    by_all = fit_edges([model], graph)
    table = model.table

    def some(ids):
        assert ids is not None, "the whole table was asked for"
        return table(ids)

    monkeypatch.setattr(model, "table", some)
    by_part = fit_edges([model], graph, in_parts=True)
    with pytest.raises(AssertionError, match="whole table"):
        fit_edges([model], graph)
    monkeypatch.setattr(model, "table", table)
    heads = np.arange(0, 1000, 10)
    missing = []
    for weights in (by_all, by_part):
        rows = probabilities_of([model], weights, graph).rows(heads, 0 * heads)
        missing.append(rows[rows < 1].sum())
    assert missing[0] == pytest.approx(60, rel=0.4)
    assert missing[1] == pytest.approx(missing[0], rel=0.25)
