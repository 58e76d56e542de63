"""Plots of evaluations as SVG: MRR by structure, entropy against answers, ROC curves."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any


def draw_plots(evaluations: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Draw what there is of some runs on one query set; returns SVG texts by name."""
    import matplotlib

    matplotlib.use("Agg")
    plots = {"mrr": _draw_mrr(evaluations)}
    if any(each.get("points") for e in evaluations for each in e["structures"].values()):
        plots["entropy"] = _draw_points(evaluations)
    if any(each["empty"] for each in evaluations):
        plots["roc"] = _draw_curves(evaluations)
    return plots


def _draw_mrr(evaluations: Sequence[dict[str, Any]]) -> str:
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for each in evaluations for name in each["structures"]))
    figure, axes = pyplot.subplots(figsize=(11, 4), layout="constrained")
    width = 0.8 / (len(evaluations) + 1)
    for number, each in enumerate(evaluations):
        results = each["structures"]
        there = [(place, results[name]) for place, name in enumerate(names) if name in results]
        places = [place + number * width for place, _ in there]
        values = [result["metrics"]["mrr"] for _, result in there]
        ends = [result["interval"] for _, result in there]
        spans = [
            [value - low for value, (low, _) in zip(values, ends, strict=True)],
            [high - value for value, (_, high) in zip(values, ends, strict=True)],
        ]
        axes.bar(places, values, width, yerr=spans, label=each["run"], error_kw={"linewidth": 0.8})
    first = evaluations[0]["structures"]
    places = [i + len(evaluations) * width for i, name in enumerate(names) if name in first]
    values = [first[name]["frequency"]["mrr"] for name in names if name in first]
    axes.bar(places, values, width, label="frequency", color="lightgrey")
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(names))], names)
    axes.set(title="MRR by structure, with 95 % intervals", ylabel="%")
    axes.legend()
    return _svg(figure)


def _draw_points(evaluations: Sequence[dict[str, Any]]) -> str:
    from matplotlib import pyplot

    names = list(
        dict.fromkeys(
            name
            for each in evaluations
            for name, result in each["structures"].items()
            if result.get("points")
        )
    )
    columns = min(4, max(1, len(names)))
    rows = -(-len(names) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(2.8 * columns, 2.4 * rows), layout="constrained", squeeze=False
    )
    for place, axes in enumerate(grid.flat):
        if place >= len(names):
            axes.axis("off")
            continue
        for each in evaluations:
            points = each["structures"].get(names[place], {}).get("points") or []
            x, y = [x for x, _ in points], [y for _, y in points]
            axes.scatter(x, y, s=4, alpha=0.5, label=each["run"])
        axes.set(title=names[place], yscale="log")
    grid[0, 0].legend(fontsize="x-small")
    figure.supxlabel("uncertainty of the query")
    figure.supylabel("number of answers")
    return _svg(figure)


def _draw_curves(evaluations: Sequence[dict[str, Any]]) -> str:
    from matplotlib import pyplot

    evaluations = [each for each in evaluations if each["empty"]]
    figure, grid = pyplot.subplots(
        1,
        len(evaluations),
        figsize=(5 * len(evaluations), 4.4),
        layout="constrained",
        squeeze=False,
    )
    for axes, each in zip(grid[0], evaluations, strict=True):
        for name, result in each["empty"].items():
            label = f"{name} {result['roc_auc']:.2f}"
            axes.plot(*zip(*result["curve"], strict=True), label=label, linewidth=1)
        axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
        axes.set(title=f"Has answers? {each['run']}", xlabel="false positives", ylabel="true ones")
        axes.legend(fontsize="x-small")
    return _svg(figure)


def _svg(figure: Any) -> str:
    from matplotlib import pyplot

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
