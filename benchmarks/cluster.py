"""Evaluation by Ray workers on this machine, against one process.

python benchmarks/cluster.py RUN QUERIES [--graph GRAPH] [--each 500] [--workers 2] [--rounds 5]

In each round the same queries are ranked by one process with one thread, by one process with a
thread for each core, and by Ray workers; the figures must be equal. Workers are started, and load
what they need, in an evaluation of a few queries that is not counted. On a busy machine, compare
the seconds of CPU too.
"""

import argparse
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import ray
import torch

from betae import Cluster, QuerySet, Run
from betae.datasets.release import open_queries
from betae.evaluation.evaluate import evaluate
from betae.evaluation.results import Method
from betae.parallel import num_threads


@dataclass
class Measured:
    """One evaluation: seconds of ranking, by the clock, and of CPU in all; and its figures."""

    clock: float
    cpu: float
    figures: str


def first(queries: QuerySet, number: int) -> QuerySet:
    """Return the first queries of each structure."""
    blocks = {
        name: block.take(np.arange(min(number, len(block))))
        for name, block in queries.blocks.items()
    }
    return replace(queries, blocks=blocks)


def cpu_seconds() -> float:
    """Return the CPU time of this process, and of the Ray workers of this machine (Linux)."""
    total = time.process_time()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (place / "cmdline").read_bytes().startswith(b"ray::"):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(
    run: Run, queries: QuerySet, method: Method, threads: int, cluster: Cluster | None
) -> Measured:
    """Evaluate once."""
    torch.set_num_threads(threads)
    open_ranker = partial(run.ranker, method)
    seen: list[float] = []  # when ranking began, and when it went on
    cpu = cpu_seconds()
    result = evaluate(
        open_ranker(),
        run.graph,
        queries,
        empty_queries=0,
        cluster=cluster,
        open_ranker=open_ranker,
        progress=lambda *_: seen.append(time.perf_counter()),
    )
    cpu = cpu_seconds() - cpu
    return Measured(seen[-1] - seen[0], cpu, str(replace(result, seconds=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("queries", type=Path, metavar="QUERIES")
    parser.add_argument("--graph", type=Path, help="if it has moved since training")
    parser.add_argument("--each", type=int, default=500, help="queries of each structure")
    parser.add_argument("--method", default="embedding", choices=["completed", "embedding"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    run, cores = Run.open(options.run, options.graph), num_threads()
    queries = first(open_queries(run.graph, options.queries), options.each)
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    # By default Ray's workers let other processes go first.
    ray.init(num_cpus=options.workers, **quiet, _system_config={"worker_niceness": 0})
    with Cluster("auto") as cluster:
        ways = {
            "1 thread": (1, None),
            f"{cores} threads": (cores, None),
            f"Ray, {options.workers} workers": (1, cluster),
        }
        print(f"{len(queries):,} queries, {cores} cores")
        found: dict[str, list[Measured]] = {name: [] for name in ways}
        for number in range(-1, options.rounds):  # the first, of a few queries, is not counted
            asked = first(queries, 4) if number < 0 else queries
            for name, (threads, where) in ways.items():
                measured = measure(run, asked, options.method, threads, where)
                if number >= 0:
                    print(
                        f"{name}: {measured.clock:.1f} s, {measured.cpu:.1f} s of CPU", flush=True
                    )
                    found[name].append(measured)
    ray.shutdown()
    alone = found["1 thread"]
    for name, measured in found.items():
        pairs = list(zip(alone, measured, strict=True))
        clock = sorted(one.clock / other.clock for one, other in pairs)
        cpu = sorted(other.cpu / one.cpu for one, other in pairs)
        same = (
            "equal" if all(other.figures == alone[0].figures for other in measured) else "unequal"
        )
        print(
            f"{name}: {np.median(clock):.2f} times one thread ({clock[0]:.2f} to {clock[-1]:.2f}), "
            f"{np.median(cpu):.2f} times its CPU ({cpu[0]:.2f} to {cpu[-1]:.2f}); figures {same}"
        )


if __name__ == "__main__":
    main()
