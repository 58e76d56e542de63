"""The float32 kernels against PyTorch's functions in float64."""

import numpy as np
import pytest
import torch

from betae.models import special

# 128 rows are where two cores begin to share them; odd numbers do not divide.
SHAPES = [(1, 1), (3, 1), (1, 7), (127, 4), (129, 1), (1001, 4), (1003, 16)]
RANGES = {"of the smooth bound": (0.05, 20), "wide": (1e-3, 1e3)}


def draw(num_rows, dim, low, high, seed=0):
    random = np.random.default_rng(seed)
    logs = random.uniform(np.log(low), np.log(high), (num_rows, 2 * dim))
    return np.exp(logs).astype(np.float32)


def in_float64(params):
    """Return alpha, beta and alpha + beta."""
    alpha, beta = torch.from_numpy(params).double().chunk(2, dim=-1)
    return alpha, beta, alpha + beta


def assert_within(found, expected, tolerance):
    expected, tolerance = np.asarray(expected), np.asarray(tolerance)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    excess = np.abs(found - expected) / tolerance
    assert excess.max() <= 1, (found.flat[excess.argmax()], expected.flat[excess.argmax()])


@pytest.mark.parametrize("limits", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_features_and_log_beta(shape, limits):
    params = draw(*shape, *limits)
    features, log_beta = special.features(params)
    alpha, beta, total = in_float64(params)
    of_total = torch.digamma(total).repeat(1, 2)
    of_params = torch.digamma(torch.cat([alpha, beta], dim=-1))
    # float32 cannot know a difference better than its two terms, each to about 1e-7 of its size
    assert_within(features, of_total - of_params, 1e-6 * (1 + of_total.abs() + of_params.abs()))
    terms = [torch.lgamma(alpha), torch.lgamma(beta), -torch.lgamma(total)]
    size = sum(term.abs() for term in terms).sum(dim=-1)
    assert_within(log_beta, sum(terms).sum(dim=-1), 2e-6 * (1 + size))


def test_features_tightly():
    params = draw(5001, 4, 0.05, 20, seed=1)
    features, log_beta = special.features(params)
    alpha, beta, total = in_float64(params)
    expected = torch.digamma(total).repeat(1, 2) - torch.digamma(torch.cat([alpha, beta], -1))
    assert_within(features, expected, 2e-6 * (1 + expected.abs()))
    expected = (torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(total)).sum(dim=-1)
    assert_within(log_beta, expected, torch.full_like(expected, 1e-4))


@pytest.mark.parametrize("limits", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients(shape, limits):
    params = draw(*shape, *limits)
    random = np.random.default_rng(2)
    by_features = random.normal(size=params.shape).astype(np.float32)
    by_offset = random.normal(size=len(params)).astype(np.float32)
    found = special.features_backward(params, by_features, by_offset)

    variables = torch.from_numpy(params).double().requires_grad_()
    alpha, beta = variables.chunk(2, dim=-1)
    features = torch.digamma(alpha + beta).repeat(1, 2) - torch.digamma(variables)
    log_beta = torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)
    offset = -log_beta.sum(dim=-1) - (variables * features).sum(dim=-1)
    outputs = (torch.from_numpy(by_features).double(), torch.from_numpy(by_offset).double())
    (expected,) = torch.autograd.grad((features, offset), variables, outputs)

    # the same sum with every term positive: what float32 errors are relative to
    alpha, beta, total = in_float64(params)
    first, second = torch.from_numpy(by_features).double().abs().chunk(2, dim=-1)
    g = torch.from_numpy(by_offset).double().abs().unsqueeze(-1)
    shared = (first + second + g * total) * torch.polygamma(1, total)
    size_alpha = shared + (first + g * alpha) * torch.polygamma(1, alpha)
    size_beta = shared + (second + g * beta) * torch.polygamma(1, beta)
    size = torch.cat([size_alpha, size_beta], dim=-1)
    assert_within(found, expected, 1e-6 * size)


@pytest.mark.parametrize("num_rows", [1, 129])
@pytest.mark.parametrize("column", [0, 3])  # an alpha, a beta
def test_nan_comes_out_as_nan(num_rows, column):
    params = draw(num_rows, 2, 0.05, 20)
    params[num_rows // 2, column] = np.nan
    is_hit = np.arange(num_rows) == num_rows // 2
    features, log_beta = special.features(params)
    gradient = special.features_backward(params, np.ones_like(params), np.ones_like(log_beta))
    assert np.array_equal(np.isnan(log_beta), is_hit)
    for numbers in (features, gradient):
        assert np.isnan(numbers[num_rows // 2, [column % 2, column % 2 + 2]]).all()
        assert np.isnan(numbers).sum() == 2


def test_far_values_stay_finite():
    far = [1e-9, 1.0, 1e9]  # what the clamp lets through, and its reciprocals
    params = np.array([(a, b) for a in far for b in far], dtype=np.float32)
    features, log_beta = special.features(params)
    gradient = special.features_backward(params, np.ones_like(params), np.ones_like(log_beta))
    assert np.isfinite(features).all()
    assert np.isfinite(log_beta).all()
    assert np.isfinite(gradient).all()
    alpha, beta, total = (part[:, 0] for part in in_float64(params))
    terms = [torch.lgamma(alpha), torch.lgamma(beta), -torch.lgamma(total)]
    assert_within(log_beta, sum(terms), 2e-6 * (1 + sum(term.abs() for term in terms)))


def test_the_series_have_no_error_of_their_own():
    """Rounding has either sign and averages out; a wrong coefficient does not."""
    params = draw(20_001, 1, 0.5, 4, seed=3)
    alpha, _, total = in_float64(params)
    features, _ = special.features(params)
    expected = (torch.digamma(total) - torch.digamma(alpha)).numpy()
    assert abs(np.mean(features[:, :1] - expected)) < 1e-7
    by_features = np.zeros_like(params)
    by_features[:, 1] = 1  # leaves d/d alpha = trigamma(alpha + beta)
    nothing = np.zeros(len(params), dtype=np.float32)
    trigamma = special.features_backward(params, by_features, nothing)[:, :1]
    assert abs(np.mean(trigamma - torch.polygamma(1, total).numpy())) < 2e-8
