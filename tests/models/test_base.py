"""Products with a table: the same numbers whichever library computes them."""

from __future__ import annotations

import pytest
import torch

from betae.models import base
from betae.models.base import inner_products


def rows(number: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(number, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("number", [0, 1, 2, 17, 300])
@pytest.mark.parametrize("width", [1, 33, 128])
def test_products_are_those_of_float64(number: int, width: int) -> None:
    queries, table = rows(number, width, 0), rows(57, width, 1)
    exact = queries.double() @ table.double().T
    with torch.no_grad():
        found = inner_products(queries, table)
    assert found.shape == (number, 57)
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=1e-5)


def test_what_onednn_cannot_take_is_multiplied_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries, table = rows(3, 8, 0), rows(9, 8, 1)
    exact = queries.double() @ table.double().T
    cases = {
        "float64": (queries.double(), table.double()),
        "a slice of a wider table": (queries, torch.cat([table, table], dim=1)[:, :8]),
        "every other query": (queries.repeat_interleave(2, dim=0)[::2], table),
    }
    for name, (left, right) in cases.items():
        torch.testing.assert_close(
            inner_products(left, right).double(), exact, atol=1e-5, rtol=1e-5, msg=name
        )
    monkeypatch.setattr(base, "_has_onednn", False)
    torch.testing.assert_close(inner_products(queries, table), queries @ table.T)


def test_gradients_pass_through() -> None:
    queries, table = rows(3, 8, 0).requires_grad_(), rows(9, 8, 1).requires_grad_()
    inner_products(queries, table).sum().backward()
    torch.testing.assert_close(queries.grad, table.detach().sum(0).repeat(3, 1))
    torch.testing.assert_close(table.grad, queries.detach().sum(0).repeat(9, 1))
