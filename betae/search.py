"""The nearest entities of a query: exactly, by an index of faiss, or in a vector database.

Exact search scores all entities, a block of distances at a time. An index proposes candidates,
which are then scored exactly: it may miss an answer, but the order of its answers is exact. It
holds the model's search vectors (`entity_vectors`), under its metric:

    ivf    inner product: inverted lists of similar vectors, one byte per value
    hnsw   L1: a graph of neighbours, walked towards the query
    lsh    either: the signs of random projections as bits, compared by Hamming distance

The search effort (lists probed, breadth of the walk, number of candidates) is tuned when an index
is built: about the least that reaches the wanted recall on validation queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from betae.checks import check_choice, needing
from betae.errors import InvalidArgument, StoreError
from betae.graph.graph import KnowledgeGraph
from betae.models.base import TABLE_VALUES_PER_BLOCK, QueryModel
from betae.models.execute import Embedded, embed_queries, score_blocks
from betae.models.rows import blocks
from betae.models.special import Float32s, as_array
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.sample import sample_queries
from betae.storage import (
    MANIFEST,
    check_file,
    check_parts,
    read_array,
    read_manifest,
    write_manifest,
    writing_file,
    writing_folder,
)

Nearest = tuple[Float32s, NDArray[np.int64]]  # distances and ids, (num_queries, k)

# ---- exact search -------------------------------------------------------------------------------


def nearest(model: QueryModel, embedded: Embedded, table: torch.Tensor, k: int) -> Nearest:
    """Return the distances and ids of the k nearest entities of each query, nearest first.

    Ties at the cut are broken arbitrarily.
    """
    pieces: list[tuple[torch.Tensor, torch.Tensor]] = []
    with torch.no_grad():
        for _, distances in score_blocks(model, embedded, table):
            if k < len(table):
                pieces.append(torch.topk(distances, k, largest=False))
            else:
                pieces.append(torch.sort(distances, dim=1, stable=True))
        best, ids = (torch.cat(parts).cpu() for parts in zip(*pieces, strict=True))
        return best.float().numpy(), ids.numpy()


def nearest_of_all(model: QueryModel, embedded: Embedded, k: int) -> Nearest:
    """Return the same for all entities of a model, with the table computed in blocks."""
    best = np.empty((embedded.num_queries, 0), dtype=np.float32)
    ids = np.empty((embedded.num_queries, 0), dtype=np.int64)
    for first, table in model.tables():
        found = nearest(model, embedded, table, k)
        best = np.concatenate([best, found[0]], axis=1)
        ids = np.concatenate([ids, found[1] + first], axis=1)
        order = np.argsort(best, axis=1, kind="stable")[:, :k]
        best, ids = np.take_along_axis(best, order, 1), np.take_along_axis(ids, order, 1)
    return best, ids


def distances_to(model: QueryModel, sets: torch.Tensor, ids: NDArray[np.int64]) -> Float32s:
    """Return the distances of entities from a query, given the sets of its branches."""
    with torch.no_grad():
        table = model.table(torch.from_numpy(ids).to(model.entities.device))
        return model.distance(sets, table).amin(dim=0).numpy(force=True)


def recall(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Return the share of the true ids that were found, averaged over queries."""
    shares = [np.isin(wanted, here).mean() for here, wanted in zip(found, truth, strict=True)]
    return float(np.mean(shares))


# ---- indexes ------------------------------------------------------------------------------------

IndexKind = Literal["ivf", "hnsw", "lsh"]
INDEX_KINDS: dict[str, tuple[IndexKind, ...]] = {
    "inner product": ("ivf", "lsh"),
    "L1": ("hnsw", "lsh"),
}
FILE = "index.faiss"
GOOD_RECALL = 0.95  # warn below this
WANTED_RECALL = 0.97  # raise the effort up to this
MIN_CANDIDATES = 100  # of a query
LSH_BITS = 2048  # at most, and fewer for few entities
SMALL = 20_000  # entities: fewer are searched faster by one thread


def import_faiss() -> Any:
    """Import faiss, which is optional and slow to import."""
    with needing("faiss", "index"):
        import faiss
    return faiss


@dataclass
class Index:
    """An approximate index of the entities of one model."""

    kind: IndexKind
    model: str  # name of the model's folder in its run
    inner: Any  # the faiss index
    mean: Float32s | None  # of the vectors, subtracted before hashing (lsh of L1)
    effort: int
    recall: float = float("nan")  # at 10, measured when the index was built

    def candidates(self, vectors: torch.Tensor, count: int) -> NDArray[np.int64]:
        """Return at least `count` ids for each search vector of a set, (n, any); -1 for none."""
        count = min(max(count, MIN_CANDIDATES), self.inner.ntotal)
        queries = as_array(vectors)
        if self.kind == "ivf":
            self.inner.nprobe = self.effort
        elif self.kind == "hnsw":
            self.inner.hnsw.efSearch = max(self.effort, count)
        else:
            count = min(max(count, self.effort), self.inner.ntotal)
            none = np.zeros((len(queries), 1), dtype=np.float32)
            if self.mean is None:
                queries = np.concatenate([queries, none], axis=1)
            else:
                queries = np.concatenate([queries - self.mean, none + 1, none], axis=1)
        return self.inner.search(queries, count)[1]  # type: ignore[no-any-return]

    def nearest(self, model: QueryModel, embedded: Embedded, k: int) -> Nearest:
        """Return the k nearest candidates of each query, in the form of `nearest`.

        If fewer are found, the rest are infinite distances and ids of -1.
        """
        k = min(k, self.inner.ntotal)
        with torch.no_grad():
            found = self.candidates(model.set_vectors(embedded.sets), k)
        distances = np.full((embedded.num_queries, k), np.inf, dtype=np.float32)
        ids = np.full((embedded.num_queries, k), -1)
        for query, rows in enumerate(embedded.rows_by_query()):
            candidates = np.unique(found[rows.numpy(force=True)])
            candidates = candidates[candidates >= 0]
            of_query = distances_to(model, embedded.sets[rows], candidates)
            best = np.argsort(of_query, kind="stable")[:k]
            distances[query, : len(best)] = of_query[best]
            ids[query, : len(best)] = candidates[best]
        return distances, ids

    @property
    def most_effort(self) -> int:
        """The effort that makes the search exhaustive."""
        return int(self.inner.nlist if self.kind == "ivf" else self.inner.ntotal)

    def save(self, folder: Path) -> None:
        """Write the index to `folder` atomically, replacing an older one."""
        faiss = import_faiss()
        with writing_folder(folder, overwrite=True) as partial:
            faiss.write_index(self.inner, str(partial / FILE))
            if self.mean is not None:
                np.save(partial / "mean.npy", self.mean)
            names = ("kind", "model", "effort", "recall")
            facts = {f"index_{name}": getattr(self, name) for name in names}
            write_manifest(partial, "index", facts)

    @classmethod
    def open(cls, folder: Path, model: str) -> Index:
        """Read the index of a model."""
        if not (folder / MANIFEST).is_file():
            raise StoreError(f"{folder} is not an index. Build one: betae index build.")
        manifest = read_manifest(folder, "index")
        check_parts(folder, manifest)
        if manifest["index_model"] != model:
            raise StoreError(
                f"{folder} is an index of {manifest['index_model']}, and the run's best model is "
                f"now {model}. Build it again: betae index build."
            )
        has_mean = "mean.npy" in manifest["parts"]
        mean = read_array(folder / "mean.npy") if has_mean else None
        faiss = import_faiss()
        # Lists are mapped into memory, and read as they are searched.
        flags = faiss.IO_FLAG_MMAP if manifest["index_kind"] == "ivf" else 0
        try:
            inner = faiss.read_index(str(folder / FILE), flags)
        except RuntimeError as error:  # faiss has no errors of its own
            raise StoreError(
                f"{folder / FILE} is damaged. Build it again: betae index build."
            ) from error
        effort, recall = manifest["index_effort"], manifest["index_recall"]
        return cls(manifest["index_kind"], model, inner, mean, effort, recall)


# ---- building an index --------------------------------------------------------------------------


def build_index(
    model: QueryModel,
    queries: Embedded,
    name: str = "",
    kind: IndexKind | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> Index:
    """Index the entities of a model, and raise the search effort until `queries` are well answered.

    Search vectors are computed in blocks: memory is that of the index and of the training vectors
    of its lists.
    """
    kinds = INDEX_KINDS[model.metric]
    kind = kind or kinds[0]
    check_choice("kind", kind, get_args(IndexKind))
    if kind not in kinds:
        raise InvalidArgument(
            f"{type(model).__name__} ranks by {model.metric}, for which there is "
            f"{' and '.join(kinds)}, not {kind}."
        )
    with threads_for(model), torch.no_grad():
        notify(f"Building the {kind} index of {len(model.entities):,} entities")
        if kind == "lsh":
            inner, mean = _hashed(model)
        else:
            inner, mean = _inverted_lists(model) if kind == "ivf" else _neighbour_graph(model), None
            for vectors in _vectors(model):
                inner.add(vectors)
        index = Index(kind, name, inner, mean, effort=8 if kind == "ivf" else MIN_CANDIDATES)
        notify("Tuning the search effort")
        truth = nearest_of_all(model, queries, 10)[1]
        if kind == "ivf":
            index.effort = _lists_needed(inner, model, queries, truth)
        while True:
            index.recall = recall(index.nearest(model, queries, 10)[1], truth)
            if index.recall >= WANTED_RECALL or index.effort >= index.most_effort:
                return index
            index.effort = min(index.effort * 3 // 2, index.most_effort)


def _lists_needed(
    inner: Any, model: QueryModel, queries: Embedded, truth: NDArray[np.int64]
) -> int:
    """Return the number of lists to probe for the wanted recall, at least 8.

    Computed without searching, which takes long: an entity is in one list, and each set of a query
    ranks all lists.
    """
    _, order = inner.quantizer.search(as_array(model.set_vectors(queries.sets)), inner.nlist)
    _, lists = inner.quantizer.search(_vectors_of(model, truth.ravel()), 1)
    ranks, of_queries = np.argsort(order, axis=1), lists.reshape(truth.shape)
    by_set = np.take_along_axis(ranks, of_queries[queries.owners.numpy(force=True)], axis=1)
    by_query = queries.best(torch.from_numpy(by_set).double()).numpy()
    wanted = np.quantile(by_query, min(1.0, WANTED_RECALL), method="higher")
    return min(max(8, int(wanted) + 1), int(inner.nlist))


def _vectors(model: QueryModel) -> Iterator[Float32s]:
    """Yield the search vectors of all entities in blocks."""
    return (as_array(model.entity_vectors(table)) for _, table in model.tables())


def _vectors_of(model: QueryModel, ids: NDArray[np.int64]) -> Float32s:
    """Return the search vectors of some entities, computed in blocks."""
    parts = []
    for part in blocks(len(ids), model.entities.shape[1], TABLE_VALUES_PER_BLOCK):
        table = model.table(torch.from_numpy(ids[part]).to(model.entities.device))
        parts.append(as_array(model.entity_vectors(table)))
    return np.concatenate(parts)


def _inverted_lists(model: QueryModel) -> Any:
    """Make about 4 sqrt(n) inverted lists, trained on random entities, 40 per list."""
    faiss = import_faiss()
    total = len(model.entities)
    lists = max(1, min(int(4 * total**0.5), total // 40))
    sample = np.random.default_rng(0).choice(total, min(total, 40 * lists), replace=False)
    vectors = _vectors_of(model, np.sort(sample))
    width = vectors.shape[1]
    inner = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(width),
        width,
        lists,
        faiss.ScalarQuantizer.QT_8bit,
        faiss.METRIC_INNER_PRODUCT,
    )
    inner.cp.niter, inner.cp.min_points_per_centroid = 6, 1
    inner.train(vectors)
    return inner


def _neighbour_graph(model: QueryModel) -> Any:
    faiss = import_faiss()
    width = _vectors_of(model, np.arange(1)).shape[1]
    inner = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_L1)
    inner.hnsw.efConstruction = 80
    return inner


def _hashed(model: QueryModel) -> tuple[Any, Float32s | None]:
    """Build a hash index of all vectors less their mean; return that mean too if queries need it.

    The mean changes all inner products of a query alike; only L1 needs it in queries.
    """
    faiss = import_faiss()
    total, is_l1 = len(model.entities), model.metric == "L1"
    sums = [vectors.sum(axis=0, dtype=np.float64) for vectors in _vectors(model)]
    mean = (np.sum(sums, axis=0) / total).astype(np.float32)

    def centred() -> Iterator[tuple[Float32s, Float32s]]:
        """Yield blocks of vectors, and their squared norms."""
        for vectors in _vectors(model):
            vectors = vectors - mean
            if is_l1:  # approximated by L2, whose square is an inner product up to a constant
                halves = np.einsum("ij,ij->i", vectors, vectors)[:, None] / 2
                vectors = np.concatenate([vectors, -halves], axis=1)
            yield vectors, np.einsum("ij,ij->i", vectors, vectors)

    longest = max(squares.max() for _, squares in centred())
    # Building the random projections is cubic in the bits: seconds for 2,048.
    inner = faiss.IndexLSH(len(mean) + 1 + is_l1, min(LSH_BITS, max(64, total // 2)))
    for vectors, squares in centred():
        # One more value makes all norms equal: angles then order vectors as products do.
        rest = np.sqrt(np.maximum(longest - squares, 0))
        inner.add(np.concatenate([vectors, rest[:, None]], axis=1))
    return inner, mean if is_l1 else None


@contextmanager
def threads_for(model: QueryModel) -> Iterator[None]:
    """Limit torch and faiss to one thread each for few entities."""
    faiss = import_faiss()
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    if len(model.entities) < SMALL:
        torch.set_num_threads(1)
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])


def typical_queries(
    model: QueryModel, graph: KnowledgeGraph, count: int = 20, seed: int = 0
) -> Embedded:
    """Embed `count` sampled queries of every structure that the model supports."""
    names = [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])]
    split = "valid" if len(graph.written_ids["valid"]) else "train"
    counts = dict.fromkeys(names, count)
    sampled = sample_queries(graph, counts, split, seed=seed, purpose="index queries")
    sampled = sampled.within(model.num_entities, model.num_relations)
    if not len(sampled):
        raise InvalidArgument("The graph has no queries to tune an index with.")
    with torch.no_grad():
        return embed_queries(model, [query for query, _, _ in sampled])


# ---- measuring and export -----------------------------------------------------------------------


@dataclass(frozen=True)
class Speed:
    """Speed and recall of a search for the 10 nearest entities, one query at a time."""

    name: str
    milliseconds: float  # median
    recall: float  # at 10, against exact search


def measure(
    model: QueryModel, table: torch.Tensor, queries: Embedded, indexes: Sequence[Index]
) -> list[Speed]:
    """Measure exact search and each index, one query at a time."""
    singles = [
        Embedded(queries.sets[rows], torch.zeros_like(rows), 1) for rows in queries.rows_by_query()
    ]
    truth = np.concatenate([nearest(model, single, table, 10)[1] for single in singles])
    speeds = []
    for index in (None, *indexes):
        found, times = [], []
        with threads_for(model):
            for single in singles:
                start = time.perf_counter()
                if index is None:
                    found.append(nearest(model, single, table, 10)[1])
                else:
                    found.append(index.nearest(model, single, 10)[1])
                times.append(time.perf_counter() - start)
        name, milliseconds = index.kind if index else "exact", 1000 * float(np.median(times))
        speeds.append(Speed(name, milliseconds, recall(np.concatenate(found), truth)))
    return speeds


def measure_all(
    model: QueryModel, graph: KnowledgeGraph, name: str, notify: Callable[[str], None]
) -> list[Speed]:
    """Build every kind of index for a model, and measure them and exact search."""
    queries, kinds = typical_queries(model, graph), INDEX_KINDS[model.metric]
    indexes = [build_index(model, queries, name, kind, notify) for kind in kinds]
    notify("Searching")
    fresh = typical_queries(model, graph, seed=1)  # the effort was tuned on the first
    return measure(model, model.table(), fresh, indexes)


def export_vectors(
    model: QueryModel, table: torch.Tensor, graph: KnowledgeGraph, path: Path
) -> int:
    """Write the search vectors of all entities, with id, name and label (.parquet) or alone (.npy).

    Ranking them by the model's metric against `model.set_vectors` of an embedded query answers the
    query. Returns the width of a vector.
    """
    if path.suffix not in (".parquet", ".npy"):
        raise InvalidArgument(f"{path} is neither .parquet nor .npy.")
    check_file(path)
    vectors = as_array(model.entity_vectors(table))
    num_vectors, width = len(vectors), int(vectors.shape[1])
    with writing_file(path) as partial:
        if path.suffix == ".npy":
            with partial.open("wb") as file:
                np.save(file, vectors)
            return width
        import polars as pl

        ids = range(num_vectors)
        columns = {
            "id": ids,
            "entity": [graph.entities[entity] for entity in ids],
            "label": [graph.entity_label(entity) for entity in ids],
            "vector": pl.Series(vectors, dtype=pl.Array(pl.Float32, width)),
        }
        pl.DataFrame(columns).write_parquet(partial)
    return width
