"""Hostile requests to a server: none may get a 5xx, and memory must stay bounded.

    python benchmarks/storm.py RUN|GRAPH [--graph FOLDER] [--requests 10000] [--seed 0]

Raw bytes on sockets: broken HTTP, odd methods, paths and headers, JSON with bytes changed, trees of
any depth, huge numbers, lone surrogates, questions with parts exchanged, questions that grow when
they are read, hidden SERVICE, tiny chunks, floods of errors. Prints how often each status came, the
memory, and the slowest /healthz. Exits with 1 if there was a 5xx, if a complete request got no
answer, if another server was contacted, if the server ended, or if it grew by more than a tenth
after the first fifth of the requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Event, Process, Queue
from queue import Empty
from statistics import median
from typing import NamedTuple
from urllib.parse import quote

from serving import Server, started

CONNECTIONS = 8  # at the same time
TIMEOUT = 40.0  # seconds; the server's own is 30
HALF_TIMEOUT = 0.1  # for the answer to half a request
MAX_GROWTH = 1.1
TRAP = 18_999  # a port that no query may reach

ASKED = ["/answer", "/answer/batch", "/query", "/tree"]
GOT = ["/entities", "/relations", "/entities/a/edges", "/model", "/healthz", "/metrics", "/sparql"]
PAGE = ["/", "/main.js", "/index.html", "/openapi.json", "/favicon.ico", "/nowhere"]
METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get"]
KINDS = [
    "application/json",
    "application/x-www-form-urlencoded",
    "application/sparql-query",
    "application/sparql-update",
    "multipart/form-data; boundary=x",
    "text/plain; charset=utf-16",
    "application/json; charset=\xff",
    "",
    "//",
]
HEADERS = [
    "Host: evil.example",
    "Host:",
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Content-Length: x",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Expect: 100-continue",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Authorization: Bearer \xff\xfe",
    "Accept: */*;q=x, text/csv;q=-1,,;",
    "Accept-Encoding: br;q=1e999",
    "Range: bytes=5-1",
    "If-None-Match: *",
    "If-Modified-Since: yesterday",
    "Cookie: " + "a=b; " * 200,
    "X-Long: " + "x" * 70_000,
    "X-Null: \x00",
    " folded: yes",
    "no colon",
    "\r\n",
]
QUESTIONS = [
    "?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)",
    "?X . capital(France, ?X) | !borders(France, ?X)",
    "?C, ?X . located_in(?C, Europe) & capital(?C, ?X)",
    "SELECT ?x { <France> <capital> ?x } LIMIT 3",
    "SELECT DISTINCT ?x ?y { ?x betae:capital ?y FILTER(?x != ?y) } ORDER BY ?y LIMIT 5",
    "ASK { betae:France betae:capital ?x }",
    "CONSTRUCT { ?a ?b ?c } { ?a ?b ?c }",
    "INSERT DATA { <urn:a> <urn:b> <urn:c> }",
]
PIECES = [
    *"?X.()&|!~#\"'\\,:{}<>/*+-^=@$%_ \n\t\x00é\u202e\U0001f600",
    "exists ",
    "France",
    "SELECT ",
]
PIECES += ["?x", "capital", "#1", "#99999999999999999999", "FILTER", "OPTIONAL", "UNION", "LIMIT 1"]
VALUES = [None, True, -1, 0, 2**31, 2**63, 10**400, 1.5, 1e308, "", "all", "\ud800", [], {}, [[]]]
BOMBS = [  # questions that grow when they are read
    "SELECT ?x { <France> " + "(" * 12 + "<borders>" + "+)" * 12 + " ?x }",
    "SELECT ?x { <France> " + "/".join(["(<borders>|<capital>)"] * 16) + " ?x }",
    "SELECT ?x { <France> " + "/".join(["(<borders>|^<borders>)*"] * 30) + " ?x }",
    "SELECT ?x { <France> <borders> ?x FILTER(" + "(" * 300 + "?x = <Spain>" + ")" * 300 + ") }",
    "SELECT ?x " + "{" * 300 + "<France> <borders> ?x" + "}" * 300,
    "?X . " + "(" * 3000 + "borders(France, ?X)" + ")" * 3000,
    "?X . " + "!" * 7000 + "borders(France, ?X)",
    "?X . " + " & ".join(["(borders(France, ?X) | borders(Spain, ?X))"] * 14),
    "?X . " + "".join(f"exists ?V{i} : " for i in range(400)) + "borders(France, ?X)",
    "?X . borders(" + "Frence" * 1200 + ", ?X)",
]
HIDDEN = [  # SERVICE, and what exhausts a SPARQL engine
    f"SELECT * {{ FILTER(1<2)SERVICE#>\n<http://127.0.0.1:{TRAP}/x> {{ ?s ?p ?o }} }}",
    f"SELECT * {{ ?a ?b '<'SERVICE#>\n<http://127.0.0.1:{TRAP}/x> {{ ?s ?p ?o }} }}",
    f"SELECT * {{ SERVICE SILENT <http://127.0.0.1:{TRAP}/x> {{ ?s ?p ?o }} }}",
    f"SELECT * {{ \\u0053ERVICE <http://127.0.0.1:{TRAP}/x> {{ ?s ?p ?o }} }}",
    "SELECT (<urn:unknown>(1) AS ?x) {}",
    "SELECT * " + "{" * 9000 + "}" * 9000,
    "SELECT (" + "!" * 15000 + "1 AS ?x) {}",
    "SELECT (REGEX('" + "a" * 5000 + "', '(a+)+$') AS ?x) {}",
    "SELECT (REGEX('a', '(((a{99}){99}){99}){99}') AS ?x) {}",
    "SELECT * { ?s " + "(" * 9 + "<urn:none>" + ")*" * 9 + " ?o } LIMIT 5",
]
FLOODS = [  # each validation error, chunk or header costs time
    b'{"questions": [' + b"1," * 80_000 + b"1]}",
    b'{"question": {"and": [' + b'{"entity": 7},' * 12_000 + b'{"x": 1}]}}',
    b'{"question": ' + b'{"and": [{"entity": 1}, ' * 200 + b"1" + b"]}" * 200 + b"}",
    b"{" + b",".join(b'"%d": 1' % i for i in range(15_000)) + b"}",
    b'{"question": "a", "limit": ' + b"1" * 200_000 + b"}",
]
TEXTS = ["NaN", "Infinity", "-0", "1e999", "1" * 5000, '"\\udfff"', '"\\u0000"', "[" * 3000]


class Raw(NamedTuple):
    """The bytes to send, and whether they are a complete request."""

    content: bytes
    is_whole: bool = True


def requests_of(seed: int, number: int) -> list[Raw]:
    """Return hostile requests, the same for the same seed."""
    choose = random.Random(seed)
    makers: list[Callable[[random.Random], Raw]] = [_asked, _asked, _asked, _damaged, _odd, _noise]
    makers.append(_bomb)
    return [choose.choice(makers)(choose) for _ in range(number)]


def _asked(choose: random.Random) -> Raw:
    """Make a request with an odd body."""
    if choose.random() < 0.25:
        query = quote(_question(choose).encode(errors="surrogatepass"))
        parameters = "&".join(
            [f"{choose.choice(['query', 'search', 'update', 'limit', 'missing'])}={query}"]
            * choose.randint(1, 2)
        )
        return _http("GET", f"{choose.choice(GOT)}?{parameters}", [], b"")
    name = choose.choice(["question", "question", "questions", "query"])
    question = _tree(choose, 0) if choose.random() < 0.4 else _question(choose)
    fields = {name: [question] if name == "questions" else question}
    for key in ("k", "limit", "method", "edges", "only", "threshold", "explain", "dims", "x"):
        if choose.random() < 0.1:
            fields[key] = choose.choice(VALUES)
    body = json.dumps(fields)
    if choose.random() < 0.1:
        body = body.replace(choose.choice(list('0123456789"{[')), choose.choice(TEXTS), 1)
    content, kind = body.encode(errors="surrogatepass"), "application/json"
    if choose.random() < 0.1:
        kind = choose.choice(KINDS)
    path = choose.choice([*ASKED, "/sparql"])
    return _http("POST", path, [f"Content-Type: {kind}"], _flipped(choose, content))


def _bomb(choose: random.Random) -> Raw:
    """Make a request that is small, and costs much unless it is refused."""
    kind = choose.random()
    if kind < 0.1:
        body = b"1\r\n \r\n" * choose.choice([100, 30_000]) + b"0\r\n\r\n"
        lines = ["POST /query HTTP/1.1", "Host: localhost", "Connection: close"]
        head = "\r\n".join([*lines, "Transfer-Encoding: chunked"]) + "\r\n\r\n"
        return Raw(head.encode() + body)
    if kind < 0.3:
        body = choose.choice(FLOODS)
        return _http("POST", choose.choice(ASKED), ["Content-Type: application/json"], body)
    if kind < 0.6:
        query = choose.choice(HIDDEN).encode()
        return _http("POST", "/sparql", ["Content-Type: application/sparql-query"], query)
    question = choose.choice(BOMBS)
    fields = {"questions": [question]} if kind < 0.65 else {"question": question}
    path = "/answer/batch" if kind < 0.65 else choose.choice(["/answer", "/query", "/tree"])
    return _http("POST", path, ["Content-Type: application/json"], json.dumps(fields).encode())


def _question(choose: random.Random) -> str:
    text = list(choose.choice(QUESTIONS))
    for _ in range(choose.randint(0, 3)):
        start = choose.randrange(len(text) + 1)
        text[start : start + choose.randint(0, 3)] = choose.choice(PIECES)
    return "".join(text)


def _tree(choose: random.Random, depth: int) -> object:
    operator = choose.choice(["entity", "relation", "and", "or", "not", "not", "x", "value"])
    if operator == "value":
        return choose.choice(VALUES)
    if operator == "entity" or depth > 30:
        return {"entity": choose.choice(["France", "Europe", "nobody", "_", "", "\ud800", "#1"])}
    if operator in ("and", "or"):
        return {operator: [_tree(choose, depth + 5) for _ in range(choose.randint(0, 3))]}
    if operator == "relation":
        names = ["capital", "~located_in", "~", "_", "~~borders", "\\~x"]
        return {"relation": choose.choice(names), "of": _tree(choose, depth + 1)}
    tree = _tree(choose, depth + 5)
    for _ in range(choose.choice([1, 2] if depth else [1, 2, 20, 190, 300])):
        tree = {operator: tree}
    return tree


def _flipped(choose: random.Random, content: bytes) -> bytes:
    """Change a few bytes, or none."""
    changed = bytearray(content)
    for _ in range(choose.choice([0, 0, 0, 1, 3])):
        start = choose.randrange(len(changed) + 1)
        changed[start : start + choose.randint(0, 2)] = choose.randbytes(choose.randint(0, 2))
    return bytes(changed)


def _http(method: str, path: str, headers: list[str], body: bytes) -> Raw:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return Raw(head.encode("latin-1", errors="replace") + body)


def _odd(choose: random.Random) -> Raw:
    """Make a request with an odd method, path or headers; a server may wait for more."""
    path = choose.choice([*ASKED, *GOT, *PAGE])
    parts = ["%00", "%ff", "%2e%2e", "..", "//", "?", "#", ";", "\\", "%", "é", "x" * 70_000, " "]
    for _ in range(choose.randint(0, 2)):
        start = choose.randrange(len(path) + 1)
        path = path[:start] + choose.choice(parts) + path[start:]
    path = choose.choice([path] * 8 + ["*", "http://evil.example/", "", "localhost:80"])
    headers = choose.sample(HEADERS, choose.choice([0, 1, 1, 2, 5]))
    if choose.random() < 0.05:
        headers += [f"X-{i}: {i}" for i in range(500)]
    body = choose.randbytes(choose.choice([0, 0, 5, 1000, 300_000]))
    is_plain = not headers and "#" not in path
    return Raw(_http(choose.choice(METHODS), path, headers, body).content, is_plain)


def _damaged(choose: random.Random) -> Raw:
    """Make a request with changed bytes, in its head too, or cut short."""
    content = _flipped(choose, _flipped(choose, _asked(choose).content))
    if choose.random() < 0.2:
        content = content[: choose.randrange(1, len(content))]
    if choose.random() < 0.1:
        content += content  # a second one on the same connection
    return Raw(content, is_whole=False)


def _noise(choose: random.Random) -> Raw:
    return Raw(choose.randbytes(choose.choice([1, 10, 1000])) + b"\r\n\r\n", is_whole=False)


# ---- sending ------------------------------------------------------------------------------------


async def send(port: int, request: Raw) -> str:
    """Send a request on a new connection; return the status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.content)
        timeout = TIMEOUT if request.is_whole else HALF_TIMEOUT
        line = await asyncio.wait_for(reader.readline(), timeout)
        words = line.split()
        if not line:
            return "closed"
        return words[1].decode() if line.startswith(b"HTTP/1.1 ") else "no HTTP"
    except TimeoutError:
        return "no answer" if request.is_whole else "half a request"
    except ConnectionError:
        return "closed"
    finally:
        writer.close()


async def send_all(port: int, requests: list[Raw]) -> Counter[str]:
    """Send requests over several connections; count each status."""
    statuses: Counter[str] = Counter()
    waiting = iter(requests)

    async def client() -> None:
        for request in waiting:
            status = await send(port, request)
            statuses[status] += 1
            if is_failure(status, request):
                print(f"{status}: {request.content[:500]!r}", file=sys.stderr)
                statuses["failures"] += 1

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return statuses


def is_failure(status: str, request: Raw) -> bool:
    """Tell whether the server failed."""
    if status.startswith("5") or status in ("no answer", "no HTTP"):
        return True
    return status == "closed" and request.is_whole and len(request.content) < 2**16


def _poll_health(port: int, is_done: Event, times: Queue[float]) -> None:
    """Time /healthz until `is_done`; in a process of its own, not to wait for the storm."""
    request = _http("GET", "/healthz", [], b"").content
    while not is_done.wait(0.02):
        started = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
            connection.sendall(request)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        times.put(time.perf_counter() - started)


async def _storm(port: int, requests: list[Raw]) -> tuple[Counter[str], int]:
    """Send requests; return the statuses, and the number of connections to the trap."""
    num_trapped = 0

    def trap(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_trapped
        num_trapped += 1
        writer.close()

    async with await asyncio.start_server(trap, "127.0.0.1", TRAP):
        return await send_all(port, requests), num_trapped


def storm(server: Server, requests: list[Raw]) -> bool:
    """Send requests to a server and print the figures; return whether all is well."""
    is_done, measured, first = Event(), Queue(), len(requests) // 5
    polling = Process(target=_poll_health, args=(server.port, is_done, measured))
    polling.start()
    statuses, num_trapped = asyncio.run(_storm(server.port, requests[:first]))
    before = server.memory()
    more_statuses, more_trapped = asyncio.run(_storm(server.port, requests[first:]))
    after, statuses, num_trapped = (
        server.memory(),
        statuses + more_statuses,
        num_trapped + more_trapped,
    )
    is_done.set()
    times = []
    while polling.is_alive() or not measured.empty():
        with suppress(Empty):
            times.append(1000 * measured.get(timeout=0.2))
    print("  ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items())))
    print(f"memory {before:,.0f} MiB after {first:,} requests, {after:,.0f} MiB at the end")
    slow, slowest = sorted(times)[len(times) * 99 // 100], max(times)
    print(f"/healthz: median {median(times):.1f} ms, 99% {slow:.0f} ms, slowest {slowest:.0f} ms")
    print(f"{num_trapped} connections to another server")
    is_well = server.process.poll() is None and polling.exitcode == 0 and not num_trapped
    return is_well and not statuses["failures"] and after < MAX_GROWTH * before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--graph")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with started(arguments.source, arguments.graph) as server:
        if not storm(server, requests_of(arguments.seed, arguments.requests)):
            sys.exit(1)


if __name__ == "__main__":
    main()
