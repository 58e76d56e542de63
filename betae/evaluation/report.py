"""Reports: evaluations of runs side by side, beside published figures.

A report is a folder: `report.md` with its plots, `report.json`, and `report.html`, a page that
needs no other file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import msgspec

from betae.checks import needing
from betae.errors import StoreError
from betae.evaluation.results import Evaluation, read_evaluations
from betae.evaluation.tables import (
    ReportTable,
    below_the_paper,
    describe_queries,
    make_tables,
    paper_tables,
    tell_apart,
)
from betae.frames import html_table
from betae.storage import write_manifest, writing_folder

PROTOCOL = (
    "Each hard answer is ranked against all entities that are not answers; a tie counts half (the "
    "mean of its best and its worst order). Means are over the answers of a query, then over "
    "queries. -DM: unions in De Morgan form, otherwise in disjunctive normal form. `frequency` "
    "ranks entities by how often they are tails of the last relation in training."
)
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}"
    "td,th{padding:.2rem .5rem;text-align:right;border-bottom:1px solid #ddd}"
    "td,th{white-space:nowrap}"
    "tr>:first-child{text-align:left;font-weight:500}thead th{border-bottom:2px solid #888}"
    ".wide{overflow-x:auto}.note{color:#555;font-size:13px}svg{max-width:100%;height:auto}"
)
OF_THE_PAPER = (
    "By the embedding of the query, as in the paper; below each of its rows the run of the same "
    "model on the same graph, evaluated on the same kind of test queries."
)


@dataclass(frozen=True)
class Section:
    """One query set: the tables and plots of the runs that were evaluated on it."""

    heading: str
    description: str
    tables: Sequence[ReportTable]
    plots: Mapping[str, str]  # SVG by name


def write_report(runs: Sequence[Path | str], target: Path | str, overwrite: bool = False) -> None:
    """Write the report of some runs to a folder."""
    evaluations: list[Evaluation] = []
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
            "report.json": msgspec.json.format(msgspec.json.encode(evaluations), indent=1).decode(),
        }
        for number, section in enumerate(sections, 1):
            files |= {f"{number}-{name}.svg": svg for name, svg in section.plots.items()}
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
        write_manifest(partial, "report", {})


def report_sections(evaluations: Sequence[Evaluation], with_plots: bool = True) -> list[Section]:
    """Return the sections of a report: the paper's tables, then one for each query set."""
    sections = []
    if tables := paper_tables(evaluations):
        tables.append(below_the_paper(tables))
        sections.append(Section("The paper's tables", OF_THE_PAPER, tables, {}))
    for members in map(tell_apart, by_query_set(evaluations)):
        plots = {}
        if with_plots:
            with needing("matplotlib", "plots"):
                from betae.evaluation.plots import draw_plots

            plots = draw_plots(members)
        heading = min((each.name for each in members), key=len)  # without "-completed"
        description = describe_queries(members[0])
        sections.append(Section(heading, description, make_tables(members), plots))
    return sections


def by_query_set(evaluations: Iterable[Evaluation]) -> list[list[Evaluation]]:
    """Group evaluations by graph and queries, whatever the method."""
    groups: dict[bytes, list[Evaluation]] = defaultdict(list)
    for each in evaluations:
        key = msgspec.json.encode((each.graph, each.queries), order="deterministic")
        groups[key].append(each)
    return list(groups.values())


# ---- Markdown and HTML --------------------------------------------------------------------------


def markdown_page(sections: Sequence[Section]) -> str:
    """Render sections as Markdown that links to the files of the plots."""
    parts = ["# Evaluation", PROTOCOL]
    for number, section in enumerate(sections, 1):
        parts += [f"## {_escape_markdown(section.heading)}", section.description]
        parts += map(to_markdown, section.tables)
        parts += [f"![{name}]({number}-{name}.svg)" for name in section.plots]
    return "\n\n".join(parts) + "\n"


def html_page(sections: Sequence[Section]) -> str:
    """Render sections as one HTML page that needs no other file."""
    parts = [f"<p>{escape(PROTOCOL)}</p>"]
    for section in sections:
        parts.append(f"<h2>{escape(section.heading)}</h2><p>{escape(section.description)}</p>")
        parts += [*map(to_html, section.tables), *section.plots.values()]
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>betae: evaluation</title>'
        f"<style>{STYLE}</style></head><body><h1>Evaluation</h1>\n{body}\n</body></html>\n"
    )


def to_markdown(table: ReportTable) -> str:
    """Render a table as Markdown."""
    lines = [
        f"### {_escape_markdown(table.title)}\n",
        f"| | {' | '.join(map(_escape_markdown, table.columns))} |",
        "|---" + "|---:" * len(table.columns) + "|",
    ]
    for label, *cells in table.texts():
        lines.append(f"| {_escape_markdown(label)} | {' | '.join(cells)} |")
    return "\n".join([*lines, *(f"\n{_escape_markdown(note)}" for note in table.notes)])


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>&|])", r"\\\1", text)


def to_html(table: ReportTable) -> str:
    """Render a table as HTML."""
    rows = html_table(["", *table.columns], table.texts())
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    return f"<h3>{escape(table.title)}</h3><div class=wide>{rows}</div>{notes}"
