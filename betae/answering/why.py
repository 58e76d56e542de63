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
from betae.answering.evidence import Edge, Evidence, Reason, in_words, share, verb
from betae.answering.results import MAX_PREDICTED
from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.rules.evidence import RuleEvidence, VoteEvidence, rules_for, votes_for
from betae.rules.rows import BEST, KINDS, SCALES, features_of

SHOWN_REASONS = 5


def why_edge(completed: CompletedGraph, head: str, relation: str, tail: str) -> Evidence:
    """Explain an edge by names or labels: see `Run.why`."""
    graph = completed.whole
    ids = graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail)
    found = best_evidence(completed, *ids)
    if found is None:
        raise InvalidArgument(
            "This edge cannot be predicted: an entity or the relation was added to the graph "
            "later. Mine the rules again, or train a new run."
        )
    return found


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
    probabilities = _probabilities_for(completed, head, relation, tail)
    if probabilities is None:
        return None
    said = _Said(completed.whole, probabilities, head, relation, tail)
    is_known = tail in completed.adjacency.neighbours(head, relation)
    total, by_model = _log_odds(probabilities, head, relation, tail)
    reasons = said.reasons(probabilities.slope_at(relation, total))
    rest = math.fsum([*by_model.values(), *(log_odds for log_odds, _ in reasons)])
    others = [log_odds for log_odds, _ in reasons[SHOWN_REASONS:]]
    probability = min(MAX_PREDICTED, 1 / (1 + math.exp(-max(-700.0, total))))
    return Evidence(
        said.edge(relation, *said.ends),
        is_known,
        1.0 if is_known else probability,
        total - rest,
        by_model,
        tuple(said.describe(*reason) for reason in reasons[:SHOWN_REASONS]),
        len(others),
        math.fsum(others),
    )


def best_reason(completed: CompletedGraph, head: int, relation: int, tail: int) -> Reason | None:
    """Return the strongest reason of `explain_edge`, in a fraction of its time, if any."""
    probabilities = _probabilities_for(completed, head, relation, tail)
    if probabilities is None:
        return None
    said = _Said(completed.whole, probabilities, head, relation, tail)
    slope = probabilities.slope_at(relation, -math.inf)  # the order is the same at any
    return next((said.describe(*reason) for reason in said.reasons(slope)[:1]), None)


def _probabilities_for(
    completed: CompletedGraph, head: int, relation: int, tail: int
) -> EdgeProbabilities | None:
    """Return what predicts an edge: of what was added later, the rules alone, or nothing."""
    probabilities = completed.probabilities
    if probabilities.alone is not None and max(head, tail) >= probabilities.num_learned:
        probabilities = probabilities.alone
    if max(head, tail) >= probabilities.num_learned or relation >= probabilities.num_relations:
        return None
    return probabilities


def _log_odds(
    probabilities: EdgeProbabilities, head: int, relation: int, tail: int
) -> tuple[float, dict[str, float]]:
    """Return the log-odds of an edge as if it were missing, and the parts of the models."""
    pair = np.array([head]), np.array([relation])
    total = probabilities.log_odds_of(head, relation, tail)
    weights = probabilities.weights
    factor = probabilities.slope_at(relation, total)
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

    def reasons(self, slope: float) -> list[tuple[float, RuleEvidence | VoteEvidence]]:
        """Return all reasons with their log-odds, strongest first; they grow by `slope` with s."""
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
        parts = self._log_odds_by_kind(totals, slope)
        surest = max(rules, key=lambda each: each.rule.confidence, default=None)
        found = []
        for each in said:
            extra = parts[KINDS[BEST]] if each is surest else 0.0
            found.append((parts[each.kind] * each.amount / totals[each.kind] + extra, each))
        return sorted(found, key=lambda pair: -pair[0])

    def _log_odds_by_kind(self, totals: dict[str, float], slope: float) -> dict[str, float]:
        weights = self.probabilities.weights
        sums = np.array([[totals[kind] for kind in KINDS]], dtype=np.float32)
        of_relation = weights.of_relation(self.relation)
        terms = features_of(sums)[0] * np.array([of_relation[name] for name in RULES])
        by_kind = slope * terms.reshape(len(KINDS), len(SCALES)).sum(axis=1)
        return dict(zip(KINDS, by_kind.tolist(), strict=True))

    def describe(self, log_odds: float, found: RuleEvidence | VoteEvidence) -> Reason:
        """Put a reason into words."""
        if isinstance(found, RuleEvidence):
            return self._rule(found, log_odds)
        return self._vote(found, log_odds)

    def _rule(self, found: RuleEvidence, log_odds: float) -> Reason:
        rule, paths = found.rule, []
        for path in found.paths:
            steps = [*zip(rule.body, *zip(*pairwise(path), strict=True), strict=True)]
            paths.append(tuple(self.edge(*step) for step in steps))
            if len(paths) == 1:
                text = in_words([self._spoken(*step) for step in steps])
        notation = rule.text(self.graph)
        text = text if paths else notation
        if found.num_paths > 1:
            text += f" (one of {found.num_paths:,} such paths)"
        text += f": holds in {share(rule.support, rule.cases, 'such case')}"
        counts = rule.support, rule.cases, found.num_paths
        return Reason(text, notation, log_odds, *counts, tuple(paths))

    def _vote(self, found: VoteEvidence, log_odds: float) -> Reason:
        """Describe a vote as a rule with a constant: what is like one end has the edge as well."""
        place = 0 if found.kind == "like head" else 1
        fact = self._spoken(found.relation, self.ends[place], found.shared)
        what = f"what {' '.join(fact[1:])}"
        if found.relation % 2:
            shared, relation, _ = fact
            noun = relation.removeprefix("has ")
            what = (
                f"what {shared} {relation}" if noun == relation else f"what is {noun} of {shared}"
            )
        predicted = [*self._spoken(self.relation, *self.ends)]
        predicted[2 * (place ^ self.relation % 2)] = what
        cases = share(found.votes, found.asked, "case")
        text = f"{' '.join(fact)}: {' '.join(predicted)} in {cases}"
        labels = [*map(self.graph.entity_label, self.ends)]
        labels[place] = variable = "xy"[place]
        atom = self._atom(found.relation, variable, self.graph.entity_label(found.shared))
        notation = f"{self._atom(self.relation, *labels)} <- {atom}"
        return Reason(text, notation, log_odds, found.votes, found.asked)

    def _spoken(self, relation: int, head: int, tail: int) -> Edge:
        """Return an edge as it is written, by labels, with the relation as a verb."""
        first, _, last = self.edge(relation, head, tail)
        return first, verb(self.graph.relation_label(relation)), last

    def _atom(self, relation: int, head: str, tail: str) -> str:
        if relation % 2:
            head, tail = tail, head
        return f"{self.graph.relation_label(relation)}({head}, {tail})"

    def edge(self, relation: int, head: int, tail: int) -> Edge:
        """Return an edge of a directed relation as it is written, by labels."""
        ends = self.graph.entity_label(head), self.graph.entity_label(tail)
        first, last = ends if relation % 2 == 0 else ends[::-1]
        return first, self.graph.relation_label(relation), last
