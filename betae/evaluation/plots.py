"""Plots of evaluations as SVG: MRR by structure, uncertainty against answers, ROC curves.

No pyplot: it would choose a backend for the whole program, a notebook's too.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.figure import Figure

from betae.evaluation.results import Evaluation
from betae.evaluation.tables import FREQUENCY, most_complete


def draw_plots(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """Draw the evaluations on one query set; return SVG texts by name."""
    figures = {"mrr": draw_mrr(evaluations)}
    if any(one.points for each in evaluations for one in each.structures.values()):
        figures["entropy"] = draw_points(evaluations)
    if any(each.empty for each in evaluations):
        figures["roc"] = draw_curves(evaluations)
    return {name: _svg(figure) for name, figure in figures.items()}


def draw_mrr(evaluations: Sequence[Evaluation]) -> Figure:
    """Draw the MRR of each structure as bars with intervals, beside the baseline."""
    names = list(dict.fromkeys(name for each in evaluations for name in each.structures))
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / (len(evaluations) + 1)
    for number, each in enumerate(evaluations):
        results = each.structures
        there = [(i, results[name]) for i, name in enumerate(names) if name in results]
        left = [i + number * width for i, _ in there]
        values = [result.metrics.mrr for _, result in there]
        spans = [
            [result.metrics.mrr - result.interval[0] for _, result in there],
            [result.interval[1] - result.metrics.mrr for _, result in there],
        ]
        axes.bar(left, values, width, yerr=spans, label=_label(each), error_kw={"linewidth": 0.8})
    most = most_complete(evaluations).structures
    left = [i + len(evaluations) * width for i, name in enumerate(names) if name in most]
    values = [most[name].frequency.mrr for name in names if name in most]
    axes.bar(left, values, width, label=FREQUENCY, color="lightgrey")
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(names))], map(_literal, names))
    axes.set(title="MRR by structure, with 95 % intervals", ylabel="%")
    axes.legend()
    return figure


def draw_points(evaluations: Sequence[Evaluation]) -> Figure:
    """Scatter uncertainty against the number of answers, for each structure."""
    names = list(
        dict.fromkeys(
            name
            for each in evaluations
            for name, result in each.structures.items()
            if result.points
        )
    )
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(2.8 * columns, 2.4 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(names) :]:
        axes.axis("off")
    for name, axes in zip(names, grid.flat, strict=False):
        for number, each in enumerate(evaluations):
            result = each.structures.get(name)
            points = (result and result.points) or []
            x, y = [x for x, _ in points], [y for _, y in points]
            if any(one.points for one in each.structures.values()):
                axes.scatter(x, y, s=4, alpha=0.5, label=_label(each), color=f"C{number}")
        axes.set(title=_literal(name), yscale="log")
    grid[0, 0].legend(fontsize="x-small")
    figure.supxlabel("uncertainty of the query")
    figure.supylabel("number of answers")
    return figure


def draw_curves(evaluations: Sequence[Evaluation]) -> Figure:
    """Draw the ROC curves of queries with answers against those without."""
    tested = [each for each in evaluations if each.empty]
    figure = Figure(figsize=(5 * len(tested), 4.4), layout="constrained")
    grid = figure.subplots(1, len(tested), squeeze=False)
    for axes, each in zip(grid[0], tested, strict=True):
        for name, result in each.empty.items():
            label = f"{_literal(name)} {result.roc_auc:.2f}"
            axes.plot(*zip(*result.curve, strict=True), label=label, linewidth=1)
        axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
        axes.set(
            title=f"Has answers? {_label(each)}",
            xlabel="false positive rate",
            ylabel="true positive rate",
        )
        axes.legend(fontsize="x-small")
    return figure


def _label(evaluation: Evaluation) -> str:
    method = ", completed graph" if evaluation.method == "completed" else ""
    return _literal(evaluation.run + method)


def _literal(name: str) -> str:
    """Escape dollar signs, which matplotlib reads as formulas."""
    return name.replace("$", r"\$")


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
