"""What the tests of training share: small random graphs, a small recipe, runs in own processes."""

import multiprocessing
import os
import socket
from contextlib import suppress
from dataclasses import fields

import numpy as np
import torch
import torch._dynamo  # the optimizer would import it in every process
from safetensors.torch import load_file

from betae.graph.graph import KnowledgeGraph
from betae.graph.triples import Triples
from betae.querysets.sample import sample_queries
from betae.training import loop
from betae.training.config import AdamConfig, MarginConfig, SoftmaxConfig, TrainConfig
from betae.training.folder import RunFolder

MIX = {"1p": 1.0, "2p": 1.0, "2i": 1.0, "2in": 0.3}
MARGIN = ("negatives", "margin")  # settings of the margin loss
POSITIVE = {"1p": 1.0, "2p": 1.0, "2i": 1.0}
SMALL = {
    "betae": {"dim": 8, "hidden": 8},
    "query2box": {"dim": 8, "span": 0.5},
    "gqe": {"dim": 8, "span": 0.5},
    "complex": {"dim": 8, "deviation": 0.1},
}


def graph_of(train, valid=(), num_entities=30, num_relations=3):
    """A graph of e0, e1, … and r0, r1, … with these edges of ids."""
    splits = {
        split: np.array(list(edges), dtype=np.int32).reshape(-1, 3)
        for split, edges in (("train", train), ("valid", valid), ("test", ()))
    }
    entities = [f"e{number}" for number in range(num_entities)]
    relations = [f"r{number}" for number in range(num_relations)]
    return KnowledgeGraph.from_triples(Triples(entities, relations, splits))


def small_graph(seed=0, num_entities=30, num_relations=3, num_edges=120, num_valid=25):
    """A random graph."""
    generator = np.random.default_rng(seed)
    highs = [num_entities, num_relations, num_entities]
    edges = np.unique(generator.integers(highs, size=(num_edges, 3)), axis=0)
    edges = generator.permutation(edges)
    return graph_of(edges[num_valid:], edges[:num_valid], num_entities, num_relations)


def small_config(model_name="betae", model=None, **changes):
    """A recipe that takes a second; settings of all tables are keywords: see `nested`."""
    values = {
        "structures": {"1p": 1.0} if model_name == "complex" else MIX,
        "candidates": 16,
        "negatives": 8,
        "margin": 4.0,
        "batch_size": 24,
        "steps": 60,
        "warmup": 5,
        "validate_every": 20,
        "validation_queries": 10,
        "checkpoint_every": 20,
        "precision": "float32",  # some processors have fast bfloat16, and would be less exact
    }
    values.update(changes)
    others = ("candidates", "initial_scale") if values.get("loss") == "margin" else MARGIN
    values = {name: value for name, value in values.items() if name not in others}
    values["model"] = {"name": model_name, **(model or SMALL[model_name])}
    return TrainConfig.from_json(nested(values))


TABLES = {
    "loss": ("loss", "name"),
    "validate_every": ("validation", "every"),
    "validation_queries": ("validation", "queries"),
    "patience": ("validation", "patience"),
}
PARTS = {"loss": (SoftmaxConfig, MarginConfig), "optimizer": (AdamConfig,)}
for table, kinds in PARTS.items():
    TABLES |= {each.name: (table, each.name) for kind in kinds for each in fields(kind)}


def nested(values):
    """Put settings, given by name alone, into the tables of a recipe."""
    recipe = {}
    for name, value in values.items():
        if name == "predictor" and value:
            recipe[name] = nested(value)
        elif name in TABLES and not isinstance(value, dict):
            table, key = TABLES[name]
            recipe.setdefault(table, {})[key] = value
        else:
            recipe[name] = value
    return recipe


def stored_queries(graph, structures=MIX, number=40):
    """A set of training queries."""
    return sample_queries(graph, dict.fromkeys(structures, number), "train")


def validation_queries(graph):
    """A few validation queries that every model can do."""
    return sample_queries(graph, dict.fromkeys(POSITIVE, 10), "valid")


def weights(folder):
    """Every tensor of a checkpoint: weights, optimizer, random state; shards put together."""
    found = {}
    for name in ("model", "state"):
        if (folder / f"{name}.safetensors").is_file():
            tensors = load_file(folder / f"{name}.safetensors")
            found |= {f"{name}/{key}": tensor for key, tensor in tensors.items()}
    shards = [load_file(file) for file in sorted(folder.glob("rows-*.safetensors"))]
    for key in shards[0] if shards else ():
        name = "model" if key == "entities" else "state"
        found[f"{name}/{key}"] = torch.cat([shard[key] for shard in shards])
    return found


def last_weights(run):
    """Every tensor of a run's newest checkpoint."""
    return weights(RunFolder(run).newest("checkpoint"))


def assert_bit_equal(one, two):
    """Compare two dictionaries of tensors byte by byte."""
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].dtype == two[name].dtype, name
        assert one[name].numpy().tobytes() == two[name].numpy().tobytes(), name


def timeless(run):
    """The metrics of a run without what depends on the clock."""
    clock = {"seconds", "queries_per_second", "share_waiting"}
    return [
        {k: v for k, v in line.items() if k not in clock} for line in RunFolder(run).read_metrics()
    ]


# ---- runs in a process of their own -----------------------------------------------------------


def in_process(function, *arguments, timeout=60, **keywords):
    """Call a function in a new process; return its exit code, minus the signal if one ended it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.helpers"])  # imports torch once for all
    process = context.Process(target=function, args=arguments, kwargs=keywords)
    process.start()
    process.join(timeout)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError("the process hangs")
    return process.exitcode


def free_port():
    """Return a port that nobody listens on, and that no connection gets as its own end.

    The system gives connections ports from 32768 on, Ray its workers those from 10002 to 19999.
    """
    for port in range(20_000 + 10 * os.getpid() % 10_000, 32_768):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def in_processes(size, function, *arguments, timeout=300):
    """Call a function with its rank and arguments in processes as torchrun starts them.

    Returns their exit codes.
    """
    port = free_port()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.helpers"])
    processes = [
        context.Process(target=_as_one_of, args=(rank, size, port, function, arguments))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(timeout)
    finally:
        for process in processes:
            process.kill()
    return [process.exitcode for process in processes]


def _as_one_of(rank, size, port, function, arguments):
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": size}
    ranks = {"RANK": rank, "LOCAL_RANK": rank}
    os.environ.update({key: str(value) for key, value in {**place, **ranks}.items()})
    torch.set_num_threads(1)
    function(rank, *arguments)


def run_training(run, config, queries, valid, resume=False, signal_at=None):
    """Train on the small graph with reports every 5 steps.

    `signal_at` is (step, signal): there this very process gets the signal.
    """
    torch.set_num_threads(1)
    loop.REPORT_EVERY = 5

    def report(line):
        if signal_at is not None and line["step"] == signal_at[0] and "loss" in line:
            os.kill(os.getpid(), signal_at[1])

    loop.fit(
        small_graph(),
        config,
        RunFolder(run),
        queries=queries,
        valid=valid,
        resume=resume,
        report=report,
    )
