"""Reports as Markdown and as one HTML page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from betae.evaluation.tables import Table, cell_text

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
    "tr>th:first-child{text-align:left;font-weight:500}thead th{border-bottom:2px solid #888}"
    ".wide{overflow-x:auto}.note{color:#555;font-size:13px}svg{max-width:100%;height:auto}"
)


@dataclass(frozen=True)
class Section:
    """One query set: the tables and plots of the runs that were evaluated on it."""

    heading: str
    description: str
    tables: Sequence[Table]
    plots: Mapping[str, str]  # SVG by name


def plot_file(number: int, name: str) -> str:
    """Return the name of the file of a plot of the section with this number."""
    return f"{number}-{name}.svg"


def markdown_page(sections: Sequence[Section]) -> str:
    """Write sections as Markdown, with links to the files of the plots."""
    parts = ["# Evaluation", PROTOCOL]
    for number, section in enumerate(sections, 1):
        parts += [f"## {_escape_markdown(section.heading)}", section.description]
        parts += map(to_markdown, section.tables)
        parts += [f"![{name}]({plot_file(number, name)})" for name in section.plots]
    return "\n\n".join(parts) + "\n"


def html_page(sections: Sequence[Section]) -> str:
    """Write sections as one HTML page that needs no other file."""
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


def to_markdown(table: Table) -> str:
    """Write a table as Markdown."""
    lines = [
        f"### {_escape_markdown(table.title)}\n",
        f"| | {' | '.join(map(_escape_markdown, table.columns))} |",
        "|---" + "|---:" * len(table.columns) + "|",
    ]
    for label, cells in table.rows:
        texts = [cell_text(cell, table.digits) for cell in cells]
        lines.append(f"| {_escape_markdown(label)} | {' | '.join(texts)} |")
    return "\n".join([*lines, *(f"\n{_escape_markdown(note)}" for note in table.notes)])


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>&|])", r"\\\1", text)


def to_html(table: Table) -> str:
    """Write a table as HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = ""
    for label, cells in table.rows:
        texts = "".join(f"<td>{escape(cell_text(cell, table.digits))}</td>" for cell in cells)
        body += f"<tr><th>{escape(label)}</th>{texts}</tr>\n"
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    return (
        f"<h3>{escape(table.title)}</h3><div class=wide><table><thead><tr><th></th>{head}</tr>"
        f"</thead><tbody>{body}</tbody></table></div>{notes}"
    )
