"""The optimizer, against dense Adam; matrix products in bfloat16."""

import pytest
import torch
from torch.nn.functional import embedding

from betae.models import BetaConfig, BetaE
from betae.models.execute import embed_queries
from betae.models.store import build_model
from betae.queries.ast import Entity
from betae.training.learner import (
    Optimizer,
    rate_factor,
    step_rows_anywhere,
    step_rows_compiled,
)
from betae.training.losses import build_loss
from tests.training.helpers import assert_bit_equal, small_config


def make(model_name="betae", **changes):
    config = small_config(model_name=model_name, learning_rate=0.01, table_rate=3.0, **changes)
    torch.manual_seed(1)
    model = build_model(config.model, 12, 4)
    model.has_sparse_gradient = True
    loss = build_loss(config)
    return model, loss, Optimizer(model, loss, config.optimizer), config


def some_loss(model, loss, rows, step, table=None):
    """Something that depends on the rows, on all other parameters and on the step."""
    table = model.entities if table is None else table
    rows = torch.tensor(rows)
    generator = torch.Generator().manual_seed(step)
    picked = embedding(rows, table, sparse=table is model.entities)
    total = (picked * torch.randn(picked.shape, generator=generator)).sum()
    for parameter in (*model.parameters(), *loss.parameters()):
        if parameter is not model.entities:
            noise = torch.randn(parameter.shape, generator=generator)
            total = total + (parameter.square() * noise).sum()
    return total


def test_a_state_is_restored_to_the_device_of_the_parameters():
    """With PyTorch's `meta` device in the place of a GPU, which is not where the tests run."""
    model, loss, optimizer, config = make()
    optimizer.zero_grad()
    some_loss(model, loss, [0, 3], 0).backward()
    optimizer.step(1.0)
    saved = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    elsewhere = Optimizer(model.to("meta"), loss.to("meta"), config.optimizer)
    elsewhere.restore(saved)
    state = elsewhere.state()
    assert state.keys() == saved.keys()
    assert {"0.step", "0.exp_avg", "0.exp_avg_sq"} <= state.keys()
    assert {str(state[name].device) for name in state if name != "num_steps"} == {"meta"}


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe"])
@pytest.mark.parametrize("num_steps", [1, 7])
def test_touched_rows_and_networks_equal_dense_adam(model_name, num_steps):
    model, loss, optimizer, config = make(model_name)
    other, other_loss, _, _ = make(model_name)
    tables = {"entities", *other.relation_tables}
    reference = torch.optim.Adam(
        [
            {
                "params": [
                    *(p for name, p in other.named_parameters() if name not in tables),
                    *other_loss.parameters(),
                ],
                "lr": config.optimizer.learning_rate,
            },
            {
                "params": [p for name, p in other.named_parameters() if name in tables],
                "lr": config.optimizer.learning_rate * config.optimizer.table_rate,
            },
        ]
    )
    rates = [group["lr"] for group in reference.param_groups]
    start = model.entities.detach().clone()
    touched = [3, 0, 3, 7]  # 3 twice: its gradients add up
    for step in range(num_steps):
        factor = rate_factor(step, step / 10, 3)
        optimizer.zero_grad()
        some_loss(model, loss, touched, step).backward()
        optimizer.step(factor)
        reference.zero_grad()
        # The same rows of the same table, but with a dense gradient
        some_loss(other, other_loss, touched, step, other.entities * 1).backward()
        for group, rate in zip(reference.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        reference.step()
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6, msg=name)
    for one, two in zip(loss.parameters(), other_loss.parameters(), strict=True):
        torch.testing.assert_close(one, two, equal_nan=True)
    untouched = [row for row in range(12) if row not in touched]
    assert torch.equal(model.entities[untouched], start[untouched])
    assert (model.entities[touched] != start[touched]).any(dim=1).all()
    for moment in optimizer.moments.values():
        assert not moment[untouched].any()
        assert moment[touched].all()


def test_a_row_that_rests_keeps_its_value_and_moments():
    model, loss, optimizer, _ = make()
    for step, rows in enumerate([[1, 2], [2, 3], [2, 3]]):
        optimizer.zero_grad()
        some_loss(model, loss, rows, step).backward()
        optimizer.step(1.0)
        if step == 0:
            kept = [t[1].clone() for t in (model.entities, *optimizer.moments.values())]
    for before, table in zip(kept, (model.entities, *optimizer.moments.values()), strict=True):
        assert torch.equal(before, table[1])


def test_decay_is_that_of_dense_adam_where_a_step_touches_every_row():
    model, loss, optimizer, config = make(weight_decay=0.3)
    dense = model.entities.detach().clone().requires_grad_()
    rate = config.optimizer.learning_rate * config.optimizer.table_rate
    reference = torch.optim.Adam([dense], lr=rate, weight_decay=0.3)
    for step in range(4):
        optimizer.zero_grad()
        some_loss(model, loss, list(range(12)), step).backward()
        dense.grad = model.entities.grad.to_dense()
        optimizer.step(1.0)
        reference.step()
    torch.testing.assert_close(model.entities, dense, rtol=1e-5, atol=1e-6)
    assert (make()[3].optimizer.weight_decay, config.optimizer.weight_decay) == (0.0, 0.3)


def test_each_parameter_has_its_rate():
    """The first step of Adam is the rate, whatever the gradient."""
    model, loss, optimizer, config = make()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    scale = float(loss.log_scale.detach())
    optimizer.zero_grad()
    some_loss(model, loss, list(range(12)), 0).backward()
    optimizer.step(0.5)
    tables = {"entities", *model.relation_tables}
    assert {"projection.scale", "projection.shift"} < tables
    for name, parameter in model.named_parameters():
        rate = (
            config.optimizer.learning_rate
            * 0.5
            * (config.optimizer.table_rate if name in tables else 1)
        )
        change = (parameter - before[name]).abs()
        moved = change > 0
        if name.startswith("projection.last"):
            assert not moved.any()  # starts at zero, where the squares above have no slope
        else:
            assert moved.float().mean() > 0.99
            torch.testing.assert_close(
                change[moved], torch.full_like(change[moved], rate), rtol=2e-3, atol=1e-6, msg=name
            )
    assert abs(float(loss.log_scale.detach()) - scale) == pytest.approx(
        config.optimizer.learning_rate * 0.5, rel=1e-3
    )
    # all but the entities, with the scale and the offset of the loss
    assert len(optimizer.dense_parameters()) == len(before) + 3


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe"])
def test_state_goes_there_and_back(model_name):
    def advance(model, loss, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            some_loss(model, loss, [step % 12, 5], step).backward()
            optimizer.step(rate_factor(step, step / 20, 4))

    model, loss, optimizer, _ = make(model_name)
    advance(model, loss, optimizer, range(6))
    state = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    moments = {name: tensor.clone() for name, tensor in optimizer.moments.items()}
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    of_loss = {k: v.clone() for k, v in loss.state_dict().items()}
    advance(model, loss, optimizer, range(6, 12))

    resumed, resumed_loss, restored, _ = make(model_name)
    resumed.load_state_dict(weights)
    resumed_loss.load_state_dict(of_loss)
    restored.restore(state)
    for name, rows in restored.moments.items():
        rows.copy_(moments[name])
    assert_bit_equal(restored.state(), state)
    advance(resumed, resumed_loss, restored, range(6, 12))
    assert_bit_equal(model.state_dict(), resumed.state_dict())
    assert_bit_equal(loss.state_dict(), resumed_loss.state_dict())
    assert_bit_equal(optimizer.state(), restored.state())
    assert_bit_equal(optimizer.moments, restored.moments)
    assert int(restored.state()["num_steps"]) == 12


@pytest.mark.parametrize(
    ("step", "progress", "warmup", "factor"),
    [
        (0, 0.0, 4, 0.25),
        (3, 0.0, 4, 1.0),
        (0, 0.0, 0, 1.0),
        (50, 0.5, 4, 0.5),
        (1, 0.5, 4, 0.25),
        (100, 1.2, 4, 0.0),
    ],
)
def test_rate_factor(step, progress, warmup, factor):
    assert rate_factor(step, progress, warmup) == pytest.approx(factor)


@pytest.mark.parametrize("num_rows", [1, 7, 300])  # 300: in threads
def test_the_compiled_step_equals_that_of_any_device(num_rows):
    generator = torch.Generator().manual_seed(num_rows)
    rows = torch.randperm(400, generator=generator)[:num_rows]
    gradients = torch.randn(num_rows, 6, generator=generator)
    tables = tuple(torch.rand(400, 6, generator=generator) for _ in range(3))
    copies = tuple(table.clone() for table in tables)
    step_rows_anywhere(rows, gradients, tables, 0.02, 0.3, 0.1)
    step_rows_compiled(rows, gradients, copies, 0.02, 0.3, 0.1)
    for one, two in zip(tables, copies, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


QUERIES = [Entity(1)[2], Entity(3)[0] & ~Entity(4)[1][3]]


@pytest.mark.parametrize("projection", ["modulated", "concatenated"])
def test_only_the_products_are_in_bfloat16(projection):
    torch.manual_seed(0)
    model = BetaE(10, 4, BetaConfig(dim=8, hidden=16, projection=projection))
    exact = embed_queries(model, QUERIES).sets
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = embed_queries(model, QUERIES).sets
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, exact)  # it was in force
    torch.testing.assert_close(rough, exact, atol=0.05, rtol=0.05)
