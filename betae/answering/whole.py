"""What the embedding of a whole question adds to the truth of its answers.

An answer that needs three missing edges has the product of three small probabilities, which says
little; the embedding, learned from such questions, says more. Its softmax distributes the expected
number n of missing answers over the entities:

    V'(x) = V(x) + (1 - V(x)) w n share(x)     n = min(1, sum of V over uncertain entities)
    share(x) = exp(-scale distance(x)) / sum_y exp(-scale distance(y))

This is a noisy-or with one more derivation of x. It matters where no derivation is likely; what is
impossible or certain stays so.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from betae.answering.calibration import candidates_of
from betae.answering.edges import EdgeProbabilities, Floats
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Group, embed_queries, score_blocks
from betae.queries.ast import Project, Query, nodes
from betae.queries.structures import STRUCTURES, limits_of
from betae.querysets.sample import sample_queries

MIN_EDGES = 3  # of a question, for its embedding to count
WEIGHT = 0.5  # w
MAX_SCALE = 10.0
SCALE_QUERIES = {"3p": 100, "3i": 100, "pi": 100, "ip": 100}  # validation queries for the scale


def adjust_by_embedding(
    probabilities: EdgeProbabilities, values: Floats, structure: Query, symbols: Ids
) -> Floats:
    """Return truth values V' of queries of one structure, given V, (n, num_entities).

    The first model that scores edges embeds the queries, if a scale was fitted for it. Entities and
    relations that were added after training have no embedding: queries that name them are left
    unchanged, and such entities gain nothing.
    """
    scale, scores = probabilities.weights.whole, probabilities.model_scores
    if scale is None or scores is None:
        return values
    model, table = scores.models[0], scores.tables[0]
    num_edges = sum(isinstance(node, Project) for node in nodes(structure))
    limits = limits_of(structure, model.num_entities, model.num_relations)
    learned = np.flatnonzero((symbols < limits).all(axis=1))
    if num_edges < MIN_EDGES or not model.can(structure) or not len(learned):
        return values
    values = values.copy()
    of_learned = values[:, : len(table)]
    ids = torch.from_numpy(symbols[learned]).long()
    with torch.no_grad():
        embedded = embed_queries(model, [Group(structure, ids, torch.arange(len(ids)))])
        for rows, distances in score_blocks(model, embedded, table):
            shares = distances.float().mul_(-scale).softmax(dim=1).numpy()
            before = of_learned[learned[rows]]
            uncertain = np.where(before < 1, before, 0)
            expected = np.minimum(uncertain.sum(axis=1, keepdims=True), 1)
            gained = (1 - before) * (WEIGHT * expected) * shares
            of_learned[learned[rows]] += np.where(before > 0, gained, 0)
    return values


def fit_scale(model: QueryModel, graph: KnowledgeGraph) -> float | None:
    """Fit the scale of distances by maximum likelihood of the hard answers of validation queries.

    None if the model cannot embed such queries, or the graph has none.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and needed once

    counts = {name: count for name, count in SCALE_QUERIES.items() if model.can(STRUCTURES[name])}
    if not counts:
        return None
    queries = sample_queries(graph, counts, "valid", purpose="whole questions")
    queries = queries.within(model.num_entities, model.num_relations).with_hard_answers()
    found = [
        (distances[is_answer].astype(np.float64), distances.astype(np.float64))
        for distances, is_answer, _ in candidates_of(model, queries)
    ]
    if not found:
        return None

    def cost(log_scale: float) -> float:
        scale = -math.exp(log_scale)
        costs = [(np.logaddexp.reduce(scale * all_) - scale * hard).mean() for hard, all_ in found]
        return float(np.mean(costs))

    best = minimize_scalar(cost, bounds=(math.log(1e-4), math.log(MAX_SCALE)), method="bounded")
    return math.exp(best.x)
