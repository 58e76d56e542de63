"""ByCompletion: rank entities by truth over the completed graph, and explain their derivations.

The truth value of an entity is its probability. Its explanation is its best derivation: the source
of every step, and the branch of every union, of the largest truth. The probability counts all
derivations, so it is at least that of the best one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.answering.completed import CompletedGraph
from betae.answering.edges import Floats
from betae.answering.results import MAX_UNCERTAIN, Ranking, RankRequest, Step, smallest
from betae.answering.truth import (
    TruthTree,
    best_derivations,
    both,
    queries_per_batch,
    truth_trees,
)
from betae.answering.why import explain_edge
from betae.evaluation.ranks import Scored
from betae.evaluation.results import Method
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import shorten
from betae.models.execute import UnionForm
from betae.queries.ast import And, Entity, Not, Or, Project, Query, nodes
from betae.queries.read import unresolve
from betae.queries.structures import fill, structure_of
from betae.querysets.query_set import QueryBlock


class ByCompletion:
    """Rank all entities by the truth values of a query over the completed graph.

    It answers questions, and can be evaluated as a `betae.evaluation.ranks.Ranker`.
    """

    method: Method = "completed"

    def __init__(self, graph: KnowledgeGraph, completed: CompletedGraph):
        self.graph, self.completed = graph, completed
        used = completed.probabilities.predictors
        self.models = used.models
        self.predictors = [*(["rules"] if used.rules else []), *(each.name for each in used.models)]

    def rank(self, requests: Sequence[RankRequest]) -> Iterator[tuple[int, Ranking]]:
        """Yield the index of each request with its best entities: see `QuestionRanker`.

        Queries of one structure are evaluated together.
        """
        queries = [request.query for request in requests]
        self._prefetch(queries)
        for positions, tree in truth_trees(self.completed, queries):
            for row, i in enumerate(positions.tolist()):
                yield i, self._ranking(tree.of_query(row), requests[i])

    def _prefetch(self, queries: Sequence[Query]) -> None:
        """Cache the rows of all named entities: one batch, whatever the structures."""
        pairs = {
            (int(node.operand.name), int(node.relation))
            for query in queries
            for node in nodes(query)
            if isinstance(node, Project) and isinstance(node.operand, Entity)
        }
        if pairs:
            heads, relations = np.array(sorted(pairs)[: self.completed.capacity]).T
            self.completed.rows(heads, relations)

    def _ranking(self, tree: TruthTree, request: RankRequest) -> Ranking:
        """Rank entities for the only query of a tree."""
        truth = tree.root[0]
        ids = smallest(-truth, request.num_first, request.known)
        others = np.minimum(truth, np.float32(MAX_UNCERTAIN))
        others[ids] = others[request.ruled_out] = 0
        rest = float(others.sum(dtype=np.float64))
        explain = Derivations(self.graph, self.completed, tree)
        ranking = Ranking(ids, truth[ids].astype(np.float64), explain=explain, rest=rest)
        return ranking.without(request.ruled_out)

    # ---- evaluation -----------------------------------------------------------------------------

    def can(self, structure: Query) -> bool:  # noqa: ARG002
        """Return True: any structure can be evaluated."""
        return True

    def union_forms(self, structure: Query) -> Sequence[UnionForm]:  # noqa: ARG002
        """Return one form: here both rank alike."""
        return ("DNF",)

    def score(
        self,
        block: QueryBlock,
        union: UnionForm = "DNF",  # noqa: ARG002
    ) -> Iterator[Scored]:
        """Yield rows of the block, in order, with the negated truth values, (n, num_entities)."""
        batch = queries_per_batch(self.completed)
        for start in range(0, len(block), batch):
            rows = np.arange(start, min(start + batch, len(block)))
            queries = [fill(block.structure, symbols) for symbols in block.symbols[rows].tolist()]
            distances = np.empty((len(rows), self.completed.num_entities), dtype=np.float32)
            for positions, tree in truth_trees(self.completed, queries):
                distances[positions] = -tree.root
            yield rows, distances


class Derivations:
    """The best derivations of the entities of one query, computed when one is asked for."""

    def __init__(self, graph: KnowledgeGraph, completed: CompletedGraph, tree: TruthTree):
        self.graph, self.completed = graph, completed
        self.symbols = tree.symbols[0]
        self._best = cache(lambda: best_derivations(completed, tree))

    def __call__(self, entity: int) -> Step:
        """Return the best derivation of an entity."""
        return self._derive(self._best().structure, entity)

    def _derive(self, node: Query, entity: int) -> Step:
        match node:
            case Project(operand, column):
                return self._derive_edge(node, operand, int(self.symbols[int(column)]), entity)
            case And():
                steps = {part: self._derive(part, entity) for part in node.operands}
                return Step("", "and", _all_hold(steps), tuple(steps.values()))
            case Or():
                best = max(node.operands, key=lambda part: self._truth(part, entity))
                return self._derive(best, entity)
            case Not(operand):
                text = f"{self.graph.entity_label(entity)} is not among {self._text(operand)}"
                return Step(text, "not", self._truth(node, entity))
        label = self.graph.entity_label(entity)
        if self._truth(node, entity):
            return Step(label, "known", 1.0)
        return Step(f"{label} is {self._text(node)}", "missing", 0.0)

    def _derive_edge(self, node: Query, operand: Query, relation: int, entity: int) -> Step:
        """Take the source whose truth times the edge's probability is largest."""
        sources = self._best().sources[node][0]
        sources = sources[sources >= 0]
        edges = self.completed.probabilities_to(entity, sources, relation)
        if not isinstance(operand, Entity):  # an entity is the only source
            linked = self.completed.adjacency.neighbours(entity, relation ^ 1)
            sources = np.concatenate([linked, sources])
            edges = np.concatenate([np.ones(len(linked), np.float32), edges])
        best = int(np.argmax(self._truths(operand, sources) * edges))
        source, probability = int(sources[best]), float(edges[best])
        ends = [self.graph.entity_label(source), self.graph.entity_label(entity)]
        head, tail = ends if relation % 2 == 0 else reversed(ends)
        edge = (head, shorten(self.graph.relations[relation // 2], self.graph.prefixes), tail)
        before = () if isinstance(operand, Entity) else (self._derive(operand, source),)
        text = " ".join(edge)
        if probability == 1:
            return Step(text, "known", probability, before, edge)
        evidence = explain_edge(self.completed, source, relation, entity)
        return Step(text, "missing", probability, before, edge, evidence)

    def _truth(self, node: Query, entity: int) -> float:
        return float(self._truths(node, np.array([entity]))[0])

    def _truths(self, node: Query, entities: NDArray[Any]) -> Floats:
        if isinstance(node, Entity):  # its values are not kept where a path begins
            is_named: NDArray[np.bool_] = entities == self.symbols[int(node.name)]
            return is_named.astype(np.float32)
        values: Floats = self._best().nodes[node][0][entities]
        return values

    def _text(self, node: Query) -> str:
        structure, columns = structure_of(node)
        filled = fill(structure, [int(self.symbols[column]) for column in columns])
        return str(unresolve(filled, self.graph)).removeprefix("?X . ")


def _all_hold(steps: Mapping[Query, Step]) -> float:
    """Return the probability that all conditions on an entity hold, as in `truth`."""
    conditions = [s.whole_probability() for part, s in steps.items() if not isinstance(part, Not)]
    complements = [s.whole_probability() for part, s in steps.items() if isinstance(part, Not)]
    return reduce(both, conditions, 1.0) * math.prod(complements)
