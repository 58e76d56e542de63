"""Evaluation on the cores of this machine by Ray, against one process.

python benchmarks/cluster.py RUN QUERIES [--each 500] [--method completed]

The same queries, ranked by one process with one thread, by one process with a thread for each core,
and by 1, 2, ... Ray workers. Workers are started, and load what they need, in an evaluation of a
few queries that is not counted; the figures of all must be equal. On a busy machine, compare the
seconds of CPU.
"""

import argparse
import os
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import ray
import torch

from betae import Cluster, QuerySet, Run, open_queries
from betae.answering.evaluation import evaluate_on
from betae.parallel import num_threads


def first(queries: QuerySet, number: int) -> QuerySet:
    """Return the first queries of each structure."""
    blocks = {
        name: block.take(np.arange(min(number, len(block))))
        for name, block in queries.blocks.items()
    }
    return replace(queries, blocks=blocks)


def cpu_seconds(cluster: Cluster | None) -> float:
    """Return the CPU time of this process, and of the Ray workers of this machine (Linux)."""
    total = time.process_time()
    if cluster is not None:
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (place / "cmdline").read_bytes().startswith(b"ray::"):
                    fields = (place / "stat").read_text().rpartition(")")[2].split()
                    total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(run: Run, queries: QuerySet, method: str, cluster: Cluster | None) -> tuple[float, str]:
    """Return how long ranking takes, and the figures."""
    load = run.model if method == "embedding" else partial(run.completed_graph, "train")
    evaluate = partial(evaluate_on, cluster, load, run.graph, empty_queries=0)
    if cluster is not None:
        evaluate(first(queries, 4), progress=lambda *_: None)
    seen: list[float] = []  # when ranking began, and when it went on
    start, cpu = time.perf_counter(), cpu_seconds(cluster)
    result = evaluate(queries, progress=lambda *_: seen.append(time.perf_counter()))
    whole = time.perf_counter() - start
    cpu = cpu_seconds(cluster) - cpu
    print(
        f"  ranking {seen[-1] - seen[0]:.1f} s, all {whole:.1f} s, {cpu:.1f} s of CPU", flush=True
    )
    return seen[-1] - seen[0], str(replace(result, seconds=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("queries", type=Path, metavar="QUERIES")
    parser.add_argument("--each", type=int, default=500, help="queries of each structure")
    parser.add_argument("--method", default="completed", choices=["completed", "embedding"])
    parser.add_argument("--workers", type=int, default=2, help="the most Ray workers")
    options = parser.parse_args()
    run, cores = Run.open(options.run), num_threads()
    queries = first(open_queries(run.graph, options.queries), options.each)
    print(f"{len(queries):,} queries, {cores} cores")
    found = {}
    for threads in sorted({1, cores}):
        torch.set_num_threads(threads)
        print(f"one process, {threads} thread(s)")
        found[f"{threads} thread(s)"] = measure(run, queries, options.method, None)
    for workers in range(1, options.workers + 1):
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        with Cluster("auto") as cluster:
            print(f"Ray, {cluster}")
            found[f"Ray, {workers} worker(s)"] = measure(run, queries, options.method, cluster)
        ray.shutdown()
    alone, figures = found["1 thread(s)"]
    for name, (seconds, others) in found.items():
        same = "equal" if others == figures else "not equal"
        print(f"{name}: {alone / seconds:.2f} times one thread; figures {same}")


if __name__ == "__main__":
    main()
