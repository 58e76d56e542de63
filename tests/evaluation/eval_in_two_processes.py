"""What two processes run in the tests of evaluation, and the graph and the model behind them.

python -m tests.evaluation.eval_in_two_processes GRAPH QUERIES OUT
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from betae import KnowledgeGraph, parallel
from betae.evaluation import uncertainty
from betae.evaluation.evaluate import evaluate
from betae.evaluation.ranks import EmbeddingRanker
from betae.graph.triples import Triples
from betae.models import BetaConfig, ComplexConfig, GQEConfig, Query2BoxConfig, QueryModel
from betae.models.store import build_model
from betae.querysets import sample
from betae.querysets.query_set import QuerySet
from tests.queries.oracle import edges_of

FEW = 20  # queries of a kind
WALKS = 512  # to find them
CONFIGS = {
    "betae": BetaConfig(dim=8, hidden=8),
    "query2box": Query2BoxConfig(dim=8, span=0.5),
    "gqe": GQEConfig(dim=8, span=0.5),
    "complex": ComplexConfig(dim=8, deviation=0.5),
}


def split_graph(seed=0, num_valid=60, num_test=90):
    """A random graph of 60 entities of 3 kinds; relation i leads from kind i to kind i + 1.

    The higher its number, the more edges an entity has: some queries have many answers.
    """
    random = np.random.default_rng(seed)
    heads, relations, tails = np.indices((60, 3, 60), dtype=np.int32).reshape(3, -1)
    fits = (heads % 3 == relations) & (tails % 3 == (relations + 1) % 3)
    chosen = fits & (random.random(len(tails)) < (tails / 60) ** 2)
    edges = random.permutation(np.stack([heads, relations, tails], axis=1)[chosen])
    valid, test, train = np.split(edges, np.cumsum([num_valid, num_test]))
    names = [f"e{number}" for number in range(60)]
    splits = {"train": train, "valid": valid, "test": test}
    return KnowledgeGraph.from_triples(Triples(names, ["r0", "r1", "r2"], splits))


class Symbolic(QueryModel):
    """Sets as rows of 0 and 1 for each entity, and exact logic on the edges that count.

    It knows all answers on those and no others; its sums are exact in whatever order.
    """

    name = "symbolic"
    has_complement = True

    def __init__(self, graph, edges):
        config = SimpleNamespace(dim=graph.num_entities)
        super().__init__(graph.num_entities, graph.num_relations, config)
        self.entities = nn.Parameter(torch.eye(self.num_entities))
        self.leads = torch.zeros(self.num_relations, self.num_entities, self.num_entities)
        for head, relation, tail in edges_of(graph, edges):
            self.leads[2 * relation, head, tail] = 1
            self.leads[2 * relation + 1, tail, head] = 1

    def project(self, sets, relations):
        by_relation = sets @ self.leads
        return by_relation[relations, torch.arange(len(sets))].clamp(max=1)

    def intersect(self, sets):
        return sets.amin(dim=1)

    def negate(self, sets):
        return 1 - sets

    def distance(self, sets, table):
        return 1 - sets @ table.T

    def uncertainty(self, sets):
        return sets.sum(dim=1)


class Indifferent(Symbolic):
    """It scores everything alike."""

    def distance(self, sets, table):
        return torch.zeros(len(sets), len(table))

    def uncertainty(self, sets):
        return torch.zeros(len(sets))


def random_model(model_name, graph):
    """A model that was never trained."""
    torch.manual_seed(0)
    return build_model(CONFIGS[model_name], graph.num_entities, graph.num_relations)


def models_of(graph):
    """The models that are evaluated by one process and by two."""
    return {"symbolic": Symbolic(graph, "train"), "betae": random_model("betae", graph)}


def main():
    graph, queries = KnowledgeGraph.open(sys.argv[1]), QuerySet.open(sys.argv[2])
    torch.set_num_threads(1)
    uncertainty.VALIDATION_QUERIES, sample.WALK_BATCH = FEW, WALKS
    with parallel.joined("Run it again."):
        for name, model in models_of(graph).items():
            steps = []
            evaluation = evaluate(
                EmbeddingRanker(model),
                graph,
                queries,
                empty_queries=FEW,
                progress=lambda *step, steps=steps: steps.append(step),
            )
            text = json.dumps([evaluation.to_json(), steps])
            (Path(sys.argv[3]) / f"{name}-{parallel.process_index()}.json").write_text(text)


if __name__ == "__main__":
    main()
