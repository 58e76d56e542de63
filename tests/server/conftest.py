"""A run and a graph that are served for real, by uvicorn in a thread; clients are httpx's."""

import shutil
import threading
from contextlib import contextmanager

import httpx
import pytest
import torch
import uvicorn

import betae
from betae import KnowledgeGraph, Run
from betae.graph.triples import read_triples
from betae.server.app import bind, create_app, patient
from betae.server.limits import Limits
from tests.answering.helpers import save_run
from tests.conftest import TOY, TOY_LABELS

SCRIPT = "<script>alert(1)</script>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ODD = "a/b c?é"  # a name that is no IRI and needs escapes in a path


@pytest.fixture(scope="package", autouse=True)
def _small_and_in_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 5)
        patch.setattr("betae.querysets.sample.WALK_BATCH", 256)
        patch.setattr("betae.answering.edge_fit.FIT_ROWS", 100)
        patch.setattr("betae.answering.edge_fit.FIT_PAIRS", 200)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    texts = {**TOY, "labels": TOY_LABELS + f"fay\t{SCRIPT}\n"}
    texts["train"] += f"ann\tlives_in\t{ODD}\n"
    for name, text in texts.items():
        (folder / f"{name}.tsv").write_text(text)
    paths = {name: folder / f"{name}.tsv" for name in ("valid", "test", "labels")}
    KnowledgeGraph.from_triples(read_triples(folder / "train.tsv", **paths)).save(folder / "graph")
    return KnowledgeGraph.open(folder / "graph")


@pytest.fixture(scope="package")
def run(graph, tmp_path_factory):
    return Run.open(save_run(tmp_path_factory.mktemp("runs") / "run", graph))


@contextmanager
def serving(source, host="127.0.0.1", token=None, limits=None):
    """Serve in a thread; yield a client."""
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    limits = limits or Limits()
    app = create_app(source, host=host, token=token, limits=limits)
    http = patient(limits.body_seconds)
    config = uvicorn.Config(app, http=http, lifespan="on", log_level="critical", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            client.get("/healthz")  # waits in the backlog until the server is ready
            client.guard = app
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="package")
def of_run(run):
    """A client of a server of the run."""
    with serving(run) as client:
        yield client


@pytest.fixture(scope="package")
def of_graph(graph):
    """A client of a server of the graph alone, with small limits."""
    limits = Limits(depth=4, branches=3, body_bytes=20_000, result_bytes=50_000)
    with serving(graph, limits=limits) as client:
        yield client


@pytest.fixture(scope="package")
def of_rules(tmp_path_factory):
    """A client of a server of rules mined from `world`, of which the training edges are known."""
    world, folder = betae.world(), tmp_path_factory.mktemp("rules")
    world.without(world.to_polars("test")).save(folder / "graph")
    run = betae.mine(KnowledgeGraph.open(folder / "graph"), folder / "run")
    run.answerer()  # fits its probabilities
    with serving(run) as client:
        yield client


@pytest.fixture(scope="module")  # in between, playwright would keep its event loop
def browser():
    reason = "The browser tests did not run: "
    api = pytest.importorskip("playwright.sync_api", reason=reason + "playwright is missing.")
    if CHROMIUM is None:
        pytest.skip(reason + "there is no Chromium (Debian: apt-get install chromium).")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
