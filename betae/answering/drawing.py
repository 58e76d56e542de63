"""Evidence as inline SVG, for notebooks: bars of log-odds and probabilities, and paths."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Edge = tuple[str, str, str]  # head, relation, tail

BAR = 120, 10  # width and height in pixels
LETTER = 6.6  # width of one in pixels, at a size of 11
PADDING, GAP, HEIGHT = 8, 26, 34
FOR, AGAINST, INK, FAINT = "#2a7ab0", "#c05621", "#333", "#888"


def probability_bar(probability: float) -> str:
    """Draw a probability as the filled part of a bar."""
    width, height = BAR
    filled = max(1.0, width * min(probability, 1.0))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{probability:.1%}">'
        f'<rect width="{width}" height="{height}" fill="#eee"/>'
        f'<rect width="{filled:.0f}" height="{height}" fill="{FOR}"/></svg>'
    )


def log_odds_bar(log_odds: float, most: float) -> str:
    """Draw log-odds as a bar from the middle: to the right what speaks for, to the left against."""
    width, height = BAR
    middle = width / 2
    length = middle * min(1.0, abs(log_odds) / most) if most else 0.0
    start = middle if log_odds >= 0 else middle - length
    colour = FOR if log_odds >= 0 else AGAINST
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{log_odds:+.2f}">'
        f'<rect x="{start:.0f}" width="{max(1.0, length):.0f}" height="{height}" fill="{colour}"/>'
        f'<rect x="{middle:.0f}" width="1" height="{height}" fill="{INK}"/></svg>'
    )


def draw_path(path: Sequence[Edge]) -> str:
    """Draw a path as boxes with arrows, each in the direction of its edge.

    It begins at the end from which more arrows point onward.
    """
    path = max(path, path[::-1], key=_num_onward)
    node = _start(path)
    parts, x = [], 0.0

    def add_box() -> None:
        nonlocal x
        width = LETTER * len(node) + 2 * PADDING
        parts.append(_box(x, width, node))
        x += width

    add_box()
    for head, relation, tail in path:
        end = x + LETTER * len(relation) + GAP
        parts.append(_arrow(x, end, relation, node == head))
        x, node = end, tail if node == head else head
        add_box()
    text = "; ".join(" ".join(edge) for edge in path)
    return (
        f'<svg width="{x + 2:.0f}" height="{HEIGHT}" role="img" aria-label="{escape(text)}" '
        f'font-family="sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def _start(path: Sequence[Edge]) -> str:
    """Return the end of the first edge at which a path begins."""
    head, _, tail = path[0]
    if len(path) > 1 and head in (path[1][0], path[1][2]):
        return tail
    return head


def _num_onward(path: Sequence[Edge]) -> int:
    node, number = _start(path), 0
    for head, _, tail in path:
        number += node == head
        node = tail if node == head else head
    return number


def _box(x: float, width: float, text: str) -> str:
    return (
        f'<rect x="{x + 1:.0f}" y="10" width="{width:.0f}" height="20" rx="4" fill="#f4f4f4" '
        f'stroke="{FAINT}"/><text x="{x + 1 + width / 2:.0f}" y="24" text-anchor="middle" '
        f'fill="{INK}">{escape(text)}</text>'
    )


def _arrow(start: float, end: float, text: str, is_forward: bool) -> str:
    tip, back = (end, -5) if is_forward else (start + 1, 5)
    return (
        f'<line x1="{start + 1:.0f}" x2="{end:.0f}" y1="20" y2="20" stroke="{FAINT}"/>'
        f'<path d="M{tip:.0f} 20l{back} -4v8z" fill="{FAINT}"/>'
        f'<text x="{(start + end) / 2:.0f}" y="9" text-anchor="middle" fill="{FAINT}">'
        f"{escape(text)}</text>"
    )
