"""What is refused, and how: limits, token, Host; nothing of this machine is told."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from betae.server import browse
from betae.server.limits import Limits
from tests.server.conftest import serving

HALF_A_REQUEST = b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
QUESTION = {"question": "?X . parent(ann, ?X)"}


def error_of(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()["error"]


# ---- errors -------------------------------------------------------------------------------------


def test_errors_have_a_place_and_the_closest_names(of_run):
    response = of_run.post("/answer", json={"question": "?X .\n parent(ann ?X)"})
    assert error_of(response, 400).endswith("^")
    assert (response.json()["line"], response.json()["column"]) == (2, 13)
    response = of_run.post("/answer", json={"question": "?X . parent(anne, ?X)"})
    assert "'anne'" in error_of(response, 400)
    assert "ann" in response.json()["closest"]
    response = of_run.post("/query", json={"question": "?X . parents(ann, ?X)"})
    assert response.json()["closest"] == ["parent"]
    response = of_run.post("/tree", json={"question": "?X, ?Y . parent(?X, ?Y)"})
    assert "betae query" in error_of(response, 400)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "question"),
        ({**QUESTION, "k": 0}, "k"),
        ({**QUESTION, "threshold": 2}, "threshold"),
        ({**QUESTION, "method": "guess"}, "method"),
        ({**QUESTION, "edges": ["all"]}, "edges"),
        ({**QUESTION, "colour": "red"}, "colour"),
        ({"question": 7}, "question"),
        ([], "body"),
    ],
)
def test_a_wrong_field_is_named(body, words, of_run):
    assert words in error_of(of_run.post("/answer", json=body), 422)


def test_unknown_paths_and_methods_are_json_too(of_run):
    assert error_of(of_run.get("/nowhere"), 404)
    for method, path, allowed in (
        ("POST", "/model", "GET, HEAD"),
        ("GET", "/answer", "POST"),
        ("HEAD", "/query", "POST"),
        ("DELETE", "/sparql", "GET, HEAD, POST"),
        ("PUT", "/", "GET, HEAD"),
        ("POST", "/style.css", "GET, HEAD"),
    ):
        response = of_run.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert method == "HEAD" or error_of(response, 405)


def test_head_has_the_headers_of_get(of_graph):
    for path in ("/healthz", "/relations", "/", "/main.js", "/sparql?query=ASK{}"):
        head, get = of_graph.head(path), of_graph.get(path)
        assert head.content == b""
        for name in ("content-type", "content-length"):
            assert head.headers[name] == get.headers[name]


def test_a_surprise_is_neutral_and_logged(of_graph, graph, monkeypatch, caplog):
    def fail(*_):
        raise OSError(f"cannot read {graph.folder}")

    monkeypatch.setattr(browse, "find_entities", fail)
    assert str(graph.folder) not in error_of(of_graph.get("/entities"), 500)
    end = time.monotonic() + 5
    while str(graph.folder) not in caplog.text:  # it is logged once the client has its answer
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- limits -------------------------------------------------------------------------------------


def test_questions_have_limits(of_graph):
    long = "?X . parent(ann, ?X)" + " " * 8_000
    deep = "?X . exists ?A, ?B, ?C, ?D : " + " & ".join(
        f"parent({one}, {two})"
        for one, two in zip(
            ["ann", "?A", "?B", "?C", "?D"], ["?A", "?B", "?C", "?D", "?X"], strict=True
        )
    )
    wide = "?X . " + " & ".join(["parent(ann, ?X)"] * 4)
    for path in ("/tree", "/query"):
        assert "8,000" in error_of(of_graph.post(path, json={"question": long}), 400)
        assert "4 branches" in error_of(of_graph.post(path, json={"question": wide}), 400)
    assert "5 operators" in error_of(of_graph.post("/tree", json={"question": deep}), 400)
    nested = "?X . " + "!(friend(bob, ?X) | " * 3 + "parent(ann, ?X)" + ")" * 3
    assert "deep" in error_of(of_graph.post("/query", json={"question": nested}), 400)


def test_numbers_have_limits(of_run):
    assert "1,000" in error_of(of_run.post("/answer", json={**QUESTION, "k": 1001}), 400)
    by_sparql = {"question": "SELECT ?x { <ann> <parent> ?x } LIMIT 1001"}
    assert "1,000" in error_of(of_run.post("/answer", json=by_sparql), 400)
    assert "10,000" in error_of(of_run.post("/query", json={**QUESTION, "limit": 10_001}), 400)
    many = {"questions": [QUESTION["question"]] * 257}
    assert "256" in error_of(of_run.post("/answer/batch", json=many), 400)


def test_a_body_has_a_limit_announced_or_not(of_graph):
    large = b" " * 20_001
    assert error_of(of_graph.post("/query", content=large), 413)
    assert error_of(of_graph.post("/query", content=iter([large])), 413)


def test_a_body_must_come_in_time(graph):
    with serving(graph, limits=Limits(body_seconds=0.2)) as client:
        address = client.base_url.host, client.base_url.port
        with socket.create_connection(address) as connection:
            connection.sendall(HALF_A_REQUEST)
            assert connection.recv(1000).startswith(b"HTTP/1.1 408")
        with socket.create_connection(address, timeout=10) as connection:
            connection.sendall(HALF_A_REQUEST[:30])  # not even its headers
            assert connection.recv(1000) == b""  # it is closed
        assert client.get("/healthz").status_code == 200


def test_too_many_at_once_are_told_to_wait(graph, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        go_on.wait(10)
        return {}

    monkeypatch.setattr(browse, "find_entities", slow)
    with serving(graph, limits=Limits(requests=1)) as client, ThreadPoolExecutor() as pool:
        first = pool.submit(client.get, "/entities")
        assert begun.wait(10)
        refused = client.get("/relations")
        assert client.get("/healthz").status_code == 200
        go_on.set()
        assert first.result().status_code == 200
        assert error_of(refused, 429)
        assert refused.headers["retry-after"] == "1"
        assert client.get("/relations").status_code == 200


def test_what_takes_too_long_is_ended(graph, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(browse, "find_entities", lambda *_: go_on.wait(10))
    with serving(graph, limits=Limits(seconds=0.2, requests=1)) as client:
        assert "0.2 seconds" in error_of(client.get("/entities"), 504)
        go_on.set()
        assert client.get("/relations").status_code == 200  # its place is free again


def test_what_nobody_waits_for_is_ended(graph, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(browse, "find_entities", lambda *_: (begun.set(), go_on.wait(30)))
    with serving(graph, limits=Limits(requests=1)) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.sendall(b"GET /entities HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert begun.wait(10)
            assert client.get("/relations").status_code == 429
        end = time.monotonic() + 10
        while client.get("/relations").status_code != 200:  # its place is free again
            assert time.monotonic() < end
        go_on.set()


def test_many_silent_connections_do_no_harm(of_graph):
    async def crowd():
        host, port = of_graph.base_url.host, of_graph.base_url.port
        opened = [await asyncio.open_connection(host, port) for _ in range(300)]
        for number, (_, writer) in enumerate(opened):
            if number % 2:
                writer.write(HALF_A_REQUEST)
        async with httpx.AsyncClient(base_url=of_graph.base_url) as client:
            responses = [await client.get("/relations") for _ in range(5)]
        for _, writer in opened:
            writer.close()
        return [response.status_code for response in responses]

    assert asyncio.run(crowd()) == [200] * 5


# ---- who may ask --------------------------------------------------------------------------------


def test_a_token_is_asked_for(graph):
    with serving(graph, token="secret") as client:
        for given in (None, "Bearer wrong", "Bearer", "Basic secret", "secret", "Bearer sécret"):
            headers = {} if given is None else {"authorization": given.encode()}
            response = client.get("/model", headers=headers)
            assert "token" in error_of(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
        for path in ("/openapi.json", "/metrics", "/sparql", "/nowhere", "/entities/ann/edges"):
            assert client.get(path).status_code == 401
        for path in ("/", "/healthz"):
            assert client.get(path).status_code == 200
        assert client.get("/model", headers={"authorization": "bearer secret"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "header", "is_mine"),
    [
        ("127.0.0.1", "localhost:8000", True),
        ("127.0.0.1", "[::1]:8000", True),
        ("127.0.0.1", "LOCALHOST.", True),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "evil.example:8000", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "192.168.0.7", False),
        ("127.0.0.1", "", False),
        ("graphs.example", "graphs.example:80", True),
        ("graphs.example", "other.example", False),
        ("0.0.0.0", "192.168.0.7:8000", True),
        ("0.0.0.0", "[fe80::1]:8000", True),
        ("0.0.0.0", "evil.example", False),
    ],
)
def test_only_names_of_the_server_are_answered_to(host, header, is_mine, of_graph, monkeypatch):
    monkeypatch.setattr(of_graph.guard, "host", host)
    response = of_graph.get("/healthz", headers={"host": header})
    assert response.status_code == (200 if is_mine else 421)


def test_no_other_origin_may_read(of_graph):
    for origin in ("http://evil.example", "null"):
        for method, path in (("GET", "/model"), ("POST", "/query"), ("OPTIONS", "/query")):
            response = of_graph.request(method, path, headers={"origin": origin})
            assert "other web sites" in error_of(response, 403)
            assert not [name for name in response.headers if name.startswith("access-control")]
            assert response.headers["cross-origin-resource-policy"] == "same-origin"
    own = {"origin": str(of_graph.base_url).rstrip("/")}
    assert of_graph.get("/model", headers=own).status_code == 200
