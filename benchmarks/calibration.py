"""Are the probabilities right? Predicted ones against the share that is true, on test edges.

    python benchmarks/calibration.py RUN [--out reliability.svg]
    python benchmarks/calibration.py RUN --chains

Training and validation edges count as known, and the test edges are what is missing; nothing was
fitted on them. Edges: the 10 most probable ones that the (head, relation) of random edges lack.
Answers: the 10 best predictions of questions as they come, sampled from the training edges, so that
most lack nothing; and how many answers are expected, against how many there are. With --split test
the questions are those of a benchmark, of which each has a missing answer.

With --chains: the 10 best predictions of chains of one, two and three steps, by the number of steps
and of derivations, and those of chains through hubs, with more than 100 entities before the last
step. With --valid the training edges alone are known, and the validation edges are what is missing.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from betae import Run
from betae.answering.by_completion import ByCompletion
from betae.answering.completed import CompletedGraph
from betae.answering.derivations import Derivations
from betae.answering.edges import validation_share
from betae.answering.truth import truth_trees
from betae.exact.answers import answers_of_structure
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.queries.structures import EPFO, NEGATION, STRUCTURES, fill
from betae.querysets.sample import sample_queries

SHOWN = 10  # predictions of a question
CHAINS = ("1p", "2p", "3p")
HUB = 100  # entities before the last step, more than
DERIVATIONS = (1, 10, 100)  # the last number of each class
PAIRS = 2000  # (head, relation)
Judged = tuple[NDArray[np.float64], NDArray[np.bool_]]  # probabilities, which are true


def row_of(completed: CompletedGraph, head: int, relation: int) -> NDArray[np.float32]:
    """Return the probabilities of all tails of a (head, relation)."""
    heads, relations = np.array([head]), np.array([relation])
    if completed.sparse is not None:
        (sparse,) = completed.sparse.rows(heads, relations)
        return completed.sparse.probabilities.dense(sparse, relation)
    rows, slots = completed.rows(heads, relations)
    return rows[slots[0]]


def judge_edges(graph: KnowledgeGraph, completed: CompletedGraph, seed: int) -> Judged:
    """Return the probabilities of the 10 most probable missing edges of random rows."""
    adjacency, later = completed.adjacency, graph.adjacency("all")
    heads = np.repeat(np.arange(graph.num_entities), np.diff(adjacency.head_offsets))
    chosen = np.random.default_rng(seed).integers(len(heads), size=PAIRS)
    said, true = [], []
    for head, relation in zip(heads[chosen], adjacency.relations[chosen], strict=True):
        row = row_of(completed, int(head), int(relation))
        row = np.where(row < 1, row, 0)
        best = np.argpartition(-row, SHOWN)[:SHOWN]
        said.append(row[best])
        true.append(np.isin(best, later.neighbours(int(head), int(relation))))
    return np.concatenate(said).astype(np.float64), np.concatenate(true)


def judge_answers(
    graph: KnowledgeGraph, completed: CompletedGraph, number: int, split: str, seed: int
) -> tuple[Judged, dict[str, float]]:
    """Return the probabilities of predictions, and the median of expected / true numbers."""
    names = (*EPFO, *NEGATION)
    sampled = sample_queries(graph, dict.fromkeys(names, number), split, seed=seed)
    said, true, ratios = [], [], {}
    for name, block in sampled.blocks.items():
        symbols = np.asarray(block.symbols)
        known = answers_of_structure(completed.adjacency, block.structure, symbols)
        all_ = answers_of_structure(graph.adjacency("all"), block.structure, symbols)
        of_queries = []
        for rows, distances in ByCompletion(graph, completed).score(block):
            for row, truth in zip(rows, -distances, strict=True):
                of_queries.append(truth.sum(dtype=np.float64) / max(1, len(all_[row])))
                truth[known[row]] = 0
                best = np.argpartition(-truth, SHOWN)[:SHOWN]
                said.append(truth[best])
                true.append(np.isin(best, all_[row]))
        ratios[name] = float(np.median(of_queries))
    return (np.concatenate(said).astype(np.float64), np.concatenate(true)), ratios


def judge_chains(
    graph: KnowledgeGraph, completed: CompletedGraph, edges: Edges, number: int, seed: int
) -> NDArray[np.float64]:
    """Return columns of predictions: steps, through a hub, derivations, probability, is true."""
    sampled = sample_queries(graph, dict.fromkeys(CHAINS, number), "train", seed=seed)
    found = []
    for steps, block in enumerate(sampled.blocks.values(), 1):
        symbols = np.asarray(block.symbols)
        all_ = answers_of_structure(graph.adjacency(edges), block.structure, symbols)
        known = answers_of_structure(completed.adjacency, block.structure, symbols)
        before = known
        if steps > 1:
            shorter = STRUCTURES[CHAINS[steps - 2]]
            before = answers_of_structure(completed.adjacency, shorter, symbols[:, :-1])
        queries = [fill(block.structure, row) for row in symbols.tolist()]
        for positions, tree in truth_trees(completed, queries):
            for row, i in enumerate(positions.tolist()):
                one = tree.of_query(row)
                truth = one.root[0].copy()
                truth[known[i]] = 0
                derivations = Derivations(graph, completed, one)
                is_hub = steps > 1 and len(before[i]) > HUB
                for entity in np.argpartition(-truth, SHOWN)[:SHOWN].tolist():
                    counted = derivations.number(entity) if truth[entity] > 0 else 0
                    found.append((steps, is_hub, counted, truth[entity], entity in all_[i]))
    return np.array(found, dtype=np.float64)


def show_chains(found: NDArray[np.float64]) -> None:
    """Print calibration by the number of steps and of derivations."""
    steps, is_hub, numbers, said, true = found.T
    groups = {f"{n} step{'s' * (n > 1)}": steps == n for n in range(1, len(CHAINS) + 1)}
    groups |= {f"{n} steps, hubs": (steps == n) & (is_hub == 1) for n in (2, 3)}
    classes = np.searchsorted(DERIVATIONS, numbers)
    bounds = (1, *(n + 1 for n in DERIVATIONS)), (*DERIVATIONS, "more")
    for i, (first, last) in enumerate(zip(*bounds, strict=True)):
        groups[f"{first} to {last} derivations"] = (classes == i) & (steps > 1)
    print(f"{'':24} predictions    ECE   above 0.5: said   true   difference   of")
    for name, chosen in groups.items():
        if not chosen.any():
            continue
        error, _ = calibration_error(said[chosen], true[chosen] == 1)
        line = f"{name:24} {chosen.sum():11,}  {error:.4f}"
        likely = chosen & (said > 0.5)
        if likely.any():
            mean, share = said[likely].mean(), true[likely].mean()
            line += f"{mean:17.3f}  {share:.3f}  {abs(mean - share):11.3f}  {likely.sum():4,}"
        print(line)


def calibration_error(
    probabilities: NDArray[np.float64], is_answer: NDArray[np.bool_], bins: int = 10
) -> tuple[float, list[tuple[float, float, int]]]:
    """Return the expected calibration error, and (mean probability, share, count) of each bin."""
    indices = np.minimum((probabilities * bins).astype(int), bins - 1)
    rows = []
    for i in range(bins):
        chosen = indices == i
        if chosen.any():
            share = float(is_answer[chosen].mean())
            rows.append((float(probabilities[chosen].mean()), share, int(chosen.sum())))
    total = sum(count for _, _, count in rows)
    error = sum(count * abs(p - share) for p, share, count in rows) / max(1, total)
    return error, rows


def show(axes: Axes, what: str, judged: Judged) -> None:
    """Print and plot a reliability curve."""
    error, bins = calibration_error(*judged)
    print(f"{len(judged[0]):,} {what}, expected calibration error {error:.4f}")
    for probability, share, number in bins:
        print(f"  said {probability:6.1%}   true {share:6.1%}   of {number:,}")
    said, true, numbers = np.array(bins).T
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.plot(said, true, color="C0", linewidth=1)
    axes.scatter(said, true, s=10 + 150 * numbers / numbers.max(), color="C0")
    axes.set(xlabel="probability", ylabel="share that is true", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"{what}; error {error:.3f}", fontsize=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--queries", type=int, default=200, help="of each structure")
    parser.add_argument("--split", choices=["train", "test"], default="train")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", default="reliability.svg")
    parser.add_argument("--chains", action="store_true", help="by the number of steps")
    parser.add_argument("--valid", action="store_true", help="chains: look for validation edges")
    arguments = parser.parse_args()
    run = Run.open(arguments.run)
    if arguments.chains:
        known: Edges = "train" if arguments.valid else "train+valid"
        completed = run.completed_graph(known, cache_bytes=2**31)
        if arguments.valid:  # the fit is for all held-out edges
            predictors = completed.probabilities.predictors
            share = math.log(validation_share(run.graph))
            completed.probabilities.predictors = replace(predictors, log_odds=share)
        edges: Edges = "train+valid" if arguments.valid else "all"
        show_chains(judge_chains(run.graph, completed, edges, arguments.queries, arguments.seed))
        return
    completed = run.completed_graph("train+valid", cache_bytes=2**31)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
    show(left, "missing edges", judge_edges(run.graph, completed, arguments.seed))
    judged, ratios = judge_answers(
        run.graph, completed, arguments.queries, arguments.split, arguments.seed
    )
    show(right, "predicted answers", judged)
    print("expected number of answers, as a multiple of the true one (median):")
    print("  " + "  ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    figure.savefig(arguments.out)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
