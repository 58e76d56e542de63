"""Questions made from a graph that have answers: to teach the language, and to begin with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from betae.graph.edges import Adjacency
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import RDF_TYPE
from betae.queries.spelling import spell_atom, spell_entity

ANSWERS = (3, 50)  # of the first example, if there are so many
TRIED_RELATIONS = 20
TRIED_STARTS = 12
KINDS = ("one relation", "and not", "two steps", "and", "or", "all of it")
READ_ANSWERS = 50  # whose edges are looked at for further conditions


@dataclass(frozen=True)
class Example:
    """A question with answers, and what it shows."""

    about: str
    text: str
    relations: tuple[int, ...]  # without direction


def example_questions(graph: KnowledgeGraph) -> list[Example]:
    """Make up to seven questions about one well-connected entity, each with an answer."""

    def quality(examples: list[Example]) -> tuple[int, int, int]:
        num_readable = sum("://" not in each.text for each in examples)
        num_relations = len({relation for each in examples for relation in each.relations})
        return len(examples), num_readable, num_relations

    found = ([*_examples(graph, *start)] for start in _starts(graph))
    return max(found, key=quality, default=[])


def varied_questions(graph: KnowledgeGraph) -> dict[str, list[Example]]:
    """Make questions of each kind about different entities and relations, the best first."""
    starts = [[*_examples(graph, *start)] for start in islice(_starts(graph), TRIED_STARTS)]
    found: dict[str, list[Example]] = {}
    types = {*graph.relations.names.find(RDF_TYPE)}  # told as classes
    for place, kind in enumerate(KINDS):
        turned = starts[place:] + starts[:place]  # each kind begins with another start
        found[kind] = [
            each
            for made in turned
            for each in made
            if each.about == kind and not types & {*each.relations}
        ]
    return found


# ---- making them --------------------------------------------------------------------------------


def _starts(graph: KnowledgeGraph) -> Iterator[tuple[int, int]]:
    """Yield directed relations and entities from which they lead to some entities, the best first.

    For each of the more frequent relations, the entity with most edges among those that have
    neither too few nor too many by this one.
    """
    adjacency = graph.adjacency("all")
    counts, degrees = np.diff(adjacency.tail_offsets), adjacency.degrees()
    offsets, heads, pairs = adjacency.by_relation
    types = {2 * i + d for i in graph.relations.names.find(RDF_TYPE) for d in (0, 1)}
    edges = np.bincount(adjacency.relations, counts)
    frequent = np.argsort(-edges, kind="stable")[:TRIED_RELATIONS].tolist()
    for least in (ANSWERS[0], 1):
        for relation in sorted(frequent, key=lambda each: each % 2 == 0):  # first r(?X, entity)
            part = slice(*offsets[relation : relation + 2].tolist())
            fits = (counts[pairs[part]] >= least) & (counts[pairs[part]] <= ANSWERS[1])
            entities = heads[part][fits]
            if relation not in types and len(entities):
                yield relation, int(entities[np.argmax(degrees[entities])])


def _examples(graph: KnowledgeGraph, relation: int, entity: int) -> Iterator[Example]:
    """Yield questions about the entities that a relation leads to."""
    adjacency = graph.adjacency("all")
    answers = adjacency.neighbours(entity, relation)
    used = [relation // 2]
    start = spell_entity(graph, entity)
    first = spell_atom(graph, relation, start, "?X")
    yield Example("one relation", f"?X . {first}", (*used,))
    step = _next_relation(adjacency, answers.tolist(), relation)
    if step is not None:
        onward = spell_atom(graph, relation, start, "?V"), spell_atom(graph, step, "?V", "?X")
        pair = spell_atom(graph, step, "?X", "?Y")
        path = (*used, step // 2)
        yield Example("two steps", f"?X . exists ?V : {' & '.join(onward)}", path)
        yield Example("two variables, exact answers only", f"?X, ?Y . {first} & {pair}", path)
    shared = _shared_edge(graph, answers.tolist(), relation, entity)
    if shared is not None:
        used.append(shared[0] // 2)
        end = spell_entity(graph, shared[1])
        second = spell_atom(graph, shared[0], "?X", end)
        yield Example("and", f"?X . {first} & {second}", (*used,))
        yield Example("and not", f"?X . {first} & !{second}", (*used,))
        yield Example("or", f"?X . {first} | {second}", (*used,))
        left = np.setdiff1d(answers, adjacency.neighbours(shared[1], shared[0] ^ 1)).tolist()
        if step is not None and any(len(adjacency.neighbours(each, step)) for each in left):
            other = spell_atom(graph, shared[0], "?V", end)
            text = f"?X . exists ?V : {onward[0]} & !{other} & {onward[1]}"
            yield Example("all of it", text, (*used, step // 2))


def _directed_edges(adjacency: Adjacency, entity: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the directed relations of an entity, each with where it leads."""
    for pair in range(*adjacency.head_offsets[entity : entity + 2].tolist()):
        tails = adjacency.tails[slice(*adjacency.tail_offsets[pair : pair + 2].tolist())]
        yield int(adjacency.relations[pair]), tails.tolist()


def _next_relation(adjacency: Adjacency, entities: list[int], before: int) -> int | None:
    """Return the directed relation that most of these have, but not the way back."""
    found: Counter[int] = Counter()
    for entity in entities[:READ_ANSWERS]:
        found.update(relation for relation, _ in _directed_edges(adjacency, entity))
    ranked = sorted(found, key=lambda each: (each // 2 == before // 2, -found[each], each))
    return ranked[0] if ranked and ranked[0] != before ^ 1 else None


def _shared_edge(
    graph: KnowledgeGraph, entities: list[int], before: int, start: int
) -> tuple[int, int] | None:
    """Return a directed relation and its end that some of these entities share, but not all."""
    adjacency = graph.adjacency("all")
    found: Counter[tuple[int, int]] = Counter()
    for entity in entities[:READ_ANSWERS]:
        for relation, tails in _directed_edges(adjacency, entity):
            found.update((relation, tail) for tail in tails)
    found.pop((before ^ 1, start), None)
    some = {edge: number for edge, number in found.items() if number < len(entities)}
    if not some:
        return None
    ends = np.array([end for _, end in some])
    degrees = dict(zip(some, adjacency.degrees(ends).tolist(), strict=True))
    return max(some, key=lambda edge: (edge[0] // 2 != before // 2, some[edge], degrees[edge]))
