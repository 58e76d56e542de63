"""Descriptions of a graph: counts, degrees, lists of entities and relations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape

import numpy as np
from numpy.typing import NDArray

from betae.graph.edges import SPLITS, Ids, Packing, Split
from betae.graph.graph import KnowledgeGraph
from betae.graph.literals import PropertyDescription
from betae.graph.names import Label, Vocabulary

NUM_FREQUENT = 10  # relations in a description
NUM_EXAMPLES = 2  # edges of each entity or relation in a list
SYMMETRIC = 0.9  # share of the edges of a relation that also run the other way


@dataclass(frozen=True)
class GraphDescription:
    """The figures of `betae info`; degrees count edges in either direction."""

    entities: int
    relations: int
    labelled: bool
    edges: dict[Split, int]
    degree: dict[str, float]  # min, median, mean, max over the entities, all splits
    isolated_in_train: int  # entities without a training edge
    frequent_relations: dict[str, int]  # edges of all splits, most frequent first
    fingerprint: str
    properties: dict[str, PropertyDescription]  # the most frequent first


def describe_graph(graph: KnowledgeGraph) -> GraphDescription:
    """Compute the figures of `betae info`."""
    degrees = graph.adjacency("all").degrees()
    frequencies = np.zeros(len(graph.relations), dtype=np.int64)
    for split in SPLITS:
        frequencies += np.bincount(graph.written_ids[split][:, 1], minlength=len(frequencies))
    frequent = np.argsort(-frequencies, kind="stable")[:NUM_FREQUENT]
    return GraphDescription(
        entities=graph.num_entities,
        relations=len(graph.relations),
        labelled=graph.entities.has_labels,
        edges={split: len(graph.written_ids[split]) for split in SPLITS},
        degree={
            "min": int(degrees.min()),
            "median": float(np.median(degrees)),
            "mean": float(degrees.mean()),
            "max": int(degrees.max()),
        },
        isolated_in_train=int((graph.adjacency("train").degrees() == 0).sum()),
        frequent_relations={graph.relations[r]: int(frequencies[r]) for r in frequent},
        fingerprint=graph.fingerprint,
        properties=graph.literals.describe(),
    )


def to_html(graph: KnowledgeGraph) -> str:
    """Return the size of a graph and its frequent relations, with an example each, as HTML."""
    triples = np.concatenate([graph.written_ids[split] for split in SPLITS])
    relations, first, counts = np.unique(triples[:, 1], return_index=True, return_counts=True)
    rows = ""
    for place in np.argsort(-counts, kind="stable")[:NUM_FREQUENT].tolist():
        head, _, tail = triples[first[place]].tolist()
        label = graph.relation_label(2 * int(relations[place]))
        such = f"{graph.entity_label(head)} → {graph.entity_label(tail)}"
        cells = f"{counts[place]:,}", label, such
        rows += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    more = len(relations) - NUM_FREQUENT
    left = f"<p>{more:,} more relations</p>" if more > 0 else ""
    return (
        f"<p>{escape(repr(graph))}</p><table><thead><tr><th>edges</th><th>relation</th>"
        f"<th>such as</th></tr></thead><tbody>{rows}</tbody></table>{left}"
    )


@dataclass(frozen=True)
class Listed:
    """An entity or a relation with its labels (the one to show first) and examples."""

    name: str
    labels: list[Label]
    edges: int  # number in all splits; for an entity, in either direction
    examples: list[tuple[str, str, str]]  # head, relation, tail by name
    reversed: int = 0  # of a relation: edges that also run the other way
    loops: int = 0  # of a relation: edges of an entity to itself

    @property
    def is_symmetric(self) -> bool:
        """Whether nearly all edges of a relation also run the other way."""
        between = self.edges - self.loops
        return between > 1 and self.reversed >= SYMMETRIC * between


def list_entities(
    graph: KnowledgeGraph, search: str = "", limit: int | None = None
) -> tuple[list[Listed], int]:
    """Return the entities with `search` in a name or label, most edges first, and their number."""
    adjacency = graph.adjacency("all")

    def examples(entity: int) -> list[tuple[str, str, str]]:
        edges = []
        for pair in range(*adjacency.head_offsets[entity : entity + 2].tolist())[:NUM_EXAMPLES]:
            relation, is_inverse = divmod(int(adjacency.relations[pair]), 2)
            ends = (entity, int(adjacency.tails[adjacency.tail_offsets[pair]]))
            head, tail = (graph.entities[i] for i in (ends[::-1] if is_inverse else ends))
            edges.append((head, graph.relations[relation], tail))
        return edges

    ids = graph.entities.search(search, graph.prefixes)
    return _listed(ids, limit, graph.entities, adjacency.degrees(), examples), len(ids)


def list_relations(
    graph: KnowledgeGraph, search: str = "", limit: int | None = None
) -> tuple[list[Listed], int]:
    """Return the relations with `search` in a name or label, most edges first, and their number."""
    triples = np.concatenate([graph.written_ids[split] for split in SPLITS])
    order = np.argsort(triples[:, 1], kind="stable")
    starts = np.searchsorted(triples[order, 1], np.arange(len(graph.relations) + 1))

    def examples(relation: int) -> list[tuple[str, str, str]]:
        name = graph.relations[relation]
        rows = order[starts[relation] : starts[relation + 1]][:NUM_EXAMPLES]
        return [(graph.entities[h], name, graph.entities[t]) for h, _, t in triples[rows].tolist()]

    ids = graph.relations.search(search, graph.prefixes)
    listed = _listed(ids, limit, graph.relations, np.diff(starts), examples)

    def counted(edges: NDArray[np.bool_]) -> dict[str, int]:
        counts = np.bincount(triples[edges, 1], minlength=len(graph.relations))
        return dict(zip(graph.relations, counts.tolist(), strict=True))

    back, loops = counted(_are_reversed(graph, triples)), counted(triples[:, 0] == triples[:, 2])
    listed = [replace(each, reversed=back[each.name], loops=loops[each.name]) for each in listed]
    return listed, len(ids)


def _are_reversed(graph: KnowledgeGraph, triples: Ids) -> NDArray[np.bool_]:
    """Return a mask of the edges, loops aside, that the graph also has in the other direction."""
    packing = Packing.of(graph.num_entities, len(graph.relations))
    heads, relations, tails = triples.T
    back = np.isin(packing.pack(tails, relations, heads), packing.pack(heads, relations, tails))
    found: NDArray[np.bool_] = back & (heads != tails)
    return found


def _listed(
    ids: list[int],
    limit: int | None,
    names: Vocabulary,
    counts: NDArray[np.int64],
    examples: Callable[[int], list[tuple[str, str, str]]],
) -> list[Listed]:
    """List names, most edges first, up to a limit."""
    found = np.array(ids, dtype=np.int64)
    most_first = found[np.argsort(-counts[found], kind="stable")][:limit].tolist()
    return [Listed(names[i], names.labels_of(i), int(counts[i]), examples(i)) for i in most_first]
