"""Distances from boxes and their gradient, against the obvious version in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from betae.models.box_distance import TILE, box_distance
from tests.queries.strategies import examples


def slowly(centres, offsets, points, inside):
    difference = (points.unsqueeze(0) - centres.unsqueeze(1)).abs()
    outside = torch.relu(difference - offsets.unsqueeze(1))
    within = torch.minimum(difference, offsets.unsqueeze(1))
    return (outside + inside * within).sum(dim=-1)


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
