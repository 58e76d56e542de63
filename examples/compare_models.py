"""BetaE, Query2Box and GQE on the same graph and the same held-out edges, in one report.

python examples/compare_models.py
"""

import tempfile
from pathlib import Path

from betae import (
    BetaConfig,
    BoxConfig,
    TrainConfig,
    VectorConfig,
    sample_queries,
    train,
    world,
    write_report,
)

MODELS = {"BetaE": BetaConfig(dim=32), "Query2Box": BoxConfig(dim=32), "GQE": VectorConfig(dim=32)}

with tempfile.TemporaryDirectory() as folder:
    graph = world()
    queries = sample_queries(graph, {"1p": 100, "2p": 100, "2i": 100, "2u": 100}, "test")
    runs = []
    for name, model in MODELS.items():
        config = TrainConfig(
            model=model,
            batch_size=256,
            candidates=512,
            learning_rate=4e-3,
            steps=150,
            validation_queries=50,
        )
        runs.append(train(graph, config, Path(folder) / name))
        results = runs[-1].evaluate(queries, empty_queries=0).structures
        print(name, "MRR %:", {key: round(each.metrics.mrr, 1) for key, each in results.items()})
    write_report([run.folder for run in runs], Path(folder) / "report")
    print(*sorted(path.name for path in (Path(folder) / "report").iterdir()))
