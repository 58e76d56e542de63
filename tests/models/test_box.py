"""Query2Box: boxes, their distances (against float64) and their sizes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from betae.models import Query2Box, Query2BoxConfig
from betae.models.box import TILE, box_distance
from tests.models.reference import assert_close, enliven
from tests.queries.strategies import examples

NUM_ENTITIES, NUM_RELATIONS, DIM = 9, 3, 4
seeds = st.integers(0, 1000)


def make(seed=0, **config):
    return enliven(Query2Box(NUM_ENTITIES, NUM_RELATIONS, Query2BoxConfig(dim=DIM, **config)), seed)


def floats(shape, low, high):
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32)).map(torch.from_numpy)


def boxes(shape):
    halves = st.tuples(floats((*shape, DIM), -3, 3), floats((*shape, DIM), 0, 3))
    return halves.map(lambda pair: torch.cat(pair, dim=-1))


def slowly(centres, offsets, points, inside):
    difference = (points.unsqueeze(0) - centres.unsqueeze(1)).abs()
    outside = torch.relu(difference - offsets.unsqueeze(1))
    within = torch.minimum(difference, offsets.unsqueeze(1))
    return (outside + inside * within).sum(dim=-1)


@examples(50)
@given(sets=boxes((3,)), seed=seeds, inside=st.sampled_from([0.0, 0.02, 0.5, 1.0]))
def test_distance_is_that_to_the_box_and_a_little_of_that_within(sets, seed, inside):
    model = make(seed, inside=inside)
    ids = torch.tensor([5, 0, 8])
    with torch.no_grad():
        found = model.distance(sets, model.table(ids))
        assert_close(found, slowly(*sets.chunk(2, dim=-1), model.entities[ids], inside), 3e-6)
        assert_close(model.distance(sets, model.table())[:, ids], found, 1e-6)


def test_distance_of_points_on_a_line():
    model = Query2Box(5, 1, Query2BoxConfig(dim=1, inside=0.1))
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
    slow = slowly(*sets.chunk(2, dim=-1), model.entities, 0.3)
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


def boxes_and_points(num_boxes, num_points, width, seed):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_boxes, width, generator=generator)
    offsets = torch.rand(num_boxes, width, generator=generator)
    points = torch.randn(num_points, width, generator=generator)
    weights = torch.randn(num_boxes, num_points, generator=generator)
    return *(each.requires_grad_() for each in (centres, offsets, points)), weights


def compare(centres, offsets, points, weights, inside=0.02):
    tensors = (centres, offsets, points)
    exact = [each.detach().double().requires_grad_() for each in tensors]
    fast, slow = box_distance(*tensors, inside), slowly(*exact, inside)
    assert fast.shape == slow.shape
    assert fast.dtype == torch.float32
    torch.testing.assert_close(fast.double(), slow, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad((fast * weights).sum(), tensors)
    expected = torch.autograd.grad((slow * weights.double()).sum(), exact)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@examples(60)
@given(
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(1, 40),
    st.integers(0, 999),
    st.sampled_from([0.0, 0.02, 0.5, 1.0]),
)
def test_small_ones_of_any_shape(num_boxes, num_points, width, seed, inside):
    compare(*boxes_and_points(num_boxes, num_points, width, seed), inside)


@pytest.mark.parametrize("num_points", [1, 2, 3, 5, TILE, TILE + 1, 5 * TILE + 3])
def test_rows_beyond_a_multiple_of_four_several_tiles_and_threads(num_points):
    compare(*boxes_and_points(300, num_points, 33, num_points))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_pairs_without_a_gradient_are_left_out_and_the_others_are_not(share):
    *tensors, weights = boxes_and_points(40, 3 * TILE + 2, 20, 1)
    kept = torch.rand(weights.shape, generator=torch.Generator().manual_seed(2)) < share
    compare(*tensors, weights * kept)


def test_a_point_within_feels_only_the_inside():
    centre, point = torch.zeros(1, 3), torch.full((1, 3), 0.25).requires_grad_()
    distance = box_distance(centre, torch.ones(1, 3), point, 0.02)
    distance.sum().backward()
    assert distance.item() == pytest.approx(3 * 0.02 * 0.25)
    assert point.grad.tolist() == [pytest.approx([0.02] * 3)]


def test_rows_with_gaps_and_float64():
    sets, points = torch.rand(10, 40), torch.randn(6, 10)
    centres, offsets = sets[:, :20:2], sets[:, 20::2]
    expected = slowly(centres, offsets, points, 0.1)
    torch.testing.assert_close(box_distance(centres, offsets, points, 0.1), expected)
    double = box_distance(centres.double(), offsets.double(), points.double(), 0.1)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), expected)


def test_what_is_no_number_stays_so():
    centres = torch.tensor([[1.0, float("nan")], [1.0, 2.0]])
    found = box_distance(centres, torch.zeros(2, 2), torch.zeros(3, 2), 0.02)
    assert found[0].isnan().all()
    assert found[1].tolist() == [3, 3, 3]
