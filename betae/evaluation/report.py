"""Reports: the evaluations of some runs side by side, with the paper's figures beside them.

An evaluation lies in its run, as `evaluations/NAME.json`. A report is a folder: `report.md` with
its plots, `report.json`, and `report.html`, one page that holds everything.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path

from betae.errors import StoreError
from betae.evaluation.evaluate import Evaluation
from betae.evaluation.paper import Content, describe_queries
from betae.evaluation.tables import Table, _text, make_tables
from betae.storage import write_manifest, writing_file, writing_folder

EVALUATIONS = "evaluations"
PROTOCOL = (
    "Every hard answer is ranked against all entities that are no answers; entities at the same "
    "distance count half (the mean of the best and the worst order). Means are over the answers of "
    "a query, then over queries. -DM: unions in De Morgan form, otherwise in disjunctive normal "
    "form. `frequency` ranks entities by how often they are tails of the last relation in training."
)


KEYS = {"run", "name", *(part.name for part in fields(Evaluation))}


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


# ---- the paper's figures ----------------------------------------------------------------------


# ---- tables -----------------------------------------------------------------------------------


# ---- rendering --------------------------------------------------------------------------------


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
