"""A run that begins with the weights of an earlier one, on a graph that has grown."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from betae import KnowledgeGraph, Run, parallel, train, world
from betae.errors import InvalidArgument, StoreError
from betae.graph.change import append_triples
from betae.graph.triples import Triples
from betae.models.store import load_model
from betae.training import distributed
from betae.training.config import TrainConfig
from betae.training.folder import RunFolder
from betae.training.learner import make_learner
from betae.training.warm_start import start_from
from tests.cli.test_cli import run as betae
from tests.training.helpers import (
    assert_bit_equal,
    last_weights,
    nested,
    small_config,
    small_graph,
    weights,
)

NONE = np.empty((0, 3), np.int32)
NEW = [  # to the graph of e0 … e29 with r0, r1, r2
    ("new", "r0", "e1"),
    ("e2", "r1", "new"),
    ("further", "r0", "new"),  # beside something new only
    ("lost", "own", "found"),  # beside nothing that is known
    ("e3", "fresh", "e4"),
]
MODELS = ["betae", "query2box", "complex"]


def triples(rows):
    entities = list(dict.fromkeys(name for head, _, tail in rows for name in (head, tail)))
    relations = list(dict.fromkeys(name for _, name, _ in rows))
    ids = [[entities.index(h), relations.index(r), entities.index(t)] for h, r, t in rows]
    splits = {"train": np.array(ids, np.int32), "valid": NONE, "test": NONE}
    return Triples(entities, relations, splits)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def grown():
    return append_triples(small_graph(), triples(NEW))


@pytest.fixture(scope="module", params=MODELS)
def earlier(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("earlier") / request.param
    config = small_config(request.param, structures={"1p": 1.0}, steps=20)
    return train(small_graph(), folder, config)


# ---- rows -------------------------------------------------------------------------------------


def test_what_was_known_keeps_its_row_and_the_rest_begins_beside_it(earlier, grown):
    learner = make_learner(grown, earlier.config)
    start_from(RunFolder(earlier.folder), learner, grown)
    before, now = earlier.model().state_dict(), learner.model.state_dict()
    tables = ("entities", *learner.model.relation_tables)
    for name, tensor in before.items():
        assert torch.equal(now[name][: len(tensor)] if name in tables else now[name], tensor), name
    entities, known = now["entities"], before["entities"]
    at = {name: entities[grown.entity_id(name)] for name in ("new", "further", "lost", "found")}
    torch.testing.assert_close(at["new"], known[[1, 2]].mean(dim=0))
    torch.testing.assert_close(at["further"], at["new"])
    torch.testing.assert_close(at["lost"], known.mean(dim=0))
    torch.testing.assert_close(at["found"], known.mean(dim=0))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_of_three_processes_begins_with_its_rows(number, earlier, grown, monkeypatch):
    whole, run = make_learner(grown, earlier.config), RunFolder(earlier.folder)
    start_from(run, whole, grown)
    monkeypatch.setattr(distributed, "num_processes", lambda: 3)
    monkeypatch.setattr(parallel, "process_index", lambda: number)
    part = make_learner(grown, earlier.config)
    start_from(run, part, grown)
    rows = part.model.rows
    assert 0 < len(rows) < grown.num_entities
    assert torch.equal(part.model.entities, whole.model.entities[rows.start : rows.stop])


def test_a_new_relation_begins_as_those_that_lead_from_the_same_entities(earlier, grown):
    learner = make_learner(grown, earlier.config)
    start_from(RunFolder(earlier.folder), learner, grown)
    edges = small_graph().written_ids["train"]
    for relation, entity in (("fresh", 3), ("~fresh", 4)):
        beside = {2 * r for h, r, _ in edges.tolist() if h == entity}
        beside |= {2 * r + 1 for _, r, t in edges.tolist() if t == entity}
        assert beside
        for name in learner.model.relation_tables:
            table = learner.model.state_dict()[name]
            expected = table[sorted(beside)].mean(dim=0)
            torch.testing.assert_close(table[grown.relation_id(relation)], expected)
            own = table[grown.relation_id("own")]
            torch.testing.assert_close(own, table[:6].mean(dim=0))  # beside nothing


def test_the_optimizer_and_the_steps_begin_anew(earlier, grown, tmp_path):
    before = content(earlier.folder)
    config = replace(earlier.config, steps=2)
    now = train(grown, tmp_path / "run", config, from_run=earlier.folder)
    assert now.outcome.step == 2
    assert content(earlier.folder) == before  # it stays as it is
    assert load_model(now.model_folder).num_entities == grown.num_entities
    learner = make_learner(grown, config)
    fresh = {name: tensor.clone() for name, tensor in learner.state().items()}
    start_from(RunFolder(earlier.folder), learner, grown)
    for name, tensor in learner.state().items():
        assert name.startswith("loss.") or torch.equal(tensor, fresh[name])
    kept = weights(RunFolder(earlier.folder).newest("checkpoint"))
    for name, tensor in learner.loss.state_dict().items():
        assert torch.equal(tensor, kept[f"state/loss.{name}"])


@pytest.mark.slow
def test_a_run_that_was_begun_so_is_resumed_from_itself(earlier, grown, tmp_path):
    config = replace(earlier.config, steps=40)
    train(grown, tmp_path / "whole", config, from_run=earlier)

    class Enough(Exception):
        pass

    def stop(line):
        if line["step"] == 40:  # the last checkpoint is that of step 20
            raise Enough

    with pytest.raises(Enough):
        train(grown, tmp_path / "parts", config, from_run=earlier, report=stop)
    train(grown, tmp_path / "parts", config, from_run=earlier, resume=True)
    assert_bit_equal(last_weights(tmp_path / "parts"), last_weights(tmp_path / "whole"))


# ---- is it better? ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worlds():
    """`world` without every tenth entity, and with them again."""
    graph = world()
    names, relations = list(graph.entities), list(graph.relations)
    held = set(names[::10])

    def named(rows):
        return [(names[h], relations[r], names[t]) for h, r, t in rows.tolist()]

    rows = {split: named(edges) for split, edges in graph.written_ids.items()}
    late = [row for row in rows["train"] if held & {row[0], row[2]}]
    old = {split: [r for r in some if not held & {r[0], r[2]}] for split, some in rows.items()}
    entities = [name for name in names if name not in held]
    ids = {name: number for number, name in enumerate(entities)}
    splits = {
        split: np.array([[ids[h], relations.index(r), ids[t]] for h, r, t in some], np.int32)
        for split, some in old.items()
    }
    before = KnowledgeGraph.from_triples(Triples(entities, relations, splits))
    return before, append_triples(before, triples(late))


@pytest.mark.slow
def test_it_starts_where_the_earlier_run_ended(worlds, tmp_path):
    """At the start far above a fresh run; soon as good as one that took many more steps."""
    before, after = worlds
    assert after.num_entities - before.num_entities > 50
    shape = {"model": {"name": "betae", "dim": 16, "hidden": 32}, "structures": {"1p": 1.0}}
    beside = {"model": {"name": "complex", "dim": 16}, "batch_size": 128, "candidates": 2000}
    rest = {"batch_size": 128, "candidates": 512, "validation_queries": 30, "warmup": 10}
    schedule = {"validate_every": 10**6, "checkpoint_every": 10**6}

    def config(steps, **changes):
        predictor = {**beside, **schedule, "steps": steps, "warmup": 0, **changes}
        values = {**shape, **rest, **schedule, "steps": steps, **changes}
        return TrainConfig.from_json(nested({**values, "predictor": predictor}))

    def mrr(run):
        return [each.metrics[-1]["mrr"] for each in (run, run.predictor)]

    earlier = train(before, tmp_path / "earlier", config(300))
    still = {"learning_rate": 1e-9}  # what they begin with
    cold = mrr(train(after, tmp_path / "cold", config(1, **still)))
    warm = mrr(train(after, tmp_path / "warm", config(1, **still), from_run=earlier))
    assert np.all(np.array(warm) > 5 * np.array(cold))
    assert np.all(np.array(warm) > 0.4 * np.array(mrr(earlier)))
    soon = mrr(train(after, tmp_path / "soon", config(60), from_run=earlier))
    late = mrr(train(after, tmp_path / "late", config(60)))
    assert soon[0] > 2 * late[0]
    assert soon[1] > late[1] - 5  # ComplEx learns `world` in no time either way


# ---- what is refused --------------------------------------------------------------------------


def test_a_run_on_another_graph(earlier, tmp_path):
    with pytest.raises(InvalidArgument, match="was trained on another graph"):
        train(small_graph(seed=1), tmp_path / "run", earlier.config, from_run=earlier)
    assert not (tmp_path / "run").exists()


def test_another_model(grown, tmp_path):
    earlier = train(small_graph(), tmp_path / "earlier", small_config(steps=2))
    other = small_config(steps=2, model={"dim": 4, "hidden": 8})
    with pytest.raises(InvalidArgument, match=r"has another dim than the recipe's"):
        train(grown, tmp_path / "run", other, from_run=earlier)
    with pytest.raises(InvalidArgument, match=r"has another name, "):
        train(grown, tmp_path / "run", small_config("gqe", steps=2), from_run=earlier)
    with pytest.raises(StoreError, match="holds no model"):
        train(grown, tmp_path / "run", other, from_run=tmp_path)
    assert not (tmp_path / "run").exists()


def test_another_predictor_is_refused_before_the_model_is_trained(tmp_path):
    def config(dim):
        return small_config(
            steps=2, predictor={"model": {"name": "complex", "dim": dim}, "steps": 2}
        )

    earlier = train(small_graph(), tmp_path / "earlier", config(4))
    with pytest.raises(InvalidArgument, match=r"predictor has another dim"):
        train(small_graph(), tmp_path / "run", config(8), from_run=earlier)
    assert not (tmp_path / "run").exists()


# ---- from the command line --------------------------------------------------------------------


def test_the_command(write, tmp_path, monkeypatch):
    """Without a recipe, the earlier run's settings hold."""
    monkeypatch.setattr("betae.answering.edge_fit.FIT_ROWS", 50)
    monkeypatch.setattr("betae.answering.edge_fit.FIT_PAIRS", 50)
    small_graph().save(tmp_path / "graph")
    train(KnowledgeGraph.open(tmp_path / "graph"), tmp_path / "earlier", small_config(steps=4))
    more = write("more.tsv", "".join("\t".join(row) + "\n" for row in NEW))
    assert betae("ingest", more, "--append", "--out", tmp_path / "graph").exit_code == 0
    arguments = ["train", tmp_path / "graph", "--out", tmp_path / "run", "--from"]
    done = betae(*arguments, tmp_path / "earlier")
    assert done.exit_code == 0, done.exception
    assert Run.open(tmp_path / "run").config == small_config(steps=4)
    answered = betae("answer", tmp_path / "run", "?X . fresh(e3, ?X)", "--json", "-k", 1)
    assert json.loads(answered.stdout)["answers"][0]["entity"] == "e4"
    assert "There is no folder" in str(betae(*arguments, tmp_path / "nowhere").exception)
