"""Ask in SPARQL, and get the facts and the predictions apart.

python examples/sparql.py
"""

import tempfile
from pathlib import Path

from betae import ComplexConfig, TrainConfig, parse_sparql, train, world

QUESTION = """
PREFIX : <>
SELECT ?capital WHERE {
  ?country :located_in :Europe ; :capital ?capital .
  FILTER NOT EXISTS { <FIFA%20World%20Cup> :hosted ?country }
}
"""

with tempfile.TemporaryDirectory() as folder:
    config = TrainConfig(model=ComplexConfig(dim=32), batch_size=128, steps=500, warmup=0)
    run = train(world(), config, Path(folder) / "run")

    print("The same as logic text:", parse_sparql(QUESTION))
    answerer = run.answerer(edges="train")
    known = answerer.answer(QUESTION, k=100, status="assumed")  # unless they have hosted it
    print(len(known), "follow from the facts:", ", ".join(answer.label for answer in known))
    print(answerer.answer(QUESTION, k=5, status="predicted").to_polars())
