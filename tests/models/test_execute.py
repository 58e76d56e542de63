"""The executor against a slow recursion, query by query; the order of a mixed batch."""

import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import InvalidArgument, UnsupportedQuery
from betae.models.execute import (
    Embedded,
    Group,
    embed_queries,
    group_queries,
    plans,
    schedule,
    score_blocks,
    score_queries,
)
from betae.queries.ast import PLACEHOLDER, And, Entity, Or, Project, nodes
from betae.queries.structures import ANY, STRUCTURES, TRAINING
from tests.models.reference import (
    MODELS,
    NUM_ANCHORS,
    NUM_ENTITIES,
    NUM_RELATIONS,
    SET_MODELS,
    Spy,
    assert_close,
    batches_for,
    can_negate,
    grounded,
    make_model,
    mixed_for,
    score_slowly,
)
from tests.queries.strategies import examples

models = pytest.mark.parametrize("name", MODELS)
set_models = pytest.mark.parametrize("name", SET_MODELS)
ways = pytest.mark.parametrize(
    ("name", "union"),
    [
        (name, union)
        for name in MODELS
        for union in ("DNF", "DM")
        if union == "DNF" or can_negate[name]
    ],
)
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


# ---- against the slow recursion -----------------------------------------------------------------


@ways
@examples(20)
@given(data=st.data())
def test_scores_are_those_of_the_recursion(name, union, data):
    model = make_model(name)
    queries = data.draw(batches_for(name))
    with torch.no_grad():
        found = score_queries(model, queries, union=union)
        expected = score_slowly(model, queries, model.table(), union)
    assert found.shape == (len(queries), NUM_ENTITIES)
    assert found.dtype == torch.float32
    assert_close(found, expected, 2e-5)


@pytest.mark.slow
@ways
@examples(20)
@given(data=st.data(), seed=st.integers(0, 100))
def test_gradients_are_those_of_the_recursion(name, union, data, seed):
    model = make_model(name, torch.float64, seed)
    queries = data.draw(batches_for(name, most=4))
    # entities that are nobody's anchor: an L1 distance has no gradient where it is zero
    ids = torch.arange(NUM_ANCHORS, NUM_ENTITIES)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(len(queries), len(ids), generator=generator, dtype=torch.float64)

    def gradients(scores):
        parameters = list(model.parameters())
        found = torch.autograd.grad((scores * weights).sum(), parameters, allow_unused=True)
        return [
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(parameters, found, strict=True)
        ]

    found = gradients(score_queries(model, queries, model.table(ids), union))
    expected = gradients(score_slowly(model, queries, model.table(ids), union))
    scale = max(1.0, *(float(gradient.abs().max()) for gradient in expected))
    assert max(float(gradient.abs().max()) for gradient in expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert_close(one / scale, other / scale, 1e-9)


@ways
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_all_named_structures_in_one_batch(name, union, dtype):
    model = make_model(name, dtype)
    queries = mixed_for(name)
    with torch.no_grad():
        found = score_queries(model, queries, union=union)
        expected = score_slowly(model, queries, model.table(), union)
    assert found.dtype == dtype
    assert_close(found, expected, TOLERANCE[dtype])


@ways
@examples(10)
@given(data=st.data())
def test_neither_the_order_of_the_batch_nor_its_other_queries_matter(name, union, data):
    model = make_model(name, torch.float64)
    queries = data.draw(batches_for(name))
    order = data.draw(st.permutations(range(len(queries))))
    chosen = order[: data.draw(st.integers(1, len(queries)))]
    with torch.no_grad():
        alone = torch.cat([score_queries(model, [query], union=union) for query in queries])
        shuffled = score_queries(model, [queries[i] for i in order], union=union)
        some = score_queries(model, [queries[i] for i in chosen], union=union)
        among = score_queries(model, queries + mixed_for(name), union=union)
    assert_close(shuffled, alone[order], 1e-11)
    assert_close(some, alone[chosen], 1e-11)
    assert_close(among[: len(queries)], alone, 1e-11)


@models
def test_a_part_of_the_table_is_those_entities(name):
    model = make_model(name)
    ids = torch.tensor([7, 2, 2])
    with torch.no_grad():
        every = score_queries(model, mixed_for(name))
        assert_close(score_queries(model, mixed_for(name), model.table(ids)), every[:, ids], 1e-6)


# ---- unions -------------------------------------------------------------------------------------


def verbs(model, entity, relation):
    anchor = model.embed_entities(torch.tensor([entity]))
    return model.project(anchor, torch.tensor([relation]))


@set_models
def test_a_union_is_the_minimum_over_its_branches(name):
    model = make_model(name)
    a, b = Entity(1)[0], Entity(5)[2]
    with torch.no_grad():
        one, two = verbs(model, 1, 0), verbs(model, 5, 2)
        further = [model.project(branch, torch.tensor([3])) for branch in (one, two)]
        table = model.table()
        for query, branches in ((a | b, (one, two)), ((a | b)[3], further)):
            distances = [model.distance(branch, table) for branch in branches]
            assert not torch.equal(*distances)
            found = score_queries(model, [query], union="DNF")
            assert_close(found, torch.minimum(*distances), 1e-6)


@pytest.mark.parametrize("name", [name for name in MODELS if can_negate[name]])
def test_a_union_by_de_morgan_is_a_complement_of_an_intersection(name):
    model = make_model(name)
    a, b = Entity(1)[0], Entity(5)[2]
    with torch.no_grad():
        parts = [model.negate(verbs(model, 1, 0)), model.negate(verbs(model, 5, 2))]
        union = model.negate(model.intersect(torch.stack(parts, dim=1)))
        further = model.project(union, torch.tensor([3]))
        table = model.table()
        for query, embedding in ((a | b, union), ((a | b)[3], further)):
            found = embed_queries(model, [query], union="DM")
            assert_close(found.sets, embedding, 1e-6)
            expected = model.distance(embedding, table)
            assert_close(score_queries(model, [query], union="DM"), expected, 1e-6)
            assert not torch.allclose(score_queries(model, [query], union="DNF"), expected)


def test_a_union_has_a_row_for_each_branch():
    model = make_model("betae")
    a, b, c = Entity(1)[0], Entity(5)[2], Entity(3)[1]
    queries = [a | b | c, a, (a | b) & c]
    embedded = embed_queries(model, queries)
    assert Counter(embedded.owners.tolist()) == {0: 3, 1: 1, 2: 2}
    assert embedded.num_queries == 3
    assert embed_queries(model, queries, union="DM").owners.tolist() == [0, 1, 2]


def test_a_union_of_too_many_branches_is_refused_but_de_morgan_takes_it():
    model = make_model("betae")
    either = Entity(0)[0] | Entity(1)[0]
    query = And(*(either[relation % NUM_RELATIONS] for relation in range(9)))  # 2**9 branches
    with pytest.raises(UnsupportedQuery, match=r"512 branches.*De Morgan"):
        score_queries(model, [query])
    assert torch.isfinite(score_queries(model, [query], union="DM")).all()


@pytest.mark.parametrize("name", ["query2box", "gqe"])
@pytest.mark.parametrize(
    ("query", "union"), [(Entity(0)[0] & ~Entity(1)[0], "DNF"), (Entity(0)[0] | Entity(1)[0], "DM")]
)
def test_a_model_that_cannot_negate_says_which_can(name, query, union):
    with pytest.raises(UnsupportedQuery, match="BetaE"):
        score_queries(make_model(name), [query], union=union)


# ---- groups -------------------------------------------------------------------------------------


@models
@examples(8)
@given(data=st.data())
def test_groups_are_the_same_as_their_queries(name, data):
    model = make_model(name)
    queries = data.draw(batches_for(name)) + mixed_for(name)
    groups = data.draw(st.permutations(group_queries(queries)))
    assert sum(len(group.positions) for group in groups) == len(queries)
    with torch.no_grad():
        assert_close(score_queries(model, groups), score_queries(model, queries), 2e-5)


def test_queries_of_one_structure_are_one_group():
    queries = [Entity(0)[1], Entity(2)[3][0], Entity(4)[2]]
    single, double = group_queries(queries)
    assert single.structure == STRUCTURES["1p"]
    assert single.symbols.tolist() == [[0, 1], [4, 2]]
    assert single.positions.tolist() == [0, 2]
    assert double.structure == STRUCTURES["2p"]
    assert double.symbols.tolist() == [[2, 3, 0]]
    assert double.positions.tolist() == [1]


def test_a_group_may_fix_some_names_of_its_structure():
    """As the query sets do that `betae sample` makes from a structure such as `r0(e1, _)`."""
    model = make_model("betae")
    structure = Entity(5)[3] & Entity(PLACEHOLDER)[PLACEHOLDER]
    group = Group(structure, torch.tensor([[1, 2], [4, 0]]), torch.tensor([0, 1]))
    with torch.no_grad():
        found = score_queries(model, [group])
        expected = score_queries(model, [Entity(5)[3] & Entity(1)[2], Entity(5)[3] & Entity(4)[0]])
    assert_close(found, expected, 1e-6)


# ---- the rows of queries -------------------------------------------------------------------------


def test_the_rows_of_each_query():
    owners = torch.tensor([2, 0, 3, 0, 2, 2])
    rows = Embedded(torch.zeros(6, 1), owners, 4).rows_by_query()
    assert [each.tolist() for each in rows] == [[1, 3], [], [0, 4, 5], [2]]


@pytest.mark.slow
def test_the_rows_of_many_queries_are_found_without_a_scan_for_each():
    number = 300_000
    owners = torch.arange(number).flip(0)
    start = time.process_time()
    rows = Embedded(torch.zeros(number, 1), owners, number).rows_by_query()
    assert time.process_time() - start < 20  # scans would take minutes
    assert [int(rows[0]), int(rows[-1])] == [number - 1, 0]


# ---- blocks -------------------------------------------------------------------------------------


@models
@pytest.mark.parametrize("scores_per_block", [1, 12, 13, 40, 100, 10**9])
def test_blocks_have_the_same_scores_as_the_whole(name, scores_per_block):
    model = make_model(name)
    queries = mixed_for(name)
    queries.insert(3, Or(*(Entity(anchor)[0] for anchor in range(5))))  # many rows for one query
    with torch.no_grad():
        whole = score_queries(model, queries)
        embedded = embed_queries(model, queries)
        assert len(embedded.sets) > len(queries)
        blocks = list(score_blocks(model, embedded, model.table(), scores_per_block))
    covered = [i for part, _ in blocks for i in range(part.start, part.stop)]
    assert covered == list(range(len(queries)))
    assert all(len(scores) == part.stop - part.start for part, scores in blocks)
    assert_close(torch.cat([scores for _, scores in blocks]), whole, 1e-6)


@pytest.mark.parametrize("scores_per_block", [1, 12, 13, 40, 100, 10**9])
def test_a_block_is_no_larger_than_allowed_or_than_one_query(scores_per_block):
    spy = Spy()
    union = Or(*(Entity(anchor)[0] for anchor in range(5)))
    queries = [*mixed_for("betae"), union, *mixed_for("betae")]
    with torch.no_grad():
        list(score_blocks(spy, embed_queries(spy, queries), spy.table(), scores_per_block))
    most_rows = max(scores_per_block // NUM_ENTITIES, 5)
    rows = [num_rows for num_rows, _ in spy.calls["distance"]]
    assert max(rows) <= most_rows
    assert all(size == NUM_ENTITIES for _, size in spy.calls["distance"])
    total = len(embed_queries(spy, queries).sets)
    assert sum(rows) == total
    # and not needlessly small: two blocks that follow each other would not fit into one
    assert all(one + two > scores_per_block // NUM_ENTITIES for one, two in pairwise(rows))


MEMORY = """
from itertools import islice
import torch
from betae.models import BetaConfig, Query2BoxConfig
from betae.models.execute import Group, embed_queries, score_blocks
from betae.models.store import build_model
from betae.queries.structures import STRUCTURES

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

configs = {"betae": BetaConfig(dim=8, hidden=8), "query2box": Query2BoxConfig(dim=8)}
models = {name: build_model(config, 63_361, 4) for name, config in configs.items()}
queries = torch.arange(10_000)
group = Group(STRUCTURES["1p"], torch.stack([queries, queries % 4], dim=1), queries)
start = peak()
with torch.no_grad():
    for name, num_blocks in (("query2box", 2), ("betae", None)):  # a few blocks show the peak
        embedded = embed_queries(models[name], [group])
        num_queries = num_scores = 0
        for part, scores in islice(
            score_blocks(models[name], embedded, models[name].table()), num_blocks
        ):
            num_queries += part.stop - part.start
            num_scores += scores.numel()
        print(name, num_queries, num_scores, peak() - start)
"""


@pytest.mark.slow
def test_memory_is_bounded_by_the_block_not_by_queries_times_entities():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    box, beta = (line.split() for line in done.stdout.splitlines())
    assert beta[:3] == ["betae", "10000", str(10_000 * 63_361)]  # 2.5 GB in float32
    assert int(box[2]) > 2**25
    assert int(beta[3]) < 2**30
    assert int(box[3]) < 2**30


# ---- bad input ----------------------------------------------------------------------------------


@set_models
@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Entity(NUM_ENTITIES)[0], "no entity 12: the model has 0 to 11"),
        (Entity(0)[NUM_RELATIONS], "no relation 4: the model has 0 to 3"),
        (Entity(0)[1] & Entity(1)[2][9], "no relation 9: the model has 0 to 3"),
    ],
    ids=str,
)
def test_an_id_outside_the_table(name, query, message):
    model = make_model(name)
    for batch in ([query], [Entity(0)[0], Entity(1)[1][0], query]):
        with pytest.raises(InvalidArgument, match=message):
            score_queries(model, batch)


@models
@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ([-1, 0], "no entity -1: the model has 0 to 11"),
        ([0, -2], "no relation -2: the model has 0 to 3"),
    ],
)
def test_a_negative_id(name, symbols, message):
    group = Group(STRUCTURES["1p"], torch.tensor([[0, 0], symbols]), torch.tensor([0, 1]))
    with pytest.raises(InvalidArgument, match=message):
        score_queries(make_model(name), [group])


@pytest.mark.parametrize("call", [embed_queries, score_queries])
def test_an_empty_batch(call):
    with pytest.raises(InvalidArgument, match="empty"):
        call(make_model("betae"), [])


@pytest.mark.parametrize("call", [embed_queries, score_queries])
def test_a_batch_of_empty_groups(call):
    nothing = torch.empty(0, dtype=torch.long)
    group = Group(STRUCTURES["1p"], nothing.reshape(0, 2), nothing)
    with pytest.raises(InvalidArgument, match="empty"):
        call(make_model("betae"), [group])


@pytest.mark.parametrize(
    "query",
    [Entity("ann")[0], Entity(0)["parent"], Project(Entity(PLACEHOLDER), PLACEHOLDER)],
    ids=str,
)
def test_names_instead_of_ids(query):
    with pytest.raises(InvalidArgument, match=r"resolve|is a placeholder"):
        score_queries(make_model("betae"), [Entity(0)[0], query])


def test_queries_beside_groups_are_not_dropped():
    queries = [Entity(0)[0], Entity(1)[1]]
    (group,) = group_queries(queries[:1])
    with pytest.raises(InvalidArgument, match=r"[Gg]roup"):
        score_queries(make_model("betae"), [group, queries[1]])


@pytest.mark.parametrize("union", ["dnf", "De Morgan", ""])
def test_an_unknown_form_of_union(union):
    with pytest.raises(InvalidArgument, match=r"DNF.*DM"):
        score_queries(make_model("betae"), [Entity(0)[0] | Entity(1)[0]], union=union)


@pytest.mark.parametrize("number", [1, 3])
def test_a_mixed_batch_takes_one_call_for_each_level(number):
    spy = Spy()
    embed_queries(spy, [query for name in TRAINING for query in grounded(name, number)])
    anchors = sum(isinstance(node, Entity) for name in TRAINING for node in nodes(STRUCTURES[name]))
    assert spy.calls["embed"] == [anchors * number]
    # depth 1: every anchor's; depth 2: 2p, 3p, inp, pin, pni; depth 3: 3p
    assert spy.calls["project"] == [anchors * number, 5 * number, number]
    # depth 1: 2in, 3in, inp, pin; depth 2: pni
    assert spy.calls["negate"] == [4 * number, number]
    # depth 1: 2i with 2in and inp, 3i with 3in; depth 2: pin with pni
    calls = Counter(spy.calls["intersect"])
    assert calls == {(3 * number, 2): 1, (2 * number, 3): 1, (2 * number, 2): 1}


def test_structures_are_planned_once_and_a_mix_of_them_is_scheduled_once():
    plans.cache_clear()
    schedule.cache_clear()
    model = make_model("betae")
    queries = mixed_for("betae")
    num_structures = len({group.structure for group in group_queries(queries)})
    for _ in range(3):
        score_queries(model, queries)
    assert (schedule.cache_info().misses, schedule.cache_info().hits) == (1, 2)
    assert (plans.cache_info().misses, plans.cache_info().hits) == (num_structures, 0)
    score_queries(model, queries[::-1] + queries)  # another order: scheduled anew
    assert (schedule.cache_info().misses, schedule.cache_info().hits) == (2, 2)
    assert (plans.cache_info().misses, plans.cache_info().hits) == (num_structures, num_structures)


@examples(100)
@given(batches_for("betae"), st.sampled_from(["DNF", "DM"]))
def test_a_schedule_computes_every_node_once_and_after_its_operands(queries, union):
    work = schedule(tuple(group.structure for group in group_queries(queries)), union)
    done = set()
    for stage in work.stages:
        assert all(set(places) <= done for places in stage.operands)
        assert not done & set(stage.ids)
        done |= set(stage.ids)
        for (plan, number), structure in zip(stage.ids, stage.structures, strict=True):
            assert work.plans[plan][number].kind is stage.kind
            assert work.structures[plan] == structure
    assert done == {(i, j) for i, plan in enumerate(work.plans) for j in range(len(plan))}


def test_a_batch_of_many_structures_is_scheduled_in_seconds():
    edge = ANY[PLACEHOLDER]
    structures = tuple(
        And(*(~edge if (number >> bit) & 1 else edge for bit in range(8))) for number in range(2**8)
    )
    start = time.process_time()
    schedule(structures, "DNF")
    assert time.process_time() - start < 10
