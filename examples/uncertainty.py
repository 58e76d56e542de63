"""What a model knows of its own uncertainty: how many answers, and whether there are any.

python examples/uncertainty.py
"""

import tempfile
from pathlib import Path

import betae

QUESTIONS = {
    "countries of Europe": "?X . located_in(?X, Europe)",
    "neighbours of Austria": "?X . borders(Austria, ?X)",
    "neighbours of Austria and of Peru": "?X . borders(Austria, ?X) & borders(Peru, ?X)",
}

with tempfile.TemporaryDirectory() as folder:
    graph = betae.world()
    config = betae.TrainConfig(
        model=betae.BetaConfig(dim=32, hidden=64),
        loss=betae.SoftmaxConfig(candidates=512, unanswerable=0.1),  # a tenth more queries
        batch_size=256,
        steps=200,
        validation=betae.ValidationConfig(queries=50),
    )
    run = betae.train(graph, Path(folder) / "run", config)

    for what, question in QUESTIONS.items():
        answers = run.answer(question, method="embedding")
        print(f"{what}: {answers.summary()}; entropy {answers.entropy:.1f}")

    queries = graph.sample("1p", "2i", "2p", split="test", count=100)
    evaluation = run.evaluate(queries, method="embedding", empty_queries=100)
    for name, result in evaluation.structures.items():
        spearman, area = result.correlation.spearman, evaluation.empty[name].roc_auc
        print(f"{name}: Spearman {spearman:.2f} of entropy with the number of answers;", end=" ")
        print(f"ROC-AUC {area:.2f} of telling queries without any")
