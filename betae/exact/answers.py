"""Exact answers: the tree walked over the graph by compiled loops, with true set semantics.

A complement is taken over all entities of the graph. Queries of one structure are answered
together, on all cores; `answers` and `answers_batch` bring any queries into that form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from betae import parallel
from betae.errors import InvalidArgument
from betae.graph.edges import Adjacency, Edges, Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.ragged import Ragged
from betae.queries.ast import MAX_ID, Entity, Not, Or, Project, Query
from betae.queries.names import resolve
from betae.queries.read import as_query
from betae.queries.structures import columns_of, limits_of, structure_of

CHUNK = 1024  # the most queries that a thread takes at a time

Result = TypeVar("Result")


def answers(graph: KnowledgeGraph, query: Query | str, edges: Edges = "train") -> Ids:
    """Return the ids of all entities that answer a query on these edges, ascending.

    The query is a tree, logic text or SPARQL.
    """
    adjacency = graph.adjacency(edges)
    structure, symbols = structure_of(resolve(as_query(query, graph.prefixes), graph))
    return answers_of_structure(adjacency, structure, np.array([symbols], dtype=np.int32))[0]


def answers_batch(
    graph: KnowledgeGraph, queries: Sequence[Query | str], edges: Edges = "train"
) -> Ragged:
    """Return the answers of many queries of any shapes; row i is `answers(graph, queries[i])`."""
    if isinstance(queries, str | Query):
        raise InvalidArgument("answers_batch takes a list of queries; for one, call answers.")
    adjacency = graph.adjacency(edges)
    groups: dict[Query, list[int]] = defaultdict(list)
    symbols: list[tuple[int, ...]] = []
    for number, query in enumerate(queries):
        structure, row = structure_of(resolve(as_query(query, graph.prefixes), graph))
        groups[structure].append(number)
        symbols.append(row)
    tables, order = [], []
    for structure, numbers in groups.items():
        matrix = np.array([symbols[number] for number in numbers], dtype=np.int32)
        tables.append(answers_of_structure(adjacency, structure, matrix))
        order.extend(numbers)
    return Ragged.concatenate(tables).take(np.argsort(np.array(order, dtype=np.int64)))


def answers_of_structure(adjacency: Adjacency, structure: Query, symbols: Ids) -> Ragged:
    """Return the answers of queries of one structure, given by their symbols (n, num_symbols)."""
    from betae.exact import kernels

    def run(*arguments: Any) -> Ragged:
        return Ragged(*kernels.answer_rows(*arguments))

    tables = _in_chunks(adjacency, structure, symbols, run)
    return tables[0] if len(tables) == 1 else Ragged.concatenate(tables)


def count_answers(adjacency: Adjacency, structure: Query, symbols: Ids) -> NDArray[np.int64]:
    """Return the number of answers of each query of one structure, (n,), without listing them."""
    from betae.exact import kernels

    counts = _in_chunks(adjacency, structure, symbols, kernels.count_rows)
    return np.concatenate([np.empty(0, dtype=np.int64), *counts])


def _in_chunks(
    adjacency: Adjacency, structure: Query, symbols: Ids, run: Callable[..., Result]
) -> list[Result]:
    """Call `run(program, symbols, adjacency, scratch)` on chunks of the symbols, in threads."""
    from betae.exact import kernels

    check_symbols(structure, symbols, len(adjacency.head_offsets) - 1)
    program = kernels.compile_program(structure)
    arrays = kernels.AdjacencyArrays.of(adjacency)

    def run_chunk(chunk: Ids) -> Result:
        scratch = kernels.Scratch.of(program, arrays)
        return run(program, np.ascontiguousarray(chunk, dtype=np.int32), arrays, scratch)

    size = min(CHUNK, 1 + len(symbols) // 16)  # small enough to keep every core busy
    chunks = [symbols[start : start + size] for start in range(0, len(symbols), size)]
    return parallel.map_in_threads(run_chunk, chunks)


def check_symbols(structure: Query, symbols: Ids, num_entities: int) -> None:
    """Raise unless all ids, fixed in the structure or not, are safe in compiled loops.

    Those look entities up without a check of their own. A relation may have any id: one that the
    adjacency does not have leads nowhere.
    """
    columns = columns_of(structure)
    num_symbols = columns.names.count(-1)
    if symbols.ndim != 2 or symbols.shape[1] != num_symbols:
        raise InvalidArgument(
            f"The symbols are of shape {symbols.shape}; this structure takes (n, {num_symbols})."
        )
    limits = limits_of(columns.structure, num_entities, MAX_ID)
    all_ids = columns.expand(symbols)
    if not len(symbols) or (all_ids.min(initial=0) >= 0 and (all_ids.max(axis=0) < limits).all()):
        return
    is_wrong = (all_ids < 0) | (all_ids >= limits)
    row, column = np.argwhere(is_wrong)[0].tolist()
    where = f"Row {row} of the symbols" if columns.names[column] < 0 else "The structure"
    kind = "entity" if limits[column] == num_entities else "relation"
    raise InvalidArgument(
        f"{where} has the {kind} {all_ids[row, column]}; ids are 0 to {limits[column] - 1:,}."
    )


def refuted(graph: KnowledgeGraph, query: Query | str, edges: Edges = "train") -> Ids:
    """Return the ids of all entities that no missing edge can make an answer, ascending.

    More edges only add to what a projection gives, so whatever a negated part is sure to hold is
    ruled out for good.
    """
    from betae.exact import kernels

    adjacency = kernels.AdjacencyArrays.of(graph.adjacency(edges))
    query = resolve(as_query(query, graph.prefixes), graph)
    structure_of(query)  # raises if it has placeholders

    def surely(node: Query) -> NDArray[np.bool_]:
        """Mark what is in the set, whatever edges are added."""
        match node:
            case Project(operand, relation):
                marks: NDArray[np.bool_] = kernels.mark_tails(adjacency, surely(operand), relation)
                return marks
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
