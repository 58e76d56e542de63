"""Compiled random walks that fill a structure, and the rules that judge what they found (numba)."""

from __future__ import annotations

import numpy as np
from numba import njit

from betae.exact.kernels import (
    AND,
    ENTITY,
    FIXED,
    NOT,
    OR,
    PROJECT,
    find_pair,
    make_room,
    num_answers,
    run_program,
    write_answers,
)

# Verdicts
ACCEPTED, NO_ANSWER, TOO_MANY, NOTHING_HARD, NOTHING_REFUTED = range(5)


@njit(nogil=True, cache=True)
def _below(state, limit):  # type: ignore[no-untyped-def]
    """Return a random integer below `limit` (splitmix64, then a multiply-shift)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(nogil=True, cache=True)
def _step_back(adjacency, entity, previous, relation, state):  # type: ignore[no-untyped-def]
    """Choose an edge that leads to `entity`: first its relation, then its start.

    `previous` is the relation of the walk's last step; its inverse would only lead back. A
    `relation` of -1 is free. Returns (relation, start), or (-1, -1) at a dead end.
    """
    first, last = adjacency.head_offsets[entity], adjacency.head_offsets[entity + 1]
    if relation >= 0:
        pair = find_pair(adjacency, entity, relation ^ 1)
        if pair < 0:
            return -1, -1
    else:
        barred = find_pair(adjacency, entity, previous) if previous >= 0 else -1
        choices = last - first - (1 if barred >= 0 else 0)
        if choices <= 0:
            return -1, -1
        pair = first + _below(state, choices)
        if 0 <= barred <= pair:
            pair += 1
    start, stop = adjacency.tail_offsets[pair], adjacency.tail_offsets[pair + 1]
    return adjacency.relations[pair] ^ 1, adjacency.tails[start + _below(state, stop - start)]


@njit(nogil=True, cache=True)
def walk_back(  # type: ignore[no-untyped-def]
    program, num_symbols, roots, adjacency, missing, seeks_missing, seed, num_rows, may_turn
):
    """Fill a structure by walking back from random `roots`; return symbols and which succeeded.

    With `may_turn` a branch of an intersection or union may begin with the inverse of the following
    step. With `seeks_missing` three in four steps outside of complements are along `missing` edges
    (not all: the root of a walk with a complement is no answer).
    """
    symbols = np.zeros((num_rows, num_symbols), dtype=np.int32)
    succeeded = np.ones(num_rows, dtype=np.bool_)
    entities = np.empty(len(program) + 1, dtype=np.int64)
    relations = np.empty(len(program) + 1, dtype=np.int64)
    is_free = np.empty(len(program) + 1, dtype=np.bool_)  # whether that relation was open
    is_negated = np.empty(len(program) + 1, dtype=np.bool_)
    state = np.array([seed], dtype=np.uint64)
    for row in range(num_rows):
        top = 0
        entities[0], relations[0] = roots[_below(state, len(roots))], -1
        is_free[0] = is_negated[0] = False
        for step in range(len(program) - 1, -1, -1):
            operation, argument = program[step, 0], program[step, 1]
            if operation in (AND, OR):  # every operand is to hold the same entity
                if may_turn:
                    relations[top] = -1
                entities[top + 1], relations[top + 1] = entities[top], relations[top]
                is_free[top + 1], is_negated[top + 1] = is_free[top], is_negated[top]
                top += 1
            elif operation == NOT:
                is_negated[top] = not is_negated[top]
            elif operation == PROJECT or operation == PROJECT + FIXED:
                wanted = -1 if operation == PROJECT else argument
                edges = adjacency
                if seeks_missing and not is_negated[top] and _below(state, 4) < 3:
                    edges = missing
                relation, start = _step_back(edges, entities[top], relations[top], wanted, state)
                is_back = is_free[top] and relation == relations[top] ^ 1
                if relation < 0 or is_back:
                    succeeded[row] = False
                    break
                if operation == PROJECT:
                    symbols[row, argument] = relation
                entities[top], relations[top] = start, relation
                is_free[top] = operation == PROJECT
            elif operation == ENTITY:
                symbols[row, argument] = entities[top]
                top -= 1
            elif operation == ENTITY + FIXED:
                if entities[top] != argument:
                    succeeded[row] = False
                    break
                top -= 1
    return symbols, succeeded


@njit(nogil=True, cache=True)
def judge_rows(program, symbols, smaller, larger, max_answers, min_refuted, max_changes, scratch):  # type: ignore[no-untyped-def]
    """Answer every row on both graphs and judge it; `max_changes` 0 is for training.

    Returns a verdict for every row and, for the accepted ones, the lengths and values of the easy
    answers (on `smaller`) and of the hard ones (on `larger` but not on `smaller`). Easy answers
    that `larger` does not give are refuted; they stay among the easy ones.
    """
    verdicts = np.empty(len(symbols), dtype=np.int8)
    easy_lengths = np.empty(len(symbols), dtype=np.int64)
    hard_lengths = np.empty(len(symbols), dtype=np.int64)
    easy, hard = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.int32)
    full = np.empty(1024, dtype=np.int32)
    accepted = easy_end = hard_end = 0
    for row in range(len(symbols)):
        run_program(program, symbols[row], larger, scratch)
        size = num_answers(scratch)
        if size == 0 or size > max_answers:
            verdicts[row] = NO_ANSWER if size == 0 else TOO_MANY
            continue
        if max_changes == 0:
            easy = make_room(easy, easy_end, size)
            hard_lengths[accepted] = 0
            easy_lengths[accepted] = write_answers(scratch, easy, easy_end) - easy_end
        else:
            full = make_room(full, 0, size)
            write_answers(scratch, full, 0)
            run_program(program, symbols[row], smaller, scratch)
            easy = make_room(easy, easy_end, num_answers(scratch))
            easy_stop = write_answers(scratch, easy, easy_end)
            hard = make_room(hard, hard_end, size)
            hard_stop, known = hard_end, easy_end
            for i in range(size):  # both ascend
                while known < easy_stop and easy[known] < full[i]:
                    known += 1
                if known == easy_stop or easy[known] != full[i]:
                    hard[hard_stop] = full[i]
                    hard_stop += 1
            num_easy, num_hard = easy_stop - easy_end, hard_stop - hard_end
            num_refuted = num_easy - (size - num_hard)
            if num_hard == 0 or num_refuted < min_refuted:
                verdicts[row] = NOTHING_HARD if num_hard == 0 else NOTHING_REFUTED
                continue
            if max(num_hard, num_refuted) > max_changes:
                verdicts[row] = TOO_MANY
                continue
            easy_lengths[accepted], hard_lengths[accepted] = num_easy, num_hard
            hard_end = hard_stop
        easy_end += easy_lengths[accepted]
        verdicts[row] = ACCEPTED
        accepted += 1
    return (
        verdicts,
        easy_lengths[:accepted].copy(),
        easy[:easy_end].copy(),
        hard_lengths[:accepted].copy(),
        hard[:hard_end].copy(),
    )
