"""What is in a graph: counts, degrees, and its entities and relations by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import SPLITS, Split
from betae.graph.graph import KnowledgeGraph
from betae.graph.labels import AllLabels, Label
from betae.graph.names import Names, expand


@dataclass(frozen=True)
class GraphDescription:
    """The figures of `betae info`; degrees count the edges at an entity in either direction."""

    entities: int
    relations: int
    labelled: bool
    edges: dict[Split, int]
    degree: dict[str, float]  # min, median, mean, max over the entities, all splits
    isolated_in_train: int  # entities without a training edge
    frequent_relations: dict[str, int]  # edges of all splits, most frequent first
    fingerprint: str


def describe_graph(graph: KnowledgeGraph, num_frequent: int = 10) -> GraphDescription:
    """Gather the figures."""
    degrees = graph.adjacency("all").degrees()
    frequencies = np.zeros(len(graph.relations), dtype=np.int64)
    for split in SPLITS:
        frequencies += np.bincount(graph.splits[split][:, 1], minlength=len(frequencies))
    frequent = np.argsort(-frequencies, kind="stable")[:num_frequent]
    return GraphDescription(
        entities=graph.num_entities,
        relations=len(graph.relations),
        labelled=graph.entity_labels is not None,
        edges={split: len(graph.splits[split]) for split in SPLITS},
        degree={
            "min": int(degrees.min()),
            "median": float(np.median(degrees)),
            "mean": float(degrees.mean()),
            "max": int(degrees.max()),
        },
        isolated_in_train=int((graph.adjacency("train").degrees() == 0).sum()),
        frequent_relations={graph.relations[r]: int(frequencies[r]) for r in frequent},
        fingerprint=graph.fingerprint,
    )


@dataclass(frozen=True)
class Listed:
    """An entity or a relation: its name, its labels (the one to show first) and its edges."""

    name: str
    labels: list[Label]
    edges: int  # of all splits; of an entity in either direction
    examples: list[tuple[str, str, str]]  # head, relation, tail by name


def list_entities(
    graph: KnowledgeGraph, search: str = "", limit: int | None = None, num_examples: int = 2
) -> tuple[list[Listed], int]:
    """Return the entities with `search` in a name or label, most edges first, and their number."""
    degrees = graph.adjacency("all").degrees()
    found = _matches(graph, search, graph.entities, graph.entity_labels, graph.entity_all_labels)
    ids = _most_first(found, degrees)

    def examples(entity: int) -> list[tuple[str, str, str]]:
        adjacency, name = graph.adjacency("all"), graph.entities[entity]
        pairs = range(*adjacency.head_offsets[entity : entity + 2].tolist())[:num_examples]
        edges = []
        for pair in pairs:
            relation, is_inverse = divmod(int(adjacency.relations[pair]), 2)
            other = graph.entities[int(adjacency.tails[adjacency.tail_offsets[pair]])]
            head, tail = (other, name) if is_inverse else (name, other)
            edges.append((head, graph.relations[relation], tail))
        return edges

    listed = _listed(ids[:limit], graph.entities, graph.labels_of_entity, degrees, examples)
    return listed, len(ids)


def list_relations(
    graph: KnowledgeGraph, search: str = "", limit: int | None = None, num_examples: int = 2
) -> tuple[list[Listed], int]:
    """Return the relations with `search` in a name or label, most edges first, and their number."""
    triples = np.concatenate([graph.splits[split] for split in SPLITS])
    order = np.argsort(triples[:, 1], kind="stable")
    starts = np.searchsorted(triples[order, 1], np.arange(len(graph.relations) + 1))
    counts = np.diff(starts)
    tables = graph.relations, graph.relation_labels, graph.relation_all_labels
    ids = _most_first(_matches(graph, search, *tables), counts)

    def examples(relation: int) -> list[tuple[str, str, str]]:
        name = graph.relations[relation]
        rows = order[starts[relation] : starts[relation + 1]][:num_examples]
        return [(graph.entities[h], name, graph.entities[t]) for h, _, t in triples[rows].tolist()]

    listed = _listed(ids[:limit], graph.relations, graph.labels_of_relation, counts, examples)
    return listed, len(ids)


def _matches(
    graph: KnowledgeGraph,
    search: str,
    names: Names,
    labels: Names | None,
    all_labels: AllLabels | None,
) -> NDArray[np.int64]:
    """Return the ids whose name or a label has a text in it, in any case; `schema:a` is an IRI."""
    asked, long = search.casefold(), expand(search, graph.prefixes)
    found = {i for i, name in enumerate(names) if asked in name.casefold() or name == long}
    found |= {i for i, label in enumerate(labels or ()) if asked in label.casefold()}
    if all_labels is not None:
        texts = zip(all_labels.owners.tolist(), all_labels.texts, strict=True)
        found |= {owner for owner, text in texts if asked in text.casefold()}
    return np.array(sorted(found), dtype=np.int64)


def _most_first(ids: NDArray[np.int64], counts: NDArray[np.int64]) -> list[int]:
    ordered: list[int] = ids[np.argsort(-counts[ids], kind="stable")].tolist()
    return ordered


def _listed(
    ids: Iterable[int],
    names: Names,
    labels_of: Callable[[int], list[Label]],
    counts: NDArray[np.int64],
    examples: Callable[[int], list[tuple[str, str, str]]],
) -> list[Listed]:
    return [Listed(names[i], labels_of(i), int(counts[i]), examples(i)) for i in ids]
