"""The protocol on models whose figures are known: all-knowing, indifferent, random, forgetful."""

import json
from dataclasses import astuple, replace
from functools import partial
from math import isnan

import numpy as np
import pytest
import torch

from betae.errors import InvalidArgument
from betae.evaluation.ranks import EmbeddingRanker, per_query, rank_block
from betae.evaluation.results import RankMetrics
from betae.exact.answers import answers
from betae.exact.kernels import MissingEdgeCounter
from betae.graph.edges import Ragged
from betae.models.execute import score_blocks, score_queries
from betae.queries.structures import EPFO, NEGATION, STRUCTURES, structure_of
from betae.querysets.query_set import SET_EDGES, QuerySet
from betae.querysets.sample import sample_queries
from tests.evaluation.eval_in_two_processes import (
    FEW,
    Indifferent,
    Symbolic,
    models_of,
    random_model,
    split_graph,
)
from tests.evaluation.helpers import evaluate, only
from tests.evaluation.test_ranks import slow_ranks
from tests.training.helpers import small_graph
from tests.training.test_distributed import in_two_processes

pytestmark = pytest.mark.usefixtures("_quick")
BOTH_UNIONS = {*EPFO, *NEGATION, "2u-DM", "up-DM"}


class Random(Symbolic):
    def distance(self, sets, table):
        return torch.rand(len(sets), len(table))


def num_others(graph, block):
    """For each query, the entities that its hard answers are ranked against."""
    rows = zip(block.easy, block.hard, strict=True)
    return np.array([graph.num_entities - len({*easy, *hard}) for easy, hard in rows])


# ---- models whose figures are known -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("split", ["valid", "test"])
def test_who_knows_all_answers_is_perfect(split, graph):
    names = [*EPFO, *NEGATION, "?X . _(_, ?X) & (_(_, ?X) | !_(_, ?X))"]
    queries = sample_queries(graph, dict.fromkeys(names, 20), split)
    found = evaluate(Symbolic(graph, SET_EDGES[split][1]), graph, queries, empty_queries=FEW)
    assert set(found.structures) == BOTH_UNIONS | {names[-1], f"{names[-1]}-DM"}
    for name, each in found.structures.items():
        count = len(queries.blocks[name.removesuffix("-DM")])
        assert each.metrics == RankMetrics(100, 100, 100, 100, count)
        assert each.interval == (100, 100)
        assert each.strict_mrr in (None, 100)
        assert {part.mrr for part in each.by_missing.values()} == {100}
        assert each.frequency.mrr < 90
        if each.correlation:
            assert astuple(each.correlation) == pytest.approx((1, 1))
            assert all(size == number for size, number in each.points)
    assert {average.metrics.mrr for average in found.averages.values()} == {100}
    if split == "test":  # then it knows the queries without answers too
        assert len(found.empty) == 12
        assert {each.roc_auc for each in found.empty.values()} == {1.0}


def test_who_knows_the_smaller_graph_only_is_not(result):
    assert set(result.structures) == BOTH_UNIONS
    assert all(each.metrics.mrr < 50 for each in result.structures.values())


def test_to_score_all_alike_is_the_middle_rank(graph, queries):
    found = evaluate(Indifferent(graph, "all"), graph, queries, empty_queries=FEW)
    for name, each in found.structures.items():
        block = queries.blocks[name.removesuffix("-DM")]
        ranks = 1 + num_others(graph, block) / 2
        assert each.metrics.mrr == pytest.approx(100 * (1 / ranks).mean())
        assert each.metrics.hits_at_1 == 0
        assert each.metrics.hits_at_10 == pytest.approx(100 * (ranks <= 10).mean())
        if name not in NEGATION:
            assert each.strict_mrr is None
        if each.correlation:
            assert isnan(each.correlation.spearman)
            assert isnan(each.correlation.pearson)
    assert found.averages["EPFO"].metrics.mrr < 15
    assert {each.roc_auc for each in found.empty.values()} == {0.5}


@pytest.mark.parametrize("name", ["pi", "3in", "2u"])
def test_random_scores_have_the_mean_of_a_random_order(name, graph):
    """A rank among n others is 1 to n + 1 alike, so 1 / rank is H(n + 1) / (n + 1) on average."""
    queries = sample_queries(graph, {name: 1200}, "test")
    torch.manual_seed(0)
    found = evaluate(Random(graph, "all"), graph, queries).structures[name]
    places = [1 / np.arange(1, others + 2) for others in num_others(graph, queries.blocks[name])]
    means, variances = zip(*((each.mean(), each.var()) for each in places), strict=True)
    assert found.metrics.num_queries == len(means) == 1200
    error = 100 * np.sqrt(np.sum(variances)) / len(means)  # the answers of a query may go together
    assert error < 0.5
    assert found.metrics.mrr == pytest.approx(100 * np.mean(means), abs=3 * error)
    for k, hits in ((1, found.metrics.hits_at_1), (10, found.metrics.hits_at_10)):
        share = np.mean([min(1, k / len(each)) for each in places])
        error = 100 * np.sqrt(share * (1 - share) / len(places))
        assert hits == pytest.approx(100 * share, abs=3 * error)


# ---- how it is computed -----------------------------------------------------------------------


def figures(evaluation):
    """Everything but the time it took."""
    content = evaluation.to_json()
    del content["seconds"]
    return content


@pytest.mark.parametrize("at_once", [1, 500])
def test_the_size_of_the_blocks_does_not_matter(
    at_once, result, forgetful, graph, queries, monkeypatch
):
    few = partial(score_blocks, scores_per_block=at_once)
    monkeypatch.setattr("betae.evaluation.ranks.score_blocks", few)
    found = evaluate(forgetful, graph, queries, empty_queries=FEW)
    assert figures(found) == figures(result)


@pytest.fixture(scope="module")
def by_two(graph, queries, tmp_path_factory):
    """Evaluations by two processes, each with what it said of its progress."""
    out = tmp_path_factory.mktemp("two")
    graph.save(out / "graph")
    uneven(queries).save(out / "queries")
    module = "tests.evaluation.eval_in_two_processes"
    done = in_two_processes(module, out / "graph", out / "queries", out)
    assert done.returncode == 0, done.stderr[-2000:]
    return {
        name: [json.loads((out / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]
        for name in ("symbolic", "betae")
    }


def uneven(queries):
    """Blocks of odd sizes, and one with a single query."""
    sizes = {**dict.fromkeys(queries.blocks, 29), "2p": 1}
    blocks = {name: block.take(np.arange(sizes[name])) for name, block in queries.blocks.items()}
    return replace(queries, blocks=blocks)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["symbolic", "betae"])
def test_two_processes_find_what_one_does(name, by_two, graph, queries):
    model, uneven_queries = models_of(graph)[name], uneven(queries)
    expected = figures(evaluate(model, graph, uneven_queries, empty_queries=FEW))
    for found, _ in by_two[name]:
        assert found.pop("seconds") > 0
        if name == "symbolic":
            assert found == expected
        # Sums in another order may make or break near-ties.
        assert mrrs(found) == pytest.approx(mrrs(expected), abs=0.5)


def mrrs(content):
    return {name: each["metrics"]["mrr"] for name, each in content["structures"].items()}


def test_progress_of_one(forgetful, graph, queries):
    steps = []
    evaluate(
        forgetful,
        graph,
        queries,
        empty_queries=1,
        progress=lambda *step: steps.append(step),
    )
    assert_progress(steps)
    last = [step[1:] for step in steps if step[0] == "queries without answers"]
    assert last == [(number, 12) for number in range(12)]


@pytest.mark.slow
def test_progress_of_two(by_two):
    (_, steps), _ = by_two["symbolic"]  # the first one talks
    assert_progress(steps)


def assert_progress(steps):
    """It never goes back, nor beyond the end, which it reaches."""
    _, done, total = zip(*(step for step in steps if step[0].startswith("ranking")), strict=True)
    assert len(set(total)) == 1
    assert list(done) == sorted(done)
    assert done[-1] == total[0]


def test_a_stored_set_gives_the_same_figures(result, forgetful, graph, queries, tmp_path):
    queries.save(tmp_path / "queries")
    stored = QuerySet.open(tmp_path / "queries")
    assert figures(evaluate(forgetful, graph, stored, empty_queries=FEW)) == figures(result)


# ---- what cannot be evaluated -----------------------------------------------------------------


def test_queries_of_another_graph(forgetful, graph):
    with pytest.raises(InvalidArgument, match="another graph"):
        evaluate(forgetful, graph, sample_queries(small_graph(), {"1p": 5}, "valid"))


def test_a_model_of_another_graph(graph, queries):
    """Its figures would be about other entities."""
    larger = small_graph(num_entities=graph.num_entities + 1)
    with pytest.raises(InvalidArgument):
        evaluate(random_model("gqe", larger), graph, only(queries, "1p"))


def test_training_queries(forgetful, graph):
    with pytest.raises(InvalidArgument, match="not for train"):
        evaluate(forgetful, graph, sample_queries(graph, {"1p": 5}, "train"))


def without_hard(block, rows):
    """Take the hard answers from some queries."""
    kept = [[] if row in rows else each for row, each in enumerate(block.hard)]
    return replace(block, hard=Ragged.from_rows(kept))


def test_nothing_to_rank(forgetful, graph, queries):
    block = queries.blocks["2p"]
    nothing = block.take(np.empty(0, dtype=np.int64))
    for blocks in ({}, {"2p": nothing}, {"2p": without_hard(block, range(len(block)))}):
        with pytest.raises(InvalidArgument, match="no query with a hard answer"):
            evaluate(forgetful, graph, replace(queries, blocks=blocks))


def test_queries_without_hard_answers_do_not_count(forgetful, graph, queries):
    block = queries.blocks["2in"]
    fewer = replace(queries, blocks={"2in": block.take(np.arange(1, len(block), 2))})
    holes = replace(queries, blocks={"2in": without_hard(block, range(0, len(block), 2))})
    found, expected = (evaluate(forgetful, graph, each).structures for each in (holes, fewer))
    assert found["2in"].metrics.num_queries == len(block) // 2
    assert found == expected


@pytest.mark.parametrize("model_name", ["query2box", "gqe"])
def test_models_without_a_complement(model_name, graph, queries):
    de_morgan = replace(queries.blocks["2u"], structure=STRUCTURES["2u-DM"])
    more = replace(queries, blocks={**queries.blocks, "2u-DM": de_morgan})
    found = evaluate(random_model(model_name, graph), graph, more, empty_queries=FEW)
    assert set(found.structures) == set(EPFO)
    assert set(found.cannot) == {*NEGATION, "2u-DM"}
    assert set(found.averages) == {"EPFO"}
    measured = {name for name, each in found.structures.items() if each.correlation}
    sizes = {"1p", "2p", "3p", "2i", "3i", "pi", "ip"} if model_name == "query2box" else set()
    assert measured == set(found.empty) == sizes


def test_a_link_predictor_is_evaluated_on_edges(graph, queries):
    found = evaluate(random_model("complex", graph), graph, queries, empty_queries=FEW)
    assert set(found.structures) == {"1p"}
    assert set(found.cannot) == {*EPFO, *NEGATION} - {"1p"}
    assert found.averages["EPFO"].structures == ["1p"]
    assert not found.empty
    with pytest.raises(InvalidArgument, match="ComplEx cannot do 2p"):
        evaluate(random_model("complex", graph), graph, only(queries, "2p"))


def test_a_model_that_can_do_nothing_of_a_set(graph, queries):
    with pytest.raises(InvalidArgument, match="GQE cannot do 2in, 3in"):
        evaluate(random_model("gqe", graph), graph, only(queries, *NEGATION))


# ---- the readings -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEGATION)
def test_the_two_readings_of_easy(name, result, forgetful, graph, queries):
    """By the strict one, an entity that an added edge takes away is none of the answers."""
    block = queries.blocks[name]
    trees = [block.query(row) for row in range(len(block))]
    with torch.no_grad():
        distances = score_queries(forgetful, trees).numpy()
    hard, release = (list(map(np.ndarray.tolist, table)) for table in (block.hard, block.easy))
    strict = [set(answers(graph, tree, "all").tolist()) for tree in trees]

    def mrr(easy):
        ranks = np.array(slow_ranks(distances, easy, hard))
        return per_query(100 / ranks, block.hard.offsets).mean()

    found = result.structures[name]
    assert found.metrics.mrr == pytest.approx(mrr(release))
    assert found.strict_mrr == pytest.approx(mrr(strict))
    assert found.strict_mrr < found.metrics.mrr  # it takes those entities for answers


def test_only_negation_has_two_readings(result):
    strict = {name for name, each in result.structures.items() if each.strict_mrr is not None}
    assert strict == set(NEGATION)


def test_unions_that_are_written_in_de_morgan_form(graph, queries):
    """The release has such queries: the model must take them as they are."""
    model = random_model("betae", graph)
    unions = only(queries, "2u", "up")
    expected = evaluate(model, graph, unions).structures
    written = {
        f"{name}-DM": replace(block, structure=STRUCTURES[f"{name}-DM"])
        for name, block in unions.blocks.items()
    }
    found = evaluate(model, graph, replace(unions, blocks={**unions.blocks, **written}))
    assert set(found.structures) == {"2u", "up", "2u-DM", "up-DM"}
    for name, each in found.structures.items():
        assert each.metrics.mrr == pytest.approx(expected[name].metrics.mrr, abs=0.5), name


@pytest.mark.parametrize(
    "text",
    [
        "?X . r2(_, ?X) & _(e55, ?X)",
        "?X . _(e55, ?X) & !r2(_, ?X)",
        "?X . r0(_, ?X) | r0(_, ?X)",
        "?X . exists ?Y : _(_, ?Y) & ~r1(?Y, ?X)",
    ],
)
def test_structures_with_names(text, graph, forgetful):
    """What is fixed in a structure is a symbol like any other."""
    queries = sample_queries(graph, {text: 20}, "test")
    block = queries.blocks[text]
    assert len(block) > 5
    structures, symbols = zip(*(structure_of(tree) for tree, _, _ in queries), strict=True)
    opened = replace(block, structure=structures[0], symbols=np.array(symbols, dtype=np.int32))
    found = evaluate(forgetful, graph, queries).structures
    assert found == evaluate(forgetful, graph, replace(queries, blocks={text: opened})).structures
    assert 0 < found[text].frequency.mrr < 100


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
        values = per_query(100 / rank_block(EmbeddingRanker(forgetful), some), some.hard.offsets)
        widths.append(found.interval[1] - found.interval[0])
        assert widths[-1] == pytest.approx(2 * 1.96 * values.std() / np.sqrt(count), rel=0.15)
    assert widths[0] > widths[1] > widths[2]


def test_each_structure_is_resampled_by_itself(forgetful, graph, queries):
    """One stream for all would draw the same rows for structures with as many queries."""
    twice = dict.fromkeys(["1p", "?X . _(_, ?X)"], queries.blocks["1p"])
    found = [evaluate(forgetful, graph, replace(queries, blocks=twice)) for _ in range(2)]
    assert found[0].structures == found[1].structures
    one, other = found[0].structures.values()
    assert one.metrics == other.metrics
    assert one.interval != other.interval


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
        ranks = rank_block(EmbeddingRanker(forgetful), block)
        smaller, larger = (graph.adjacency(edges) for edges in SET_EDGES["test"])
        counter = MissingEdgeCounter(smaller, larger, block.structure)
        missing = counter.count(block.symbols, block.hard)
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
