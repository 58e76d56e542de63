"""Derivations: the ways to an answer over the completed graph, the most probable ones first.

A derivation gives every variable of a question an entity, and takes one branch of every union; its
edges are known or missing. The truth of an answer combines all of its derivations (see `truth`).
The best few are told one by one, and the others by their number and by what they add: the truth of
the answer, less what it would be by the few alone. Counted are derivations whose every step, from
the question's beginning to it, has a truth that is not `NEGLIGIBLE`. Where the facts alone settle
a part of the question, only they count.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, reduce
from heapq import nlargest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from betae.answering.completed import CompletedGraph
from betae.answering.edges import Floats
from betae.answering.evidence import Evidence
from betae.answering.results import Derived, Step
from betae.answering.support import MOST_WAYS
from betae.answering.truth import (
    NEGLIGIBLE,
    TruthTree,
    best_derivations,
    both,
    either,
    is_factor,
    together,
)
from betae.answering.why import explain_edge
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import shorten
from betae.graph.values import spell_value
from betae.queries.ast import And, Condition, Entity, Not, Or, Project, Query, Where
from betae.queries.spelling import spell_query
from betae.queries.structures import fill, structure_of
from betae.queries.syntax import spell_condition

SHOWN_DERIVATIONS = 3
SHOWN_SHARE = 0.1  # of the probability of the best one, at least


class _Way(NamedTuple):
    """A derivation of an entity, by ids; `before` are those it builds on."""

    probability: float  # of all of it
    node: Query
    entity: int
    before: tuple[_Way, ...] = ()
    edge: float = 1.0  # probability of the edge from the source, for a step along a relation


class Derivations:
    """The derivations of the entities of one query, computed when one is asked for."""

    def __init__(self, graph: KnowledgeGraph, completed: CompletedGraph, tree: TruthTree):
        self.graph, self.completed, self.tree = graph, completed, tree
        self.symbols = tree.symbols[0]
        self._best = cache(lambda: best_derivations(completed, tree))
        self._counts: dict[tuple[Query, int], float] = {}
        self._evidence = cache(self._explain_edge)

    def __call__(self, entity: int) -> Derived:
        """Return the best derivations of an entity, the number of all, and what others add."""
        number = self.number(entity)
        best, *others = self._ways(self.tree.structure, entity)[:number]
        least = SHOWN_SHARE * best.probability
        ways = [best, *(way for way in others if way.probability >= least)]
        added = float(self.tree.root[0, entity]) - self._alone(ways)
        return Derived(tuple(map(self._step, ways)), number, max(0.0, added))

    def number(self, entity: int) -> int:
        """Return the number of derivations of an entity, at least one."""
        return int(self._count(self.tree.structure, entity))

    # ---- the best -------------------------------------------------------------------------------

    def _ways(self, node: Query, entity: int) -> list[_Way]:
        """Return the most probable derivations of an entity, best first, at least one."""
        match node:
            case Project(operand, _):
                sources, edges = self._edges_to(node, entity)
                values = self._best_truths(operand, sources) * edges
                chosen = np.argsort(-values, kind="stable")[:SHOWN_DERIVATIONS].tolist()
                found = [
                    _Way(before.probability * float(edges[i]), node, entity, (before,), edges[i])
                    for i in chosen
                    for before in self._ways(operand, int(sources[i]))
                ]
            case And():
                found = [_Way(1.0, node, entity)]
                for part in node.operands:
                    found = nlargest(
                        SHOWN_DERIVATIONS,
                        (
                            _all_hold(node, entity, (*way.before, more))
                            for way in found
                            for more in self._ways(part, entity)
                        ),
                        key=_probability,
                    )
            case Or():
                found = [
                    _Way(way.probability, node, entity, (way,))
                    for part in node.operands
                    for way in self._ways(part, entity)
                ]
            case _:
                return [_Way(float(self._truth(node, entity)), node, entity)]
        best = nlargest(SHOWN_DERIVATIONS, found, key=_probability)
        certain = [way for way in best if way.probability >= 1]  # then only they are counted
        return certain or [way for way in best if way.probability > 0] or best[:1]

    def _alone(self, ways: Sequence[_Way]) -> float:
        """Return the truth of an entity if these were its only derivations."""
        node = ways[0].node
        if not ways[0].before:
            return ways[0].probability
        by_operand: dict[tuple[Query, int], list[_Way]] = defaultdict(list)
        edges: dict[tuple[Query, int], float] = {}
        for way in ways:
            for before in way.before:
                key = before.node, before.entity
                edges[key] = float(way.edge)
                if before not in by_operand[key]:
                    by_operand[key].append(before)
        alone = {key: self._alone(found) * edges[key] for key, found in by_operand.items()}
        if isinstance(node, And):
            return _conjunction([(part, truth) for (part, _), truth in alone.items()])
        chances = [*alone.values()]
        return together(chances) if isinstance(node, Project) else float(reduce(either, chances))

    # ---- all ------------------------------------------------------------------------------------

    def _count(self, node: Query, entity: int) -> float:
        """Return the number of derivations that are not negligible, at least one."""
        if not isinstance(node, Project | And | Or):
            return 1.0
        key = node, entity
        if key not in self._counts:
            if isinstance(node, And):
                number = math.prod(self._count(part, entity) for part in node.operands)
            else:
                number = math.fsum(self._count(*each) for each in self._counted(node, entity))
            self._counts[key] = min(max(number, 1.0), MOST_WAYS)
        return self._counts[key]

    def _counted(self, node: Project | Or, entity: int) -> list[tuple[Query, int]]:
        """Return the sources of a projection, or the branches of a union, that are counted."""
        found: list[tuple[Query, int]]
        if isinstance(node, Project):
            sources, edges = self._edges_to(node, entity)
            values = self._truths(node.operand, sources) * edges
            found = [(node.operand, source) for source in sources.tolist()]
        else:
            found = [(part, entity) for part in node.operands]
            values = np.array([self._truth(*each) for each in found])
        least = 1.0 if values.max(initial=0) >= 1 else NEGLIGIBLE
        return [found[i] for i in np.flatnonzero(values >= least).tolist()]

    def _edges_to(self, node: Project, entity: int) -> tuple[NDArray[np.int64], Floats]:
        """Return the sources of a projection to an entity, and the probabilities of the edges.

        Sources by known edges come first.
        """
        relation = int(self.symbols[int(node.relation)])
        sources = self._best().sources[node][0]
        sources = sources[sources >= 0]
        linked = self.completed.adjacency.neighbours(entity, relation ^ 1).astype(np.int64)
        if isinstance(node.operand, Entity):  # the only source
            linked = linked[np.isin(linked, sources)]
        sources = sources[~np.isin(sources, linked)]
        edges = self.completed.probabilities_to(entity, sources, relation)
        known = np.ones(len(linked), dtype=np.float32)
        return np.concatenate([linked, sources]), np.concatenate([known, edges])

    def _truth(self, node: Query, entity: int) -> float:
        return float(self._truths(node, np.array([entity]))[0])

    def _truths(self, node: Query, entities: NDArray[Any]) -> Floats:
        return self._of(self.tree, node, entities)

    def _best_truths(self, node: Query, entities: NDArray[Any]) -> Floats:
        return self._of(self._best(), node, entities)

    def _of(self, tree: TruthTree, node: Query, entities: NDArray[Any]) -> Floats:
        if isinstance(node, Entity):  # its values are not kept where a path begins
            is_named: NDArray[np.bool_] = entities == self.symbols[int(node.name)]
            return is_named.astype(np.float32)
        values: Floats = tree.nodes[node][0][entities]
        return values

    # ---- in words -------------------------------------------------------------------------------

    def _step(self, way: _Way) -> Step:
        node, entity, label = way.node, way.entity, self.graph.entity_label(way.entity)
        match node:
            case Project(operand, column):
                return self._edge_step(way, operand, int(self.symbols[int(column)]))
            case And():
                return Step("", "and", way.probability, tuple(map(self._step, way.before)))
            case Or():
                return self._step(way.before[0])
            case Not(operand):
                text = f"{label} is not among {self._text(operand)}"
                return Step(text, "not", way.probability)
            case Condition() if self._truth(node, entity):
                return Step(self._fact(node, entity), "known", 1.0)
        if self._truth(node, entity):
            return Step(label, "known", 1.0)
        return Step(f"{label} is {self._text(node)}", "missing", 0.0)

    def _fact(self, condition: Condition, entity: int) -> str:
        """Say which value of an entity meets a condition: "Bicycle Race length 181 < 200"."""
        label, graph = self.graph.entity_label(entity), self.completed.whole
        if not isinstance(condition, Where):
            return spell_condition(condition, label)
        sign, value = condition.operator, condition.value
        text = graph.literals.matching_value(
            int(self.completed.probabilities.ids[entity]),
            graph.property_id(condition.property),
            sign,
            value,
            condition.language,
        )
        shown = json.dumps(text, ensure_ascii=False) if isinstance(value, str) else text
        name = shorten(condition.property, graph.prefixes)
        return f"{label} {name} {shown} {sign} {spell_value(value)}"

    def _edge_step(self, way: _Way, operand: Query, relation: int) -> Step:
        (before,) = way.before
        ends = [self.graph.entity_label(each) for each in (before.entity, way.entity)]
        head, tail = ends if relation % 2 == 0 else reversed(ends)
        edge = (head, self.graph.relation_label(relation), tail)
        sources = () if isinstance(operand, Entity) else (self._step(before),)
        text, probability = " ".join(edge), float(way.edge)
        if probability == 1:
            return Step(text, "known", probability, sources, edge)
        evidence = self._evidence(before.entity, relation, way.entity)
        return Step(text, "missing", probability, sources, edge, evidence)

    def _explain_edge(self, source: int, relation: int, entity: int) -> Evidence | None:
        return explain_edge(self.completed, source, relation, entity)

    def _text(self, node: Query) -> str:
        structure, columns = structure_of(node)
        filled = fill(structure, [int(self.symbols[column]) for column in columns])
        return spell_query(self.graph, filled).removeprefix("?X . ")


def _probability(way: _Way) -> float:
    return way.probability


def _all_hold(node: Query, entity: int, parts: tuple[_Way, ...]) -> _Way:
    """Return the derivation of a conjunction by one of each of its operands so far."""
    truth = _conjunction([(part.node, part.probability) for part in parts])
    return _Way(truth, node, entity, parts)


def _conjunction(parts: Sequence[tuple[Query, float]]) -> float:
    """Return the probability that all conditions on an entity hold, as in `truth`."""
    conditions = [truth for part, truth in parts if not is_factor(part)]
    factors = [truth for part, truth in parts if is_factor(part)]
    return float(reduce(both, conditions, 1.0) * math.prod(factors))
