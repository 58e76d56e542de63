"""Tables of evaluations side by side, with the paper's and other systems' figures beside them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from betae.evaluation.paper import (
    PublishedFigure,
    describe_published,
    paper_figures,
    published,
    published_figures,
)
from betae.evaluation.results import (
    Average,
    Evaluation,
    KeptEvaluation,
    Metrics,
    StructureResult,
)
from betae.queries.structures import EPFO, NEGATION

Cell = float | str | None  # None: not measured, or not a number
Row = tuple[str, Sequence[Cell]]
Result = TypeVar("Result")

FREQUENCY = "frequency"
COLUMNS = (  # the paper's order, then the negation structures
    *("1p", "2p", "3p", "2i", "3i", "pi", "ip", "2u", "2u-DM", "up", "up-DM", "EPFO"),
    *(*NEGATION, "negation"),
)
MODEL_NAMES = {"betae": "BetaE", "query2box": "Query2Box", "gqe": "GQE", "complex": "ComplEx"}
UNCHECKED = "†"
METRICS = {"mrr": "MRR", "hits_at_1": "H@1", "hits_at_3": "H@3", "hits_at_10": "H@10"}
EASY = (
    "With negation, entities that are answers on the smaller graph only are left out of the "
    "ranking, as in the paper's release; read strictly, they count as wrong answers."
)


@dataclass(frozen=True)
class Table:
    """Rows of a label and figures; a cell that is None is left blank."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: list[str] = field(default_factory=list)
    digits: int = 1


def make_tables(evaluations: Sequence[KeptEvaluation]) -> list[Table]:
    """Lay out the evaluations of some runs on one query set."""
    columns = columns_of([each.evaluation for each in evaluations])
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


def columns_of(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the structures and averages in the paper's order, a user's own structures last."""
    there = {name for each in evaluations for name in each.results}
    return [name for name in COLUMNS if name in there] + sorted(there - set(COLUMNS))


def figures(
    results: Mapping[str, Result], columns: Sequence[str], figure: Callable[[Result], Cell]
) -> list[Cell]:
    """Return a figure of the result of each column; None where there is none."""
    cells = [figure(results[name]) if name in results else None for name in columns]
    return [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in cells]


def span(result: StructureResult | Average) -> str:
    """Return the 95 % interval of a result as text."""
    low, high = result.interval
    return f"{low:.1f}–{high:.1f}"


def cell_text(cell: Cell, digits: int) -> str:
    """Return a cell as text."""
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.{digits}f}"


def most_complete(evaluations: Sequence[KeptEvaluation]) -> Evaluation:
    """Return the evaluation with the most structures; what all runs share is taken from it."""
    return max((each.evaluation for each in evaluations), key=lambda each: len(each.structures))


def method_name(evaluation: Evaluation) -> str:
    """Return how queries were answered: "BetaE", or "BetaE + ComplEx, completed graph"."""
    if evaluation.method == "embedding":
        return MODEL_NAMES.get(evaluation.model, evaluation.model)
    predictors = evaluation.predictors or [evaluation.model]
    return " + ".join(MODEL_NAMES.get(name, name) for name in predictors) + ", completed graph"


def tell_apart(evaluations: Sequence[KeptEvaluation]) -> list[KeptEvaluation]:
    """Add the evaluation's name to the run's where a label would stand for two evaluations."""
    counts = Counter(map(_label, evaluations))
    return [
        replace(each, run=f"{each.run}, {each.name}") if counts[_label(each)] > 1 else each
        for each in evaluations
    ]


def _trim(table: Table) -> Table:
    """Leave out the columns in which no run has a figure, and rows without any."""
    papers = {f"paper's {model}" for model in MODEL_NAMES.values()}
    others = papers | {f"published {system}" for system in published()["systems"]}
    kept = [
        place
        for place in range(len(table.columns))
        if any(cells[place] is not None for label, cells in table.rows if label not in others)
    ]
    rows = [(label, [cells[place] for place in kept]) for label, cells in table.rows]
    rows = [(label, cells) for label, cells in rows if any(cell is not None for cell in cells)]
    return replace(table, columns=[table.columns[place] for place in kept], rows=rows)


def _label(kept: KeptEvaluation) -> str:
    return f"{kept.run} ({method_name(kept.evaluation)})"


def _paper_rows(evaluation: Evaluation, metric: str, columns: Sequence[str]) -> list[Row]:
    return [
        (f"paper's {model}", [values.get(column) for column in columns])
        for model, values in paper_figures(evaluation, metric).items()
    ]


def _published_rows(
    evaluation: Evaluation, metric: str, columns: Sequence[str]
) -> tuple[list[Row], list[str]]:
    """Return the rows of other systems, with notes on where the figures are from."""

    def cell(figure: PublishedFigure) -> Cell:
        return figure.value if figure.is_checked else f"{figure.value:.1f}{UNCHECKED}"

    systems = {
        system: values
        for system, values in published_figures(evaluation, metric).items()
        if not values.keys().isdisjoint(columns)
    }
    rows: list[Row] = [
        (f"published {system}", figures(values, columns, cell))
        for system, values in systems.items()
    ]
    notes = [describe_published(evaluation, systems)] if rows else []
    if any(isinstance(cell, str) for _, cells in rows for cell in cells):
        notes.append(f"{UNCHECKED} From memory of the paper, not checked.")
    return rows, notes


# ---- the tables -------------------------------------------------------------------------------


def _metric_table(
    evaluations: Sequence[KeptEvaluation], metric: str, columns: Sequence[str]
) -> Table:
    def value(metrics: Metrics) -> float:
        number: float = getattr(metrics, metric)
        return number

    rows: list[Row] = []
    notes = []
    for each in evaluations:
        results = each.evaluation.results
        rows.append((_label(each), figures(results, columns, lambda one: value(one.metrics))))
        if metric == "mrr":
            rows.append(("95 % interval", figures(results, columns, span)))
        notes += _notes(each)
    most = most_complete(evaluations)
    of_baseline = figures(most.results, columns, lambda one: value(one.frequency))
    others, sources = _published_rows(most, metric, columns)
    rows += [(FREQUENCY, of_baseline), *_paper_rows(most, metric, columns), *others]
    return Table(f"{METRICS[metric]}, %", columns, rows, [*notes, *sources])


def _notes(kept: KeptEvaluation) -> list[str]:
    """Say what a run cannot answer, and which averages are not over all structures."""
    notes = []
    if kept.evaluation.cannot:
        notes.append(f"{_label(kept)} cannot do {', '.join(kept.evaluation.cannot)}: left blank.")
    for kind, members in (("EPFO", EPFO), ("negation", NEGATION)):
        average = kept.evaluation.averages.get(kind)
        if average and len(average.structures) < len(members):
            notes.append(f"{_label(kept)}: {kind} is over {', '.join(average.structures)}.")
    return notes


def _missing_table(evaluations: Sequence[KeptEvaluation], columns: Sequence[str]) -> Table:
    rows: list[Row] = []
    for each in evaluations:
        structures = each.evaluation.structures
        for number in sorted({n for result in structures.values() for n in result.by_missing}):

            def cell(result: StructureResult, number: int = number) -> Cell:
                return _missing(result, number)

            label = f"{_label(each)}: {number} missing"
            rows.append((label, figures(structures, columns, cell)))
    note = (
        "By the number of edges in an answer's best derivation that the smaller graph lacks; in "
        "brackets the share of the hard answers, * where all edges of the derivation are missing."
    )
    return Table("MRR by missing edges, %", columns, rows, [note])


def _missing(result: StructureResult, number: int) -> str | None:
    if number not in result.by_missing:
        return None
    part = result.by_missing[number]
    total = sum(each.num_answers for each in result.by_missing.values())
    mark = "*" if number == result.num_edges else ""
    return f"{part.mrr:.1f}{mark} ({part.num_answers / total:.0%})"


def _strict_table(evaluations: Sequence[KeptEvaluation], columns: Sequence[str]) -> Table:
    rows: list[Row] = []
    for each in evaluations:
        structures = each.evaluation.structures
        both = {name: one for name, one in structures.items() if one.strict_mrr is not None}
        release = figures(both, columns, lambda one: one.metrics.mrr)
        rows.append((f"{_label(each)}: release", release))
        rows.append((f"{_label(each)}: strict", figures(both, columns, lambda one: one.strict_mrr)))
    return Table("MRR by the reading of easy, %", columns, rows, [EASY])


def _correlation_table(
    evaluations: Sequence[KeptEvaluation], key: str, name: str, columns: Sequence[str]
) -> Table:
    def value(result: StructureResult) -> Cell:
        number: float | None = getattr(result.correlation, key, None)
        return number

    rows: list[Row] = [
        (_label(each), figures(each.evaluation.structures, columns, value)) for each in evaluations
    ]
    rows += _paper_rows(evaluations[0].evaluation, key, columns)
    title = f"{name} correlation of entropy (box size) with the number of answers"
    return Table(title, [*columns, "mean"], _with_mean(rows), digits=3)


def _empty_table(evaluations: Sequence[KeptEvaluation], columns: Sequence[str]) -> Table:
    rows: list[Row] = [
        (_label(each), figures(each.evaluation.empty, columns, lambda one: one.roc_auc))
        for each in evaluations
    ]
    rows += _paper_rows(evaluations[0].evaluation, "roc_auc", columns)
    note = (
        "Queries with more than 5 answers against queries without any, whose entities and "
        "relations are sampled at random. Above 0.5: those with answers have more entropy."
    )
    title = "Queries without answers: ROC-AUC of entropy (box size)"
    return Table(title, [*columns, "mean"], _with_mean(rows), [note], digits=3)


def _count_table(evaluations: Sequence[KeptEvaluation], columns: Sequence[str]) -> Table:
    rows: list[Row] = []
    for each in evaluations:
        errors = {
            name: one.count_error
            for name, one in each.evaluation.structures.items()
            if one.count_error is not None
        }
        estimate = figures(errors, columns, lambda one: one.factor)
        constant = figures(errors, columns, lambda one: one.factor_of_constant)
        rows.append((f"{_label(each)}: estimate", estimate))
        rows.append((f"{_label(each)}: one number for all", constant))
    note = (
        "Half of the estimates are within this factor of the number of answers. They are fitted to "
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
