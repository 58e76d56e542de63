"""What tests of commands share."""

import pytest
import torch

import betae
from tests.answering.helpers import save_run
from tests.training.helpers import small_graph


@pytest.fixture(scope="module")
def quick():
    """One thread, and few edges and queries to fit probabilities on."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("betae.answering.edge_fit.FIT_ROWS", 100)
        patch.setattr("betae.answering.edge_fit.FIT_PAIRS", 200)
        patch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 5)
        patch.setattr("betae.evaluation.uncertainty.VALIDATION_QUERIES", 5)
        patch.setattr("betae.querysets.sample.WALK_BATCH", 256)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a small run."""
    return save_run(tmp_path_factory.mktemp("runs") / "run", small_graph())


@pytest.fixture(scope="session")
def world():
    return betae.world()


@pytest.fixture(scope="session")
def world_store(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "world"
    world.save(folder)
    return folder
