"""Losses and gradients, against loops in float64."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from betae.models.execute import embed_queries
from betae.models.store import build_model
from betae.training.batches import Batch, make_batch, open_streams
from betae.training.losses import MarginLoss, SoftmaxLoss, build_loss
from tests.queries.strategies import examples
from tests.training.helpers import MIX, POSITIVE, small_config


def batch_of(is_answer, positive=None, negatives=None, weights=None):
    is_answer = torch.tensor(is_answer)
    number, num_candidates = is_answer.shape
    return Batch(
        0,
        [],
        torch.arange(num_candidates),
        torch.arange(num_candidates) ** 2,  # edges of each
        is_answer,
        torch.tensor(positive or [0] * number),
        torch.tensor(negatives or [[0]] * number),
        torch.tensor(weights or [1.0] * number),
        2 * is_answer.sum(dim=1),  # as many again are no candidates
        {},
        3 * num_candidates,
    )


def slow_softmax(scores, is_answer, offset, weight, times, smoothing=0.0):
    """By the words: each answer against all non-answers, the mean over the answers; and the sum
    over all entities, `times` for each candidate that is no answer, against their number; and the
    mean of -ln of each non-answer's share among them."""
    costs = []
    for row, marks in zip(scores, is_answer, strict=True):
        of_answers = []
        for score, is_one in zip(row, marks, strict=True):
            if is_one:
                top = score.exp()
                below = top
                for other, other_is_one in zip(row, marks, strict=True):
                    if not other_is_one:
                        below = below + other.exp()
                of_answers.append(-(top / below).log())
        pairs = zip((offset + row).exp(), marks, strict=True)
        everything = sum(score * (1 if is_one else times) for score, is_one in pairs)
        normalisation = (everything / (sum(marks) or 0.1)).log() ** 2
        costs.append(sum(of_answers) / max(1, len(of_answers)) + weight * normalisation)
        others = [score.exp() for score, is_one in zip(row, marks, strict=True) if not is_one]
        if others and smoothing:
            logs = [-(other / sum(others)).log() for other in others]
            costs[-1] = costs[-1] + smoothing * sum(logs) / len(logs)
    return torch.stack(costs)


def slow_margin(distances, margin, batch):
    def log_sigmoid(x):
        return (1 / (1 + (-x).exp())).log()

    costs = []
    for row in range(len(distances)):
        cost = log_sigmoid(margin - distances[row, batch.positive[row]])
        picked = [log_sigmoid(distances[row, column] - margin) for column in batch.negatives[row]]
        costs.append(-(cost + sum(picked) / len(picked)) / 2 * batch.weights[row].double())
    return torch.stack(costs)


def numbers(least, most):
    return st.floats(least, most, width=32)


@st.composite
def softmax_cases(draw):
    width = draw(st.integers(2, 7))
    marks = st.lists(st.booleans(), min_size=width, max_size=width)  # none: without answers
    is_answer = draw(st.lists(marks, min_size=1, max_size=4))
    row = st.lists(numbers(0, 30), min_size=width, max_size=width)
    distances = draw(st.lists(row, min_size=len(is_answer), max_size=len(is_answer)))
    return is_answer, distances, draw(st.sampled_from([0.05, 0.5, 2.0]))


@examples(150)
@given(
    softmax_cases(),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.0, 0.4]),
)
def test_softmax_equals_the_loops(case, weight, smoothing, correction):
    is_answer, rows, scale = case
    settings = {"initial_scale": scale, "log_partition_weight": weight, "smoothing": smoothing}
    loss = SoftmaxLoss(small_config(**settings, degree_correction=correction).loss)
    nn.init.constant_(loss.offset, 0.7)
    distances = torch.tensor(rows, requires_grad=True)
    costs = loss(distances, batch_of(is_answer))
    costs.sum().backward()
    exact = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    log_scale = torch.tensor(scale, dtype=torch.float64).log().requires_grad_()
    offset = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    edges = torch.tensor([column**2 for column in range(len(rows[0]))])  # as in `batch_of`
    scores = -log_scale.exp() * exact - correction * (1 + edges.double()).log()
    expected = slow_softmax(scores, is_answer, offset, weight, 3, smoothing)
    expected.sum().backward()
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(costs.double(), expected, **close)
    gradient = torch.zeros_like(exact) if exact.grad is None else exact.grad
    torch.testing.assert_close(distances.grad.double(), gradient, **close)
    scale_gradient = 0.0 if log_scale.grad is None else float(log_scale.grad)
    assert float(loss.log_scale.grad) == pytest.approx(scale_gradient, rel=1e-3, abs=1e-3)
    if weight:
        assert float(loss.offset.grad) == pytest.approx(float(offset.grad), rel=1e-4, abs=1e-4)


def test_non_answers_with_a_negligible_share_get_no_gradient():
    loss = SoftmaxLoss(small_config(initial_scale=1.0, log_partition_weight=0.3).loss)
    distances = torch.tensor([[5.0, 5.0, 6.0, 5 - math.log(0.9e-6), 5 - math.log(2e-6), 40.0]])
    distances.requires_grad_()
    loss(distances, batch_of([[True, False, False, False, False, False]])).sum().backward()
    gradient = distances.grad[0].tolist()
    assert [each != 0 for each in gradient] == [True, True, True, False, True, False]


@examples(150)
@given(st.data())
def test_margin_equals_the_loops(data):
    number, width, num_negatives = (data.draw(st.integers(1, 5)) for _ in range(3))
    rows = data.draw(
        st.lists(
            st.lists(numbers(0, 12), min_size=width, max_size=width),
            min_size=number,
            max_size=number,
        )
    )
    column = st.integers(0, width - 1)
    batch = batch_of(
        [[False] * width] * number,
        data.draw(st.lists(column, min_size=number, max_size=number)),
        [
            data.draw(st.lists(column, min_size=num_negatives, max_size=num_negatives))
            for _ in range(number)
        ],
        data.draw(st.lists(numbers(0.25, 2), min_size=number, max_size=number)),
    )
    distances = torch.tensor(rows, requires_grad=True)
    costs = MarginLoss(small_config(loss="margin", margin=6.0).loss)(distances, batch)
    costs.sum().backward()
    exact = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    expected = slow_margin(exact, 6.0, batch)
    expected.sum().backward()
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(costs.double(), expected, **close)
    torch.testing.assert_close(distances.grad.double(), exact.grad, **close)


def test_softmax_by_hand():
    """Answers at 0 and ln 3 with scale 1, non-answers at 0 and 0."""
    distances = torch.tensor([[0.0, math.log(3), 0.0, 0.0]])
    loss = SoftmaxLoss(small_config(initial_scale=1.0, log_partition_weight=0.0).loss)
    cost = loss(distances, batch_of([[True, True, False, False]]))
    expected = (math.log(1 + 2) + math.log(1 + 2 * 3)) / 2
    assert float(cost.detach()) == pytest.approx(expected)


def test_margin_by_hand():
    """An answer and a negative at the margin cost ln 2 each, halved, times the weight."""
    loss = MarginLoss(small_config(loss="margin", margin=3.0).loss)
    cost = loss(torch.tensor([[3.0, 3.0]]), batch_of([[True, False]], [0], [[1]], [0.5]))
    assert float(cost) == pytest.approx(0.5 * math.log(2))


def test_normalisation_by_hand():
    """Of 6 entities 2 are candidates; exp(s) is 1 for the answer and 2 for the other: 1 + 3 * 2."""
    loss = SoftmaxLoss(small_config(initial_scale=1.0, log_partition_weight=0.5).loss)
    nn.init.zeros_(loss.offset)
    cost = loss(torch.tensor([[0.0, -math.log(2)]]), batch_of([[True, False]]))
    assert float(cost.detach()) == pytest.approx(math.log(3) + 0.5 * math.log(7) ** 2)


def test_size_by_hand():
    """Two answers at an uncertainty of 3, and a query without answers at 1; slope 4."""
    loss = SoftmaxLoss(small_config(log_partition_weight=0.0, cardinality_weight=0.5).loss)
    nn.init.constant_(loss.intercept, -5.0)
    batch = batch_of([[True, True], [False, False]])
    plain = loss(torch.ones(2, 2), batch)
    sized = loss(torch.ones(2, 2), batch, torch.tensor([3.0, 1.0]))
    expected = [0.5 * (12 - 5 - math.log(4)) ** 2, 0.5 * (4 - 5 - math.log(0.1)) ** 2]
    assert (sized - plain).tolist() == pytest.approx(expected)


def test_a_query_without_answers_costs_nothing_but_its_size():
    distances = torch.rand(1, 4).requires_grad_()
    loss = SoftmaxLoss(small_config(log_partition_weight=0.0, cardinality_weight=0.0).loss)
    costs = loss(distances, batch_of([[False] * 4]), torch.ones(1))
    costs.sum().backward()
    assert costs.tolist() == [0]
    assert distances.grad.tolist() == [[0] * 4]


def test_the_offset_starts_one_below_where_it_costs_least():
    loss = SoftmaxLoss(small_config(initial_scale=1.0, log_partition_weight=1.0).loss)
    distances = torch.tensor([[5.0, 6.0, 7.0], [1.0, 2.0, 4.0]])
    batch = batch_of([[True, False, False]] * 2)
    loss(distances, batch)
    start = float(loss.offset.detach())

    def cost(offset):
        nn.init.constant_(loss.offset, offset)
        return float(loss(distances, batch).sum().detach())

    assert cost(start + 1) < min(cost(start + 0.9), cost(start + 1.1))


def test_an_answer_without_rivals_costs_nothing():
    distances = torch.tensor([[1.0, 2.0], [1.0, 2.0]], requires_grad=True)
    loss = SoftmaxLoss(small_config(log_partition_weight=0.0).loss)
    costs = loss(distances, batch_of([[True, True], [True, False]]))
    costs.sum().backward()
    assert float(costs[0].detach()) == 0
    assert distances.grad[0].tolist() == [0, 0]
    assert float(costs[1].detach()) > 0
    assert torch.isfinite(loss.log_scale.grad)


@pytest.mark.parametrize("size", [1e-30, 1e4, 1e6])
def test_no_distance_is_too_large(size):
    distances = (size * torch.rand(3, 5)).requires_grad_()
    batch = batch_of([[True, False, False, True, False]] * 3, [0] * 3, [[1, 2, 4]] * 3)
    for loss in (build_loss(small_config()), build_loss(small_config(loss="margin"))):
        costs = loss(distances, batch)
        costs.sum().backward()
        assert torch.isfinite(costs).all()
        assert torch.isfinite(distances.grad).all()


def test_the_scale_starts_as_configured():
    loss = build_loss(small_config(initial_scale=0.25))
    assert float(loss.log_scale.exp().detach()) == pytest.approx(0.25)
    assert list(dict(loss.named_parameters())) == ["log_scale", "offset", "log_slope", "intercept"]
    assert not list(build_loss(small_config(loss="margin")).parameters())


@pytest.mark.parametrize("model_name", ["betae", "query2box", "gqe"])
@pytest.mark.parametrize("loss", ["softmax", "margin"])
@pytest.mark.parametrize("candidates", [9, 30])
def test_through_the_model(model_name, loss, candidates, graph):
    """The loss and the gradients of a whole batch equal those of one query after another.

    The slow one has dense gradients, float64, a look-up for each query and the distances to all
    entities; with 30 candidates it is 1-vs-all.
    """
    initial_scale = 0.5
    structures = MIX if model_name == "betae" else {**POSITIVE, "2u": 0.5}
    config = small_config(
        model_name=model_name,
        loss=loss,
        candidates=candidates,
        structures=structures,
        initial_scale=initial_scale,
    )
    streams = open_streams(graph, None, config)
    batch = make_batch(0, streams, config, graph)
    torch.manual_seed(0)
    size = (graph.num_entities, graph.num_relations)
    model = build_model(config.model, *size)
    slow = build_model(config.model, *size)
    slow.load_state_dict(model.state_dict())
    slow.double()
    model.has_sparse_gradient = True
    function = build_loss(config)
    embedded = embed_queries(model, batch.groups)
    distances = embedded.best(model.distance(embedded.sets, model.table(batch.candidates)))
    fast_loss = function(distances, batch).sum() / len(batch)
    fast_loss.backward()

    log_scale = torch.tensor(initial_scale, dtype=torch.float64).log().requires_grad_()
    total, answers = 0.0, answers_of(batch)
    offset = float(function.offset.detach()) if loss == "softmax" else 0.0
    for group in batch.groups:
        for symbols, position in zip(group.symbols, group.positions, strict=True):
            one = type(group)(group.structure, symbols[None], torch.tensor([0]))
            row = embed_queries(slow, [one])
            to_all = row.best(slow.distance(row.sets, slow.table()))[:, batch.candidates]
            if loss == "softmax":
                marks = [[column in answers[int(position)] for column in range(to_all.shape[1])]]
                times = graph.num_entities / to_all.shape[1]
                weight = config.loss.log_partition_weight
                scores = -log_scale.exp() * to_all
                total = total + slow_softmax(scores, marks, offset, weight, times)[0]
            else:
                part = batch_of(
                    [[False]],
                    [int(batch.positive[position])],
                    [batch.negatives[position].tolist()],
                    [float(batch.weights[position])],
                )
                total = total + slow_margin(to_all, config.loss.margin, part)[0]
    slow_loss = total / len(batch)
    slow_loss.backward()
    close = {"rtol": 2e-3, "atol": 2e-5}
    torch.testing.assert_close(fast_loss.double(), slow_loss, **close)
    assert model.entities.grad.is_sparse
    for (name, fast), exact in zip(model.named_parameters(), slow.parameters(), strict=True):
        if exact.grad is None:
            assert fast.grad is None, name
            continue
        gradient = fast.grad.to_dense() if fast.grad.is_sparse else fast.grad
        torch.testing.assert_close(gradient.double(), exact.grad, **close, msg=name)
    if loss == "softmax":
        torch.testing.assert_close(function.log_scale.grad.double(), log_scale.grad, **close)


def answers_of(batch):
    return [set(row.nonzero().flatten().tolist()) for row in batch.is_answer]
