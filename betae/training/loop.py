"""The loop: batch, forward, backward, step; now and then report, validate, save."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from betae import parallel
from betae.checks import check_positive
from betae.errors import InvalidArgument, StoreError, TrainingStopped
from betae.evaluation.ranks import mean
from betae.graph.graph import KnowledgeGraph
from betae.models.store import check_finite
from betae.querysets.query_set import QuerySet
from betae.storage import check_place
from betae.training.batches import Batch, EmptyQueries, prepare_batches
from betae.training.checkpoint import Checkpoint, Progress
from betae.training.clock import Clock, Window
from betae.training.config import TrainConfig
from betae.training.folder import RunFolder
from betae.training.interrupts import interruptible
from betae.training.learner import Learner, make_learner
from betae.training.optimizer import rate_factor
from betae.training.streams import open_streams
from betae.training.validation import frequency_mrr, validate, validation_queries
from betae.training.warm_start import start_from

REPORT_EVERY = 50  # steps
INTERRUPTED = "interrupted"  # why training ended
RESUME = "The last checkpoint is whole: resume from it with --resume."
DIVERGED = "Start again in another folder with a smaller learning_rate; what was good is kept in"


@dataclass(frozen=True)
class Outcome:
    """How training ended."""

    step: int
    seconds: float
    best_mrr: float  # in percent, on validation queries, mean over the structures
    best_step: int
    frequency_mrr: float | None  # of ranking by frequency on the same queries; None without them
    why: str  # why it ended
    predictor: Outcome | None = None  # that of the link predictor beside the model


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
    """Train a model in a run's folder, from the weights of an `earlier` run: see `betae.train`."""
    if minutes is not None:
        check_positive("minutes", minutes)
    with interruptible() as is_interrupted, parallel.joined(RESUME):
        _check_folder(run.path, resume)
        learner = make_learner(graph, config, run.path)
        if earlier is not None:
            start_from(earlier, learner, graph)
        streams = open_streams(graph, queries, config)
        empty = EmptyQueries(graph, config) if config.empty else None
        valid = validation_queries(valid, learner.model, graph, config)
        learner.model.require(stream.structure for stream in streams.values())
        learner.model.require(block.structure for block in (valid.blocks if valid else {}).values())
        progress = _resume(run, learner, graph) if resume else Progress()
        for name, position in progress.positions.items():
            streams[name].go_to(position)
        journal = _Journal(run, learner, progress, graph.fingerprint, report)
        if _is_stuck(progress, config):
            journal.begin(graph)
            why = _why(config, is_stuck=True)
        else:
            batches = prepare_batches(progress.step, streams, config, graph, empty)
            with closing(batches):
                first = [*islice(batches, 1)]  # raises if there are no such queries
                journal.begin(graph)
                rest = chain(first, batches)
                why = _train(learner, rest, valid, journal, minutes, is_interrupted)
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
    """Take a step for every batch, until there is a reason to stop; return the reason."""
    config, progress = learner.config, journal.progress
    clock, window = Clock(progress.seconds), Window(progress)
    for batch in window.waiting_for(batches):
        loss = learner.backward(learner.forward(batch))
        journal.check_loss(loss)
        progress.seconds = clock.seconds()
        # Processes must not differ in what they decide: process 0's clock and signals count.
        over = parallel.same_everywhere(progress.seconds / (60 * minutes) if minutes else 0.0)
        interrupted = bool(parallel.same_everywhere(float(is_interrupted())))
        done = over if minutes else progress.step / config.steps
        learner.optimizer.step(rate_factor(progress.step, done, config.warmup))
        progress.step += 1
        progress.positions = batch.positions
        window.add(loss, len(batch))

        is_last = progress.step == config.steps or over >= 1 or interrupted
        if progress.step % REPORT_EVERY == 0 or is_last:
            journal.say(window.flush())
        is_due = progress.step % config.validate_every == 0 or (is_last and not interrupted)
        if valid is not None and is_due:
            with clock.paused():
                journal.note_validation(validate(learner.model, valid))
        is_stuck = _is_stuck(progress, config)
        if progress.step % config.checkpoint_every == 0 or is_last or is_stuck:
            journal.save_checkpoint()
        if is_last or is_stuck:
            return _why(config, interrupted, over >= 1, is_stuck)
    return _why(config)


def _is_stuck(progress: Progress, config: TrainConfig) -> bool:
    return 0 < config.patience <= progress.validations_since_best


def _why(
    config: TrainConfig, interrupted: bool = False, is_late: bool = False, is_stuck: bool = False
) -> str:
    if interrupted:
        return INTERRUPTED
    if is_late:
        return "time is up"
    if is_stuck:
        return f"no better validation MRR in {config.patience} validations"
    return "all steps done"


class _Journal:
    """What training leaves in the run's folder: process 0 writes, but for the others' rows."""

    def __init__(
        self,
        run: RunFolder,
        learner: Learner,
        progress: Progress,
        graph_fingerprint: str,
        report: Callable[[dict[str, Any]], None],
    ):
        self.run, self.learner, self.progress = run, learner, progress
        self.graph_fingerprint, self.report = graph_fingerprint, report
        self.is_writer = parallel.process_number() == 0

    def begin(self, graph: KnowledgeGraph) -> None:
        """Write what the run is, and drop the metrics of steps that will be taken again."""
        if not self.is_writer:
            return
        if not self.progress.step:
            self.run.save_config(self.learner.config)
        if not self.progress.step or graph.folder is not None:
            self.run.save_graph_place(graph)
        self.run.cut_metrics(self.progress.step)

    def say(self, figures: dict[str, float]) -> None:
        """Add a line to the metrics."""
        if self.is_writer:
            line = {"step": self.progress.step, "seconds": self.progress.seconds, **figures}
            self.run.append_metrics(line)
            self.report(line)

    def note_validation(self, mrr: dict[str, float]) -> None:
        """Report a validation, and keep the model if it is the best so far."""
        progress, average = self.progress, mean(list(mrr.values()))
        if math.isfinite(average) and average > progress.best_mrr:
            self._check_finite()
            progress.best_mrr, progress.best_step = average, progress.step
            progress.validations_since_best = 0
            self.run.save_best(self.learner.model, progress.step, self.graph_fingerprint)
        else:
            progress.validations_since_best += 1
        self.say({"mrr": average, **mrr})

    def save_checkpoint(self) -> None:
        """Write everything that is needed to resume."""
        self._check_finite()
        learner = self.learner
        checkpoint = Checkpoint(
            learner.model, learner.state(), self.progress, learner.optimizer.moments()
        )
        self.run.save_checkpoint(checkpoint, self.graph_fingerprint)

    def check_loss(self, loss: float) -> None:
        """Stop before a loss that is not a number spoils the weights."""
        if not math.isfinite(loss):
            step = self.progress.step + 1
            raise TrainingStopped(f"The loss is {loss} at step {step}. {DIVERGED} {self.run.path}.")

    def _check_finite(self) -> None:
        problem = ""
        try:
            check_finite(self.learner.model)
        except StoreError as error:
            problem = str(error)
        problem = next(filter(None, parallel.from_all(problem)), "")  # that of any process
        if problem:
            raise TrainingStopped(
                f"Diverged at step {self.progress.step}: {problem} {DIVERGED} {self.run.path}."
            )


def _check_folder(path: Path, resume: bool) -> None:
    """Raise before any work unless a run can begin, or be resumed, in a folder."""
    check_place(path / "config.json")
    if path.exists() and not path.is_dir():
        raise InvalidArgument(f"{path} is a file. Choose a folder for the run.")
    is_there = path.exists() and any(path.iterdir())
    parallel.wait_for_all()  # before anyone writes there
    if is_there and not resume:
        raise InvalidArgument(f"{path} is not empty. Choose another folder, or --resume it.")


def _resume(run: RunFolder, learner: Learner, graph: KnowledgeGraph) -> Progress:
    """Take up the run that is in the folder; one without a checkpoint begins anew."""
    if run.path.exists() and any(run.path.iterdir()):
        run.check_same_config(learner.config)
    moments = learner.optimizer.moments()
    checkpoint = run.load_checkpoint(learner.model, graph.fingerprint, moments)
    if checkpoint is None:
        return Progress()
    learner.restore(checkpoint.tensors)
    return checkpoint.progress
