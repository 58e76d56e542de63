"""Logical identities: simplify a query so that what is said twice counts once.

Over the completed graph a condition has a probability, and `x & x` or `x & !x` must not be computed
as if the two were independent. For any sub-query x, in any order of operands and at any depth:

    x & x = x               x & !x = nothing            !!x = x
    x | x = x               x | !x = everything         !(x & y) = !x | !y      !(x | y) = !x & !y
    x & (x | y) = x         x & (!x | y) = x & y
    x | (x & y) = x         x | (!x & y) = x | y        nothing[r] = nothing

They are applied from the leaves up, and sub-queries are equal if they are after that, below a step
along a relation too. The last two lines are for a y that does not itself repeat parts of x: those
may be simplified first. What needs distribution is not recognised: (x & y) | (x & !y) is not x, and
(x | y)[r] is not x[r] | y[r].
"""

from __future__ import annotations

from collections.abc import Iterable

from betae.queries.ast import And, Not, Or, Project, Query, nodes

Simplified = Query | bool  # True is the set of all entities, False the empty set


def apply_identities(query: Query) -> Query:
    """Simplify a query; complements are left around leaves and projections only.

    Operands keep their order. The set of all entities becomes `e | !e` and the empty set `e & !e`,
    for a leaf e of the query: truth values of 0 and 1 need no more.
    """
    return _Identities(query).query


class _Identities:
    """Simplifies one query; sub-queries are compared by their ids."""

    def __init__(self, query: Query):
        leaf = next(node for node in nodes(query) if not node.operands)
        self.constants = {True: leaf | ~leaf, False: leaf & ~leaf}
        self.ids: dict[Query, int] = {}
        self.interned: dict[object, int] = {}
        self.conjuncts: dict[int, frozenset[int]] = {}  # of an intersection, by its id
        self.query = self.as_query(self.simplify(query))

    def as_query(self, simplified: Simplified) -> Query:
        return self.constants[simplified] if isinstance(simplified, bool) else simplified

    def simplify(self, node: Query, is_negated: bool = False) -> Simplified:
        """Simplify a query or its complement, from the leaves up."""
        match node:
            case Not(operand):
                return self.simplify(operand, not is_negated)
            case And() | Or():
                parts = [self.simplify(operand, is_negated) for operand in node.operands]
                return self.join(isinstance(node, And) != is_negated, parts)
            case Project(operand, relation):
                inner = self.simplify(operand)
                if inner is False:
                    return is_negated
                node = Project(self.as_query(inner), relation)
        return Not(node) if is_negated else node

    def join(self, is_and: bool, parts: Iterable[Simplified]) -> Simplified:
        """Intersect (`is_and`) or unite simplified queries."""
        kind: type[And | Or] = And if is_and else Or
        old: list[Query] = []
        while True:
            operands: dict[int, Query] = {}  # by id, in the order given
            for part in parts:
                if isinstance(part, bool):
                    if part is not is_and:
                        return part
                    continue
                for operand in part.operands if isinstance(part, kind) else (part,):
                    operands.setdefault(self.id_of(operand), operand)
            if any(-key in operands for key in operands):
                return not is_and
            if not operands:
                return is_and
            if [*operands.values()] == old:
                return old[0] if len(old) == 1 else kind(*old)
            old = [*operands.values()]
            # In `x & y`, y only matters where x is true; in `x | y`, only where x is false.
            assumed = {key if is_and else -key for key in operands}
            parts = [self.inside(assumed, operand) for operand in old]

    def inside(self, assumed: set[int], node: Query) -> Simplified:
        """Simplify an intersection or union where the queries of some ids are assumed to hold."""
        if not isinstance(node, And | Or):
            return node
        key = self.id_of(node)
        conjuncts = self.conjuncts[abs(key)]
        refuted = [self.conjuncts[-other] for other in assumed if -other in self.conjuncts]
        if any(fewer < conjuncts for fewer in refuted):  # so the intersection is empty
            return key < 0  # and a union is the complement of one
        parts: list[Simplified] = []
        for operand in node.operands:
            key = self.id_of(operand)
            is_decided = key in assumed or -key in assumed
            parts.append(key in assumed if is_decided else self.inside(assumed, operand))
        is_unchanged = all(part is old for part, old in zip(parts, node.operands, strict=True))
        return node if is_unchanged else self.join(isinstance(node, And), parts)

    def id_of(self, node: Query) -> int:
        """Return an id that equal queries share, however ordered; the complement's is negative.

        A union is the complement of an intersection, so that De Morgan's laws need no rule.
        """
        if node in self.ids:
            return self.ids[node]
        key: object = node
        match node:
            case Not(operand):
                return -self.id_of(operand)
            case Project(operand, relation):
                key = (relation, self.id_of(operand))
            case And():
                key = frozenset(map(self.id_of, node.operands))
            case Or():
                key = frozenset(-self.id_of(operand) for operand in node.operands)
        found = self.interned.setdefault(key, len(self.interned) + 1)
        if isinstance(key, frozenset):
            self.conjuncts[found] = key
        self.ids[node] = -found if isinstance(node, Or) else found
        return self.ids[node]
