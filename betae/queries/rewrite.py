"""Normal forms of queries: pure functions from tree to tree with the same answers.

Disjunctive normal form (DNF) brings every union to the top, where the best branch wins; it can
grow exponentially. De Morgan form (DM) writes a | b as ~(~a & ~b), and grows linearly.
"""

from __future__ import annotations

from itertools import product
from math import prod

from betae.errors import UnsupportedQuery
from betae.queries.ast import And, Entity, Not, Or, Project, Query, rebuild

MAX_BRANCHES = 256


def simplify(query: Query) -> Query:
    """Drop double negations and repeated operands (nested And and Or are flat by construction)."""

    def simpler(node: Query) -> Query:
        if isinstance(node, Not) and isinstance(node.operand, Not):
            return node.operand.operand
        if isinstance(node, And | Or):
            return node.with_operands(*dict.fromkeys(node.operands))
        return node

    return rebuild(query, simpler)


def to_de_morgan(query: Query) -> Query:
    """Write every union with intersection and complement; simplify the double negations."""

    def without_or(node: Query) -> Query:
        if isinstance(node, Or):
            return Not(And(*(Not(operand) for operand in node.operands)))
        return node

    return simplify(rebuild(query, without_or))


def dnf_branches(query: Query, max_branches: int = MAX_BRANCHES) -> tuple[Query, ...]:
    """Return union-free queries whose answers together are those of `query`.

    In each, the operand of a complement is a projection or an entity. A query of more than
    `max_branches` branches is refused before any work is done.
    """
    needed = num_branches(query)
    if needed > max_branches:
        raise UnsupportedQuery(
            f"The disjunctive normal form of this query has {needed:,} branches, more than "
            f"{max_branches:,}. Use the De Morgan form, which stays small."
        )
    return tuple(dict.fromkeys(map(simplify, _branches(query))))


def to_dnf(query: Query, max_branches: int = MAX_BRANCHES) -> Query:
    """Return the disjunctive normal form as one query."""
    branches = dnf_branches(query, max_branches)
    return Or(*branches) if len(branches) > 1 else branches[0]


def _branches(query: Query) -> list[Query]:
    match query:
        case Entity():
            return [query]
        case Project(operand, relation):
            return [Project(branch, relation) for branch in _branches(operand)]
        case And():
            choices = product(*map(_branches, query.operands))
            return [And(*choice) for choice in choices]
        case Or():
            return [branch for operand in query.operands for branch in _branches(operand)]
        case Not(operand):
            return _negated_branches(operand)
    raise AssertionError(query)


def _negated_branches(query: Query) -> list[Query]:
    """Return the branches of the complement of `query`."""
    match query:
        case Entity():
            return [Not(query)]
        case Project():
            negated = [Not(branch) for branch in _branches(query)]
            return [And(*negated)] if len(negated) > 1 else list(negated)
        case And():
            return [branch for operand in query.operands for branch in _negated_branches(operand)]
        case Or():
            choices = product(*map(_negated_branches, query.operands))
            return [And(*choice) for choice in choices]
        case Not(operand):
            return _branches(operand)
    raise AssertionError(query)


def num_branches(query: Query) -> int:
    """Return the most branches that exist at any point while the normal form is built."""
    worst = 1

    def positive(node: Query) -> int:
        match node:
            case Project(operand, _):
                size = positive(operand)
            case And():
                size = prod(map(positive, node.operands))
            case Or():
                size = sum(map(positive, node.operands))
            case Not(operand):
                size = negative(operand)
            case _:
                size = 1
        nonlocal worst
        worst = max(worst, size)
        return size

    def negative(node: Query) -> int:
        match node:
            case Project():
                positive(node)
                size = 1
            case And():
                size = sum(map(negative, node.operands))
            case Or():
                size = prod(map(negative, node.operands))
            case Not(operand):
                size = positive(operand)
            case _:
                size = 1
        nonlocal worst
        worst = max(worst, size)
        return size

    return max(positive(query), worst)


def explain_negation(query: Query) -> str:
    """Say what it means that a branch of a query consists of complements only; else, nothing."""

    def is_only_negation(branch: Query) -> bool:
        parts = branch.operands if isinstance(branch, And) else (branch,)
        return all(isinstance(part, Not) for part in parts)

    if not any(map(is_only_negation, dnf_branches(query))):
        return ""
    return (
        "The query says only what the answers are not, so every other entity of the graph, of "
        "whatever kind, is an answer."
    )
