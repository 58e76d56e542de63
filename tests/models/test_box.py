"""Query2Box: boxes, their distances and their sizes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from betae.errors import UnsupportedQuery
from betae.models import BoxConfig, Query2Box
from tests.models.reference import assert_close, enliven
from tests.queries.strategies import examples

NUM_ENTITIES, NUM_RELATIONS, DIM = 9, 3, 4
seeds = st.integers(0, 1000)


def make(seed=0, **config):
    return enliven(Query2Box(NUM_ENTITIES, NUM_RELATIONS, BoxConfig(dim=DIM, **config)), seed)


def floats(shape, low, high):
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32)).map(torch.from_numpy)


def boxes(shape):
    halves = st.tuples(floats((*shape, DIM), -3, 3), floats((*shape, DIM), 0, 3))
    return halves.map(lambda pair: torch.cat(pair, dim=-1))


def distance_slowly(model, sets, points):
    centre, offset = (half[:, None] for half in sets.chunk(2, dim=-1))
    apart = (points[None] - centre).abs()
    outside = torch.relu(apart - offset).sum(dim=-1)
    inside = torch.minimum(apart, offset).sum(dim=-1)
    return outside + model.config.inside * inside


@examples(50)
@given(sets=boxes((3,)), seed=seeds, inside=st.sampled_from([0.0, 0.02, 0.5, 1.0]))
def test_distance_is_that_to_the_box_and_a_little_of_that_within(sets, seed, inside):
    model = make(seed, inside=inside)
    ids = torch.tensor([5, 0, 8])
    with torch.no_grad():
        found = model.distance(sets, model.table(ids))
        assert_close(found, distance_slowly(model, sets, model.entities[ids]), 3e-6)
        assert_close(model.distance(sets, model.table())[:, ids], found, 1e-6)


def test_distance_of_points_on_a_line():
    model = Query2Box(5, 1, BoxConfig(dim=1, inside=0.1))
    model.entities.data = torch.tensor([[-4.0], [-2.0], [0.0], [1.0], [5.0]])
    box = torch.tensor([[0.0, 2.0]])  # centre 0, half-width 2: from -2 to 2
    expected = torch.tensor([[2.2, 0.2, 0.0, 0.1, 3.2]])
    assert_close(model.distance(box, model.table()).detach(), expected, 1e-6)


def test_gradients_of_the_distance():
    generator = torch.Generator().manual_seed(1)
    model = make(inside=0.3).double()
    sets = torch.randn(4, 2 * DIM, generator=generator, dtype=torch.float64)
    sets[:, DIM:] = sets[:, DIM:].abs()
    sets.requires_grad_()
    weights = torch.randn(4, NUM_ENTITIES, generator=generator, dtype=torch.float64)
    wanted = (sets, model.entities)
    found = torch.autograd.grad((model.distance(sets, model.table()) * weights).sum(), wanted)
    slow = distance_slowly(model, sets, model.entities)
    expected = torch.autograd.grad((slow * weights).sum(), wanted)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-12)


def test_entities_have_no_width():
    model = make()
    sets = model.embed_entities(torch.tensor([3, 3, 7]))
    assert torch.equal(sets[:, :DIM], model.entities[[3, 3, 7]])
    assert torch.equal(sets[:, DIM:], torch.zeros(3, DIM))
    assert torch.equal(model.uncertainty(sets), torch.zeros(3))


@examples(30)
@given(sets=boxes((3,)), seed=seeds)
def test_a_projection_translates_and_never_shrinks(sets, seed):
    model = make(seed)
    with torch.no_grad():
        model.offsets[0] = -model.offsets[0].abs()  # learning may lead there
    relations = torch.tensor([2, 0, 2])
    result = model.project(sets, relations)
    assert_close(result[:, :DIM], sets[:, :DIM] + model.centres[relations], 1e-6)
    assert_close(result[:, DIM:], sets[:, DIM:] + model.offsets[relations].abs(), 1e-6)


@examples(30)
@given(sets=st.integers(2, 4).flatmap(lambda number: boxes((3, number))), seed=seeds)
def test_an_intersection_is_no_wider_than_the_narrowest(sets, seed):
    model = make(seed)
    with torch.no_grad():
        result = model.intersect(sets)
        weights = model.attention(sets[..., :DIM])
    assert (result[:, DIM:] >= 0).all()
    assert (result[:, DIM:] <= sets[..., DIM:].amin(dim=1)).all()
    assert_close(result[:, :DIM], (weights * sets[..., :DIM]).sum(dim=1), 1e-6)
    assert (result[:, :DIM] >= sets[..., :DIM].amin(dim=1) - 1e-5).all()
    assert (result[:, :DIM] <= sets[..., :DIM].amax(dim=1) + 1e-5).all()


@examples(30)
@given(sets=boxes((3, 4)), order=st.permutations(range(4)), seed=seeds)
def test_an_intersection_commutes(sets, order, seed):
    model = make(seed)
    assert_close(model.intersect(sets[:, order]), model.intersect(sets), 1e-5)


@examples(20)
@given(
    steps=st.lists(
        st.integers(0, NUM_RELATIONS - 1) | st.lists(st.integers(0, 100), min_size=1, max_size=3),
        min_size=20,
        max_size=20,
    ),
    seed=seeds,
)
def test_widths_are_never_negative(steps, seed):
    model = make(seed)
    with torch.no_grad():
        sets = [model.embed_entities(torch.arange(NUM_ENTITIES))]
        for step in steps:
            if isinstance(step, int):
                result = model.project(sets[-1], torch.full((NUM_ENTITIES,), step))
            else:
                others = [sets[number % len(sets)] for number in step]
                result = model.intersect(torch.stack([sets[-1], *others], dim=1))
            sets.append(result)
            assert torch.isfinite(result).all()
            assert (result[:, DIM:] >= 0).all()


@examples(20)
@given(sets=boxes((3,)))
def test_uncertainty_is_the_sum_of_the_half_widths(sets):
    found = make().uncertainty(sets)
    assert torch.allclose(found, sets[:, DIM:].sum(dim=1))
    assert (make().uncertainty(sets + torch.tensor([0.0] * DIM + [1.0] * DIM)) > found).all()


def test_a_complement_is_refused_and_another_model_named():
    with pytest.raises(UnsupportedQuery, match=r"Query2Box cannot .*complement.*BetaE"):
        make().negate(torch.zeros(1, 2 * DIM))
