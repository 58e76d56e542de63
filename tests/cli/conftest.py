"""What tests of commands that answer share."""

import pytest
import torch


@pytest.fixture(scope="module")
def quick():
    """One thread, and few edges and queries to fit probabilities on."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("betae.answering.edge_fit.EDGES", 100)
        patch.setattr("betae.answering.edge_fit.PAIRS", 200)
        patch.setattr("betae.answering.calibration.QUERIES", 5)
        patch.setattr("betae.querysets.sampler.BATCH", 256)
        yield
    torch.set_num_threads(before)
