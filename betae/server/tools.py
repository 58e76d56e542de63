"""What an agent can do with a run or a graph: the tools of the MCP server, without its protocol.

They are written for language models: what they return is small, and says how to get more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any

from betae.answering.results import Status
from betae.errors import (
    AmbiguousName,
    InvalidArgument,
    QuerySyntaxError,
    UnresolvedName,
    UnsupportedQuery,
)
from betae.graph.graph import KnowledgeGraph
from betae.graph.names import Vocabulary
from betae.queries.ast import Query
from betae.queries.english import names_in, suggest_question
from betae.queries.read import is_sparql
from betae.queries.spelling import spell_query
from betae.queries.syntax import YES_OR_NO
from betae.server import guide
from betae.server.examples import Example, example_questions
from betae.server.facts import RESULTS, TRIPLES
from betae.server.limits import QUESTION_ERRORS, Refused, check_limit, refusal
from betae.server.tool_models import (
    AnswerTold,
    AskQuestion,
    CheckQuestion,
    EdgeExplained,
    EdgesFound,
    FindNames,
    GraphDescribed,
    MissingEdge,
    MissingEdges,
    NamesFound,
    NoArguments,
    QuestionAnswered,
    QuestionChecked,
    RunSparql,
    SparqlAnswered,
    StepChecked,
    StepTold,
    WhyEdge,
)
from betae.server.words import in_words

if TYPE_CHECKING:
    from betae.server.app import Served

PATIENCE = 15.0  # seconds to wait for a run that is being opened
SEARCH_SECONDS = 10.0  # for missing edges; other questions wait meanwhile
STEP_REASONS = 2  # shown for a missing edge of a derivation
STEP_EXAMPLES = 3
PREDICTIONS = "Predictions: yes. Answers can be known, assumed or predicted, with probabilities."
SIGNS = '"And" is &, "or" is |, "not" is !; names with spaces stand in double quotes.'
CLOSED = (
    "Here, call why_edge for a single edge. For more, ask with an answer variable: ?X . exists ..."
)
NO_PREDICTIONS = "Predictions: none. {} Only answers that follow from the facts are found."

# ---- the tools ----------------------------------------------------------------------------------


class Tools:
    """The tools over what is served; each public method is one, and its docstring describes it."""

    def __init__(self, served: Served):
        self.served = served

    @property
    def graph(self) -> KnowledgeGraph:
        """The graph that is served."""
        return self.served.graph

    def predictions(self) -> str:
        """Say whether there are predictions, or why not."""
        if self.served.run is not None and not self.served.opening:
            return PREDICTIONS
        return NO_PREDICTIONS.format(self.served.opening or self.served.why_no_predictions)

    @cached_property
    def _relations(self) -> int:
        return len(self.graph.relations)

    @cached_property
    def examples(self) -> list[Example]:
        """Questions that have answers."""
        return example_questions(self.graph)

    def page(self) -> str:
        """Describe the graph on a page."""
        return guide.page(self.graph, self.predictions(), self.examples)

    def lesson(self) -> str:
        """Teach the language of questions."""
        return guide.lesson(self.examples)

    async def describe_graph(self, _arguments: NoArguments) -> GraphDescribed:
        """Describe the graph on one page: what it is about, its relations with direction, counts
        and examples, its classes, and questions that have answers. Call this first."""
        page = await asyncio.to_thread(self.page)
        graph = self.graph
        return GraphDescribed(
            entities=graph.num_entities,
            relations=self._relations,
            edges=sum(map(len, graph.written_ids.values())),
            predictions=self.served.run is not None and not self.served.opening,
            page=page,
        )

    async def find_names(self, arguments: FindNames) -> NamesFound:
        """Find entities and relations by name, part of a name, or the words of a question. For each
        relation you get its direction, counts and examples; for each entity the atoms that it
        occurs in, ready to be pasted into a question. Use it before you write a question: the
        names in a question must be those of the graph, but for case and accents."""
        return await asyncio.to_thread(self._find_names, arguments)

    def _find_names(self, arguments: FindNames) -> NamesFound:
        start, stop, kind = arguments.offset, arguments.offset + arguments.limit, arguments.kind
        graph, text = self.graph, arguments.text.strip()
        entities, is_near = (
            self._search(graph.entities, text) if kind != "relation" else ([], False)
        )
        relations, is_far = self._search(graph.relations, text) if kind != "entity" else ([], False)
        is_near, is_far, note = is_near and bool(entities), is_far and bool(relations), None
        if text and not entities and not relations:
            note = "No name has any of these words. Try other words, or describe_graph."
        elif is_near or is_far:
            what = "entity" if not is_far else "relation" if not is_near else "name"
            note = f"No {what} contains {text!r}: these share words with it."
        uses = 12 if len(entities[start:stop]) <= 3 else 4
        return NamesFound(
            entities=[guide.entity_guide(graph, each, uses) for each in entities[start:stop]],
            relations=[guide.relation_guide(graph, each) for each in relations[start:stop]],
            total_entities=len(entities),
            total_relations=len(relations),
            next_offset=stop if stop < max(len(entities), len(relations)) else None,
            note=note,
        )

    def _search(self, names: Vocabulary, text: str) -> tuple[list[int], bool]:
        """Return the ids for a text, the best first, and whether they only share words with it."""
        is_entities = names is self.graph.entities
        counts = self._degrees if is_entities else self._frequencies
        exact = names.find(text, self.graph.prefixes) if text else []
        found = names.search(text, self.graph.prefixes)

        def key(index: int) -> tuple[bool, bool, int]:
            label = names.label(index).casefold()
            return label != text.casefold(), not label.startswith(text.casefold()), -counts[index]

        if found:
            return [*exact, *sorted({*found} - {*exact}, key=key)], False
        return names_in(text, names, counts), True

    @cached_property
    def _degrees(self) -> list[int]:
        degrees: list[int] = self.graph.adjacency("all").degrees().tolist()
        return degrees

    @cached_property
    def _frequencies(self) -> list[int]:
        counts: list[int] = guide.relation_counts(self.graph).tolist()
        return counts

    async def check_question(self, arguments: CheckQuestion) -> QuestionChecked:
        """Check a question without answering it: how it is understood, in words and step by step
        with the number of exact answers of each step, or what is wrong with it and how to fix it.
        Use it if a question fails, or has no answers."""
        text = arguments.question
        try:
            tree, notes = await self._read(text)
            if tree is None:
                found = await self.served.facts.query(text, "all", 1)
                note = "It has exact answers only, since it is no tree of one variable."
                return QuestionChecked(valid=True, question=text, note=found["note"] or note)
            told = await self.served.facts.tree(tree, "all")
        except (Refused, *QUESTION_ERRORS) as error:
            closest: list[str] = refusal(error).content.get("closest", [])
            fix, problem = await self.advice(error, text) or None, self.problem(error)
            return QuestionChecked(valid=False, problem=problem, fix=fix, closest=closest)
        steps = [
            StepChecked(
                text=node["text"],
                answers=node["num_answers"],
                examples=[each["label"] for each in node["examples"][:STEP_EXAMPLES]],
            )
            for node in told["nodes"]
            if node["operator"] != "entity"
        ]
        return QuestionChecked(
            valid=True,
            predictable=True,
            question=spell_query(self.graph, tree),
            words=in_words(self.graph, tree),
            steps=steps,
            note=_sentences(notes),
        )

    async def ask_question(self, arguments: AskQuestion) -> QuestionAnswered:
        """Answer a question over the graph. Known answers follow from its facts; assumed ones too,
        unless a fact is missing; predicted ones need an edge that it lacks, and come with a
        probability, the missing edge and what speaks for it. Report them apart. `expected` is how
        many answers there are in all, by the probabilities. limit and offset count answers of each
        status; give a status for more of one kind."""
        text = arguments.question
        tree, notes = await self._read(text)
        if tree is None:
            return await self._rows(arguments)
        await self._settle()
        if self.served.run is None or self.served.opening:
            return await self._exact(arguments, tree, notes)
        return await self._predicted(arguments, tree, notes)

    async def _read(self, text: str) -> tuple[Query | None, tuple[str, ...]]:
        """Read a question, with notes on its names; None if it is no tree."""
        self.served.limits.check_text(text)
        try:
            tree, _, notes = await self.served.facts.read(text)
        except UnsupportedQuery:
            if text.strip():
                return None, ()
            raise
        return tree, notes

    async def _rows(self, arguments: AskQuestion) -> QuestionAnswered:
        """Answer a question that is no tree, from the facts."""
        found = await self._select(arguments.question, arguments.offset, arguments.limit)
        note = "Exact answers only: predictions need a question that is a tree with one variable."
        rows, more = found["rows"], " or more" if found["more"] else ""
        stop = arguments.offset + len(rows)
        return QuestionAnswered(
            question=arguments.question,
            words=None,
            summary=f"{stop:,}{more} rows follow from the facts",
            rows=rows,
            num_known=stop,
            num_assumed=0,
            next_offset=stop if found["more"] else None,
            note=found["note"] or note,
        )

    async def _select(self, question: str, offset: int, limit: int) -> dict[str, Any]:
        """Return a page of the rows of a question; labels only where they say more than names."""
        check_limit(
            f"offset + limit is {offset + limit:,}", offset + limit, self.served.limits.rows
        )
        found = await self.served.facts.query(question, "all", offset + limit)

        def plain(row: dict[str, str | None]) -> dict[str, str | None]:
            repeated = {f"{name}_label" for name in found["variables"]}
            repeated = {key for key in repeated if row[key] == row[key.removesuffix("_label")]}
            return {name: value for name, value in row.items() if name not in repeated}

        return {**found, "rows": [plain(row) for row in found["rows"][offset:]]}

    async def _exact(
        self, arguments: AskQuestion, tree: Query, notes: tuple[str, ...]
    ) -> QuestionAnswered:
        """Answer a tree from the facts, while there are no predictions."""
        note = self.predictions()  # now: the run may be there when the answers are
        start, stop = arguments.offset, arguments.offset + arguments.limit
        found = await self.served.facts.answers(tree, start, stop)
        kept = [each for each in ("known", "assumed") if arguments.status in ("all", each)]
        answers = {
            status: [
                AnswerTold(entity=name, label=label, probability=1.0 if status == "known" else None)
                for name, label in found[status]
            ]
            for status in kept
        }
        known, assumed = found["num_known"], found["num_assumed"]
        return QuestionAnswered(
            question=spell_query(self.graph, tree),
            words=in_words(self.graph, tree),
            summary=_summary(known, assumed),
            known=answers.get("known", []),
            assumed=answers.get("assumed", []),
            num_known=known,
            num_assumed=assumed,
            next_offset=stop if any(found[f"num_{each}"] > stop for each in kept) else None,
            note=_sentences(notes, found["note"], note),
        )

    async def _predicted(
        self, arguments: AskQuestion, tree: Query, notes: tuple[str, ...]
    ) -> QuestionAnswered:
        """Answer a tree by the run: one request for each status, which are answered together."""
        from betae.answering.answerer import QuestionRequest  # here, since it imports torch

        start, stop = arguments.offset, arguments.offset + arguments.limit
        check_limit(f"offset + limit is {stop:,}", stop, self.served.limits.answers)

        async def ask(status: Status, k: int) -> dict[str, Any]:
            least = arguments.min_probability if status == "predicted" else 0.0
            request = QuestionRequest(tree, k, status, least, arguments.evidence)
            asked = self.served.questions.ask(request, "completed", "all")
            return await asyncio.wrap_future(asked)

        statuses: list[Status] = ["known", "assumed", "predicted"]
        wanted = [each for each in statuses if arguments.status in ("all", each)]
        found = await asyncio.gather(*(ask(status, stop + 1) for status in wanted))
        told = {
            status: [_answer(each) for each in result["answers"][start:stop]]
            for status, result in zip(wanted, found, strict=True)
        }
        has_more = any(len(result["answers"]) > stop for result in found)
        first = found[0]
        known, assumed = first["num_known"] - first["num_assumed"], first["num_assumed"]
        return QuestionAnswered(
            question=spell_query(self.graph, tree),
            words=in_words(self.graph, tree),
            summary=_summary(known, assumed, first["expected"]),
            known=told.get("known", []),
            assumed=told.get("assumed", []),
            predicted=told.get("predicted", []),
            expected=first["expected"],
            num_known=known,
            num_assumed=assumed,
            next_offset=stop if has_more else None,
            note=_sentences(notes, *first["notes"], first["note"]),
        )

    async def why_edge(self, arguments: WhyEdge) -> EdgeExplained:
        """Tell what speaks for one edge, known or missing: rules with the paths behind them, votes
        of similar entities, models, and the base rate. The log-odds of a missing edge add up to its
        probability."""
        await self._settle()
        names = arguments.head, arguments.relation, arguments.tail
        if self.served.run is None or self.served.opening:
            edge = await asyncio.to_thread(self._known_edge, *names)
            if edge is None:
                raise Refused(400, f"The graph has no such edge. {self.predictions()}")
            head, relation, tail = edge
            return EdgeExplained(
                head=head,
                relation=relation,
                tail=tail,
                known=True,
                probability=1.0,
                note=self.predictions(),
            )
        its = self.served.questions
        found = await asyncio.wrap_future(its.call(lambda: its.why(*names)))
        head, relation, tail = found.edge
        note = None
        if not found.is_known:
            edge = await asyncio.to_thread(self._known_edge, names[2], names[1], names[0])
            note = edge and f"The graph has it the other way round: {' '.join(edge)}."
        kept = ("text", "rule", "log_odds", "support", "cases")
        return EdgeExplained(
            head=head,
            relation=relation,
            tail=tail,
            known=found.is_known,
            probability=found.probability,
            log_odds=None if found.is_known else found.log_odds,
            reasons=[{key: getattr(each, key) for key in kept} for each in found.reasons],
            models=found.models,
            base_rate=None if found.is_known else found.base_rate,
            details=[f"{number:>6}  {text}" for number, text in found.lines()],
            note=note,
        )

    def _known_edge(self, head: str, relation: str, tail: str) -> tuple[str, str, str] | None:
        """Return an edge by labels, as it is written; None if the graph does not have it."""
        graph = self.graph
        one, directed, other = (
            graph.entity_id(head),
            graph.relation_id(relation),
            graph.entity_id(tail),
        )
        if other not in graph.adjacency("all").neighbours(one, directed):
            return None
        ends = graph.entity_label(one), graph.entity_label(other)
        name = graph.relation_label(directed)
        return (ends[1], name, ends[0]) if directed % 2 else (ends[0], name, ends[1])

    async def missing_edges(self, arguments: MissingEdges) -> EdgesFound:
        """List the most probable edges that the graph does not have, those of an entity, of a
        relation, of both, or (in a small graph) of all. They are predictions, not facts; why_edge
        tells what speaks for one."""
        await self._settle()
        if self.served.run is None or self.served.opening:
            raise Refused(400, self.predictions())
        its, until = self.served.questions, monotonic() + SEARCH_SECONDS
        work = its.call(
            lambda: its.missing_edges(
                arguments.entity, arguments.relation, arguments.min_probability, until
            )
        )
        found = await asyncio.wrap_future(work)
        if found is None:
            raise Refused(400, "This run has no probabilities, so missing edges cannot be listed.")
        start, stop = arguments.offset, arguments.offset + arguments.limit
        keys = MissingEdge.model_fields
        edges = [{key: each[key] for key in keys} for each in found[start:stop]]
        return EdgesFound(
            edges=[MissingEdge(**each) for each in edges],
            total=len(found),
            next_offset=stop if len(found) > stop else None,
        )

    async def run_sparql(self, arguments: RunSparql) -> SparqlAnswered:
        """Run a SPARQL 1.1 query over the facts (no predictions), read-only: for counting, sorting,
        values such as numbers, dates and texts, and whatever a question cannot say."""
        query, start = arguments.query, arguments.offset
        self.served.limits.check_text(query)
        if not is_sparql(query):
            raise InvalidArgument(
                "This is not SPARQL: it begins with SELECT, ASK, CONSTRUCT, DESCRIBE or PREFIX. "
                "For logic text, call ask_question."
            )
        try:
            found = await self._select(query, start, arguments.limit)
        except UnsupportedQuery:  # no SELECT
            return await self._no_select(arguments)
        stop = start + len(found["rows"])
        return SparqlAnswered(
            kind="rows",
            variables=found["variables"],
            rows=found["rows"],
            next_offset=stop if found["more"] else None,
            note=found["note"],
        )

    async def _no_select(self, arguments: RunSparql) -> SparqlAnswered:
        accepted = [next(iter(RESULTS)), next(iter(TRIPLES))]
        content, kind = await self.served.facts.sparql(arguments.query, accepted)
        if kind == accepted[0]:
            return SparqlAnswered(kind="boolean", boolean=json.loads(content)["boolean"])
        triples = content.decode().splitlines()
        stop = arguments.offset + arguments.limit
        return SparqlAnswered(
            kind="triples",
            triples=triples[arguments.offset : stop],
            next_offset=stop if stop < len(triples) else None,
        )

    # ---- while the run is being opened ----------------------------------------------------------

    async def started(self) -> None:
        """Wait until the workers have been started."""
        while not hasattr(self.served, "facts"):
            await asyncio.sleep(0.05)
        await self.served.facts.started()

    async def _settle(self) -> None:
        """Wait for a run that is being opened, but not for long."""
        until = monotonic() + PATIENCE
        while self.served.opening and monotonic() < until:
            await asyncio.sleep(0.1)

    # ---- errors ---------------------------------------------------------------------------------

    def problem(self, error: Exception) -> str:
        """Say what is wrong, as the library does."""
        return str(refusal(error).content["error"])

    async def advice(self, error: Exception, text: str | None = None) -> str:
        """Say what to do about an error, if it does not say so; `text` is the question it is in."""
        match error:
            case AmbiguousName(ids=ids):
                return f'Use one of these ids as the name, in quotes: "{ids[0]}".'
            case UnresolvedName():
                return "Use a name that find_names gives."
            case QuerySyntaxError() if YES_OR_NO in str(error):
                return CLOSED
            case QuerySyntaxError() if "Write: " in str(error) or "A start: " in str(error):
                return ""  # it says what to do
            case QuerySyntaxError() | InvalidArgument() if text and not is_sparql(text):
                return await asyncio.to_thread(self._first_aid, text)
            case UnsupportedQuery():
                return "Ask for less at a time, or make the question simpler."
        return ""

    def _first_aid(self, text: str) -> str:
        """Say how a question is written, with names that the text may mean."""
        shown = self.examples[-1].text if self.examples else "?X . capital(France, ?X)"
        found = [f"Write logic text, such as: {shown}", SIGNS]
        return "\n".join([*found, suggest_question(self.graph, text)]).rstrip()


def _sentences(notes: Iterable[str], *more: str | None) -> str | None:
    """Join notes to a text."""
    told = [each for each in (*notes, *more) if each]
    return " ".join(each if each.endswith(".") else f"{each}." for each in told) or None


def _summary(known: int, assumed: int, expected: float | None = None) -> str:
    """Count the answers; unlike the library's own summary, assumed ones are not known ones."""
    text = f"{known:,} known answer{'' if known == 1 else 's'}"
    if assumed:
        text += f" and {assumed:,} assumed"
    digits = 1 if expected is None or expected < 100 else 0
    return text if expected is None else f"{text}; about {expected:,.{digits}f} expected in all"


def _answer(told: dict[str, Any]) -> AnswerTold:
    """Convert a plain answer of the library, its derivation as a list of edges."""
    return AnswerTold(
        entity=told["entity"],
        label=told["label"],
        probability=told["probability"],
        derivations=told.get("num_derivations"),
        unusual=told["unusual"],
        why=[*_steps(told["why"])] if told["why"] else [],
        further=[[*_steps(each)] for each in told["further"]],
    )


def _steps(step: dict[str, Any]) -> Iterator[StepTold]:
    """Yield the edges and conditions of a derivation, first those that come first."""
    for source in step["sources"]:
        yield from _steps(source)
    if step["status"] == "and":
        return
    evidence = step["evidence"]
    reasons = evidence["reasons"][:STEP_REASONS] if evidence else ()
    yield StepTold(
        text=step["text"],
        status=step["status"],
        probability=step["probability"],
        because=[each["text"] for each in reasons],
    )
