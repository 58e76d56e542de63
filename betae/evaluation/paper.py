"""The paper's own figures, and which of them an evaluation can be set beside."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from importlib import resources
from typing import Any

from betae.evaluation.results import Evaluation


@cache
def paper() -> dict[str, Any]:
    """Return the paper's tables."""
    text = resources.files("betae.evaluation").joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def paper_dataset(evaluation: Evaluation) -> str | None:
    """Return which of the paper's graphs this is, by the numbers of entities and relations."""
    counts = [evaluation.graph.entities, evaluation.graph.relations]
    return next((name for name, its in paper()["datasets"].items() if its == counts), None)


def query_kind(evaluation: Evaluation) -> str:
    """Return where the queries come from: the betae or query2box release, or sampled."""
    return str(evaluation.queries.origin.get("kind", "sampled"))


def describe_queries(evaluation: Evaluation) -> str:
    """Say which queries an evaluation was made on."""
    queries, kind = evaluation.queries, query_kind(evaluation)
    dataset = paper_dataset(evaluation)
    what = {
        "betae": "the official queries of the BetaE release",
        "query2box": "the official queries of the Query2Box release",
    }.get(kind, "queries sampled by betae")
    text = f"{queries.count:,} {queries.split} queries: {what}"
    if dataset and kind == "sampled":
        text += f"; the paper's figures for {dataset} are for its own sample of the same kind"
    return text + "."


def paper_figures(evaluation: Evaluation, metric: str) -> dict[str, dict[str, float]]:
    """Return the paper's figures for the graph and queries of an evaluation.

    They go by model, then by structure or average, as the paper names the models.
    """
    kind = "query2box" if query_kind(evaluation) == "query2box" else "betae"
    wanted = (metric, kind, paper_dataset(evaluation))
    by_model: dict[str, dict[str, float]] = defaultdict(dict)
    for row in paper()["rows"]:
        if (row["metric"], row["queries"], row["dataset"]) == wanted:
            average = {"negation": "negation", "empty": "all"}.get(row["table"], "EPFO")
            values = {average if k == "average" else k: v for k, v in row["values"].items()}
            by_model[row["model"]] |= values
    return dict(by_model)
