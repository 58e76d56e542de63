"""What can be asked next about the answers of a question: where their edges lead, what they are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from betae.exact.answers import answers
from betae.graph.edges import Ids
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import LABELS, RDF_TYPE
from betae.graph.names import local_name
from betae.queries.ast import Query
from betae.server.words import edge_in_words, last_part, plain_name

SAMPLED = 500  # answers whose edges are looked at
NUM_ENDS = 8  # of a relation, those that most answers have
NUM_CLASSES = 12
NUM_PROPERTIES = 20


def next_steps(graph: KnowledgeGraph, query: Query) -> dict[str, Any]:
    """Describe the exact answers of a query of ids, or, if they are many, a sample of them."""
    found = answers(graph, query)
    sampled = found[:: 1 + (len(found) - 1) // SAMPLED] if len(found) else found
    return {
        "num_answers": len(found),
        "num_sampled": len(sampled),
        "relations": _relations(graph, sampled),
        "classes": _classes(graph, sampled),
        "properties": _properties(graph, sampled),
    }


def _relations(graph: KnowledgeGraph, entities: Ids) -> list[dict[str, Any]]:
    """List the directed relations of entities, those that most have first, and where they lead."""
    adjacency, degrees = graph.adjacency("all"), graph.adjacency("all").degrees()
    types = {2 * i + d for i in graph.relations.names.find(RDF_TYPE) for d in (0, 1)}
    owners: Counter[int] = Counter()
    ends: dict[int, Counter[int]] = {}
    for entity in entities.tolist():
        for pair in range(*adjacency.head_offsets[entity : entity + 2].tolist()):
            relation = int(adjacency.relations[pair])
            if relation not in types:
                owners[relation] += 1
                tails = adjacency.tails[slice(*adjacency.tail_offsets[pair : pair + 2].tolist())]
                ends.setdefault(relation, Counter()).update(tails.tolist())

    def shown(relation: int) -> list[dict[str, Any]]:
        number = ends[relation].items()
        best = sorted(number, key=lambda each: (-each[1], -degrees[each[0]]))[:NUM_ENDS]
        return [
            {"entity": graph.entities[end], "label": graph.entity_label(end), "number": count}
            for end, count in best
        ]

    return [
        {
            "relation": "~" * (relation % 2) + graph.relations[relation // 2],
            "words": edge_in_words(graph, relation, "it", "…"),
            "answers": number,
            "leads_to": len(ends[relation]),
            "ends": shown(relation),
        }
        for relation, number in owners.most_common()
    ]


def _classes(graph: KnowledgeGraph, entities: Ids) -> list[dict[str, Any]]:
    """List the classes of entities, the most frequent first."""
    found: Counter[str] = Counter()
    for relation in graph.relations.names.find(RDF_TYPE):
        for entity in entities.tolist():
            found.update(
                graph.entities[each]
                for each in graph.adjacency("all").neighbours(entity, 2 * relation).tolist()
            )
    if graph.literals.size:
        for name in graph.literals.classes():
            found[name] += int(np.isin(entities, graph.literals.members(name)).sum())
    return [
        {"name": last_part(name), "label": plain_name(name), "answers": number}
        for name, number in found.most_common(NUM_CLASSES)
        if number
    ]


def _properties(graph: KnowledgeGraph, entities: Ids) -> list[dict[str, Any]]:
    """List the properties of entities besides labels and classes, and their ranges."""
    if not graph.literals.size:
        return []
    found: list[dict[str, Any]] = []
    for name, facts in graph.literals.describe().items():
        if name in LABELS or name == RDF_TYPE or len(found) == NUM_PROPERTIES:
            continue
        rows = graph.literals.of_property(graph.property_id(name))
        number = len(np.intersect1d(rows["subject"].to_numpy(), entities))
        if number:
            found.append(
                {
                    "property": name,
                    "label": plain_name(name),
                    "answers": number,
                    "kind": _kind(rows),
                    "least": facts.least,
                    "greatest": facts.greatest,
                }
            )
    return found


def _kind(rows: Any) -> str:
    """Return what most values of a property are compared as."""
    datatype = local_name(rows["datatype"].mode().sort()[0])
    if datatype == "boolean":
        return "boolean"
    if rows["number"].null_count() < len(rows) / 2 or datatype == "gYear":
        return "number"
    if rows["time"].null_count() < len(rows) / 2:
        return "time" if datatype == "time" else "date"
    return "text"
