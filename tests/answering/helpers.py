"""What the tests of answering share: a curve, models, small runs without training."""

import json

import torch

from betae.answering.answerer import Answerer
from betae.answering.calibration import LAST_RANKS, Calibration
from betae.models import BetaConfig, BoxConfig, VectorConfig
from betae.models.store import build_model
from betae.training.folder import RunFolder
from tests.evaluation.eval_in_two_processes import Symbolic


def same_curve(distances, probabilities):
    """A calibration that goes by the distance alone."""
    return Calibration(((distances, probabilities),) * (len(LAST_RANKS) + 1))


CURVE = same_curve([0.0, 1.0], [0.8, 0.1])  # for a model whose distances are 0 and 1
SLOPE = same_curve([0.0, 100.0], [0.9, 0.01])
CONFIGS = {
    "betae": BetaConfig(dim=4, hidden=4),
    "query2box": BoxConfig(dim=4, span=0.5),
    "gqe": VectorConfig(dim=4, span=0.5),
}


def random_model(model_name, graph, seed=0):
    """A small model that was never trained."""
    torch.manual_seed(seed)
    return build_model(CONFIGS[model_name], graph.num_entities, graph.num_relations)


def exact(graph, edges="train", knows="all"):
    """An Answerer whose model knows the edges `knows`, and no others."""
    return Answerer(Symbolic(graph, knows), graph, CURVE, edges)


def untrained(graph, model_name="betae", edges="train"):
    return Answerer(random_model(model_name, graph), graph, SLOPE, edges)


def save_run(folder, graph, model_name="betae", step=10, seed=0):
    """Make a run of an untrained model; a later step replaces it."""
    folder.mkdir(parents=True, exist_ok=True)
    RunFolder(folder).save_graph_place(graph)
    RunFolder(folder).save_best(random_model(model_name, graph, seed), step, graph.fingerprint)
    return folder


def strict(text):
    """Read JSON as a reader would that knows no NaN."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)
