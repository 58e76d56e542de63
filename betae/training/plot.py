"""Curves of a run: loss and validation MRR by structure, as PNG or SVG."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from betae.checks import needing
from betae.errors import InvalidArgument
from betae.storage import check_file, writing_file
from betae.training.folder import RunFolder

NOT_STRUCTURES = {"step", "seconds", "mrr"}


def plot_run(run: Path | str, target: Path | str) -> None:
    """Draw the loss and the validation MRR of a run over its steps."""
    with needing("matplotlib", "plots"):
        # No pyplot: it would change the backend and figures of a notebook.
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

    def draw(axes: Any, name: str, points: list[dict[str, Any]], **style: Any) -> None:
        marker = "o" if len(points) == 1 else None  # a single point has no line
        steps, values = [point["step"] for point in points], [point[name] for point in points]
        axes.plot(steps, values, marker=marker, **style)

    draw(left, "loss", losses)
    left.set(title="Loss", xlabel="step", yscale="log")
    structures = [name for name in (validations or [{}])[-1] if name not in NOT_STRUCTURES]
    for i, name in enumerate(structures):
        draw(right, name, validations, label=name, color=colormaps["tab20"](i % 20), linewidth=1)
    draw(right, "mrr", validations, label="mean", color="black", linewidth=2)
    right.set(title="Validation MRR, %", xlabel="step", ylim=(0, None))
    right.legend(fontsize="small", ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))
    buffer = io.BytesIO()
    figure.savefig(buffer, format=target.suffix[1:], dpi=120)
    with writing_file(target) as partial:
        partial.write_bytes(buffer.getvalue())
