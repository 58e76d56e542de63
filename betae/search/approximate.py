"""The nearest entities of a query, found by an approximate index of faiss.

An index proposes candidates, which are then scored exactly, so it may miss an answer but never
misplaces one. It holds the model's search vectors (`entity_vectors`), under the model's metric:

    ivf    inner product: lists of similar vectors, of which a few are searched; one byte a number
    hnsw   L1: a graph of neighbours, walked towards the query
    lsh    either: the signs of random projections as bits; the vectors with most bits in common

How much of an index is searched (`effort`: lists, breadth of the walk, candidates) is tuned when it
is built: about the least that finds nearly all of what exact search finds for validation queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.errors import InvalidArgument, StoreError
from betae.graph.graph import KnowledgeGraph
from betae.models.base import QueryModel
from betae.models.execute import Embedded, embed_queries
from betae.queries.structures import EPFO, NEGATION, STRUCTURES
from betae.querysets.sample import sample_queries
from betae.search.nearest import Nearest, float32_array, nearest, recall
from betae.storage import (
    MANIFEST,
    check_parts,
    read_manifest,
    write_manifest,
    writing_folder,
)

Kind = Literal["ivf", "hnsw", "lsh"]
KINDS: dict[str, tuple[Kind, ...]] = {"inner product": ("ivf", "lsh"), "L1": ("hnsw", "lsh")}
FORMAT_VERSION = 1
FILE = "index.faiss"
GOOD_RECALL = 0.95  # warn below this
WANTED_RECALL = 0.97  # raise the effort up to this
AT_LEAST = 100  # candidates of a query
LSH_BITS = 2048  # at most, and fewer for few entities
SMALL = 20_000  # entities, that one thread searches faster than several can agree on who does what


@dataclass
class Index:
    """An approximate index of the entities of one model."""

    kind: Kind
    model: str  # the folder of the model in its run
    inner: Any  # the index of faiss
    mean: NDArray[np.float32] | None  # of the vectors: lsh of L1 hashes the differences from it
    effort: int
    recall: float = float("nan")  # at 10, measured when the index was built

    def candidates(self, vectors: torch.Tensor, number: int) -> NDArray[np.int64]:
        """Return the ids found for each search vector of a set, (n, number); -1 for none."""
        number = min(max(number, AT_LEAST), self.inner.ntotal)
        queries = float32_array(vectors)
        if self.kind == "ivf":
            self.inner.nprobe = self.effort
        elif self.kind == "hnsw":
            self.inner.hnsw.efSearch = max(self.effort, number)
        else:
            number = min(max(number, self.effort), self.inner.ntotal)
            queries = self._hashable_queries(queries)
        return self.inner.search(queries, number)[1]  # type: ignore[no-any-return]

    def nearest(
        self, model: QueryModel, embedded: Embedded, table: torch.Tensor, k: int
    ) -> Nearest:
        """Return the k nearest of the candidates of each query, as `nearest` does of all entities.

        A query for which fewer are found ends in infinite distances and ids of -1.
        """
        k = min(k, len(table))
        with torch.no_grad():
            found = self.candidates(model.set_vectors(embedded.sets), k)
            distances = np.full((embedded.num_queries, k), np.inf, dtype=np.float32)
            ids = np.full((embedded.num_queries, k), -1)
            for query, rows in enumerate(embedded.rows_by_query()):
                candidates = np.unique(found[rows.numpy(force=True)])
                candidates = candidates[candidates >= 0]
                scores = model.distance(embedded.sets[rows], table[candidates]).amin(dim=0)
                of_query = scores.numpy(force=True)
                best = np.argsort(of_query, kind="stable")[:k]
                distances[query, : len(best)] = of_query[best]
                ids[query, : len(best)] = candidates[best]
        return distances, ids

    def _hashable_queries(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        none = np.zeros((len(queries), 1), dtype=np.float32)
        if self.mean is None:
            return np.concatenate([queries, none], axis=1)
        return np.concatenate([queries - self.mean, none + 1, none], axis=1)

    @property
    def most_effort(self) -> int:
        """The effort with which everything is searched."""
        return int(self.inner.nlist if self.kind == "ivf" else self.inner.ntotal)

    def save(self, folder: Path) -> None:
        """Write the index to `folder`, whole or not at all; an older one is replaced."""
        import faiss  # slow to import: exact search does not need it

        with writing_folder(folder, overwrite=True) as partial:
            faiss.write_index(self.inner, str(partial / FILE))
            if self.mean is not None:
                np.save(partial / "mean.npy", self.mean)
            names = ("kind", "model", "effort", "recall")
            facts = {f"index_{name}": getattr(self, name) for name in names}
            write_manifest(partial, "index", FORMAT_VERSION, facts)

    @classmethod
    def open(cls, folder: Path, model: str) -> Index:
        """Read the index of a model."""
        if not (folder / MANIFEST).is_file():
            raise StoreError(f"{folder} is not an index. Build one: betae index build.")
        manifest = read_manifest(folder, "index", FORMAT_VERSION)
        check_parts(folder, manifest)
        if manifest["index_model"] != model:
            raise StoreError(
                f"{folder} is an index of {manifest['index_model']}, and the run's best model is "
                f"now {model}. Build it again: betae index build."
            )
        mean = np.load(folder / "mean.npy") if "mean.npy" in manifest["parts"] else None
        import faiss

        inner = faiss.read_index(str(folder / FILE))
        effort, recall = manifest["index_effort"], manifest["index_recall"]
        return cls(manifest["index_kind"], model, inner, mean, effort, recall)


def build_index(
    model: QueryModel,
    table: torch.Tensor,
    queries: Embedded,
    name: str = "",
    kind: Kind | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Index:
    """Index the entities of a table, and tune the effort on `queries`."""

    kinds = KINDS[model.metric]
    kind = kind or kinds[0]
    check_choice("kind", kind, ("ivf", "hnsw", "lsh"))
    if kind not in kinds:
        raise InvalidArgument(
            f"{type(model).__name__} ranks by {model.metric}, for which there is "
            f"{' and '.join(kinds)}, not {kind}."
        )
    with _threads_for(table):
        return _tuned(model, table, queries, name, kind, say)


def _tuned(
    model: QueryModel,
    table: torch.Tensor,
    queries: Embedded,
    name: str,
    kind: Kind,
    say: Callable[[str], None],
) -> Index:
    """Build an index and raise its effort until it finds enough."""
    say(f"Building the {kind} index of {len(table):,} entities")
    inner, mean = _build(kind, model.metric, float32_array(model.entity_vectors(table)))
    index = Index(kind, name, inner, mean, effort=8 if kind == "ivf" else AT_LEAST)
    say("Tuning how much of it is searched")
    truth = nearest(model, queries, table, 10)[1]
    while True:
        index.recall = recall(index.nearest(model, queries, table, 10)[1], truth)
        if index.recall >= WANTED_RECALL or index.effort >= index.most_effort:
            return index
        index.effort = min(index.effort * 3 // 2, index.most_effort)


def _build(
    kind: Kind, metric: str, vectors: NDArray[np.float32]
) -> tuple[Any, NDArray[np.float32] | None]:
    """Return an index of faiss with the vectors in it, and the mean that their hashes need."""
    import faiss

    mean = None
    if kind == "ivf":
        inner = _inverted_lists(vectors)
    elif kind == "hnsw":
        inner = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_L1)
        inner.hnsw.efConstruction = 80
    else:
        centre = vectors.mean(axis=0)
        vectors = vectors - centre  # of a product, it changes all of a query's by the same
        if metric == "L1":  # by L2: its square is a product, up to a constant of the query
            mean = centre
            halves = np.einsum("ij,ij->i", vectors, vectors)[:, None] / 2
            vectors = np.concatenate([vectors, -halves], axis=1)
        vectors = _hashable(vectors)
        # Making the random projections takes time cubic in the bits: seconds for 2,048.
        inner = faiss.IndexLSH(vectors.shape[1], min(LSH_BITS, max(64, len(vectors) // 2)))
    inner.add(vectors)
    return inner, mean


def _inverted_lists(vectors: NDArray[np.float32]) -> Any:
    """Train lists of similar vectors: about 4 sqrt(n), with at least 40 vectors each on average."""
    import faiss

    width, number = vectors.shape[1], len(vectors)
    lists = max(1, min(int(4 * number**0.5), number // 40))
    inner = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(width),
        width,
        lists,
        faiss.ScalarQuantizer.QT_8bit,
        faiss.METRIC_INNER_PRODUCT,
    )
    inner.cp.niter, inner.cp.min_points_per_centroid = 6, 1
    sample = np.random.default_rng(0).permutation(number)[: 40 * lists]
    inner.train(vectors[np.sort(sample)])
    return inner


def _hashable(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Append a number that makes all vectors equally long: angles then order them as products."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    rest = np.sqrt(np.maximum(squares.max(initial=0) - squares, 0))
    return np.concatenate([vectors, rest[:, None]], axis=1)


@contextmanager
def _threads_for(table: torch.Tensor) -> Iterator[None]:
    """Let torch and faiss, each of which has threads of its own, work with one on a small table."""
    import faiss

    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    if len(table) < SMALL:
        torch.set_num_threads(1)
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])


# ---- measuring --------------------------------------------------------------------------------


def typical_queries(
    model: QueryModel, graph: KnowledgeGraph, count: int = 20, seed: int = 0
) -> Embedded:
    """Embed `count` sampled queries of every structure that the model can do, to measure with."""
    names = [name for name in (*EPFO, *NEGATION) if model.can(STRUCTURES[name])]
    split = "valid" if len(graph.splits["valid"]) else "train"
    counts = dict.fromkeys(names, count)
    sampled = sample_queries(graph, counts, split, seed=seed, purpose="index queries")
    sampled = sampled.within(model.num_entities, model.num_relations)
    if not len(sampled):
        raise InvalidArgument("The graph has no queries to measure an index with.")
    with torch.no_grad():
        return embed_queries(model, [query for query, _, _ in sampled])


@dataclass(frozen=True)
class Speed:
    """How fast and how well a search finds the 10 nearest entities, one query at a time."""

    name: str
    milliseconds: float  # the median
    recall: float  # at 10, against exact search


def measure(
    model: QueryModel, table: torch.Tensor, queries: Embedded, indexes: Sequence[Index]
) -> list[Speed]:
    """Search for each query by itself, exactly and by each index."""
    singles = [
        Embedded(queries.sets[rows], torch.zeros_like(rows), 1) for rows in queries.rows_by_query()
    ]
    truth = np.concatenate([nearest(model, single, table, 10)[1] for single in singles])
    speeds = []
    for index in (None, *indexes):
        found, times = [], []
        search = nearest if index is None else index.nearest
        with _threads_for(table):
            for single in singles:
                start = time.perf_counter()
                found.append(search(model, single, table, 10)[1])
                times.append(time.perf_counter() - start)
        name = "exact" if index is None else index.kind
        speeds.append(
            Speed(name, 1000 * float(np.median(times)), recall(np.concatenate(found), truth))
        )
    return speeds


def measure_all(
    model: QueryModel, graph: KnowledgeGraph, name: str, say: Callable[[str], None]
) -> list[Speed]:
    """Build every kind of index for a model, and measure them beside exact search."""
    table, queries = model.table(), typical_queries(model, graph)
    indexes = [build_index(model, table, queries, name, kind, say) for kind in KINDS[model.metric]]
    say("Searching")
    fresh = typical_queries(model, graph, seed=1)  # the effort was tuned on the others
    return measure(model, table, fresh, indexes)
