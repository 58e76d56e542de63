"""The paper's own figures, and which of them an evaluation can be set beside."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

Content = dict[str, Any]  # an evaluation, or a part of one, as it is on disk
Row = tuple[str, Sequence[Any]]


@cache
def paper() -> Content:
    """Return the paper's tables."""
    text = resources.files("betae.evaluation").joinpath("paper.json").read_text(encoding="utf-8")
    content: Content = json.loads(text)
    return content


def paper_dataset(evaluation: Content) -> str | None:
    """Return which of the paper's graphs this is, by the numbers of entities and relations."""
    counts = [evaluation["graph"]["entities"], evaluation["graph"]["relations"]]
    return next((name for name, its in paper()["datasets"].items() if its == counts), None)


def query_kind(evaluation: Content) -> str:
    """Return whose queries they are: betae's or query2box's release, or sampled."""
    return str(evaluation["queries"]["origin"].get("kind", "sampled"))


def describe_queries(evaluation: Content) -> str:
    """Say what the figures of a section were measured on."""
    queries, kind = evaluation["queries"], query_kind(evaluation)
    dataset = paper_dataset(evaluation)
    what = {
        "betae": "the official queries of the BetaE release",
        "query2box": "the official queries of the Query2Box release",
    }.get(kind, "queries sampled by betae")
    text = f"{queries['count']:,} {queries['split']} queries: {what}"
    if dataset and kind == "sampled":
        text += f"; the paper's figures for {dataset} are on its own sample of the same kind"
    return text + "."


def _paper_rows(evaluation: Content, metric: str, columns: Sequence[str]) -> list[Row]:
    """Return the paper's rows of a metric for the graph and queries of an evaluation."""
    kind = "query2box" if query_kind(evaluation) == "query2box" else "betae"
    by_model: dict[str, dict[str, float]] = defaultdict(dict)
    for row in paper()["rows"]:
        if (row["metric"], row["queries"]) == (metric, kind) and row["dataset"] == paper_dataset(
            evaluation
        ):
            average = {"negation": "negation", "empty": "all"}.get(row["table"], "EPFO")
            values = {average if k == "average" else k: v for k, v in row["values"].items()}
            by_model[row["model"]] |= values
    return [
        (f"paper's {model}", [values.get(column) for column in columns])
        for model, values in by_model.items()
    ]
