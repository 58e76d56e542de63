"""Tables of evaluations side by side, with the paper's figures beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from betae.evaluation.paper import Content, Row, _paper_rows
from betae.queries.structures import EPFO, NEGATION

FREQUENCY = "frequency"


COLUMNS = (  # the paper's order, then the negation structures
    *("1p", "2p", "3p", "2i", "3i", "pi", "ip", "2u", "2u-DM", "up", "up-DM", "EPFO"),
    *(*NEGATION, "negation"),
)


MODEL_NAMES = {"betae": "BetaE", "query2box": "Query2Box", "gqe": "GQE"}


PAPERS_ROWS = [f"paper's {model}" for model in MODEL_NAMES.values()]


METRICS = {"mrr": "MRR", "hits_at_1": "H@1", "hits_at_3": "H@3", "hits_at_10": "H@10"}


EASY = (
    "With negation, entities that are answers on the smaller graph only are left out of the "
    "ranking, as in the paper's release; under the strict reading they count as wrong answers."
)


@dataclass(frozen=True)
class Table:
    """Rows of a label and figures; a cell that is None was not measured."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: list[str] = field(default_factory=list)
    digits: int = 1


def make_tables(evaluations: Sequence[Content]) -> list[Table]:
    """Lay out what some runs have on one query set."""
    there = {name for each in evaluations for name in each["structures"] | each["averages"]}
    columns = [name for name in COLUMNS if name in there]
    columns += sorted(there - set(columns))
    tables = [
        *(_metric_table(evaluations, metric, columns) for metric in METRICS),
        _missing_table(evaluations, columns),
        _strict_table(evaluations, columns),
        _correlation_table(evaluations, "spearman", "Spearman's rank", columns),
        _correlation_table(evaluations, "pearson", "Pearson's", columns),
        _empty_table(evaluations, columns),
        _count_table(evaluations, columns),
    ]
    return [trimmed for table in tables if (trimmed := _trim(table)).columns]


def _trim(table: Table) -> Table:
    """Leave out the columns that no run has anything in."""
    kept = [
        place
        for place in range(len(table.columns))
        if any(cells[place] is not None for label, cells in table.rows if label not in PAPERS_ROWS)
    ]
    rows = [(label, [cells[place] for place in kept]) for label, cells in table.rows]
    return replace(table, columns=[table.columns[place] for place in kept], rows=rows)


def _figures(evaluation: Content, columns: Sequence[str], *keys: str) -> list[Any]:
    """Dig a figure out of the results of every structure and average; None where there is none."""
    results = evaluation["structures"] | evaluation["averages"]
    values = [results.get(column) for column in columns]
    for key in keys:
        values = [None if value is None else value.get(key) for value in values]
    return values


def _label(evaluation: Content) -> str:
    return f"{evaluation['run']} ({MODEL_NAMES[evaluation['model']]})"


def _metric_table(evaluations: Sequence[Content], metric: str, columns: Sequence[str]) -> Table:
    rows: list[Row] = []
    notes = []
    for each in evaluations:
        rows.append((_label(each), _figures(each, columns, "metrics", metric)))
        if metric == "mrr":
            rows.append(("95 % interval", [*map(_span, _figures(each, columns, "interval"))]))
        if each["cannot"]:
            notes.append(f"{_label(each)} cannot do {', '.join(each['cannot'])}: left blank.")
        for kind, members in (("EPFO", EPFO), ("negation", NEGATION)):
            average = each["averages"].get(kind)
            if average and len(average["structures"]) < len(members):
                notes.append(f"{_label(each)}: {kind} is over {', '.join(average['structures'])}.")
    most = max(evaluations, key=lambda each: len(each["structures"]))
    rows.append((FREQUENCY, _figures(most, columns, "frequency", metric)))
    rows += _paper_rows(most, metric, columns)
    return Table(f"{METRICS[metric]}, %", columns, rows, notes)


def _span(interval: Sequence[float] | None) -> str | None:
    return None if interval is None else f"{interval[0]:.1f}–{interval[1]:.1f}"


def _missing_table(evaluations: Sequence[Content], columns: Sequence[str]) -> Table:
    rows: list[Row] = []
    for each in evaluations:
        splits = [split for split in _figures(each, columns, "by_missing") if split]
        for number in sorted({number for split in splits for number in split}):
            results = [each["structures"].get(column) for column in columns]
            cells = [None if result is None else _missing(result, number) for result in results]
            rows.append((f"{_label(each)}: {number} missing", cells))
    note = (
        "By how many edges of an answer's best derivation the smaller graph has not; in brackets "
        "the share of the hard answers, * where those are all edges of the derivation."
    )
    return Table("MRR by missing edges, %", columns, rows, [note])


def _missing(result: Content, number: str) -> str | None:
    split = result["by_missing"]
    if number not in split:
        return None
    total = sum(each["num_answers"] for each in split.values())
    mark = "*" if int(number) == result["num_edges"] else ""
    return f"{split[number]['mrr']:.1f}{mark} ({split[number]['num_answers'] / total:.0%})"


def _strict_table(evaluations: Sequence[Content], columns: Sequence[str]) -> Table:
    rows: list[Row] = []
    for each in evaluations:
        strict = _figures(each, columns, "strict_mrr")
        release = _figures(each, columns, "metrics", "mrr")
        both = zip(strict, release, strict=True)
        rows.append((f"{_label(each)}: release", [None if s is None else r for s, r in both]))
        rows.append((f"{_label(each)}: strict", strict))
    return Table("MRR by the reading of easy, %", columns, rows, [EASY])


def _correlation_table(
    evaluations: Sequence[Content], key: str, name: str, columns: Sequence[str]
) -> Table:
    rows: list[Row] = [
        (_label(each), _figures(each, columns, "correlation", key)) for each in evaluations
    ]
    rows += _paper_rows(evaluations[0], key, columns)
    title = f"{name} correlation of entropy (box size) with the number of answers"
    return Table(title, [*columns, "mean"], _with_mean(rows), digits=3)


def _empty_table(evaluations: Sequence[Content], columns: Sequence[str]) -> Table:
    rows: list[Row] = [
        (_label(each), [each["empty"].get(column, {}).get("roc_auc") for column in columns])
        for each in evaluations
    ]
    rows += _paper_rows(evaluations[0], "roc_auc", columns)
    note = (
        "Queries with more than 5 answers against queries without any, whose entities and "
        "relations are drawn at random. Above 0.5: those with answers have more entropy."
    )
    title = "Queries without answers: ROC-AUC of entropy (box size)"
    return Table(title, [*columns, "mean"], _with_mean(rows), [note], digits=3)


def _count_table(evaluations: Sequence[Content], columns: Sequence[str]) -> Table:
    rows: list[Row] = []
    for each in evaluations:
        for key, what in (("factor", "estimate"), ("factor_of_constant", "one number for all")):
            rows.append((f"{_label(each)}: {what}", _figures(each, columns, "count_error", key)))
    note = (
        "Half of the estimates are within this factor of the number of answers. Fitted on "
        "validation queries; beside them the best single number for each structure."
    )
    return Table("Estimated number of answers", columns, rows, [note], digits=2)


def _with_mean(rows: Sequence[Row]) -> list[Row]:
    """Add the mean of the structures' figures to each row."""
    longer: list[Row] = []
    for label, cells in rows:
        there = [cell for cell in cells if isinstance(cell, float)]
        longer.append((label, [*cells, sum(there) / len(there) if there else None]))
    return longer


def _text(cell: float | str | None, digits: int) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.{digits}f}"
