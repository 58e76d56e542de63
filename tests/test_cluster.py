"""Work in blocks, on a real Ray cluster of three nodes too.

Ray runs in processes that these tests start (tests/on_cluster.py), never in their own.
"""

import itertools
import json
import operator
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import betae
from betae import KnowledgeGraph, Run
from betae.cluster import RAY_ENVIRONMENT, Cluster, map_blocks
from betae.errors import (
    ClusterError,
    InvalidArgument,
    QuerySyntaxError,
    StoreError,
    TripleError,
    UnknownEntity,
)
from betae.evaluation import evaluate, uncertainty
from betae.querysets.sample import sample_queries
from betae.remote import _locked
from betae.training.config import ValidationConfig, default_config
from tests.cli.test_cli import flat, run, run_main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
STRUCTURES = ("1p", "2p", "2i", "2u", "2in")
SECONDS = 600  # the longest that a process may take, on a machine that is busy
SECONDS_TO_END = 120  # of the processes that Ray ends
QUESTIONS = """\
# comments and empty lines are skipped

?X . capital(France, ?X)
?X . capital(Frnace, ?X)
?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)
?X . located_in(?X,
?X . borders(Peru, ?X) & !borders(Chile, ?X)
"""
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None,
    reason="Ray is not installed, so nothing runs on a cluster: pip install 'betae[ray]'",
)


# ---- processes of their own ---------------------------------------------------------------------


def run_apart(*command, **environment):
    """Run Python in a session of its own; return its code, output and errors.

    Whatever happens, no process and no file of Ray's is left.
    """
    # In /tmp, since the path of a socket has at most a hundred characters.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as place:
        # Ray lets others go first, which on a busy machine may take minutes.
        environment |= {"RAY_TMPDIR": place, "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with Path(place, "out").open("w+") as out, Path(place, "err").open("w+") as err:
            process = subprocess.Popen(
                [sys.executable, *map(str, command)],
                stdin=subprocess.PIPE,  # ends with this process
                stdout=out,
                stderr=err,
                env={**os.environ, **environment},
                start_new_session=True,
            )
            try:
                code = process.wait(SECONDS)
                end = time.monotonic() + SECONDS_TO_END
                while processes_of(process.pid) and time.monotonic() < end:
                    time.sleep(0.1)
            finally:
                left = end_session(process)
                texts = [file.seek(0) or file.read() for file in (out, err)]
                print(*texts, sep="\n")  # pytest shows it if a test fails
    return SimpleNamespace(code=code, out=texts[0], err=texts[1], left=left)


def processes_of(session):
    """Return the processes of a session that have not ended, by /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


def end_session(process):
    """Kill all processes of a session, and return those that there were."""
    left = processes_of(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    while some := processes_of(process.pid):
        for number in some:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.05)
    process.stdin.close()
    process.wait()
    return left


# ---- a cluster of three nodes -------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with what `make` makes; the workers of xdist share it."""
    place = tmp_path_factory.getbasetemp()
    place = place.parent if "PYTEST_XDIST_WORKER" in os.environ else place
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with _locked(place / "cluster.lock"):
        if not (place / "cluster").exists():
            make(place / "cluster")
    yield place / "cluster"
    torch.set_num_threads(before)


def make(folder):
    """Make the graph `world`, its test queries, and a run of a few steps with a link predictor."""
    betae.world().save(folder / "graph")
    graph = KnowledgeGraph.open(folder / "graph")
    config = default_config(graph)
    few = {"steps": 30, "validation": ValidationConfig(every=30, queries=5)}
    config = replace(config, **few, predictor=replace(config.predictor, **few))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("betae.answering.edge_fit.FIT_ROWS", 100)
        patch.setattr("betae.answering.edge_fit.FIT_PAIRS", 200)
        patch.setattr("betae.querysets.sample.WALK_BATCH", 512)
        betae.train(graph, folder / "run", config).answerer()  # fits the probabilities
        sample_queries(graph, dict.fromkeys(STRUCTURES, 60), "test").save(folder / "queries")
    (folder / "questions.txt").write_text(QUESTIONS)


@pytest.fixture(scope="module")
def found(made):
    """What tests/on_cluster.py found on a cluster of three nodes, which is started once."""
    with _locked(made / "found.lock"):
        if not (made / "found.json").exists():
            done = run_apart("-m", "tests.on_cluster", made, XDG_CACHE_HOME=str(made / "cache"))
            assert done.code == 0, done.err
            # What Ray has to say must not get among the answers.
            assert all(line.endswith(" s") for line in done.out.splitlines()), done.out
            assert (done.err, done.left) == ("", [])
    found = json.loads((made / "found.json").read_text())
    errors = [each["error"] for each in found.values() if "error" in each]
    assert not errors, "\n".join(errors)
    return found


def alone(*arguments):
    """Return what a command prints in one process."""
    result = run(*arguments)
    assert result.exit_code in (0, 2), result.output
    assert not isinstance(result.exception, betae.BetaeError), result.exception
    return result.stdout


@pytest.fixture
def evaluated_alone(made, monkeypatch):
    """The figures by embedding, or by the completed graph, of one process."""
    monkeypatch.setattr(uncertainty, "VALIDATION_QUERIES", 5)  # as in tests/on_cluster.py
    monkeypatch.setattr(evaluate, "RANK_BATCH", 16)

    def evaluated(method="embedding"):
        arguments = ("--queries", made / "queries", "--empty", 5, "--json", "--method", method)
        return figures(json.loads(alone("eval", made / "run", *arguments)))

    return evaluated


def figures(evaluation):
    """Return all of an evaluation but the time it took."""
    assert evaluation.pop("seconds") > 0
    return evaluation


def rounded(lines):
    """Lines of JSON; products of another number of rows may differ in the last digits."""
    each = partial(json.loads, parse_float=lambda text: f"{float(text):.4g}")
    return [*map(each, lines.splitlines())]


@needs_ray
@pytest.mark.slow
class TestOnThreeNodes:
    def test_blocks_come_in_order_and_may_be_endless(self, found):
        assert found["endless_blocks"]["first"] == [-number for number in range(40)]
        assert found["endless_blocks"]["none"] == []

    def test_each_process_opens_once_and_few_blocks_are_under_way(self, found):
        seen = found["blocks_under_way"]
        assert seen["cluster"] == "3 nodes, 3 workers"
        assert 12 <= seen["taken"] <= 12 + 3 * 3
        assert {*seen["begun"]} <= {*seen["opened"]}
        assert seen["here"] not in seen["opened"]

    def test_an_error_of_a_block_is_raised_as_it_is(self, found):
        errors = found["errors_of_blocks"]
        assert errors["of betae"] == ["InvalidArgument", "no use"]
        assert "ZeroDivisionError" in errors["another"][0]
        assert "no use" in errors["another"][1]
        kind, message = errors["ends the process"]
        assert kind == "ClusterError"
        assert message.startswith("A block was tried 2 times, and each time its process or node")

    @pytest.mark.parametrize("method", ["embedding", "completed"])
    def test_eval_has_the_figures_of_one_process(self, method, found, evaluated_alone):
        expected = evaluated_alone(method)
        assert set(expected["structures"]) >= {*STRUCTURES}
        on_cluster = found["evaluations"][method]
        assert figures(json.loads(on_cluster["out"])) == expected
        assert flat(on_cluster["err"]).startswith("Note: Ray: 3 nodes, 3 workers")

    def test_eval_has_the_same_figures_when_a_node_dies(self, found, evaluated_alone):
        seen = found["a_node_dies"]
        assert figures(seen["evaluation"]) == evaluated_alone()
        assert seen["times"]
        assert all(times > 1 for times in seen["times"].values())
        assert len(seen["said"]) == 1
        assert "is lost; its blocks run again elsewhere: 2 nodes, 2 workers" in seen["said"][0]

    @pytest.mark.parametrize("command", ["answer", "query"])
    def test_questions_have_the_answers_of_one_process(self, command, made, found):
        source = made / ("run" if command == "answer" else "graph")
        expected = alone(command, source, "--queries", made / "questions.txt", "--json")
        assert [json.loads(line)["line"] for line in expected.splitlines()] == [3, 4, 5, 6, 7]
        assert "Closest: 'France'" in expected
        on_cluster = found["questions"][command]
        assert on_cluster["code"] == 2
        assert rounded(on_cluster["out"]) == rounded(expected)
        assert "questions.txt, line 6: " in flat(on_cluster["err"])
        assert flat(on_cluster["err"]).endswith("2 of 5 questions could not be answered.")

    @pytest.mark.usefixtures("found")
    def test_complete_finds_the_edges_of_one_process(self, made, tmp_path):
        target = tmp_path / "alone.tsv"
        alone("complete", made / "run", "--above", "0.05", "--out", target)
        assert (made / "found.tsv").read_bytes() == target.read_bytes()
        assert target.read_bytes().count(b"\n") > 10

    @pytest.mark.usefixtures("found")
    def test_sample_writes_the_set_of_one_process(self, made, tmp_path):
        target = tmp_path / "alone"
        structures = ("1p:50", "2p:2000", "2in:100")
        alone("sample", made / "graph", *structures, "--split", "test", "--out", target)
        for name in ("manifest.json", "queries.parquet"):
            assert (made / "sampled" / name).read_bytes() == (target / name).read_bytes()

    def test_a_node_without_the_folder(self, made, found):
        kind, message = found["a_node_lacks_the_folder"]
        assert kind == "ClusterError"
        assert message.startswith(f"Node {socket.gethostname()} cannot work: {made / 'moved'}")
        assert "Every node needs the run and the graph at the same path" in message

    def test_a_run_and_a_graph_at_an_address(self, made, found, evaluated_alone):
        printed = json.loads(found["at_an_address"]["out"])
        kept = json.loads((made / "store" / "run" / "evaluations" / "queries.json").read_text())
        assert figures(printed) == evaluated_alone()
        assert figures(kept) == {**printed, "run": "run", "name": "queries"}
        copies = [path for path in made.glob("cache/betae/*/*") if path.is_dir()]
        assert sorted(path.name for path in copies) == ["graph", "run"]

    def test_a_closed_connection_stays_closed(self, found):
        assert not found["work_left_behind"]["is_connected"]


@needs_ray
@pytest.mark.slow
def test_processes_of_this_machine(made):
    arguments = ("--queries", made / "questions.txt", "--json")
    done = run_apart("-m", "betae", "query", made / "graph", *arguments, "--ray", "local")
    assert done.code == 2  # some of the questions are wrong
    assert done.out == alone("query", made / "graph", *arguments)
    assert flat(done.err).startswith("Note: Ray: 1 node, ")
    assert done.left == []  # the cluster ends with the command


# ---- what is sent to other processes ------------------------------------------------------------


def test_blocks_in_this_process():
    found = map_blocks(lambda: 3, operator.mul, itertools.count())
    assert list(itertools.islice(found, 40)) == [3 * number for number in range(40)]
    assert list(map_blocks(lambda: 3, operator.mul, [])) == []


def test_what_is_pickled_is_small(made):
    opened = Run.open(made / "run")
    pickled = pickle.dumps(partial(opened.ranker, "embedding"))
    assert len(pickled) < 1000
    assert pickle.loads(pickle.dumps(opened.graph)).fingerprint == opened.graph.fingerprint


def test_a_graph_in_memory_cannot_be_shared(toy_graph):
    with pytest.raises(InvalidArgument, match="in memory only"):
        pickle.dumps(toy_graph)


def test_another_graph_in_the_same_place(toy_store, toy_graph):
    pickled = pickle.dumps(KnowledgeGraph.open(toy_store))
    toy_graph.extended([("ann", "parent", "zoe")]).save(toy_store, overwrite=True)
    with pytest.raises(StoreError, match="holds another graph here"):
        pickle.loads(pickled)


@pytest.mark.parametrize(
    "error",
    [
        QuerySyntaxError("A name is missing.", "?X . r(, ?X)", 7),
        TripleError("Two columns.", "facts.tsv", 3),
        UnknownEntity("Frnace", ["France"]),
    ],
)
def test_errors_cross_to_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


# ---- no cluster ---------------------------------------------------------------------------------


def closed_address():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


def failing(error):
    def init(*_, **__):
        raise error

    return init


@pytest.fixture
def fake_ray(monkeypatch):
    """A stand-in for Ray, which is not connected, and of which a test may set the rest."""
    fake = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", fake)
    for name, value in RAY_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
def refused(monkeypatch, capsys, toy_store):
    """Sample on a cluster that cannot be used, and return the message."""

    def sample(address):
        target = toy_store.parent / "set"
        arguments = ("sample", toy_store, "1p:5", "--out", target, "--ray", address)
        code, out, err = run_main(monkeypatch, capsys, *arguments)
        assert (code, out) == (2, "")
        assert not target.exists()
        return flat(err)

    return sample


@pytest.mark.usefixtures("fake_ray")
class TestRefused:
    def test_nobody_listens(self, refused):
        address = closed_address()
        message = refused(address)
        assert f"Could not connect to {address} (" in message
        assert "ray start --head" in message

    def test_something_else_listens(self, refused, monkeypatch):
        monkeypatch.setattr("betae.cluster.CONNECT_TIMEOUT", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as server:  # waits for the client to speak
            address = f"127.0.0.1:{server.getsockname()[1]}"
            assert f"{address} is not a Ray head node." in refused(address)

    @pytest.mark.parametrize("address", ["", "somewhere", "host:port"])
    def test_no_address(self, address, refused):
        assert f"A Ray address is HOST:PORT, auto or local, not '{address}'." in refused(address)

    def test_no_cluster_runs_here(self, refused, fake_ray):
        fake_ray.init = failing(ConnectionError("Could not find any running Ray instance."))
        assert "No Ray cluster runs on this machine" in refused("auto")

    def test_ray_cannot_start(self, refused, fake_ray):
        fake_ray.init = failing(RuntimeError("no more sockets\nand more of it"))
        assert "local Ray cluster cannot be started (no more sockets)" in refused("local")

    def test_a_cluster_without_cpus(self, fake_ray):
        closed = []
        fake_ray.init = lambda *_, **__: None
        fake_ray.nodes = lambda: [{"NodeID": "1", "Alive": True, "Resources": {"memory": 1.0}}]
        fake_ray.shutdown = lambda: closed.append(True)
        with pytest.raises(ClusterError, match="The Ray cluster local has no CPU"):
            Cluster("local")
        assert closed == [True]

    def test_ray_is_not_installed(self, refused, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        assert "Ray is not installed: pip install 'betae[ray]'" in refused("local")


@needs_ray
@pytest.mark.slow
def test_the_cluster_of_ray_address_has_ended(toy_store, tmp_path):
    arguments = ("sample", toy_store, "1p:5", "--out", tmp_path / "set", "--ray", "auto")
    done = run_apart("-m", "betae", *arguments, RAY_ADDRESS=closed_address())
    assert (done.code, done.out) == (2, "")
    assert "Could not connect to 127.0.0.1:" in flat(done.err)
    assert not (tmp_path / "set").exists()


def test_one_question_is_not_shared(toy_store):
    result = run("query", toy_store, "?X . parent(ann, ?X)", "--ray", "local")
    assert "--ray shares the questions of a file" in str(result.exception)


def test_torchrun_and_ray_do_not_go_together(made, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = run("eval", made / "run", "--queries", made / "queries", "--ray", "local")
    assert "not both" in str(result.exception)


def test_ray_stays_out_of_this_process():
    """It can end the process it is in, and leaves threads and handlers of signals in it."""
    assert "ray" not in sys.modules
