"""What a person sees of long work: live lines; of training also TensorBoard, if installed.

Where there is no terminal, training prints a line now and then, and other work prints nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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

if TYPE_CHECKING:
    from betae.training.config import TrainConfig


WORDS = TextColumn("{task.description}", markup=False)  # brackets may belong to a name
SECONDS_BETWEEN_LINES = 10.0  # at least, without a terminal; a validation is always told


def _bars(console: Console, *columns: ProgressColumn, is_shown: bool = True) -> Progress:
    """Return bars that vanish at the end; without a terminal nothing is drawn."""
    is_shown = is_shown and console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=not is_shown)


@contextmanager
def showing_counts(
    console: Console, counts: Mapping[str, int]
) -> Iterator[Callable[[str, int], None]]:
    """Show a bar for each name with its count; yield what tells how many are done."""
    columns = (WORDS, BarColumn(), MofNCompleteColumn())
    with _bars(console, *columns) as bars:
        tasks = {name: bars.add_task(name, total=wanted) for name, wanted in counts.items()}
        yield lambda name, done: bars.update(tasks[name], completed=done)


@contextmanager
def showing_work(
    console: Console, is_shown: bool, first: str = "reading the queries"
) -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar; yield what tells the work at hand, how much is done and how much there is."""
    columns = (WORDS, BarColumn(), TimeRemainingColumn())
    with _bars(console, *columns, is_shown=is_shown) as bars:
        task = bars.add_task(first, total=None)
        yield lambda what, done, total: bars.update(
            task, description=what, completed=done, total=total
        )


class Reporter:
    """Shows the lines of the metrics as `train` reports them; only process 0 is shown."""

    def __init__(
        self, bars: Progress, run: Path, config: TrainConfig, minutes: float | None, is_shown: bool
    ):
        self.bars, self.run, self.config, self.minutes = bars, run, config, minutes
        self.board: Any | None = None
        self.is_shown = is_shown
        self.what, self.mrr = "", ""  # what is being trained, and its last validation
        self.last_line = 0.0  # when one was printed without a terminal
        self.task = bars.add_task("starting", total=1.0)

    def __call__(self, line: dict[str, Any]) -> None:
        """Show a line of the metrics; those of a predictor beside the model say so."""
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

    def _print(self, text: str) -> None:
        """Print a line where there is no terminal to keep one up to date on."""
        if self.is_shown and self.bars.disable:
            self.last_line = time.monotonic()
            self.bars.console.print(Text(text), highlight=False, soft_wrap=True)


@contextmanager
def showing_progress(
    console: Console, run: Path, config: TrainConfig, minutes: float | None = None
) -> Iterator[Reporter]:
    """Yield a reporter whose live line disappears when training ends."""
    columns = (BarColumn(bar_width=20), WORDS, TimeElapsedColumn())
    is_shown = int(os.environ.get("RANK", "0")) == 0
    with _bars(console, *columns, is_shown=is_shown) as bars:
        reporter = Reporter(bars, run, config, minutes, is_shown)
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
