"""Random and malformed requests to a server: none may fail in it, and its memory must not grow.

    python benchmarks/storm.py RUN|GRAPH [--graph FOLDER] [--requests 10000] [--seed 0]

Raw bytes on sockets: broken HTTP, odd methods, paths and headers, JSON with bytes changed, trees of
any depth, huge numbers, halves of characters, questions with pieces exchanged. It prints how often
each status came, and exits with 1 if one was 5xx, if a whole request got no answer, if the server
ended, or if it has grown by more than a tenth since the first fifth of the requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from serving import Server, started

AT_ONCE = 8  # connections
PATIENCE = 40.0  # seconds to wait for an answer; the server itself gives up after 30
GLANCE = 0.1  # to wait for the answer to half a request
MOST_GROWTH = 1.1

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
TEXTS = ["NaN", "Infinity", "-0", "1e999", "1" * 5000, '"\\udfff"', '"\\u0000"', "[" * 3000]


class Raw(NamedTuple):
    """The bytes to send, and whether they are a request to its end."""

    content: bytes
    is_whole: bool = True


def requests_of(seed: int, number: int) -> list[Raw]:
    """Return requests, the same for the same seed."""
    choose = random.Random(seed)
    makers: list[Callable[[random.Random], Raw]] = [_asked, _asked, _asked, _damaged, _odd, _noise]
    return [choose.choice(makers)(choose) for _ in range(number)]


def _asked(choose: random.Random) -> Raw:
    """Return a request whose body is odd."""
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
        place = choose.randrange(len(changed) + 1)
        changed[place : place + choose.randint(0, 2)] = choose.randbytes(choose.randint(0, 2))
    return bytes(changed)


def _http(method: str, path: str, headers: list[str], body: bytes) -> Raw:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return Raw(head.encode("latin-1", errors="replace") + body)


def _odd(choose: random.Random) -> Raw:
    """Return a request with an odd method, path or headers; a server may wait for more of it."""
    path = choose.choice([*ASKED, *GOT, *PAGE])
    parts = ["%00", "%ff", "%2e%2e", "..", "//", "?", "#", ";", "\\", "%", "é", "x" * 70_000, " "]
    for _ in range(choose.randint(0, 2)):
        place = choose.randrange(len(path) + 1)
        path = path[:place] + choose.choice(parts) + path[place:]
    path = choose.choice([path] * 8 + ["*", "http://evil.example/", "", "localhost:80"])
    headers = choose.sample(HEADERS, choose.choice([0, 1, 1, 2, 5]))
    if choose.random() < 0.05:
        headers += [f"X-{i}: {i}" for i in range(500)]
    body = choose.randbytes(choose.choice([0, 0, 5, 1000, 300_000]))
    is_plain = not headers and "#" not in path
    return Raw(_http(choose.choice(METHODS), path, headers, body).content, is_plain)


def _damaged(choose: random.Random) -> Raw:
    """Return a request of which bytes were changed, its lines too, or of which the end is cut."""
    content = _flipped(choose, _flipped(choose, _asked(choose).content))
    if choose.random() < 0.2:
        content = content[: choose.randrange(1, len(content))]
    if choose.random() < 0.1:
        content += content  # another one, on the same connection
    return Raw(content, is_whole=False)


def _noise(choose: random.Random) -> Raw:
    return Raw(choose.randbytes(choose.choice([1, 10, 1000])) + b"\r\n\r\n", is_whole=False)


# ---- sending ------------------------------------------------------------------------------------


async def send(port: int, request: Raw) -> str:
    """Send a request on a connection of its own; return the status that comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.content)
        patience = PATIENCE if request.is_whole else GLANCE
        line = await asyncio.wait_for(reader.readline(), patience)
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
    """Send requests, some at the same time; return how often each status came."""
    statuses: Counter[str] = Counter()
    waiting = iter(requests)

    async def client() -> None:
        for request in waiting:
            status = await send(port, request)
            statuses[status] += 1
            if is_failure(status, request):
                print(f"{status}: {request.content[:500]!r}", file=sys.stderr)
                statuses["failures"] += 1

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return statuses


def is_failure(status: str, request: Raw) -> bool:
    """Tell whether the server has failed at a request."""
    if status.startswith("5") or status in ("no answer", "no HTTP"):
        return True
    return status == "closed" and request.is_whole and len(request.content) < 2**16


def storm(server: Server, requests: list[Raw]) -> bool:
    """Send requests to a server and print what came of it; return whether all is well."""
    first = len(requests) // 5
    statuses = asyncio.run(send_all(server.port, requests[:first]))
    before = server.memory()
    statuses += asyncio.run(send_all(server.port, requests[first:]))
    after = server.memory()
    print("  ".join(f"{status}: {number:,}" for status, number in sorted(statuses.items())))
    print(f"memory {before:,.0f} MiB after {first:,} requests, {after:,.0f} MiB at the end")
    is_there = server.process.poll() is None
    return is_there and not statuses["failures"] and after < MOST_GROWTH * before


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
