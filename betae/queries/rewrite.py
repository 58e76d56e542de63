"""Rewriting queries: pure functions from tree to tree.

Normal forms keep the answers. Disjunctive normal form (DNF) moves every union to the top, where the
best branch wins; it can grow exponentially. De Morgan form (DM) writes a | b as ~(~a & ~b), and
grows linearly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product, repeat
from math import prod
from typing import Literal

from betae.errors import UnsupportedQuery
from betae.queries.ast import And, Condition, Entity, Not, Or, Project, Query, rebuild
from betae.queries.structures import columns_of, fill

UnionForm = Literal["DNF", "DM"]

MAX_BRANCHES = 256


def simplify(query: Query) -> Query:
    """Drop double negations and repeated operands; nested And and Or are flat by construction."""

    def simpler(node: Query) -> Query:
        if isinstance(node, Not) and isinstance(node.operand, Not):
            return node.operand.operand
        if isinstance(node, And | Or):
            return node.with_operands(*dict.fromkeys(node.operands))
        return node

    return rebuild(query, simpler)


def to_de_morgan(query: Query) -> Query:
    """Express every union by intersection and complement; drop double negations."""

    def without_or(node: Query) -> Query:
        if isinstance(node, Or):
            return Not(And(*(Not(operand) for operand in node.operands)))
        return node

    return simplify(rebuild(query, without_or))


def dnf_branches(query: Query) -> tuple[Query, ...]:
    """Return union-free queries whose answers together are those of `query`.

    In each, complements are of projections and entities only. A query with more than MAX_BRANCHES
    branches is refused before they are built.
    """
    needed = num_branches(query)
    if needed > MAX_BRANCHES:
        raise UnsupportedQuery(
            f"The disjunctive normal form of this query has {needed:,} branches, more than "
            f"{MAX_BRANCHES}. Use the De Morgan form, which stays small."
        )
    return tuple(dict.fromkeys(map(simplify, _branches(query))))


def to_dnf(query: Query) -> Query:
    """Return the disjunctive normal form as one query."""
    branches = dnf_branches(query)
    return Or(*branches) if len(branches) > 1 else branches[0]


def _branches(query: Query, is_negated: bool = False) -> list[Query]:
    """Return the branches of a query, or of its complement."""
    match query:
        case Entity() | Condition():
            return [Not(query) if is_negated else query]
        case Project(operand):
            found = [query.with_operands(branch) for branch in _branches(operand)]
            if not is_negated:
                return found
            negated = [Not(branch) for branch in found]
            return [And(*negated)] if len(negated) > 1 else [*negated]
        case Not(operand):
            return _branches(operand, not is_negated)
    choices = map(_branches, query.operands, repeat(is_negated))
    if isinstance(query, And) != is_negated:  # the complement of a union is an intersection
        return [And(*choice) for choice in product(*choices)]
    return [*chain.from_iterable(choices)]


def num_branches(query: Query) -> int:
    """Return the most branches that exist at any point while the normal form is built."""
    worst = 1

    def count(node: Query, is_negated: bool) -> int:
        nonlocal worst
        match node:
            case Entity() | Condition():
                size = 1
            case Project(operand):
                size = count(operand, False)
                if is_negated:  # one branch, the intersection of their complements
                    size = 1
            case Not(operand):
                size = count(operand, not is_negated)
            case _:
                combine = prod if isinstance(node, And) != is_negated else sum
                size = combine(map(count, node.operands, repeat(is_negated)))
        worst = max(worst, size)
        return size

    count(query, False)
    return worst


def surely(query: Query) -> Query | None:
    """Return the query of the entities that stay answers whatever edges are added; None if none do.

    More edges only add to a projection, so a complement of a projection is never sure.
    """
    return _bounds(query)[0]


def never(query: Query) -> Query | None:
    """Return the query of the entities that no added edge can make answers; None if none."""
    return _complement(_bounds(query)[1])


def _bounds(query: Query) -> tuple[Query | None, Query | None]:
    """Return the queries of the sure answers (None: none) and of the possible ones (None: all)."""
    match query:
        case Entity() | Condition():
            return query, query
        case Project(operand):
            sure, _ = _bounds(operand)
            return None if sure is None else query.with_operands(sure), None
        case Not(operand):
            sure, possible = _bounds(operand)
            return _complement(possible), _complement(sure)
    all_sure, all_possible = zip(*map(_bounds, query.operands), strict=True)
    is_and = isinstance(query, And)
    return _without_none(query, all_sure, is_and), _without_none(query, all_possible, not is_and)


def _complement(query: Query | None) -> Query | None:
    if query is None:  # none are the complement of all
        return None
    return query.operand if isinstance(query, Not) else Not(query)


def _without_none(query: Query, bounds: Sequence[Query | None], needs_all: bool) -> Query | None:
    kept = [bound for bound in bounds if bound is not None]
    if not kept or (needs_all and len(kept) < len(bounds)):
        return None
    return query.with_operands(*kept)


def explain_negation(query: Query) -> str:
    """Warn that a branch of a query has complements only, so that nearly all entities answer it."""
    for branch in dnf_branches(query):
        parts = branch.operands if isinstance(branch, And) else (branch,)
        if all(isinstance(part, Not) for part in parts):
            return (
                "The query only excludes entities, so every other entity of the graph, of any "
                "kind, is an answer."
            )
    return ""


def normal_form(structure: Query) -> Query:
    """Return the disjunctive normal form of a structure, with columns of symbols for its names."""
    columns = columns_of(structure)
    return to_dnf(fill(columns.structure, range(len(columns.fixed))))


def num_edges(structure: Query) -> int:
    """Return the most edges that a derivation of an answer uses; a complement uses none."""

    def count(node: Query) -> int:
        match node:
            case Entity() | Not():
                return 0
            case Project(operand, _):
                return 1 + count(operand)
        return sum(map(count, node.operands))

    form = normal_form(structure)
    return max(map(count, form.operands if isinstance(form, Or) else (form,)))
