"""Ask in SPARQL, and get the facts and the predictions apart.

python examples/sparql.py
"""

import tempfile
from pathlib import Path

from betae import BetaConfig, TrainConfig, parse_sparql, train, world

QUESTION = """
PREFIX : <>
SELECT ?capital WHERE {
  ?country :located_in :Europe ; :capital ?capital .
  FILTER NOT EXISTS { <FIFA%20World%20Cup> :hosted ?country }
}
"""

with tempfile.TemporaryDirectory() as folder:
    config = TrainConfig(
        model=BetaConfig(dim=64, hidden=128),
        batch_size=256,
        candidates=512,
        normalisation=0.02,
        learning_rate=4e-3,
        warmup=50,
        steps=250,
        validation_queries=50,
    )
    run = train(world(), config, Path(folder) / "run")

    print("The same as logic text:", parse_sparql(QUESTION))
    answerer = run.answerer()
    known = answerer.answer(QUESTION, k=100, status="known")
    print(len(known), "follow from the facts:", ", ".join(answer.label for answer in known))
    print(answerer.answer(QUESTION, k=5, status="predicted").to_polars())
