"""How a link predictor learns: its loss against loops in float64, Adagrad against PyTorch's."""

import numpy as np
import pytest
import torch

from betae.errors import UnsupportedQuery
from betae.models import ComplexConfig
from betae.models.execute import score_queries
from betae.models.store import build_model
from betae.queries.ast import Entity
from betae.queries.structures import fill
from betae.training import loop
from betae.training.batches import make_batch, open_streams
from betae.training.folder import RunFolder
from betae.training.learner import Optimizer, make_learner, rate_factor
from betae.training.losses import LinkLoss, log_weights
from tests.models.reference import enliven
from tests.training.helpers import assert_bit_equal, graph_of, last_weights, small_config

CONFIGS = {
    "all costs": {"dim": 4, "n3": 0.3, "relation_weight": 2.0},
    "no N3": {"dim": 4, "n3": 0, "relation_weight": 2.0},
    "tails only": {"dim": 4, "n3": 0, "relation_weight": 0},
}


def make(model=CONFIGS["all costs"], seed=0, **changes):
    """A config, and a model for the small graph in float64."""
    config = small_config("complex", model, **changes)
    return config, enliven(build_model(config.model, 30, 6), seed).double()


def batch_of(graph, config, step=0):
    return make_batch(step, open_streams(graph, None, config), config, graph)


def mean_loss(config, model, batch):
    return LinkLoss(config.model)(model, batch, batch).mean()


def edges_of(batch):
    """The edges of a batch: (head, relation, tail), from its queries and marks."""
    queries = [
        fill(group.structure, symbols) for group in batch.groups for symbols in group.symbols
    ]
    rows, columns = batch.is_answer.nonzero(as_tuple=True)
    tails = batch.candidates[columns].tolist()
    return [
        (queries[row].operand.name, queries[row].relation, tail)
        for row, tail in zip(rows.tolist(), tails, strict=True)
    ]


def slow_loss(model, edges, config):
    """The mean over edges, each against every entity and every relation, one by one."""

    def numbers(row):
        return torch.complex(*row.chunk(2))

    def score(head, relation, tail):
        h, r, t = (
            numbers(row)
            for row in (model.entities[head], model.relations[relation], model.entities[tail])
        )
        return (h * r * t.conj()).sum().real

    def size(row):
        return (numbers(row).abs() ** 3).sum()

    total = 0.0
    for h, r, t in edges:
        tails = sum(score(h, r, other).exp() for other in range(model.num_entities))
        relations = sum(score(h, other, t).exp() for other in range(model.num_relations))
        total -= (score(h, r, t).exp() / tails).log()
        total -= config.relation_weight * (score(h, r, t).exp() / relations).log()
        total += config.n3 * (
            size(model.entities[h]) + size(model.relations[r]) + size(model.entities[t])
        )
    return total / len(edges)


# ---- the loss -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_with_all_candidates_the_loss_is_that_of_the_loops(name, graph):
    config, model = make(CONFIGS[name], candidates=30, batch_size=8)
    batch = batch_of(graph, config)
    found, expected = (
        mean_loss(config, model, batch),
        slow_loss(model, edges_of(batch), config.model),
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    tables = (model.entities, model.relations)
    for one, two in zip(
        torch.autograd.grad(found, tables), torch.autograd.grad(expected, tables), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
        assert one.abs().max() > 1e-3


def test_every_edge_counts_once_whatever_query_it_is_of(graph):
    config, model = make(candidates=30, batch_size=20)
    batch = batch_of(graph, config)
    each = [slow_loss(model, [edge], config.model) for edge in edges_of(batch)]
    assert len(each) == int(batch.num_answers.sum()) > len(batch)
    torch.testing.assert_close(mean_loss(config, model, batch), torch.stack(each).mean())


def test_a_relation_may_be_fixed_by_the_structure(graph):
    """Then the symbols of a query are its head alone."""
    config, model = make(candidates=30, batch_size=8, structures={"?X . r1(_, ?X)": 1, "1p": 1})
    batch = batch_of(graph, config)
    assert [group.symbols.shape[1] for group in batch.groups] == [1, 2]
    expected = slow_loss(model, edges_of(batch), config.model)
    torch.testing.assert_close(mean_loss(config, model, batch), expected)


# ---- a sample of the candidates -----------------------------------------------------------------


@pytest.mark.parametrize("candidates", [1, 7, 16, 30])
def test_all_answers_are_candidates_and_the_weights_make_up_all_entities(candidates, graph):
    config, _ = make(candidates=candidates, batch_size=5)
    for step in range(20):
        batch = batch_of(graph, config, step)
        assert torch.equal(batch.is_answer.sum(dim=1), batch.num_answers)
        weights = log_weights(batch).exp()
        is_answer = batch.is_answer.any(dim=0)
        assert (weights[is_answer] == 1).all()
        if len(batch.candidates) == int(is_answer.sum()):  # none was sampled beside them
            assert candidates < 7
        else:
            assert float(weights.sum()) == pytest.approx(30)


@pytest.mark.slow
def test_the_sum_over_a_sample_is_right_on_average(graph):
    """The same queries each time, with candidates of many seeds."""
    streams = open_streams(graph, None, small_config("complex"))
    terms = np.exp(np.random.default_rng(0).normal(size=30))
    estimates = []
    for seed in range(2000):
        streams["1p"].go_to([0, 0])
        config = small_config("complex", candidates=12, batch_size=3, seed=seed)
        batch = make_batch(0, streams, config, graph)
        estimates.append(log_weights(batch).exp().numpy() @ terms[batch.candidates])
    deviation = np.std(estimates)
    assert deviation > 0.1 * terms.sum()  # else the mean would say nothing
    assert abs(np.mean(estimates) - terms.sum()) < 4 * deviation / len(estimates) ** 0.5


def test_a_sampled_loss_is_near_that_of_all_candidates(graph):
    config, model = make(candidates=30)
    few = small_config("complex", CONFIGS["all costs"], candidates=15)
    whole, sampled = (
        torch.stack([mean_loss(each, model, batch_of(graph, each, step)) for step in range(20)])
        for each in (config, few)
    )
    assert not torch.equal(whole, sampled)
    torch.testing.assert_close(sampled.mean(), whole.mean(), rtol=0.02, atol=0)


# ---- Adagrad ------------------------------------------------------------------------------------


def test_the_optimizer_is_dense_adagrad(graph):
    """With a sparse gradient of the entities: rows that a step does not touch stay."""
    config, model = make(candidates=4, batch_size=2)
    _, other = make(candidates=4, batch_size=2)
    model.has_sparse_gradient = True
    loss = LinkLoss(config.model)
    optimizer = Optimizer(model, loss, config.optimizer)
    reference = torch.optim.Adagrad(other.parameters(), lr=config.optimizer.learning_rate, eps=1e-8)
    touched = set()
    for step in range(6):
        batch = batch_of(graph, config, step)
        factor = rate_factor(step, step / 10, 3)
        optimizer.zero_grad()
        mean_loss(config, model, batch).backward()
        assert model.entities.grad.is_sparse
        rows = model.entities.grad.coalesce().indices()[0].tolist()
        assert len(rows) < 30
        before = model.entities.detach().clone()
        optimizer.step(factor)
        resting = [row for row in range(30) if row not in rows]
        assert torch.equal(model.entities[resting], before[resting])
        touched |= set(rows)
        reference.zero_grad()
        mean_loss(config, other, batch).backward()
        reference.param_groups[0]["lr"] = config.optimizer.learning_rate * factor
        reference.step()
    assert len(touched) > 10
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_the_state_of_the_optimizer_is_the_sums_of_squares(graph):
    config = small_config("complex")
    learner = make_learner(graph, config)
    for step in range(3):
        learner.backward(learner.forward(batch_of(graph, config, step)))
        learner.optimizer.step(1.0)
    saved = {name: tensor.clone() for name, tensor in learner.state().items()}
    moments = learner.optimizer.moments
    assert moments.keys() == {"entities.sum"}
    assert saved.keys() == {"0.step", "0.sum", "num_steps"}
    for tensor in (*moments.values(), *saved.values()):
        assert (tensor >= 0).all()
        assert tensor.any()
    fresh = make_learner(graph, config)
    fresh.restore(saved)
    assert_bit_equal(fresh.state(), saved)


# ---- whole runs ---------------------------------------------------------------------------------

CIRCLE = graph_of(  # of twelve, each with one of four marks
    [(e, 0, (e + 1) % 12) for e in range(12)] + [(e, 1, 12 + e % 4) for e in range(12)],
    num_entities=16,
    num_relations=2,
)


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [6, 2048])
def test_a_tiny_graph_is_learned_by_heart(candidates, tmp_path):
    config = small_config(
        "complex", {"dim": 16, "n3": 0.001}, steps=300, batch_size=28, candidates=candidates
    )
    lines = []
    loop.fit(CIRCLE, config, RunFolder(tmp_path / "run"), report=lines.append)
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] / 3
    model = make_learner(CIRCLE, config).model
    RunFolder(tmp_path / "run").load_checkpoint(model, CIRCLE.fingerprint, {})
    with torch.no_grad():
        for head in range(12):
            for relation, tail in ((0, (head + 1) % 12), (1, (head - 1) % 12), (2, 12 + head % 4)):
                distances = score_queries(model, [Entity(head)[relation]])
                assert int(distances.argmin()) == tail


def test_only_edges_are_validated(train, tmp_path):
    train(valid=None, model_name="complex")
    validated = [line for line in RunFolder(tmp_path / "run").read_metrics() if "mrr" in line]
    assert [set(line) for line in validated] == [{"step", "seconds", "mrr", "1p"}] * 3
    assert last_weights(tmp_path / "run").keys() >= {"model/entities", "model/relations"}


def test_other_structures_are_refused_before_training(train, tmp_path):
    with pytest.raises(UnsupportedQuery, match=r"ComplEx cannot embed .*single edges only"):
        train(valid=None, model_name="complex", structures={"1p": 1, "2p": 1})
    assert not (tmp_path / "run").exists()


def test_a_link_predictor_learns_in_bfloat16_too(graph):
    """The products alone: what is summed and stored is in float32."""
    rough, exact = (
        make_learner(graph, small_config("complex", precision=precision))
        for precision in ("bfloat16", "float32")
    )
    batch = batch_of(graph, rough.config)
    losses = [learner.forward(batch) for learner in (rough, exact)]
    assert {loss.dtype for loss in losses} == {torch.float32}
    assert losses[0] != losses[1]
    torch.testing.assert_close(*losses, rtol=0.02, atol=0.02)
    rough.backward(losses[0])
    assert rough.model.entities.grad.dtype == torch.float32


def test_the_config_says_how_to_build_the_loss(graph):
    learner = make_learner(graph, small_config("complex", {"dim": 4, "n3": 0.7}))
    assert learner.loss.config == ComplexConfig(dim=4, n3=0.7)
    assert not list(learner.loss.parameters())
