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

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from betae.checks import check_choice
from betae.errors import InvalidArgument, StoreError
from betae.models.base import TABLE_AT_ONCE, QueryModel
from betae.models.execute import Embedded
from betae.models.rows import blocks
from betae.search.nearest import Nearest, float32_array, nearest_of_all, recall
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

    def nearest(self, model: QueryModel, embedded: Embedded, k: int) -> Nearest:
        """Return the k nearest of the candidates of each query, as `nearest` does of all entities.

        A query for which fewer are found ends in infinite distances and ids of -1.
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

        # Lists are mapped into memory, and read as they are searched.
        flags = faiss.IO_FLAG_MMAP if manifest["index_kind"] == "ivf" else 0
        inner = faiss.read_index(str(folder / FILE), flags)
        effort, recall = manifest["index_effort"], manifest["index_recall"]
        return cls(manifest["index_kind"], model, inner, mean, effort, recall)


def distances_to(
    model: QueryModel, sets: torch.Tensor, ids: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the distances of some entities from a query, given by the sets of its branches."""
    with torch.no_grad():
        table = model.table(torch.from_numpy(ids).to(model.entities.device))
        return model.distance(sets, table).amin(dim=0).numpy(force=True)


def build_index(
    model: QueryModel,
    queries: Embedded,
    name: str = "",
    kind: Kind | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Index:
    """Index the entities of a model, and tune the effort on `queries`.

    Their search vectors are made a part at a time, so the memory needed is that of the index and
    of the vectors that its lists are trained on.
    """
    kinds = KINDS[model.metric]
    kind = kind or kinds[0]
    check_choice("kind", kind, ("ivf", "hnsw", "lsh"))
    if kind not in kinds:
        raise InvalidArgument(
            f"{type(model).__name__} ranks by {model.metric}, for which there is "
            f"{' and '.join(kinds)}, not {kind}."
        )
    with threads_for(model):
        return _tuned(model, queries, name, kind, say)


def _tuned(
    model: QueryModel, queries: Embedded, name: str, kind: Kind, say: Callable[[str], None]
) -> Index:
    """Build an index and raise its effort until it finds enough."""
    say(f"Building the {kind} index of {len(model.entities):,} entities")
    with torch.no_grad():
        inner, mean = _build(kind, model)
    index = Index(kind, name, inner, mean, effort=8 if kind == "ivf" else AT_LEAST)
    say("Tuning how much of it is searched")
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
    """Return how many lists must be searched to find enough of the true ids, but at least 8.

    A search would tell, but takes long. An entity is in one list, and each set of a query has an
    order of all lists.
    """
    with torch.no_grad():
        order = inner.quantizer.search(float32_array(model.set_vectors(queries.sets)), inner.nlist)
        _, lists = inner.quantizer.search(_vectors_of(model, truth.ravel()), 1)
    places, of_queries = np.argsort(order[1], axis=1), lists.reshape(truth.shape)
    by_set = np.take_along_axis(places, of_queries[queries.owners.numpy(force=True)], axis=1)
    by_query = queries.best(torch.from_numpy(by_set).double()).numpy()
    wanted = np.quantile(by_query, min(1.0, WANTED_RECALL), method="higher")
    return min(max(8, int(wanted) + 1), int(inner.nlist))


def _build(kind: Kind, model: QueryModel) -> tuple[Any, NDArray[np.float32] | None]:
    """Return an index of faiss with all entities in it, and the mean that their hashes need."""
    import faiss

    if kind == "lsh":
        return _hashed(model)
    if kind == "ivf":
        inner = _inverted_lists(model)
    else:
        width = _vectors_of(model, np.arange(1)).shape[1]
        inner = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_L1)
        inner.hnsw.efConstruction = 80
    for vectors in _vectors(model):
        inner.add(vectors)
    return inner, None


def _vectors(model: QueryModel) -> Iterator[NDArray[np.float32]]:
    """Yield the search vectors of all entities, a part at a time."""
    return (float32_array(model.entity_vectors(table)) for _, table in model.tables())


def _vectors_of(model: QueryModel, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the search vectors of some entities, made a part at a time."""
    parts = []
    for part in blocks(len(ids), model.entities.shape[1], TABLE_AT_ONCE):
        table = model.table(torch.from_numpy(ids[part]).to(model.entities.device))
        parts.append(float32_array(model.entity_vectors(table)))
    return np.concatenate(parts)


def _inverted_lists(model: QueryModel) -> Any:
    """Train lists of similar vectors: about 4 sqrt(n), with at least 40 vectors each on average.

    They are trained on as many random entities as that.
    """
    import faiss

    number = len(model.entities)
    lists = max(1, min(int(4 * number**0.5), number // 40))
    sample = np.random.default_rng(0).choice(number, min(number, 40 * lists), replace=False)
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


def _hashed(model: QueryModel) -> tuple[Any, NDArray[np.float32] | None]:
    """Return the signs of random projections of all vectors less their mean, and that mean.

    The mean changes all products of a query by the same; only L1 needs it in a query.
    """
    import faiss

    number, is_l1 = len(model.entities), model.metric == "L1"
    sums = [vectors.sum(axis=0, dtype=np.float64) for vectors in _vectors(model)]
    mean = (np.sum(sums, axis=0) / number).astype(np.float32)

    def centred() -> Iterator[NDArray[np.float32]]:
        for vectors in _vectors(model):
            vectors = vectors - mean
            if is_l1:  # by L2: its square is a product, up to a constant of the query
                halves = _squares(vectors)[:, None] / 2
                vectors = np.concatenate([vectors, -halves], axis=1)
            yield vectors

    longest = max(_squares(vectors).max() for vectors in centred())
    # Making the random projections takes time cubic in the bits: seconds for 2,048.
    inner = faiss.IndexLSH(len(mean) + 1 + is_l1, min(LSH_BITS, max(64, number // 2)))
    for vectors in centred():
        # One more number makes all equally long: angles then order them as products.
        rest = np.sqrt(np.maximum(longest - _squares(vectors), 0))
        inner.add(np.concatenate([vectors, rest[:, None]], axis=1))
    return inner, mean if is_l1 else None


def _squares(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    squares: NDArray[np.float32] = np.einsum("ij,ij->i", vectors, vectors)
    return squares


@contextmanager
def threads_for(model: QueryModel) -> Iterator[None]:
    """Let torch and faiss, which have threads of their own, take one each for few entities."""
    import faiss

    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    if len(model.entities) < SMALL:
        torch.set_num_threads(1)
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])
