"""The index of entities: search vectors, exact and approximate search, the store, the export."""

import json
import tempfile
import time
from functools import partial

import faiss
import numpy as np
import polars as pl
import pytest
import torch

import betae.search
from betae.errors import InvalidArgument, StoreError
from betae.models import BetaConfig, ComplexConfig, GQEConfig, Query2BoxConfig
from betae.models.execute import embed_queries, score_blocks
from betae.models.store import build_model, load_model
from betae.queries.ast import Entity
from betae.search import (
    WANTED_RECALL,
    Index,
    build_index,
    export_vectors,
    measure,
    nearest,
    nearest_of_all,
    recall,
)
from betae.storage import describe_part, manifest_checksum
from betae.training.folder import RunFolder
from tests.answering.helpers import random_model, save_run, strict
from tests.cli.test_cli import flat, run
from tests.training.helpers import small_graph

CONFIGS = {
    "betae": BetaConfig(dim=8, hidden=8),
    "query2box": Query2BoxConfig(dim=12, span=0.5),
    "gqe": GQEConfig(dim=12, span=0.5),
    "complex": ComplexConfig(dim=8, deviation=0.5),
}
KINDS = [
    *("betae ivf", "betae lsh", "query2box hnsw", "query2box lsh", "gqe hnsw", "gqe lsh"),
    *("complex ivf", "complex lsh"),
]
QUESTION = "?X . r0(e1, ?X) | r1(e2, ?X)"
each_model = pytest.mark.parametrize("model_name", CONFIGS)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Faster, and faiss then builds the same graph each time."""
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    faiss.omp_set_num_threads(before[1])


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Little work, but for the indexes that tests share."""
    monkeypatch.setattr("betae.answering.by_embedding.INDEX_CANDIDATES", 20)
    monkeypatch.setattr("betae.answering.by_embedding.CALIBRATION_QUERIES", 5)
    monkeypatch.setattr("betae.querysets.sample.WALK_BATCH", 256)
    monkeypatch.setattr("betae.search.LSH_BITS", 256)


def clustered(model_name, num_entities=100, num_clusters=60):
    """A model whose entities lie in clusters, away from zero."""
    torch.manual_seed(0)
    model = build_model(CONFIGS[model_name], num_entities, 3).eval().requires_grad_(False)
    centres = 2 * model.entities[torch.arange(num_entities) % num_clusters]
    model.entities.copy_(1 + centres + 0.3 * torch.randn_like(centres))
    return model


def random_branches(model, number, seed=0):
    """The branches of random queries, one or two each."""
    generator = np.random.default_rng(seed)
    for place in range(number):
        names = generator.integers([[model.num_entities], [model.num_relations]], size=(2, 3))
        a, b, c = (Entity(entity)[relation] for entity, relation in names.T.tolist())
        if model.name == "complex":
            yield [(a,), (a, b)][place % 2]
            continue
        other = a & ~b if model.has_complement else a & b & c
        yield [(a,), (a[0],), (a & b,), (other,), (a, b), (a, b & c)][place % 6]


def embed(model, branches):
    """Embed queries that are given by their branches."""
    return embed_queries(model, [one[0] if len(one) == 1 else one[0] | one[1] for one in branches])


def slow_distances(model, branches):
    """The distance of every entity from every query, one branch at a time."""
    sets = [[embed(model, [(branch,)]).sets for branch in one] for one in branches]
    return np.stack([model.distance(torch.cat(one), model.table()).amin(0) for one in sets])


def order_by(metric, set_vectors, vectors):
    """Ids as a vector database would order them."""
    if metric == "inner product":
        return np.argsort(-(set_vectors @ vectors.T), axis=1)
    return np.argsort(np.abs(set_vectors[:, None] - vectors).sum(axis=2), axis=1)


# ---- search vectors and exact search ----------------------------------------------------------


@each_model
def test_the_metric_of_the_search_vectors_orders_as_the_distance(model_name):
    model = clustered(model_name).double()
    sets, table = embed(model, random_branches(model, 48)).sets, model.table()
    vectors = model.set_vectors(sets).numpy(), model.entity_vectors(table).numpy()
    by_distance = np.argsort(model.distance(sets, table).numpy(), axis=1)
    assert np.array_equal(order_by(model.metric, *vectors), by_distance)


def test_the_distance_of_beta_is_a_constant_of_the_query_less_the_product():
    model = clustered("betae").double()
    sets, table = embed(model, random_branches(model, 24)).sets, model.table()
    a, b = sets.exp().chunk(2, dim=1)
    constant = (torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)).sum(dim=1, keepdim=True)
    product = model.set_vectors(sets) @ model.entity_vectors(table).T
    torch.testing.assert_close(model.distance(sets, table), constant - product)


@pytest.mark.parametrize("k", [1, 10, 99, 100, 1000])
@each_model
def test_exact_search_is_the_start_of_all_sorted(model_name, k, monkeypatch):
    monkeypatch.setattr("betae.search.score_blocks", partial(score_blocks, scores_per_block=700))
    model = clustered(model_name).double()
    branches = list(random_branches(model, 24))
    distances, ids = nearest(model, embed(model, branches), model.table(), k)
    slow = slow_distances(model, branches)
    order = np.argsort(slow, axis=1)[:, :k]
    assert np.array_equal(ids, order)
    np.testing.assert_allclose(distances, np.take_along_axis(slow, order, 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("k", [100, 1000])  # all of them
def test_of_equal_distances_the_first_comes_first(k):
    model = clustered("gqe")
    model.entities.copy_(model.entities[torch.arange(100) // 7])
    branches = list(random_branches(model, 24))
    order = np.argsort(slow_distances(model, branches), axis=1, kind="stable")
    ids = nearest(model, embed(model, branches), model.table(), k)[1]
    assert np.array_equal(ids, order[:, :k])


@pytest.mark.parametrize("k", [1, 10, 200, 5000])
@each_model
def test_a_table_in_parts_has_the_same_nearest(model_name, k, monkeypatch):
    monkeypatch.setattr("betae.models.base.TABLE_VALUES_PER_BLOCK", 1600)  # 100 entities or so
    model = clustered(model_name, 2050)
    model.entities.copy_(model.entities[torch.arange(2050) // 2])  # equal distances
    embedded = embed(model, random_branches(model, 12))
    distances, ids = nearest_of_all(model, embedded, k)
    whole = nearest(model, embedded, model.table(), 2050)
    k = min(k, 2050)
    np.testing.assert_allclose(distances, whole[0][:, :k], rtol=1e-5, atol=1e-5)
    of_ids = np.take_along_axis(whole[0], np.argsort(whole[1], axis=1), 1)
    of_ids = np.take_along_axis(of_ids, ids, 1)
    np.testing.assert_allclose(of_ids, distances, rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == k for row in ids.tolist())


# ---- indexes ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS)
def built(request):
    """A model, an index of its 3,000 entities, and the queries that it was built with."""
    model_name, kind = request.param.split()
    model = clustered(model_name, 3000)
    queries = embed(model, random_branches(model, 60))
    return model, build_index(model, queries, "best-1", kind), queries


def test_an_index_finds_nearly_all_and_places_it_exactly(built, tmp_path):
    model, index, _ = built
    branches = list(random_branches(model, 60, seed=1))
    embedded, table = embed(model, branches), model.table()
    distances, ids = index.nearest(model, embedded, 10)
    assert recall(ids, nearest(model, embedded, table, 10)[1]) >= 0.95
    assert all(len(set(row)) == 10 for row in ids.tolist())
    assert (np.diff(distances, axis=1) >= 0).all()
    slow = np.take_along_axis(slow_distances(model, branches), ids, 1)
    np.testing.assert_allclose(distances, slow, rtol=1e-5, atol=1e-5)

    index.save(tmp_path / "index")
    opened = Index.open(tmp_path / "index", "best-1")
    assert (opened.kind, opened.effort, opened.recall) == (index.kind, index.effort, index.recall)
    assert np.array_equal(opened.nearest(model, embedded, 10)[1], ids)


def test_the_effort_is_raised_until_the_recall_is_reached_and_no_further(built):
    model, index, queries = built
    truth = nearest(model, queries, model.table(), 10)[1]

    def recall_with(effort):
        other = Index(index.kind, "", index.inner, index.mean, effort)
        return recall(other.nearest(model, queries, 10)[1], truth)

    assert index.recall == recall_with(index.effort) >= WANTED_RECALL
    assert index.effort < index.most_effort / 2  # else it spares nothing
    least = 8 if index.kind == "ivf" else 100
    assert index.effort == least or recall_with(index.effort // 2) < WANTED_RECALL


@pytest.mark.parametrize(("kind", "most"), [("ivf", 15), ("lsh", 600)])
def test_the_effort_ends_where_everything_is_searched(kind, most, monkeypatch):
    monkeypatch.setattr(betae.search, "WANTED_RECALL", 2.0)
    model = clustered("betae", 600)
    index = build_index(model, embed(model, random_branches(model, 12)), kind=kind)
    assert (index.effort, index.recall) == (most, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_built_from_parts_of_the_table(kind, monkeypatch):
    """Never the whole table, and the same index as from the whole."""
    model_name, kind = kind.split()
    model = clustered(model_name, 3000)
    queries = embed(model, random_branches(model, 24))
    whole = build_index(model, queries, kind=kind)
    monkeypatch.setattr("betae.models.base.TABLE_VALUES_PER_BLOCK", 1600)
    monkeypatch.setattr("betae.search.TABLE_VALUES_PER_BLOCK", 1600)
    table, asked, until = model.table, [], []

    def note(ids=None):
        asked.append(3000 if ids is None else len(ids))
        return table(ids)

    monkeypatch.setattr(model, "table", note)
    parts = build_index(model, queries, kind=kind, notify=lambda _: until.append(len(asked)))
    assert max(asked[: until[-1]]) <= 300
    assert max(asked) < 3000  # when it is tuned, candidates of a query
    assert (parts.effort, parts.recall) == (whole.effort, whole.recall)
    ids = [index.candidates(model.set_vectors(queries.sets), 10) for index in (whole, parts)]
    assert np.mean([np.isin(*rows).mean() for rows in zip(*ids, strict=True)]) > 0.95


@pytest.mark.parametrize("small", [20_000, 50])
def test_a_small_graph_is_searched_by_one_thread(monkeypatch, small):
    """Two libraries with threads of their own made a search of 239 entities take 45 ms."""
    monkeypatch.setattr(betae.search, "SMALL", small)
    torch.set_num_threads(2)
    faiss.omp_set_num_threads(2)
    model, seen = clustered("betae"), set()
    inner = Index.nearest

    def note(self, *arguments):
        seen.add((torch.get_num_threads(), faiss.omp_get_max_threads()))
        return inner(self, *arguments)

    monkeypatch.setattr(Index, "nearest", note)
    queries = embed_queries(model, [Entity(1)[0], Entity(2)[1]])
    try:
        index = build_index(model, queries)
        assert seen == {(1, 1) if small > 100 else (2, 2)}
        measure(model, model.table(), queries, [index])
        assert seen == {(1, 1) if small > 100 else (2, 2)}
        assert (torch.get_num_threads(), faiss.omp_get_max_threads()) == (2, 2)
    finally:
        torch.set_num_threads(1)
        faiss.omp_set_num_threads(1)


def test_a_small_graph_has_few_bits(monkeypatch):
    monkeypatch.setattr(betae.search, "LSH_BITS", 2048)
    model = clustered("betae", 239)
    queries = embed(model, random_branches(model, 60))
    start = time.process_time()
    index = build_index(model, queries, kind="lsh")
    assert time.process_time() - start < 10
    assert index.inner.nbits == 119
    assert index.recall >= WANTED_RECALL


def test_a_query_for_which_too_few_are_found_ends_in_nothing():
    model = clustered("betae", 3000)
    embedded = embed(model, random_branches(model, 12))
    index = build_index(model, embedded)
    index.effort = 1  # list of 75
    distances, ids = index.nearest(model, embedded, 2500)
    found = (ids >= 0).sum(axis=1)
    assert ((found > 0) & (found < 2500)).all()
    assert np.array_equal(ids >= 0, np.arange(2500) < found[:, None])
    assert np.array_equal(np.isinf(distances), ids == -1)
    assert all(len(set(row)) == number + 1 for row, number in zip(ids.tolist(), found, strict=True))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("betae hnsw", "BetaE ranks by inner product, for which there is ivf and lsh, not hnsw"),
        ("query2box ivf", "Query2Box ranks by L1, for which there is hnsw and lsh, not ivf"),
        ("gqe flat", "kind is 'flat'; choose one of ivf, hnsw, lsh"),
    ],
)
def test_a_kind_that_cannot_be_is_refused_with_the_choices(kind, message):
    model_name, kind = kind.split()
    model = clustered(model_name)
    with pytest.raises(InvalidArgument, match=message):
        build_index(model, embed(model, random_branches(model, 6)), kind=kind)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_a_damaged_index_is_named_and_building_again_replaces_it(built, tmp_path, damage):
    index, folder = built[1], tmp_path / "index"
    index.save(folder)
    (folder / "index.faiss").write_bytes(damage((folder / "index.faiss").read_bytes()))
    with pytest.raises(StoreError, match=r"index\.faiss is .*Make the index again"):
        Index.open(folder, "best-1")
    index.save(folder)
    assert Index.open(folder, "best-1").recall == index.recall


@pytest.mark.parametrize("content", [b"", b"nonsense", b"IxFI" + bytes(40)])
def test_a_crafted_index_is_named(built, tmp_path, content):
    """With a manifest that matches: faiss itself must refuse it."""
    index, folder = built[1], tmp_path / "index"
    index.save(folder)
    (folder / "index.faiss").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["parts"]["index.faiss"] = describe_part(folder / "index.faiss")
    manifest["sha256"] = manifest_checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=r"index\.faiss is damaged.*betae index build"):
        Index.open(folder, "best-1")


def test_no_manifest_and_another_model_say_what_to_do(built, tmp_path):
    folder = tmp_path / "index"
    built[1].save(folder)
    with pytest.raises(StoreError, match=r"of best-1, .* now best-2.*betae index build"):
        Index.open(folder, "best-2")
    (folder / "manifest.json").unlink()
    with pytest.raises(StoreError, match=r"/index .*betae index build"):
        Index.open(folder, "best-1")


# ---- the command line -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of models that were never trained, by model_name."""
    graph, folder = small_graph(0, 500, num_edges=2000), tmp_path_factory.mktemp("runs")
    return {model_name: save_run(folder / model_name, graph, model_name) for model_name in CONFIGS}


def command(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


@pytest.mark.parametrize("only", [(), ("--only", "predicted"), ("--only", "known")])
@each_model
def test_an_index_with_full_recall_answers_as_exact_search(runs, model_name, only, monkeypatch):
    monkeypatch.setattr(betae.search, "WANTED_RECALL", 1.0)
    assert "recall@10 1.000" in command("index", "build", runs[model_name]).stdout
    by_embedding = ("--method", "embedding", "--format", "jsonl")
    text = "?X . r0(e1, ?X)" if model_name == "complex" else QUESTION
    question = ["answer", runs[model_name], text, *by_embedding, *only]
    exact = strict(command(*question).stdout)["answers"]
    by_index = strict(command(*question, "--index").stdout)["answers"]
    assert [answer["entity"] for answer in by_index] == [answer["entity"] for answer in exact]
    for one, two in zip(by_index, exact, strict=True):
        assert one["rank"] in (two["rank"], None)  # none for a known one far off
        assert (one["status"], one["probability"]) == (two["status"], two["probability"])


@pytest.mark.slow
def test_an_answer_needs_an_index_of_the_best_model(tmp_path):
    graph = small_graph()
    folder = save_run(tmp_path / "run", graph)
    question = ["answer", folder, QUESTION, "--index"]
    assert "betae index build" in str(run(*question).exception)
    for kind in ("ivf", "lsh"):  # the second replaces the first
        told = command("index", "build", folder, "--kind", kind)
        assert told.stdout.startswith(f"{kind} of the model: recall@10 1.000")
        assert "Warning" not in told.stderr
    command(*question)
    save_run(folder, graph, step=20, seed=1)
    assert "now best-00000020. Build it again" in str(run(*question).exception)


def test_bench_compares_each_kind_with_exact_search(runs):
    table = command("index", "bench", runs["gqe"]).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["search", "exact", "hnsw", "lsh"]
    speeds = strict(command("index", "bench", runs["betae"], "--json").stdout)
    assert [speed["name"] for speed in speeds] == ["exact", "ivf", "lsh"]
    assert all(speed["milliseconds"] > 0 for speed in speeds)
    assert [speed["recall"] > 0.95 for speed in speeds] == [True] * 3


def test_a_poor_recall_is_told_loudly(runs, monkeypatch):
    def build_poorly(*arguments):
        index = build_index(*arguments)
        index.effort, index.recall = 1, 0.5
        return index

    monkeypatch.setattr("betae.search.build_index", build_poorly)
    monkeypatch.setattr("betae.search.build_index", build_poorly)
    told = command("index", "build", runs["betae"])
    assert "Warning: ivf finds only 50.0% of the 10 nearest" in flat(told.stderr)
    told = command("index", "bench", runs["betae"], "--json")
    share = {speed["name"]: speed["recall"] for speed in strict(told.stdout)}["ivf"]
    assert share < 0.95
    assert f"Warning: ivf finds only {share:.1%} of the 10 nearest" in flat(told.stderr)


# ---- export -----------------------------------------------------------------------------------


@each_model
def test_the_exported_vectors_rank_as_exact_search(toy_graph, model_name, tmp_path):
    model = random_model(model_name, toy_graph).requires_grad_(False)
    both = Entity(2)[0] if model_name == "complex" else Entity(1)[1] & Entity(2)[0]
    embedded = embed(model, [(Entity(0)[0],), (both,)])
    width = export_vectors(model, model.table(), toy_graph, tmp_path / "x.parquet")
    written = pl.read_parquet(tmp_path / "x.parquet")
    assert written.columns == ["id", "entity", "label", "vector"]
    assert written.schema["vector"] == pl.Array(pl.Float32, width)
    for place, (number, entity, label, _) in enumerate(written.iter_rows()):
        assert (place, toy_graph.entities[place]) == (number, entity)
        assert label == toy_graph.entity_label(place)
    vectors = model.set_vectors(embedded.sets).numpy(), written["vector"].to_numpy()
    ids = nearest(model, embedded, model.table(), 12)[1]
    assert np.array_equal(order_by(model.metric, *vectors), ids[embedded.owners])


def test_export_from_the_command_line(runs, tmp_path):
    for name in ("x.parquet", "x.npy"):
        told = command("index", "export", runs["query2box"], tmp_path / name).stdout
        assert told.startswith(f"500 vectors of 12 numbers written to {tmp_path / name}")
    alone = np.load(tmp_path / "x.npy")
    assert np.array_equal(alone, pl.read_parquet(tmp_path / "x.parquet")["vector"].to_numpy())
    wrong = run("index", "export", runs["query2box"], tmp_path / "x.csv").exception
    assert "x.csv is neither .parquet nor .npy" in str(wrong)


@pytest.fixture
def database(tmp_path, monkeypatch):
    """A connection to a PostgreSQL of its own, with pgvector."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # else importing pgserver warns
    pgserver, psycopg = pytest.importorskip("pgserver"), pytest.importorskip("psycopg")
    # Not in tmp_path: a socket needs a short path, and root's server a folder others may enter.
    server = pgserver.get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri()) as connection:
            connection.execute("CREATE EXTENSION vector")
            yield connection
    finally:
        server.cleanup()


@pytest.mark.slow
def test_pgvector_answers_as_exact_search(runs, database, tmp_path):
    command("index", "export", runs["betae"], tmp_path / "x.parquet")
    database.execute("CREATE TABLE x (id int, entity text, label text, vector vector(9))")
    with database.cursor().copy("COPY x FROM STDIN") as copy:
        for *names, vector in pl.read_parquet(tmp_path / "x.parquet").iter_rows():
            copy.write_row([*names, json.dumps(vector)])
    model = load_model(RunFolder(runs["betae"]).best_model()).requires_grad_(False)
    embedded = embed(model, [one[:1] for one in random_branches(model, 24)])  # no unions
    ids = nearest(model, embedded, model.table(), 10)[1]
    for owner, vector in zip(embedded.owners, model.set_vectors(embedded.sets), strict=True):
        sql = "SELECT id FROM x ORDER BY vector <#> %s::vector LIMIT 10"
        rows = database.execute(sql, [json.dumps(vector.tolist())]).fetchall()
        assert [row[0] for row in rows] == ids[owner].tolist()
