"""The training loop: batch, forward, backward, step; at intervals report, validate, save."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from betae import parallel
from betae.checks import check_positive
from betae.errors import InvalidArgument, StoreError, TrainingStopped
from betae.graph.graph import KnowledgeGraph
from betae.models.store import check_finite
from betae.querysets.query_set import QuerySet
from betae.storage import check_parent
from betae.training.batches import Batch, UnanswerableQueries, open_streams, prepare_batches
from betae.training.config import SoftmaxConfig, TrainConfig
from betae.training.folder import Checkpoint, Progress, RunFolder
from betae.training.learner import Learner, make_learner, rate_factor
from betae.training.validation import frequency_mrr, validate, validation_queries
from betae.training.warm_start import start_from

REPORT_EVERY = 50  # steps
INTERRUPTED, ALL_DONE = "interrupted", "all steps done"  # values of `Outcome.why`
RESUME = "The last checkpoint is intact: resume from it with --resume."
DIVERGED = "Start again in another folder with a smaller learning_rate; the last good model is in"


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield whether Ctrl-C or SIGTERM came, as a function; a second Ctrl-C ends at once.

    Training ends after the current step. Under torchrun SIGTERM stays ignored after the end: it
    follows the death of another process and must not cut off the error message.
    """
    asked = False

    def ask(signum: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked and signum == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    try:
        before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for signum, handler in before.items():
            if signum == signal.SIGINT or not parallel.is_one_of_several():
                signal.signal(signum, handler)


class Window:
    """Figures since the last report; the losses are part of the run's progress."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self.start, self.queries, self.waited = time.monotonic(), 0, 0.0

    def waiting_for(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches, and measure the time spent waiting for them."""
        since = time.monotonic()
        for batch in batches:
            self.waited += time.monotonic() - since
            yield batch
            since = time.monotonic()

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


@dataclass(frozen=True)
class Outcome:
    """How training ended."""

    step: int
    seconds: float
    best_mrr: float  # in percent, validation queries, mean over structures
    best_step: int
    frequency_mrr: float | None  # of ranking by frequency on the same queries; None without any
    why: str  # why it ended
    predictor: Outcome | None = None  # of the link predictor beside the model


def fit(
    graph: KnowledgeGraph,
    config: TrainConfig,
    run: RunFolder,
    *,
    queries: QuerySet | None = None,
    valid: QuerySet | None = None,
    minutes: float | None = None,
    resume: bool = False,
    earlier: RunFolder | None = None,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Outcome:
    """Train a model in a run's folder: see `betae.train`.

    With `earlier`, start from the weights of that run.
    """
    if minutes is not None:
        check_positive("minutes", minutes)
    with interruptible() as is_interrupted, parallel.joined(RESUME):
        _check_folder(run.path, resume)
        learner = make_learner(graph, config, run.path)
        if earlier is not None:
            start_from(earlier, learner, graph)
        streams = open_streams(graph, queries, config)
        share = config.loss.unanswerable if isinstance(config.loss, SoftmaxConfig) else 0.0
        empty = UnanswerableQueries(graph, config, share) if share else None
        valid = validation_queries(valid, learner.model, graph, config)
        learner.model.require(stream.structure for stream in streams.values())
        learner.model.require(block.structure for block in (valid.blocks if valid else {}).values())
        progress = _resume(run, learner, graph) if resume else Progress()
        for name, position in progress.positions.items():
            streams[name].go_to(position)
        journal = _Journal(run, learner, progress, graph, report)
        why = _why_stuck(progress, config)
        with closing(prepare_batches(progress.step, streams, config, graph, empty)) as batches:
            first = [] if why else [*islice(batches, 1)]  # raises if a structure has no queries
            journal.begin()
            rest = chain(first, batches)
            why = why or _train(learner, rest, valid, journal, minutes, is_interrupted)
        frequency = None if valid is None else frequency_mrr(graph, valid)
    return Outcome(
        progress.step, progress.seconds, progress.best_mrr, progress.best_step, frequency, why
    )


def _train(
    learner: Learner,
    batches: Iterable[Batch],
    valid: QuerySet | None,
    journal: _Journal,
    minutes: float | None,
    is_interrupted: Callable[[], bool],
) -> str:
    """Train until there is a reason to stop; return the reason."""
    config, progress = learner.config, journal.progress
    start, window = time.monotonic() - progress.seconds, Window(progress)
    for batch in window.waiting_for(batches):
        loss = learner.backward(learner.forward(batch))
        journal.check_loss(loss)
        progress.seconds = time.monotonic() - start
        # All processes must decide alike: the clock and signals of process 0 count.
        over = parallel.same_everywhere(progress.seconds / (60 * minutes) if minutes else 0.0)
        interrupted = bool(parallel.same_everywhere(float(is_interrupted())))
        done = over if minutes else progress.step / config.steps
        learner.optimizer.step(rate_factor(progress.step, done, config.optimizer.warmup))
        progress.step += 1
        progress.positions = batch.positions
        progress.losses.append(loss)
        window.queries += len(batch)

        is_last = progress.step == config.steps or over >= 1 or interrupted
        if progress.step % REPORT_EVERY == 0 or is_last:
            journal.report(window.flush())
        is_due = progress.step % config.validation.every == 0 or (is_last and not interrupted)
        if valid is not None and is_due:
            before = time.monotonic()
            journal.note_validation(validate(learner.model, valid))
            start += time.monotonic() - before  # does not count as training
        stuck = _why_stuck(progress, config)
        if progress.step % config.checkpoint_every == 0 or is_last or stuck:
            journal.save_checkpoint()
        if is_last or stuck:
            if interrupted:
                return INTERRUPTED
            return "time is up" if over >= 1 else stuck or ALL_DONE
    return ALL_DONE


def _why_stuck(progress: Progress, config: TrainConfig) -> str:
    """Return why patience is at its end, or nothing."""
    patience = config.validation.patience
    is_stuck = 0 < patience <= progress.validations_since_best
    return f"no better validation MRR in {patience} validations" if is_stuck else ""


@dataclass(frozen=True)
class _Journal:
    """Writes metrics and models to the run's folder; process 0 writes all but the others' rows."""

    run: RunFolder
    learner: Learner
    progress: Progress
    graph: KnowledgeGraph
    callback: Callable[[dict[str, Any]], None]

    def begin(self) -> None:
        """Write config and graph, and drop the metrics of steps that will be repeated."""
        if parallel.process_index() > 0:
            return
        if not self.progress.step:
            self.run.save_config(self.learner.config)
        if not self.progress.step or self.graph.folder is not None:
            self.run.save_graph_path(self.graph)
        self.run.cut_metrics(self.progress.step)

    def report(self, figures: dict[str, float]) -> None:
        """Append a line to the metrics and pass it to the callback."""
        if parallel.process_index() == 0:
            line = {"step": self.progress.step, "seconds": self.progress.seconds, **figures}
            self.run.append_metrics(line)
            self.callback(line)

    def note_validation(self, mrr: dict[str, float]) -> None:
        """Report a validation, and save the model if it is the best so far."""
        progress, average = self.progress, float(np.mean([*mrr.values()]))
        if math.isfinite(average) and average > progress.best_mrr:
            self._check_finite()
            progress.best_mrr, progress.best_step = average, progress.step
            progress.validations_since_best = 0
            self.run.save_best(self.learner.model, progress.step, self.graph.fingerprint)
        else:
            progress.validations_since_best += 1
        self.report({"mrr": average, **mrr})

    def save_checkpoint(self) -> None:
        """Write the state needed to resume."""
        self._check_finite()
        model, moments = self.learner.model, self.learner.optimizer.moments
        checkpoint = Checkpoint(model, self.learner.state(), self.progress, moments)
        self.run.save_checkpoint(checkpoint, self.graph.fingerprint)

    def check_loss(self, loss: float) -> None:
        """Raise TrainingStopped for a loss that is not finite, before it spoils the weights."""
        if not math.isfinite(loss):
            step = self.progress.step + 1
            raise TrainingStopped(f"The loss is {loss} at step {step}. {DIVERGED} {self.run.path}.")

    def _check_finite(self) -> None:
        problem = ""
        try:
            check_finite(self.learner.model)
        except StoreError as error:
            problem = str(error)
        problem = next(filter(None, parallel.from_all(problem)), "")  # of any process
        if problem:
            raise TrainingStopped(
                f"Diverged at step {self.progress.step}: {problem} {DIVERGED} {self.run.path}."
            )


def _check_folder(path: Path, resume: bool) -> None:
    """Raise, before any work, unless a run can start or resume in a folder."""
    check_parent(path / "config.json")
    if path.exists() and not path.is_dir():
        raise InvalidArgument(f"{path} is a file. Choose a folder for the run.")
    is_used = path.exists() and any(path.iterdir())
    parallel.from_all(None)  # wait for all, before anyone writes there
    if is_used and not resume:
        raise InvalidArgument(f"{path} is not empty. Choose another folder, or --resume it.")


def _resume(run: RunFolder, learner: Learner, graph: KnowledgeGraph) -> Progress:
    """Restore the last checkpoint of a run, or start anew without one."""
    if run.path.exists() and any(run.path.iterdir()):
        run.check_same_config(learner.config)
    moments = learner.optimizer.moments
    checkpoint = run.load_checkpoint(learner.model, graph.fingerprint, moments)
    if checkpoint is None:
        return Progress()
    learner.restore(checkpoint.tensors)
    return checkpoint.progress
