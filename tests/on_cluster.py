"""Work on a real Ray cluster of three nodes, which are processes of this machine.

python -m tests.on_cluster FOLDER

tests/test_cluster.py runs this in a process of its own, and checks what it writes to
FOLDER/found.json: for each function in DONE what it returns, or the error that it ends with.
FOLDER has a graph, a run and queries.
"""

import itertools
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from betae import Cluster, Run, cluster
from betae.cli import questions as question_files
from betae.errors import InvalidArgument
from betae.evaluation import evaluate, uncertainty
from tests.cli.test_cli import run
from tests.cluster_blocks import noted, open_failing, open_identity, open_negative, open_noting

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
# A dead node is noticed in seconds, not in 15; one that is alive may be slow on a busy machine.
HEALTH = {
    "health_check_initial_delay_ms": 300,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 30_000,
    "health_check_failure_threshold": 5,
}


@contextmanager
def three_nodes():
    """Start a cluster of three nodes with a worker each."""
    cluster._import_ray()  # it tells Ray to be quiet, so it comes first
    from ray.cluster_utils import Cluster as Nodes

    head = {**NODE, "include_dashboard": False, "_system_config": HEALTH}
    nodes = Nodes(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            nodes.add_node(**NODE)
        yield nodes
    finally:
        nodes.shutdown()


def new_folder(folder, name):
    (folder / name).mkdir()
    return folder / name


def error_of(work):
    """Return the kind and the message of the error that some work ends with."""
    try:
        work()
    except Exception as error:
        return [type(error).__name__, str(error)]
    raise AssertionError("there was no error")


# ---- blocks -------------------------------------------------------------------------------------


def endless_blocks(shared, **_):
    found = shared.map(open_negative, itertools.count())
    first = list(itertools.islice(found, 40))
    found.close()
    return {"first": first, "none": list(shared.map(open_negative, []))}


def blocks_under_way(shared, folder, **_):
    notes, taken = new_folder(folder, "under way"), []
    blocks = ((number, taken.append(number)) for number in range(100))
    found = shared.map(partial(open_noting, notes, open_identity), blocks)
    assert len(list(itertools.islice(found, 12))) == 12
    found.close()
    return {
        "cluster": str(shared),
        "taken": len(taken),
        "opened": [process for (process,) in noted(notes, "opened")],
        "begun": [process for _, process, _ in noted(notes, "begun")],
        "here": str(os.getpid()),
    }


def errors_of_blocks(shared, **_):
    def fail(kind):
        return error_of(lambda: list(shared.map(partial(open_failing, kind), [1])))

    cluster.RETRIES = 1
    found = {
        "of betae": fail(InvalidArgument),
        "another": fail(ZeroDivisionError),
        "ends the process": fail(None),
    }
    cluster.RETRIES = 5
    return found


# ---- commands -----------------------------------------------------------------------------------


def command(*arguments):
    """Return what a command prints, and its exit code; raise an error of betae."""
    result = run(*arguments, "--ray", "auto")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return {"code": result.exit_code, "out": result.stdout, "err": result.stderr}


def evaluations(folder, **_):
    arguments = ("--queries", folder / "queries", "--empty", 5, "--json")
    return {
        method: command("eval", folder / "run", *arguments, "--method", method)
        for method in ("embedding", "completed")
    }


def questions(folder, **_):
    question_files.QUESTIONS_PER_BLOCK = 2
    arguments = ("--queries", folder / "questions.txt", "--json")
    return {
        "answer": command("answer", folder / "run", *arguments),
        "query": command("query", folder / "graph", *arguments),
    }


def complete(folder, **_):
    target = folder / "found.tsv"
    return command("complete", folder / "run", "--above", 0.05, "--out", target)


def sample(folder, **_):
    arguments = ("1p:50", "2p:2000", "2in:100", "--split", "test", "--out", folder / "sampled")
    return command("sample", folder / "graph", *arguments)


def at_an_address(folder, **_):
    store = new_folder(folder, "store")
    for name in ("run", "graph"):
        unlike = shutil.ignore_patterns("evaluations")
        shutil.copytree(folder / name, store / name, ignore=unlike)
    return command(
        *("eval", f"file://{store / 'run'}", "--graph", f"file://{store / 'graph'}"),
        *("--queries", folder / "queries", "--method", "embedding", "--empty", 5, "--json"),
    )


# ---- nodes --------------------------------------------------------------------------------------


def a_node_dies(shared, nodes, folder, **_):
    notes, said, lost = new_folder(folder, "dies"), [], nodes.list_all_nodes()[-1]
    numbers_lost = set()  # of the blocks that the node has when it dies
    (notes / "hold").touch()  # no block ends before that

    def kill():
        while not numbers_lost:
            begun = noted(notes, "begun")
            numbers_lost.update(number for number, _, node in begun if node == lost.node_id)
            time.sleep(0.05)
        nodes.remove_node(lost, allow_graceful=False)
        while not said:
            time.sleep(0.05)
        (notes / "hold").unlink()

    def map_noting(open_block, blocks):
        return Cluster.map(shared, partial(open_noting, notes, open_block), enumerate(blocks))

    shared.map, shared.notify = map_noting, said.append
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    run = Run.open(folder / "run")
    options = {"method": "embedding", "empty_queries": 5, "cluster": shared}
    found = run.evaluate(folder / "queries", **options)
    killer.join()
    del shared.map
    begun = [number for number, _, _ in noted(notes, "begun")]
    times = {number: begun.count(number) for number in numbers_lost}
    return {"evaluation": found.to_json(), "said": said, "times": times}


def a_node_lacks_the_folder(shared, folder, **_):
    shutil.copytree(folder / "run", folder / "moved")
    opened = Run.open(folder / "moved", folder / "graph")
    rank = partial(evaluate._rank_hard, opened.graph, "test")
    load = partial(cluster._bind, partial(opened.ranker, "embedding"), rank)
    shutil.rmtree(folder / "moved")  # as on a machine that does not share it
    return error_of(lambda: list(shared.map(load, range(3))))


def work_left_behind(shared, **_):
    """The connection is closed before a generator that still has blocks under way."""
    found = shared.map(open_negative, itertools.count())
    next(found)
    shared.close()
    found.close()
    return {"is_connected": shared.ray.is_initialized()}


DONE = (
    endless_blocks,
    blocks_under_way,
    errors_of_blocks,
    evaluations,
    questions,
    complete,
    sample,
    at_an_address,
    a_node_lacks_the_folder,
    a_node_dies,
    work_left_behind,
)


def end_with_the_tests():
    """End this process, and the nodes with it, if the process of the tests is gone."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main(folder):
    threading.Thread(target=end_with_the_tests, daemon=True).start()
    uncertainty.VALIDATION_QUERIES, evaluate.RANK_BATCH = 5, 16
    found = {}
    with three_nodes() as nodes, Cluster(nodes.address) as shared:
        for work in DONE:
            start = time.monotonic()
            try:
                found[work.__name__] = work(shared=shared, nodes=nodes, folder=folder)
            except (Exception, SystemExit):
                found[work.__name__] = {"error": traceback.format_exc()}
            print(f"{work.__name__}: {time.monotonic() - start:.1f} s", flush=True)
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
