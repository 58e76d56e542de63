"""Divergence, entropy and their gradients against float64."""

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from betae.models.divergence import divergence, entity_table, entropy
from tests.models.reference import assert_close, kl_slowly
from tests.queries.strategies import examples


def draw(num_rows, dim, low=0.05, high=20.0, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    where = torch.rand(num_rows, 2 * dim, generator=generator, dtype=torch.float64)
    return torch.exp(np.log(low) + where * np.log(high / low)).to(dtype)


def kl_formula(queries, entities):
    """The closed form as a textbook has it, differentiable in both."""
    a, b = (part[:, None] for part in queries.chunk(2, dim=-1))
    c, d = (part[None] for part in entities.chunk(2, dim=-1))

    def log_beta(x, y):
        return torch.lgamma(x) + torch.lgamma(y) - torch.lgamma(x + y)

    return (
        log_beta(a, b)
        - log_beta(c, d)
        + (c - a) * torch.digamma(c)
        + (d - b) * torch.digamma(d)
        + (a - c + b - d) * torch.digamma(c + d)
    ).sum(dim=-1)


def params_of(dim, low=0.05, high=20.0):
    elements = st.floats(np.float32(np.log(low)), np.float32(np.log(high)), width=32)
    return arrays(np.float32, (2, 2 * dim), elements=elements).map(np.exp).map(torch.from_numpy)


# ---- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 3, 16])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.float64, 1e-12)], ids=str
)
def test_divergence_is_that_of_torch_distributions(dim, dtype, tolerance):
    queries, entities = draw(7, dim, seed=1, dtype=dtype), draw(201, dim, seed=2, dtype=dtype)
    found = divergence(queries, entity_table(entities))
    assert found.dtype == dtype
    assert_close(found, kl_slowly(queries, entities), tolerance)


def test_divergence_is_of_the_entity_from_the_query_not_the_reverse():
    entity, query = torch.tensor([[2.0, 5.0]]), torch.tensor([[0.5, 0.5]])
    kl = torch.distributions.kl_divergence
    beta = torch.distributions.Beta
    expected = kl(beta(2.0, 5.0), beta(0.5, 0.5))
    assert abs(expected - kl(beta(0.5, 0.5), beta(2.0, 5.0))) > 0.1
    assert divergence(query, entity_table(entity)).item() == pytest.approx(expected.item(), 1e-5)


@examples(100)
@given(params_of(3))
def test_divergence_is_never_negative_and_zero_from_itself(params):
    exact = params.double()
    distances = divergence(exact, entity_table(exact))
    assert (distances >= -1e-10).all()
    assert distances.diagonal().abs().max() < 1e-10
    rounded = divergence(params, entity_table(params))
    size = float((params.abs().sum() * (1 + entity_table(params).abs().max())).clamp(min=1))
    assert (rounded >= -1e-6 * size).all()
    assert rounded.diagonal().abs().max() <= 1e-6 * size


@examples(100)
@given(params_of(3))
def test_entropy_is_that_of_scipy(params):
    expected = scipy.stats.beta.entropy(*np.split(params.double().numpy(), 2, axis=1)).sum(axis=1)
    np.testing.assert_allclose(entropy(params.double()), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(entropy(params), expected, rtol=2e-5, atol=2e-4)


def test_entropy_is_largest_for_the_uniform_distribution():
    params = torch.tensor([[1.0, 1.0], [2.0, 1.0], [0.5, 0.5], [30.0, 30.0]])
    uniform, *others = entropy(params).tolist()
    assert uniform == pytest.approx(0, abs=1e-6)
    assert max(others) < -0.01
    assert entropy(params)[3] == min(others)  # the narrowest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_that_are_not_contiguous(dtype):
    params = draw(6, 3, dtype=dtype)
    strided = params.T.contiguous().T
    assert not strided.is_contiguous()
    table = entity_table(params)
    assert_close(entity_table(strided), table, 1e-6)
    assert_close(divergence(strided, table), divergence(params, table), 1e-6)


# ---- gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 3])
def test_gradients_in_float64_by_differences(dim):
    entities = draw(3, dim, 0.2, 10, seed=3, dtype=torch.float64).requires_grad_()
    queries = draw(2, dim, 0.2, 10, seed=4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(entity_table, (entities,))
    assert torch.autograd.gradcheck(entropy, (entities,))
    assert torch.autograd.gradcheck(
        lambda q, e: divergence(q, entity_table(e)), (queries, entities)
    )


@pytest.mark.parametrize("num_entities", [1, 5, 301])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=str
)
def test_gradients_of_the_divergence_are_those_of_the_formula(num_entities, dtype, tolerance):
    values = draw(4, 3, seed=5, dtype=dtype), draw(num_entities, 3, seed=6, dtype=dtype)
    weights = torch.randn(4, num_entities, generator=torch.Generator().manual_seed(7))
    exact = [value.double().requires_grad_() for value in values]
    expected = torch.autograd.grad((kl_formula(*exact) * weights).sum(), exact)
    queries, entities = (value.clone().requires_grad_() for value in values)
    distances = divergence(queries, entity_table(entities))
    found = torch.autograd.grad((distances * weights.to(dtype)).sum(), (queries, entities))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert_close(one, other, tolerance)


@pytest.mark.parametrize("which", ["queries", "entities"])
def test_a_gradient_of_one_side_alone(which):
    queries, entities = draw(2, 3, seed=8), draw(3, 3, seed=9)
    wanted = queries if which == "queries" else entities
    wanted.requires_grad_()
    (found,) = torch.autograd.grad(divergence(queries, entity_table(entities)).sum(), wanted)
    exact = {"queries": queries.detach().double(), "entities": entities.detach().double()}
    exact[which].requires_grad_()
    (expected,) = torch.autograd.grad(kl_formula(*exact.values()).sum(), exact[which])
    assert_close(found, expected, 1e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=str
)
def test_gradients_of_the_entropy_are_those_of_torch_distributions(dtype, tolerance):
    params = draw(5, 3, seed=10, dtype=dtype).requires_grad_()
    (found,) = torch.autograd.grad(entropy(params).sum(), params)
    exact = params.detach().double().requires_grad_()
    betas = torch.distributions.Beta(*exact.chunk(2, dim=-1))
    (expected,) = torch.autograd.grad(betas.entropy().sum(), exact)
    assert_close(found, expected, tolerance)


def test_gradients_reach_log_parameters():
    """As the models use it: through exp, and with a slice of the table."""
    logs = draw(6, 3, seed=11).log().requires_grad_()
    table = entity_table(logs.exp())[1:4]
    (found,) = torch.autograd.grad(divergence(logs[:2].exp(), table).sum(), logs)
    exact = logs.detach().double().requires_grad_()
    params = exact.exp()
    (expected,) = torch.autograd.grad(kl_formula(params[:2], params[1:4]).sum(), exact)
    assert_close(found, expected, 1e-5)
