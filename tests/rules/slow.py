"""Slow and obvious versions of what is compiled: paths one by one, sums in dicts."""

import math
from collections import defaultdict

from betae.rules.rule_set import SMOOTHING


class SlowGraph:
    """Directed edges in a dict."""

    def __init__(self, adjacency):
        self.adjacency = adjacency
        self.num_entities = len(adjacency.head_offsets) - 1
        self.tails = defaultdict(list)
        for head in range(self.num_entities):
            for pair in range(*adjacency.head_offsets[head : head + 2]):
                found = adjacency.tails[slice(*adjacency.tail_offsets[pair : pair + 2])]
                self.tails[head, int(adjacency.relations[pair])] = found.tolist()

    def paths(self, start, body):
        """Paths along a body with distinct entities."""
        found = [(start,)]
        for relation in body:
            found = [
                (*path, tail)
                for path in found
                for tail in self.tails[path[-1], relation]
                if tail not in path
            ]
        return found

    def ends(self, start, body):
        """The number of paths to each end of a body."""
        counts = defaultdict(int)
        for path in self.paths(start, body):
            counts[path[-1]] += 1
        return counts

    def has(self, head):
        """(relation, tail) for all edges of a head, in order."""
        return [(r, t) for (h, r), tails in sorted(self.tails.items()) if h == head for t in tails]

    def holders(self, relation, shared):
        """The entities with an edge to a shared one."""
        return self.tails[shared, relation ^ 1]

    def sums(self, rules, head, relation, fitted=None):
        """What speaks for each tail, by kind; tails that were known to the fit vote, if any."""
        found = defaultdict(lambda: [0.0] * 5)
        for index in range(*rules.offsets[relation : relation + 2]):
            rule = rules.rule(index)
            for tail, count in self.ends(head, rule.body).items():
                amount = -math.log1p(-rule.confidence) * (1 + math.log(count))
                found[tail][1 if len(rule.body) == 3 else 0] += amount
                found[tail][2] = max(found[tail][2], rule.confidence)
        for step, shared in self.has(head):
            if shared == head:
                continue
            others = [each for each in self.holders(step, shared) if each != head]
            votes = defaultdict(int)
            for other in others:
                for tail in self.tails[other, relation]:
                    votes[tail] += 1
            for tail, count in votes.items():
                if tail != head:
                    found[tail][3] += -math.log1p(-count / (len(others) + SMOOTHING))
        properties = defaultdict(int)
        voters = fitted if fitted and fitted.tails[head, relation] else self
        for tail in voters.tails[head, relation]:
            for step, shared in voters.has(tail):
                if shared != tail and (shared, step ^ 1) != (head, relation):
                    properties[step, shared] += 1
        for (step, shared), count in properties.items():
            holders = voters.holders(step, shared)
            for tail in holders:
                if tail != head:
                    found[tail][4] += -math.log1p(-count / (len(holders) + SMOOTHING))
        return found
