"""Queries trained per second, against the reference's formulation of a training step.

python benchmarks/training.py DATA [--steps 100]

DATA holds FB15k-237-betae and NELL-betae in the BetaE release layout. BetaE, dim 400, the paper's
10 training structures, batch 512. The reference's formulation: structure by structure, 128 private
negatives for each query, Beta objects of torch.distributions for every (query, entity) pair, dense
Adam. Ours: `betae`'s own step, with 2,048 shared candidates. Peak memory is of a process that does
nothing but train.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from memory import peak_memory
from torch.distributions import Beta, kl_divergence

from betae import KnowledgeGraph
from betae.datasets.release import read_release
from betae.models import BetaE
from betae.models.execute import Group, embed_queries
from betae.training.config import TrainConfig
from betae.training.data import Batch, make_batch, open_streams
from betae.training.loop import train

NEGATIVES = 128


def reference_step(model: BetaE, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """One step as the authors' code has it: structure by structure, pair by pair."""
    loss = torch.zeros(())
    for group in batch.groups:
        alone = Group(group.structure, group.symbols, torch.arange(len(group.positions)))
        queries = embed_queries(model, [alone]).sets.exp().unsqueeze(1)
        answers = batch.candidates[batch.positive[group.positions]].unsqueeze(1)
        negatives = torch.randint(model.num_entities, (len(queries), NEGATIVES))
        ids = torch.cat([answers, negatives], dim=1)
        entities = model.embed_entities(ids.reshape(-1)).exp().view(*ids.shape, -1)
        distances = kl_divergence(
            Beta(*entities.chunk(2, dim=-1)), Beta(*queries.chunk(2, dim=-1))
        ).sum(dim=-1)
        scores = torch.nn.functional.logsigmoid(60 - distances[:, 0])
        others = torch.nn.functional.logsigmoid(distances[:, 1:] - 60).mean(dim=1)
        loss = loss - (scores + others).sum() / 2
    optimizer.zero_grad()
    (loss / len(batch)).backward()
    optimizer.step()


def measure_reference(graph: KnowledgeGraph, steps: int) -> float:
    """Return queries per second of the reference's formulation."""
    config = TrainConfig()
    model = BetaE(graph.num_entities, graph.num_relations)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    streams = open_streams(graph, None, config)
    batches = [make_batch(step, streams, config, graph.num_entities) for step in range(steps)]
    reference_step(model, optimizer, batches[0])
    start = time.perf_counter()
    for batch in batches[1:]:
        reference_step(model, optimizer, batch)
    return sum(map(len, batches[1:])) / (time.perf_counter() - start)


def measure_ours(graph: KnowledgeGraph, steps: int) -> tuple[float, float]:
    """Return queries per second of `train`, and the share of time it waits for batches."""
    lines = []
    config = TrainConfig(steps=steps, validation_queries=0, checkpoint_every=10**9)
    with tempfile.TemporaryDirectory() as folder:
        train(graph, config, Path(folder) / "run", report=lines.append)
    line = next(line for line in reversed(lines) if "loss" in line)
    return line["queries_per_second"], line["share_waiting"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        graph = KnowledgeGraph.from_triples(read_release(options.data / options.memory_of))
        speed, waiting = measure_ours(graph, options.steps)
        print(
            f"{options.memory_of}: peak {peak_memory():.2f} GiB, {speed:,.0f} queries/s, "
            f"waiting {waiting:.1%}"
        )
        return
    graph = KnowledgeGraph.from_triples(read_release(options.data / "FB15k-237-betae"))
    theirs = measure_reference(graph, 3)
    ours, waiting = measure_ours(graph, options.steps)
    print(f"reference's formulation, {NEGATIVES} negatives: {theirs:.1f} queries/s")
    print(f"betae, 2,048 candidates and more: {ours:,.0f} queries/s, waiting {waiting:.1%}")
    print(f"{ours / theirs:.0f} times as fast, with {2048 / NEGATIVES:.0f} times the negatives")
    for folder in ("FB15k-237-betae", "NELL-betae"):
        command = [sys.executable, __file__, str(options.data), "--memory-of", folder]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


if __name__ == "__main__":
    main()
