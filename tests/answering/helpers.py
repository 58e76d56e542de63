"""What the tests of answering share: a curve, models, small runs without training."""

import json

import torch

from betae.answering.answerer import Answerer
from betae.answering.calibration import LAST_RANKS, Calibration
from betae.models import BetaConfig, BoxConfig, VectorConfig
from betae.models.files import build_model
from betae.training.checkpoint import save_best, save_place_of
from tests.evaluation.eval_in_two_processes import Symbolic


def same_curve(distances, probabilities):
    """A calibration that goes by the distance alone."""
    return Calibration(((distances, probabilities),) * (len(LAST_RANKS) + 1))


CURVE = same_curve([0.0, 1.0], [0.8, 0.1])  # for a model whose distances are 0 and 1
SLOPE = same_curve([0.0, 100.0], [0.9, 0.01])
CONFIGS = {
    "beta": BetaConfig(dim=4, hidden=4),
    "box": BoxConfig(dim=4, span=0.5),
    "vector": VectorConfig(dim=4, span=0.5),
}


def random_model(geometry, graph, seed=0):
    """A small model that was never trained."""
    torch.manual_seed(seed)
    return build_model(geometry, graph.num_entities, graph.num_relations, CONFIGS[geometry])


def exact(graph, edges="train", knows="all"):
    """An Answerer whose model knows all edges of the view `knows`, and no others."""
    return Answerer(Symbolic(graph, knows), graph, CURVE, edges)


def untrained(graph, geometry="beta", edges="train"):
    return Answerer(random_model(geometry, graph), graph, SLOPE, edges)


def save_run(folder, graph, geometry="beta", step=10, seed=0):
    """Make a run of an untrained model; a later step replaces it."""
    folder.mkdir(parents=True, exist_ok=True)
    save_place_of(graph, folder)
    save_best(folder, random_model(geometry, graph, seed), step, graph.fingerprint)
    return folder


def strict(text):
    """Read JSON as a reader would that knows no NaN."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)
