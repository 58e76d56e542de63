"""Train the three models on `world` and compare with ranking by frequency, on hidden edges.

python benchmarks/world.py [--steps 600]

Validation MRR of 1p queries: an edge of the validation split is hidden, its head and relation are
given. The baseline ranks entities by how often they are tails of the relation in training.
"""

import argparse
import tempfile
import time
from pathlib import Path

from betae import BetaConfig, GQEConfig, Query2BoxConfig, TrainConfig, train, world
from betae.evaluation.ranks import rank_by_frequency, summarise
from betae.querysets.sample import sample_queries
from betae.training.config import SoftmaxConfig, ValidationConfig

EPFO_MIX = dict.fromkeys(("1p", "2p", "3p", "2i", "3i"), 1.0)
RECIPES = {
    "BetaE": {"model": BetaConfig(dim=64, hidden=128)},
    "Query2Box": {"model": Query2BoxConfig(dim=64), "structures": EPFO_MIX},
    "GQE": {"model": GQEConfig(dim=128), "structures": EPFO_MIX},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    steps = parser.parse_args().steps
    graph = world()
    valid = sample_queries(graph, {"1p": 10**6}, "valid")
    block = valid.blocks["1p"]
    baseline = summarise(rank_by_frequency(graph, block), block.hard.offsets).mrr
    print(f"{len(block)} validation queries; frequency: MRR {baseline:.1f} %")
    loss, validation = SoftmaxConfig(candidates=512), ValidationConfig(every=steps // 4)
    for name, recipe in RECIPES.items():
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            config = TrainConfig(
                loss=loss, batch_size=256, steps=steps, validation=validation, **recipe
            )
            run = train(graph, Path(folder) / "run", config, valid=valid)
        seconds = time.perf_counter() - start
        print(f"{name}: MRR {run.outcome.best_mrr:.1f} % after {seconds:.0f} s")


if __name__ == "__main__":
    main()
