"""Ingest 10 million triples from TSV, against a plain Python loop that does the same.

python benchmarks/ingest.py [--triples 10000000]

Each side runs in a process of its own and reports its wall time and peak memory. `betae_read` does
the same as the loop: vocabulary, ids, duplicates dropped, triples sorted. `betae_ingest` goes on to
build the adjacency in both directions, write the store and hash it.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from memory import peak_memory


def make_triples(path: Path, num_triples: int) -> None:
    """Write triples with skewed heads over a million entities and 500 relations."""
    rng = np.random.default_rng(0)
    num_entities = max(num_triples // 10, 10)
    columns = {
        "head": (rng.zipf(1.3, num_triples) * 7919) % num_entities,
        "relation": rng.integers(0, 500, num_triples),
        "tail": rng.integers(0, num_entities, num_triples),
    }
    frame = pl.DataFrame(columns).select(
        pl.format("entity/{}", "head").alias("head"),
        pl.format("relation_{}", "relation").alias("relation"),
        pl.format("entity/{}", "tail").alias("tail"),
    )
    frame.write_csv(path, separator="\t", include_header=False, quote_style="never")


def python_loop(path: Path) -> int:
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    triples = set()
    with path.open(encoding="utf-8") as file:
        for line in file:
            head, relation, tail = line.rstrip("\n").split("\t")
            triples.add(
                (
                    entities.setdefault(head, len(entities)),
                    relations.setdefault(relation, len(relations)),
                    entities.setdefault(tail, len(entities)),
                )
            )
    return len(sorted(triples))


def betae_read(path: Path) -> int:
    from betae import read_triples

    return len(read_triples(path).splits["train"])


def betae_ingest(path: Path) -> int:
    from betae import KnowledgeGraph, read_triples

    graph = KnowledgeGraph.from_triples(read_triples(path))
    graph.save(path.parent / "graph", overwrite=True)
    return len(graph.splits["train"])


SIDES = [python_loop, betae_read, betae_ingest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--side", choices=[side.__name__ for side in SIDES])
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.side:
        start = time.perf_counter()
        count = globals()[options.side](options.file)
        seconds = time.perf_counter() - start
        print(f"{seconds} {peak_memory()} {count}")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "triples.tsv"
        make_triples(path, options.triples)
        seconds = {}
        for side in (function.__name__ for function in SIDES):
            command = [sys.executable, __file__, "--side", side, "--file", str(path)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            time_taken, peak, count = output.split()
            seconds[side] = float(time_taken)
            print(
                f"{side:>14}: {float(time_taken):6.1f} s, peak {float(peak):.2f} GiB, "
                f"{int(count):,} distinct triples"
            )
    for side in ("betae_read", "betae_ingest"):
        print(f"python_loop / {side}: {seconds['python_loop'] / seconds[side]:.1f}")


if __name__ == "__main__":
    main()
