"""What a graph holds and how to ask it, for people and programs that have never seen it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from betae.graph.describe import describe_graph
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import LABELS, NAME, RDF_TYPE
from betae.graph.names import shorten
from betae.queries.spelling import spell_atom, spell_entity
from betae.server.examples import Example

PAGE_RELATIONS = 40
PAGE_CLASSES = 20
PAGE_PROPERTIES = 20
SAMPLED_HEADS = 200  # of a relation, the best-connected, among whose edges examples are sought
SAMPLED_TAILS = 10_000  # of such a head
SAMPLED_ENDS = 20  # of a relation, whose classes are looked up
NUM_EXAMPLES = 2
NUM_CLASSES = 2  # shown of an end of a relation, or of an entity


@dataclass(frozen=True)
class RelationGuide:
    """A relation: what it links, in which direction, and how often."""

    name: str
    label: str
    pattern: str  # an atom of a question, such as "capital(?head, ?tail)"
    edges: int
    heads: int
    tails: int
    head_classes: list[str]
    tail_classes: list[str]
    examples: list[str]  # its head and tail by label

    def summary(self) -> str:
        """Describe it in a line."""
        classes = ""
        if self.head_classes or self.tail_classes:
            ends = (
                " or ".join(each) or "anything" for each in (self.head_classes, self.tail_classes)
            )
            classes = f" {' → '.join(ends)}."
        also = "" if self.label in self.pattern else f" ({self.label})"
        counts = f"{self.edges:,} edges from {self.heads:,} heads to {self.tails:,} tails"
        return f"`{self.pattern}`{also}: {counts}.{classes} {'; '.join(self.examples)}"


@dataclass(frozen=True)
class EntityUse:
    """A relation of an entity, as an atom whose ?X are its other ends."""

    atom: str
    edges: int
    example: str


@dataclass(frozen=True)
class EntityGuide:
    """An entity: its names, its classes, and what can be asked about it."""

    name: str
    label: str
    also: list[str]  # its other labels
    classes: list[str]
    edges: int
    uses: list[EntityUse]

    def summary(self) -> str:
        """Describe it in a few lines."""
        also = f", also called {', '.join(self.also[:5])}" if self.also else ""
        classes = f" ({', '.join(self.classes)})" if self.classes else ""
        name = "" if self.name == self.label else f" [{self.name}]"
        lines = [f"{self.label}{name}{classes}{also}: {self.edges:,} edges"]
        for use in self.uses:
            such = f", such as {use.example}" if use.edges > 1 else f": {use.example}"
            lines.append(f"  {use.atom}: {use.edges:,}{such}")
        return "\n".join(lines)


def relation_guide(graph: KnowledgeGraph, relation: int) -> RelationGuide:
    """Describe a relation; examples are among its best-connected entities."""
    adjacency, degrees = graph.adjacency("all"), graph.adjacency("all").degrees()
    offsets, heads, pairs = adjacency.by_relation
    first, last, end = offsets[2 * relation : 2 * relation + 3].tolist()
    order = np.argsort(-degrees[heads[first:last]], kind="stable")[:SAMPLED_HEADS]
    edges = []
    for pair, head in zip(pairs[first:last][order], heads[first:last][order].tolist(), strict=True):
        start, stop = adjacency.tail_offsets[pair : pair + 2].tolist()
        tails = adjacency.tails[start : min(stop, start + SAMPLED_TAILS)]
        edges.append((head, int(tails[np.argmax(degrees[tails])])))
    shown = edges[:1]
    shown += [edge for edge in edges[1:] if not {*edge} & {*edges[0]}][: NUM_EXAMPLES - 1]
    label = graph.entity_label
    return RelationGuide(
        name=graph.relations[relation],
        label=shorten(graph.relations.label(relation), graph.prefixes),
        pattern=spell_atom(graph, 2 * relation, "?head", "?tail"),
        edges=int(relation_counts(graph)[relation]),
        heads=last - first,
        tails=end - last,
        head_classes=_common_classes(graph, [head for head, _ in edges[:SAMPLED_ENDS]]),
        tail_classes=_common_classes(graph, [tail for _, tail in edges[:SAMPLED_ENDS]]),
        examples=[f"{label(head)} → {label(tail)}" for head, tail in shown],
    )


def entity_guide(graph: KnowledgeGraph, entity: int, most_uses: int = 12) -> EntityGuide:
    """Describe an entity, and its relations in both directions, those with most edges first."""
    adjacency = graph.adjacency("all")
    spelled, uses = spell_entity(graph, entity), []
    types = {2 * relation for relation in graph.relations.names.find(RDF_TYPE)}  # told as classes
    for pair in range(*adjacency.head_offsets[entity : entity + 2].tolist()):
        if int(adjacency.relations[pair]) in types:
            continue
        first, last = adjacency.tail_offsets[pair : pair + 2].tolist()
        atom = spell_atom(graph, int(adjacency.relations[pair]), spelled, "?X")
        others = adjacency.tails[first:last]
        example = graph.entity_label(int(others[np.argmax(adjacency.degrees(others))]))
        uses.append(EntityUse(atom, last - first, example))
    label, labels = graph.entity_label(entity), graph.entities.labels_of(entity)
    return EntityGuide(
        graph.entities[entity],
        label,
        [each.text for each in labels if each.text != label],
        _classes_of(graph, entity)[:NUM_CLASSES],
        int(adjacency.degrees(np.array([entity]))[0]),
        sorted(uses, key=lambda use: -use.edges)[:most_uses],
    )


def _common_classes(graph: KnowledgeGraph, entities: Sequence[int]) -> list[str]:
    found = Counter(name for each in set(entities) for name in _classes_of(graph, each))
    return [name for name, _ in found.most_common(NUM_CLASSES)]


def _classes_of(graph: KnowledgeGraph, entity: int) -> list[str]:
    """Return the names of the classes of an entity: by edges, and by node tables."""
    found = []
    for relation in graph.relations.names.find(RDF_TYPE):
        classes = graph.adjacency("all").neighbours(entity, 2 * relation).tolist()
        found += [graph.entity_label(each) for each in classes]
    if graph.literals.size:
        found += [each.text for each in graph.literals.of_subject(entity) if each.datatype == NAME]
    return found


# ---- texts --------------------------------------------------------------------------------------


def page(graph: KnowledgeGraph, predictions: str, examples: Sequence[Example]) -> str:
    """Describe a graph on one page of Markdown: figures, relations with examples, classes."""
    facts = describe_graph(graph)
    num_edges = sum(facts.edges.values())
    lines = [
        f"# A graph of {facts.entities:,} entities, {facts.relations:,} relations, "
        f"{num_edges:,} edges",
        "",
        predictions,
        "",
        "## Relations (head → tail, with well-connected examples)",
        "",
    ]
    guides = frequent_relations(graph, PAGE_RELATIONS)
    for guide in guides:
        lines.append(f"- {guide.summary()}")
    if facts.relations > len(guides):
        lines.append(f"- ... and {facts.relations - len(guides):,} less frequent ones: find_names")
    if classes := class_counts(graph):
        lines += ["", "## Classes, as in `Person(?X)`", ""]
        lines += [f"- {name}: {count:,}" for name, count in classes[:PAGE_CLASSES]]
    properties = [each for each in facts.properties.items() if each[0] not in LABELS]
    if properties:
        lines += ["", "## Properties (values, for run_sparql)", ""]
        for name, each in properties[:PAGE_PROPERTIES]:
            shown = shorten(name, graph.prefixes)
            bounds = f", {each.least} to {each.greatest}" if each.least is not None else ""
            lines.append(f"- {shown}: {each.values:,} values{bounds}")
    lines += ["", "## Questions that have answers", ""]
    lines += [f"- {each.about}: `{each.text}`" for each in examples]
    return "\n".join(lines) + "\n"


def frequent_relations(graph: KnowledgeGraph, limit: int) -> list[RelationGuide]:
    """Describe the most frequent relations."""
    frequent = np.argsort(-relation_counts(graph), kind="stable")[:limit]
    return [relation_guide(graph, relation) for relation in frequent.tolist()]


def relation_counts(graph: KnowledgeGraph) -> NDArray[np.int64]:
    """Return the number of edges of each relation."""
    num_relations = len(graph.relations)
    counts = np.zeros(num_relations, dtype=np.int64)
    for edges in graph.written_ids.values():
        counts += np.bincount(edges[:, 1], minlength=num_relations)
    return counts


def class_counts(graph: KnowledgeGraph) -> list[tuple[str, int]]:
    """Return the classes, each with its number of members, largest first."""
    found: Counter[str] = Counter()
    adjacency = graph.adjacency("all")
    for relation in graph.relations.names.find(RDF_TYPE):
        offsets, heads, pairs = adjacency.by_relation
        part = slice(*offsets[2 * relation + 1 : 2 * relation + 3].tolist())
        counts = np.diff(adjacency.tail_offsets)[pairs[part]].tolist()
        for entity, count in zip(heads[part].tolist(), counts, strict=True):
            found[graph.entity_label(entity)] += count
    for name in graph.literals.classes() if graph.literals.size else ():
        found[name] += len(graph.literals.members(name))
    return found.most_common()


LANGUAGE = """\
A question names its answer variable, then a dot, then a formula: `?X . formula`.

- An atom is `relation(head, tail)`, in the direction of the graph's edges: {atom} asks for {side}
  of the edges. `~relation(a, b)` is `relation(b, a)`.
- `&` is and, `|` is or, `!` is not; `a - b` means `a & !b`. `!` binds tightest, then `&`, then `|`;
  use parentheses freely.
- `exists ?V : formula` introduces a variable that is not answered. Every variable but the answer
  needs it. `?X` must be connected to a named entity by atoms.
- Names with spaces or other signs stand in double quotes: "New York". A bare word needs none. A
  name may also be an id: `#12`. Use names that find_names returned.
- `?X != Paris` rules out one entity. `Person(?X)` asks for members of a class, if there are any.
- A negated atom must share its variable with one that is not negated. "Some V that is not ..." is
  `exists ?V : r(a, ?V) & !s(?V, b) & t(?V, ?X)`; "no V at all" is
  `!(exists ?V : r(?X, ?V) & s(?V, b))`. "All" is "there is no ... that is not ...".
- Several answer variables, `?X, ?Y . formula`, and cycles have exact answers only, no predictions.
- It is not SPARQL or Cypher, but ask_question reads a SPARQL SELECT too; counting, ordering and
  values (numbers, dates, texts) need run_sparql.
"""


def lesson(examples: Sequence[Example]) -> str:
    """Teach the language of questions in a page, with examples made from a graph."""
    atom = examples[0].text.removeprefix("?X . ") if examples else "`capital(France, ?X)`"
    side = "the heads" if "(?X," in atom else "the tails"
    lines = [
        "How to ask this knowledge graph.",
        "",
        LANGUAGE.format(atom=f"`{atom}`", side=side).rstrip(),
        "",
        "Examples, all of which have answers in this graph:",
        "",
        *(f"- {each.about}: `{each.text}`" for each in examples),
        "",
        "How to work: find_names for every thing and relation in the question; write the question;",
        "check_question if in doubt; ask_question; why_edge for an edge that matters.",
        "",
        "How to report: a *known* answer follows from facts of the graph. An *assumed* one does",
        "too, but only because the graph lacks a fact that would refute it. A *predicted* one",
        "needs an edge that the graph does not have: give its probability and the evidence, and",
        "never call it a fact.",
    ]
    return "\n".join(lines) + "\n"
