"""Random and malformed requests: every one is answered, none with a failure of the server."""

import asyncio
import json
import random
import socket
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

QUESTION = "?X . exists ?C : parent(ann, ?C) & lives_in(?C, ?X)"
BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe",
    b"[" * 10_000,
    b'{"question": ' + b'{"not": ' * 5_000 + b'{"entity": "ann"}' + b"}" * 5_001,
    b'{"question": {"entity": "\\ud800"}}',
    b'{"question": "\\ud800"}',
    rb'{"question": "?X . parent(\"\\ud800\", ?X)"}',
    b'{"question": "?X . parent(\\"\\udfff\\", ?X)"}',
    b'{"question": "\\u0000"}',
    b'{"question": NaN}',
    b'{"question": "?X . parent(ann, ?X)", "k": 1e400}',
    b'{"question": "?X . parent(ann, ?X)", "k": 99999999999999999999999}',
    b'{"question": "?X . parent(ann, ?X)", "threshold": NaN}',
    b'{"question": "?X . parent(ann, ?X)", "question": 1}',
    b'{"question": "?X . parent(#99999999999999999999, ?X)"}',
    b'{"question": "?X . _(_, ?X)"}',
    b'{"question": "SELECT"}',
    b'{"question": "SELECT ?x { ?x <a b> <c> }"}',
    b'{"question": "DESCRIBE <x>"}',
    b'{"question": "france"}',
]
TOKENS = [*"?X.()&|!~#\"'\\,:{}<>/*+ \n\t\x00é\u202e", "exists ", "parent", "ann", "SELECT ", "?x"]
PATHS = ["/answer", "/query", "/tree", "/answer/batch", "/sparql"]


def accepted(response):
    assert response.status_code < 500, f"{response.request.url} {response.text}"
    if response.status_code >= 400:
        assert response.json()["error"]
        assert "Traceback" not in response.text
        assert "/tmp" not in response.text
        assert ".py" not in response.text
    return response


@pytest.mark.parametrize("path", PATHS)
def test_malformed_bodies(path, of_run):
    for body in BODIES:
        for kind in ("application/json", "application/x-www-form-urlencoded"):
            accepted(of_run.post(path, content=body, headers={"content-type": kind}))


@pytest.mark.slow
def test_random_questions(of_run):
    generator = random.Random(0)
    statuses = set()
    for number in range(120):
        text = list(QUESTION)
        for _ in range(generator.randint(0, 2)):
            start = generator.randrange(len(text))
            stop = start + generator.randint(0, 3)
            text[start:stop] = generator.choice(TOKENS)
        path = ["/answer", "/query", "/tree"][number % 3]
        body = json.dumps({"question": "".join(text)})
        headers = {"content-type": "application/json"}
        statuses.add(accepted(of_run.post(path, content=body, headers=headers)).status_code)
        accepted(of_run.get("/sparql", params={"query": "".join(text).encode()}))
    assert statuses == {200, 400}


def test_a_broken_body_of_head_is_no_failure(of_graph, caplog):
    address = of_graph.base_url.host, of_graph.base_url.port
    with socket.create_connection(address, timeout=10) as connection:
        head = b"HEAD /query HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"no chunk\r\n")
        while connection.recv(1000):  # until it is closed
            pass
    assert "Fatal error" not in caplog.text


@pytest.fixture
def storm(monkeypatch):
    """benchmarks/storm.py, as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import storm

    yield storm
    for name in ("storm", "serving"):
        del sys.modules[name]


def test_a_storm_passes(storm, of_run):
    """A few hundred of the requests that the script sends by the thousand."""
    requests = storm.requests_of(seed=1, number=400)
    statuses = asyncio.run(storm.send_all(of_run.base_url.port, requests))
    assert not statuses["failures"]
    assert statuses.total() == 400
    assert {"200", "400", "404", "405", "413", "415", "422"} <= set(statuses)
    assert of_run.get("/healthz").status_code == 200


def test_odd_addresses(of_run):
    for address in (
        "/entities/%00/edges",
        "/entities/%ff%fe/edges",
        "/entities//edges",
        "/entities/../edges",
        "/entities/edges",
        "/entities/%2e%2e%2f%2e%2e%2fetc%2fpasswd/edges",
        "/entities/ann/edges?offset=-1",
        "/entities/ann/edges?offset=99999999999999999999",
        "/entities/ann/edges?limit=x",
        "/entities/ann/edges?missing=101",
        "/entities/%23" + "9" * 5000 + "/edges",
        "/entities?search=%00&limit=1",
        "/entities?search=%ed%a0%80",
        "/relations?search=" + "%25" * 1000,
        "/sparql?query=%ff",
        "/sparql?" + "&".join(f"a{i}=1" for i in range(200)),
        "/%2e%2e/%2e%2e/etc/passwd",
        "/page/../app.py",
        "//evil.example/",
        "/index.html/..",
    ):
        accepted(of_run.get(address))
