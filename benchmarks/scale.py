"""From triples to answers on a large synthetic graph: seconds and memory of every step.

python benchmarks/scale.py FOLDER [--entities 5000000] [--edges 30000000] [--small GRAPH]

Makes a graph whose heads, relations and tails follow power laws, ingests it in bounded memory,
mines its rules, trains BetaE, builds its index and answers questions with it. Each step runs in a
process of its own, and is skipped if FOLDER has its output. Memory is that of the process at its
peak: private (its own pages, sampled 20 times a second) and resident (with pages of files that are
mapped, which the system may take back at any time). `--small` is a graph to train on with the same
settings, such as FB15k-237: what a step costs there says how the cost grows with entities.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from ingest import power_law
from memory import peak_memory

ROWS_OF_A_FILE = 1_000_000
SHARE = 0.002  # of the edges for validation, as many for the test
STRUCTURES = ("1p", "2p", "2i")  # in a random graph, others are rare


def make(folder: Path, options: argparse.Namespace) -> dict:
    """Write triples as Parquet files."""
    import polars as pl

    partial = folder / "triples.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for number, first in enumerate(range(0, options.edges, ROWS_OF_A_FILE)):
        rng, size = np.random.default_rng(number), min(ROWS_OF_A_FILE, options.edges - first)
        columns = {
            "head": power_law(rng, 0.6, options.entities, size),
            "relation": power_law(rng, 0.5, options.relations, size),
            "tail": power_law(rng, 0.6, options.entities, size),
        }
        letters = {"head": "e", "relation": "r", "tail": "e"}
        names = [pl.format(f"{letters[name]}{{}}", name).alias(name) for name in columns]
        pl.DataFrame(columns).select(names).write_parquet(partial / f"{number:05}.parquet")
    partial.rename(folder / "triples")
    return {}


def ingest(folder: Path, options: argparse.Namespace) -> dict:
    """Make the graph."""
    from betae import KnowledgeGraph
    from betae import ingest as ingest_files

    out = folder / "graph"
    ingest_files(folder / "triples", out=out, valid=SHARE, test=SHARE, memory=options.memory)
    graph = KnowledgeGraph.open(out, verify=False)
    return {"entities": graph.num_entities, "edges": len(graph.written_ids["train"])}


def mine(folder: Path, options: argparse.Namespace) -> dict:  # noqa: ARG001
    """Mine the rules of the graph."""
    from betae import KnowledgeGraph
    from betae import mine as mine_rules

    graph = KnowledgeGraph.open(folder / "graph", verify=False)
    run = mine_rules(graph, folder / "mined", overwrite=True)
    return {"rules": len(run.rules)}


def train(folder: Path, options: argparse.Namespace) -> dict:
    """Train on the graph."""
    return _train(folder / "graph", folder / "run", options)


def train_small(folder: Path, options: argparse.Namespace) -> dict:
    """Train on a small graph."""
    return _train(options.small, folder / "small-run", options)


def _train(graph: Path, out: Path, options: argparse.Namespace) -> dict:
    from betae import BetaConfig, KnowledgeGraph, TrainConfig
    from betae import train as train_model
    from betae.querysets.sample import sample_queries
    from betae.training import loop
    from betae.training.config import AdamConfig, ValidationConfig

    loop.REPORT_EVERY = max(1, options.steps // 10)
    config = TrainConfig(
        model=BetaConfig(dim=options.dim),
        structures=dict.fromkeys(STRUCTURES, 1.0),
        steps=options.steps,
        optimizer=AdamConfig(warmup=options.steps // 10),
        validation=ValidationConfig(every=options.steps),
        checkpoint_every=options.steps,
        table=options.table,
    )
    speeds: list[float] = []
    steps: list[int] = []
    seconds: list[float] = []

    def report(line: dict) -> None:
        if "queries_per_second" in line:
            speeds.append(line["queries_per_second"])
            steps.append(line["step"])
            seconds.append(time.process_time())

    shutil.rmtree(out, ignore_errors=True)
    opened = KnowledgeGraph.open(graph)
    valid = sample_queries(opened, dict.fromkeys(STRUCTURES, 20), "valid")
    train_model(opened, out, config, valid=valid, report=report)
    cpu = np.diff(seconds) / (config.batch_size * np.diff(steps))  # the first steps compile
    return {
        "queries a second": float(np.median(speeds)),
        "queries a CPU second": float(1 / np.median(cpu)),
    }


def index(folder: Path, options: argparse.Namespace) -> dict:  # noqa: ARG001
    """Build the index of the entities."""
    from betae import Run

    built = Run.open(folder / "run").build_index(notify=lambda text: print(text, file=sys.stderr))
    size = (folder / "run" / "index" / "index.faiss").stat().st_size
    return {"recall": built.recall, "effort": built.effort, "GB": size / 1e9}


def answer(folder: Path, options: argparse.Namespace) -> dict:
    """Answer sampled questions by the index."""
    from betae import Run
    from betae.querysets.sample import sample_queries

    run = Run.open(folder / "run")
    graph = run.graph
    start = time.perf_counter()
    answerer = run.answerer("train", method="embedding", use_index=True)
    fitted = time.perf_counter()
    run.answerer("train", method="embedding", use_index=True)
    opened = time.perf_counter()
    counts = dict.fromkeys((*STRUCTURES, "2u"), options.questions // 4)
    times, expected = [], []
    for query, _, _ in sample_queries(graph, counts, "test", seed=1):
        begin = time.perf_counter()
        found = answerer.answer(query)
        times.append(time.perf_counter() - begin)
        expected.append(found.expected)
    return {
        "seconds to fit": fitted - start,
        "seconds to open": opened - fitted,
        "questions": len(times),
        "ms a question, median": 1000 * float(np.median(times)),
        "ms a question, longest": 1000 * max(times),
        "expected, median": float(np.median(expected)),
    }


# ---- one step a process -------------------------------------------------------------------------

STEPS = {  # with what each leaves behind
    make: "triples",
    ingest: "graph",
    mine: "mined",
    train_small: "small-run",
    train: "run",
    index: "run/index",
    answer: "answer.json",
}


def private_memory() -> float:
    """Return the private memory of this process, in GiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 2**20
    return float("nan")


def work(step: str, folder: Path, options: argparse.Namespace) -> None:
    """Do one step, and write down what it took."""
    most, is_done = [0.0], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.05):
            most[0] = max(most[0], private_memory())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    start = time.perf_counter()
    cpu = time.process_time()
    facts = next(function for function in STEPS if function.__name__ == step)(folder, options)
    seconds = time.perf_counter() - start
    is_done.set()
    watching.join()
    cpu = time.process_time() - cpu
    took = {
        "seconds": seconds,
        "CPU seconds": cpu,
        "private GiB": most[0],
        "resident GiB": peak_memory(),
        **facts,
    }
    (folder / f"{step}.json").write_text(json.dumps(took))


def shown(value: object) -> str:
    """Return a fact as a person reads it."""
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"


def main() -> None:
    """Do all steps, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entities", type=int, default=5_000_000)
    parser.add_argument("--edges", type=int, default=30_000_000)
    parser.add_argument("--relations", type=int, default=300)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--memory", default="4GB", help="for ingest")
    parser.add_argument("--table", default="memory", choices=("memory", "disk"))
    parser.add_argument("--small", type=Path, help="a graph to compare the training with")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        work(options.step, options.folder, options)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for function, output in STEPS.items():
        step = function.__name__
        if step == "train_small" and options.small is None:
            continue
        facts = options.folder / f"{step}.json"
        if not ((options.folder / output).exists() and facts.exists()):
            command = [sys.executable, __file__, *sys.argv[1:], "--step", step]
            subprocess.run(command, check=True, env=os.environ)
        took = json.loads(facts.read_text())
        print(f"{step:>12}: " + "; ".join(f"{key} {shown(took[key])}" for key in took), flush=True)
    if options.small is not None:
        large, small = (
            json.loads((options.folder / f"{step}.json").read_text())["queries a CPU second"]
            for step in ("train", "train_small")
        )
        print(f"training: {large / small:.2f} of the queries a CPU second of {options.small.name}")


if __name__ == "__main__":
    main()
