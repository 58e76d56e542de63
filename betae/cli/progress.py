"""Progress bars of long work; training also writes to TensorBoard, if it is installed.

Without a terminal, training prints a line now and then, and other work prints nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from betae.cli.common import is_writer

if TYPE_CHECKING:
    from betae.training.config import TrainConfig


WORDS = TextColumn("{task.description}", markup=False)  # brackets may belong to a name
SECONDS_BETWEEN_LINES = 10.0  # at least, without a terminal; validations are always printed


def _bars(console: Console, *columns: ProgressColumn) -> Progress:
    """Return progress bars that disappear at the end; without a terminal nothing is drawn."""
    is_shown = console.is_terminal and is_writer()
    return Progress(*columns, console=console, transient=True, disable=not is_shown)


@contextmanager
def showing_counts(
    console: Console, counts: Mapping[str, int]
) -> Iterator[Callable[[str, int], None]]:
    """Show a bar for each name; yield `progress(name, done)`."""
    with _bars(console, WORDS, BarColumn(), MofNCompleteColumn()) as bars:
        tasks = {name: bars.add_task(name, total=wanted) for name, wanted in counts.items()}
        yield lambda name, done: bars.update(tasks[name], completed=done)


@contextmanager
def showing_work(console: Console, first: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar, at `first` without a length; yield `progress(what, done, total)`."""
    with _bars(console, WORDS, BarColumn(), TimeRemainingColumn()) as bars:
        task = bars.add_task(first, total=None)
        yield lambda what, done, total: bars.update(
            task, description=what, completed=done, total=total
        )


class Reporter:
    """Shows the metrics that `train` reports; only those of process 0."""

    def __init__(self, bars: Progress, run: Path, minutes: float | None):
        self.bars, self.run, self.minutes = bars, run, minutes
        self.board: Any | None = None
        self.what, self.mrr = "", ""  # the model in training, and its last validation
        self.last_line = 0.0  # time of the last line without a terminal
        self.task = bars.add_task("starting", total=1.0)

    @cached_property
    def config(self) -> TrainConfig:
        """The config of the run, which is written before the first report."""
        from betae.training.folder import RunFolder

        return RunFolder(self.run).read_config()

    def __call__(self, line: dict[str, Any]) -> None:
        """Show a line of the metrics, those of the link predictor with a prefix."""
        beside = self.config.predictor if line.get("predictor") else None
        config, what = beside or self.config, "predictor, " if beside else ""
        if what != self.what:
            self.what, self.mrr = what, ""
        step = line["step"]
        if self.board is None:
            self.board = _tensorboard(self.run)
        if self.board is not None:
            for name, value in line.items():
                if name not in ("step", "seconds", "predictor"):
                    self.board.add_scalar(("predictor/" if beside else "") + name, value, step)
        if "mrr" in line:
            self.mrr = f"  MRR {line['mrr']:.1f} %"
            self._print(f"{what}step {step:,}  validation{self.mrr[1:]}")
            return
        minutes = self.minutes and self.minutes / (2 if self.config.predictor else 1)
        by_time = line["seconds"] / (60 * minutes) if minutes else 0.0
        done = min(max(step / config.steps, by_time), 1.0)
        left = line["seconds"] * (1 - done) / done / 60
        text = (
            f"{what}step {step:,}  loss {line['loss']:.3f}{self.mrr}  "
            f"{line['queries_per_second']:,.0f} queries/s  {left:.1f} min left"
        )
        self.bars.update(self.task, completed=done, description=text)
        if time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            self._print(text)

    def show_mining(self, done: int, total: int) -> None:
        """Show how far the rules are mined, after training."""
        self.bars.update(self.task, completed=done / total, description="mining rules")

    def _print(self, text: str) -> None:
        """Print a line if there is no terminal for a live one."""
        if self.bars.disable and is_writer():
            self.last_line = time.monotonic()
            self.bars.console.print(Text(text), highlight=False, soft_wrap=True)


@contextmanager
def showing_progress(
    console: Console, run: Path, minutes: float | None = None
) -> Iterator[Reporter]:
    """Show training in one line; yield the reporter for `train`."""
    columns = (BarColumn(bar_width=20), WORDS, TimeElapsedColumn())
    with _bars(console, *columns) as bars:
        reporter = Reporter(bars, run, minutes)
        yield reporter
    if reporter.board is not None:
        reporter.board.close()


def _tensorboard(run: Path) -> Any | None:
    """Return a TensorBoard writer, if the package is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"))
