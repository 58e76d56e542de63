"""Why an edge is predicted: the parts of its log-odds, with the paths and votes behind them.

The log-odds of a missing edge are a sum (see `edges`), so that every part of it can be told:

    rules       of a kind, shared among the rules and votes of that kind by their amounts
    models      a w_k (score_k - its mean over all entities)
    base rate   all the rest: how full both ends are, and how many tails compete
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from betae.answering.completed import CompletedGraph
from betae.answering.edges import RULES, EdgeProbabilities
from betae.answering.evidence import Evidence, Reason
from betae.answering.results import MAX_PREDICTED
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import shorten
from betae.rules.evidence import RuleEvidence, VoteEvidence, rules_for, votes_for
from betae.rules.rows import BEST, KINDS, SCALES, features_of

SHOWN_REASONS = 5


def best_evidence(
    completed: CompletedGraph, head: int, relation: int, tail: int
) -> Evidence | None:
    """Explain an edge, predicted from its head or its tail, whichever makes it more probable."""
    one = explain_edge(completed, head, relation, tail)
    other = explain_edge(completed, tail, relation ^ 1, head)
    return max((one, other), key=lambda each: each.log_odds) if one and other else None


def explain_edge(completed: CompletedGraph, head: int, relation: int, tail: int) -> Evidence | None:
    """Explain the edge of a directed relation, predicted from its head.

    None if no predictor knows the relation or one of the entities: they were added later.
    """
    probabilities = completed.probabilities
    if probabilities.alone is not None and max(head, tail) >= probabilities.num_learned:
        probabilities = probabilities.alone
    if max(head, tail) >= probabilities.num_learned or relation >= probabilities.num_relations:
        return None
    said = _Said(completed.whole, probabilities, head, relation, tail)
    is_known = tail in completed.adjacency.neighbours(head, relation)
    total, by_model = _log_odds(probabilities, head, relation, tail)
    reasons = said.reasons()
    shown, others = reasons[:SHOWN_REASONS], reasons[SHOWN_REASONS:]
    rest = math.fsum([*by_model.values(), *(reason.log_odds for reason in reasons)])
    probability = min(MAX_PREDICTED, 1 / (1 + math.exp(-max(-700.0, total))))
    return Evidence(
        said.edge(relation, *said.ends),
        is_known,
        1.0 if is_known else probability,
        total - rest,
        by_model,
        tuple(shown),
        len(others),
        math.fsum(reason.log_odds for reason in others),
    )


def _log_odds(
    probabilities: EdgeProbabilities, head: int, relation: int, tail: int
) -> tuple[float, dict[str, float]]:
    """Return the log-odds of an edge as if it were missing, and the parts of the models."""
    pair = np.array([head]), np.array([relation])
    total = float(probabilities.log_odds(*pair)[0, tail])
    weights = probabilities.weights
    factor = weights.row["score"] * weights.rate_of(relation)[0]
    of_relation = weights.of_relation(relation)
    scores = zip(weights.predictors, probabilities.by_predictor(*pair), strict=True)
    by_model = {}
    for name, (row,) in scores:
        by_model[name] = factor * of_relation[name] * float(row[tail] - row.mean())
    return total, by_model


class _Said:
    """What rules and votes say about one edge."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        probabilities: EdgeProbabilities,
        head: int,
        relation: int,
        tail: int,
    ):
        self.graph, self.probabilities, self.relation = graph, probabilities, relation
        self.ends = int(probabilities.ids[head]), int(probabilities.ids[tail])  # in that graph

    def reasons(self) -> list[Reason]:
        """Return all reasons, strongest first."""
        rows = self.probabilities.rule_rows
        if rows is None:
            return []
        head, tail = self.ends
        edges = self.probabilities.counts.all_edges
        rules = rules_for(rows, edges, head, self.relation, tail)
        votes = votes_for(rows, head, self.relation, tail)
        totals = dict.fromkeys(KINDS, 0.0)
        said: list[RuleEvidence | VoteEvidence] = [*rules, *votes]
        for each in said:
            totals[each.kind] += each.amount
        totals[KINDS[BEST]] = max((each.rule.confidence for each in rules), default=0.0)
        parts = self._log_odds_by_kind(totals)
        surest = max(rules, key=lambda each: each.rule.confidence, default=None)
        found = []
        for rule in rules:
            part = parts[rule.kind] * rule.amount / totals[rule.kind]
            extra = parts[KINDS[BEST]] if rule is surest else 0.0
            found.append(self._rule(rule, part + extra))
        for vote in votes:
            found.append(self._vote(vote, parts[vote.kind] * vote.amount / totals[vote.kind]))
        return sorted(found, key=lambda reason: -reason.log_odds)

    def _log_odds_by_kind(self, totals: dict[str, float]) -> dict[str, float]:
        weights = self.probabilities.weights
        sums = np.array([[totals[kind] for kind in KINDS]], dtype=np.float32)
        of_relation = weights.of_relation(self.relation)
        terms = features_of(sums)[0] * np.array([of_relation[name] for name in RULES])
        factor = weights.row["score"] * weights.rate_of(self.relation)[0]
        by_kind = factor * terms.reshape(len(KINDS), len(SCALES)).sum(axis=1)
        return dict(zip(KINDS, by_kind.tolist(), strict=True))

    def _rule(self, found: RuleEvidence, log_odds: float) -> Reason:
        rule = found.rule
        paths = tuple(
            tuple(
                self.edge(step, one, other)
                for step, (one, other) in zip(rule.body, pairwise(path), strict=True)
            )
            for path in found.paths
        )
        text = rule.text(self.graph)
        return Reason(text, log_odds, rule.support, rule.cases, found.num_paths, paths)

    def _vote(self, found: VoteEvidence, log_odds: float) -> Reason:
        head, tail = map(self.graph.entity_label, self.ends)
        shared = self.graph.entity_label(found.shared)
        if found.kind == "like head":
            has = self._atom(found.relation, "x", shared)
            text = f"others with {has} that have {self._atom(self.relation, 'x', tail)}"
        else:
            has = self._atom(found.relation, "y", shared)
            text = f"entities with {has} that have {self._atom(self.relation, head, 'y')}"
        return Reason(text, log_odds, found.votes, found.asked)

    def _relation_name(self, relation: int) -> str:
        return shorten(self.graph.relations[relation // 2], self.graph.prefixes)

    def _atom(self, relation: int, head: str, tail: str) -> str:
        if relation % 2:
            head, tail = tail, head
        return f"{self._relation_name(relation)}({head}, {tail})"

    def edge(self, relation: int, head: int, tail: int) -> tuple[str, str, str]:
        """Return an edge of a directed relation as it is written, by labels."""
        ends = self.graph.entity_label(head), self.graph.entity_label(tail)
        first, last = ends if relation % 2 == 0 else ends[::-1]
        return first, self._relation_name(relation), last
