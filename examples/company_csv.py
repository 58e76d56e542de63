"""What customers will probably buy, and why, from a company's own CSV files.

python examples/company_csv.py

It writes company_csv.png: what the customers in an industry have bought, and what they may buy.
"""

import tempfile
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

import betae

FILES = Path(__file__).parent / "company"
# bought.csv has a customer and a product in each line: the relation is the name of the file.
edges = [FILES / f"{name}.csv" for name in ("bought", "in_industry", "in_category")]
graph = betae.read(*edges, header=True, nodes=FILES / "customers.csv", valid=0.1)

with tempfile.TemporaryDirectory() as folder:
    run = betae.mine(graph, Path(folder) / "rules")
    question = '?X . bought(?X, "Drill bits") & employees(?X) >= 25 & since(?X) < 2022-01-01'
    print(run.answer(question, k=5, status="predicted"))
    missing = run.complete(relation="bought", above=0.02).to_polars()
for row in missing.sort("probability", descending=True).head(3).iter_rows(named=True):
    print("{probability:.0%} {head_label}: {tail_label}. {reason}".format(**row))

sold = graph.to_polars().filter(relation="bought").select("head", "tail", probability=1.0)
cells = pl.concat([sold, missing.select("head", "tail", "probability")])
customers = [row["X"] for row in graph.select("?X . in_industry(?X, Carpentry)")]
products = sorted(sold["tail"].unique())
figure = Figure(figsize=(9, 5), layout="constrained")
axes = figure.subplots()
for head, tail, probability in cells.filter(pl.col("head").is_in(customers)).iter_rows():
    color = "tab:blue" if probability == 1 else "tab:orange"
    size = 90 * min(1, 2 * probability)
    axes.scatter(products.index(tail), customers.index(head), s=size, color=color)
axes.set_xticks(range(len(products)), products, rotation=45, ha="right")
axes.set_yticks(range(len(customers)), [graph.entity_label(graph.entity_id(c)) for c in customers])
axes.set_title("bought (blue), and predicted (orange: the larger, the more probable)", loc="left")
figure.savefig("company_csv.png")
