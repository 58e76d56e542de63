"""ComplEx against complex numbers of numpy, and what it refuses."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from betae.errors import InvalidArgument, UnsupportedQuery
from betae.models import ComplEx, ComplexConfig
from betae.models.complex import complex_product, cubes
from betae.models.execute import embed_queries, score_queries
from betae.queries.ast import Entity
from betae.queries.structures import STRUCTURES, fill, num_symbols
from tests.models.reference import assert_close, enliven
from tests.queries.strategies import examples

NUM_ENTITIES, NUM_RELATIONS, DIM = 9, 4, 3
seeds = st.integers(0, 1000)
INSTEAD = r"single edges only\. .*method = 'completed'\. To embed .*name = 'betae'"


def make(seed=0):
    return enliven(ComplEx(NUM_ENTITIES, NUM_RELATIONS, ComplexConfig(dim=DIM)), seed).double()


def rows(number, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number, 2 * DIM, generator=generator, dtype=torch.float64)


def numbers(weights):
    """The complex numbers that rows stand for: (n, 2 dim) -> (n, dim)."""
    weights = weights.detach().numpy()
    return weights[:, :DIM] + 1j * weights[:, DIM:]


def slow_scores(model):
    """Re <h r, conj(t)> of every edge, one at a time: (heads, relations, tails)."""
    entities, relations = numbers(model.entities), numbers(model.relations)
    assert entities.dtype == np.complex128
    return torch.tensor(
        [[[(h * r * t.conj()).sum().real for t in entities] for r in relations] for h in entities]
    )


# ---- against numpy ------------------------------------------------------------------------------


@examples(20)
@given(seeds)
def test_a_query_scores_every_edge(seed):
    model = make(seed)
    queries = [Entity(head)[relation] for head in range(NUM_ENTITIES) for relation in range(4)]
    found = -score_queries(model, queries).reshape(NUM_ENTITIES, NUM_RELATIONS, NUM_ENTITIES)
    assert_close(found, slow_scores(model), 1e-12)


@examples(20)
@given(seeds)
def test_relation_scores_are_those_of_the_same_edges(seed):
    model, heads, tails = make(seed), torch.tensor([0, 3, 3, 8]), torch.tensor([1, 3, 0, 0])
    found = model.relation_scores(model.embed_entities(heads), model.embed_entities(tails))
    assert_close(found, slow_scores(model)[heads, :, tails], 1e-12)


def test_an_entity_is_its_row_and_a_projection_multiplies():
    model = make()
    ids, relations = torch.tensor([3, 3, 7]), torch.tensor([2, 0, 2])
    heads = model.embed_entities(ids)
    assert torch.equal(heads, model.entities[ids])
    expected = numbers(heads) * numbers(model.relations)[relations]
    np.testing.assert_allclose(numbers(model.project(heads, relations)), expected)


def test_a_distance_is_the_score_negated_and_may_be_below_zero():
    model, sets = make(), rows(3)
    ids = torch.tensor([5, 0, 8])
    with torch.no_grad():
        expected = -(numbers(sets) @ numbers(model.entities).conj().T).real
        found = model.distance(sets, model.table())
        np.testing.assert_allclose(found, expected)
        assert (found < 0).any()
        torch.testing.assert_close(model.distance(sets, model.table(ids)), found[:, ids])


@examples(20)
@given(seeds)
def test_products_and_cubes(seed):
    left, right = rows(5, seed), rows(5, seed + 1)
    a, b = numbers(left), numbers(right)
    np.testing.assert_allclose(numbers(complex_product(left, right)), a * b)
    found = complex_product(left, right, conjugate_left=True)
    np.testing.assert_allclose(numbers(found), a.conj() * b)
    np.testing.assert_allclose(cubes(left), (np.abs(a) ** 3).sum(axis=1))


def test_gradients_of_the_cubes_even_at_zero():
    weights = rows(3)
    weights[0], weights[1, 0] = 0, 0
    weights.requires_grad_()
    assert torch.autograd.gradcheck(cubes, weights)
    (gradient,) = torch.autograd.grad(cubes(weights).sum(), weights)
    assert not gradient[0].any()
    assert gradient[2].all()


def test_search_vectors_are_the_rows_and_their_product_the_score():
    model = make()
    sets = embed_queries(model, [Entity(2)[1], Entity(5)[3]]).sets
    assert model.metric == "inner product"
    product = model.set_vectors(sets) @ model.entity_vectors(model.table()).T
    assert torch.equal(product, -model.distance(sets, model.table()))


# ---- what it can do, and what not ---------------------------------------------------------------


def test_it_can_take_a_single_step_only():
    model = make()
    assert [name for name, structure in STRUCTURES.items() if model.can(structure)] == ["1p"]
    assert not model.can(Entity(0))
    assert model.relation_tables == ("relations",)
    assert not model.has_complement
    assert not model.has_uncertainty


@pytest.mark.parametrize("name", [name for name in STRUCTURES if name not in ("1p", "2u", "2u-DM")])
def test_other_queries_are_not_embedded_as_if_they_were_steps(name):
    query = fill(STRUCTURES[name], [0] * num_symbols(STRUCTURES[name]))
    for use in (
        lambda model: model.require([STRUCTURES["1p"], query]),
        lambda model: embed_queries(model, [Entity(1)[0], query]),
    ):
        with pytest.raises(UnsupportedQuery, match=rf"^ComplEx cannot embed \?X \. .*{INSTEAD}"):
            use(make())


def test_a_union_of_steps_has_a_row_for_each():
    """As an entity without a row of its own needs it: its known neighbours stand for it."""
    model = make()
    union = Entity(0)[1] | Entity(2)[3]
    each = score_queries(model, [Entity(0)[1], Entity(2)[3]])
    assert torch.equal(score_queries(model, [union])[0], each.amin(dim=0))
    with pytest.raises(UnsupportedQuery, match="ComplEx cannot embed"):
        model.require([union])


def test_the_operations_that_it_lacks_say_what_to_do():
    model, sets = make(), rows(2)
    with pytest.raises(UnsupportedQuery, match=f"ComplEx cannot intersect.*{INSTEAD}"):
        model.intersect(sets[None])
    with pytest.raises(UnsupportedQuery, match=f"ComplEx cannot take a complement.*{INSTEAD}"):
        model.negate(sets)
    with pytest.raises(UnsupportedQuery, match=f"ComplEx cannot estimate uncertainty.*{INSTEAD}"):
        model.uncertainty(sets)


@pytest.mark.parametrize(
    "values", [{"dim": 0}, {"dim": 1.5}, {"n3": -1}, {"relation_weight": -1}, {"deviation": 0}]
)
def test_a_config_out_of_range(values):
    with pytest.raises(InvalidArgument, match=f"{next(iter(values))} is"):
        ComplexConfig(**values)


def test_its_weights_start_small_and_both_costs_may_be_off():
    torch.manual_seed(0)
    model = ComplEx(200, 4, ComplexConfig(dim=50, n3=0, relation_weight=0, deviation=0.02))
    for table in (model.entities, model.relations):
        assert table.shape[1] == 100
        assert 0.015 < table.std() < 0.025
