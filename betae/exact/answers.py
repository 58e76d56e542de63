"""Exact answers of trees, by compiled loops over the graph, with true set semantics.

A complement is over all entities of the graph. Queries of one structure are answered together, on
all cores; `answers` and `answers_batch` group any queries by structure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae import parallel
from betae.errors import InvalidArgument
from betae.graph.edges import Adjacency, Edges, Ids, Ragged
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import MAX_ID, Query
from betae.queries.read import read_question
from betae.queries.rewrite import never, surely
from betae.queries.structures import columns_of, limits_of, structure_of

CHUNK = 1024  # queries per task of a thread, at most


def answers(graph: KnowledgeGraph, query: str | Query, edges: Edges = "all") -> Ids:
    """Return the ids of the entities that answer a query on these edges, ascending.

    The query is a tree, logic text or SPARQL. A path of any length has at most three steps, as in
    every tree; `select` follows it to the end.
    """
    return answers_batch(graph, [query], edges)[0]


def answers_batch(
    graph: KnowledgeGraph, queries: Sequence[str | Query], edges: Edges = "all"
) -> Ragged:
    """Return the answers of many queries of any shapes; row i has those of queries[i]."""
    if isinstance(queries, str | Query):
        raise InvalidArgument("answers_batch takes a list of queries; for one, call answers.")
    return _answers_of_trees(graph, _trees(graph, queries, edges), edges)


def sure_answers(
    graph: KnowledgeGraph, queries: Sequence[str | Query], edges: Edges = "all"
) -> Ragged:
    """Return the answers of many queries that stay answers whatever edges are added."""
    trees = [surely(tree) for tree in _trees(graph, queries, edges)]
    return _answers_of_trees(graph, trees, edges)


def refuted(graph: KnowledgeGraph, queries: Sequence[str | Query], edges: Edges = "all") -> Ragged:
    """Return the entities that no added edge can make answers, for many queries."""
    trees = [never(tree) for tree in _trees(graph, queries, edges)]
    return _answers_of_trees(graph, trees, edges)


def _trees(graph: KnowledgeGraph, queries: Sequence[str | Query], edges: Edges) -> list[Query]:
    return [read_question(each, graph, edges=edges).tree for each in queries]


def _answers_of_trees(graph: KnowledgeGraph, trees: Sequence[Query | None], edges: Edges) -> Ragged:
    """Answer trees of ids, grouped by structure; None has no answers."""
    adjacency = graph.adjacency(edges)
    groups: dict[Query, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    for row, tree in enumerate(trees):
        if tree is not None:
            structure, symbols = structure_of(tree)
            groups[structure].append((row, symbols))
    order = [row for row, tree in enumerate(trees) if tree is None]
    found = [Ragged.from_lengths(np.zeros(len(order), np.int64), np.empty(0, np.int32))]
    for structure, members in groups.items():
        order += [row for row, _ in members]
        matrix = np.array([symbols for _, symbols in members], dtype=np.int32)
        found.append(answers_of_structure(adjacency, structure, matrix))
    return Ragged.concatenate(found).take(np.argsort(np.array(order, dtype=np.int64)))


def answers_of_structure(adjacency: Adjacency, structure: Query, symbols: Ids) -> Ragged:
    """Return the answers of queries of one structure, given by their symbols (n, num_symbols)."""
    from betae.exact import kernels

    tables = _in_chunks(adjacency, structure, symbols, kernels.answer_rows)
    return Ragged.concatenate([Ragged(*table) for table in tables])


def count_answers(adjacency: Adjacency, structure: Query, symbols: Ids) -> NDArray[np.int64]:
    """Count the answers of each query of one structure, (n,)."""
    from betae.exact import kernels

    counts = _in_chunks(adjacency, structure, symbols, kernels.count_rows)
    return np.concatenate([np.empty(0, dtype=np.int64), *counts])


def _in_chunks(
    adjacency: Adjacency, structure: Query, symbols: Ids, run: Callable[..., Any]
) -> list[Any]:
    """Call `run(program, symbols, adjacency, scratch)` on chunks of the symbols, in threads."""
    from betae.exact import kernels

    check_symbols(structure, symbols, len(adjacency.head_offsets) - 1)
    program = kernels.compile_program(structure)
    arrays = kernels.AdjacencyArrays.of(adjacency)
    conditions = kernels.members_of_conditions(structure)

    def run_chunk(chunk: Ids) -> Any:
        scratch = kernels.Scratch.of(program, arrays, conditions)
        return run(program, np.ascontiguousarray(chunk, dtype=np.int32), arrays, scratch)

    size = min(CHUNK, 1 + len(symbols) // 16)  # small enough to keep every core busy
    chunks = [symbols[start : start + size] for start in range(0, len(symbols), size)]
    return parallel.map_in_threads(run_chunk, chunks)


def check_symbols(structure: Query, symbols: Ids, num_entities: int) -> None:
    """Raise unless all ids, fixed in the structure or not, are safe in compiled loops.

    These do not check bounds of entities. A relation may have any id: an unknown one has no edges.
    """
    columns = columns_of(structure)
    num_symbols = columns.fixed.count(-1)
    if symbols.ndim != 2 or symbols.shape[1] != num_symbols:
        raise InvalidArgument(
            f"The symbols are of shape {symbols.shape}; this structure takes (n, {num_symbols})."
        )
    limits = limits_of(columns.structure, num_entities, MAX_ID)
    all_ids = columns.expand(symbols)
    is_wrong = (all_ids < 0) | (all_ids >= limits)
    if not is_wrong.any():
        return
    row, column = np.argwhere(is_wrong)[0].tolist()
    where = f"Row {row} of the symbols" if columns.fixed[column] < 0 else "The structure"
    kind = "entity" if limits[column] == num_entities else "relation"
    raise InvalidArgument(
        f"{where} has the {kind} {all_ids[row, column]}; ids are 0 to {limits[column] - 1:,}."
    )
