"""Approximate search among a million entities sampled around trained ones, against exact search.

    python benchmarks/index.py RUN [--entities 1000000] [--kind ivf] [--spread 0.5]

Each synthetic entity is a trained one, moved in every dimension by `spread` standard deviations of
the trained ones there. Queries are of all structures, each searched by itself; the effort of the
index is tuned on other queries than it is measured on.
"""

from __future__ import annotations

import argparse
import time

import torch
from memory import peak_memory
from torch import nn

from betae import Run
from betae.models.base import QueryModel
from betae.search import build_index, measure, typical_queries

AT_ONCE = 50_000


def sample_entities(model: QueryModel, number: int, spread: float) -> nn.Parameter:
    generator = torch.Generator().manual_seed(0)
    trained = model.entities.detach()
    deviation = spread * trained.std(dim=0)
    rows = torch.empty(number, trained.shape[1])
    for part in rows.split(AT_ONCE):
        chosen = torch.randint(len(trained), (len(part),), generator=generator)
        part.copy_(trained[chosen] + deviation * torch.randn(part.shape, generator=generator))
    return nn.Parameter(rows, requires_grad=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--kind", help="ivf, hnsw or lsh")
    parser.add_argument("--spread", type=float, default=0.5)
    arguments = parser.parse_args()
    run = Run.open(arguments.run)
    model = run.model()
    to_tune, to_measure = (typical_queries(model, run.graph, seed=seed) for seed in (0, 1))
    model.entities = sample_entities(model, arguments.entities, arguments.spread)
    table = model.table()
    start = time.perf_counter()
    index = build_index(model, to_tune, kind=arguments.kind)
    print(f"{index.kind} of {len(table):,} entities built in {time.perf_counter() - start:.0f} s")
    exact, found = measure(model, table, to_measure, [index])
    print(f"exact  {exact.milliseconds:8.1f} ms a query")
    print(f"{index.kind:5}  {found.milliseconds:8.1f} ms a query, recall@10 {found.recall:.3f}")
    print(f"{exact.milliseconds / found.milliseconds:.1f} times exact; {peak_memory():.1f} GiB")


if __name__ == "__main__":
    main()
