"""In which order a mixed batch is computed."""

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from betae.models.execute import embed_queries, group_queries, score_queries
from betae.models.plan import plans, schedule
from betae.queries.ast import And, Entity, nodes
from betae.queries.structures import STRUCTURES, TRAINING
from tests.models.reference import (
    Spy,
    batches_for,
    grounded,
    make_model,
    mixed_for,
)
from tests.queries.strategies import examples


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
        assert not done & set(stage.places)
        done |= set(stage.places)
        for (plan, number), structure in zip(stage.places, stage.structures, strict=True):
            assert work.plans[plan][number].kind is stage.kind
            assert work.structures[plan] == structure
    assert done == {(i, j) for i, plan in enumerate(work.plans) for j in range(len(plan))}


def test_a_batch_of_many_structures_is_scheduled_in_seconds():
    structures = tuple(
        And(*(~Entity("_")["_"] if (number >> bit) & 1 else Entity("_")["_"] for bit in range(8)))
        for number in range(2**8)
    )
    start = time.process_time()
    schedule(structures, "DNF")
    assert time.process_time() - start < 10
