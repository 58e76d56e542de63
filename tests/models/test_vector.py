"""GQE: points and their L1 distances."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import UnsupportedQuery
from betae.models import GQE, GQEConfig
from tests.models.reference import assert_close, enliven
from tests.queries.strategies import examples

NUM_ENTITIES, NUM_RELATIONS, DIM = 9, 3, 4
seeds = st.integers(0, 1000)


def make(seed=0):
    return enliven(GQE(NUM_ENTITIES, NUM_RELATIONS, GQEConfig(dim=DIM)), seed)


def points(*shape, seed=0):
    return torch.randn(*shape, DIM, generator=torch.Generator().manual_seed(seed))


@examples(20)
@given(seed=seeds)
def test_distance_is_the_l1_distance(seed):
    model, sets = make(seed), points(3, seed=seed + 1)
    ids = torch.tensor([5, 0, 8])
    with torch.no_grad():
        expected = (sets[:, None] - model.entities[None]).abs().sum(dim=-1)
        assert_close(model.distance(sets, model.table()), expected, 1e-6)
        assert_close(model.distance(sets, model.table(ids)), expected[:, ids], 1e-6)


def test_gradients_of_the_distance():
    model, sets = make().double(), points(3).double().requires_grad_()
    weights = torch.randn(3, NUM_ENTITIES, dtype=torch.float64)
    wanted = (sets, model.entities)
    found = torch.autograd.grad((model.distance(sets, model.table()) * weights).sum(), wanted)
    slow = (sets[:, None] - model.entities[None]).abs().sum(dim=-1)
    expected = torch.autograd.grad((slow * weights).sum(), wanted)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-12)


def test_an_entity_is_its_point_and_a_projection_translates():
    model = make()
    ids, relations = torch.tensor([3, 3, 7]), torch.tensor([2, 0, 2])
    assert torch.equal(model.embed_entities(ids), model.entities[ids])
    expected = model.entities[ids] + model.relations[relations]
    assert_close(model.project(model.embed_entities(ids), relations), expected, 1e-6)


@examples(20)
@given(order=st.permutations(range(4)), seed=seeds)
def test_an_intersection_is_a_mean_that_commutes(order, seed):
    model, sets = make(seed), points(3, 4, seed=seed)
    result = model.intersect(sets)
    assert_close(result, (model.attention(sets) * sets).sum(dim=1), 1e-6)
    assert_close(model.intersect(sets[:, order]), result, 1e-5)
    assert (result >= sets.amin(dim=1) - 1e-5).all()
    assert (result <= sets.amax(dim=1) + 1e-5).all()
    same = sets[:, :1].expand(-1, 3, -1)
    assert_close(model.intersect(same), same[:, 0], 1e-6)


def test_uncertainty_is_refused_and_another_model_named():
    with pytest.raises(UnsupportedQuery, match=r"GQE cannot .*uncertainty.*BetaE"):
        make().uncertainty(points(1))
