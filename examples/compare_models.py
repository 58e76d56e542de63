"""BetaE, Query2Box and GQE on the same graph and the same held-out edges, in one report.

python examples/compare_models.py
"""

import tempfile
from pathlib import Path

import betae

MODELS = {
    "BetaE": betae.BetaConfig(dim=32),
    "Query2Box": betae.Query2BoxConfig(dim=32),
    "GQE": betae.GQEConfig(dim=32),
}

with tempfile.TemporaryDirectory() as folder:
    graph = betae.world()
    queries = graph.sample("1p", "2p", "2i", "2u", split="test", count=100)
    runs = []
    for name, model in MODELS.items():
        config = betae.TrainConfig(
            model=model,
            loss=betae.SoftmaxConfig(candidates=512),
            batch_size=256,
            steps=150,
            optimizer=betae.AdamConfig(learning_rate=4e-3),
            validation=betae.ValidationConfig(queries=50),
        )
        runs.append(betae.train(graph, Path(folder) / name, config))
        results = runs[-1].evaluate(queries, method="embedding", empty_queries=0).structures
        print(name, "MRR %:", {key: round(each.metrics.mrr, 1) for key, each in results.items()})
    betae.write_report([run.folder for run in runs], Path(folder) / "report")
    print(*sorted(path.name for path in (Path(folder) / "report").iterdir()))
