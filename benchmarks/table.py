"""The entity table in memory, on disk and by several processes: memory, traffic, time, results.

python benchmarks/table.py [--entities 2000000] [--dim 32] [--steps 100] [--processes 1 2 4]

A random graph with many entities; BetaE, batch 512, 2,048 candidates, no validation. For every
number of processes: peak memory of each process, what it sends to others in a step, seconds for a
step, and how far the losses are from those of one process. Then `table = "disk"` in a process that
the operating system allows half of what the rows alone take (RLIMIT_DATA, which counts private
memory but no mapped files), against the table in memory, weight by weight.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from memory import peak_memory
from safetensors.numpy import load_file

from betae import BetaConfig, KnowledgeGraph
from betae.graph.triples import Triples
from betae.training import distributed, loop
from betae.training.config import AdamConfig, TrainConfig
from betae.training.folder import RunFolder

STRUCTURES = {"1p": 1.0, "2p": 1.0, "2i": 1.0}


def make_graph(folder: Path, num_entities: int, num_edges: int, num_relations: int = 20) -> None:
    """Save a graph in which some entities have far more edges than others."""
    generator = np.random.default_rng(0)
    ends = (num_entities * generator.random((num_edges, 2)) ** 3).astype(np.int32)
    relations = generator.integers(num_relations, size=num_edges, dtype=np.int32)
    edges = np.unique(np.stack([ends[:, 0], relations, ends[:, 1]], axis=1), axis=0)
    nothing = np.empty((0, 3), dtype=np.int32)
    names = [f"e{number}" for number in range(num_entities)]
    triples = Triples(
        names,
        [f"r{number}" for number in range(num_relations)],
        {"train": edges, "valid": nothing, "test": nothing},
    )
    KnowledgeGraph.from_triples(triples).save(folder)


def data_bytes() -> int:
    """Return what RLIMIT_DATA limits."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmData")).split()[1])


def work(graph: Path, out: Path, options: dict) -> None:
    """Train as one of the processes, and print what it took."""
    sent, exchange, reduce = [0, 0], distributed._exchange, torch.distributed.all_reduce

    def count_rows(values: torch.Tensor, sizes: list[int], received: list[int]) -> torch.Tensor:
        mine = int(os.environ["RANK"])
        others = sum(size for number, size in enumerate(sizes) if number != mine)
        sent[0] += others * values[:1].nbytes
        return exchange(values, sizes, received)

    def count_networks(values: torch.Tensor) -> None:
        sent[1] += values.nbytes
        reduce(values)

    distributed._exchange, torch.distributed.all_reduce = count_rows, count_networks
    config = TrainConfig(
        model=BetaConfig(dim=options["dim"], hidden=64),
        structures=STRUCTURES,
        steps=options["steps"],
        optimizer=AdamConfig(warmup=10),
        checkpoint_every=options["steps"],
        table=options["table"],
        precision="float32",
    )
    torch.set_num_threads(1)
    loop.REPORT_EVERY = 10
    opened = KnowledgeGraph.open(graph)
    lines: list[dict] = []
    if options["allowed"]:  # after a first run, for what is compiled and kept
        small = {"model": BetaConfig(dim=2, hidden=64), "steps": 5, "checkpoint_every": 5}
        loop.fit(opened, TrainConfig(structures=STRUCTURES, **small), RunFolder(f"{out}-warm-up"))
        limit = data_bytes() + options["allowed"]
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    before, start = peak_memory(), time.perf_counter()
    outcome = loop.fit(opened, config, RunFolder(out), report=lines.append)
    facts = {
        "before": before,
        "peak": peak_memory(),
        "rows": sent[0] / config.steps,
        "networks": sent[1] / config.steps,
        "step": outcome.seconds / config.steps,
        "whole": time.perf_counter() - start,
        "losses": [line["loss"] for line in lines],
    }
    Path(f"{out}.{os.environ['RANK']}.json").write_text(json.dumps(facts))


def run(size: int, graph: Path, out: Path, **options: object) -> list[dict]:
    """Run processes as torchrun does, and return what each wrote."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    command = [sys.executable, __file__, "--child", str(graph), str(out), json.dumps(options)]
    processes = [
        subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank)})
        for rank in range(size)
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit("A process has failed.")
    return [json.loads(Path(f"{out}.{rank}.json").read_text()) for rank in range(size)]


def weights(folder: Path) -> dict[str, np.ndarray]:
    """Return every tensor of the newest checkpoint of a run."""
    checkpoint = RunFolder(folder).newest("checkpoint")
    files = ("model.safetensors", "state.safetensors")
    return {key: value for file in files for key, value in load_file(checkpoint / file).items()}


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=3)
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4])
    options = parser.parse_args()
    if options.child:
        graph, out, more = options.child
        work(Path(graph), Path(out), json.loads(more))
        return
    rows = 4 * options.entities * 2 * options.dim
    same = {"dim": options.dim, "steps": options.steps}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        place = Path(folder)
        make_graph(place / "graph", options.entities, options.entities // 2)
        print(f"{options.entities:,} entities, dim {options.dim}: rows {rows / 2**30:.2f} GiB")
        losses: list[float] = []
        for size in options.processes:
            out = place / f"{size}-processes"
            found = run(size, place / "graph", out, table="memory", allowed=0, **same)
            losses = losses or found[0]["losses"]
            pairs = zip(losses, found[0]["losses"], strict=True)
            print(
                f"{size} processes: memory {max(each['peak'] for each in found):.2f} GiB each at "
                f"most, {max(each['before'] for each in found):.2f} before training; a step sends "
                f"{max(each['rows'] for each in found) / 2**20:.2f} MiB of rows and gradients, "
                f"{found[0]['networks'] / 2**20:.2f} MiB of networks are summed; "
                f"{1000 * found[0]['step']:.0f} ms a step; losses differ by at most "
                f"{max(abs(one / other - 1) for one, other in pairs):.1e}"
            )
        (disk,) = run(1, place / "graph", place / "disk", table="disk", allowed=rows // 2, **same)
        one, other = weights(place / "1-processes"), weights(place / "disk")
        is_same = one.keys() == other.keys() and all(
            one[key].tobytes() == other[key].tobytes() for key in one
        )
        print(
            f"on disk, allowed {rows / 2**31:.2f} GiB: {1000 * disk['step']:.0f} ms a step; "
            f"{len(one)} tensors are {'equal to the bit' if is_same else 'NOT equal'}"
        )


if __name__ == "__main__":
    main()
