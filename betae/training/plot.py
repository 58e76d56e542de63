"""Curves of a run: loss and validation MRR by structure, as PNG or SVG."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from betae.errors import InvalidArgument
from betae.storage import check_file, writing_file
from betae.training.folder import RunFolder

NOT_STRUCTURES = {"step", "seconds", "mrr"}


def plot_run(run: Path | str, target: Path | str) -> None:
    """Draw the loss and the validation MRR of a run over its steps."""
    # Not pyplot: it is the user's, with the backend of a notebook and figures of its own.
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    run, target = Path(run), Path(target)
    if target.suffix not in (".png", ".svg"):
        raise InvalidArgument(f"{target}: choose a file name that ends in .png or .svg.")
    check_file(target)
    lines = RunFolder(run).read_metrics()
    losses = [line for line in lines if "loss" in line]
    validations = [line for line in lines if "mrr" in line]
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(
        [line["step"] for line in losses],
        [line["loss"] for line in losses],
        marker=_marker(losses),
    )
    left.set(title="Loss", xlabel="step", yscale="log")
    steps, marker = [line["step"] for line in validations], _marker(validations)
    structures = [name for name in (validations or [{}])[-1] if name not in NOT_STRUCTURES]
    for number, name in enumerate(structures):
        values = [line[name] for line in validations]
        colour = colormaps["tab20"](number % 20)
        right.plot(steps, values, label=name, color=colour, linewidth=1, marker=marker)
    means = [line["mrr"] for line in validations]
    right.plot(steps, means, label="mean", color="black", linewidth=2, marker=marker)
    right.set(title="Validation MRR, %", xlabel="step", ylim=(0, None))
    right.legend(fontsize="small", ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))
    buffer = io.BytesIO()
    figure.savefig(buffer, format=target.suffix[1:], dpi=120)
    with writing_file(target) as partial:
        partial.write_bytes(buffer.getvalue())


def _marker(points: list[dict[str, Any]]) -> str | None:
    """Return what marks the points of a curve: a single one makes no line."""
    return "o" if len(points) == 1 else None
