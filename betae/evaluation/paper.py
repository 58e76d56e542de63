"""Published figures, the paper's own and other systems', and what they can be set beside."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from betae.evaluation.results import Evaluation


@dataclass(frozen=True)
class PublishedFigure:
    """A figure of another system; unless it is checked, it is from memory of the paper."""

    value: float
    is_checked: bool


@cache
def paper() -> dict[str, Any]:
    """Return the paper's tables."""
    return _read("paper.json")


@cache
def published() -> dict[str, Any]:
    """Return what other systems have published, with sources."""
    return _read("published.json")


def _read(name: str) -> dict[str, Any]:
    text = resources.files("betae.evaluation").joinpath(name).read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def paper_dataset(evaluation: Evaluation) -> str | None:
    """Return which of the paper's graphs this is, by the numbers of entities and relations."""
    counts = [evaluation.graph.entities, evaluation.graph.relations]
    return next((name for name, its in paper()["datasets"].items() if its == counts), None)


def query_kind(evaluation: Evaluation) -> str:
    """Return where the queries come from: the betae or query2box release, or sampled."""
    return str(evaluation.queries.origin.get("kind", "sampled"))


def has_queries_of_the_paper(evaluation: Evaluation) -> bool:
    """Tell whether the queries are of the kind that the paper and others have figures for."""
    return "missing" not in evaluation.queries.origin


def describe_queries(evaluation: Evaluation) -> str:
    """Say which queries an evaluation was made on."""
    queries, kind = evaluation.queries, query_kind(evaluation)
    dataset = paper_dataset(evaluation)
    what = {
        "betae": "the official queries of the BetaE release",
        "query2box": "the official queries of the Query2Box release",
    }.get(kind, "queries sampled by betae")
    if queries.origin.get("rules") == "release":
        what += " by the rules of the BetaE release"
    if missing := queries.origin.get("missing"):
        number = "all of their" if missing == "all" else f"at least {missing}"
        what += f"; hard are only answers that need {number} edges to be predicted"
    text = f"{queries.count:,} {queries.split} queries: {what}"
    if dataset and kind == "sampled" and not missing:
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
        is_comparable = has_queries_of_the_paper(evaluation)
        if is_comparable and (row["metric"], row["queries"], row["dataset"]) == wanted:
            average = {"negation": "negation", "empty": "all"}.get(row["table"], "EPFO")
            values = {average if k == "average" else k: v for k, v in row["values"].items()}
            by_model[row["model"]] |= values
    return dict(by_model)


def published_figures(evaluation: Evaluation, metric: str) -> dict[str, dict[str, PublishedFigure]]:
    """Return other systems' figures for the graph of an evaluation, by system and structure.

    They are MRRs on the BetaE release's test queries; Query2Box's queries are of another kind.
    """
    by_system: dict[str, dict[str, PublishedFigure]] = defaultdict(dict)
    is_comparable = has_queries_of_the_paper(evaluation)
    if metric == "mrr" and is_comparable and query_kind(evaluation) != "query2box":
        for row in published()["rows"]:
            if row["dataset"] == paper_dataset(evaluation):
                figures = {k: PublishedFigure(v, row["checked"]) for k, v in row["values"].items()}
                by_system[row["system"]] |= figures
    return dict(by_system)


def describe_published(evaluation: Evaluation, systems: Iterable[str]) -> str:
    """Say whose figures stand beside an evaluation, and whether they are for the same queries."""
    names = [f"{system} ({published()['systems'][system]})" for system in systems]
    is_same = (query_kind(evaluation), evaluation.queries.split) == ("betae", "test")
    on = "the official test queries of the BetaE release"
    return f"Published: {', '.join(names)}, on {on}{'' if is_same else ', not on these'}."
