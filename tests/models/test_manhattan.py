"""L1 distances and their gradient, against the obvious version in float64."""

import tracemalloc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from betae.models.manhattan import TILE, manhattan
from tests.queries.strategies import examples


def slowly(left, right):
    return (left.unsqueeze(1) - right.unsqueeze(0)).abs().sum(dim=-1)


def compare(left, right, weights):
    """Check values and gradients; equal numbers have no gradient."""
    exact = [x.detach().double().requires_grad_() for x in (left, right)]
    fast, slow = manhattan(left, right), slowly(*exact)
    assert fast.shape == slow.shape
    assert fast.dtype == torch.float32
    torch.testing.assert_close(fast.double(), slow, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad((fast * weights).sum(), (left, right))
    expected = torch.autograd.grad((slow * weights.double()).sum(), exact)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@examples(60)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 40), st.integers(0, 999))
def test_small_ones_of_any_shape(num_left, num_right, width, seed):
    generator = torch.Generator().manual_seed(seed)
    # Whole numbers, so that some are equal.
    left, right = (
        torch.randint(-3, 4, (number, width), generator=generator).float().requires_grad_()
        for number in (num_left, num_right)
    )
    compare(left, right, torch.randn(num_left, num_right, generator=generator))


@pytest.mark.parametrize("num_right", range(1, 10))
def test_rows_beyond_a_multiple_of_four_are_summed_as_the_others(num_right):
    generator = torch.Generator().manual_seed(num_right)
    left = torch.randn(5, 33, generator=generator).requires_grad_()
    right = torch.randn(num_right, 33, generator=generator).requires_grad_()
    compare(left, right, torch.randn(5, num_right, generator=generator))


def test_the_table_is_not_copied():
    left, right = torch.zeros(2, 100).requires_grad_(), torch.zeros(50_001, 100)
    manhattan(left, right).sum().backward()  # compiled
    tracemalloc.start()
    manhattan(left, right).sum().backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < right.nbytes / 10


@pytest.mark.parametrize("num_right", [TILE, TILE + 1, 5 * TILE + 3])
def test_several_tiles_and_threads(num_right):
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(300, 33, generator=generator).requires_grad_()
    right = torch.randn(num_right, 33, generator=generator).requires_grad_()
    compare(left, right, torch.randn(300, num_right, generator=generator))


def test_rows_with_gaps_and_float64():
    left, right = torch.randn(10, 20)[:, ::2], torch.randn(6, 10)
    torch.testing.assert_close(manhattan(left, right), slowly(left, right))
    assert manhattan(left.double(), right.double()).dtype == torch.float64


def test_what_is_no_number_stays_so():
    left = torch.tensor([[1.0, float("nan")], [1.0, 2.0]])
    found = manhattan(left, torch.zeros(3, 2))
    assert found[0].isnan().all()
    assert found[1].tolist() == [3, 3, 3]


def test_only_the_gradient_that_is_needed():
    left, right = torch.rand(3, 4), torch.rand(5, 4).requires_grad_()
    manhattan(left, right).sum().backward()
    assert left.grad is None
    assert right.grad is not None
