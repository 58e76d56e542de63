"""What two processes run in the tests: a program that trains a run and evaluates it, twice.

python -m tests.training.evaluate_in_two_processes GRAPH QUERIES OUT
"""

import json
import os
import sys
from pathlib import Path

import torch

from betae import run as run_module
from betae.evaluation import evaluate as evaluation_module
from betae.graph.graph import KnowledgeGraph
from betae.querysets.query_set import QuerySet
from betae.run import train
from tests.training.helpers import POSITIVE, small_config


def main():
    graph, queries = KnowledgeGraph.open(sys.argv[1]), QuerySet.open(sys.argv[2])
    out, me = Path(sys.argv[3]), int(os.environ["RANK"])
    torch.set_num_threads(1)
    seen = {"ranked": [], "written": [], "mrr": []}

    def rank_rows(distances, block, rank=evaluation_module.rank_rows):
        seen["ranked"] += block.symbols.tolist()
        return rank(distances, block)

    def save_evaluation(evaluation, folder, save=run_module.save_evaluation):
        seen["written"].append(evaluation.name)
        return save(evaluation, folder)

    run_module.save_evaluation, evaluation_module.rank_rows = save_evaluation, rank_rows
    config = small_config("gqe", steps=2, structures=POSITIVE)
    run = train(graph, out / "run", config)
    for name in ("once", "twice"):
        evaluation = run.evaluate(queries, name, method="embedding", empty_queries=0)
        seen["mrr"].append({k: result.metrics.mrr for k, result in evaluation.structures.items()})
    (out / f"{me}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
