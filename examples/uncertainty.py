"""What a model knows of its own uncertainty: how many answers, and whether there are any.

python examples/uncertainty.py
"""

import tempfile
from pathlib import Path

from betae import BetaConfig, TrainConfig, sample_queries, train, world

QUESTIONS = {
    "countries of Europe": "?X . located_in(?X, Europe)",
    "neighbours of Austria": "?X . borders(Austria, ?X)",
    "neighbours of Austria and of Peru": "?X . borders(Austria, ?X) & borders(Peru, ?X)",
}

with tempfile.TemporaryDirectory() as folder:
    graph = world()
    config = TrainConfig(
        model=BetaConfig(dim=32, hidden=64),
        batch_size=256,
        candidates=512,
        steps=200,
        empty=0.1,  # a tenth more queries, without answers
        validation_queries=50,
    )
    run = train(graph, config, Path(folder) / "run")

    answerer = run.answerer(method="embedding")
    for what, question in QUESTIONS.items():
        answers = answerer.answer(question)
        print(f"{what}: {answers.summary()}; entropy {answers.entropy:.1f}")

    queries = sample_queries(graph, {"1p": 100, "2i": 100, "2p": 100}, "test")
    evaluation = run.evaluate(queries, empty_queries=100)
    for name, result in evaluation.structures.items():
        spearman, area = result.correlation.spearman, evaluation.empty[name].roc_auc
        print(f"{name}: Spearman {spearman:.2f} of entropy with the number of answers;", end=" ")
        print(f"ROC-AUC {area:.2f} of telling queries without any")
