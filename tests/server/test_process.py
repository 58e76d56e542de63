"""`betae serve` as a process: it says where it is, and ends in order."""

import re
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest

from tests.cli.test_cli import run_main


@pytest.fixture
def start():
    """Start `betae serve` and wait for its address; whatever is left over is ended."""
    processes = []

    def start_server(*arguments):
        command = [sys.executable, "-m", "betae", "serve", *map(str, arguments), "--port", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stderr.read()
        return process, found[0]

    yield start_server
    for process in processes:
        if process.poll() is None:
            process.terminate()
        process.communicate()


def test_requests_under_way_are_answered_before_it_ends(start, graph):
    process, address = start(graph.folder)
    pairs = " . ".join(f"?a{i} ?b{i} ?c{i}" for i in range(4))
    long = f"SELECT (COUNT(*) AS ?n) {{ {pairs} . ?a ?b betae:Oslo }}"
    given = []

    def ask():
        given.append(httpx.get(f"{address}/sparql", params={"query": long}, timeout=60))

    assert httpx.get(f"{address}/sparql", params={"query": "ASK {}"}, timeout=60).json()["boolean"]
    asking = threading.Thread(target=ask)
    asking.start()
    while "betae_requests_under_way 2.0" not in httpx.get(f"{address}/metrics").text:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    asking.join()
    assert given[0].status_code == 200
    assert process.wait(10) in (0, -signal.SIGTERM)
    assert process.stderr.read() == ""
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/healthz")


def test_a_token_comes_from_the_environment_and_a_port_is_taken_once(
    start, graph, monkeypatch, capsys
):
    monkeypatch.setenv("BETAE_TOKEN", "secret")
    _, address = start(graph.folder)
    assert httpx.get(f"{address}/model").status_code == 401
    told = httpx.get(f"{address}/model", headers={"authorization": "Bearer secret"})
    assert told.json()["graph"]["entities"] == graph.num_entities
    port = address.rpartition(":")[2]
    code, _, err = run_main(monkeypatch, capsys, "serve", graph.folder, "--port", port)
    assert (code, f"port {port}" in err) == (2, True)


def test_what_cannot_be_served_is_said_at_once(monkeypatch, capsys, tmp_path, graph):
    code, _, err = run_main(monkeypatch, capsys, "serve", tmp_path / "none")
    assert (code, "no folder" in err) == (2, True)
    code, _, err = run_main(monkeypatch, capsys, "serve", tmp_path, "--port", "0")
    assert (code, tmp_path.name in err.replace("\n", "")) == (2, True)
    code, _, err = run_main(monkeypatch, capsys, "serve", graph.folder, "--token", "é")
    assert (code, "ASCII" in err) == (2, True)


def test_a_missing_package_is_named(monkeypatch, capsys, graph):
    monkeypatch.setattr("betae.cli.serve.find_spec", lambda name: None if name == "uvicorn" else 1)
    code, _, err = run_main(monkeypatch, capsys, "serve", graph.folder)
    assert (code, "pip install 'betae[serve]'" in err.replace("\n", " ")) == (2, True)
