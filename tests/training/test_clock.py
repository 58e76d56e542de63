"""The clock of training: it stops while it is paused, and goes on from earlier sessions."""

import pytest

from betae.training import clock as module
from betae.training.checkpoint import Progress
from betae.training.clock import Clock, Window


@pytest.fixture
def wait(monkeypatch):
    """Let the time pass without waiting."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def test_seconds_over_all_sessions(wait):
    clock = Clock(earlier=40.0)
    wait(2)
    assert clock.seconds() == 42


def test_pauses_do_not_count(wait):
    clock = Clock()
    wait(1)
    with clock.paused():
        wait(5)
    wait(2)
    assert clock.seconds() == 3


def test_a_report_knows_the_time_spent_waiting(wait):
    def slow_batches():
        for batch in ("a", "b"):
            wait(3)
            yield batch

    window = Window(Progress())
    for loss, _ in enumerate(window.waiting_for(slow_batches()), start=1):
        wait(1)  # the step itself
        window.add(float(loss), 8)
    assert window.flush() == {"loss": 1.5, "queries_per_second": 2.0, "share_waiting": 0.75}
    window.add(5.0, 8)
    wait(1)
    assert window.flush() == {"loss": 5.0, "queries_per_second": 8.0, "share_waiting": 0.0}
