"""How many edges an answer lacks: the fewest that are missing among all its derivations.

A hard answer needs at least one edge that the smaller graph does not have (unless a complement
stands within a complement). How many it needs says how hard it is: a derivation gives every
variable an entity, and the best one uses the fewest edges that only the larger graph has. A
complement uses no edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae import parallel
from betae.errors import InvalidArgument
from betae.exact.answers import check_symbols
from betae.exact.kernels import (
    ENTITY,
    FIXED,
    NOT,
    OR,
    PROJECT,
    AdjacencyArrays,
    compile_program,
    find_pair,
)
from betae.graph.edges import Adjacency, Ids
from betae.graph.ragged import Ragged
from betae.queries.ast import Entity, Not, Or, Project, Query
from betae.queries.rewrite import to_dnf
from betae.queries.structures import columns_of, fill

ABSENT = 255  # the cost of an entity that is not in the set
AT_ONCE = 256  # queries that a thread takes at a time


def normal_form(structure: Query) -> Query:
    """Return the disjunctive normal form of a structure, with columns of symbols for its names."""
    columns = columns_of(structure)
    return to_dnf(fill(columns.structure, range(len(columns.names))))


def num_edges(structure: Query) -> int:
    """Return the most edges that a derivation of an answer uses."""

    def count(node: Query) -> int:
        match node:
            case Entity() | Not():
                return 0
            case Project(operand, _):
                return 1 + count(operand)
        return sum(map(count, node.operands))

    form = normal_form(structure)
    return max(map(count, form.operands if isinstance(form, Or) else (form,)))


def missing_edges(
    smaller: Adjacency, larger: Adjacency, structure: Query, symbols: Ids, answers: Ragged
) -> NDArray[np.int64]:
    """Return how many edges of each answer's best derivation only the larger graph has.

    Row i of `answers` holds answers, on the larger graph, of the query that row i of `symbols`
    makes of the structure; the result is as long as `answers.values`.
    """
    num_entities = len(larger.head_offsets) - 1
    check_symbols(structure, symbols, num_entities)
    _check_answers(answers, len(symbols), num_entities)
    return MissingEdges.of(smaller, larger, structure).count(symbols, answers)


@dataclass(frozen=True)
class MissingEdges:
    """Counts the missing edges of the answers of one structure; nothing is checked."""

    structure: Query
    program: Ids
    edges: AdjacencyArrays
    is_missing: NDArray[np.bool_]  # (num_directed_edges,)

    @classmethod
    def of(cls, smaller: Adjacency, larger: Adjacency, structure: Query) -> MissingEdges:
        """Mark the edges that only the larger graph has."""
        # In normal form only single conjuncts are complemented, so that no complement hides a cost.
        program = compile_program(normal_form(structure))
        is_missing = _is_missing(smaller, larger)
        return cls(structure, program, AdjacencyArrays.of(larger), is_missing)

    def count(self, symbols: Ids, answers: Ragged) -> NDArray[np.int64]:
        """Return how many edges of each answer's best derivation are missing."""
        symbols = columns_of(self.structure).expand(symbols)
        costs = np.empty(len(answers.values), dtype=np.int64)

        def run(start: int) -> None:
            rows = slice(start, start + AT_ONCE)
            offsets = answers.offsets[start : start + AT_ONCE + 1]
            _cost_rows(
                self.program,
                symbols[rows],
                self.edges,
                self.is_missing,
                offsets,
                answers.values,
                costs,
            )

        parallel.map_in_threads(run, range(0, len(symbols), AT_ONCE))
        return costs


def _check_answers(answers: Ragged, num_queries: int, num_entities: int) -> None:
    """Raise unless every query has a row of answers, and every answer is an entity."""
    if len(answers) != num_queries:
        raise InvalidArgument(
            f"There are {num_queries} queries and {len(answers)} rows of answers."
        )
    is_wrong = (answers.values < 0) | (answers.values >= num_entities)
    if is_wrong.any():
        wrong = answers.values[is_wrong][0]
        raise InvalidArgument(
            f"The answer {wrong} is no entity; ids are 0 to {num_entities - 1:,}."
        )


def _is_missing(smaller: Adjacency, larger: Adjacency) -> NDArray[np.bool_]:
    """Mark the edges of the larger graph that the smaller one lacks."""
    num_entities = len(larger.head_offsets) - 1
    num_relations = int(larger.relations.max(initial=0)) + 1

    def edge_keys(adjacency: Adjacency) -> NDArray[np.int64]:
        heads = np.repeat(np.arange(num_entities), np.diff(adjacency.head_offsets))
        pairs = heads * num_relations + adjacency.relations
        keys = np.repeat(pairs, np.diff(adjacency.tail_offsets)) * num_entities + adjacency.tails
        return keys.astype(np.int64)

    return ~np.isin(edge_keys(larger), edge_keys(smaller), assume_unique=True)


@njit(nogil=True, cache=True)
def _cost_rows(program, symbols, edges, is_missing, offsets, answers, costs):  # type: ignore[no-untyped-def]
    """Run the program, whose arguments are columns of the symbols, on costs instead of sets."""
    num_entities = len(edges.head_offsets) - 1
    stack = np.empty((len(program) + 1, num_entities), dtype=np.uint8)
    for row in range(len(symbols)):
        top = -1
        for step in range(len(program)):
            operation, column = program[step, 0] % FIXED, program[step, 1]
            if operation == ENTITY:
                top += 1
                stack[top] = ABSENT
                stack[top, symbols[row, column]] = 0
            elif operation == PROJECT:
                members, reached = stack[top], stack[top + 1]
                reached[:] = ABSENT
                for head in range(num_entities):
                    if members[head] == ABSENT:
                        continue
                    pair = find_pair(edges, head, symbols[row, column])
                    if pair < 0:
                        continue
                    for i in range(edges.tail_offsets[pair], edges.tail_offsets[pair + 1]):
                        cost = members[head] + is_missing[i]
                        if cost < reached[edges.tails[i]]:
                            reached[edges.tails[i]] = cost
                members[:] = reached
            elif operation == NOT:
                for entity in range(num_entities):
                    stack[top, entity] = 0 if stack[top, entity] == ABSENT else ABSENT
            else:
                top -= 1
                left, right = stack[top], stack[top + 1]
                for entity in range(num_entities):
                    if operation == OR:
                        left[entity] = min(left[entity], right[entity])
                    elif left[entity] == ABSENT or right[entity] == ABSENT:
                        left[entity] = ABSENT
                    else:
                        left[entity] += right[entity]
        for i in range(offsets[row], offsets[row + 1]):
            costs[i] = stack[top, answers[i]]
