"""Recompute the answers of every official query and compare them with the stored ones.

python scripts/verify_official_answers.py DATA

DATA holds folders in the BetaE release layout (NELL-betae with its test queries and answers) and
folders `*-q2b` with the Query2Box queries and hard answers that belong to them.
"""

import argparse
import sys
from pathlib import Path

from betae import KnowledgeGraph
from betae.datasets.release import read_release, read_release_queries
from betae.exact.answers import answers_of_structure
from betae.querysets.query_set import SET_EDGES

SETS = [  # edges, queries, split
    ("NELL-betae", "NELL-betae", "test"),
    *(
        (f"{name}-betae", f"{name}-q2b", split)
        for name in ("FB15k-237", "NELL", "FB15k")
        for split in ("valid", "test")
    ),
]


def count_differences(data: Path, edges: str, queries: str, split: str) -> tuple[int, int]:
    """Return how many queries were compared, and in how many the answers differ."""
    graph = KnowledgeGraph.from_triples(read_release(data / edges))
    stored = read_release_queries(graph, data / queries, split)
    smaller, larger = (graph.adjacency(chosen) for chosen in SET_EDGES[split])
    compared = different = 0
    for block in stored.blocks.values():
        easy = answers_of_structure(smaller, block.structure, block.symbols)
        full = answers_of_structure(larger, block.structure, block.symbols)
        for row in range(len(block)):
            hard = set(full[row].tolist()) - set(easy[row].tolist())
            same = set(easy[row].tolist()) == set(block.easy[row].tolist())
            compared += 1
            different += not (same and hard == set(block.hard[row].tolist()))
    return compared, different


def main() -> None:
    """Compare all sets; exit with 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    data = parser.parse_args().data
    total_different = 0
    for edges, queries, split in SETS:
        compared, different = count_differences(data, edges, queries, split)
        total_different += different
        print(f"{queries:>14} {split:5} {compared:7,} queries, {different:,} differ", flush=True)
    sys.exit(total_different > 0)


if __name__ == "__main__":
    main()
