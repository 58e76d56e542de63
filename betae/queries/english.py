"""English as a start: the names of a graph that a text may mean, and a question of them.

This is no understanding of language. A text is cut at "and", "or", "but" and commas; in each piece
the names that share most words with it are sought, and an entity and a relation of it that both
occur make a condition. A person sees what was read, and corrects it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from typing import Any

import numpy as np

from betae.graph.graph import KnowledgeGraph
from betae.graph.names import Vocabulary, local_name
from betae.queries.ast import And, Entity, Not, Or, Project, Query
from betae.queries.mistakes import LOGIC
from betae.queries.read import is_sparql
from betae.queries.spelling import spell_entity, spell_query, spell_relation

PIECE = re.compile(r"\b(and|or|but|except|without)\b|[,;.?!]+(?=\s|$)", re.IGNORECASE)
NEGATION = re.compile(r"\b(not|no|never|without|except|\w+n['’]t)\b", re.IGNORECASE)
TRIED_ENTITIES, TRIED_RELATIONS = 8, 4  # of the names that a piece may mean
NUM_CHOICES = 5  # of each kind, offered to a person
MOST_CHARACTERS = 1_000
FEWEST_LETTERS = 3  # of a word that is searched for
MOST_WORDS = 16
COMMON_WORDS = {
    *("all", "and", "any", "are", "can", "could", "does", "for", "from", "have", "how", "many"),
    *("might", "most", "not", "than", "that", "the", "there", "they", "what", "when", "where"),
    *("which", "who", "whose", "why", "will", "with", "would"),
}
STEM = 4  # letters that two forms of a word share: treat, treats, treatment


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
    counts = _relation_counts(graph)
    guess = _Guess(graph, degrees, counts)
    query = guess.query(_pieces(text))
    entities = [*dict.fromkeys(guess.named + names_in(text, graph.entities, degrees))]
    if query is None and entities:
        query = Entity(entities[0])
    relations = names_in(text, graph.relations, counts)
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
        relations = names_in(text, self.graph.relations, self.counts)[:TRIED_RELATIONS]
        entities = names_in(text, self.graph.entities, self.degrees)[:TRIED_ENTITIES]
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
            named = words_of(self.graph.entity_label(entity))
            at = np.flatnonzero([any(part in word for part in named) for word in words])
            is_last = len(at) > 0 and int(at[-1]) == len(words) - 1
            return 2 * relation + is_last
        return 2 * relation + (not out)


def suggest_question(graph: KnowledgeGraph, text: str) -> str:
    """Name what a text may mean in a graph, with a question to start from, in lines."""
    found = read_english(graph, text)
    lines = []
    if found["relations"]:
        ids = [graph.relations.find(each)[0] for each in found["relations"]]
        spelled = ", ".join(spell_relation(graph, each) for each in ids)
        lines.append(f"Relations that you may mean: {spelled}.")
    if found["entities"]:
        ids = [graph.entities.find(each["entity"])[0] for each in found["entities"]]
        spelled = ", ".join(spell_entity(graph, each) for each in ids)
        lines.append(f"Entities that you may mean: {spelled}.")
    if found["query"] is not None and not isinstance(found["query"], Entity):
        lines.append(f"A start: {spell_query(graph, found['query'])}")
    return "\n".join(lines)


def _relation_counts(graph: KnowledgeGraph) -> list[int]:
    adjacency = graph.adjacency("all")
    counts = np.bincount(
        adjacency.relations // 2,
        np.diff(adjacency.tail_offsets),
        minlength=len(graph.relations),
    )
    found: list[int] = counts.astype(int).tolist()
    return found


# ---- names in a text ----------------------------------------------------------------------------


def names_in(text: str, names: Vocabulary, degrees: Sequence[int]) -> list[int]:
    """Return the ids whose names or labels share words with a text, the best first.

    Rare words count more than frequent ones, whole words more than those that begin alike, short
    names more than long ones, and of equals the id with more edges.
    """
    distinct = dict.fromkeys(word for word in words_of(text) if len(word) >= FEWEST_LETTERS)
    words = [word for word in distinct if word not in COMMON_WORDS][:MOST_WORDS]
    stems = {word: word[: max(STEM, len(word) - 3)] for word in words}
    matches: dict[str, dict[int, float]] = {word: {} for word in words}
    owners = chain(range(len(names)), names.labels.owners.tolist())
    for index, name in zip(owners, chain(names, names.labels.texts), strict=True):
        name = local_name(name)
        folded = name.casefold()
        present = [word for word in words if stems[word] in folded]
        if present:
            parts = words_of(name)
            for word in present:
                like = max((_likeness(word, stems[word], part) for part in parts), default=0.0)
                if like:
                    like *= 1 + 1 / len(parts)
                    found = matches[word]
                    found[index] = max(found.get(index, 0.0), like)
    scores: Counter[int] = Counter()
    for found in matches.values():
        rarity = log(1 + len(names) / (1 + len(found)))
        for index, like in found.items():
            scores[index] += like * rarity  # type: ignore[assignment]  # floats
    return sorted(scores, key=lambda index: (-scores[index], -degrees[index], index))


def words_of(text: str) -> list[str]:
    """Split a text into words: at anything that is no letter or digit, and at inner capitals."""
    spaced = "".join(
        f" {c}" if c.isupper() and before.islower() else c if c.isalnum() else " "
        for before, c in zip(f" {text}", text, strict=False)
    )
    return spaced.casefold().split()


def _likeness(word: str, stem: str, part: str) -> float:
    if word == part:
        return 1.0
    return 0.6 if part.startswith(stem) else 0.0
