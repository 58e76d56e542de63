"""Queries trained per second, against the reference's formulation of a training step.

python benchmarks/training.py DATA [--steps 100] [--repeats 3]

DATA holds FB15k-237-betae and NELL-betae in the BetaE release layout. BetaE, dim 400, the paper's
10 training structures, batch 512.

The reference's formulation, as the authors' code has it: its projection (an MLP of 1600 x 2 on the
concatenated relation, clamped), structure by structure, a look-up for each anchor, 128 private
negatives for each query, Beta objects of torch.distributions for every (query, entity) pair, dense
Adam. Ours: `betae`'s own step, with 8 and 16 times as many shared candidates. Peak memory is of a
process that does nothing but train.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from memory import peak_memory
from torch.distributions import Beta, kl_divergence

from betae import KnowledgeGraph
from betae.datasets.release import read_release
from betae.models import BetaConfig, BetaE
from betae.models.base import Attention
from betae.queries.ast import Entity, Not, Project, Query
from betae.queries.structures import fill
from betae.run import train
from betae.training.batches import Batch, make_batch, open_streams
from betae.training.config import SoftmaxConfig, TrainConfig, ValidationConfig

NEGATIVES = 128


def embed(model: BetaE, query: Query, symbols: torch.Tensor) -> torch.Tensor:
    """Embed queries of one structure, whose names are columns of the symbols."""
    match query:
        case Entity(column):
            return model.embed_entities(symbols[:, int(column)])
        case Project(operand, column):
            return model.project(embed(model, operand, symbols), symbols[:, int(column)])
        case Not(operand):
            return model.negate(embed(model, operand, symbols))
    branches = [embed(model, operand, symbols) for operand in query.operands]
    return model.intersect(torch.stack(branches, dim=1))


def reference_step(model: BetaE, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """One step as the authors' code has it: structure by structure, pair by pair."""
    loss = torch.zeros(())
    for group in batch.groups:
        columns = fill(group.structure, range(group.symbols.shape[1]))
        queries = embed(model, columns, group.symbols).exp().unsqueeze(1)
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
    shape = BetaConfig(hidden=1600, projection="concatenated", bound="clamp")
    model = BetaE(graph.num_entities, graph.num_relations, shape)
    model.attention = Attention(2 * shape.dim, 2 * shape.dim, shape.dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    streams = open_streams(graph, None, config)
    batches = [make_batch(step, streams, config, graph) for step in range(steps)]
    reference_step(model, optimizer, batches[0])
    start = time.perf_counter()
    for batch in batches[1:]:
        reference_step(model, optimizer, batch)
    return sum(map(len, batches[1:])) / (time.perf_counter() - start)


def measure_ours(graph: KnowledgeGraph, steps: int, candidates: int) -> tuple[float, float]:
    """Return queries per second of `train`, and the share of time it waits for batches."""
    lines = []
    config = TrainConfig(
        steps=steps,
        loss=SoftmaxConfig(candidates, hard_negatives=False),  # only the candidates asked for
        validation=ValidationConfig(queries=0),
        checkpoint_every=10**9,
    )
    with tempfile.TemporaryDirectory() as folder:
        train(graph, Path(folder) / "run", config, report=lines.append)
    line = next(line for line in reversed(lines) if "loss" in line)
    return line["queries_per_second"], line["share_waiting"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        graph = KnowledgeGraph.from_triples(read_release(options.data / options.memory_of))
        speed, waiting = measure_ours(graph, options.steps, 2048)
        print(
            f"{options.memory_of}: peak {peak_memory():.2f} GiB, {speed:,.0f} queries/s, "
            f"waiting {waiting:.1%}"
        )
        return
    graph = KnowledgeGraph.from_triples(read_release(options.data / "FB15k-237-betae"))
    for candidates in (1024, 2048):
        ratios = []
        for _ in range(options.repeats):
            theirs = measure_reference(graph, 3)
            ours, waiting = measure_ours(graph, options.steps, candidates)
            ratios.append(ours / theirs)
            print(
                f"{candidates:,} candidates: {ours:,.0f} queries/s, waiting {waiting:.1%}; "
                f"reference's formulation, {NEGATIVES} negatives: {theirs:.1f} queries/s"
            )
        print(
            f"betae is {median(ratios):.0f} times as fast (median), with "
            f"{candidates / NEGATIVES:.0f} times the negatives"
        )
    for folder in ("FB15k-237-betae", "NELL-betae"):
        command = [sys.executable, __file__, str(options.data), "--memory-of", folder]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


if __name__ == "__main__":
    main()
