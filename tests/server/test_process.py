"""`betae serve` as a process: it says where it is, and ends in order."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.test_cli import run_main

TOKEN = {"authorization": "Bearer secret"}


@pytest.fixture(scope="module")
def served(graph):
    """A process of `betae serve` and its address."""
    command = [sys.executable, "-m", "betae", "serve", graph.folder, "--exact", "--port", "0"]
    environment = {**os.environ, "BETAE_TOKEN": "secret"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    try:
        assert found, line + process.stderr.read()
        yield process, found[0]
    finally:
        process.terminate()
        process.communicate()


def test_a_token_comes_from_the_environment(served, graph):
    _, address = served
    assert httpx.get(f"{address}/model").status_code == 401
    told = httpx.get(f"{address}/model", headers=TOKEN).json()
    assert told["graph"]["entities"] == graph.num_entities


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_graph_is_served_without_torch(served):
    process, address = served
    question = {"question": "?X . parent(ann, ?X)"}
    for path in ("/query", "/tree"):
        response = httpx.post(f"{address}{path}", json=question, headers=TOKEN, timeout=60)
        assert response.status_code == 200
    for path in ("/model", "/entities/ann/edges", "/sparql?query=ASK{}"):
        assert httpx.get(f"{address}{path}", headers=TOKEN, timeout=60).status_code == 200
    started = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [number for path in started for number in path.read_text().split()]
    loaded = [Path(f"/proc/{number}/maps").read_text() for number in (process.pid, *children)]
    assert any("pyoxigraph" in libraries for libraries in loaded)
    assert not any("torch" in libraries for libraries in loaded)


def test_a_port_is_taken_once(served, graph, monkeypatch, capsys):
    port = served[1].rpartition(":")[2]
    code, _, err = run_main(monkeypatch, capsys, "serve", graph.folder, "--port", port)
    assert (code, f"port {port}" in err) == (2, True)


@pytest.mark.slow
def test_requests_under_way_are_answered_before_it_ends(served):
    process, address = served
    pairs = " . ".join(f"?a{i} ?b{i} ?c{i}" for i in range(4))
    long = f"SELECT (COUNT(*) AS ?n) {{ {pairs} . ?a ?b betae:Oslo }}"
    given = []

    with httpx.Client(base_url=address, headers=TOKEN, timeout=60) as client:
        assert client.get("/sparql", params={"query": "ASK {}"}).json()["boolean"]
        asking = threading.Thread(
            target=lambda: given.append(client.get("/sparql", params={"query": long}))
        )
        asking.start()
        while not given and "betae_requests_under_way 2.0" not in client.get("/metrics").text:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        asking.join()
        assert given[0].status_code == 200
    assert process.wait(20) in (0, -signal.SIGTERM)
    assert process.stderr.read() == ""
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/healthz")


def test_what_cannot_be_served_is_said_at_once(monkeypatch, capsys, tmp_path, graph):
    code, _, err = run_main(monkeypatch, capsys, "serve", tmp_path / "none")
    assert (code, "no folder" in err) == (2, True)
    code, _, err = run_main(monkeypatch, capsys, "serve", tmp_path, "--port", "0")
    assert (code, tmp_path.name in err.replace("\n", "")) == (2, True)
    code, _, err = run_main(monkeypatch, capsys, "serve", graph.folder, "--token", "é")
    assert (code, "ASCII" in err) == (2, True)


def test_a_damaged_run_is_named(run, tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    (folder / "edges.json").write_text("{")
    graph = ("--graph", run.graph.folder)
    code, _, err = run_main(monkeypatch, capsys, "serve", folder, "--port", "0", *graph)
    assert (code, "edges.json is damaged" in err.replace("\n", "")) == (2, True)
    assert "Traceback" not in err


def test_a_missing_package_is_named(monkeypatch, capsys, graph):
    monkeypatch.setattr("betae.cli.runs.find_spec", lambda name: None if name == "uvicorn" else 1)
    code, _, err = run_main(monkeypatch, capsys, "serve", graph.folder)
    assert (code, "pip install 'betae[serve]'" in err.replace("\n", " ")) == (2, True)
