"""Generate the tables and plots of results, in README.md, docs/ and results/report.md.

    python scripts/results_table.py

Run it after adding an evaluation to results/ or a figure to docs/benchmarks.md; a test compares
every file with its output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from math import log10
from pathlib import Path

from betae.evaluation.report import by_query_set, markdown_page, report_sections
from betae.evaluation.results import Average, Evaluation, read_evaluations
from betae.evaluation.tables import (
    MODEL_NAMES,
    UNCHECKED,
    cell_text,
    is_comparable,
    method_name,
    most_complete,
    paper_dataset,
    paper_figures,
    published_figures,
    query_kind,
    report_columns,
    span,
)

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- made by scripts/results_table.py -->", "<!-- end of what it makes -->"
GRAPHS = ("FB15k-237", "NELL995", "FB15k")
MODELS = ("BetaE", "Query2Box", "GQE")
OTHERS = ("GNN-QE", "QTO")
COMPLETED = "completed graph"
QUERIES = {
    "betae": "official BetaE queries",
    "sampled": "queries sampled by the release's rules",
    "query2box": "Query2Box's official queries",
}
RECONSTRUCTED = "8,464 of the 483,142 training edges of FB15k are reconstructed."
NOTES = (
    "\\* on the official queries, not on these. † from memory of the paper, not checked; "
    "`betae/evaluation/published.json` has the sources."
)

Members = Sequence[Evaluation]  # evaluations on one query set


def main() -> None:
    """Rewrite the generated files."""
    for path, text in generated(read_results(ROOT / "results")).items():
        (ROOT / path).write_text(text, "utf-8")


def generated(evaluations: Members) -> dict[str, str]:
    """Return the new text of every generated file by its path."""
    usual, harder = usual_and_harder(evaluations)
    benchmarks = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    return {
        "README.md": with_tables("README.md", [short_table(usual), NOTES]),
        "docs/results.md": with_tables("docs/results.md", result_tables(usual, harder)),
        "results/report.md": report_of(evaluations),
        **{f"docs/images/{name}": plot for name, plot in plots_of(usual).items()},
        "docs/images/benchmarks.svg": plot_of_ratios(benchmarks),
    }


def read_results(folder: Path) -> list[Evaluation]:
    """Read the evaluations of all runs in a folder."""
    runs = sorted(path for path in folder.iterdir() if path.is_dir())
    return [each for run in runs for each in read_evaluations(run)]


def report_of(evaluations: Members) -> str:
    """Return the report of all results, without plots."""
    page = markdown_page(report_sections(evaluations, with_plots=False))
    return f"{page.rstrip()}\n\n{RECONSTRUCTED}\n"


def with_tables(path: str, tables: Sequence[str]) -> str:
    """Return the text of a page with new tables between its two marks."""
    return between_marks((ROOT / path).read_text("utf-8"), tables, path)


def between_marks(page: str, tables: Sequence[str], path: str) -> str:
    """Return a page with new tables between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{path} lacks the marks {BEGIN} and {END}.")
    return "\n\n".join([before + begin, *tables, end + after])


def usual_and_harder(evaluations: Members) -> tuple[list[Members], list[Members]]:
    """Return the usual query sets, and those whose answers need many missing edges."""
    sets: list[Members] = [most_important_first(members) for members in by_query_set(evaluations)]
    sets.sort(key=lambda members: order_of(most_complete(members)))
    usual = [members for members in sets if is_usual(most_complete(members))]
    harder = [members for members in sets if "missing" in most_complete(members).queries.origin]
    return usual, harder


def result_tables(usual: Sequence[Members], harder: Sequence[Members]) -> list[str]:
    """Return the parts of the page of results."""
    plots = [f"![MRR by structure on {name}](images/{file})" for file, name in plot_names(usual)]
    tables = ["## Averages", averages_table(usual), f"{NOTES} ‡ {RECONSTRUCTED}"]
    tables += ["## By structure", *plots, structures_table(usual)]
    return tables + (["## Harder queries", missing_table(harder, usual)] if harder else [])


# ---- which evaluations ------------------------------------------------------------------------


def is_usual(evaluation: Evaluation) -> bool:
    """Tell whether the queries are released, or sampled by the release's rules."""
    is_released = query_kind(evaluation) != "sampled"
    has_its_rules = evaluation.queries.origin.get("rules") == "release"
    return is_comparable(evaluation) and (is_released or has_its_rules)


def order_of(evaluation: Evaluation) -> tuple[int, bool, int]:
    """Sort key of query sets: by graph, Query2Box's queries last, larger sets first."""
    graph = GRAPHS.index(paper_dataset(evaluation) or "")
    return graph, query_kind(evaluation) == "query2box", -evaluation.queries.count


def column_of(each: Evaluation) -> str:
    """Return the column of an evaluation."""
    if each.method == "completed":
        return COMPLETED
    return MODEL_NAMES[each.model]


def most_important_first(members: Members) -> list[Evaluation]:
    """Sort evaluations on one query set by method."""
    columns = (COMPLETED, *MODELS)
    known = [each for each in members if column_of(each) in columns]
    return sorted(known, key=lambda each: (columns.index(column_of(each)), each.run))


def by_column(members: Members) -> dict[str, Evaluation]:
    """Return the evaluation of each method; of two runs the first by name."""
    found: dict[str, Evaluation] = {}
    for each in members:
        found.setdefault(column_of(each), each)
    return found


def title_of(evaluation: Evaluation) -> str:
    """Describe the queries of an evaluation."""
    subset = evaluation.queries.origin.get("subset")
    count = f"{evaluation.queries.count:,}" + (f", {subset}" if subset else "")
    graph = paper_dataset(evaluation)
    mark = "‡" if graph == "FB15k" else ""
    return f"{graph}{mark}, {QUERIES[query_kind(evaluation)]} ({count})"


# ---- the tables -------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a table as Markdown."""
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def with_interval(average: Average) -> str:
    """Format an average MRR with its 95 % interval."""
    return f"{average.metrics.mrr:.1f} ({span(average)})"


AVERAGES = ["MRR, %", COMPLETED]
AVERAGES += [name for model in MODELS for name in (model, f"{model} in the paper")]
AVERAGES += [*OTHERS, "frequency"]
SHORT = ("MRR, %", COMPLETED, "BetaE", "BetaE in the paper", *OTHERS)


def averages_table(sets: Sequence[Members]) -> str:
    """Lay out the average MRR of every query set, by all methods and beside other systems."""
    return table(AVERAGES, average_rows(sets))


def short_table(sets: Sequence[Members]) -> str:
    """Lay out what matters most of the averages, without intervals."""
    chosen = [AVERAGES.index(name) for name in SHORT]
    rows = average_rows(sets)[:5]
    shown = [[row[i].partition(" (")[0] if i else row[i] for i in chosen] for row in rows]
    return table(SHORT, shown)


def average_rows(sets: Sequence[Members]) -> list[list[str]]:
    """Return the average MRR of every query set, a row each for EPFO and negation."""
    rows = []
    for members in sets:
        most = most_complete(members)
        for kind in most.averages:
            title = "the same, negation" if kind == "negation" else f"{title_of(most)}, EPFO"
            found = {
                column: with_interval(evaluation.averages[kind])
                for column, evaluation in by_column(members).items()
                if kind in evaluation.averages
            }
            cells = [found.get(COMPLETED, "")]
            for model in MODELS:
                cells += [found.get(model, ""), paper_cell(most, model, kind)]
            cells += [published_cell(most, system, kind) for system in OTHERS]
            rows.append([title, *cells, f"{most.averages[kind].frequency.mrr:.1f}"])
    return rows


def mark_of(evaluation: Evaluation) -> str:
    """Return a mark for published figures that are for other queries."""
    return "\\*" if query_kind(evaluation) == "sampled" else ""


def paper_cell(evaluation: Evaluation, model: str, column: str) -> str:
    """Format a figure of the paper; empty if there is none."""
    figure = paper_figures(evaluation, "mrr").get(model, {}).get(column)
    return "" if figure is None else f"{figure:.1f}{mark_of(evaluation)}"


def published_cell(evaluation: Evaluation, system: str, column: str) -> str:
    """Format a figure of another system; empty if there is none."""
    figure = cell_text(published_figures(evaluation).get(system, {}).get(column), 1)
    value, dagger, _ = figure.partition(UNCHECKED)
    return f"{value}{mark_of(evaluation)}{dagger}" if value else ""


def structures_table(sets: Sequence[Members]) -> str:
    """Lay out the MRR by structure where the completed graph was evaluated."""
    shown = [members for members in sets if COMPLETED in by_column(members)]
    evaluations = [each for members in shown for each in members]
    columns = [
        name
        for name in report_columns(evaluations)
        if name not in ("EPFO", "negation") and not name.endswith("-DM")
    ]
    rows = []
    for members in shown:
        for i, (column, evaluation) in enumerate(by_column(members).items()):
            title = "" if i else f"{title_of(evaluation)}: "
            rows.append([f"{title}{column}", *mrr_cells(evaluation, columns)])
        most = most_complete(members)
        rows.append(["BetaE in the paper", *(paper_cell(most, "BetaE", name) for name in columns)])
    return table(["MRR, %", *columns], rows)


def mrr_cells(evaluation: Evaluation, columns: Sequence[str]) -> list[str]:
    """Format the MRRs of an evaluation; averages with intervals."""
    cells = []
    for name in columns:
        result = evaluation.results.get(name)
        if isinstance(result, Average):
            cells.append(with_interval(result))
        else:
            cells.append("" if result is None else f"{result.metrics.mrr:.1f}")
    return cells


def missing_table(sets: Sequence[Members], usual: Sequence[Members]) -> str:
    """Lay out queries whose answers need many missing edges, beside the usual ones."""
    rows = []
    columns = [
        name
        for name in report_columns([each for members in sets for each in members])
        if not name.endswith("-DM")
    ]
    for members in sets:
        most = most_complete(members)
        missing = most.queries.origin["missing"]
        number = "all" if missing == "all" else f"at least {missing}"
        title = f"{paper_dataset(most)}, {number} edges missing: "
        for i, each in enumerate(members):
            label = method_name(each)
            cells = mrr_cells(each, columns)
            rows.append([f"{'' if i else title}{label}", *cells])
        found = [most.results.get(name) for name in columns]
        rows.append(["frequency", *(f"{one.frequency.mrr:.1f}" if one else "" for one in found)])
        rows += usual_rows(most, usual, columns)
    return table(["MRR, %", *columns], rows)


def usual_rows(
    harder: Evaluation, usual: Sequence[Members], columns: Sequence[str]
) -> list[list[str]]:
    """Return rows of the graph's usual queries, for the structures of the harder ones."""
    rows = []
    for members in usual:
        most = most_complete(members)
        is_shown = COMPLETED in by_column(members) and query_kind(most) != "query2box"
        if paper_dataset(most) != paper_dataset(harder) or not is_shown:
            continue
        for column, evaluation in by_column(members).items():
            cells: list[str] = []
            values: list[float] = []  # of the structures since the last average
            for name in columns:
                if name in ("EPFO", "negation"):
                    cells.append(f"{sum(values) / len(values):.1f}" if values else "")
                    values = []
                elif name in evaluation.structures and name in harder.structures:
                    values.append(evaluation.structures[name].metrics.mrr)
                    cells.append(f"{values[-1]:.1f}")
                else:
                    cells.append("")
            rows.append([f"usual queries: {column}", *cells])
    return rows


# ---- the plots --------------------------------------------------------------------------------


def plot_names(usual: Sequence[Members]) -> list[tuple[str, str]]:
    """Return the file and the graph of each plot."""
    shown = [most_complete(members) for members in plotted(usual)]
    names = [paper_dataset(each) or "" for each in shown]
    return [(f"results-{name.lower()}.svg", name) for name in names]


def plotted(usual: Sequence[Members]) -> list[Members]:
    """Return the query sets that have a plot."""
    return [
        members
        for members in usual
        if COMPLETED in by_column(members) and query_kind(most_complete(members)) != "query2box"
    ]


def plots_of(usual: Sequence[Members]) -> dict[str, str]:
    """Draw the MRR by structure; return the plots by file name."""
    plots = {}
    for members, (file, name) in zip(plotted(usual), plot_names(usual), strict=True):
        found = by_column(members)
        most = most_complete(members)
        rows = {
            structure: [
                *(
                    found[column].structures[structure].metrics.mrr
                    for column in (COMPLETED, "BetaE")
                ),
                paper_figures(most, "mrr").get("BetaE", {}).get(structure),
            ]
            for structure in most.structures
            if not structure.endswith("-DM")
        }
        plots[file] = bars(f"{name}: MRR, %", [COMPLETED, "BetaE", "BetaE in the paper"], rows)
    return plots


def plot_of_ratios(benchmarks: str) -> str:
    """Draw the second column of the table of benchmarks: times as fast as the alternative."""
    found = re.findall(r"^\| ([^|]+) \| ([\d,.]+) \|", benchmarks, flags=re.MULTILINE)
    rows: dict[str, list[float | None]] = {
        what: [float(ratio.replace(",", ""))] for what, ratio in found
    }
    return bars("Times as fast as the alternative (log scale)", [], rows, margin=430, log=True)


BAR, GAP, WIDTH = 11, 9, 860  # pixels
COLOURS = ("#3f51b5", "#26a69a", "#bdbdbd")


def bars(
    title: str,
    series: Sequence[str],
    rows: dict[str, list[float | None]],
    *,
    margin: int = 60,
    log: bool = False,
) -> str:
    """Draw horizontal bars as SVG: a group for each row, a colour for each series."""
    largest = max(value for values in rows.values() for value in values if value is not None)
    length = WIDTH - margin - 70
    parts = [f'<text x="12" y="24" font-weight="bold">{escape(title)}</text>']
    for i, name in enumerate(series):
        x = margin + 170 * i
        parts.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{COLOURS[i]}"/>')
        parts.append(f'<text x="{x + 18}" y="47">{escape(name)}</text>')
    y = 62 if series else 40
    for name, values in rows.items():
        height = BAR * len(values)
        text = f'x="{margin - 8}" y="{y + height / 2 + 4:g}" text-anchor="end"'
        parts.append(f"<text {text}>{escape(name)}</text>")
        for i, value in enumerate(values):
            if value is None:
                continue
            share = log10(value) / log10(largest) if log else value / largest
            width, top = max(share * length, 1), y + BAR * i
            parts.append(
                f'<rect x="{margin}" y="{top}" width="{width:.1f}" height="{BAR - 1}" '
                f'fill="{COLOURS[i]}"/>'
                f'<text x="{margin + width + 5:.1f}" y="{top + 9}" font-size="10">'
                f"{round(value, 1):,g}</text>"
            )
        y += height + GAP
    size = f'viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">\n'
        f'<rect width="{WIDTH}" height="{y}" rx="6" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
