"""Exact answers in batches, against a straightforward traversal with Python sets.

python benchmarks/exact_answers.py FB15K237 [--queries 2000] [--repeat 3]

FB15K237 is a folder in the BetaE release layout. Queries of the paper's 10 training structures are
sampled from it; both sides answer the same ones on the training graph, and their answers are
compared.
"""

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path

from betae import KnowledgeGraph
from betae.datasets.release import read_release
from betae.exact.answers import answers_of_structure
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.queries.structures import TRAINING
from betae.querysets.sample import sample_queries


class SetTraversal:
    """What one writes first: dictionaries of sets, one recursive function."""

    def __init__(self, graph: KnowledgeGraph):
        self.everything = set(range(graph.num_entities))
        self.tails: defaultdict[int, dict[int, set[int]]] = defaultdict(dict)
        for head, relation, tail in graph.written_ids["train"].tolist():
            self.tails[head].setdefault(2 * relation, set()).add(tail)
            self.tails[tail].setdefault(2 * relation + 1, set()).add(head)

    def answers(self, query: Query) -> set[int]:
        """Return the set of answers."""
        match query:
            case Entity(name):
                return {int(name)}
            case Project(operand, relation):
                found: set[int] = set()
                for head in self.answers(operand):
                    found |= self.tails[head].get(int(relation), set())
                return found
            case Not(operand):
                return self.everything - self.answers(operand)
            case And():
                # Complements last, as differences: nobody would build them out of all entities.
                kept = [part for part in query.operands if not isinstance(part, Not)]
                found = set.intersection(*map(self.answers, kept))
                for part in query.operands:
                    if isinstance(part, Not):
                        found = found - self.answers(part.operand)
                return found
            case Or():
                return set.union(*map(self.answers, query.operands))
        raise AssertionError(query)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FB15K237")
    parser.add_argument("--queries", type=int, default=2000, help="per structure")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    graph = KnowledgeGraph.from_triples(read_release(options.folder))
    sampled = sample_queries(graph, dict.fromkeys(TRAINING, options.queries))
    adjacency, traversal = graph.adjacency("train"), SetTraversal(graph)
    ratios = []
    for _ in range(options.repeat):
        totals = {"sets": 0.0, "batched": 0.0}
        for name, block in sampled.blocks.items():
            queries = [block.query(row) for row in range(len(block))]
            start = time.perf_counter()
            slow = [traversal.answers(query) for query in queries]
            middle = time.perf_counter()
            fast = answers_of_structure(adjacency, block.structure, block.symbols)
            end = time.perf_counter()
            assert all(set(row.tolist()) == found for row, found in zip(fast, slow, strict=True))
            totals["sets"] += middle - start
            totals["batched"] += end - middle
            print(
                f"{name:>4}: {len(block) / (middle - start):9,.0f}/s with sets, "
                f"{len(block) / (end - middle):11,.0f}/s batched"
            )
        ratios.append(totals["sets"] / totals["batched"])
        print(f" mix: {len(sampled) / totals['batched']:,.0f}/s batched, {ratios[-1]:.1f} times\n")
    print(f"median ratio for the mix: {statistics.median(ratios):.1f}")


if __name__ == "__main__":
    main()
