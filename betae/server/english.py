"""English as a start for the builder: the names that a text may mean, and a question of them.

This is no understanding of language. A text is cut at "and", "or", "but" and commas; in each piece
the names that share most words with it are sought, and an entity and a relation of it that both
occur make a condition. A person sees what was read, and corrects it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from betae.graph.graph import KnowledgeGraph
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.queries.read import is_sparql
from betae.server import guide

PIECE = re.compile(r"\b(and|or|but|except|without)\b|[,;.?!]+(?=\s|$)", re.IGNORECASE)
NEGATION = re.compile(r"\b(not|no|never|without|except|\w+n['’]t)\b", re.IGNORECASE)
LOGIC = re.compile(r"^\s*\?|[&|{}]|[\w\"'>]\(|->|-\[")
TRIED_ENTITIES, TRIED_RELATIONS = 8, 4  # of the names that a piece may mean
NUM_CHOICES = 5  # of each kind, offered to a person
MOST_CHARACTERS = 1_000


def is_english(text: str) -> bool:
    """Tell whether a text is neither logic text nor SPARQL, nor meant to be."""
    return not (is_sparql(text) or LOGIC.search(text))


@dataclass(frozen=True)
class _Piece:
    text: str
    word: str  # that stands before it: "and", "or", "but" ...

    @property
    def is_negated(self) -> bool:
        return NEGATION.search(f"{self.word} {self.text}") is not None


def read_english(graph: KnowledgeGraph, text: str) -> dict[str, Any]:
    """Return a tree that a text may mean, or None, and the nearest names."""
    text = text[:MOST_CHARACTERS]
    degrees = graph.adjacency("all").degrees().tolist()
    counts = guide.relation_counts(graph).tolist()
    guess = _Guess(graph, degrees, counts)
    query = guess.query(_pieces(text))
    entities = [*dict.fromkeys(guess.named + guide.names_in(text, graph.entities, degrees))]
    if query is None and entities:
        query = Entity(entities[0])
    relations = guide.names_in(text, graph.relations, counts)
    return {
        "query": query,
        "entities": [
            {"entity": graph.entities[each], "label": graph.entity_label(each)}
            for each in entities[:NUM_CHOICES]
        ],
        "relations": [graph.relations[each] for each in relations[:NUM_CHOICES]],
    }


def _pieces(text: str) -> list[_Piece]:
    pieces, word, start = [], "", 0
    for cut in [*PIECE.finditer(text), None]:
        stop = cut.start() if cut else len(text)
        if text[start:stop].strip():
            pieces.append(_Piece(text[start:stop], word))
            word = ""
        if cut:
            word, start = f"{word} {(cut[1] or '').lower()}", cut.end()
    return pieces


class _Guess:
    """Makes conditions of pieces; a piece without a relation goes on with the one before."""

    def __init__(self, graph: KnowledgeGraph, degrees: Sequence[int], counts: Sequence[int]):
        self.graph, self.degrees, self.counts = graph, degrees, counts
        self.named: list[int] = []  # the entities that conditions are about
        self._relations: list[int] = []  # of the last condition

    def query(self, pieces: Sequence[_Piece]) -> Query | None:
        """Join the conditions: "or" binds to what stands before it."""
        groups: list[list[Query]] = []
        for piece in pieces:
            condition = self._condition(piece.text)
            if condition is None:
                continue
            condition = Not(condition) if piece.is_negated else condition
            if groups and piece.word.split()[-1:] == ["or"]:
                groups[-1].append(condition)
            else:
                groups.append([condition])
        joined = [Or(*each) if len(each) > 1 else each[0] for each in groups]
        return And(*joined) if len(joined) > 1 else next(iter(joined), None)

    def _condition(self, text: str) -> Query | None:
        relations = guide.names_in(text, self.graph.relations, self.counts)[:TRIED_RELATIONS]
        entities = guide.names_in(text, self.graph.entities, self.degrees)[:TRIED_ENTITIES]
        for entity in entities:
            for relation in relations or self._relations:
                directed = self._direction(text, entity, relation)
                if directed is not None:
                    self.named.append(entity)
                    self._relations = relations or self._relations
                    return Project(Entity(entity), directed)
        return None

    def _direction(self, text: str, entity: int, relation: int) -> int | None:
        """Return a relation as it leaves an entity; None if the entity does not have it.

        With edges both ways, "what regulates A" asks for what they come from.
        """
        adjacency = self.graph.adjacency("all")
        out, back = (len(adjacency.neighbours(entity, 2 * relation + d)) for d in (0, 1))
        if not out and not back:
            return None
        if out and back:
            words = text.casefold().split()
            named = guide.words_of(self.graph.entity_label(entity))
            at = np.flatnonzero([any(part in word for part in named) for word in words])
            is_last = len(at) > 0 and int(at[-1]) == len(words) - 1
            return 2 * relation + is_last
        return 2 * relation + (not out)
