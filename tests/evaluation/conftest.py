"""Fixtures of the tests of evaluation: a graph, its test queries, and a model with its figures."""

import pytest
import torch

from betae.evaluation import uncertainty
from betae.evaluation.evaluate import evaluate
from betae.evaluation.ranks import EmbeddingRanker
from betae.queries.structures import EPFO, NEGATION
from betae.querysets import sample
from betae.querysets.sample import sample_queries
from tests.evaluation.eval_in_two_processes import FEW, WALKS, Symbolic, split_graph


@pytest.fixture(scope="module")
def _one_thread():
    """Faster for small tensors, above all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def _quick(_one_thread):
    """Sample little: on so small a graph that would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uncertainty, "VALIDATION_QUERIES", FEW)
        patch.setattr(sample, "WALK_BATCH", WALKS)
        yield


@pytest.fixture(scope="module")
def graph():
    return split_graph()


@pytest.fixture(scope="module")
def queries(_quick, graph):
    """A few test queries of the paper's 14 structures."""
    return sample_queries(graph, dict.fromkeys([*EPFO, *NEGATION], 30), "test")


@pytest.fixture(scope="module")
def forgetful(graph):
    """A model that knows what the smaller graph says, and no more."""
    return Symbolic(graph, "train+valid")


@pytest.fixture(scope="module")
def result(_quick, forgetful, graph, queries):
    return evaluate(EmbeddingRanker(forgetful), graph, queries, empty_queries=FEW)
