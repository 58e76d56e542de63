"""Are the probabilities right? Predicted ones against the share that is true, on test queries.

    python benchmarks/calibration.py RUN [--out reliability.svg]

The probabilities were fitted on validation queries; these are others, sampled from the test edges.
"""

from __future__ import annotations

import argparse

import matplotlib.pyplot as plt
import numpy as np

from betae import Run, sample_queries
from betae.answering.calibration import calibration_error, gather
from betae.queries.structures import EPFO, NEGATION, STRUCTURES

SHOWN = 10  # predictions of a query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--queries", type=int, default=200, help="of each structure")
    parser.add_argument("--out", default="reliability.svg")
    arguments = parser.parse_args()
    answerer = Run.open(arguments.run).answerer()
    names = [name for name in (*EPFO, *NEGATION) if answerer.model.can(STRUCTURES[name])]
    queries = sample_queries(answerer.graph, dict.fromkeys(names, arguments.queries), "test")
    best, is_true = [], []
    for distances, marks in gather(answerer.model, answerer.table, queries):
        probabilities = answerer.calibration(distances)
        places = np.argpartition(distances, SHOWN)[:SHOWN]
        best.append(probabilities[places])
        is_true.append(marks[places])
    error, bins = calibration_error(np.concatenate(best), np.concatenate(is_true))
    print(f"{len(queries):,} queries, the {SHOWN} best predictions of each")
    for probability, share, number in bins:
        print(f"  said {probability:6.1%}   true {share:6.1%}   of {number:,}")
    print(f"expected calibration error {error:.4f}")
    said, true, numbers = np.array(bins).T
    figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.plot(said, true, color="C0", linewidth=1)
    axes.scatter(said, true, s=10 + 150 * numbers / numbers.max(), color="C0")
    axes.set(xlabel="probability", ylabel="share that is true", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"{SHOWN} best predictions; error {error:.3f}", fontsize=10)
    figure.savefig(arguments.out)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
