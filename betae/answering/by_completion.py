"""ByCompletion: rank entities by truth over the completed graph.

The truth value of an entity is its probability, and its derivations explain it: see `derivations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from betae.answering.completed import CompletedGraph
from betae.answering.derivations import Derivations
from betae.answering.results import MAX_UNCERTAIN, Ranking, RankRequest, smallest
from betae.answering.truth import TruthTree, queries_per_batch, truth_trees
from betae.evaluation.results import Method
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import Entity, Project, Query, nodes
from betae.queries.rewrite import UnionForm
from betae.queries.structures import fill
from betae.querysets.query_set import QueryBlock

if TYPE_CHECKING:  # imports torch
    from betae.evaluation.ranks import Scored


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
            self.completed.prefetch(*np.array(sorted(pairs)).T)

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
