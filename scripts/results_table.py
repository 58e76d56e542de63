"""Write the tables of results in the README, and results/report.md, from what results/ holds.

    python scripts/results_table.py

Run it after an evaluation was put into results/: a test compares both files with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from betae.evaluation.pages import markdown_page
from betae.evaluation.paper import (
    has_queries_of_the_paper,
    paper_dataset,
    paper_figures,
    published_figures,
    query_kind,
)
from betae.evaluation.report import by_query_set, report_sections
from betae.evaluation.results import Average, Evaluation, KeptEvaluation, read_evaluations
from betae.evaluation.tables import MODEL_NAMES, columns_of, method_name, most_complete, span

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
    f"`betae/evaluation/published.json` has the sources. ‡ {RECONSTRUCTED}"
)

Members = Sequence[KeptEvaluation]  # evaluations on one query set


def main() -> None:
    """Rewrite what is made from the results."""
    evaluations = read_results(ROOT / "results")
    readme = ROOT / "README.md"
    readme.write_text(with_tables(readme.read_text("utf-8"), evaluations), "utf-8")
    (ROOT / "results" / "report.md").write_text(report_of(evaluations), "utf-8")


def read_results(folder: Path) -> list[KeptEvaluation]:
    """Read the evaluations of all runs in a folder."""
    runs = sorted(path for path in folder.iterdir() if path.is_dir())
    return [each for run in runs for each in read_evaluations(run)]


def report_of(evaluations: Members) -> str:
    """Return the report of all results, without plots."""
    page = markdown_page(report_sections(evaluations, with_plots=False))
    return f"{page.rstrip()}\n\n{RECONSTRUCTED}\n"


def with_tables(readme: str, evaluations: Members) -> str:
    """Return the README with the tables of these evaluations between its two marks."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md has no place for the tables: {BEGIN} and {END} are missing.")
    sets = [most_important_first(members) for members in by_query_set(evaluations)]
    sets.sort(key=lambda members: order_of(most_complete(members)))
    usual = [members for members in sets if is_usual(most_complete(members))]
    harder = [members for members in sets if "missing" in most_complete(members).queries.origin]
    tables = [averages_table(usual), NOTES, structures_table(usual)]
    tables += [missing_table(harder, usual)] if harder else []
    return "\n\n".join([before + begin, *tables, end + after])


# ---- which evaluations ------------------------------------------------------------------------


def is_usual(evaluation: Evaluation) -> bool:
    """Tell whether the queries are released ones, or sampled by the release's rules."""
    is_released = query_kind(evaluation) != "sampled"
    has_its_rules = evaluation.queries.origin.get("rules") == "release"
    return has_queries_of_the_paper(evaluation) and (is_released or has_its_rules)


def order_of(evaluation: Evaluation) -> tuple[int, bool, int]:
    """Return what sorts query sets: by graph, Query2Box's queries last, larger sets first."""
    graph = GRAPHS.index(paper_dataset(evaluation) or "")
    return graph, query_kind(evaluation) == "query2box", -evaluation.queries.count


def column_of(each: KeptEvaluation) -> str:
    """Return the name of an evaluation's method in the tables."""
    if each.evaluation.method == "completed":
        return COMPLETED
    return MODEL_NAMES[each.evaluation.model]


def most_important_first(members: Members) -> list[KeptEvaluation]:
    """Sort evaluations on one query set by method."""
    columns = (COMPLETED, *MODELS)
    known = [each for each in members if column_of(each) in columns]
    return sorted(known, key=lambda each: (columns.index(column_of(each)), each.run))


def by_column(members: Members) -> dict[str, Evaluation]:
    """Return the evaluation of each method; of two runs the first by name."""
    found: dict[str, Evaluation] = {}
    for each in members:
        found.setdefault(column_of(each), each.evaluation)
    return found


def title_of(evaluation: Evaluation) -> str:
    """Say on which queries an evaluation was made."""
    subset = evaluation.queries.origin.get("subset")
    count = f"{evaluation.queries.count:,}" + (f", {subset}" if subset else "")
    graph = paper_dataset(evaluation)
    mark = "‡" if graph == "FB15k" else ""
    return f"{graph}{mark}, {QUERIES[query_kind(evaluation)]} ({count})"


# ---- the tables -------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table as Markdown."""
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def with_interval(average: Average) -> str:
    """Write an average MRR with its 95 % interval."""
    return f"{average.metrics.mrr:.1f} ({span(average)})"


def averages_table(sets: Sequence[Members]) -> str:
    """Lay out the average MRR of every query set, by all methods and beside other systems."""
    head = ["MRR, %", COMPLETED]
    head += [name for model in MODELS for name in (model, "paper")] + [*OTHERS, "frequency"]
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
    return table(head, rows)


def mark_of(evaluation: Evaluation) -> str:
    """Return a mark for others' figures if the queries are not those that they are for."""
    return "\\*" if query_kind(evaluation) == "sampled" else ""


def paper_cell(evaluation: Evaluation, model: str, column: str) -> str:
    """Write a figure of the paper; nothing if it has none."""
    figure = paper_figures(evaluation, "mrr").get(model, {}).get(column)
    return "" if figure is None else f"{figure:.1f}{mark_of(evaluation)}"


def published_cell(evaluation: Evaluation, system: str, column: str) -> str:
    """Write a figure of another system; nothing if it has none."""
    figure = published_figures(evaluation, "mrr").get(system, {}).get(column)
    if figure is None:
        return ""
    return f"{figure.value:.1f}{mark_of(evaluation)}{'' if figure.is_checked else '†'}"


def structures_table(sets: Sequence[Members]) -> str:
    """Lay out the MRR by structure where the completed graph was evaluated."""
    shown = [members for members in sets if COMPLETED in by_column(members)]
    evaluations = [each.evaluation for members in shown for each in members]
    columns = [
        name
        for name in columns_of(evaluations)
        if name not in ("EPFO", "negation") and not name.endswith("-DM")
    ]
    rows = []
    for members in shown:
        for number, (column, evaluation) in enumerate(by_column(members).items()):
            title = "" if number else f"{title_of(evaluation)}: "
            rows.append([f"{title}{column}", *mrr_cells(evaluation, columns)])
        most = most_complete(members)
        rows.append(["BetaE in the paper", *(paper_cell(most, "BetaE", name) for name in columns)])
    return table(["MRR, %", *columns], rows)


def mrr_cells(evaluation: Evaluation, columns: Sequence[str]) -> list[str]:
    """Write the MRRs of an evaluation; those of averages with their intervals."""
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
        for name in columns_of([each.evaluation for members in sets for each in members])
        if not name.endswith("-DM")
    ]
    for members in sets:
        most = most_complete(members)
        missing = most.queries.origin["missing"]
        number = "all" if missing == "all" else f"at least {missing}"
        title = f"{paper_dataset(most)}, {number} edges missing: "
        for number, each in enumerate(members):
            label = method_name(each.evaluation)
            cells = mrr_cells(each.evaluation, columns)
            rows.append([f"{'' if number else title}{label}", *cells])
        found = [most.results.get(name) for name in columns]
        rows.append(["frequency", *(f"{it.frequency.mrr:.1f}" if it else "" for it in found)])
        rows += usual_rows(most, usual, columns)
    return table(["MRR, %", *columns], rows)


def usual_rows(
    harder: Evaluation, usual: Sequence[Members], columns: Sequence[str]
) -> list[list[str]]:
    """Return the graph's usual queries for the structures of harder ones, and their means."""
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


if __name__ == "__main__":
    main()
