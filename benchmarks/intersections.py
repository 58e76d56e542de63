"""What does a model make of an intersection? MRR by each condition alone, and by all together.

    python benchmarks/intersections.py RUN QUERIES [--split valid] [--count 300]

Most hard answers of 2i, 3i and pi lack one edge: one condition is missing, the others are known.
Columns, MRR in percent, the mean over the answers of a query and then over queries:

    known    by a condition that holds on training edges, among entities that do not meet it:
             does the model remember them?
    missing  by a condition that does not, among the same: does it generalise?
    mean     by the mean of the conditions' distances, filtered as usual
    best     by one condition alone, for each query the one with the higher MRR (an oracle)
    model    by the model's intersection
    recalled by the mean distance, if entities that meet a condition on training edges had a
             distance of 0 from it: what perfect memory would make of these distances
    exact    by the mean distance from the missing conditions, among the entities that meet the
             known ones on training edges: the same if it were known which conditions are missing
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from betae import Run
from betae.datasets.release import open_queries
from betae.evaluation.ranks import EmbeddingRanker
from betae.exact.answers import answers_of_structure
from betae.graph.edges import Ids, Ragged
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.structures import num_symbols
from betae.querysets.query_set import SET_EDGES, QueryBlock

STRUCTURES = ("2i", "3i", "pi")
COLUMNS = ("known", "missing", "mean", "best", "model", "recalled", "exact")
BATCH = 256  # queries scored together
Floats = NDArray[np.float32]


def conditions(structure: Query) -> list[tuple[Query, slice]]:
    """Return the conditions of an intersection, and the columns of their symbols."""
    ends = np.cumsum([0, *(num_symbols(each) for each in structure.operands)])
    spans = [slice(start, end) for start, end in pairwise(ends.tolist())]
    return [*zip(structure.operands, spans, strict=True)]


def reciprocal_rank(distances: Floats, entity: int, among: NDArray[np.bool_]) -> float:
    """Return 1 / rank of an entity among others; a tie counts half."""
    others, own = distances[among], distances[entity]
    ties = np.count_nonzero(others == own) - bool(among[entity])
    return 1 / (1 + np.count_nonzero(others < own) + ties / 2)


def compare(
    distances: Floats,
    of_conditions: Floats,
    known: list[Ids],
    later: list[Ids],
    answers: tuple[Ids, Ids],
) -> dict[str, float]:
    """Return the mean reciprocal ranks of one query's hard answers, by column.

    `distances` are the model's, (num_entities,), `of_conditions` those of each condition alone;
    `known` and `later` hold the entities that meet each condition on training edges and on those
    that the answers are judged by; `answers` are easy and hard.
    """
    is_other = np.ones(len(distances), dtype=np.bool_)
    is_other[np.concatenate(answers)] = False
    is_met = np.zeros(of_conditions.shape, dtype=np.bool_)
    is_outside = np.ones(of_conditions.shape, dtype=np.bool_)
    for i, (now, then) in enumerate(zip(known, later, strict=True)):
        is_met[i, now] = True
        is_outside[i, then] = False
    mean, recalled = of_conditions.mean(axis=0), np.where(is_met, 0, of_conditions).mean(axis=0)
    found: dict[str, list[float]] = {name: [] for name in COLUMNS}
    alone: list[list[float]] = []
    for answer in answers[1]:
        holds = is_met[:, answer]
        for i, is_known in enumerate(holds):
            found["known" if is_known else "missing"].append(
                reciprocal_rank(of_conditions[i], answer, is_outside[i])
            )
        found["mean"].append(reciprocal_rank(mean, answer, is_other))
        found["recalled"].append(reciprocal_rank(recalled, answer, is_other))
        found["model"].append(reciprocal_rank(distances, answer, is_other))
        alone.append([reciprocal_rank(each, answer, is_other) for each in of_conditions])
        if not holds.all():
            by_missing = of_conditions[~holds].mean(axis=0)
            among = is_other & is_met[holds].all(axis=0)
            found["exact"].append(reciprocal_rank(by_missing, answer, among))
    means = {name: float(np.mean(values)) for name, values in found.items() if values}
    return {**means, "best": float(np.mean(alone, axis=0).max())}


def measure(
    ranker: EmbeddingRanker, graph: KnowledgeGraph, block: QueryBlock, later: str
) -> Iterator[dict[str, float]]:
    """Yield the reciprocal ranks of every query of a block."""
    parts = conditions(block.structure)
    for start in range(0, len(block), BATCH):
        some = block.take(np.arange(start, min(start + BATCH, len(block))))
        none = Ragged.from_rows([[] for _ in range(len(some))])
        blocks = [QueryBlock(each, some.symbols[:, span], none, none) for each, span in parts]
        whole, *of_parts = (
            np.concatenate([distances for _, distances in ranker.score(each)])
            for each in (some, *blocks)
        )
        met = [
            [answers_of_structure(graph.adjacency(edges), b.structure, b.symbols) for b in blocks]
            for edges in ("train", later)
        ]
        for row in range(len(some)):
            yield compare(
                whole[row],
                np.stack([distances[row] for distances in of_parts]),
                *([of_part[row] for of_part in sets] for sets in met),
                (some.easy[row], some.hard[row]),
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("queries")
    parser.add_argument("--graph", help="if it has moved since training")
    parser.add_argument("--split", choices=["valid", "test"], default="valid")
    parser.add_argument("--count", type=int, default=300, help="queries of each structure")
    arguments = parser.parse_args()
    run = Run.open(arguments.run, arguments.graph)
    queries = open_queries(run.graph, arguments.queries, arguments.split).rankable(run.graph)
    ranker = EmbeddingRanker(run.model())
    print("structure  queries  " + "  ".join(f"{name:>8}" for name in COLUMNS))
    for name in STRUCTURES:
        if name not in queries.blocks:
            continue
        block = queries.blocks[name]
        chosen = np.random.default_rng(0).permutation(len(block))[: arguments.count]
        _, later = SET_EDGES[queries.split]
        rows = [*measure(ranker, run.graph, block.take(np.sort(chosen)), later)]
        cells = [[row[column] for row in rows if column in row] for column in COLUMNS]
        text = "  ".join(f"{100 * np.mean(cell):8.1f}" if cell else 8 * " " for cell in cells)
        print(f"{name:<9}  {len(rows):7,}  {text}", flush=True)


if __name__ == "__main__":
    main()
