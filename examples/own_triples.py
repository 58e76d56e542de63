"""From a file of triples to answers, known and predicted, with the edges that are missing.

python examples/own_triples.py
"""

import tempfile
from pathlib import Path

import betae

CITIES = {"Vienna": "Austria", "Graz": "Austria", "Lyon": "France", "Paris": "France"}
FACTS = [f"{city}\tin\t{country}" for city, country in CITIES.items()]
for number in range(200):
    city = list(CITIES)[number % 4]
    FACTS.append(f"person{number}\tlives_in\t{city}")
    FACTS.append(f"person{number}\tspeaks\t{'German' if CITIES[city] == 'Austria' else 'French'}")

with tempfile.TemporaryDirectory() as folder:
    facts = Path(folder) / "facts.tsv"
    facts.write_text("\n".join(FACTS))

    # A tenth of the edges are held out, to fit probabilities on.
    graph = betae.read(facts, valid=0.1)
    config = betae.TrainConfig(
        model=betae.BetaConfig(dim=32, hidden=64),
        structures={"1p": 1, "2p": 1, "3p": 1, "2i": 1},  # so small a graph has no others
        batch_size=128,
        steps=200,
    )
    run = betae.train(graph, Path(folder) / "run", config)

    languages = "?X . exists ?P, ?C : in(?C, Austria) & lives_in(?P, ?C) & speaks(?P, ?X)"
    print(run.answer(languages, k=3))

    head, relation, tail = graph.to_polars("valid").row(-1)  # one that was held out
    question = f"?X . {relation}({head}, ?X)"
    print("The file has, but the model did not see:", tail)
    print(run.answer(question, k=3, edges="train"))
