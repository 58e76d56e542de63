"""The loop: batch, forward, backward, step; now and then report, validate, save."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch

from betae import parallel
from betae.checks import check_positive
from betae.errors import InvalidArgument, StoreError, TrainingStopped
from betae.evaluation.ranks import mean, per_query, rank_block
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import embed_queries
from betae.models.store import build_model, check_finite
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.query_set import QuerySet
from betae.querysets.sample import sample_validation
from betae.training import distributed
from betae.training.batches import EmptyQueries, prepare_batches
from betae.training.checkpoint import Checkpoint, Progress
from betae.training.config import TrainConfig
from betae.training.folder import RunFolder
from betae.training.losses import make_loss
from betae.training.optimizer import Optimizer, rate_factor
from betae.training.streams import open_streams

REPORT_EVERY = 50  # steps
RESUME = "The last checkpoint is whole: go on with --resume."
DIVERGED = "Start again in another folder with a smaller learning_rate; what was good is kept in"


@dataclass(frozen=True)
class Outcome:
    """How training ended."""

    step: int
    seconds: float
    best_mrr: float  # in percent, on validation queries, mean over the structures
    best_step: int
    why: str  # why it ended


def fit(
    graph: KnowledgeGraph,
    config: TrainConfig,
    run: RunFolder,
    *,
    queries: QuerySet | None = None,
    valid: QuerySet | None = None,
    minutes: float | None = None,
    resume: bool = False,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Outcome:
    """Train a model in a run's folder: see `betae.train`."""
    if minutes is not None:
        check_positive("minutes", minutes)
    with _interruptible() as is_interrupted, parallel.joined(RESUME), ExitStack() as stack:
        is_writer = parallel.process_number() == 0
        torch.manual_seed(config.seed)
        model = build_model(config.model, graph.num_entities, graph.num_relations)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model.to(device)
        model.has_sparse_gradient = True
        loss_function = make_loss(config).to(device)
        optimizer = Optimizer(model, loss_function, config)
        streams = open_streams(graph, queries, config)
        empty = EmptyQueries(graph, config) if config.empty else None
        valid = _checked(valid, graph) or sample_validation(
            graph,
            [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])],
            config.validation_queries,
            config.seed,
        )
        structures = [stream.structure for stream in streams.values()]
        structures += [block.structure for block in valid.blocks.values()] if valid else []
        if not all(map(model.can, structures)):
            model.negate(torch.empty(0))  # raises, and says which model can
        progress = _start(run, resume, config, model, loss_function, optimizer, graph)
        for name, position in progress.positions.items():
            streams[name].go_to(position)

        def say(line: dict[str, Any]) -> None:
            if is_writer:
                run.append_metrics(line)
                report(line)

        def save() -> None:
            _check_finite(model, progress.step, run)
            if is_writer:
                tensors = {**optimizer.state(), **_named("loss", loss_function)}
                run.save_checkpoint(Checkpoint(model, tensors, progress), graph.fingerprint)

        session_start, earlier = time.monotonic(), progress.seconds
        window = _Window(progress)
        stuck = f"no better validation MRR in {config.patience} validations"
        why = stuck if _is_stuck(progress, config) else "all steps done"
        first = config.steps if _is_stuck(progress, config) else progress.step
        batches = stack.enter_context(
            closing(prepare_batches(first, streams, config, graph.num_entities, empty))
        )
        waiting_since = time.monotonic()
        for batch in batches:
            window.waited += time.monotonic() - waiting_since
            share = distributed.share_of(batch).to(device)
            with _matrix_precision(config.precision, device):
                embedded = embed_queries(model, share.groups)
                distances = embedded.best(
                    model.distance(embedded.sets, model.table(share.candidates))
                )
            uncertainty = None
            if config.loss == "softmax" and config.size and model.has_uncertainty:
                largest = -embedded.best(-model.uncertainty(embedded.sets))
                uncertainty = largest.float() / model.dim
            loss = loss_function(distances.float(), share, uncertainty).sum() / len(batch)
            optimizer.zero_grad()
            loss.backward()
            distributed.sum_gradients(optimizer)
            total_loss = float(parallel.sum_over_processes(loss.detach()))
            if not math.isfinite(total_loss):
                raise TrainingStopped(
                    f"The loss is {total_loss} at step {progress.step + 1}. {DIVERGED} {run.path}."
                )
            progress.seconds = earlier + time.monotonic() - session_start
            over_time = progress.seconds / (60 * minutes) if minutes else 0.0
            over = parallel.same_everywhere(over_time)
            interrupted = bool(parallel.same_everywhere(float(is_interrupted())))
            done = over if minutes else progress.step / config.steps
            optimizer.step(rate_factor(progress.step, done, config.warmup))
            progress.step += 1
            progress.positions = batch.positions
            window.add(total_loss, len(batch))

            is_last = progress.step == config.steps or over >= 1 or interrupted
            if progress.step % REPORT_EVERY == 0 or is_last:
                say({"step": progress.step, "seconds": progress.seconds, **window.flush()})
            is_due = progress.step % config.validate_every == 0 or (is_last and not interrupted)
            if valid is not None and is_due:
                before = time.monotonic()
                mrr = validate(model, valid)
                average = mean(list(mrr.values()))
                if average > progress.best_mrr:
                    _check_finite(model, progress.step, run)
                    progress.best_mrr, progress.best_step = average, progress.step
                    progress.validations_since_best = 0
                    if is_writer:
                        run.save_best(model, progress.step, graph.fingerprint)
                else:
                    progress.validations_since_best += 1
                say({"step": progress.step, "seconds": progress.seconds, "mrr": average, **mrr})
                earlier -= time.monotonic() - before  # the time limit is for training
            is_stuck = _is_stuck(progress, config)
            if progress.step % config.checkpoint_every == 0 or is_last or is_stuck:
                save()
            if is_last or is_stuck:
                if interrupted:
                    why = "interrupted"
                elif over >= 1:
                    why = "time is up"
                elif is_stuck:
                    why = stuck
                break
            waiting_since = time.monotonic()
    return Outcome(progress.step, progress.seconds, progress.best_mrr, progress.best_step, why)


def _is_stuck(progress: Progress, config: TrainConfig) -> bool:
    return 0 < config.patience <= progress.validations_since_best


def _checked(valid: QuerySet | None, graph: KnowledgeGraph) -> QuerySet | None:
    if valid is not None:
        valid.check_graph(graph)
        if valid.split == "train":
            raise InvalidArgument("Validation needs a query set sampled for valid, not for train.")
    return valid


def _check_finite(model: QueryModel, step: int, run: RunFolder) -> None:
    try:
        check_finite(model)
    except StoreError as error:
        raise TrainingStopped(f"Diverged at step {step}: {error} {DIVERGED} {run.path}.") from error


def _start(
    run: RunFolder,
    resume: bool,
    config: TrainConfig,
    model: QueryModel,
    loss_function: torch.nn.Module,
    optimizer: Optimizer,
    graph: KnowledgeGraph,
) -> Progress:
    """Begin a run in an empty folder, or go on with the one that is there."""
    path = run.path
    if path.exists() and not path.is_dir():
        raise InvalidArgument(f"{path} is a file. Choose a folder for the run.")
    is_there = path.exists() and any(path.iterdir())
    parallel.wait_for_all()  # before anyone writes there
    if is_there and not resume:
        raise InvalidArgument(f"{path} is not empty. Choose another folder, or --resume it.")
    if not resume or run.newest("checkpoint") is None:
        if is_there:
            run.check_same_config(config)
        if parallel.process_number() == 0:
            run.save_config(config)
            run.save_graph_place(graph)
            run.cut_metrics(0)
        return Progress()
    run.check_same_config(config)
    checkpoint = run.load_checkpoint(model, graph.fingerprint)
    assert checkpoint is not None
    progress, tensors = checkpoint.progress, checkpoint.tensors
    loss_tensors = {k.removeprefix("loss."): v for k, v in tensors.items() if k.startswith("loss.")}
    loss_function.load_state_dict(loss_tensors)
    optimizer.restore({k: v for k, v in tensors.items() if not k.startswith("loss.")})
    if parallel.process_number() == 0:
        run.cut_metrics(progress.step)
        if graph.folder is not None:
            run.save_graph_place(graph)
    return progress


def validate(model: QueryModel, queries: QuerySet | None) -> dict[str, float]:
    """Return the MRR of every structure, in percent; each process ranks a part of the queries."""
    if queries is None:
        return {}
    model.eval()
    with torch.no_grad():
        table = model.table()
    names, sums = list(queries.blocks), []
    for block in queries.blocks.values():
        mine = block.take(
            np.arange(parallel.process_number(), len(block), parallel.num_processes())
        )
        ranks = rank_block(model, table, mine)
        sums.append(per_query(1 / ranks, mine.hard.offsets).sum() if len(mine) else 0.0)
    totals = parallel.sum_over_processes(torch.tensor(sums, dtype=torch.float64))
    model.train()
    return {
        name: 100 * float(total) / len(queries.blocks[name])
        for name, total in zip(names, totals, strict=True)
    }


class _Window:
    """Figures since the last report; the losses are kept with the progress of the run."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self.start, self.queries, self.waited = time.monotonic(), 0, 0.0

    def add(self, loss: float, num_queries: int) -> None:
        self.progress.losses.append(loss)
        self.queries += num_queries

    def flush(self) -> dict[str, float]:
        seconds = time.monotonic() - self.start
        line = {
            "loss": sum(self.progress.losses) / len(self.progress.losses),
            "queries_per_second": self.queries / seconds,
            "share_waiting": self.waited / seconds,
        }
        self.progress.losses.clear()
        self.start, self.queries, self.waited = time.monotonic(), 0, 0.0
        return line


def _named(prefix: str, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in module.state_dict().items()}


def _matrix_precision(precision: str, device: torch.device) -> torch.autocast:
    """Use bfloat16 for matrix products where the hardware has it, or as asked."""
    wanted = precision == "bfloat16" or (precision == "auto" and has_fast_bfloat16())
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted)


def has_fast_bfloat16() -> bool:
    """Tell whether bfloat16 products are faster than float32 ones here."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C (or SIGTERM) into a wish to end after the step; a second Ctrl-C ends at once.

    Under torchrun SIGTERM stays a wish: it comes when another process has died, and must not cut
    off the message that says so.
    """
    asked = False

    def ask(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            if number == signal.SIGINT or not parallel.is_one_of_several():
                signal.signal(number, handler)
