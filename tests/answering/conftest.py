"""One thread, which is faster, and few queries and edges to fit probabilities on."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _few_queries(monkeypatch):
    monkeypatch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 5)
    monkeypatch.setattr("betae.querysets.sample.WALK_BATCH", 256)
    monkeypatch.setattr("betae.answering.edge_fit.FIT_ROWS", 100)
    monkeypatch.setattr("betae.answering.edge_fit.FIT_PAIRS", 200)
