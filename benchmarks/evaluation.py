"""Evaluation of the official NELL test set, against scoring one query at a time.

python benchmarks/evaluation.py DATA [--sample 8]

DATA holds NELL-betae in the BetaE release layout. BetaE, dim 400, as it is before training: the
work is the same. One query at a time, as the authors' code has it: Beta objects of
torch.distributions for the query and all entities, argsort of the scores, and the filtered ranks
of the hard answers read off the order.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from memory import peak_memory
from torch.distributions import Beta, kl_divergence

from betae import BetaConfig, KnowledgeGraph, QuerySet
from betae.datasets.release import read_release, read_release_queries
from betae.evaluation.evaluate import evaluate
from betae.evaluation.ranks import EmbeddingRanker
from betae.models import BetaE
from betae.models.execute import embed_queries


def ranks_one_at_a_time(model: BetaE, queries: QuerySet, sample: int) -> float:
    """Return queries per second."""
    everything = list(queries)
    chosen = np.random.default_rng(0).choice(len(everything), sample, replace=False)
    start = time.perf_counter()
    with torch.no_grad():
        entities = Beta(*model.embed_entities(torch.arange(model.num_entities)).exp().chunk(2, -1))
        for number in chosen:
            query, easy, hard = everything[number]
            sets = embed_queries(model, [query]).sets.exp()
            distances = [
                kl_divergence(entities, Beta(*row.chunk(2, -1))).sum(dim=-1) for row in sets
            ]
            order = torch.stack(distances).amin(dim=0).argsort()
            place = torch.empty_like(order)
            place[order] = torch.arange(len(order))
            answers = torch.from_numpy(np.concatenate([easy, hard])).long()
            for entity in hard:
                int(place[entity]) - int((place[answers] < place[entity]).sum())
    return sample / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--sample", type=int, default=8)
    options = parser.parse_args()
    folder = options.data / "NELL-betae"
    graph = KnowledgeGraph.from_triples(read_release(folder))
    queries = read_release_queries(graph, folder)
    torch.manual_seed(0)
    model = BetaE(graph.num_entities, graph.num_relations, BetaConfig())
    result = evaluate(EmbeddingRanker(model), graph, queries)
    ours = len(queries) / result.seconds
    print(
        f"betae: {len(queries):,} queries, {graph.num_entities:,} entities in "
        f"{result.seconds:.0f} s ({ours:,.0f} queries/s), peak {peak_memory():.2f} GiB"
    )
    theirs = ranks_one_at_a_time(model, queries, options.sample)
    print(f"one at a time: {theirs:.2f} queries/s; betae is {ours / theirs:,.0f} times as fast")


if __name__ == "__main__":
    main()
