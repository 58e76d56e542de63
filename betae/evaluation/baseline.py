"""The frequency baseline, which looks at nothing in a query but its last relations.

An entity is ranked by how often it is the tail of the query's last relation in training; for an
intersection or a union, the counts of all their last relations are added. Complements are ignored.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from betae.evaluation.ranks import Doubles, rank_rows
from betae.exact.derivations import normal_form
from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import And, Or, Project, Query
from betae.queries.structures import columns_of
from betae.querysets.query_set import QueryBlock

ROWS_AT_ONCE = 256


def tail_counts(graph: KnowledgeGraph) -> Callable[[NDArray[np.int32]], NDArray[np.float32]]:
    """Return a function from directed relations (n,) to counts (n, num_entities).

    The counts say how often each entity is a tail of the relation in training.
    """
    heads, relations, tails = graph.splits["train"].T
    directed = np.concatenate([2 * relations, 2 * relations + 1])
    ends = np.concatenate([tails, heads])[np.argsort(directed, kind="stable")]
    starts = np.searchsorted(np.sort(directed), np.arange(graph.num_relations + 1))

    def counts(asked: NDArray[np.int32]) -> NDArray[np.float32]:
        distinct, places = np.unique(asked, return_inverse=True)
        rows = [
            np.bincount(ends[starts[r] : starts[r + 1]], minlength=graph.num_entities)
            for r in distinct
        ]
        return np.array(rows, dtype=np.float32)[places]

    return counts


def rank_by_frequency(graph: KnowledgeGraph, block: QueryBlock) -> Doubles:
    """Return the rank of every hard answer of a block, in the order of `block.hard.values`."""
    counts = tail_counts(graph)
    symbols = columns_of(block.structure).expand(block.symbols)
    last = [symbols[:, column] for column in _last_relations(normal_form(block.structure))]
    pieces = [np.empty(0)]
    for start in range(0, len(block), ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, len(block)))
        distances = np.zeros((len(rows), graph.num_entities), dtype=np.float32)
        for relations in last:
            distances -= counts(relations[rows])
        pieces.append(rank_rows(distances, block.take(rows)))
    return np.concatenate(pieces)


def _last_relations(query: Query) -> list[int]:
    match query:
        case Project(_, relation):
            return [int(relation)]
        case And() | Or():
            return [column for operand in query.operands for column in _last_relations(operand)]
    return []
