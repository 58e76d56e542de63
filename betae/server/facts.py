"""Exact answers, found in processes of their own: a question that takes too long is ended.

A thread cannot be stopped, a process can. Each opens the graph, of which they share the pages. The
facts as RDF for SPARQL are written to a folder once, when the first query comes.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any

from pebble import ProcessExpired, ProcessPool

from betae.errors import QuerySyntaxError
from betae.exact.direction import hint_of_direction
from betae.exact.select import select
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Query
from betae.queries.read import read_question
from betae.server.limits import Limits
from betae.server.refusals import OF_THE_QUESTION, Refused, refusal

if TYPE_CHECKING:
    import pyoxigraph as ox

PROCESSES = 2
TOO_LARGE = "The question needs more memory than this server has for it: ask for less."
SHORT = {"betae": "urn:betae:"}  # a prefix for names that are no IRIs
RESULTS = {  # media types and what pyoxigraph calls them; the first is the default
    "application/sparql-results+json": "srj",
    "application/json": "srj",
    "application/sparql-results+xml": "srx",
    "application/xml": "srx",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
}
# What may have the word in it: <http://x/service>, ?service, x:service. None can hide a SERVICE {}.
HARMLESS = re.compile(r"<[^<>\"{}|^`\\\s]*>|[?$]\w+|:[\w-]+")
PLACE = re.compile(r"error at (\d+):(\d+)")


class Facts:
    """The processes; made when the server starts, closed when it ends."""

    def __init__(self, graph: KnowledgeGraph, limits: Limits):
        assert graph.folder is not None
        self.limits, self._folder = limits, TemporaryDirectory(prefix="betae-sparql-")
        self._store: Future[None] | None = None
        self._pool = ProcessPool(
            PROCESSES,
            initializer=_start,
            initargs=(graph.folder, Path(self._folder.name) / "store", limits),
            context=multiprocessing.get_context("spawn"),
        )
        self._pool.schedule(len, args=("",))  # starts them

    async def query(self, question: str | Query, edges: Edges, limit: int) -> dict[str, Any]:
        """Return the rows that answer a question of any shape."""
        found: dict[str, Any] = await self._call(_query, question, edges, limit)
        return found

    async def sparql(self, query: str, media_type: str) -> bytes:
        """Return the result of a SPARQL query in one of the formats of RESULTS."""
        if self._store is None or (self._store.done() and self._store.exception()):
            self._store = self._pool.schedule(_write_store)
        # It is written to its end, even if the first who asked does not wait for it.
        await asyncio.shield(asyncio.wrap_future(self._store))
        found: bytes = await self._call(_sparql, query, media_type)
        return found

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a process; when the caller is cancelled, the process is ended."""
        try:
            return await asyncio.wrap_future(self._pool.schedule(function, args=arguments))
        except ProcessExpired:
            raise Refused(400, TOO_LARGE) from None

    def close(self) -> None:
        """End the processes."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()
        self._folder.cleanup()


# ---- in a process -------------------------------------------------------------------------------

_here: dict[str, Any] = {}  # what `_start` was given


def _start(folder: Path, store: Path, limits: Limits) -> None:
    # Python's own handler would wait until pyoxigraph returns.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _here.update(graph=KnowledgeGraph.open(folder, verify=False), store=store, limits=limits)
    with suppress(ImportError):  # not on Windows
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = limits.memory_bytes
        wanted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def _query(question: str | Query, edges: Edges, limit: int) -> dict[str, Any]:
    graph, limits = _here["graph"], _here["limits"]
    try:
        if isinstance(question, str):
            limits.check_question(read_question(question, graph.prefixes))
        found = select(graph, question, edges, limit + 1)
        rows = list(islice(found, limit + 1))
        hint = None if rows else hint_of_direction(graph, question, edges)
    except OF_THE_QUESTION as error:
        raise refusal(error) from None
    except MemoryError:
        raise Refused(400, TOO_LARGE) from None
    return {
        "variables": list(found.variables),
        "rows": rows[:limit],
        "more": len(rows) > limit,
        "edges": edges,
        "note": hint,
    }


def _write_store() -> None:
    """Write the facts as `betae export graph facts.nt` does, into a store to be queried."""
    import pyoxigraph as ox

    from betae.graph.convert import labels_by_name
    from betae.graph.rdf import write_rdf

    graph: KnowledgeGraph = _here["graph"]
    with TemporaryFile() as file:
        write_rdf(graph.to_polars(), file, ox.RdfFormat.N_TRIPLES, labels_by_name(graph), {})
        file.seek(0)
        shutil.rmtree(_here["store"], ignore_errors=True)  # what a process that died has left
        store = ox.Store(str(_here["store"]))
        store.bulk_load(input=file, format=ox.RdfFormat.N_TRIPLES)
        store.flush()
        del store  # closes it


@cache
def _open_store() -> ox.Store:
    import pyoxigraph as ox

    return ox.Store.read_only(str(_here["store"]))


def _sparql(query: str, media_type: str) -> bytes:
    import pyoxigraph as ox

    if "service" in HARMLESS.sub("", query).lower():
        raise Refused(400, "SERVICE asks other servers: it is refused, in strings too.")
    output = _Bounded(_here["limits"].result_bytes)
    try:
        results = _open_store().query(query, prefixes=SHORT | dict(_here["graph"].prefixes))
        if isinstance(results, ox.QueryTriples):
            raise Refused(400, "This endpoint answers SELECT and ASK.")
        form = ox.QueryResultsFormat.from_extension(RESULTS[media_type])
        results.serialize(output, form)
    except SyntaxError as error:
        raise refusal(_syntax_error(query, error)) from None
    return output.getvalue()


def _syntax_error(query: str, error: SyntaxError) -> Exception:
    """Point to where pyoxigraph stopped; what it expected there are pages of characters."""
    place = PLACE.search(str(error))
    if place is None:
        return QuerySyntaxError(f"This is not valid SPARQL: {error}.", query, 0)
    before = query.split("\n")[: int(place[1]) - 1]
    position = sum(len(line) + 1 for line in before) + int(place[2]) - 1
    return QuerySyntaxError("This is not valid SPARQL.", query, position)


class _Bounded(BytesIO):
    """A file in memory that refuses to grow too large."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.most:
            raise Refused(400, f"The result has more than {self.most:,} bytes: add a LIMIT.")
        return super().write(data)
