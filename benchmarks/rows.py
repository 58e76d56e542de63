"""Answers by rules alone on a large synthetic graph: CPU milliseconds a question, memory.

python benchmarks/rows.py [--entities 5000000] [--edges 30000000] [--rules 100]

Heads, relations and tails follow power laws, as in scale.py. Such a graph has no rules to mine:
each relation gets some at random, of one to three steps, and weights are made up. What is measured
is what a question costs once a run is open, the first and the second time a relation is asked.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from ingest import power_law
from memory import peak_memory

from betae.answering.answerer import Answerer
from betae.answering.by_completion import ByCompletion
from betae.answering.completed import CompletedGraph
from betae.answering.edges import ROW, RULES, TAIL, Counts, EdgePredictors, EdgeWeights
from betae.answering.sparse import SparseProbabilities
from betae.graph.edges import Adjacency
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import Vocabulary
from betae.queries.ast import Entity
from betae.rules.rule_set import NO_STEP, RuleSet

RELATIONS = 300
QUESTIONS = 30


def make_graph(num_entities: int, num_edges: int) -> KnowledgeGraph:
    """Make a graph in memory."""
    rng = np.random.default_rng(0)
    triples = np.empty((num_edges, 3), dtype=np.int32)
    triples[:, 0] = power_law(rng, 0.6, num_entities, num_edges)
    triples[:, 1] = power_law(rng, 0.5, RELATIONS, num_edges)
    triples[:, 2] = power_law(rng, 0.6, num_entities, num_edges)
    adjacency = Adjacency.from_triples(triples, num_entities, RELATIONS)
    none = np.empty((0, 3), dtype=np.int32)
    return KnowledgeGraph(
        Vocabulary.of([f"e{i:08}" for i in range(num_entities)]),
        Vocabulary.of([f"r{i:03}" for i in range(RELATIONS)]),
        {"train": none, "valid": none, "test": none},
        {"train": adjacency},
    )


def make_rules(number: int) -> RuleSet:
    """Make so many rules of each directed relation."""
    rng = np.random.default_rng(1)
    bodies = rng.integers(2 * RELATIONS, size=(2 * RELATIONS * number, 3), dtype=np.int32)
    depths = rng.integers(1, 4, size=len(bodies))
    bodies[np.arange(3) >= depths[:, None]] = NO_STEP
    relations = np.repeat(np.arange(2 * RELATIONS, dtype=np.int32), number)
    rows = np.unique(np.column_stack([relations, bodies]), axis=0)
    cases = np.full(len(rows), 100)
    support = rng.integers(1, 50, len(rows))
    return RuleSet.of(rows[:, 0], rows[:, 1:], support, cases, 2 * RELATIONS)


def main() -> None:
    """Print what questions of one and of two steps cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entities", type=int, default=5_000_000)
    parser.add_argument("--edges", type=int, default=30_000_000)
    parser.add_argument("--rules", type=int, default=100)
    options = parser.parse_args()
    graph = make_graph(options.entities, options.edges)
    rules = make_rules(options.rules)
    names = (*RULES, *TAIL)
    weights = EdgeWeights(
        {},
        dict.fromkeys(TAIL, 0.1),
        {**dict.fromkeys(ROW, 0.0), "score": 1.0, "ln sum exp(score)": -0.3, "1": -3.0},
        rules=dict.fromkeys(RULES, 0.5),
        by_relation={"0": [0.1] * len(names)},
    )
    start = time.process_time()
    counts = Counts(graph.adjacency("train"))
    probabilities = SparseProbabilities(EdgePredictors((), weights, rules=rules), counts)
    answerer = Answerer(graph, ByCompletion(graph, CompletedGraph(graph, probabilities)), "train")
    print(f"open: {time.process_time() - start:.1f} CPU seconds", flush=True)
    answerer.answer(Entity(0)[0][0])  # compiles
    rng = np.random.default_rng(2)
    adjacency = graph.adjacency("train")
    edges = rng.integers(len(adjacency.tails), size=QUESTIONS)
    pairs = np.searchsorted(adjacency.tail_offsets, edges, side="right") - 1
    heads = np.searchsorted(adjacency.head_offsets, pairs, side="right") - 1
    for steps in (1, 2):
        for what in ("first", "again"):  # another entity, by relations that were asked before
            times, listed = [], []
            for head, pair in zip(heads.tolist(), pairs.tolist(), strict=True):
                relation = int(adjacency.relations[pair])
                query = Entity(head if what == "first" else (head + 1) % options.entities)
                for _ in range(steps):
                    query = query[relation]
                start = time.process_time()
                answerer.answer(query)
                times.append(1000 * (time.process_time() - start))
                rows = probabilities.sparse_rows(np.array([head]), np.array([relation]))
                listed.append(len(rows[0].tails))
            print(
                f"{steps} hop, {what}: {np.median(times):.0f} ms median, {np.max(times):.0f} most; "
                f"{np.median(listed):,.0f} tails listed; {peak_memory():.1f} GiB at most",
                flush=True,
            )


if __name__ == "__main__":
    main()
