"""Evidence: what speaks for a predicted edge, in sentences and in figures. `why` finds it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import zip_longest
from typing import Any

from betae.answering.drawing import draw_path, log_odds_bar

Edge = tuple[str, str, str]  # head, relation, tail
Path = tuple[Edge, ...]

PREPOSITIONS = {"at", "by", "for", "from", "in", "of", "on", "to", "with"}


@dataclass(frozen=True)
class Reason:
    """A rule, or a vote, that speaks for an edge."""

    text: str  # in a sentence: the first path and how often the rule holds, or what voted
    rule: str  # in plain notation
    log_odds: float  # its part of the edge's log-odds
    support: int  # cases in which it holds
    cases: int  # cases in which it applies
    num_paths: int = 0  # of a rule, from head to tail
    paths: tuple[Path, ...] = ()  # some of them

    def drawing(self) -> str:
        """Draw the first path as inline SVG; empty without one."""
        return f"<br>{draw_path(self.paths[0])}" if self.paths else ""


@dataclass(frozen=True)
class Evidence:
    """What speaks for one edge. The parts of its log-odds add up to its probability."""

    edge: tuple[str, str, str]  # head, relation, tail
    is_known: bool
    probability: float  # 1 for a known edge
    base_rate: float  # log-odds
    models: dict[str, float]  # log-odds by the name of the model
    reasons: tuple[Reason, ...]  # strongest first
    num_others: int  # further reasons
    others: float  # their log-odds

    @cached_property
    def log_odds(self) -> float:
        """The sum of all parts."""
        parts = [*self.models.values(), *(reason.log_odds for reason in self.reasons)]
        return math.fsum([self.base_rate, self.others, *parts])

    def summary(self) -> str:
        """Return the edge and how probable it is, in a line."""
        text = " ".join(self.edge)
        if not self.is_known:
            return f"{text}: {self.probability:.1%}"
        return f"{text}: known" + ("; other facts that speak for it:" if self.reasons else "")

    def lines(self) -> list[tuple[str, str]]:
        """Return what speaks for the edge, each with its log-odds, and their sum.

        The reasons for a known edge have none.
        """

        def amount(log_odds: float) -> str:
            return "" if self.is_known else f"{log_odds:+.2f}"

        found = [(amount(reason.log_odds), reason.text) for reason in self.reasons]
        if self.num_others:
            found.append((amount(self.others), f"{counted(self.num_others, 'weaker reason')}"))
        if not self.is_known:
            found += [(amount(score), f"model {name}") for name, score in self.models.items()]
            found.append((amount(self.base_rate), "base rate of such edges"))
            found.append((amount(self.log_odds), f"in all: {self.probability:.1%}"))
        return found

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"{number:>6}  {text}" for number, text in self.lines()]
        return "\n".join([self.summary(), *lines])

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        reasons = [vars(reason) for reason in self.reasons]
        plain = {name: value for name, value in vars(self).items() if name != "log_odds"}
        return {**plain, "reasons": reasons, "log_odds": self.log_odds}

    def _repr_html_(self) -> str:
        lines = self.lines()
        most = max((abs(float(number)) for number, _ in lines if number), default=0.0)
        rows = ""
        for (number, text), reason in zip_longest(lines, self.reasons):
            bar = log_odds_bar(float(number), most) if number else ""
            drawing = reason.drawing() if reason else ""
            rows += f"<tr><td>{number}</td><td>{bar}</td><td>{escape(text)}{drawing}</td></tr>"
        return f"<p>{escape(self.summary())}</p><table><tbody>{rows}</tbody></table>"


# ---- in words -----------------------------------------------------------------------------------


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 case", "1,200 cases"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share(support: int, cases: int, noun: str = "") -> str:
    """Return how often something holds: "14 % of 1,834 cases"."""
    percent = "<1" if 0 < support < 0.01 * cases else f"{100 * support / max(1, cases):.0f}"
    return f"{percent} % of {counted(cases, noun) if noun else f'{cases:,}'}"


def verb(relation: str) -> str:
    """Return a relation as a verb, to stand between two names: located_in -> "is located in".

    Names are taken to be English. Of an IRI or a path, the last part counts; types at both ends,
    as in Compound_treats_Disease, are left out.
    """
    last = re.split(r"[/#:]", relation.rstrip("/#:"))[-1]
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-_]", " ", last)
    words = spaced.split() or [relation]
    if len(words) > 2 and words[0].istitle() and words[-1].istitle() and words[1].endswith("s"):
        words = words[1:-1]
    words = [word if word.isupper() else word.lower() for word in words]
    first, phrase = words[0], " ".join(words)
    if first.endswith("s") and not first.endswith("ss"):  # "treats", "lives in", "has part"
        return phrase
    if {first, words[-1]} & PREPOSITIONS:  # "located in", "member of", "in subregion"
        return f"is {phrase}"
    return phrase if first.endswith("ed") else f"has {phrase}"


def in_words(path: Sequence[Edge]) -> str:
    """Return a path in a sentence: "A resembles B, which treats C"; relations are verbs.

    It begins at the end from which it is in one piece, or else shorter.
    """
    both = _sentence(path), _sentence(path[::-1])
    return min(both, key=lambda text: (text.count("; "), len(text)))


def _sentence(path: Sequence[Edge]) -> str:
    before = path[0]
    text = " ".join(before)
    is_short = False  # whether the last edge was only alluded to
    for edge in path[1:]:
        head, relation, tail = edge
        joined = f"; {head} {relation} {tail}"
        if not is_short:
            if head == before[2] != before[0]:
                joined = f", which {relation} {tail}"
            elif head == before[0]:
                joined = f" and {tail}" if relation == before[1] else f" and {relation} {tail}"
            elif edge[1:] == before[1:] and len(relation.split()) == 1 and " and " not in text:
                joined = f", as {head} does"
        text, before, is_short = text + joined, edge, joined.endswith(" does")
    return text
