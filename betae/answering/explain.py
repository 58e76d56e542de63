"""Why: a derivation of an answer, with its edges marked known or missing.

A known answer has a derivation in the graph. For a predicted one the most probable derivation is
searched for, from the answer down to the anchors: at each projection, the source with the largest
probability of being in the set before times the probability of the edge. The first is the model's
for the part of the query below, or 1 if the graph entails it; the second is the model's for the
edge alone, or 1 if it is there. A source counts less if the edge would be a second one where most
entities have only one, such as a second capital.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.calibration import Calibration, Probabilities
from betae.answering.results import Step
from betae.answering.unseen import seen_form, union_of
from betae.exact.answers import answers
from betae.graph.edges import Edges
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import embed_queries, score_queries
from betae.models.plan import UnionForm
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.queries.names import unresolve

SOURCES = 64  # the most probable ones, tried beside those that the graph has edges from


class Explainer:
    """Explain answers of one model over some edges of the graph."""

    def __init__(
        self,
        model: QueryModel,
        table: torch.Tensor,
        graph: KnowledgeGraph,
        edges: Edges,
        calibration: Calibration,
        union: UnionForm = "DNF",
    ):
        self.model, self.table, self.graph, self.edges = model, table, graph, edges
        self.calibration, self.union = calibration, union
        self._members: dict[Query, Probabilities] = {}

    def explain(self, query: Query, entity: int) -> Step:
        """Return the best derivation of an entity from a query of ids."""
        match query:
            case Project(operand, relation):
                return self._explain_edge(operand, int(relation), entity)
            case And():
                steps = tuple(self.explain(part, entity) for part in query.operands)
                return Step("", "and", math.prod(step.probability for step in steps), steps)
            case Or():
                edges, graph = self.edges, self.graph
                derived = [part for part in query.operands if entity in answers(graph, part, edges)]
                return max(
                    (self.explain(part, entity) for part in derived or query.operands),
                    key=Step.whole_probability,
                )
            case Not(Not(operand)):
                return self.explain(operand, entity)
            case Not(And() as inner):
                return self.explain(Or(*map(Not, inner.operands)), entity)
            case Not(Or() as inner):
                return self.explain(And(*map(Not, inner.operands)), entity)
            case Entity(name) if name != entity:
                label = self.graph.entity_label
                return Step(f"{label(entity)} is {label(int(name))}", "missing", 0.0)
            case Not(operand):
                text = f"{self.graph.entity_label(entity)} is none of: {self._text(operand)}"
                return Step(text, "not", 1 - float(self.members(operand)[entity]))
        return Step(self.graph.entity_label(entity), "known", 1.0)

    def members(self, query: Query) -> Probabilities:
        """Return each entity's probability of being in a set, (num_entities,); 1 if entailed."""
        if query not in self._members:
            probabilities, num_seen = np.zeros(self.graph.num_entities), len(self.table)
            known = np.zeros(self.graph.num_entities, dtype=bool)
            known[answers(self.graph, query, self.edges)] = True
            seen = seen_form(query, self.model, self.graph, self.edges)
            if seen is not None:
                union = union_of(query, self.model, self.union)
                with torch.no_grad():
                    distances = score_queries(self.model, [seen], self.table, union)[0]
                probabilities[:num_seen] = self.calibration(
                    distances.cpu().numpy(), known[:num_seen]
                )
            probabilities[known] = 1
            self._members[query] = probabilities
        return self._members[query]

    def _explain_edge(self, operand: Query, relation: int, entity: int) -> Step:
        """Find the most probable source of an entity in the set before a projection."""
        linked = self.graph.adjacency(self.edges).neighbours(entity, relation ^ 1)
        if isinstance(operand, Entity):
            sources, is_member = np.array([int(operand.name)]), np.ones(1)
        else:
            members = self.members(operand)
            sources = np.union1d(linked, np.argsort(-members, kind="stable")[:SOURCES])
            is_member = members[sources]
        is_linked = np.isin(sources, linked)
        edges, room, missing = np.ones(len(sources)), np.ones(len(sources)), ~is_linked
        edges[missing] = self._edge_probabilities(sources[missing], relation, entity)
        room[missing] = self._room(sources[missing], relation, entity)
        # Where no edge has a probability, since a name is new, the likeliest member is shown.
        best = int(np.argmax(is_member * (edges * room + 1e-9)))
        source = int(sources[best])
        ends = [self.graph.entity_label(source), self.graph.entity_label(entity)]
        head, tail = ends if relation % 2 == 0 else reversed(ends)
        text = f"{head} {self.graph.relations[relation // 2]} {tail}"
        status: Literal["known", "missing"] = "known" if is_linked[best] else "missing"
        before = () if isinstance(operand, Entity) else (self.explain(operand, source),)
        return Step(text, status, float(edges[best]), before)

    def _room(self, sources: NDArray[Any], relation: int, entity: int) -> Probabilities:
        """Return how likely it is that ends with such an edge have another one: 0 to 1."""
        adjacency = self.graph.adjacency(self.edges)

        def room(head: int, relation: int) -> float:
            if not len(adjacency.neighbours(head, relation)):
                return 1.0
            return 1 - 1 / float(adjacency.tails_of_a_head[relation])

        ends = [room(int(source), relation) for source in sources]
        return room(entity, relation ^ 1) * np.array(ends)

    def _edge_probabilities(
        self, sources: NDArray[Any], relation: int, entity: int
    ) -> Probabilities:
        """Return the probabilities of edges from some sources to an entity; 0 for new names."""
        probabilities = np.zeros(len(sources))
        seen = np.flatnonzero(sources < len(self.table))
        if not len(seen) or entity >= len(self.table) or relation >= self.model.num_relations:
            return probabilities
        with torch.no_grad():
            sets = embed_queries(self.model, [Entity(int(u))[relation] for u in sources[seen]]).sets
            distances = self.model.distance(sets, self.table).cpu().numpy()
        adjacency, ranks = self.graph.adjacency(self.edges), np.ones(len(seen), dtype=np.int64)
        for row, source in enumerate(sources[seen].tolist()):
            known = adjacency.neighbours(source, relation)
            of_row, here = distances[row], distances[row, entity]
            closer_known = of_row[known[known < len(of_row)]] < here
            ranks[row] += (of_row < here).sum() - closer_known.sum()
        probabilities[seen] = self.calibration.at(distances[:, entity], ranks)
        return probabilities

    def _text(self, query: Query) -> str:
        return str(unresolve(query, self.graph)).removeprefix("?X . ")
