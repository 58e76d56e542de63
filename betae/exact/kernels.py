"""Compiled loops over the adjacency (numba): sets of entities as lists, deduplicated by stamps.

A structure becomes a postfix program, a list of (operation, argument). Its sets live in numbered
slots, each a list of distinct ids with a flag that says "all but these", so that a complement costs
nothing. `seen[id] == stamp` marks an id as met in the current step (`members`, as belonging to its
input): a new stamp clears all marks. Everything releases the GIL; each thread has its own Scratch.
Nothing here checks that ids are in range: `answers.check_symbols` does.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from betae import parallel
from betae.graph.edges import Adjacency, Ids, Ragged
from betae.queries.ast import (
    PLACEHOLDER,
    And,
    Condition,
    Entity,
    Name,
    Not,
    Or,
    Project,
    Query,
    nodes,
)
from betae.queries.rewrite import normal_form
from betae.queries.structures import cached_by_structure, columns_of

ENTITY, PROJECT, AND, OR, NOT, MEMBERS = range(6)
SEARCH_COST = 16  # finding a pair by binary search costs about as much as this many steps in a row
FIXED = 8  # added to ENTITY and PROJECT: the argument is the id itself, not a column of symbols


class AdjacencyArrays(NamedTuple):
    """The arrays of an Adjacency, read-only so that every source compiles to the same code."""

    head_offsets: NDArray[np.int64]
    relations: Ids
    tail_offsets: NDArray[np.int64]
    tails: Ids
    relation_offsets: NDArray[np.int64]  # these three: the pairs by relation
    relation_heads: Ids
    relation_pairs: NDArray[np.int64]

    @classmethod
    def of(cls, edges: Adjacency) -> AdjacencyArrays:
        """View the arrays of an adjacency."""
        arrays: list[NDArray[Any]] = [edges.head_offsets, edges.relations, edges.tail_offsets]
        arrays += [edges.tails, *edges.by_relation]
        result = cls(*(np.asarray(array).view() for array in arrays))
        for array in result:
            array.flags.writeable = False
        return result


class Scratch(NamedTuple):
    """Working memory of one thread that runs a program."""

    ids: Ids  # (num_slots + 1, num_entities): the lists; the last one is spare
    slots: NDArray[np.int64]  # (num_slots + 1,): which list a slot uses
    sizes: NDArray[np.int64]  # (num_slots + 1,)
    is_complement: NDArray[np.bool_]  # (num_slots + 1,)
    seen: NDArray[np.int32]  # (num_entities,)
    members: NDArray[np.int32]  # (num_entities,)
    stamp: NDArray[np.int32]  # (1,)
    marks: NDArray[np.uint8]  # (num_entities rounded up to 8,), all zero between uses
    member_offsets: NDArray[np.int64]  # of the conditions of the program, in `all_members`
    all_members: Ids

    @classmethod
    def of(cls, program: Ids, adjacency: AdjacencyArrays, conditions: Ragged) -> Scratch:
        """Allocate what `program` needs; row i has the members of its condition i."""
        growth = {ENTITY: 1, ENTITY + FIXED: 1, MEMBERS: 1, AND: -1, OR: -1}
        heights = np.cumsum([growth.get(operation, 0) for operation in program[:, 0].tolist()])
        num_lists, num_entities = int(heights.max()) + 1, len(adjacency.head_offsets) - 1
        return cls(
            np.empty((num_lists, num_entities), dtype=np.int32),
            np.arange(num_lists, dtype=np.int64),
            np.zeros(num_lists, dtype=np.int64),
            np.zeros(num_lists, dtype=np.bool_),
            np.zeros(num_entities, dtype=np.int32),
            np.zeros(num_entities, dtype=np.int32),
            np.zeros(1, dtype=np.int32),
            np.zeros((num_entities + 7) // 8 * 8, dtype=np.uint8),
            conditions.offsets,
            conditions.values,
        )


def members_of_conditions(structure: Query) -> Ragged:
    """Return the members of the conditions of a structure, a row for each, in post-order."""
    return Ragged.from_rows([node.ids for node in nodes(structure) if isinstance(node, Condition)])


@cached_by_structure
def compile_program(structure: Query) -> Ids:
    """Turn a structure into its postfix program, (num_steps, 2)."""
    steps: list[tuple[int, int]] = []
    columns, conditions = count(), count()

    def step(operation: int, name: Name) -> tuple[int, int]:
        is_open = name is PLACEHOLDER
        return (operation, next(columns)) if is_open else (operation + FIXED, int(name))

    def visit(node: Query) -> None:
        match node:
            case Entity(name):
                steps.append(step(ENTITY, name))
            case Condition():
                steps.append((MEMBERS, next(conditions)))
            case Project(operand, relation):
                visit(operand)
                steps.append(step(PROJECT, relation))
            case Not(operand):
                visit(operand)
                steps.append((NOT, 0))
            case And() | Or():
                first, *others = node.operands
                visit(first)
                for operand in others:
                    visit(operand)
                    steps.append((AND if isinstance(node, And) else OR, 0))

    visit(structure)
    return np.array(steps, dtype=np.int32)


# ---- one query --------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def find_pair(adjacency, head, relation):  # type: ignore[no-untyped-def]
    """Return the index of (head, relation) among the pairs, or -1."""
    low, high = adjacency.head_offsets[head], adjacency.head_offsets[head + 1]
    while low < high:
        middle = (low + high) >> 1
        if adjacency.relations[middle] < relation:
            low = middle + 1
        else:
            high = middle
    if low < adjacency.head_offsets[head + 1] and adjacency.relations[low] == relation:
        return low
    return -1


@njit(nogil=True, cache=True)
def _stamp_slot(scratch, slot, marks):  # type: ignore[no-untyped-def]
    """Mark the ids of a slot in `marks`, with a stamp of their own."""
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    ids = scratch.ids[scratch.slots[slot]]
    for i in range(scratch.sizes[slot]):
        marks[ids[i]] = stamp
    return stamp


@njit(nogil=True, cache=True)
def _add_tails(adjacency, scratch, pair, result, count):  # type: ignore[no-untyped-def]
    """Append the tails of a pair that are new in this step; return the new length."""
    seen, stamp = scratch.seen, scratch.stamp[0]
    for i in range(adjacency.tail_offsets[pair], adjacency.tail_offsets[pair + 1]):
        tail = adjacency.tails[i]
        if seen[tail] != stamp:
            seen[tail] = stamp
            result[count] = tail
            count += 1
    return count


@njit(nogil=True, cache=True)
def _project(adjacency, scratch, slot, relation):  # type: ignore[no-untyped-def]
    spare = len(scratch.slots) - 1
    source, result = scratch.ids[scratch.slots[slot]], scratch.ids[scratch.slots[spare]]
    is_complement, size, count = scratch.is_complement[slot], scratch.sizes[slot], 0
    first = last = 0
    if relation + 1 < len(adjacency.relation_offsets):
        first, last = adjacency.relation_offsets[relation], adjacency.relation_offsets[relation + 1]
    if is_complement or size * SEARCH_COST > last - first:  # go through the relation's heads
        member = _stamp_slot(scratch, slot, scratch.members)
        scratch.stamp[0] += 1
        for i in range(first, last):
            if (scratch.members[adjacency.relation_heads[i]] == member) != is_complement:
                count = _add_tails(adjacency, scratch, adjacency.relation_pairs[i], result, count)
    else:  # go through the members
        scratch.stamp[0] += 1
        for i in range(size):
            pair = find_pair(adjacency, source[i], relation)
            if pair >= 0:
                count = _add_tails(adjacency, scratch, pair, result, count)
    scratch.slots[slot], scratch.slots[spare] = scratch.slots[spare], scratch.slots[slot]
    scratch.sizes[slot], scratch.is_complement[slot] = count, False


@njit(nogil=True, cache=True)
def _intersect(scratch, left, right):  # type: ignore[no-untyped-def]
    """Put the intersection of two slots into `left`."""
    if scratch.is_complement[left] and scratch.is_complement[right]:  # all but either's
        stamp = _stamp_slot(scratch, left, scratch.seen)
        ids, others = scratch.ids[scratch.slots[left]], scratch.ids[scratch.slots[right]]
        count = scratch.sizes[left]
        for i in range(scratch.sizes[right]):
            if scratch.seen[others[i]] != stamp:
                ids[count] = others[i]
                count += 1
    else:
        if scratch.is_complement[left]:  # keep the right list: it is the positive one
            scratch.slots[left], scratch.slots[right] = scratch.slots[right], scratch.slots[left]
            scratch.sizes[left], scratch.sizes[right] = scratch.sizes[right], scratch.sizes[left]
            scratch.is_complement[left], scratch.is_complement[right] = False, True
        stamp = _stamp_slot(scratch, right, scratch.seen)
        ids, count = scratch.ids[scratch.slots[left]], 0
        for i in range(scratch.sizes[left]):
            if (scratch.seen[ids[i]] == stamp) != scratch.is_complement[right]:
                ids[count] = ids[i]
                count += 1
    scratch.sizes[left] = count


@njit(nogil=True, cache=True)
def run_program(program, symbols, adjacency, scratch):  # type: ignore[no-untyped-def]
    """Run a program on one row of symbols; the answers are then in slot 0."""
    top = -1
    for step in range(len(program)):
        operation, argument = program[step, 0], program[step, 1]
        if operation == ENTITY or operation == ENTITY + FIXED:
            top += 1
            entity = symbols[argument] if operation == ENTITY else argument
            scratch.ids[scratch.slots[top], 0] = entity
            scratch.sizes[top], scratch.is_complement[top] = 1, False
        elif operation == MEMBERS:
            top += 1
            first, last = scratch.member_offsets[argument], scratch.member_offsets[argument + 1]
            members = scratch.all_members[first:last]
            scratch.ids[scratch.slots[top], : last - first] = members
            scratch.sizes[top], scratch.is_complement[top] = last - first, False
        elif operation == PROJECT or operation == PROJECT + FIXED:
            relation = symbols[argument] if operation == PROJECT else argument
            _project(adjacency, scratch, top, relation)
        elif operation == NOT:
            scratch.is_complement[top] = not scratch.is_complement[top]
        else:
            top -= 1
            if operation == OR:  # a | b is ~(~a & ~b)
                scratch.is_complement[top] = not scratch.is_complement[top]
                scratch.is_complement[top + 1] = not scratch.is_complement[top + 1]
            _intersect(scratch, top, top + 1)
            if operation == OR:
                scratch.is_complement[top] = not scratch.is_complement[top]


@njit(nogil=True, cache=True)
def num_answers(scratch):  # type: ignore[no-untyped-def]
    """Return how many answers slot 0 holds."""
    size = scratch.sizes[0]
    return len(scratch.seen) - size if scratch.is_complement[0] else size


@njit(nogil=True, cache=True)
def write_answers(scratch, out, start):  # type: ignore[no-untyped-def]
    """Write the answers in slot 0, ascending, to `out` from `start` on; return where they end."""
    ids, size = scratch.ids[scratch.slots[0]], scratch.sizes[0]
    num_entities = len(scratch.seen)
    if scratch.is_complement[0]:
        stamp = _stamp_slot(scratch, 0, scratch.seen)
        for entity in range(num_entities):
            if scratch.seen[entity] != stamp:
                out[start] = entity
                start += 1
    elif size > 16 and size > num_entities >> 8:  # a bitmap sorts faster than comparisons
        words = scratch.marks.view(np.uint64)
        for i in range(size):
            scratch.marks[ids[i]] = 1
        for word in range(len(words)):
            if words[word]:
                for entity in range(8 * word, 8 * word + 8):
                    if scratch.marks[entity]:
                        out[start] = entity
                        start += 1
                words[word] = 0
    else:
        out[start : start + size] = np.sort(ids[:size])
        start += size
    return start


# ---- many queries -----------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def make_room(values, used, more):  # type: ignore[no-untyped-def]
    """Return `values`, or a larger copy of it, with room for `more` beyond the `used`."""
    if used + more <= len(values):
        return values
    larger = np.empty(2 * (used + more), dtype=np.int32)
    larger[:used] = values[:used]
    return larger


@njit(nogil=True, cache=True)
def answer_rows(program, symbols, adjacency, scratch):  # type: ignore[no-untyped-def]
    """Answer every row of symbols; return offsets and values of a ragged table."""
    offsets = np.zeros(len(symbols) + 1, dtype=np.int64)
    values = np.empty(1024, dtype=np.int32)
    for row in range(len(symbols)):
        run_program(program, symbols[row], adjacency, scratch)
        values = make_room(values, offsets[row], num_answers(scratch))
        offsets[row + 1] = write_answers(scratch, values, offsets[row])
    return offsets, values[: offsets[-1]].copy()


@njit(nogil=True, cache=True)
def count_rows(program, symbols, adjacency, scratch):  # type: ignore[no-untyped-def]
    """Count the answers of every row of symbols, without writing them down."""
    counts = np.empty(len(symbols), dtype=np.int64)
    for row in range(len(symbols)):
        run_program(program, symbols[row], adjacency, scratch)
        counts[row] = num_answers(scratch)
    return counts


# ---- missing edges ----------------------------------------------------------------------------
#
# A derivation of an answer gives every variable an entity. The best one uses the fewest edges that
# only the larger graph has; how many it uses says how hard the answer is.

ABSENT = 255  # the cost of an entity that is not in the set
COST_BATCH = 256  # queries that a thread takes at a time


class MissingEdgeCounter:
    """Counts the edges of an answer's best derivation that only the larger graph has.

    For the answers of one structure; ids are not checked.
    """

    def __init__(self, smaller: Adjacency, larger: Adjacency, structure: Query):
        self.structure = structure
        # In normal form only single conjuncts are complemented, so that no complement hides a cost.
        self.program = compile_program(normal_form(structure))
        self.edges = AdjacencyArrays.of(larger)
        self.is_missing = _is_missing(smaller, larger)  # (num_directed_edges,)

    def count(self, symbols: Ids, answers: Ragged) -> NDArray[np.int64]:
        """Return how many edges are missing for each of `answers.values`.

        Row i of `answers` holds answers, on the larger graph, of the query that row i of `symbols`
        makes of the structure.
        """
        symbols = columns_of(self.structure).expand(symbols)
        costs = np.empty(len(answers.values), dtype=np.int64)

        def run(start: int) -> None:
            rows = symbols[start : start + COST_BATCH]
            offsets = answers.offsets[start : start + COST_BATCH + 1]
            graph = self.edges, self.is_missing
            _cost_rows(self.program, rows, *graph, offsets, answers.values, costs)

        parallel.map_in_threads(run, range(0, len(symbols), COST_BATCH))
        return costs


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
