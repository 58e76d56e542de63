"""Matrix products in bfloat16, and nothing else."""

import pytest
import torch

from betae.models import BetaConfig, BetaE
from betae.models.execute import embed_queries
from betae.queries.ast import Entity
from betae.training import loop
from betae.training.folder import RunFolder
from tests.training.helpers import small_config

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


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe", "complex"])
def test_training_in_bfloat16_goes_down(model_name, graph, tmp_path):
    lines = []
    structures = {"1p": 1.0} if model_name == "complex" else {"1p": 1.0, "2i": 1.0}
    config = small_config(
        model_name=model_name, structures=structures, precision="bfloat16", steps=100
    )
    loop.fit(graph, config, RunFolder(tmp_path / "run"), report=lines.append)
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0]
