"""Time in training: a clock that validation pauses, and the figures of a report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from betae.training.batches import Batch
from betae.training.checkpoint import Progress


class Clock:
    """Seconds of training, over all sessions of a run."""

    def __init__(self, earlier: float = 0.0):
        """Start, after sessions that took `earlier` seconds together."""
        self._start = time.monotonic() - earlier

    def seconds(self) -> float:
        """Return the seconds so far, without the pauses."""
        return time.monotonic() - self._start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for a while."""
        before = time.monotonic()
        try:
            yield
        finally:
            self._start += time.monotonic() - before


class Window:
    """Figures since the last report; the losses are kept with the progress of the run."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self.start, self.queries, self.waited = time.monotonic(), 0, 0.0

    def waiting_for(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches, and note how long the trainer waits for each."""
        since = time.monotonic()
        for batch in batches:
            self.waited += time.monotonic() - since
            yield batch
            since = time.monotonic()

    def add(self, loss: float, num_queries: int) -> None:
        """Add a step."""
        self.progress.losses.append(loss)
        self.queries += num_queries

    def flush(self) -> dict[str, float]:
        """Return the figures and start a new window."""
        seconds = time.monotonic() - self.start
        line = {
            "loss": sum(self.progress.losses) / len(self.progress.losses),
            "queries_per_second": self.queries / seconds,
            "share_waiting": self.waited / seconds,
        }
        self.progress.losses.clear()
        self.start, self.queries, self.waited = time.monotonic(), 0, 0.0
        return line
