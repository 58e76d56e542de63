"""Probabilities of edges: known ones are certain, and a row keeps the order of its scores."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from betae.answering.edges import (
    FULLNESS,
    NO_LOOP,
    ROW,
    TAIL,
    Counts,
    EdgeProbabilities,
    fullness,
    head_features,
    log_odds_of_missing,
    log_partition,
    mask_known,
    validation_share,
)
from betae.errors import StoreError
from betae.run import Run
from betae.storage import manifest_checksum
from tests.answering.helpers import edge_weights, probabilities_of, random_model, save_run
from tests.evaluation.eval_in_two_processes import split_graph
from tests.training.helpers import graph_of, small_graph

WEIGHTS = replace(
    edge_weights(
        {"betae": 0.3, "complex": 2.0}, (0.4, -1.5, 0.7), loop=(-1.2, 0.3), total=-0.6, bias=-1.0
    ),
    bend=(-3.0, 0.6),
)


@pytest.fixture(scope="module")
def graph():
    return split_graph()


@pytest.fixture(scope="module")
def probabilities(graph):
    models = [random_model(name, graph) for name in WEIGHTS.predictors]
    return probabilities_of(models, WEIGHTS, graph)


def all_pairs(graph):
    """Every head with every directed relation."""
    return np.indices((graph.num_entities, graph.num_relations)).reshape(2, -1)


# ---- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", ["train", "train+valid", "all"])
def test_known_edges_are_certain_and_no_others(graph, probabilities, edges):
    adjacency = graph.adjacency(edges)
    heads, relations = all_pairs(graph)
    models = probabilities.predictors.models
    rows = probabilities_of(models, WEIGHTS, graph, edges).rows(heads, relations)
    known = np.zeros(rows.shape, dtype=bool)
    for row, (head, relation) in enumerate(zip(heads, relations, strict=True)):
        known[row, adjacency.neighbours(head, relation)] = True
    assert (rows[known] == 1).all()
    assert (rows[~known] > 0).all()
    assert (rows[~known] <= 0.999 + 1e-6).all()


def test_a_row_keeps_the_order_of_its_scores(graph, probabilities):
    heads, relations = all_pairs(graph)
    rows = probabilities.rows(heads, relations)
    scores = probabilities.scores(heads, relations)
    for row, of_row in zip(rows, scores, strict=True):
        unknown = np.flatnonzero(row < 1)
        in_order = unknown[np.argsort(-of_row[unknown])]
        assert (np.diff(row[in_order]) <= 0).all()


@pytest.mark.parametrize("edges", ["train", "all"])
def test_the_formula(graph, probabilities, edges):
    """Each probability, from the definition in the module's docstring."""
    adjacency, fitted = graph.adjacency(edges), graph.adjacency("train")
    models = probabilities.predictors.models
    counts = Counts(adjacency, fitted=fitted)
    probabilities = EdgeProbabilities(probabilities.predictors, counts)
    heads, relations = np.array([4, 58, 59]), np.array([1, 4, 5])

    def ends(number, relation):
        numbers = [len(adjacency.neighbours(entity, relation)) for entity in range(60)]
        mean = np.mean([n for n in numbers if n])
        return [math.log(1 + number), number > 0, (number > 0) * math.log(mean)], math.log(mean)

    rows = probabilities.rows(heads, relations)
    for head, relation, row in zip(heads.tolist(), relations.tolist(), rows, strict=True):
        s = np.zeros(60)
        for model in models:
            sets = model.project(
                model.embed_entities(torch.tensor([head])), torch.tensor([relation])
            )
            distances = model.distance(sets, model.table())[0].detach().double().numpy()
            s -= WEIGHTS.predictors[model.name] * distances
        for tail in range(60):
            number = len(adjacency.neighbours(tail, relation ^ 1))
            of_tail = [WEIGHTS.tail[name] for name in FULLNESS]
            s[tail] += np.dot(ends(number, relation ^ 1)[0], of_tail)
        tails = [set(adjacency.neighbours(entity, relation).tolist()) for entity in range(60)]
        loops = sum(entity in of_entity for entity, of_entity in enumerate(tails))
        share = (loops + 0.5) / (sum(map(bool, tails)) + 1)
        loop = WEIGHTS.tail["t = h"] + WEIGHTS.tail["t = h, ln share"] * math.log(share)
        s[head] += loop if loops else NO_LOOP
        known = adjacency.neighbours(head, relation)
        of_head, log_mean = ends(len(known), relation)
        before = s.copy()  # of tails that were unknown in the fit, as if they were now
        later = np.setdiff1d(known, fitted.neighbours(head, relation))
        for tail in later:
            number = len(adjacency.neighbours(tail, relation ^ 1))
            shares = [ends(n, relation ^ 1)[0] for n in (number, number - 1)]
            before[tail] -= np.dot(np.subtract(*shares), of_tail)
        total = np.log(np.exp(np.delete(before, np.setdiff1d(known, later))).sum())
        values = [total, *of_head, log_mean, 1]
        row_term = np.dot(values, [WEIGHTS.row[name] for name in ROW[1:]])
        log_odds = WEIGHTS.row["score"] * s + row_term
        log_odds = np.where(log_odds > -3, -3 + 0.6 * (log_odds + 3), log_odds)
        expected = np.minimum(0.999, 1 / (1 + np.exp(-log_odds)))
        expected[known] = 1
        np.testing.assert_allclose(row, expected, rtol=2e-3)


def test_what_was_added_after_training_has_its_known_edges_alone():
    small = graph_of([(0, 0, 1), (2, 0, 3), (1, 1, 4)], num_entities=5, num_relations=2)
    of_before = graph_of([(0, 0, 1)], num_entities=4, num_relations=1)
    weights = edge_weights({"complex": 1.0})
    probabilities = probabilities_of([random_model("complex", of_before)], weights, small)
    heads, relations = np.array([0, 4, 1]), np.array([0, 3, 2])
    rows = probabilities.rows(heads, relations)
    assert rows[0, 4] == 0  # a new tail
    assert (rows[0, :4] > 0).all()
    assert rows[1].tolist() == [0, 1, 0, 0, 0]  # a new head
    assert rows[2].tolist() == [0, 0, 0, 0, 1]  # a new relation


def test_log_odds_shift_every_missing_edge(graph, probabilities):
    pair = np.array([58]), np.array([1])
    shifted = probabilities_of(probabilities.predictors.models, WEIGHTS, graph, log_odds=-1.0)
    before, after = (of.rows(*pair)[0] for of in (probabilities, shifted))
    missing = before < 0.99
    assert missing.any()

    def log_odds(values):
        return np.log(values[missing].astype(float) / (1 - values[missing].astype(float)))

    np.testing.assert_allclose(log_odds(after), log_odds(before) - 1, atol=1e-3)


# ---- what they are made of --------------------------------------------------------------------


def test_fullness_by_hand():
    columns = fullness(np.array([0, 1, 3]), mean=2.0)
    assert columns.shape == (3, len(FULLNESS))
    expected = [[0, 0, 0], [math.log(2), 1, math.log(2)], [math.log(4), 1, math.log(2)]]
    np.testing.assert_allclose(columns, expected, rtol=1e-6)


def test_counts_by_hand():
    graph = graph_of([(0, 0, 1), (0, 0, 2), (1, 0, 2)], num_entities=4, num_relations=2)
    counts = Counts(graph.adjacency("train"))
    heads, numbers = counts.heads(0)
    assert (heads.tolist(), numbers.tolist()) == ([0, 1], [2, 1])
    heads, numbers = counts.heads(1)
    assert (heads.tolist(), numbers.tolist()) == ([1, 2], [1, 2])
    assert (counts.mean(0), counts.mean(1)) == (1.5, 1.5)
    assert counts.mean(2) == counts.mean(3) == 1.0  # a relation without edges
    assert [len(part) for part in counts.heads(3)] == [0, 0]


def test_known_tails_of_many_pairs(graph):
    for edges in ("train", "all"):
        adjacency = graph.adjacency(edges)
        heads, relations = all_pairs(graph)
        order = np.random.default_rng(0).permutation(len(heads))
        found = Counts(adjacency).tails(heads[order], relations[order])
        for place, row in enumerate(order):
            expected = adjacency.neighbours(heads[row], relations[row])
            assert np.array_equal(found[place], expected)
    none = Counts(graph_of([], num_entities=3).adjacency("train"))
    pairs = np.array([0, 2]), np.array([0, 7])
    assert none.tails(*pairs).lengths.tolist() == [0, 0]
    few = Counts(graph_of([(0, 0, 1)], num_entities=3, num_relations=9).adjacency("train"))
    assert few.tails(np.array([0, 0, 1, 2]), np.array([0, 5, 1, 17])).lengths.tolist() == [
        1, 0, 1, 0
    ]  # fmt: skip


def test_features_of_the_head(graph):
    counts = Counts(graph.adjacency("train"))
    heads, relations = all_pairs(graph)
    features = head_features(counts, heads, relations)
    for relation in range(graph.num_relations):
        chosen = relations == relation
        numbers = [len(counts.adjacency.neighbours(h, relation)) for h in heads[chosen]]
        mean = counts.mean(relation)
        np.testing.assert_allclose(features[chosen, :3], fullness(np.array(numbers), mean))
        np.testing.assert_allclose(features[chosen, 3:], [[math.log(mean), 1]] * chosen.sum())


def test_a_relation_that_became_fuller_counts_as_in_the_fit():
    """Twice as many tails of all heads say as much as half of them did."""
    train = [(head, 0, 10 + tail) for head in range(3) for tail in range(2 + head)]
    more = [(head, 0, 20 + tail) for head in range(3) for tail in range(2 + head)]
    graph = graph_of(train, more, 30, 1)
    heads, relations = np.arange(3), np.zeros(3, dtype=np.int64)
    before = Counts(graph.adjacency("train"))
    after = Counts(graph.adjacency("train+valid"), fitted=graph.adjacency("train"))
    assert after.mean(0) == 2 * before.mean(0) == 2 * after.fitted_mean(0)
    found = head_features(after, heads, relations)
    np.testing.assert_allclose(found, head_features(before, heads, relations))


@pytest.mark.parametrize("of_known", [0.0, 3.0, 8.0])
def test_the_log_partition_against_a_loop(graph, of_known):
    """Over the entities that are not known tails, even if known ones have most of the sum."""
    counts = Counts(graph.adjacency("train"))
    heads, relations = all_pairs(graph)
    scores = np.random.default_rng(0).normal(0, 2, (len(heads), 60)).astype(np.float32)
    expected = []
    for row, (head, relation) in enumerate(zip(heads, relations, strict=True)):
        known = counts.adjacency.neighbours(head, relation)
        scores[row, known.tolist()] += of_known
        others = np.delete(scores[row].astype(np.float64), known)
        expected.append(np.log(np.exp(others).sum()))
    mask_known(scores, counts.tails(heads, relations))
    found = log_partition(scores)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_log_odds_of_missing():
    """With valid counted as known, only test edges can be missing."""
    edges = [(i, 0, i + 1) for i in range(10)]
    with_test = split_graph(num_valid=60, num_test=90)
    assert validation_share(with_test) == pytest.approx(0.4)
    assert log_odds_of_missing(with_test, "train") == 0
    assert log_odds_of_missing(with_test, "train+valid") == pytest.approx(math.log(0.6))
    assert log_odds_of_missing(with_test, "all") == 0
    without = graph_of(edges[2:], edges[:2])
    assert validation_share(without) == 1
    assert [log_odds_of_missing(without, edges) for edges in ("train", "train+valid", "all")] == [
        0, 0, 0
    ]  # fmt: skip
    assert validation_share(graph_of(edges)) == 0


# ---- kept with a run --------------------------------------------------------------------------


def damaged(**changes):
    content = {"model": "best-00000010", "predictors": {"betae": 1.0}, "whole": 0.1}
    content |= {"tail": dict.fromkeys(TAIL, 0.0), "row": dict.fromkeys(ROW, 0.0), **changes}
    content = {key: value for key, value in content.items() if value is not ...}
    return json.dumps({**content, "sha256": manifest_checksum(content)})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "\udcff",
        damaged(row=...),
        damaged(more=1),
        damaged(whole=math.inf),
        damaged(whole="steep"),
        damaged(predictors={}),
        damaged(predictors=[1.0]),
        damaged(tail={"n > 0": 1.0}),
        damaged(row={**dict.fromkeys(ROW, 0.0), "1": math.nan}),
        damaged(row={**dict.fromkeys(ROW, 0.0), "1": "one"}),
        damaged(row=dict.fromkeys(reversed(ROW), 0.0)),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content):
    run = save_run(tmp_path / "run", small_graph())
    (run / "edges.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StoreError, match=r"edges\.json is damaged.*delete it"):
        Run.open(run).answerer()


@pytest.mark.parametrize(
    ("method", "name"), [("completed", "edges.json"), ("embedding", "calibration.json")]
)
def test_a_changed_digit_is_noticed(tmp_path, method, name):
    run = save_run(tmp_path / "run", small_graph())
    Run.open(run).answerer(method=method)
    text = (run / name).read_text()
    start = text.index("0.") + 2
    (run / name).write_text(text[:start] + str(9 - int(text[start])) + text[start + 1 :])
    with pytest.raises(StoreError, match=rf"{name} is damaged: its checksum.*delete it, and it is"):
        Run.open(run).answerer(method=method)
    (run / name).unlink()
    Run.open(run).answerer(method=method)
    assert (run / name).read_text() == text
    content = json.loads(text)
    del content["sha256"]  # of an earlier version
    (run / name).write_text(json.dumps(content))
    Run.open(run).answerer(method=method)
    assert (run / name).read_text() == text


def test_a_run_is_fitted_once_for_each_model(tmp_path):
    graph, said = small_graph(), []
    folder = save_run(tmp_path / "run", graph)
    for _ in range(2):
        for edges in ("train", "train+valid", "all"):
            Run.open(folder).answerer(edges, notify=said.append)
    assert len(said) == 1
    first = (folder / "edges.json").read_text()
    (folder / "edges.json").unlink()
    Run.open(folder).answerer(notify=said.append)
    assert len(said) == 2
    assert (folder / "edges.json").read_text() == first
    save_run(folder, graph, step=20, seed=1)
    Run.open(folder).answerer(notify=said.append)
    assert len(said) == 3
    assert (folder / "edges.json").read_text() != first
