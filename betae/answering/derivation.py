"""Why: the best derivation of an entity, with its edges known or missing.

The truth value of a best derivation is a maximum over sources and over the branches of unions, and
the derivation is where that maximum is: its edges and conditions give that truth value. The
probability of an answer counts all its derivations, so it is at least that of the best one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.answering.completed import CompletedGraph
from betae.answering.edges import Floats
from betae.answering.results import Step
from betae.answering.truth import Evaluation, both
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import shorten
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.queries.names import unresolve
from betae.queries.structures import fill, structure_of


def derive(graph: KnowledgeGraph, completed: CompletedGraph, best: Evaluation, entity: int) -> Step:
    """Return the best derivation of an entity, given those of the one query that was evaluated."""
    return _Derivation(graph, completed, best).of(best.structure, entity)


class _Derivation:
    def __init__(self, graph: KnowledgeGraph, completed: CompletedGraph, work: Evaluation):
        self.graph, self.completed, self.work = graph, completed, work
        self.symbols = work.symbols[0]

    def of(self, node: Query, entity: int) -> Step:
        """Return the best derivation of an entity from a node."""
        match node:
            case Project(operand, column):
                return self._of_edge(node, operand, int(self.symbols[int(column)]), entity)
            case And():
                distinct = {self._filled(part): part for part in node.operands}
                steps = {part: self.of(part, entity) for part in distinct.values()}
                if len(steps) == 1:
                    return next(iter(steps.values()))
                return Step("", "and", _all_hold(steps), tuple(steps.values()))
            case Or():
                return self.of(
                    max(node.operands, key=lambda part: self._truth(part, entity)), entity
                )
            case Not(operand):
                text = f"{self.graph.entity_label(entity)} is not among {self._text(operand)}"
                return Step(text, "not", self._truth(node, entity))
        label = self.graph.entity_label
        if self._truth(node, entity):
            return Step(label(entity), "known", 1.0)
        return Step(f"{label(entity)} is {self._text(node)}", "missing", 0.0)

    def _of_edge(self, node: Query, operand: Query, relation: int, entity: int) -> Step:
        """Find the source of an entity where truth times the edge's probability is largest."""
        tried = self.work.sources[node][0]
        tried = tried[tried >= 0]
        sources, edges, best = tried, self.completed.edges_to(entity, tried, relation), 0
        if not isinstance(operand, Entity):  # else there is one source, and it was tried
            linked = self.completed.adjacency.neighbours(entity, relation ^ 1)
            sources = np.concatenate([linked, tried])
            edges = np.concatenate([np.ones(len(linked), np.float32), edges])
            best = int(np.argmax(self._truths(operand, sources) * edges))
        source, probability = int(sources[best]), float(edges[best])
        ends = [self.graph.entity_label(source), self.graph.entity_label(entity)]
        head, tail = ends if relation % 2 == 0 else reversed(ends)
        edge = (head, shorten(self.graph.relations[relation // 2], self.graph.prefixes), tail)
        before = () if isinstance(operand, Entity) else (self.of(operand, source),)
        text = " ".join(edge)
        return Step(text, "known" if probability == 1 else "missing", probability, before, edge)

    def _truth(self, node: Query, entity: int) -> float:
        return float(self._truths(node, np.array([entity]))[0])

    def _truths(self, node: Query, entities: NDArray[Any]) -> Floats:
        if isinstance(node, Entity):  # where a path begins; its values are not kept
            is_it: NDArray[np.bool_] = entities == self.symbols[int(node.name)]
            return is_it.astype(np.float32)
        values: Floats = self.work.nodes[node].values[0][entities]
        return values

    def _text(self, node: Query) -> str:
        return str(unresolve(self._filled(node), self.graph)).removeprefix("?X . ")

    def _filled(self, node: Query) -> Query:
        structure, columns = structure_of(node)
        return fill(structure, [int(self.symbols[column]) for column in columns])


def _all_hold(steps: Mapping[Query, Step]) -> float:
    """Return the probability that all conditions on an entity hold, as truth values have it."""
    chances = {part: step.whole_probability() for part, step in steps.items()}
    met = [chance for part, chance in chances.items() if not isinstance(part, Not)]
    absent = [chance for part, chance in chances.items() if isinstance(part, Not)]
    return reduce(both, met, 1.0) * math.prod(absent)
