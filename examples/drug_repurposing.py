"""Drugs that might treat a disease, with reasons, from Hetionet's files for Neo4j.

python examples/drug_repurposing.py hetionet/neo4j "epilepsy syndrome"

It writes drug_repurposing.png, and keeps the rules in drug_rules: mining them takes half a minute.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import betae

files, disease = sys.argv[1], sys.argv[2]
rules = Path("drug_rules")
run = betae.Run.open(rules) if rules.exists() else betae.mine(betae.read(files), rules)

question = f'?X . Compound_Treats_Disease(?X, "{disease}")'
known = run.answer(question, k=1000, status="known")
drugs = run.answer(question, k=10, status="predicted", explain=True)
print(drugs)
for drug in drugs:
    print("-", *(reason.text for reason in drug.why.evidence.reasons[:1]))

figure = Figure(figsize=(8, 4), layout="constrained")
axes = figure.subplots()
bars = axes.barh([drug.label for drug in drugs], [100 * drug.probability for drug in drugs])
axes.bar_label(bars, fmt="%.1f %%", padding=3)
axes.invert_yaxis()
axes.set_xlabel(f"probability that it treats {disease}, %; {len(known)} drugs are known to")
axes.spines[["top", "right"]].set_visible(False)
figure.savefig("drug_repurposing.png")
