"""Worker processes that read questions and find exact answers, each within a time limit.

A thread cannot be stopped; a process can. Every worker opens the graph (its pages are shared) and
cannot connect to the network. Reading, exact answers and SPARQL have a pool each, so that long
SPARQL queries delay no other questions. The first one writes the facts to an RDF store.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from pebble import ProcessExpired, ProcessPool

from betae.exact.answers import answers, sure_answers
from betae.exact.isolated import deny_network
from betae.exact.predicted import AnswerRow, finish, read_predicted
from betae.exact.select import hint_of_direction, select
from betae.exact.sparql import KEYWORD, NO_SERVICE, Solutions, open_store, store_folder
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.english import read_english
from betae.queries.read import is_sparql, read_question
from betae.queries.structures import has_negation
from betae.server.browse import describe_tree
from betae.server.limits import Limits, Refused
from betae.server.steps import next_steps

T = TypeVar("T")
PROCESSES = 2  # of each pool
TOO_LONG = "The question takes too long to read: make it simpler."
TOO_LARGE = "The question needs more memory than the server allows: ask for less."
RESULTS = {  # media type -> format name of pyoxigraph; the first is the default
    "application/sparql-results+json": "srj",
    "application/json": "srj",
    "application/sparql-results+xml": "srx",
    "application/xml": "srx",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
}
TRIPLES = {  # the same for CONSTRUCT and DESCRIBE
    "application/n-triples": "nt",
    "text/turtle": "ttl",
    "application/rdf+xml": "rdf",
}


class Facts:
    """Pools of worker processes, started with the server."""

    def __init__(self, graph: KnowledgeGraph, limits: Limits):
        assert graph.folder is not None
        self.limits, self._folder = limits, TemporaryDirectory(prefix="betae-sparql-")
        self._store: Future[None] | None = None
        self._pools = [
            ProcessPool(
                PROCESSES,
                initializer=_start,
                initargs=(graph.folder, Path(self._folder.name) / "store", limits),
                context=multiprocessing.get_context("spawn"),
            )
            for _ in range(3)
        ]
        self._readers, self._exact, self._engines = self._pools
        self._first = [pool.schedule(len, args=("",)) for pool in self._pools]  # starts them

    async def started(self) -> None:
        """Wait for the processes, which take some seconds to start."""
        await asyncio.gather(*map(asyncio.wrap_future, self._first))

    async def read(self, question: str | Query) -> tuple[Query, int | None, tuple[str, ...]]:
        """Read a question into a tree of ids, with the LIMIT of SPARQL and notes on its names."""
        return await _result(self._readers, _read, question, seconds=self.limits.read_seconds)

    async def read_english(self, text: str) -> dict[str, Any]:
        """Return the tree of ids that an English text may mean, or None, and the nearest names."""
        return await _result(self._readers, _english, text, seconds=self.limits.read_seconds)

    async def query(self, question: str | Query, edges: Edges, limit: int) -> dict[str, Any]:
        """Return the rows that answer a question of any shape."""
        # Read twice: the path in a question cannot go to another process.
        await _result(self._readers, _check, question, seconds=self.limits.read_seconds)
        return await _result(self._exact, _query, question, edges, limit)

    async def tree(self, query: Query, edges: Edges) -> dict[str, Any]:
        """Return the computation tree of a query of ids, with the exact answers of each node."""
        return await _result(self._exact, _tree, query, edges)

    async def steps(self, query: Query) -> dict[str, Any]:
        """Return what can be asked next about the exact answers of a query of ids."""
        return await _result(self._exact, _steps, query)

    async def answers(self, query: Query, start: int, stop: int) -> dict[str, Any]:
        """Return a page of the known and of the assumed exact answers of a query of ids."""
        return await _result(self._exact, _answers, query, start, stop)

    async def sparql(self, query: str, accepted: Sequence[str]) -> tuple[bytes, str]:
        """Return the result of a SPARQL query, and its media type.

        It is the first of `accepted` that RESULTS (or TRIPLES, for CONSTRUCT and DESCRIBE) has.
        """
        if self._store is None or (self._store.done() and self._store.exception()):
            self._store = self._engines.schedule(_write_store)
        # Shielded: it is written to its end even if the first client leaves.
        await asyncio.shield(asyncio.wrap_future(self._store))
        return await _result(self._engines, _sparql, query, accepted)

    async def read_predicted(self, query: str) -> tuple[Query, str]:
        """Read the pattern of SPARQL with probabilities: its tree, and the variable it is for."""
        return await _result(
            self._readers, _read_predicted, query, seconds=self.limits.read_seconds
        )

    async def finish(
        self, query: str, variable: str, rows: list[AnswerRow], accepted: Sequence[str]
    ) -> tuple[bytes, str]:
        """Evaluate the rest of SPARQL with probabilities on the answers of its pattern."""
        return await _result(self._engines, _finish, query, variable, rows, accepted)

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join()
        self._folder.cleanup()


async def _result(
    pool: ProcessPool, function: Callable[..., T], *arguments: Any, seconds: float | None = None
) -> T:
    """Call a function in a worker; kill it after `seconds`, or if the caller is cancelled."""
    try:
        return await asyncio.wrap_future(pool.schedule(function, arguments, timeout=seconds))
    except TimeoutError:
        raise Refused(400, TOO_LONG) from None
    except (ProcessExpired, MemoryError, RecursionError):
        raise Refused(400, TOO_LARGE) from None


# ---- in a process -------------------------------------------------------------------------------

_here: dict[str, Any] = {}  # the arguments of `_start`


def _start(folder: Path, store: Path, limits: Limits) -> None:
    deny_network()
    with suppress(AttributeError):  # not on Windows
        os.nice(5)  # the event loop comes first
    # Python's own handler would wait until pyoxigraph returns.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _here.update(graph=KnowledgeGraph.open(folder, verify=False), store=store, limits=limits)
    with suppress(ImportError):  # not on Windows
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = limits.memory_bytes
        wanted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def _read(question: str | Query) -> tuple[Query, int | None, tuple[str, ...]]:
    limits = _here["limits"]
    read = read_question(question, _here["graph"], limits.nodes)
    limits.check_tree(read.tree)
    return read.tree, read.limit, read.notes


def _english(text: str) -> dict[str, Any]:
    return read_english(_here["graph"], text)


def _check(question: str | Query) -> None:
    limits = _here["limits"]
    if isinstance(question, str) and is_sparql(question):
        select(_here["graph"], question)  # raises if it is not a valid SELECT
        return
    limits.check_question(read_question(question, _here["graph"], limits.nodes))


def _query(question: str | Query, edges: Edges, limit: int) -> dict[str, Any]:
    graph = _here["graph"]
    is_text = isinstance(question, str) and is_sparql(question)
    asked = question if is_text else read_question(question, graph, _here["limits"].nodes)
    found = select(graph, asked, edges, limit + 1)
    rows = list(islice(found, limit + 1))
    return {
        "variables": list(found.variables),
        "rows": rows[:limit],
        "more": len(rows) > limit,
        "edges": edges,
        "note": _note(found.notes, None if rows else hint_of_direction(graph, question, edges)),
    }


def _note(notes: Sequence[str], hint: str | None) -> str | None:
    """Return notes and a hint as sentences."""
    return " ".join([*(f"{each}." for each in notes), *([hint] if hint else [])]) or None


def _tree(query: Query, edges: Edges) -> dict[str, Any]:
    return describe_tree(_here["graph"], query, edges)


def _steps(query: Query) -> dict[str, Any]:
    return next_steps(_here["graph"], query)


def _answers(query: Query, start: int, stop: int) -> dict[str, Any]:
    graph = _here["graph"]
    found = answers(graph, query)
    certain = sure_answers(graph, [query])[0] if has_negation(query) else found
    ids = {"known": certain, "assumed": np.setdiff1d(found, certain)}
    return {
        "note": None if len(found) else hint_of_direction(graph, query),
        **{f"num_{status}": len(entities) for status, entities in ids.items()},
        **{
            status: [
                (graph.entities[i], graph.entity_label(i)) for i in entities[start:stop].tolist()
            ]
            for status, entities in ids.items()
        },
    }


def _write_store() -> None:
    """Write the facts to a store for queries, in the folder of the graph if possible."""
    store_folder(_here["graph"], "all", _here["store"])


def _read_predicted(query: str) -> tuple[Query, str]:
    limits = _here["limits"]
    limits.check_text(query)
    question = read_predicted(query, _here["graph"])
    limits.check_tree(question.tree)
    return question.tree, question.variables[0].name


def _finish(
    query: str, variable: str, rows: list[AnswerRow], accepted: Sequence[str]
) -> tuple[bytes, str]:
    return _serialized(finish(query, _here["graph"], variable, rows), accepted)


def _sparql(query: str, accepted: Sequence[str]) -> tuple[bytes, str]:
    store = open_store(_here["graph"], "all", _here["store"])
    return _serialized(Solutions(_here["graph"], query, "all"), accepted, store)


def _serialized(
    solutions: Solutions, accepted: Sequence[str], store: Any = None
) -> tuple[bytes, str]:
    import pyoxigraph as ox

    output = _Bounded(_here["limits"].result_bytes)
    is_construct = solutions.kind == "construct"
    known, forms = (TRIPLES, ox.RdfFormat) if is_construct else (RESULTS, ox.QueryResultsFormat)
    media_type = next((kind for kind in accepted if kind in known), next(iter(known)))
    results = solutions.evaluate(store)
    try:
        results.serialize(output, forms.from_extension(known[media_type]))
    except RuntimeError as error:
        raise Refused(400, f"The query cannot be evaluated: {error}.") from None
    except OSError:
        if KEYWORD.search(solutions.text):
            raise Refused(400, NO_SERVICE) from None
        raise
    return output.getvalue(), media_type


class _Bounded(BytesIO):
    """A file in memory with a maximum size."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.most:
            raise Refused(400, f"The result is larger than {self.most:,} bytes: add a LIMIT.")
        return super().write(data)
