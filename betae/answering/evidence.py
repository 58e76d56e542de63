"""Evidence: what speaks for a predicted edge, as a person gets it. `why` finds it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

Path = tuple[tuple[str, str, str], ...]  # edges: head, relation, tail


@dataclass(frozen=True)
class Reason:
    """A rule, or a vote, that speaks for an edge."""

    text: str  # the rule, or what voted
    log_odds: float  # its part of the edge's log-odds
    support: int  # cases in which it holds
    cases: int  # cases in which it applies
    num_paths: int = 0  # of a rule, from head to tail
    paths: tuple[Path, ...] = ()  # some of them

    def example(self) -> str:
        """Return the first path in words, or the votes."""
        if not self.paths:
            return f"{self.text}: {self.support} of {self.cases}"
        steps = "; ".join(" ".join(edge) for edge in self.paths[0])
        more = f" (and {self.num_paths - 1:,} more such paths)" if self.num_paths > 1 else ""
        return steps + more


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
        if self.is_known:
            return f"{text}: known"
        return f"{text}: {self.probability:.1%}"

    def lines(self) -> list[tuple[str, str]]:
        """Return what speaks for the edge, each with its log-odds; none for a known edge's."""

        def amount(log_odds: float) -> str:
            return "" if self.is_known else f"{log_odds:+.2f}"

        found = []
        for reason in self.reasons:
            found.append((amount(reason.log_odds), reason.example()))
            if reason.paths:
                share = f"{reason.support:,} of {reason.cases:,} cases"
                found.append(("", f"  {reason.text}: holds in {share}"))
        if self.num_others:
            found.append((amount(self.others), f"{self.num_others:,} weaker reasons"))
        if not self.is_known:
            found += [(amount(score), f"model {name}") for name, score in self.models.items()]
            found.append((amount(self.base_rate), "base rate of such edges"))
        return found

    def __str__(self) -> str:
        lines = [f"{number:>6}  {text}" for number, text in self.lines()]
        return "\n".join([self.summary(), *lines])

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        reasons = [vars(reason) for reason in self.reasons]
        plain = {name: value for name, value in vars(self).items() if name != "log_odds"}
        return {**plain, "reasons": reasons, "log_odds": self.log_odds}

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{number}</td><td>{escape(text)}</td></tr>" for number, text in self.lines()
        )
        return f"<p>{escape(self.summary())}</p><table><tbody>{rows}</tbody></table>"
