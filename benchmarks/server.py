"""How many questions a server answers, how fast, and what it gains by answering them together.

    python benchmarks/server.py RUN [--graph FOLDER] [--method embedding] [--seconds 8] [--rounds 3]
    python benchmarks/server.py RUN --soak 300

Two servers of the run, one that answers questions together and one that takes them one by one. By
turns, 1, 8 and 64 clients on loopback ask both the same questions, which are new each time: half of
them of one hop, the others of two hops, with an intersection, or with a negation. The medians over
the rounds are printed. Before, each server is asked so many questions that its cache of rows is
full, as that of a server in use is. `--soak` asks one server for so many seconds, without a pause
and all kinds of things, and prints its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from statistics import median

import numpy as np
from serving import Server, started

from betae import Run
from betae.graph.graph import KnowledgeGraph
from betae.queries.read import unresolve
from betae.queries.structures import STRUCTURES, fill
from betae.querysets.sample import sample_queries

CLIENTS = (1, 8, 64)
MIX = ("1p", "2p", "1p", "2i", "1p", "2in")
MOST = 1_000  # questions of a measurement
BEFORE = 3 * MOST  # asked first


def questions_of(graph: KnowledgeGraph, number: int, seed: int = 0) -> list[str]:
    """Return sampled questions as logic text, all different."""
    counts = {kind: number * MIX.count(kind) // len(MIX) + 1 for kind in MIX}
    blocks = sample_queries(graph, counts, "test", seed=seed).blocks
    texts = {kind: _texts(graph, kind, block.symbols.tolist()) for kind, block in blocks.items()}
    found = [next(texts[kind], None) for kind, _ in zip(itertools.cycle(MIX), range(number))]
    return list(dict.fromkeys(text for text in found if text is not None))


def _texts(graph: KnowledgeGraph, kind: str, symbols: list[list[int]]) -> Iterator[str]:
    return (str(unresolve(fill(STRUCTURES[kind], row), graph)) for row in symbols)


class Client:
    """A connection that is kept open."""

    async def open(self, port: int) -> Client:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self, method: str, path: str, body: object = None) -> None:
        """Send a request and read its answer, which must be a success."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        received = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(received.partition("content-length:")[2].split()[0])
        given = await self.reader.readexactly(length)
        assert received.startswith("http/1.1 200"), given


async def measure(
    server: Server, questions: Iterator[str], method: str, clients: int, seconds: float
) -> list[float]:
    """Ask for some seconds; return how long each question took."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def work() -> None:
        client = await Client().open(server.port)
        while (start := time.perf_counter()) < end:
            question = next(questions, None)
            if question is None:
                break
            await client.ask("POST", "/answer", {"question": question, "method": method})
            times.append(time.perf_counter() - start)
        client.writer.close()

    await asyncio.gather(*(work() for _ in range(clients)))
    return times


def load(arguments: argparse.Namespace, graph: KnowledgeGraph) -> None:
    """Compare the two servers."""
    rounds, method, source = arguments.rounds, arguments.method, (arguments.run, arguments.graph)
    questions = questions_of(graph, BEFORE + MOST * rounds * len(CLIENTS))
    warm, questions = questions[:BEFORE], questions[BEFORE:]
    pieces = iter([questions[i : i + MOST] for i in range(0, len(questions), MOST)])
    figures: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    with started(*source) as together, started(*source, at_once=1) as one_by_one:
        servers = {"together": together, "one by one": one_by_one}
        for server in servers.values():
            asyncio.run(measure(server, iter(warm), method, 64, seconds=600))
        for number, clients in itertools.product(range(rounds), CLIENTS):
            piece = next(pieces)
            order = list(servers) if number % 2 else list(reversed(servers))
            for name in order:
                start = time.perf_counter()
                asked = measure(servers[name], iter(piece), method, clients, arguments.seconds)
                times = np.array(asyncio.run(asked))
                rate = len(times) / (time.perf_counter() - start)
                row = (rate, *(1000 * np.percentile(times, [50, 99])))
                figures.setdefault((clients, name), []).append(row)  # type: ignore[arg-type]
    for clients in CLIENTS:
        for name in servers:
            rate, middle, slow = np.median(figures[clients, name], axis=0)
            print(
                f"{clients:3} clients, {name:10}  {rate:6.1f} questions/s   "
                f"p50 {middle:7.1f} ms   p99 {slow:7.1f} ms"
            )
        both = zip(figures[clients, "together"], figures[clients, "one by one"], strict=True)
        ratios = [with_it[0] / without[0] for with_it, without in both]
        print(f"{clients:3} clients: {median(ratios):.2f} times ({min(ratios):.2f} at least)")


def soak(arguments: argparse.Namespace, graph: KnowledgeGraph) -> None:
    """Ask one server all kinds of things for some time; print its memory."""
    questions = itertools.cycle(questions_of(graph, 20_000))
    answered = 0

    async def work(server: Server, end: float) -> None:
        nonlocal answered
        client = await Client().open(server.port)
        for number in itertools.count():
            question = next(questions)
            match number % 8:
                case 0:
                    await client.ask("POST", "/query", {"question": question})
                case 1:
                    body = {"question": question, "method": "embedding"}
                    await client.ask("POST", "/answer", body)
                case 2:
                    await client.ask("POST", "/answer", {"question": question, "explain": True})
                case 3:
                    await client.ask("POST", "/tree", {"question": question})
                case 4:
                    await client.ask("GET", "/entities?search=a&limit=20")
                case 5:
                    await client.ask("GET", "/sparql?query=SELECT*%7B?s%20?p%20?o%7DLIMIT%2020")
                case _:
                    await client.ask("POST", "/answer", {"question": question})
            answered += 1
            if time.perf_counter() > end:
                break
        client.writer.close()

    async def crowd(server: Server, seconds: float) -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(work(server, end) for _ in range(16)))

    with started(arguments.run, arguments.graph) as server:
        print(f"memory {server.memory():,.0f} MiB at the start")
        for part in range(10):
            asyncio.run(crowd(server, arguments.soak / 10))
            said = f"after {(part + 1) * arguments.soak / 10:,.0f} s and {answered:,} requests"
            print(f"memory {server.memory():,.0f} MiB {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--graph")
    parser.add_argument("--method", choices=["completed", "embedding"], default="completed")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float)
    arguments = parser.parse_args()
    graph = Run.open(arguments.run, arguments.graph).graph
    (load if arguments.soak is None else soak)(arguments, graph)


if __name__ == "__main__":
    main()
