"""How well rules predict held-out edges, beside ranking by frequency.

    python benchmarks/rules.py GRAPH [--known train+valid] [--relations NAME ...] [--run RUN]
    python benchmarks/rules.py GRAPH --inductive 500

Mines rules from a graph, fits probabilities, and ranks the tail of every test edge, and its head,
among all entities that do not complete a known edge (filtered MRR). With `--run`, a run of that
graph is asked instead, such as one with models. Prints MRR for each relation and direction, the
number of rules, CPU seconds, and the calibration error of the most probable missing edges.

`--inductive N` hides N random entities while rules are mined and probabilities are fitted, adds
their training edges afterwards, and ranks for their test edges; then the same edges with rules that
were mined with these entities.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from calibration import calibration_error, judge_edges
from numpy.typing import NDArray

from betae import KnowledgeGraph, Run, mine
from betae.answering.by_completion import ByCompletion
from betae.evaluation.ranks import rank_block, rank_by_frequency
from betae.graph.edges import Edges, Ragged
from betae.graph.triples import Triples
from betae.queries.structures import STRUCTURES
from betae.querysets.query_set import QueryBlock

Ids = NDArray[np.int64]


def questions(graph: KnowledgeGraph, edges: Ids) -> QueryBlock:
    """Return a question for each (head, relation) of directed edges, whose tails are asked."""
    everything = graph.adjacency("all")
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    pairs, starts = np.unique(edges[:, :2], axis=0, return_index=True)
    asked = np.split(edges[:, 2], starts[1:])
    others = [
        np.setdiff1d(everything.neighbours(*pair), tails)
        for pair, tails in zip(pairs.tolist(), asked, strict=True)
    ]
    symbols = pairs.astype(np.int32)
    return QueryBlock(STRUCTURES["1p"], symbols, Ragged.from_rows(others), Ragged.from_rows(asked))


def directed(edges: NDArray[np.int32]) -> Ids:
    """Return edges in both directions, as (head, directed relation, tail)."""
    heads, relations, tails = edges.astype(np.int64).T
    forth, back = (heads, 2 * relations, tails), (tails, 2 * relations + 1, heads)
    return np.concatenate([np.column_stack(forth), np.column_stack(back)])


def ranks_of(run: Run, block: QueryBlock, known: Edges) -> NDArray[np.float64]:
    """Return the rank of each tail that is asked for."""
    completed = run.completed_graph(known, cache_bytes=2**29)
    return rank_block(ByCompletion(run.graph, completed), block)


def mrr(ranks: NDArray[np.float64]) -> float:
    """Return the mean reciprocal rank, in percent."""
    return 100 * float((1 / ranks).mean()) if len(ranks) else float("nan")


def mine_and_fit(graph: KnowledgeGraph, folder: Path, seed: int) -> Run:
    """Mine the rules of a graph and fit probabilities; print what it took."""
    start, cpu = time.perf_counter(), time.process_time()
    run = mine(graph, folder, seed=seed)
    mined, mined_cpu = time.perf_counter(), time.process_time()
    run.completed_graph("train")
    fitted, fitted_cpu = time.perf_counter(), time.process_time()
    assert run.rules is not None
    print(f"{len(run.rules):,} rules, mined in {mined_cpu - cpu:.0f} CPU seconds", end="")
    print(f" ({mined - start:.0f} s), fitted in {fitted_cpu - mined_cpu:.0f}", end="")
    print(f" ({fitted - mined:.0f} s)", flush=True)
    return run


# ---- edges of known entities --------------------------------------------------------------------


def by_relation(graph: KnowledgeGraph, run: Run, options: argparse.Namespace) -> None:
    """Print MRR for each relation and direction, then the calibration of missing edges."""
    edges = directed(np.asarray(graph.written_ids[options.split]))
    if options.relations:
        chosen = [graph.relation_id(name) for name in options.relations]
        edges = edges[np.isin(edges[:, 1] & ~1, chosen)]
    pieces = []
    random = np.random.default_rng(options.seed)
    for relation in np.unique(edges[:, 1]):
        those = edges[edges[:, 1] == relation]
        pieces.append(random.permutation(those)[: options.edges])
    block = questions(graph, np.concatenate(pieces))
    ranks, by_frequency = ranks_of(run, block, options.known), rank_by_frequency(graph, block)
    relations = np.repeat(block.symbols[:, 1], block.hard.lengths)
    print(f"{'edges':>7} {'run':>6} {'frequency':>10}  MRR, {options.known} known")
    for relation in np.unique(relations).tolist():
        chosen = relations == relation
        name = ("inverse of " if relation % 2 else "") + graph.relations[relation // 2]
        print(
            f"{chosen.sum():7,} {mrr(ranks[chosen]):6.1f} {mrr(by_frequency[chosen]):10.1f}  {name}"
        )
    print(f"{len(ranks):7,} {mrr(ranks):6.1f} {mrr(by_frequency):10.1f}  all of these")
    if options.known == "train+valid":
        completed = run.completed_graph("train+valid", cache_bytes=2**29)
        error, _ = calibration_error(*judge_edges(graph, completed, options.seed))
        print(f"expected calibration error of missing edges: {error:.4f}")


# ---- edges of entities that were added later ----------------------------------------------------


def without_entities(graph: KnowledgeGraph, hidden: Ids) -> tuple[KnowledgeGraph, Triples]:
    """Return a graph without some entities, and the training edges that it lacks."""
    kept = np.setdiff1d(np.arange(graph.num_entities), hidden)
    ids = np.full(graph.num_entities, -1, dtype=np.int32)
    ids[kept] = np.arange(len(kept))
    names, relations = list(graph.entities), list(graph.relations)
    splits, lacking = {}, {}
    for split, triples in graph.written_ids.items():
        is_hidden = np.isin(triples[:, [0, 2]], hidden).any(axis=1)
        rows = triples[~is_hidden]
        splits[split] = np.column_stack([ids[rows[:, 0]], rows[:, 1], ids[rows[:, 2]]])
        lacking[split] = np.asarray(triples[is_hidden & (split == "train")])
    small = Triples([names[i] for i in kept.tolist()], relations, splits)
    return KnowledgeGraph.from_triples(small), Triples(names, relations, lacking)


def inductive(graph: KnowledgeGraph, folder: Path, options: argparse.Namespace) -> None:
    """Print MRR for the test edges of entities that were added later, and mined with them."""
    random = np.random.default_rng(options.seed)
    hidden = random.choice(graph.num_entities, options.inductive, replace=False)
    small, added = without_entities(graph, hidden)
    small.save(folder / "graph")
    run = mine_and_fit(KnowledgeGraph.open(folder / "graph"), folder / "run", options.seed)
    small.extended(added).save(folder / "graph", overwrite=True)
    run = Run.open(folder / "run")
    ids = {name: i for i, name in enumerate(run.graph.entities)}
    later = np.array([ids[name] for name in graph.entities])
    both = directed(np.asarray(graph.written_ids["test"]))
    both = both[np.isin(both[:, [0, 2]], hidden).any(axis=1)]
    with_them = mine_and_fit(graph, folder / "with them", options.seed)
    added_edges = len(added.splits["train"])
    print(f"{len(hidden):,} entities with {added_edges:,} training edges, added after mining")
    print(f"{'edges':>7} {'added':>6} {'mined':>6} {'frequency':>10}  MRR, training edges known")
    for what, column in (("tails of their edges", 0), ("they are the tails", 2)):
        block = questions(graph, both[np.isin(both[:, column], hidden)])
        moved = QueryBlock(
            block.structure,
            np.column_stack([later[block.symbols[:, 0]], block.symbols[:, 1]]).astype(np.int32),
            Ragged(block.easy.offsets, later[block.easy.values].astype(np.int32)),
            Ragged(block.hard.offsets, later[block.hard.values].astype(np.int32)),
        )
        found = ranks_of(run, moved, "train"), ranks_of(with_them, block, "train")
        values = " ".join(f"{mrr(ranks):6.1f}" for ranks in found)
        by_frequency = mrr(rank_by_frequency(graph, block))
        print(f"{len(found[0]):7,} {values} {by_frequency:10.1f}  {what}")


def main() -> None:
    """Mine and fit, or open a run, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", type=Path)
    parser.add_argument("--known", default="train+valid", choices=("train", "train+valid"))
    parser.add_argument("--split", default="test", choices=("valid", "test"))
    parser.add_argument("--relations", nargs="*", default=[])
    parser.add_argument("--edges", type=int, default=1000, help="of each relation, at most")
    parser.add_argument("--run", type=Path, help="a run of the graph, such as one with models")
    parser.add_argument("--inductive", type=int, metavar="N", help="entities to hide")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    graph = KnowledgeGraph.open(options.graph)
    with tempfile.TemporaryDirectory() as folder:
        if options.inductive:
            inductive(graph, Path(folder), options)
            return
        run = Run.open(options.run) if options.run else None
        by_relation(graph, run or mine_and_fit(graph, Path(folder) / "run", options.seed), options)


if __name__ == "__main__":
    main()
