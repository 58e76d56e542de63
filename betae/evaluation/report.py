"""Reports: the evaluations of some runs side by side, with the paper's figures beside them.

An evaluation lies in its run, as `evaluations/NAME.json`. A report is a folder: `report.md` with
its plots, `report.json`, and `report.html`, one page that holds everything.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from rich.markup import escape as escape_markup
from rich.table import Table as RichTable

from betae.errors import StoreError
from betae.evaluation.evaluate import Evaluation
from betae.queries.structures import EPFO, NEGATION
from betae.storage import write_manifest, writing_file, writing_folder

EVALUATIONS = "evaluations"
FREQUENCY = "frequency"
COLUMNS = (  # the paper's order, then the negation structures
    *("1p", "2p", "3p", "2i", "3i", "pi", "ip", "2u", "2u-DM", "up", "up-DM", "EPFO"),
    *(*NEGATION, "negation"),
)
GEOMETRY_NAMES = {"beta": "BetaE", "box": "Query2Box", "vector": "GQE"}
PAPERS_ROWS = [f"paper's {model}" for model in GEOMETRY_NAMES.values()]
METRICS = {"mrr": "MRR", "hits_at_1": "H@1", "hits_at_3": "H@3", "hits_at_10": "H@10"}
PROTOCOL = (
    "Every hard answer is ranked against all entities that are no answers; entities at the same "
    "distance count half (the mean of the best and the worst order). Means are over the answers of "
    "a query, then over queries. -DM: unions in De Morgan form, otherwise in disjunctive normal "
    "form. `frequency` ranks entities by how often they are tails of the last relation in training."
)
EASY = (
    "With negation, entities that are answers on the smaller graph only are left out of the "
    "ranking, as in the paper's release; under the strict reading they count as wrong answers."
)


KEYS = {"run", "name", *(part.name for part in fields(Evaluation))}
Content = dict[str, Any]  # an evaluation, or a part of one, as it is on disk
Row = tuple[str, Sequence[Any]]


@dataclass(frozen=True)
class Table:
    """Rows of a label and figures; a cell that is None was not measured."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: list[str] = field(default_factory=list)
    digits: int = 1


def save_evaluation(evaluation: Evaluation, run: Path | str, name: str) -> Path:
    """Write an evaluation into its run, under the name of the query set."""
    run = Path(run)
    (run / EVALUATIONS).mkdir(exist_ok=True)
    path = run / EVALUATIONS / f"{name}.json"
    content = {"run": run.resolve().name, "name": name, **evaluation.to_json()}
    with writing_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")
    return path


def read_evaluations(runs: Iterable[Path | str]) -> list[Content]:
    """Read the evaluations of some runs."""
    found = []
    for run in map(Path, runs):
        paths = sorted((run / EVALUATIONS).glob("*.json"))
        if not paths:
            raise StoreError(f"{run} has no evaluation. Make one: betae eval {run} --queries SET.")
        for path in paths:
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                if not isinstance(content, dict) or not content.keys() >= KEYS:
                    raise ValueError("it is not an evaluation")
            except ValueError as error:
                raise StoreError(f"{path} is damaged: {error}.") from error
            found.append(content)
    return found


def write_report(runs: Sequence[Path | str], target: Path | str, overwrite: bool = False) -> None:
    """Write the report of some runs to a folder."""
    from betae.evaluation.plots import draw_plots

    evaluations = read_evaluations(runs)
    sections: dict[str, list[Content]] = defaultdict(list)
    for evaluation in evaluations:
        what = [evaluation["name"], evaluation["graph"], evaluation["queries"]]
        key = json.dumps(what, sort_keys=True)
        sections[key].append(evaluation)
    markdown, html = ["# Evaluation", PROTOCOL], [f"<p>{escape(PROTOCOL)}</p>"]
    with writing_folder(Path(target), overwrite) as partial:
        for number, members in enumerate(sections.values(), 1):
            heading, description = members[0]["name"], describe_queries(members[0])
            tables = make_tables(members)
            plots = draw_plots(members)
            markdown += [f"## {_escape_markdown(heading)}", description, *map(to_markdown, tables)]
            html += [f"<h2>{escape(heading)}</h2><p>{escape(description)}</p>"]
            html += [*map(to_html, tables), *plots.values()]
            for name, svg in plots.items():
                file = f"{number}-{name}.svg"
                (partial / file).write_text(svg, encoding="utf-8")
                markdown.append(f"![{name}]({file})")
        (partial / "report.md").write_text("\n\n".join(markdown) + "\n", encoding="utf-8")
        (partial / "report.html").write_text(_page("\n".join(html)), encoding="utf-8")
        text = json.dumps(evaluations, indent=1, allow_nan=False)
        (partial / "report.json").write_text(text, encoding="utf-8")
        write_manifest(partial, "report", 1, {})


def draw_summary(evaluation: Content) -> RichTable:
    """Lay out one evaluation for the terminal, a row for each structure."""
    results = evaluation["structures"] | evaluation["averages"]
    names = [name for name in COLUMNS if name in results]
    names += [name for name in results if name not in COLUMNS]
    geometry = GEOMETRY_NAMES[evaluation["geometry"]]
    theirs = dict(_paper_rows(evaluation, "mrr", names)).get(f"paper's {geometry}")
    columns = {
        "MRR": _figures(evaluation, names, "metrics", "mrr"),
        "H@1": _figures(evaluation, names, "metrics", "hits_at_1"),
        "H@10": _figures(evaluation, names, "metrics", "hits_at_10"),
        "95 %": [*map(_span, _figures(evaluation, names, "interval"))],
        FREQUENCY: _figures(evaluation, names, "frequency", "mrr"),
        "paper": theirs,
        "Spearman": _figures(evaluation, names, "correlation", "spearman"),
        "ROC-AUC": [evaluation["empty"].get(name, {}).get("roc_auc") for name in names],
    }
    table = RichTable(box=None, padding=(0, 1), title=describe_queries(evaluation))
    table.title_justify = "left"
    table.add_column("")
    shown = {
        head: cells
        for head, cells in columns.items()
        if cells and any(cell is not None for cell in cells)
    }
    for head in shown:
        table.add_column(head, justify="right", no_wrap=True)
    for row, name in enumerate(names):
        digits = {"Spearman": 2, "ROC-AUC": 2}
        cells = [_text(cells[row], digits.get(head, 1)) for head, cells in shown.items()]
        table.add_row(
            escape_markup(name), *cells, style="bold" if name in evaluation["averages"] else None
        )
    if evaluation["cannot"]:
        table.caption = escape_markup(f"The model cannot do {', '.join(evaluation['cannot'])}.")
    return table


# ---- the paper's figures ----------------------------------------------------------------------


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


# ---- tables -----------------------------------------------------------------------------------


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
    return f"{evaluation['run']} ({GEOMETRY_NAMES[evaluation['geometry']]})"


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


# ---- rendering --------------------------------------------------------------------------------


def _text(cell: float | str | None, digits: int) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.{digits}f}"


def to_markdown(table: Table) -> str:
    """Write a table as Markdown."""
    lines = [
        f"### {_escape_markdown(table.title)}\n",
        f"| | {' | '.join(map(_escape_markdown, table.columns))} |",
        "|---" + "|---:" * len(table.columns) + "|",
    ]
    for label, cells in table.rows:
        texts = [_text(cell, table.digits) for cell in cells]
        lines.append(f"| {_escape_markdown(label)} | {' | '.join(texts)} |")
    return "\n".join([*lines, *(f"\n{_escape_markdown(note)}" for note in table.notes)])


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>&|])", r"\\\1", text)


def to_html(table: Table) -> str:
    """Write a table as HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = ""
    for label, cells in table.rows:
        texts = "".join(f"<td>{escape(_text(cell, table.digits))}</td>" for cell in cells)
        body += f"<tr><th>{escape(label)}</th>{texts}</tr>\n"
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    return (
        f"<h3>{escape(table.title)}</h3><div class=wide><table><thead><tr><th></th>{head}</tr>"
        f"</thead><tbody>{body}</tbody></table></div>{notes}"
    )


def _page(body: str) -> str:
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}"
        "td,th{padding:.2rem .5rem;text-align:right;border-bottom:1px solid #ddd}"
        "td,th{white-space:nowrap}"
        "tr>th:first-child{text-align:left;font-weight:500}thead th{border-bottom:2px solid #888}"
        ".wide{overflow-x:auto}.note{color:#555;font-size:13px}svg{max-width:100%;height:auto}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>betae: evaluation</title>'
        f"<style>{style}</style></head><body><h1>Evaluation</h1>\n{body}\n</body></html>\n"
    )
