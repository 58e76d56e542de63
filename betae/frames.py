"""Rows of text as an aligned table and as HTML, for the `repr` of results."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from betae.graph.names import printable

SHOWN_ROWS = 20  # of a long result

TextRows = Sequence[Sequence[str]]


def text_table(columns: Sequence[str], rows: TextRows) -> str:
    """Return rows under their column names, aligned; columns of numbers to the right."""
    lines = [columns, *([printable(cell) for cell in row] for row in rows)]
    aligned = []
    for name, *cells in zip(*lines, strict=True):
        width = max(map(len, [name, *cells]))
        side = ">" if cells and all(map(_is_number, cells)) else "<"
        aligned.append([f"{cell:{side}{width}}" for cell in [name, *cells]])
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def html_table(columns: Sequence[str], rows: TextRows) -> str:
    """Return rows as an HTML table, with all text escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    lines = "".join(f"<tr>{cells}</tr>" for cells in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.isdecimal() or cell.endswith("%")
