"""BetaE, Query2Box and GQE on the same graph and the same hidden edges, in one report.

python examples/compare_models.py
"""

import tempfile
from pathlib import Path

from betae import (
    TrainConfig,
    best_model,
    evaluate,
    load_model,
    sample_queries,
    save_evaluation,
    train,
    world,
    write_report,
)

MODELS = {"betae": "beta", "query2box": "box", "gqe": "vector"}

with tempfile.TemporaryDirectory() as folder:
    graph = world()
    queries = sample_queries(graph, {"1p": 100, "2p": 100, "2i": 100, "2u": 100}, "test")
    runs = []
    for name, geometry in MODELS.items():
        runs.append(Path(folder) / name)
        config = TrainConfig(geometry, {"dim": 32}, batch_size=256, candidates=512, steps=150)
        train(graph, config, runs[-1])
        evaluation = evaluate(load_model(best_model(runs[-1])), graph, queries, empty_queries=0)
        save_evaluation(evaluation, runs[-1], "test")
        scores = {key: round(value.metrics.mrr, 1) for key, value in evaluation.structures.items()}
        print(name, "MRR %:", scores)
    write_report(runs, Path(folder) / "report")
    print(*sorted(path.name for path in (Path(folder) / "report").iterdir()))
