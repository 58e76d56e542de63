"""Exact answers: the tree walked over the graph, with true set semantics.

`answers` is the obvious version for one query; `answers_batch` runs many on all cores through a
compiled kernel and is tested against it. A complement is taken over all entities of the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from betae import parallel
from betae.graph.edges import Adjacency, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.queries.names import resolve
from betae.queries.structures import structure_of

CHUNK = 1024  # at most so many queries a thread takes at a time


def answers(graph: KnowledgeGraph, query: Query, edges: Edges = "train") -> Ids:
    """Return the ids of all entities that answer `query` on the edges of `edges`, ascending."""
    adjacency, query = graph.adjacency(edges), resolve(query, graph)
    structure_of(query)  # raises if it has placeholders

    def walk(node: Query) -> NDArray[np.bool_]:
        match node:
            case Entity(name):
                found = np.zeros(graph.num_entities, dtype=bool)
                found[name] = True
                return found
            case Project(operand, relation):
                return _image(adjacency, walk(operand), int(relation))
            case Not(operand):
                return ~walk(operand)
            case And():
                return reduce(np.logical_and, map(walk, node.operands))
            case Or():
                return reduce(np.logical_or, map(walk, node.operands))
        raise AssertionError(node)

    return np.flatnonzero(walk(query)).astype(np.int32)


def _image(adjacency: Adjacency, heads: NDArray[np.bool_], relation: int) -> NDArray[np.bool_]:
    """Mark where a relation leads from the marked heads."""
    found = np.zeros_like(heads)
    for head in np.flatnonzero(heads).tolist():
        found[adjacency.neighbours(head, relation)] = True
    return found


def refuted(graph: KnowledgeGraph, query: Query, edges: Edges = "train") -> Ids:
    """Return the ids of all entities that no missing edge can make an answer, ascending.

    More edges only add to what a projection gives, so what a negated part is sure to hold is ruled
    out for good.
    """
    adjacency, query = graph.adjacency(edges), resolve(query, graph)

    def surely(node: Query) -> NDArray[np.bool_]:
        """Mark what is in the set, whatever edges are added."""
        match node:
            case Project(operand, relation):
                return _image(adjacency, surely(operand), int(relation))
            case Not(operand):
                return ~possibly(operand)
        return combine(node, surely)

    def possibly(node: Query) -> NDArray[np.bool_]:
        """Mark what may be in the set once edges are added."""
        match node:
            case Project():
                return np.ones(graph.num_entities, dtype=bool)
            case Not(operand):
                return ~surely(operand)
        return combine(node, possibly)

    def combine(node: Query, walk: Callable[[Query], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        if isinstance(node, Entity):
            return np.asarray(np.arange(graph.num_entities) == node.name)
        operator = np.logical_or if isinstance(node, Or) else np.logical_and
        marks: NDArray[np.bool_] = reduce(operator, map(walk, node.operands))
        return marks

    return np.flatnonzero(~possibly(query)).astype(np.int32)


def answers_batch(
    graph: KnowledgeGraph, queries: Sequence[Query], edges: Edges = "train"
) -> Ragged:
    """Return the answers of many queries of any shapes; row i is `answers(graph, queries[i])`."""
    groups: dict[Query, list[int]] = defaultdict(list)
    symbols: list[tuple[int, ...]] = []
    for number, query in enumerate(queries):
        structure, row = structure_of(resolve(query, graph))
        groups[structure].append(number)
        symbols.append(row)
    tables, order = [], []
    for structure, numbers in groups.items():
        matrix = np.array([symbols[number] for number in numbers], dtype=np.int32)
        tables.append(answers_of_structure(graph.adjacency(edges), structure, matrix))
        order.extend(numbers)
    return Ragged.concatenate(tables).take(np.argsort(np.array(order, dtype=np.int64)))


def answers_of_structure(adjacency: Adjacency, structure: Query, symbols: Ids) -> Ragged:
    """Return the answers of queries of one structure, given by their symbols (n, num_symbols)."""
    from betae.exact import kernels

    program = kernels.compile_program(structure)
    edges = kernels.AdjacencyArrays.of(adjacency)

    def run(chunk: Ids) -> Ragged:
        scratch = kernels.Scratch.of(program, edges)
        return Ragged(*kernels.answer_rows(program, np.ascontiguousarray(chunk), edges, scratch))

    size = min(CHUNK, 1 + len(symbols) // 16)  # small enough to keep every core busy
    chunks = [symbols[start : start + size] for start in range(0, len(symbols), size)]
    return Ragged.concatenate(parallel.map_in_threads(run, chunks))
