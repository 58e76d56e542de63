"""Ingest 10 million triples from TSV, against a plain Python loop that does the same.

python benchmarks/ingest.py [--triples 10000000]

Each side runs in a process of its own and reports its wall time and peak memory. `betae_read` does
the same as the loop: vocabulary, ids, duplicates dropped, triples sorted. `betae_ingest` goes on to
build the adjacency in both directions, write the store and hash it.

python benchmarks/ingest.py --bounded 4GB [--triples 100000000] [--in-memory]

ingests power-law triples from Parquet files of a million rows each with `betae ingest --memory`, in
a process that the system lets have so much memory of its own and not a byte more (RLIMIT_DATA: heap
and other private writable memory, resident or not; a request beyond it fails). RLIMIT_AS would also
count the code of libraries and files that are mapped, which take no memory that the system cannot
take back. With `--in-memory` the usual way ingests the same files, without a limit.
With `--literals 5`, node tables give each entity five: half as many literals in all as triples.
"""

import argparse
import shutil
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
    from betae.graph.triples import read_triples

    return len(read_triples(path).splits["train"])


def betae_ingest(path: Path) -> int:
    from betae import KnowledgeGraph
    from betae.graph.triples import read_triples

    graph = KnowledgeGraph.from_triples(read_triples(path))
    graph.save(path.parent / "graph", overwrite=True)
    return len(graph.written_ids["train"])


# ---- in bounded memory --------------------------------------------------------------------------

ROWS_OF_A_FILE = 1_000_000


def make_parts(folder: Path, num_triples: int) -> None:
    """Write triples whose heads and tails follow power laws, in files of a million rows."""
    num_entities = max(num_triples // 10, 10)
    folder.mkdir()
    for number, first in enumerate(range(0, num_triples, ROWS_OF_A_FILE)):
        rng = np.random.default_rng(number)
        size = min(ROWS_OF_A_FILE, num_triples - first)
        columns = {
            "head": power_law(rng, 0.8, num_entities, size),
            "relation": power_law(rng, 0.5, 1000, size),
            "tail": power_law(rng, 0.6, num_entities, size),
        }
        frame = pl.DataFrame(columns).select(
            pl.format("http://example.org/entity/Q{}", "head").alias("head"),
            pl.format("http://example.org/relation/P{}", "relation").alias("relation"),
            pl.format("http://example.org/entity/Q{}", "tail").alias("tail"),
        )
        frame.write_parquet(folder / f"{number:05}.parquet")


def make_nodes(folder: Path, num_entities: int, num_literals: int) -> None:
    """Write node tables with some properties of each entity: numbers, dates and text."""
    folder.mkdir()
    for number, first in enumerate(range(0, num_entities, ROWS_OF_A_FILE)):
        rng = np.random.default_rng(number)
        ids = np.arange(first, min(first + ROWS_OF_A_FILE, num_entities))
        table = pl.DataFrame({"id": ids}).select(
            pl.format("http://example.org/entity/Q{}", "id").alias("id")
        )
        for i in range(num_literals):
            values = pl.Series(f"property{i}", rng.integers(0, 20_000, len(ids)))
            kinds = (values, values / 7, values.cast(pl.Date), "text " + values.cast(pl.String))
            table = table.with_columns(kinds[i % len(kinds)].alias(values.name))
        table.write_parquet(folder / f"{number:05}.parquet")


def nodes_of(parts: Path) -> list[Path]:
    """Return the folder of node tables beside the triples, if there is one."""
    nodes = parts.with_name("nodes")
    return [nodes] if nodes.exists() else []


def power_law(rng: np.random.Generator, exponent: float, number: int, size: int) -> np.ndarray:
    """Sample from `number` values of which the k-th has a probability of about k ** -exponent."""
    rank = (number * rng.random(size) ** (1 / (1 - exponent))).astype(np.int64)
    return rank * 7919 % number  # 7919 is prime: names are not in the order of frequency


def bounded(parts: Path, memory: str, store: Path) -> str:
    """Ingest within a limit, told on one line: seconds, peak and fingerprint."""
    import resource

    from betae.graph.outofcore import parse_memory

    limit = parse_memory(memory)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    start = time.perf_counter()
    phases: list[tuple[str, float]] = []

    def say(phase: str) -> None:
        phase = phase.partition(" ")[0] if phase.startswith("Reading") else phase
        if not phases or phases[-1][0] != phase:
            phases.append((phase, time.perf_counter()))

    from betae import ingest

    report = ingest(parts, out=store, memory=memory, notify=say, nodes=nodes_of(parts))
    end = time.perf_counter()
    for (phase, begin), (_, then) in zip(phases, [*phases[1:], ("", end)], strict=True):
        print(f"{then - begin:10.1f} s  {phase}", file=sys.stderr)
    return told(end - start, report.read, store)


def in_memory(parts: Path, _: str, store: Path) -> str:
    from betae import KnowledgeGraph
    from betae.graph.triples import read_triples

    start = time.perf_counter()
    triples = read_triples(parts, nodes=nodes_of(parts))
    KnowledgeGraph.from_triples(triples).save(store)
    return told(time.perf_counter() - start, triples.report.read, store)


def told(seconds: float, num_read: int, store: Path) -> str:
    import json

    manifest = json.loads((store / "manifest.json").read_text())
    size = sum(part["bytes"] for part in manifest["parts"].values()) / 1e9
    return (
        f"{num_read:,} read, {manifest['entities']:,} entities, "
        f"{manifest['edges']['train']:,} distinct edges, {size:.2f} GB: {seconds:.1f} s "
        f"({time.process_time():.1f} s of CPU), peak {peak_memory():.2f} GiB resident, "
        f"fingerprint {manifest['fingerprint'][:16]}"
    )


def compare_bounded(
    num_triples: int, num_literals: int, memory: str, has_in_memory: bool, folder: Path
) -> None:
    make_parts(folder / "parts", num_triples)
    if num_literals:
        make_nodes(folder / "nodes", max(num_triples // 10, 10), num_literals)
    for side in ["bounded", "in_memory"][: 1 + has_in_memory]:
        command = [sys.executable, __file__, "--side", side, "--file", folder / "parts"]
        arguments = ["--bounded", memory, "--store", folder / side]
        done = subprocess.run([*command, *arguments], check=True, stdout=subprocess.PIPE, text=True)
        print(f"{side:>10}: {done.stdout.strip()}", flush=True)
        shutil.rmtree(folder / side)


SIDES = [python_loop, betae_read, betae_ingest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--bounded", metavar="MEMORY")
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--literals", type=int, default=0, help="of each entity")
    parser.add_argument("--folder", type=Path, help="for the files, if /tmp is too small")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side and options.bounded:
        print(globals()[options.side](options.file, options.bounded, options.store))
        return
    if options.bounded:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            how = (options.literals, options.bounded, options.in_memory)
            compare_bounded(options.triples, *how, Path(folder))
        return
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
