"""What the embedding of a whole question adds to its truth over the completed graph.

An answer that needs three missing edges has the truth of three small probabilities together, which
says little. There the embedding of the whole question, learned from such questions, knows more. It
tells who the missing answers are, by its share of the softmax, and the truth values how many there
are to expect:

    V'(x) = V(x) + (1 - V(x)) w n share(x)     n = min(1, sum of V over what is not certain)
    share(x) = exp(-scale distance(x)) / sum_y exp(-scale distance(y))

So it counts as one more way to reach x, and only where nothing likelier is found: n limits what it
adds, and next to a derivation with one missing edge that is little. What is impossible or certain
stays so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.edges import EdgeProbabilities, Floats
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Group, embed_queries, score_blocks
from betae.queries.ast import Project, Query, nodes
from betae.queries.structures import STRUCTURES, limits_of
from betae.querysets.query_set import QueryBlock
from betae.querysets.sample import sample_queries

Doubles = NDArray[np.float64]

EDGES = 3  # of a question, from which on its embedding takes part
WEIGHT = 0.5
STEEPEST = 10.0  # scale, at most
FITTED_ON = {"3p": 100, "3i": 100, "pi": 100, "ip": 100}  # validation queries


@dataclass(frozen=True)
class WholeQuestions:
    """A model that embeds whole questions, with its table of entities."""

    model: QueryModel
    table: torch.Tensor
    scale: float  # of its distances

    @classmethod
    def of(cls, probabilities: EdgeProbabilities) -> WholeQuestions | None:
        """Return the first of the predictors of edges, if it embeds whole questions, too."""
        scale = probabilities.weights.whole
        if scale is None:
            return None
        return cls(probabilities.predictors[0], probabilities.tables[0], scale)

    def add_to(self, values: Floats, structure: Query, symbols: Ids) -> Floats:
        """Return the truth of queries of one structure with what their embeddings add.

        Entities and relations that were added to the graph after training have no embedding: a
        query that names one is left as it is, and no such entity gains anything.
        """
        limits = limits_of(structure, self.model.num_entities, self.model.num_relations)
        learned = np.flatnonzero((symbols < limits).all(axis=1))
        if not self._takes_part_in(structure) or not len(learned):
            return values
        values = values.copy()
        known = values[:, : len(self.table)]
        for rows, shares in self._shares(structure, symbols[learned]):
            of_rows = known[learned[rows]]
            doubtful = np.where(of_rows < 1, of_rows, 0)
            number = np.minimum(doubtful.sum(axis=1, keepdims=True), 1)
            gained = (1 - of_rows) * (WEIGHT * number) * shares
            known[learned[rows]] += np.where(of_rows > 0, gained, 0)
        return values

    def _takes_part_in(self, structure: Query) -> bool:
        num_edges = sum(isinstance(node, Project) for node in nodes(structure))
        return num_edges >= EDGES and self.model.can(structure)

    def _shares(self, structure: Query, symbols: Ids) -> Iterator[tuple[slice, Floats]]:
        """Yield rows of the symbols with the shares of all entities, (n, num_entities)."""
        for rows, distances in _distances(self.model, self.table, structure, symbols):
            yield rows, distances.mul_(-self.scale).softmax(dim=1).numpy()


def _distances(
    model: QueryModel, table: torch.Tensor, structure: Query, symbols: Ids
) -> Iterator[tuple[slice, torch.Tensor]]:
    group = Group(structure, torch.from_numpy(symbols).long(), torch.arange(len(symbols)))
    with torch.no_grad():
        embedded = embed_queries(model, [group])
        for rows, distances in score_blocks(model, embedded, table):
            yield rows, distances.float()


def fit_scale(model: QueryModel, graph: KnowledgeGraph) -> float | None:
    """Return the scale by which the missing answers of validation queries are likeliest.

    None if the model embeds no such queries, or the graph has none.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and needed once

    counts = {name: number for name, number in FITTED_ON.items() if model.can(STRUCTURES[name])}
    if not counts:
        return None
    with torch.no_grad():
        table = model.table()
    sampled = sample_queries(graph, counts, "valid", purpose="whole questions")
    sampled = sampled.within(len(table), model.num_relations).with_hard_answers()
    rows = [
        of_row for block in sampled.blocks.values() for of_row in _of_block(model, table, block)
    ]
    if not rows:
        return None

    def cost(log_scale: float) -> float:
        scale = -math.exp(log_scale)
        return float(
            np.mean(
                [(np.logaddexp.reduce(scale * rest) - scale * hard).mean() for hard, rest in rows]
            )
        )

    found = minimize_scalar(cost, bounds=(math.log(1e-4), math.log(STEEPEST)), method="bounded")
    return math.exp(found.x)


def _of_block(
    model: QueryModel, table: torch.Tensor, block: QueryBlock
) -> Iterator[tuple[Doubles, Doubles]]:
    """Yield the distances of each query's missing answers, and of all entities but the known."""
    for rows, distances in _distances(model, table, block.structure, np.asarray(block.symbols)):
        for query, of_query in enumerate(distances.double().numpy(), start=rows.start):
            yield of_query[block.hard[query]], np.delete(of_query, block.easy[query])
