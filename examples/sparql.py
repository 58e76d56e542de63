"""Ask in SPARQL, and get the facts and the predictions apart.

python examples/sparql.py
"""

import tempfile
from pathlib import Path

import betae

QUESTION = """
PREFIX : <>
SELECT ?capital WHERE {
  ?country :located_in :Europe ; :capital ?capital .
  FILTER NOT EXISTS { <FIFA%20World%20Cup> :hosted ?country }
}
"""

with tempfile.TemporaryDirectory() as folder:
    config = betae.TrainConfig(model=betae.ComplexConfig(dim=32), batch_size=128, steps=500)
    run = betae.train(betae.world(), Path(folder) / "run", config)

    known = run.answer(QUESTION, k=100, edges="train", status="assumed")  # unless it has hosted
    print("The same as logic text:", known.query)
    print(len(known), "follow from the facts:", ", ".join(answer.label for answer in known))
    print(run.answer(QUESTION, k=5, edges="train", status="predicted").to_polars())
