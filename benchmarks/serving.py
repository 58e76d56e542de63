"""A server in a process of its own, for what measures or torments one.

    python benchmarks/serving.py RUN|GRAPH [--graph FOLDER] [--at-once 64]

serves at a free port, and says which. `--at-once 1` answers questions one by one, whoever waits.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from betae import KnowledgeGraph, Run
from betae.server.app import bind, run_server
from betae.server.limits import Limits


class Server:
    """The process, and where it listens."""

    def __init__(self, process: subprocess.Popen[str], port: int):
        self.process, self.port = process, port

    def memory(self) -> float:
        """Return the memory of the process and of those that it has started, in MiB (Linux)."""
        waiting, pages = [str(self.process.pid)], 0
        while waiting:
            folder = Path("/proc") / waiting.pop()
            try:
                pages += int((folder / "statm").read_text().split()[1])
                for children in folder.glob("task/*/children"):
                    waiting += children.read_text().split()
            except OSError:
                continue  # it has ended
        return pages * 4096 / 2**20


@contextmanager
def started(source: str, graph: str | None = None, at_once: int = 64) -> Iterator[Server]:
    """Start a server, and end it afterwards."""
    command = [sys.executable, __file__, source, "--at-once", str(at_once)]
    command += ["--graph", graph] if graph else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.strip().isdigit():
                raise SystemExit("The server did not start.")
            yield Server(process, int(line))
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--at-once", type=int, default=Limits.questions_per_batch)
    arguments = parser.parse_args()
    with bind("127.0.0.1", 0) as listening:
        folder = Path(arguments.source)
        is_graph = (folder / "manifest.json").is_file()
        source = KnowledgeGraph.open(folder) if is_graph else Run.open(folder, arguments.graph)
        port = listening.getsockname()[1]
        limits = Limits(questions_per_batch=arguments.at_once)
        run_server(
            source, listening, "localhost", limits=limits, ready=lambda: print(port, flush=True)
        )


if __name__ == "__main__":
    main()
