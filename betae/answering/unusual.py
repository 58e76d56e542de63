"""Unusual predictions: answers of a class that no known tail of the relation is of.

Of an entity without a class, nothing is known but its edges: it is unusual if it is no known tail
itself. The relations are the last ones of the question, those that lead to the answer; for an
inverse relation, its tails are the heads of the relation as written.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import Edges, Ids, Ragged
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import shorten
from betae.queries.ast import And, Or, Project, Query
from betae.queries.read import SUBCLASS, edges_named
from betae.queries.sparql import RDF_TYPE


class KnownTails:
    """What the known edges say about the tails of each relation."""

    def __init__(self, graph: KnowledgeGraph, edges: Edges):
        self.graph, self.edges = graph, edges
        self._classes_of_tails = cache(self._find_classes_of_tails)

    def unusual(self, query: Query, entity: int) -> str | None:
        """Say why an entity is an unusual answer to a query of ids; None if it is not.

        One condition of an intersection is enough, but every branch of a union is needed.
        """
        match query:
            case Project(_, int(relation)):
                return self._unusual_tail(relation, entity)
            case And():
                found = (self.unusual(operand, entity) for operand in query.operands)
                return next((reason for reason in found if reason), None)
            case Or():
                reasons = [self.unusual(operand, entity) for operand in query.operands]
                return reasons[0] if all(reasons) else None
        return None

    def _unusual_tail(self, relation: int, entity: int) -> str | None:
        adjacency = self.graph.adjacency(self.edges)
        if len(adjacency.neighbours(entity, relation ^ 1)):
            return None
        end = "head" if relation % 2 else "tail"
        name = self.graph.relation_label(relation)
        classes = self._classes.of_entities[entity]
        if not len(classes):
            return f"not a known {end} of {name}"
        if self._classes_of_tails(relation)[self._classes.with_superclasses(classes)].any():
            return None
        stated = shorten(self._classes.names[classes[0]], self.graph.prefixes)
        return f"no known {end} of {name} is of class {stated}"

    def _find_classes_of_tails(self, relation: int) -> NDArray[np.bool_]:
        """Mask of the classes of the known tails of a relation."""
        offsets, heads, _ = self.graph.adjacency(self.edges).by_relation
        tails = heads[slice(*offsets[(relation ^ 1) :][:2])].astype(np.int64)
        found = np.zeros(len(self._classes.names), dtype=bool)
        found[self._classes.of_entities.take(tails).values] = True
        return found

    @cached_property
    def _classes(self) -> Classes:
        return Classes.of(self.graph, self.edges)


@dataclass(frozen=True)
class Classes:
    """The classes of all entities, those that node tables state and those by `rdf:type`."""

    names: list[str]
    of_entities: Ragged  # of each entity, as stated
    above: dict[int, list[int]]  # of a class: its superclasses, one step up

    @classmethod
    def of(cls, graph: KnowledgeGraph, edges: Edges) -> Classes:
        """Collect the classes of a graph."""
        types, below = (edges_named(graph, each, edges) for each in (RDF_TYPE, SUBCLASS))
        of_rdf = np.union1d(types[:, 1], below.ravel())
        names: list[str] = []
        pairs = [np.empty((0, 2), dtype=np.int64)]
        if graph.has_literals:
            names, stated = graph.literals.types()
            pairs.append(stated)
        ids = {name: number for number, name in enumerate(names)}
        number_of = [ids.setdefault(graph.entities[each], len(ids)) for each in of_rdf.tolist()]
        numbers = np.array(number_of, dtype=np.int64)
        pairs.append(np.column_stack([types[:, 0], numbers[np.searchsorted(of_rdf, types[:, 1])]]))
        distinct = np.unique(np.concatenate(pairs), axis=0)
        lengths = np.bincount(distinct[:, 0], minlength=graph.num_entities)
        above = defaultdict(list)
        for one, other in numbers[np.searchsorted(of_rdf, below)].tolist():
            above[one].append(other)
        return cls([*ids], Ragged.from_lengths(lengths, distinct[:, 1].astype(np.int32)), above)

    def with_superclasses(self, classes: Ids) -> list[int]:
        """Return classes and all that are above them."""
        found = dict.fromkeys(classes.tolist())
        waiting = [*found]
        while waiting:
            for each in self.above.get(waiting.pop(), ()):
                if each not in found:
                    found[each] = None
                    waiting.append(each)
        return [*found]
