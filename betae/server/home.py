"""What the page needs to begin: what the graph is, questions about it, what a text says."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any

from betae.errors import UnsupportedQuery
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import LABELS, RDF_TYPE
from betae.queries.ast import Entity, Project, Query, nodes
from betae.queries.english import is_english
from betae.queries.read import unresolve
from betae.queries.spelling import spell_query, spell_sparql
from betae.server import guide
from betae.server.examples import Example, varied_questions
from betae.server.limits import QUESTION_ERRORS, Refused
from betae.server.schemas import AnswerOptions, QuestionField, from_query
from betae.server.words import edge_in_words, in_words, last_part, plain_name

if TYPE_CHECKING:
    from betae.server.app import Served

NUM_RELATIONS = 40
NUM_CLASSES = 20
NUM_QUESTIONS = 5
TRIED = 4  # questions of a kind
GOOD_FACTS = range(3, 200)  # known answers of a good question
GOOD_PREDICTION = (0.05, 0.999)  # probability of the best predicted answer
NOT_ENGLISH = (
    "This is read neither as logic text nor as SPARQL, and no name of the graph has any of its "
    "words: choose a thing below, or write ?X . relation(entity, ?X)."
)
GUESSED = "Guessed from the words of your text: please check it."


class Home:
    """Answers the page's own requests; what concerns the whole graph is worked out once."""

    def __init__(self, served: Served):
        self.served = served
        self._examples: asyncio.Task[list[dict[str, Any]]] | None = None

    @property
    def graph(self) -> KnowledgeGraph:
        """The graph that is served."""
        return self.served.graph

    @cached_property
    def described(self) -> dict[str, Any]:
        """What the graph is."""
        graph = self.graph
        properties = [each for each in graph.literals.describe() if each not in {*LABELS, RDF_TYPE}]
        return {
            "entities": graph.num_entities,
            "relations": len(graph.relations),
            "edges": sum(map(len, graph.written_ids.values())),
            "values": graph.literals.size,
            "classes": [
                {"name": last_part(name), "label": plain_name(name), "entities": number}
                for name, number in guide.class_counts(graph)[:NUM_CLASSES]
            ],
            "frequent": [
                self._relation(each) for each in guide.frequent_relations(graph, NUM_RELATIONS)
            ],
            "properties": [plain_name(each) for each in properties],
        }

    def _relation(self, described: guide.RelationGuide) -> dict[str, Any]:
        directed = 2 * self.graph.relations.find(described.name)[0]
        return {
            "name": described.name,
            "words": edge_in_words(self.graph, directed, "…", "…"),
            "edges": described.edges,
            "heads": described.head_classes,
            "tails": described.tail_classes,
            "examples": described.examples,
        }

    # ---- questions to start from ----------------------------------------------------------------

    async def examples(self) -> list[dict[str, Any]]:
        """Return some questions with good answers; they are looked for once."""
        if self._examples is None or (self._examples.done() and self._examples.exception()):
            self._examples = asyncio.create_task(self._find_examples())
        return await asyncio.shield(self._examples)

    async def _find_examples(self) -> list[dict[str, Any]]:
        """Take the best question of each kind, and of different relations if there are some."""
        found: list[tuple[tuple[bool, ...], dict[str, Any]]] = []
        used: set[int] = set()
        for made in (await asyncio.to_thread(varied_questions, self.graph)).values():
            made.sort(key=lambda each: len(used & {*each.relations}))
            tried = await asyncio.gather(*map(self._tried, made[:TRIED]))
            rated = [(each, made[place]) for place, each in enumerate(tried) if each is not None]
            if rated:
                best, example = max(rated, key=lambda each: each[0][0])  # the first of equals
                found.append(best)
                used |= {*example.relations}
        found.sort(key=lambda each: each[0], reverse=True)
        return [told for _, told in found[:NUM_QUESTIONS]]

    async def _tried(self, example: Example) -> tuple[tuple[bool, ...], dict[str, Any]] | None:
        """Answer a question; return how good it is to begin with, and what it is."""
        try:
            query, *_ = await self.served.facts.read(example.text)
            told = {
                "kind": example.about,
                "question": spell_query(self.graph, query),
                "words": in_words(self.graph, query),
            }
            if self.served.run is None:
                answers = await self.served.facts.answers(query, 0, 3)
                number = answers["num_known"] + answers["num_assumed"]
                names = [label for _, label in answers["known"] + answers["assumed"]][:3]
                return (number in GOOD_FACTS,), {**told, "known": number, "answers": names}
            answers, predicted = await asyncio.gather(
                self.served.ask(example.text, AnswerOptions(k=3)),
                self.served.ask(example.text, AnswerOptions(k=1, only="predicted")),
            )
        except (Refused, *QUESTION_ERRORS):
            return None
        names = [each["label"] for each in answers["answers"] if each["status"] != "predicted"]
        best = next(iter(predicted["answers"]), {"label": None, "probability": None})
        least, most = GOOD_PREDICTION
        is_good = least <= (best["probability"] or 0.0) <= most
        quality = answers["num_known"] in GOOD_FACTS, is_good
        prediction = {"label": best["label"], "probability": best["probability"]}
        known = {"known": answers["num_known"], "answers": names}
        return quality, {**told, **known, "predicted": prediction if is_good else None}

    # ---- reading --------------------------------------------------------------------------------

    async def read(self, question: QuestionField) -> dict[str, Any]:
        """Say a question in every notation; of English, guess one from the names in it."""
        near: dict[str, Any] | None = None
        problem = None
        if isinstance(question, str) and question.strip() and is_english(question):
            self.served.limits.check_text(question)
            near = await self.served.facts.read_english(question)
            query = near.pop("query")
            problem = NOT_ENGLISH if query is None else GUESSED
        else:
            try:
                query, *_ = await self.served.facts.read(self.served.text_or_tree(question))
            except UnsupportedQuery as error:
                if isinstance(question, str) and question.strip():
                    return {**_UNSAID, "question": question, "problem": str(error)}
                raise
        said = _UNSAID if query is None else await asyncio.to_thread(self._said, query)
        return {**said, "near": near, "problem": problem}

    def _said(self, query: Query) -> dict[str, Any]:
        graph, parts = self.graph, [*nodes(query)]
        try:
            sparql, no_sparql = spell_sparql(graph, query), None
        except UnsupportedQuery as error:
            sparql, no_sparql = None, str(error)
        entities = [int(each.name) for each in parts if isinstance(each, Entity)]
        relations = {int(each.relation) // 2 for each in parts if isinstance(each, Project)}
        return {
            "question": spell_query(graph, query),
            "tree": from_query(unresolve(query, graph)),
            "words": in_words(graph, query),
            "sparql": sparql,
            "no_sparql": no_sparql,
            "labels": {graph.entities[each]: graph.entity_label(each) for each in entities},
            "spoken": {
                "~" * way + graph.relations[each]: edge_in_words(graph, 2 * each + way, "it", "…")
                for each in relations
                for way in (0, 1)
            },
        }


_UNSAID: dict[str, Any] = {
    "question": None,
    "tree": None,
    "words": None,
    "sparql": None,
    "no_sparql": None,
    "labels": {},
    "spoken": {},
    "near": None,
}
