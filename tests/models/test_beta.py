"""BetaE: the properties the paper claims, on random embeddings and random weights."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from betae.errors import InvalidArgument
from betae.models import BetaConfig, BetaE
from tests.models.reference import BETA_CONFIGS, assert_close, enliven, kl_slowly
from tests.queries.strategies import examples

NUM_ENTITIES, NUM_RELATIONS, DIM = 9, 3, 4

configs = pytest.mark.parametrize("config", BETA_CONFIGS.values(), ids=BETA_CONFIGS)
smooth = pytest.mark.parametrize(
    "config",
    [config for config in BETA_CONFIGS.values() if config.bound == "smooth"],
    ids=lambda config: config.projection,
)
seeds = st.integers(0, 1000)


def make(config, seed=0, spread=0.5):
    return enliven(BetaE(NUM_ENTITIES, NUM_RELATIONS, config), seed, spread)


def log_params(shape, low=-3.0, high=3.0):
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32)).map(torch.from_numpy)


FAR = float(np.float32(np.log(1e9)))  # the clamp's limit, and by negation its reciprocal
branches = st.integers(2, 5).flatmap(lambda number: log_params((2, number, 2 * DIM)))
far_branches = st.integers(2, 5).flatmap(lambda number: log_params((2, number, 2 * DIM), -FAR, FAR))


# ---- operators ----------------------------------------------------------------------------------


@configs
@examples(30)
@given(sets=log_params((3, 2 * DIM), -FAR, FAR))
def test_a_complement_twice_is_nothing(config, sets):
    model = make(config)
    assert torch.equal(model.negate(model.negate(sets)), sets)
    assert torch.allclose(model.negate(sets).exp() * sets.exp(), torch.ones(()), rtol=1e-5)


@configs
@examples(30)
@given(sets=log_params((3, 2 * DIM), -FAR, FAR), number=st.integers(2, 6), seed=seeds)
def test_the_intersection_of_a_set_with_itself_is_that_set(config, sets, number, seed):
    model = make(config, seed)
    same = sets[:, None].expand(-1, number, -1)
    assert_close(model.intersect(same), sets, 1e-6)


@configs
@examples(30)
@given(sets=far_branches, data=st.data(), seed=seeds)
def test_an_intersection_commutes(config, sets, data, seed):
    model = make(config, seed)
    order = data.draw(st.permutations(range(sets.shape[1])))
    assert_close(model.intersect(sets[:, order]), model.intersect(sets), 1e-5)


@configs
@examples(30)
@given(sets=branches, seed=seeds)
def test_the_weights_of_an_intersection_are_shares(config, sets, seed):
    model = make(config, seed)
    weights = model.attention(sets)
    assert weights.shape == (*sets.shape[:2], DIM)
    assert (weights >= 0).all()
    assert torch.allclose(weights.sum(dim=1), torch.ones(()), atol=1e-6)


@configs
@examples(15)
@given(
    # not too near 0, where a density has no bound at the ends of [0, 1]
    sets=st.integers(2, 4).flatmap(lambda number: log_params((number, 2 * DIM), -0.5, 2)),
    seed=seeds,
)
def test_an_intersection_is_the_weighted_product_of_the_densities(config, sets, seed):
    model = make(config, seed)
    with torch.no_grad():
        weights = model.attention(sets[None])[0].double().numpy()  # (branches, dim)
        alphas, betas = np.split(model.intersect(sets[None])[0].double().exp().numpy(), 2)
    branch_alphas, branch_betas = np.split(sets.double().exp().numpy(), 2, axis=1)
    logits = np.linspace(-30, 30, 2001)[:, None, None]  # fine near 0 and 1
    x = 1 / (1 + np.exp(-logits))
    log_densities = scipy.stats.beta.logpdf(x, branch_alphas, branch_betas)
    product = np.exp((weights * log_densities).sum(axis=1))  # (points, dim)
    by_logit = product * (x * (1 - x))[:, 0]  # dx = x (1 - x) dlogit
    product /= scipy.integrate.simpson(by_logit, x=logits[:, 0, 0], axis=0)
    expected = scipy.stats.beta.pdf(x[:, 0], alphas, betas)
    inner = (x[:, 0, 0] > 0.01) & (x[:, 0, 0] < 0.99)
    np.testing.assert_allclose(product[inner], expected[inner], rtol=1e-3, atol=1e-6)


# ---- closure ------------------------------------------------------------------------------------


steps = st.lists(
    st.one_of(
        st.tuples(st.just("project"), st.integers(0, NUM_RELATIONS - 1)),
        st.tuples(st.just("negate"), st.none()),
        st.tuples(st.just("intersect"), st.lists(st.integers(0, 100), min_size=1, max_size=3)),
    ),
    min_size=20,
    max_size=20,
)


@configs
@examples(20)
@given(steps=steps, seed=seeds, spread=st.sampled_from([0.1, 1.0, 10.0]))
def test_any_composition_keeps_parameters_finite_and_positive(config, steps, seed, spread):
    model = make(config, seed, spread)
    with torch.no_grad():
        sets = [model.embed_entities(torch.arange(NUM_ENTITIES))]
        for verb, argument in steps:
            match verb:
                case "project":
                    relations = torch.full((NUM_ENTITIES,), argument)
                    result = model.project(sets[-1], relations)
                case "negate":
                    result = model.negate(sets[-1])
                case "intersect":
                    others = [sets[number % len(sets)] for number in argument]
                    result = model.intersect(torch.stack([sets[-1], *others], dim=1))
            sets.append(result)
            params = result.exp()
            assert torch.isfinite(params).all()
            assert (params > 0).all()
        assert torch.isfinite(model.distance(sets[-1], model.table())).all()
        assert torch.isfinite(model.uncertainty(sets[-1])).all()


@smooth
@examples(30)
@given(numbers=log_params((3, 2 * DIM), -1000, 1000), seed=seeds)
def test_the_smooth_bound_keeps_to_its_range(config, numbers, seed):
    model = make(config, seed)
    near = numbers / 100  # beyond, tanh rounds to 1
    assert (model.bound(near).abs() < 3).all()
    assert (model.bound(numbers).abs() <= 3).all()
    assert torch.equal(model.bound(-numbers), -model.bound(numbers))
    relations = torch.arange(3)
    assert (model.project(numbers.clamp(-3, 3), relations).abs() <= 3).all()


def test_the_smooth_bound_changes_little_near_zero_and_its_gradient_never_dies():
    model = make(BETA_CONFIGS["modulated, smooth"])
    x = torch.tensor([-9.0, -0.1, 0.0, 0.1, 9.0], requires_grad=True)
    bounded = model.bound(x)
    assert torch.allclose(bounded[1:4], x[1:4], atol=1e-4)
    (gradient,) = torch.autograd.grad(bounded.sum(), x)
    assert (gradient > 0).all()


def test_the_clamp_is_that_of_the_reference():
    model = make(BETA_CONFIGS["concatenated, clamp"])
    raw = torch.tensor([-5.0, -0.95, 0.0, 2.0, 1e12])
    expected = torch.clamp(raw + 1, 0.05, 1e9)
    assert torch.allclose(model.bound(raw).exp(), expected, rtol=1e-5)


# ---- projection ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["smooth", "clamp"])
@examples(20)
@given(sets=log_params((3, 2 * DIM)))
def test_a_modulated_projection_starts_as_a_scale_and_a_shift(bound, sets):
    model = BetaE(NUM_ENTITIES, NUM_RELATIONS, BETA_CONFIGS[f"modulated, {bound}"])
    relations = torch.tensor([2, 0, 2])
    scale, shift = model.projection.scale[relations], model.projection.shift[relations]
    assert_close(model.project(sets, relations), model.bound(scale * sets + shift), 1e-6)


def test_a_modulated_projection_written_out():
    config = BETA_CONFIGS["modulated, smooth"]
    model = make(config)
    sets, relations = torch.randn(3, 2 * DIM), torch.tensor([1, 0, 1])
    parts = model.projection
    hidden = parts.hidden_scale[relations] * parts.first(sets) + parts.hidden_shift[relations]
    hidden = torch.relu(parts.others[0](torch.relu(hidden)))
    raw = parts.scale[relations] * sets + parts.shift[relations] + parts.last(hidden)
    assert len(parts.others) == config.layers - 1
    assert_close(model.project(sets, relations), 3 * torch.tanh(raw / 3), 1e-6)


def test_a_concatenated_projection_written_out():
    config = BETA_CONFIGS["concatenated, smooth"]
    model = make(config)
    sets, relations = torch.randn(3, 2 * DIM), torch.tensor([1, 0, 1])
    parts = model.projection
    h = torch.cat([sets.exp(), parts.relations[relations]], dim=1)
    for layer in parts.hidden:
        h = torch.relu(layer(h))
    assert len(parts.hidden) == config.layers
    assert_close(model.project(sets, relations), 3 * torch.tanh(parts.last(h) / 3), 1e-6)


@configs
def test_every_parameter_of_the_model_learns(config):
    model = make(config)
    ids = torch.arange(NUM_ENTITIES)
    sets = model.project(model.embed_entities(ids), ids % NUM_RELATIONS)
    both = model.intersect(torch.stack([sets, model.negate(sets.roll(1, 0))], dim=1))
    model.distance(both, model.table()).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


# ---- distance and uncertainty -------------------------------------------------------------------


@configs
@examples(20)
@given(sets=log_params((3, 2 * DIM)), seed=seeds)
def test_distance_is_the_divergence_of_the_entity_from_the_query(config, sets, seed):
    model = make(config, seed)
    ids = torch.tensor([5, 0, 8])
    with torch.no_grad():
        found = model.distance(sets, model.table(ids))
        expected = kl_slowly(sets.exp(), model.embed_entities(ids).exp())
        assert_close(found, expected, 2e-5)
        assert_close(model.distance(sets, model.table())[:, ids], found, 1e-6)


@configs
def test_an_entity_is_nearest_to_itself(config):
    model = make(config)
    with torch.no_grad():
        distances = model.distance(model.embed_entities(torch.arange(NUM_ENTITIES)), model.table())
    assert distances.argmin(dim=1).tolist() == list(range(NUM_ENTITIES))


@configs
@examples(20)
@given(sets=log_params((3, 2 * DIM)))
def test_uncertainty_is_the_entropy(config, sets):
    alphas, betas = np.split(sets.double().exp().numpy(), 2, axis=1)
    expected = scipy.stats.beta.entropy(alphas, betas).sum(axis=1)
    np.testing.assert_allclose(make(config).uncertainty(sets), expected, rtol=2e-5, atol=2e-4)


def test_dropout_is_for_training_only():
    model = BetaE(50, 4, BetaConfig(dim=40, hidden=30, dropout=0.25))
    enliven(model)
    ids, relations = torch.arange(50), torch.zeros(50, dtype=torch.long)
    whole = model.eval().embed_entities(ids)
    projected = model.project(whole, relations)
    assert torch.equal(model.project(whole, relations), projected)
    model.train()
    some = model.embed_entities(ids)
    left_out = some != whole
    assert torch.all(some[left_out] == 0)
    assert 0.2 < float(left_out.float().mean()) < 0.3
    assert not torch.allclose(model.project(whole, relations), projected)
    assert torch.equal(model.table(), model.eval().table())


@pytest.mark.parametrize("dropout", [-0.1, 1, 2.0])
def test_a_dropout_out_of_range(dropout):
    with pytest.raises(InvalidArgument, match="dropout"):
        BetaConfig(dropout=dropout)
