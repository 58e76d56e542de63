"""Draw a training set of FB15k-237's size, and test sets beside the paper's statistics.

python benchmarks/sampling.py DATA

DATA holds FB15k-237-betae and NELL-betae in the BetaE release layout. The paper's table "average
number of answers of test queries" counts the hard answers of the released sets; so the test sets
here are sampled by the release's rules, and by the paper's for comparison. The limit is the paper's
100, but for NELL995, whose released queries have at most 80 hard answers.
"""

import argparse
import time
from pathlib import Path

from memory import peak_memory

from betae import KnowledgeGraph
from betae.datasets.release import read_release
from betae.queries.structures import EPFO, NEGATION
from betae.querysets.sample import sample_queries

PAPER = {
    "FB15k-237": [1.7, 17.3, 24.3, 6.9, 4.5, 17.7, 10.4, 19.6, 24.3, 16.3, 13.4, 19.5, 21.7, 18.2],
    "NELL": [1.6, 14.9, 17.5, 5.7, 6.0, 17.4, 11.9, 14.9, 19.0, 12.9, 11.1, 12.9, 16.0, 13.0],
}
LIMITS = {"FB15k-237": 100, "NELL": 80}
COUNTS = {"FB15k-237": 5000, "NELL": 4000}  # of each structure, as released
STRUCTURES = (*EPFO, *NEGATION)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    data = parser.parse_args().data
    graphs = {
        name: KnowledgeGraph.from_triples(read_release(data / f"{name}-betae")) for name in PAPER
    }
    sample_queries(graphs["NELL"], {"2in": 10})  # compile, or load what was compiled before
    counts = dict.fromkeys(("1p", "2p", "3p", "2i", "3i"), 149_689)
    counts |= dict.fromkeys(NEGATION, 14_968)
    start = time.perf_counter()
    sampled = sample_queries(graphs["FB15k-237"], counts)
    seconds = time.perf_counter() - start
    num_answers = sum(len(block.easy.values) for block in sampled.blocks.values())
    print(
        f"FB15k-237 training set: {len(sampled):,} queries with {num_answers:,} answers in "
        f"{seconds:.1f} s, peak {peak_memory():.2f} GiB\n"
    )
    for name, graph in graphs.items():
        counts, limit = dict.fromkeys(STRUCTURES, COUNTS[name]), LIMITS[name]
        start = time.perf_counter()
        released = sample_queries(graph, counts, "test", max_answers=limit, rules="release")
        seconds = time.perf_counter() - start
        strict = sample_queries(graph, counts, "test")
        print(f"{name}: {len(released):,} test queries by the release's rules in {seconds:.1f} s")
        print("Mean number of hard answers (easy and hard ones) by the")
        print("      paper    release's rules       paper's rules")
        for structure, paper in zip(STRUCTURES, PAPER[name], strict=True):
            cells = []
            for queries in (released, strict):
                block = queries.blocks[structure]
                hard, easy = block.hard.lengths.mean(), block.easy.lengths.mean()
                cells.append(f"{hard:6.1f} ({hard + easy:6.1f})")
            print(f"{structure:>4}  {paper:5.1f}   {cells[0]:>16}    {cells[1]:>16}")
        print()


if __name__ == "__main__":
    main()
