"""What the tests of answering share: curves, weights, models, small runs without training."""

import json
import math

import torch

from betae.answering.answerer import Answerer
from betae.answering.by_completion import ByCompletion
from betae.answering.by_embedding import ByEmbedding
from betae.answering.calibration import LAST_RANKS, Calibration
from betae.answering.completed import CACHE_BYTES, CompletedGraph
from betae.answering.edges import (
    ROW,
    TAIL,
    Counts,
    EdgePredictors,
    EdgeProbabilities,
    EdgeWeights,
)
from betae.models import BetaConfig, ComplexConfig, GQEConfig, Query2BoxConfig
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
    "query2box": Query2BoxConfig(dim=4, span=0.5),
    "gqe": GQEConfig(dim=4, span=0.5),
    "complex": ComplexConfig(dim=4, deviation=0.7),
}


def random_model(model_name, graph, seed=0):
    """A small model that was never trained."""
    torch.manual_seed(seed)
    return build_model(CONFIGS[model_name], graph.num_entities, graph.num_relations)


# ---- the completed graph ------------------------------------------------------------------------


def edge_weights(predictors, tail=(0, 0, 0), loop=(0, 0), **row):
    """Weights by hand; `row` names those that are not zero, "1" being `bias`."""
    names = {"score": "score", "total": "ln sum exp(score)", "bias": "1", "full": "n > 0"}
    values = {**dict.fromkeys(ROW, 0.0), "score": 1.0}
    values |= {names[name]: value for name, value in row.items()}
    return EdgeWeights(predictors, dict(zip(TAIL, (*tail, *loop), strict=True)), values)


def log_odds(probability):
    return math.log(probability / (1 - probability))


# For a model whose distances are 0 and 1: missing edges that it knows have 80 %, others 10 %.
CERTAINTY = edge_weights({"symbolic": log_odds(0.8) - log_odds(0.1)}, bias=log_odds(0.8))


def probabilities_of(models, weights, graph, edges="train", log_odds=0.0):
    predictors = EdgePredictors(models, weights, log_odds)
    counts = Counts(graph.adjacency(edges), fitted=graph.adjacency("train"))
    return EdgeProbabilities(predictors, counts)


def completed_graph(graph, edges="train", model=None, weights=CERTAINTY, cache_bytes=CACHE_BYTES):
    """A graph completed by a model, by default one that knows all of its edges."""
    model = model or Symbolic(graph, "all")
    return CompletedGraph(graph, probabilities_of([model], weights, graph, edges), cache_bytes)


def answerer_by(completed, graph, edges="train"):
    return Answerer(graph, ByCompletion(graph, completed), edges)


def exact(graph, edges="train", knows="all"):
    """Answers from the graph completed by a model that knows the edges `knows`, and no others."""
    return answerer_by(completed_graph(graph, edges, Symbolic(graph, knows)), graph, edges)


def guessing(graph, edges="train", model_name="complex", of=None):
    """Answers from a graph completed by a model, of the graph `of`, that was never trained."""
    model = random_model(model_name, of or graph)
    weights = edge_weights({model_name: 1.0}, tail=(0.1, -0.5, 0.2), total=-0.5, full=-1)
    return answerer_by(completed_graph(graph, edges, model, weights), graph, edges)


# ---- by embedding -------------------------------------------------------------------------------


def by_distance(graph, model, curve=CURVE, edges="train", union="DNF"):
    """Answers ranked by the distance of entities from the embedded question."""
    return Answerer(graph, ByEmbedding(graph, model, curve, union=union), edges)


def untrained(graph, model_name="betae", edges="train", union="DNF"):
    return by_distance(graph, random_model(model_name, graph), SLOPE, edges, union)


# ---- runs ---------------------------------------------------------------------------------------


def save_run(folder, graph, model_name="betae", step=10, seed=0):
    """Make a run of an untrained model; a later step replaces it."""
    folder.mkdir(parents=True, exist_ok=True)
    RunFolder(folder).save_graph_path(graph)
    RunFolder(folder).save_best(random_model(model_name, graph, seed), step, graph.fingerprint)
    return folder


def strict(text):
    """Read JSON as a reader would that knows no NaN."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)
