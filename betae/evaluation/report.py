"""Reports: the evaluations of some runs side by side, with published figures beside them.

A report is a folder: `report.md` with its plots, `report.json`, and `report.html`, one page that
holds everything.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from betae.errors import StoreError
from betae.evaluation.pages import Section, html_page, markdown_page, plot_file
from betae.evaluation.paper import describe_queries
from betae.evaluation.paper_tables import paper_tables
from betae.evaluation.results import KeptEvaluation, read_evaluations
from betae.evaluation.tables import make_tables, tell_apart
from betae.storage import write_manifest, writing_folder

OF_THE_PAPER = (
    "By the embedding of the query, as in the paper; below each of its rows the run of the same "
    "model on the same graph, evaluated on the same kind of test queries."
)


def write_report(runs: Sequence[Path | str], target: Path | str, overwrite: bool = False) -> None:
    """Write the report of some runs to a folder."""
    evaluations: list[KeptEvaluation] = []
    for run in runs:
        found = read_evaluations(run)
        if not found:
            raise StoreError(f"{run} has no evaluation. Make one: betae eval {run} --queries SET.")
        evaluations += found
    with writing_folder(Path(target), overwrite) as partial:
        sections = report_sections(evaluations)
        files = {
            "report.md": markdown_page(sections),
            "report.html": html_page(sections),
            "report.json": json.dumps(
                [each.to_json() for each in evaluations], indent=1, allow_nan=False
            ),
        }
        for number, section in enumerate(sections, 1):
            files |= {plot_file(number, name): svg for name, svg in section.plots.items()}
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
        write_manifest(partial, "report", 1, {})


def report_sections(
    evaluations: Sequence[KeptEvaluation], with_plots: bool = True
) -> list[Section]:
    """Return the sections of a report: the paper's tables, then one for each query set."""
    sections = [_section(members, with_plots) for members in by_query_set(evaluations)]
    if tables := paper_tables(evaluations):
        sections.insert(0, Section("The paper's tables", OF_THE_PAPER, tables, {}))
    return sections


def by_query_set(evaluations: Iterable[KeptEvaluation]) -> list[list[KeptEvaluation]]:
    """Group evaluations that were made on the same queries of the same graph, by any method."""
    groups: dict[str, list[KeptEvaluation]] = defaultdict(list)
    for each in evaluations:
        what = [asdict(each.evaluation.graph), asdict(each.evaluation.queries)]
        groups[json.dumps(what, sort_keys=True)].append(each)
    return list(groups.values())


def _section(members: Sequence[KeptEvaluation], with_plots: bool) -> Section:
    members = tell_apart(members)
    heading = min((each.name for each in members), key=len)  # without "-completed"
    description = describe_queries(members[0].evaluation)
    plots = {}
    if with_plots:
        from betae.evaluation.plots import draw_plots  # matplotlib is slow to import

        plots = draw_plots(members)
    return Section(heading, description, make_tables(members), plots)
