"""Figures that are made of ranks and of other figures, and their JSON."""

import json
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from betae.evaluation.ranks import per_query, rank_block
from betae.evaluation.results import Evaluation
from betae.exact.derivations import missing_edges
from betae.queries.structures import EPFO, NEGATION
from betae.querysets.query_set import SET_EDGES
from betae.querysets.sample import sample_queries
from tests.evaluation.eval_in_two_processes import (
    FEW,
    Indifferent,
    Symbolic,
    random_model,
    split_graph,
)
from tests.evaluation.helpers import evaluate, only

pytestmark = pytest.mark.usefixtures("_quick")


# ---- figures made of figures ------------------------------------------------------------------


def test_intervals_are_about_the_mean(result):
    for each in [*result.structures.values(), *result.averages.values()]:
        low, high = each.interval
        assert low - 1e-9 <= each.metrics.mrr <= high + 1e-9
        assert low < high


def test_intervals_are_as_wide_as_the_queries_tell(forgetful, graph):
    queries = sample_queries(graph, {"2i": 400}, "test")
    block = queries.blocks["2i"]
    widths = []
    for count in (25, 100, 400):
        some = block.take(np.arange(count))
        found = evaluate(forgetful, graph, replace(queries, blocks={"2i": some})).structures["2i"]
        values = per_query(100 / rank_block(forgetful, forgetful.table(), some), some.hard.offsets)
        widths.append(found.interval[1] - found.interval[0])
        assert widths[-1] == pytest.approx(2 * 1.96 * values.std() / np.sqrt(count), rel=0.15)
    assert widths[0] > widths[1] > widths[2]


def test_averages_are_means_over_structures(result):
    for kind, names in (("EPFO", EPFO), ("negation", NEGATION)):
        average = result.averages[kind]
        assert average.structures == list(names)
        each = [result.structures[name] for name in names]
        for attribute in ("metrics", "frequency"):
            *means, count = np.mean([astuple(getattr(one, attribute)) for one in each], axis=0)
            assert astuple(getattr(average, attribute)) == pytest.approx(
                (*means, count * len(names))
            )


def test_averages_are_over_the_structures_present(forgetful, graph, queries):
    found = evaluate(forgetful, graph, only(queries, "2u", "1p"))
    assert set(found.structures) == {"2u", "1p", "2u-DM"}
    assert set(found.averages) == {"EPFO"}
    assert found.averages["EPFO"].structures == ["1p", "2u"]
    mean = np.mean([found.structures[name].metrics.mrr for name in ("1p", "2u")])
    assert found.averages["EPFO"].metrics.mrr == pytest.approx(mean)


def test_missing_edges_part_the_answers(result, forgetful, graph, queries):
    for name, block in queries.blocks.items():
        parts = result.structures[name].by_missing
        ranks = rank_block(forgetful, forgetful.table(), block)
        smaller, larger = (graph.adjacency(edges) for edges in SET_EDGES["test"])
        missing = missing_edges(smaller, larger, block.structure, block.symbols, block.hard)
        owners = np.repeat(np.arange(len(block)), block.hard.lengths)
        assert sum(part.num_answers for part in parts.values()) == len(ranks)
        assert sorted(parts) == sorted(set(missing.tolist()))
        whole = 0.0
        for number, part in parts.items():
            of_queries = [1 / ranks[(owners == q) & (missing == number)] for q in range(len(block))]
            assert part.num_answers == sum(map(len, of_queries))
            means = [each.mean() for each in of_queries if len(each)]
            assert part.mrr == pytest.approx(100 * np.mean(means))
            whole += sum(
                each.sum() / length
                for each, length in zip(of_queries, block.hard.lengths, strict=True)
            )
        assert result.structures[name].metrics.mrr == pytest.approx(100 * whole / len(block))


def test_one_answer_each_makes_the_parts_add_up(forgetful, graph, queries):
    for name, block in queries.blocks.items():
        single = block.take(np.flatnonzero(block.hard.lengths == 1))
        if not len(single):
            continue
        some = replace(queries, blocks={name: single})
        found = evaluate(forgetful, graph, some).structures[name]
        total = sum(part.mrr * part.num_answers for part in found.by_missing.values())
        assert found.metrics.mrr == pytest.approx(total / len(single))


def test_the_mean_number_of_answers(result, queries):
    for name, block in queries.blocks.items():
        assert result.structures[name].answers == pytest.approx(block.hard.lengths.mean())


def test_counts_need_validation_edges(result):
    assert all(result.structures[name].count_error is not None for name in NEGATION)
    graph = split_graph(num_valid=0)
    some = sample_queries(graph, {"1p": 20, "2in": 20}, "test")
    found = evaluate(Symbolic(graph, "all"), graph, some).structures
    assert found["2in"].count_error is None
    assert found["2in"].correlation is not None


# ---- JSON -------------------------------------------------------------------------------------


def diverged(graph):
    model = random_model("betae", graph)
    with torch.no_grad():
        model.entities.fill_(float("nan"))
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda graph: random_model("betae", graph),
        lambda graph: random_model("query2box", graph),
        lambda graph: random_model("gqe", graph),
        lambda graph: Indifferent(graph, "all"),
        diverged,
    ],
    ids=["betae", "query2box", "gqe", "indifferent", "diverged"],
)
def test_it_is_strict_json(make, graph, queries):
    found = evaluate(make(graph), graph, queries, empty_queries=FEW)
    content = found.to_json()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert repr(Evaluation.from_json(content)) == repr(found)  # NaN is not equal to itself
    assert content["queries"]["count"] == len(queries)
    assert content["graph"] == {
        "fingerprint": graph.fingerprint,
        "entities": graph.num_entities,
        "relations": 3,
    }


def test_what_is_no_number_is_none(graph, queries):
    content = evaluate(Indifferent(graph, "all"), graph, only(queries, "2i")).to_json()
    assert content["structures"]["2i"]["correlation"] == {"spearman": None, "pearson": None}
    assert set(content["structures"]["2i"]["by_missing"]) == {"1", "2"}
