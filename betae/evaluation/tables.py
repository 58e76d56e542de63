"""Tables of evaluations beside the figures of the paper and of other systems.

`make_tables` lays out the evaluations on one query set; `paper_tables` follows the paper's own
tables: below each row of the paper comes the run of the same model on the same graph. What cannot
be compared is left blank, with a footnote.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import msgspec

from betae.evaluation.results import METRICS, Average, Evaluation, StructureResult
from betae.queries.structures import EPFO, NEGATION

Cell = float | str | None  # None: not measured, or not a number
ReportRow = tuple[str, Sequence[Cell]]

_FILES = resources.files("betae.evaluation")
PAPER = msgspec.json.decode((_FILES / "paper.json").read_bytes(), type=dict[str, Any])
PUBLISHED = msgspec.json.decode((_FILES / "published.json").read_bytes(), type=dict[str, Any])
UNCHECKED = "†"  # marks a figure that is from memory of its paper
FREQUENCY = "frequency"
COLUMN_ORDER = (  # the paper's order, then the negation structures
    *("1p", "2p", "3p", "2i", "3i", "pi", "ip", "2u", "2u-DM", "up", "up-DM", "EPFO"),
    *(*NEGATION, "negation"),
)
MODEL_NAMES = {"betae": "BetaE", "query2box": "Query2Box", "gqe": "GQE", "complex": "ComplEx"}
AVERAGE = "average"
SAMPLED = "queries sampled by betae"
NO_RUN = "Left blank: the report has no run of this model on this graph."
OTHER_QUERIES = "Left blank: no run of this model was evaluated on such test queries of this graph."
NOT_MEASURED = "Left blank: not measured in the evaluations on such queries."
SAMPLED_QUERIES = (
    "On queries sampled by the rules of the BetaE release; none of the runs was evaluated on the "
    "released ones."
)
NO_COMPLEMENT = "Without a complement there is no De Morgan form (-DM)."
EMPTY_NOTE = (
    "Queries with more than 5 answers against queries without any, whose entities and "
    "relations are sampled at random. Above 0.5: those with answers have more entropy."
)
EASY = (
    "With negation, entities that are answers on the smaller graph only are left out of the "
    "ranking, as in the paper's release; read strictly, they count as wrong answers."
)


# ---- published figures --------------------------------------------------------------------------


def paper_dataset(evaluation: Evaluation) -> str | None:
    """Return the name of the paper's graph with as many entities and relations, if any."""
    counts = [evaluation.graph.entities, evaluation.graph.relations]
    return next((name for name, each in PAPER["datasets"].items() if each == counts), None)


def query_kind(evaluation: Evaluation) -> str:
    """Return the origin of the queries: the betae or query2box release, or sampled."""
    return str(evaluation.queries.origin.get("kind", "sampled"))


def is_comparable(evaluation: Evaluation) -> bool:
    """Tell whether published figures exist for this kind of queries."""
    return "missing" not in evaluation.queries.origin


def describe_queries(evaluation: Evaluation) -> str:
    """Describe the queries of an evaluation in a sentence."""
    queries, kind, dataset = evaluation.queries, query_kind(evaluation), paper_dataset(evaluation)
    release = {"betae": "BetaE", "query2box": "Query2Box"}.get(kind)
    what = (
        f"the official queries of the {release} release" if release else "queries sampled by betae"
    )
    if queries.origin.get("rules") == "release":
        what += " by the rules of the BetaE release"
    if missing := queries.origin.get("missing"):
        number = "all of their" if missing == "all" else f"at least {missing}"
        what += f"; hard are only answers that need {number} edges to be predicted"
    elif dataset and kind == "sampled":
        what += f"; the paper's figures for {dataset} are for its own sample of the same kind"
    return f"{queries.count:,} {queries.split} queries: {what}."


def paper_figures(evaluation: Evaluation, metric: str) -> dict[str, dict[str, float]]:
    """Return the paper's figures for the graph and queries of an evaluation.

    Keys: the paper's name of the model, then structure or average.
    """
    kind = "query2box" if query_kind(evaluation) == "query2box" else "betae"
    wanted = (metric, kind, paper_dataset(evaluation))
    by_model: dict[str, dict[str, float]] = defaultdict(dict)
    for row in PAPER["rows"] if is_comparable(evaluation) else []:
        if (row["metric"], row["queries"], row["dataset"]) == wanted:
            average = {"negation": "negation", "empty": "all"}.get(row["table"], "EPFO")
            values = {average if k == "average" else k: v for k, v in row["values"].items()}
            by_model[row["model"]] |= values
    return by_model


def published_figures(evaluation: Evaluation) -> dict[str, dict[str, float | str]]:
    """Return other systems' MRRs for the graph of an evaluation, by system and structure.

    They are for the test queries of the BetaE release. Unchecked ones are marked texts.
    """
    by_system: dict[str, dict[str, float | str]] = defaultdict(dict)
    if is_comparable(evaluation) and query_kind(evaluation) != "query2box":
        for row in PUBLISHED["rows"]:
            if row["dataset"] == paper_dataset(evaluation):
                by_system[row["system"]] |= {
                    name: value if row["checked"] else f"{value:.1f}{UNCHECKED}"
                    for name, value in row["values"].items()
                }
    return by_system


# ---- parts of tables ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ReportTable:
    """Rows of a label and cells; None is a blank cell."""

    title: str
    columns: Sequence[str]
    rows: Sequence[ReportRow]
    notes: list[str] = field(default_factory=list)
    digits: int = 1

    def texts(self) -> list[list[str]]:
        """Return label and cells of each row as text."""
        return [
            [label, *(cell_text(cell, self.digits) for cell in cells)] for label, cells in self.rows
        ]


def make_tables(evaluations: Sequence[Evaluation]) -> list[ReportTable]:
    """Lay out the evaluations of some runs on one query set."""
    columns = report_columns(evaluations)
    correlation = "correlation of entropy (box size) with the number of answers"
    empty = "Queries without answers: ROC-AUC of entropy (box size)"
    tables = [
        *(_metric_table(evaluations, metric, columns) for metric in METRICS),
        _missing_table(evaluations, columns),
        _strict_table(evaluations, columns),
        _uncertainty_table(evaluations, "spearman", f"Spearman's rank {correlation}", columns),
        _uncertainty_table(evaluations, "pearson", f"Pearson's {correlation}", columns),
        _uncertainty_table(evaluations, "roc_auc", empty, columns, [EMPTY_NOTE]),
        _count_table(evaluations, columns),
    ]
    return [table for table in tables if table.columns]


def report_columns(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the structures and averages in the paper's order, a user's own structures last."""
    there = {name for each in evaluations for name in each.results}
    return [name for name in COLUMN_ORDER if name in there] + sorted(there - set(COLUMN_ORDER))


def figures(results: Mapping[str, object], columns: Sequence[str], path: str) -> list[Cell]:
    """Return a figure of each column's result, such as "metrics.mrr"; None if missing or NaN."""
    cells: list[Cell] = []
    for name in columns:
        value: Any = results.get(name)
        for attribute in path.split("."):
            value = getattr(value, attribute, None)
        cells.append(value if value == value else None)  # NaN is not
    return cells


def spans(evaluation: Evaluation, columns: Sequence[str]) -> list[Cell]:
    """Return the 95 % interval of each column's result."""
    results = evaluation.results
    return [span(results[name]) if name in results else None for name in columns]


def span(result: StructureResult | Average) -> str:
    """Return the 95 % interval of a result as text."""
    low, high = result.interval
    return f"{low:.1f}–{high:.1f}"


def cell_text(cell: Cell, digits: int) -> str:
    """Return a cell as text."""
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.{digits}f}"


def most_complete(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Return the evaluation with the most structures, for figures that all runs share."""
    return max(evaluations, key=lambda each: len(each.structures))


def method_name(evaluation: Evaluation) -> str:
    """Return a label of models and method: "BetaE", or "BetaE + ComplEx, completed graph"."""
    if evaluation.method == "embedding":
        return MODEL_NAMES.get(evaluation.model, evaluation.model)
    predictors = evaluation.predictors or [evaluation.model]
    return " + ".join(MODEL_NAMES.get(name, name) for name in predictors) + ", completed graph"


def tell_apart(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Add the evaluation's name to the run's where two evaluations would share a label."""
    counts = Counter(map(_label, evaluations))
    return [
        replace(each, run=f"{each.run}, {each.name}") if counts[_label(each)] > 1 else each
        for each in evaluations
    ]


def _label(evaluation: Evaluation) -> str:
    return f"{evaluation.run} ({method_name(evaluation)})"


# ---- the tables -------------------------------------------------------------------------------


def _table(
    title: str,
    columns: Sequence[str],
    ours: Sequence[ReportRow],
    others: Sequence[ReportRow] = (),
    notes: Sequence[str] = (),
    digits: int = 1,
) -> ReportTable:
    """Build a table without empty rows, of the columns in which one of our rows has a figure."""
    kept = [i for i in range(len(columns)) if any(cells[i] is not None for _, cells in ours)]
    rows = [(label, [cells[i] for i in kept]) for label, cells in (*ours, *others)]
    rows = [(label, cells) for label, cells in rows if any(cell is not None for cell in cells)]
    return ReportTable(title, [columns[i] for i in kept], rows, [*notes], digits)


def _metric_table(
    evaluations: Sequence[Evaluation], metric: str, columns: Sequence[str]
) -> ReportTable:
    ours: list[ReportRow] = []
    notes = []
    for each in evaluations:
        ours.append((_label(each), figures(each.results, columns, f"metrics.{metric}")))
        if metric == "mrr":
            ours.append(("95 % interval", spans(each, columns)))
        notes += _notes(each)
    most = most_complete(evaluations)
    ours.append((FREQUENCY, figures(most.results, columns, f"frequency.{metric}")))
    others = _paper_rows(most, metric, columns)
    if metric == "mrr":
        rows, sources = _published_rows(most, columns)
        others, notes = others + rows, notes + sources
    return _table(f"{METRICS[metric]}, %", columns, ours, others, notes)


def _notes(evaluation: Evaluation) -> list[str]:
    """List what a run cannot answer, and averages that are not over all structures."""
    label, notes = _label(evaluation), []
    if evaluation.cannot:
        notes.append(f"{label} cannot do {', '.join(evaluation.cannot)}: left blank.")
    for kind, members in (("EPFO", EPFO), ("negation", NEGATION)):
        average = evaluation.averages.get(kind)
        if average and len(average.structures) < len(members):
            notes.append(f"{label}: {kind} is over {', '.join(average.structures)}.")
    return notes


def _paper_rows(evaluation: Evaluation, metric: str, columns: Sequence[str]) -> list[ReportRow]:
    return [
        (f"paper's {model}", [values.get(column) for column in columns])
        for model, values in paper_figures(evaluation, metric).items()
    ]


def _published_rows(
    evaluation: Evaluation, columns: Sequence[str]
) -> tuple[list[ReportRow], list[str]]:
    """Return the MRRs of other systems, and notes on their sources."""
    rows: list[ReportRow] = []
    names = []
    for system, values in published_figures(evaluation).items():
        if not values.keys().isdisjoint(columns):
            rows.append((f"published {system}", [values.get(column) for column in columns]))
            names.append(f"{system} ({PUBLISHED['systems'][system]})")
    if not rows:
        return [], []
    is_same = (query_kind(evaluation), evaluation.queries.split) == ("betae", "test")
    on = "the official test queries of the BetaE release" + ("" if is_same else ", not on these")
    notes = [f"Published: {', '.join(names)}, on {on}."]
    if any(isinstance(cell, str) for _, cells in rows for cell in cells):
        notes.append(f"{UNCHECKED} From memory of the paper, not checked.")
    return rows, notes


def _missing_table(evaluations: Sequence[Evaluation], columns: Sequence[str]) -> ReportTable:
    rows: list[ReportRow] = []
    for each in evaluations:
        structures = each.structures
        for n in sorted({n for result in structures.values() for n in result.by_missing}):
            cells = [_missing_cell(structures.get(name), n) for name in columns]
            rows.append((f"{_label(each)}: {n} missing", cells))
    note = (
        "By the number of edges in an answer's best derivation that the smaller graph lacks; in "
        "brackets the share of the hard answers, * where all edges of the derivation are missing."
    )
    return _table("MRR by missing edges, %", columns, rows, notes=[note])


def _missing_cell(result: StructureResult | None, num_missing: int) -> Cell:
    if result is None or num_missing not in result.by_missing:
        return None
    part = result.by_missing[num_missing]
    total = sum(each.num_answers for each in result.by_missing.values())
    mark = "*" if num_missing == result.num_edges else ""
    return f"{part.mrr:.1f}{mark} ({part.num_answers / total:.0%})"


def _strict_table(evaluations: Sequence[Evaluation], columns: Sequence[str]) -> ReportTable:
    rows: list[ReportRow] = []
    for each in evaluations:
        both = {name: one for name, one in each.structures.items() if one.strict_mrr is not None}
        rows.append((f"{_label(each)}: release", figures(both, columns, "metrics.mrr")))
        rows.append((f"{_label(each)}: strict", figures(both, columns, "strict_mrr")))
    return _table("MRR by the reading of easy, %", columns, rows, notes=[EASY])


def _uncertainty_table(
    evaluations: Sequence[Evaluation],
    metric: str,
    title: str,
    columns: Sequence[str],
    notes: Sequence[str] = (),
) -> ReportTable:
    """Lay out a metric of uncertainty, with the mean of each row."""
    ours = [(_label(each), _metric_cells(each, metric, columns)) for each in evaluations]
    theirs = _paper_rows(evaluations[0], metric, columns)
    columns = [*columns, "mean"]
    return _table(title, columns, _with_mean(ours), _with_mean(theirs), notes, digits=3)


def _with_mean(rows: Sequence[ReportRow]) -> list[ReportRow]:
    return [(label, [*cells, _mean(cells)]) for label, cells in rows]


def _count_table(evaluations: Sequence[Evaluation], columns: Sequence[str]) -> ReportTable:
    rows: list[ReportRow] = []
    for each in evaluations:
        for label, key in (("estimate", "factor"), ("one number for all", "factor_of_constant")):
            cells = figures(each.structures, columns, f"count_error.{key}")
            rows.append((f"{_label(each)}: {label}", cells))
    note = (
        "Half of the estimates are within this factor of the number of answers. They are fitted to "
        "validation queries; beside them the best single number for each structure."
    )
    return _table("Estimated number of answers", columns, rows, notes=[note], digits=2)


def _metric_cells(evaluation: Evaluation, metric: str, columns: Sequence[str]) -> list[Cell]:
    if metric in METRICS:
        return figures(evaluation.results, columns, f"metrics.{metric}")
    if metric == "roc_auc":
        return figures(evaluation.empty, columns, metric)
    return figures(evaluation.structures, columns, f"correlation.{metric}")


def _mean(cells: Sequence[Cell]) -> float | None:
    there = [cell for cell in cells if isinstance(cell, float)]
    return sum(there) / len(there) if there else None


# ---- the paper's tables -------------------------------------------------------------------------


def paper_tables(evaluations: Sequence[Evaluation]) -> list[ReportTable]:
    """Return the paper's tables, for the graphs and models of the evaluations."""
    by_embedding = [each for each in evaluations if each.method == "embedding"]
    graphs = {paper_dataset(each) for each in by_embedding}
    models = {MODEL_NAMES.get(each.model) for each in by_embedding}
    tables = []
    for table in PAPER["tables"]:
        rows = [
            row
            for row in PAPER["rows"]
            if (row["table"], row["metric"]) == (table["table"], table["metric"])
            and row["dataset"] in graphs
            and row["model"] in models
        ]
        if rows:
            tables.append(_paper_table(table["title"], table["digits"], rows, by_embedding))
    return tables


def below_the_paper(tables: Sequence[ReportTable]) -> ReportTable:
    """Count the figures below the paper's, as printed, in the result of `paper_tables`."""
    columns = list(dict.fromkeys(column for table in tables for column in table.columns))
    rows: list[ReportRow] = []
    sums, total = dict.fromkeys(columns, 0), 0
    for table in tables:
        counts = dict.fromkeys(table.columns, 0)
        texts = [cells for _, *cells in table.texts()]
        for theirs, ours in zip(texts[::2], texts[1::2], strict=True):
            for column, their, our in zip(table.columns, theirs, ours, strict=True):
                if their and our:
                    counts[column] += float(our) < float(their)
                    total += 1
        rows.append((table.title, [counts.get(column) for column in columns]))
        sums = {column: sums[column] + counts.get(column, 0) for column in columns}
    rows.append(("all", [*sums.values()]))
    note = f"In all {sum(sums.values())} of {total} figures."
    return ReportTable("Figures below the paper's", columns, rows, [note], digits=0)


def _paper_table(
    title: str, digits: int, theirs: Sequence[Mapping[str, Any]], ours: Sequence[Evaluation]
) -> ReportTable:
    columns = max((list(row["values"]) for row in theirs), key=len)
    rows: list[ReportRow] = []
    notes: list[str] = []
    for row in theirs:
        name = f"{row['dataset']}, {row['model']}"
        rows.append((f"{name}: paper", [row["values"].get(column) for column in columns]))
        label, cells, note = _beside(row, columns, ours)
        if note and note not in notes:
            notes.append(note)
        mark = f" [{notes.index(note) + 1}]" if note else ""
        rows.append((f"{name}: {label}{mark}", cells))
    numbered = [f"[{i}] {note}" for i, note in enumerate(notes, 1)]
    if any(
        column.endswith("-DM") and row["values"].get(column) is None
        for row in theirs
        for column in columns
    ):
        numbered.append(NO_COMPLEMENT)
    return ReportTable(title, columns, rows, numbered, digits)


def _beside(
    row: Mapping[str, Any], columns: Sequence[str], ours: Sequence[Evaluation]
) -> tuple[str, list[Cell], str | None]:
    """Return label, figures and note of the evaluation to put below a row of the paper."""
    blank: list[Cell] = [None] * len(columns)
    of_model = [
        each
        for each in ours
        if paper_dataset(each) == row["dataset"] and MODEL_NAMES.get(each.model) == row["model"]
    ]
    alike = [each for each in of_model if _has_queries(each, row["queries"])]
    if not alike:
        return "here", blank, OTHER_QUERIES if of_model else NO_RUN

    def preference(each: Evaluation) -> tuple[bool, bool, int]:
        is_released = query_kind(each) == row["queries"]
        return _figures(each, row, columns) != blank, is_released, each.queries.count

    best = max(alike, key=preference)
    is_measured, is_released, count = preference(best)
    if not is_measured:
        return "here", blank, NOT_MEASURED
    cells = _figures(best, row, columns)
    return f"{best.run}, {count:,} queries", cells, None if is_released else SAMPLED_QUERIES


def _has_queries(evaluation: Evaluation, kind: str) -> bool:
    """Tell whether an evaluation is on test queries of a release, or sampled by its rules."""
    if evaluation.queries.split != "test" or not is_comparable(evaluation):
        return False
    if query_kind(evaluation) == "sampled":
        return kind == "betae" and evaluation.queries.origin.get("rules") == "release"
    return query_kind(evaluation) == kind


def _figures(evaluation: Evaluation, row: Mapping[str, Any], columns: Sequence[str]) -> list[Cell]:
    """Return the figures below a row of the paper; averages over all structures only."""
    cells = _metric_cells(evaluation, row["metric"], columns)
    if AVERAGE in columns:
        kind, members = ("negation", NEGATION) if row["table"] == "negation" else ("EPFO", EPFO)
        average = evaluation.averages.get(kind)
        if row["metric"] == "roc_auc":
            cells[columns.index(AVERAGE)] = _mean(cells)
        elif average and len(average.structures) == len(members):
            cells[columns.index(AVERAGE)] = getattr(average.metrics, row["metric"])
    return cells
