"""One small graph with its queries for all tests of training, and one thread, which is faster."""

import pytest
import torch

from betae.training import loop
from betae.training.folder import RunFolder
from tests.training.helpers import small_config, small_graph, stored_queries, validation_queries


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def graph():
    return small_graph()


@pytest.fixture(scope="session")
def graph_folder(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs") / "small"
    graph.save(folder)
    return folder


@pytest.fixture(scope="session")
def queries(graph):
    return stored_queries(graph)


@pytest.fixture(scope="session")
def valid(graph):
    return validation_queries(graph)


@pytest.fixture
def train(graph, valid, tmp_path, monkeypatch):
    """Train on the small graph with a small recipe; the run's folder is `tmp_path / "run"`."""

    def run(out=tmp_path / "run", report_every=5, on=graph, valid=valid, **changes):
        monkeypatch.setattr(loop, "REPORT_EVERY", report_every)
        names = ("queries", "minutes", "resume", "report")
        extra = {name: changes.pop(name) for name in names if name in changes}
        return loop.fit(on, small_config(**changes), RunFolder(out), valid=valid, **extra)

    return run
