"""Work on a real Ray cluster of three nodes, which are processes of this machine."""

import itertools
import json
import os
import pickle
import shutil
import socket
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import betae
from betae import ClusterError, InvalidArgument, KnowledgeGraph, QuerySyntaxError, Run, StoreError
from betae.cluster import QUIET, Cluster, map_blocks
from betae.errors import TripleError, UnknownEntity
from betae.evaluation import parts, uncertainty
from betae.querysets.sample import sample_queries
from tests.cli.test_cli import flat, run, run_main
from tests.cluster_blocks import noted, open_failing, open_identity, open_nothing, open_noting

STRUCTURES = ("1p", "2p", "2i", "2u", "2in")
SMALL = 100 * 2**20  # bytes of a node's object store
# How soon Ray notices that a node has died; it takes 15 seconds by default.
SOON = {
    "health_check_initial_delay_ms": 200,
    "health_check_period_ms": 200,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The graph `world`, its test queries, and a run of a few steps with a link predictor."""
    folder = tmp_path_factory.mktemp("made")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    betae.world().save(folder / "graph")
    graph = KnowledgeGraph.open(folder / "graph")
    config = betae.default_config(graph)
    few = {"steps": 30, "validate_every": 30, "validation_queries": 5}
    config = replace(config, **few, predictor=replace(config.predictor, **few))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("betae.answering.edge_fit.EDGES", 100)
        patch.setattr("betae.answering.edge_fit.PAIRS", 200)
        patch.setattr("betae.querysets.sampler.BATCH", 512)
        patch.setattr(uncertainty, "VALIDATION_QUERIES", 5)
        patch.setattr(parts, "QUERIES_OF_A_PART", 16)
        betae.train(graph, config, folder / "run").answerer()  # fits the probabilities
        sample_queries(graph, dict.fromkeys(STRUCTURES, 60), "test").save(folder / "queries")
        yield folder
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A cluster of three nodes with a worker each, to add to and to take from."""
    with pytest.MonkeyPatch.context() as patch:
        root = str(Path(betae.__file__).parents[1])
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for name, value in QUIET.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster as Nodes

        head = {"num_cpus": 1, "object_store_memory": SMALL, "include_dashboard": False}
        running = Nodes(initialize_head=True, head_node_args={**head, "_system_config": SOON})
        for _ in range(2):
            running.add_node(num_cpus=1, object_store_memory=SMALL)
        yield running
        running.shutdown()


@pytest.fixture(scope="module")
def cluster(nodes):
    """A connection, which commands in this process use too."""
    with Cluster(nodes.address) as connection:
        yield connection


# ---- blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_ray", [False, True])
def test_results_come_in_order_and_there_may_be_no_end_of_blocks(on_ray, request):
    cluster = request.getfixturevalue("cluster") if on_ray else None
    found = map_blocks(open_nothing, itertools.count(), cluster)
    assert list(itertools.islice(found, 40)) == [-number for number in range(40)]
    found.close()
    assert list(map_blocks(open_nothing, [], cluster)) == []


def test_each_process_opens_once_and_few_blocks_are_under_way(cluster, tmp_path):
    assert (cluster.num_nodes, cluster.num_workers) == (3, 3)
    assert str(cluster) == "3 nodes, 3 workers"
    taken = []
    blocks = ((number, taken.append(number)) for number in range(100))
    found = cluster.map(partial(open_noting, tmp_path, open_identity), blocks)
    assert len([next(found) for _ in range(12)]) == 12
    assert len(taken) <= 12 + 3 * cluster.num_workers
    found.close()
    opened = {process for (process,) in noted(tmp_path, "opened")}
    assert {process for _, process, _ in noted(tmp_path, "begun")} == opened
    assert str(os.getpid()) not in opened
    assert len({node for _, _, node in noted(tmp_path, "begun")}) > 1


def test_an_error_of_a_block_is_raised_as_it_is(cluster):
    with pytest.raises(InvalidArgument, match=r"^no use$"):
        list(cluster.map(partial(open_failing, InvalidArgument), [1]))
    with pytest.raises(ZeroDivisionError, match="no use"):
        list(cluster.map(partial(open_failing, ZeroDivisionError), [1]))


def test_a_block_that_always_takes_its_process_along(cluster, monkeypatch):
    monkeypatch.setattr("betae.cluster.RETRIES", 1)
    with pytest.raises(ClusterError, match="A block was lost 2 times"):
        list(cluster.map(partial(open_failing, None), [1]))


# ---- commands -----------------------------------------------------------------------------------


def printed(*arguments):
    result = run(*arguments)
    assert result.exit_code in (0, 2), result.output
    assert not isinstance(result.exception, betae.BetaeError), result.exception
    return result.stdout


def evaluated(folder, *arguments):
    arguments = ("--queries", folder / "queries", "--empty", 5, "--json", *arguments)
    content = json.loads(printed("eval", folder / "run", *arguments))
    assert content.pop("seconds") > 0
    return content


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("method", ["embedding", "completed"])
def test_eval_has_the_figures_of_one_process(method, made):
    alone = evaluated(made, "--method", method)
    assert set(alone["structures"]) >= {*STRUCTURES}
    assert evaluated(made, "--method", method, "--ray", "auto") == alone


def test_eval_ends_with_the_same_figures_when_a_node_dies(
    made, nodes, cluster, tmp_path, monkeypatch, capsys
):
    opened, said, costs = Run.open(made / "run"), [], set()
    alone = opened.evaluate(made / "queries", empty_queries=5)
    lost, map_here = nodes.list_all_nodes()[-1], cluster.map

    def noting(open_block, blocks):
        return map_here(partial(open_noting, tmp_path, open_block), enumerate(blocks))

    monkeypatch.setattr(cluster, "map", noting)
    monkeypatch.setattr(cluster, "say", said.append)

    (tmp_path / "hold").touch()  # no block ends

    def kill_when_it_has_a_block():
        while not costs:
            begun = noted(tmp_path, "begun")
            costs.update(number for number, _, node in begun if node == lost.node_id)
            time.sleep(0.05)
        nodes.remove_node(lost, allow_graceful=False)
        end = time.monotonic() + 60
        while not said and time.monotonic() < end:
            time.sleep(0.05)
        (tmp_path / "hold").unlink()

    killer = threading.Thread(target=kill_when_it_has_a_block, daemon=True)
    killer.start()
    try:
        found = opened.evaluate(made / "queries", empty_queries=5, cluster=cluster)
    finally:
        killer.join()
        nodes.add_node(num_cpus=1, object_store_memory=SMALL)
    assert replace(found, seconds=0) == replace(alone, seconds=0)
    begun = [number for number, _, _ in noted(tmp_path, "begun")]
    assert all(begun.count(number) > 1 for number in costs)
    assert len(said) == 1
    assert "is lost; its blocks run again elsewhere: 2 nodes, 2 workers left" in said[0]
    assert capsys.readouterr() == ("", "")  # what Ray has to say must not get among the answers


QUESTIONS = """\
# comments and empty lines are skipped

?X . capital(France, ?X)
?X . capital(Frnace, ?X)
?X . exists ?C : located_in(?C, Europe) & capital(?C, ?X)
?X . located_in(?X,
?X . borders(Peru, ?X) & !borders(Chile, ?X)
"""


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("command", ["answer", "query"])
def test_questions_have_the_answers_of_one_process(command, made, write, monkeypatch):
    monkeypatch.setattr("betae.cli.question_files.QUESTIONS_OF_A_BLOCK", 2)
    questions = write("questions.txt", QUESTIONS)
    source = made / ("run" if command == "answer" else "graph")
    arguments = [command, source, "--queries", questions, "--json"]
    alone = printed(*arguments)
    assert [json.loads(line)["line"] for line in alone.splitlines()] == [3, 4, 5, 6, 7]
    assert "Closest: 'France'" in alone
    assert printed(*arguments, "--ray", "auto") == alone


@pytest.mark.usefixtures("cluster")
def test_complete_finds_the_edges_of_one_process(made, tmp_path):
    def found(name, *arguments):
        target = tmp_path / f"{name}.tsv"
        printed("complete", made / "run", "--above", "0.05", "--out", target, *arguments)
        return target.read_bytes()

    assert found("cluster", "--ray", "auto") == found("alone")
    assert found("alone").count(b"\n") > 10


@pytest.mark.usefixtures("cluster")
def test_sample_writes_the_set_of_one_process(made, tmp_path, monkeypatch):
    monkeypatch.setattr("betae.querysets.sampler.BATCH", 4096)  # that of the workers

    def sampled(name, *arguments):
        target = tmp_path / name
        arguments = ("1p:50", "2p:5000", "2in:100", "--split", "test", *arguments)
        printed("sample", made / "graph", *arguments, "--out", target)
        return [(target / part).read_bytes() for part in ("manifest.json", "queries.parquet")]

    assert sampled("cluster", "--ray", "auto") == sampled("alone")


@pytest.mark.usefixtures("cluster")
def test_the_command_says_how_large_the_cluster_is(made, monkeypatch, capsys):
    arguments = ("sample", made / "graph", "1p:5", "--out", made / "few", "--ray", "auto")
    code, _, err = run_main(monkeypatch, capsys, *arguments)
    assert not code
    assert err.startswith("Note: Ray: 3 nodes, 3 workers")


# ---- what the nodes need ------------------------------------------------------------------------


def test_a_node_without_the_folder(made, cluster, tmp_path):
    shutil.copytree(made / "run", tmp_path / "run")
    opened = Run.open(tmp_path / "run", made / "graph")
    load = partial(parts.open_ranker, opened.model, opened.graph, "test")
    shutil.rmtree(tmp_path / "run")  # as on a machine that does not share it
    with pytest.raises(ClusterError) as info:
        list(cluster.map(load, range(3)))
    message = str(info.value)
    assert message.startswith(f"Node {socket.gethostname()} cannot work: {tmp_path / 'run'}")
    assert "Every node needs the run and the graph at the same path" in message


@pytest.mark.usefixtures("cluster")
def test_a_run_and_a_graph_at_an_address(made, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("run", "graph"):
        shutil.copytree(made / name, tmp_path / name)
    places = [f"file://{tmp_path / name}" for name in ("run", "graph")]
    content = printed(
        *("eval", places[0], "--graph", places[1], "--queries", made / "queries"),
        *("--empty", 5, "--json", "--ray", "auto"),
    )
    kept = tmp_path / "run" / "evaluations" / "queries.json"
    assert json.loads(content)["structures"] == evaluated(made)["structures"]
    assert json.loads(kept.read_text())["structures"] == json.loads(content)["structures"]
    copies = [path for path in Path(tmp_path, "cache", "betae").iterdir() if path.is_dir()]
    assert len(copies) == 2


def test_what_is_pickled_is_small(made):
    opened = Run.open(made / "run")
    pickled = pickle.dumps(partial(parts.open_ranker, opened.model, opened.graph, "test"))
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


def closed_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@pytest.fixture
def not_ray():
    """The port of something that listens and talks otherwise."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.fixture
def apart(monkeypatch):
    """As in a process that is not connected to Ray."""
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)


def refused(address, monkeypatch, capsys, graph):
    start = time.monotonic()
    arguments = ("sample", graph, "1p:5", "--out", graph.parent / "set", "--ray", address)
    code, out, err = run_main(monkeypatch, capsys, *arguments)
    assert (code, out) == (2, "")
    assert time.monotonic() - start < 15
    assert not (graph.parent / "set").exists()
    return flat(err)


@pytest.mark.usefixtures("apart")
class TestRefused:
    def test_nobody_listens(self, monkeypatch, capsys, toy_store):
        address = f"127.0.0.1:{closed_port()}"
        message = refused(address, monkeypatch, capsys, toy_store)
        assert f"Nobody listens at {address} (" in message
        assert "ray start --head" in message

    def test_the_cluster_of_ray_address_has_ended(self, monkeypatch, capsys, toy_store):
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port()}")
        assert "Nobody listens at 127.0.0.1:" in refused("auto", monkeypatch, capsys, toy_store)

    def test_something_else_listens(self, monkeypatch, capsys, toy_store, not_ray):
        message = refused(f"127.0.0.1:{not_ray}", monkeypatch, capsys, toy_store)
        assert f"What listens at 127.0.0.1:{not_ray} is not Ray." in message

    @pytest.mark.parametrize("address", ["", "somewhere", "host:port"])
    def test_no_address(self, address, monkeypatch, capsys, toy_store):
        message = refused(address, monkeypatch, capsys, toy_store)
        assert f"A Ray address is HOST:PORT, auto or local, not '{address}'." in message

    def test_ray_is_not_installed(self, monkeypatch, capsys, toy_store):
        monkeypatch.setitem(sys.modules, "ray", None)
        message = refused("local", monkeypatch, capsys, toy_store)
        assert "Ray is not installed: pip install 'betae[ray]'" in message


def test_one_question_is_not_shared(toy_store):
    result = run("query", toy_store, "?X . parent(ann, ?X)", "--ray", "local")
    assert "--ray shares the questions of a file" in str(result.exception)


def test_torchrun_and_ray_do_not_go_together(made, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = run("eval", made / "run", "--queries", made / "queries", "--ray", "local")
    assert "not both" in str(result.exception)
