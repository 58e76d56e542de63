"""Completion for itself: the most probable edges that the graph lacks, and what speaks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from betae.answering.completed import CompletedGraph
from betae.cluster import Cluster, map_blocks
from betae.errors import InvalidArgument
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel

if TYPE_CHECKING:
    import polars as pl

PAIRS_AT_ONCE = 256

NAMES, MEANS = ("head", "relation", "tail"), ("heads_have", "tails_have")

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # heads, directed relations


def missing_edges(
    graph: KnowledgeGraph,
    completed: CompletedGraph,
    *,
    relation: str | None = None,
    entity: str | None = None,
    above: float = 0.5,
    cluster: Cluster | None = None,
    load: Callable[[], CompletedGraph] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> pl.DataFrame:
    """Return the missing edges that are more probable than `above`, the most probable ones first.

    Tried are the edges of a relation, or of an entity, or all, from each end that has edges of the
    relation already; of one entity, with every relation. An edge that both ends propose has the
    larger of the two probabilities. Columns: head, relation, tail and probability; how many edges
    of the relation the head and the tail have, beside what others have on average; and the score
    by each predictor. The workers of a `cluster` get the completed graph from `load`.
    """
    if not 0 <= above < 1:
        raise InvalidArgument(f"above is {above!r}; it must be at least 0 and below 1.")
    heads, relations = _pairs_to_try(graph, completed, relation, entity)
    starts = range(0, len(heads), PAIRS_AT_ONCE)
    blocks = ((heads[i : i + PAIRS_AT_ONCE], relations[i : i + PAIRS_AT_ONCE]) for i in starts)
    opener = partial(_open_search, load if cluster and load else lambda: completed, above)
    found: list[NDArray[np.float64]] = []
    for start, edges in zip(starts, map_blocks(opener, blocks, cluster), strict=True):
        found.append(edges)
        progress(min(start + PAIRS_AT_ONCE, len(heads)), len(heads))
    edges = np.concatenate([np.empty((0, 4)), *found])
    return _describe(graph, completed, *_distinct(edges))


def _open_search(
    load: Callable[[], CompletedGraph], above: float
) -> Callable[[Pairs], NDArray[np.float64]]:
    return partial(_edges_above, load(), above)


def _edges_above(completed: CompletedGraph, above: float, pairs: Pairs) -> NDArray[np.float64]:
    """Return the missing edges of some pairs, (n, 4): head, relation, tail, probability."""
    heads, relations = pairs
    rows = completed.probabilities.rows(heads, relations, completed.counts, completed.num_entities)
    places, tails = np.nonzero((rows > above) & (rows < 1))
    return np.column_stack([heads[places], relations[places], tails, rows[places, tails]])


def _pairs_to_try(
    graph: KnowledgeGraph, completed: CompletedGraph, relation: str | None, entity: str | None
) -> Pairs:
    """Return the (head, directed relation) of which missing edges are looked for."""
    wanted = None if relation is None else graph.relation_id(relation) // 2
    if entity is not None:
        directed = np.arange(graph.num_relations)
        heads = np.full(len(directed), graph.entity_id(entity))
    else:
        offsets = completed.adjacency.head_offsets
        heads = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        directed = completed.adjacency.relations.astype(np.int64)
    chosen = slice(None) if wanted is None else directed // 2 == wanted
    return heads[chosen], directed[chosen]


def _distinct(edges: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the edges in their written direction, (n, 3), each once, by falling probability."""
    heads, directed, tails = edges[:, :3].astype(np.int64).T
    is_inverse = directed % 2 == 1
    triples = np.column_stack(
        [np.where(is_inverse, tails, heads), directed // 2, np.where(is_inverse, heads, tails)]
    )
    order = np.argsort(-edges[:, 3], kind="stable")
    triples, probabilities = triples[order], edges[order, 3]
    _, first = np.unique(triples, axis=0, return_index=True)
    first.sort()
    return triples[first], probabilities[first]


def _describe(
    graph: KnowledgeGraph,
    completed: CompletedGraph,
    triples: NDArray[np.int64],
    probabilities: NDArray[np.float64],
) -> pl.DataFrame:
    import polars as pl

    heads, relations, tails = triples.T
    counts = completed.counts
    columns: dict[str, Any] = {
        "head": [graph.entities[entity] for entity in heads.tolist()],
        "relation": [graph.relations[relation] for relation in relations.tolist()],
        "tail": [graph.entities[entity] for entity in tails.tolist()],
        "probability": probabilities,
        "head_has": counts.tails(heads, 2 * relations).lengths,
        "heads_have": [counts.mean(2 * relation) for relation in relations.tolist()],
        "tail_has": counts.tails(tails, 2 * relations + 1).lengths,
        "tails_have": [counts.mean(2 * relation + 1) for relation in relations.tolist()],
    }
    for model, table in zip(
        completed.probabilities.predictors, completed.probabilities.tables, strict=True
    ):
        columns[model.name] = _scores(model, table, heads, 2 * relations, tails)
    types = {**dict.fromkeys(NAMES, pl.String), **dict.fromkeys(MEANS, pl.Float64)}
    return pl.DataFrame(columns, schema_overrides=types)  # an empty list has no type of its own


def _scores(
    model: QueryModel,
    table: torch.Tensor,
    heads: NDArray[np.int64],
    relations: NDArray[np.int64],
    tails: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Return a predictor's score of each edge, (n,)."""
    found = [np.empty(0, dtype=np.float32)]
    with torch.no_grad():
        for start in range(0, len(heads), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            sets = model.embed_entities(torch.from_numpy(heads[part]))
            sets = model.project(sets, torch.from_numpy(relations[part]))
            rows = table[torch.from_numpy(tails[part])]
            found.append(-model.distance(sets, rows).diagonal().float().numpy())
    return np.concatenate(found)
