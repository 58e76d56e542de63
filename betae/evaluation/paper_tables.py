"""The paper's tables one by one, with the figures of runs below the paper's own.

The sections of a report go by query set. This goes by the paper's tables: for each graph and model
of a table it looks for the evaluation to set beside the paper's figures. What cannot be compared is
left blank, and a footnote says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from betae.evaluation.paper import has_queries_of_the_paper, paper, paper_dataset, query_kind
from betae.evaluation.results import Evaluation, KeptEvaluation
from betae.evaluation.tables import METRICS, MODEL_NAMES, Cell, Row, Table, figures
from betae.queries.structures import EPFO, NEGATION

TITLES = {  # of the paper's tables, by label and metric, with the digits of their figures
    ("conjmrr", "mrr"): ("Queries without negation: MRR, %", 1),
    ("conjhone", "hits_at_1"): ("Queries without negation: H@1, %", 1),
    ("negation", "mrr"): ("Queries with negation: MRR, %", 1),
    ("negation", "hits_at_10"): ("Queries with negation: H@10, %", 1),
    ("conjold", "mrr"): ("Query2Box's queries: MRR, %", 1),
    ("spearman", "spearman"): ("Uncertainty and the number of answers: Spearman's", 3),
    ("pearson", "pearson"): ("Uncertainty and the number of answers: Pearson's", 3),
    ("empty", "roc_auc"): ("Queries without answers: ROC-AUC", 3),
}
AVERAGE = "average"
NO_RUN = "Left blank: the report has no run of this model on this graph."
OTHER_QUERIES = "Left blank: no run of this model was evaluated on such test queries of this graph."
NOT_MEASURED = "Left blank: not measured in the evaluations on such queries."
SAMPLED = (
    "On queries sampled by the rules of the BetaE release; none of the runs was evaluated on the "
    "released ones."
)
NO_COMPLEMENT = "Without a complement there is no De Morgan form (-DM)."


def paper_tables(evaluations: Sequence[KeptEvaluation]) -> list[Table]:
    """Return the paper's tables for its graphs and models that the evaluations are about."""
    by_embedding = [each for each in evaluations if each.evaluation.method == "embedding"]
    graphs = {paper_dataset(each.evaluation) for each in by_embedding}
    models = {MODEL_NAMES.get(each.evaluation.model) for each in by_embedding}
    tables = []
    for (label, metric), (title, digits) in TITLES.items():
        rows = [
            row
            for row in paper()["rows"]
            if (row["table"], row["metric"]) == (label, metric)
            and row["dataset"] in graphs
            and row["model"] in models
        ]
        if rows:
            tables.append(_table(title, digits, rows, by_embedding))
    return tables


def _table(
    title: str, digits: int, theirs: Sequence[Mapping[str, Any]], ours: Sequence[KeptEvaluation]
) -> Table:
    columns = max((list(row["values"]) for row in theirs), key=len)
    rows: list[Row] = []
    notes: list[str] = []
    for row in theirs:
        name = f"{row['dataset']}, {row['model']}"
        rows.append((f"{name}: paper", [row["values"].get(column) for column in columns]))
        label, cells, note = _beside(row, columns, ours)
        if note and note not in notes:
            notes.append(note)
        mark = f" [{notes.index(note) + 1}]" if note else ""
        rows.append((f"{name}: {label}{mark}", cells))
    numbered = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    if any(
        column.endswith("-DM") and row["values"].get(column) is None
        for row in theirs
        for column in columns
    ):
        numbered.append(NO_COMPLEMENT)
    return Table(title, columns, rows, numbered, digits)


def _beside(
    row: Mapping[str, Any], columns: Sequence[str], ours: Sequence[KeptEvaluation]
) -> tuple[str, list[Cell], str | None]:
    """Return a label, figures and a note for the evaluation that belongs below a paper's row."""
    blank: list[Cell] = [None] * len(columns)
    of_model = [
        each
        for each in ours
        if paper_dataset(each.evaluation) == row["dataset"]
        and MODEL_NAMES.get(each.evaluation.model) == row["model"]
    ]
    if not of_model:
        return "here", blank, NO_RUN
    alike = [each for each in of_model if _has_queries(each.evaluation, row["queries"])]
    if not alike:
        return "here", blank, OTHER_QUERIES

    def preference(each: KeptEvaluation) -> tuple[bool, bool, int]:
        evaluation = each.evaluation
        is_released = query_kind(evaluation) == row["queries"]
        return _figures(evaluation, row, columns) != blank, is_released, evaluation.queries.count

    best = max(alike, key=preference)
    is_measured, is_released, count = preference(best)
    if not is_measured:
        return "here", blank, NOT_MEASURED
    cells = _figures(best.evaluation, row, columns)
    return f"{best.run}, {count:,} queries", cells, None if is_released else SAMPLED


def _has_queries(evaluation: Evaluation, kind: str) -> bool:
    """Tell whether an evaluation is on test queries of this release, or sampled by its rules."""
    if evaluation.queries.split != "test" or not has_queries_of_the_paper(evaluation):
        return False
    if query_kind(evaluation) == "sampled":
        return kind == "betae" and evaluation.queries.origin.get("rules") == "release"
    return query_kind(evaluation) == kind


def _figures(evaluation: Evaluation, row: Mapping[str, Any], columns: Sequence[str]) -> list[Cell]:
    metric = row["metric"]
    if metric in METRICS:
        kind, members = ("negation", NEGATION) if row["table"] == "negation" else ("EPFO", EPFO)
        results = dict(evaluation.results)
        average = evaluation.averages.get(kind)
        if average and len(average.structures) == len(members):
            results[AVERAGE] = average
        return figures(results, columns, lambda one: getattr(one.metrics, metric))
    if metric == "roc_auc":
        cells = figures(evaluation.empty, columns, lambda one: one.roc_auc)
        there = [cell for cell in cells if isinstance(cell, float)]
        of_all = sum(there) / len(there) if there else None
        return [
            of_all if column == AVERAGE else cell
            for column, cell in zip(columns, cells, strict=True)
        ]
    return figures(
        evaluation.structures, columns, lambda one: getattr(one.correlation, metric, None)
    )
