"""Complete a graph: list its most probable missing edges, and write them to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from betae.answering.completed import CompletedGraph
from betae.answering.edges import Doubles, as_triples
from betae.answering.why import best_reason
from betae.cluster import Cluster, map_blocks
from betae.errors import InvalidArgument
from betae.frames import SHOWN_ROWS, html_table, text_table
from betae.graph.graph import KnowledgeGraph

if TYPE_CHECKING:
    import polars as pl

PAIRS_PER_BATCH = 256
LABEL_COLUMNS = "head_label", "relation_label", "tail_label"
REASON_COLUMNS = {"reason": "text", "rule": "rule", "support": "support", "cases": "cases"}


class MissingEdges:
    """Missing edges, most probable first.

    Iterating gives a dict for each: `head`, `relation`, `tail`, `probability`; their labels, as
    `head_label`, `relation_label`, `tail_label`; `reason`, what
    speaks most for it, `rule`, the same in plain notation, which holds in `support` of `cases`;
    `head_has`, the number of tails of the head by the relation, and `heads_have`, the mean over all
    heads; `tail_has` and `tails_have`, the same for the tail; and the score of each model, by its
    name.
    """

    def __init__(self, graph: KnowledgeGraph, frame: pl.DataFrame):
        self.graph, self._frame = graph, frame

    def to_polars(self) -> pl.DataFrame:
        """Return the edges as a data frame."""
        return self._frame

    def __len__(self) -> int:
        return len(self._frame)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._frame.iter_rows(named=True)

    def __repr__(self) -> str:
        return f"{text_table(*self._shown())}\n{self._count()}"

    def _repr_html_(self) -> str:
        return f"{html_table(*self._shown())}<p>{self._count()}</p>"

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and the first rows, with labels."""
        rows = [
            [f"{row['probability']:.1%}", *(row[column] for column in LABEL_COLUMNS)]
            for row in islice(self, SHOWN_ROWS)
        ]
        columns = ["probability", "head", "relation", "tail"]
        if not self.has_reasons:
            return columns, rows
        since = (row["reason"] or "" for row in self)
        return [*columns, "since"], [[*row, why] for row, why in zip(rows, since, strict=False)]

    @property
    def has_reasons(self) -> bool:
        """Whether rules speak for any of them."""
        reasons = self._frame.get_column("reason", default=None)
        return reasons is not None and reasons.null_count() < len(reasons)

    def _count(self) -> str:
        shown = f", {SHOWN_ROWS} of them shown" if len(self) > SHOWN_ROWS else ""
        return f"{len(self):,} missing edge{'' if len(self) == 1 else 's'}{shown}"

    def write(self, path: Path | str, format: str | None = None) -> None:
        """Write the edges to a file: .tsv, .csv, .parquet and .jsonl hold all columns.

        Turtle (.ttl) holds the edges and their probability, by triple terms of RDF 1.2; N-Triples
        (.nt) the edges only. The format `neo4j` writes an edge file for `neo4j-admin`, or a folder
        of such files, with the probability as a property.
        """
        from betae.graph.writing import write_missing

        write_missing(self._frame, Path(path), format)


def complete(
    graph: KnowledgeGraph,
    completed: CompletedGraph,
    *,
    relation: str | None = None,
    entity: str | None = None,
    above: float = 0.5,
    with_reasons: bool = True,
    cluster: Cluster | None = None,
    load: Callable[[], CompletedGraph] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> MissingEdges:
    """Return the missing edges that are more probable than `above`.

    Edges are scored from each end that already has edges of the relation; those of one `entity`,
    from its end by every relation. An edge scored from both ends has the larger probability. Each
    worker of a `cluster` calls `load` for the completed graph. `progress` is called with (done,
    total) for the edges to score, and then for the reasons of those found.
    """
    if not 0 <= above < 1:
        raise InvalidArgument(f"above is {above!r}; it must be at least 0 and below 1.")
    heads, relations = _pairs(graph, completed, relation, entity)
    starts = range(0, len(heads), PAIRS_PER_BATCH)
    batches = ((heads[i : i + PAIRS_PER_BATCH], relations[i : i + PAIRS_PER_BATCH]) for i in starts)
    search = partial(_edges_above, above)
    found = [np.empty((0, 4))]
    results = map_blocks(load or (lambda: completed), search, batches, cluster)
    for start, edges in zip(starts, results, strict=True):
        found.append(edges)
        progress(min(start + PAIRS_PER_BATCH, len(heads)), len(heads))
    triples, scored = _distinct(np.concatenate(found))
    reasons = _reasons(completed, scored, progress) if with_reasons else {}
    return MissingEdges(graph, _describe(graph, completed, triples, scored, reasons))


def _pairs(
    graph: KnowledgeGraph, completed: CompletedGraph, relation: str | None, entity: str | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the heads and directed relations to score edges of."""
    if entity is not None:
        directed = np.arange(graph.num_relations)
        heads = np.full(len(directed), graph.entity_id(entity))
    else:
        offsets = completed.adjacency.head_offsets
        heads = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        directed = completed.adjacency.relations.astype(np.int64)
    if relation is None:
        return heads, directed
    chosen = directed // 2 == graph.relation_id(relation) // 2
    return heads[chosen], directed[chosen]


def _edges_above(
    above: float, completed: CompletedGraph, pairs: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> Doubles:
    """Return the missing edges of a batch, (n, 4): head, relation, tail, probability."""
    heads, relations = pairs
    indices, tails, found = completed.probabilities.edges_above(heads, relations, above)
    return np.column_stack([heads[indices], relations[indices], tails, found])


def _distinct(edges: Doubles) -> tuple[NDArray[np.int64], Doubles]:
    """Return distinct triples (head, relation, tail), and each as it is scored best, falling."""
    edges = edges[np.argsort(-edges[:, 3], kind="stable")]
    triples = as_triples(*edges[:, :3].astype(np.int64).T)
    first = np.sort(np.unique(triples, axis=0, return_index=True)[1])
    return triples[first], edges[first]


def _reasons(
    completed: CompletedGraph, scored: Doubles, progress: Callable[[int, int], None]
) -> dict[str, list[Any]]:
    """Return the columns of what speaks most for each edge."""
    reasons = []
    for i, edge in enumerate(scored[:, :3].astype(np.int64).tolist(), 1):
        reasons.append(best_reason(completed, *edge))
        progress(i, len(scored))
    return {
        column: [reason and getattr(reason, field) for reason in reasons]
        for column, field in REASON_COLUMNS.items()
    }


def _describe(
    graph: KnowledgeGraph,
    completed: CompletedGraph,
    triples: NDArray[np.int64],
    scored: Doubles,
    reasons: dict[str, list[Any]],
) -> pl.DataFrame:
    """Return the columns of `MissingEdges`."""
    import polars as pl

    heads, relations, tails = triples.T
    directed = (2 * relations).tolist()
    counts, used = completed.counts, completed.probabilities
    text = pl.String  # an empty list has no type of its own
    columns = [
        pl.Series("head", [graph.entities[entity] for entity in heads.tolist()], text),
        pl.Series("relation", [graph.relations[each] for each in relations.tolist()], text),
        pl.Series("tail", [graph.entities[entity] for entity in tails.tolist()], text),
        pl.Series("probability", scored[:, 3]),
        pl.Series("head_label", [graph.entity_label(each) for each in heads.tolist()], text),
        pl.Series("relation_label", [graph.relation_label(each) for each in directed], text),
        pl.Series("tail_label", [graph.entity_label(each) for each in tails.tolist()], text),
    ]
    for name, values in reasons.items():
        kind = pl.Int64 if name in ("support", "cases") else text
        columns.append(pl.Series(name, values, kind))
    for end, ends, ways in (("head", heads, 2 * relations), ("tail", tails, 2 * relations + 1)):
        means = [counts.mean(relation) for relation in ways.tolist()]
        columns.append(pl.Series(f"{end}_has", counts.num_tails(ends, ways)))
        columns.append(pl.Series(f"{end}s_have", means, dtype=pl.Float64))
    if used.model_scores is not None:
        names = [model.name for model in used.model_scores.models]
        scores = used.model_scores.of_edges(heads, 2 * relations, tails)
        columns += [pl.Series(name, found) for name, found in zip(names, scores, strict=True)]
    return pl.DataFrame(columns)
