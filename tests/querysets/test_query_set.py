import json
import pickle
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import betae
from betae.datasets.release import read_release_queries, write_release_queries
from betae.errors import InvalidArgument, StoreError, TripleError
from betae.exact.answers import answers
from betae.graph.edges import Ragged
from betae.queries.ast import PLACEHOLDER, Entity, Not
from betae.queries.read import resolve
from betae.queries.structures import ANY, STRUCTURES, fill, num_symbols, to_tuple
from betae.querysets.query_set import QueryBlock, QuerySet
from betae.querysets.sample import sample_queries
from tests.manifests import approve_parts, edit_manifest
from tests.queries.strategies import examples

OWN = "?X . exists ?V : (_(_, ?V) | _(_, ?V)) & !_(_, ?V) & _(?V, ?X)"
FIXED = "?X . located_in(?X, Europe) & !_(_, ?X)"


@pytest.fixture(scope="module")
def world():
    return betae.world()


@pytest.fixture(scope="module")
def queries(world):
    """A few of each structure, and two of a user's own, with complements and unions."""
    counts = dict.fromkeys([*STRUCTURES, OWN, FIXED], 12)
    return sample_queries(world, counts, "test", max_answers=50, rules="release")


def content(queries):
    """Return everything a set holds, as plain data."""
    return {
        "split": queries.split,
        "graph": queries.graph_fingerprint,
        "origin": queries.origin,
        "blocks": {
            name: {
                "structure": block.structure,
                "symbols": block.symbols.tolist(),
                "shape": (block.symbols.shape, block.symbols.dtype.name),
                "easy": [row.tolist() for row in block.easy],
                "hard": [row.tolist() for row in block.hard],
            }
            for name, block in queries.blocks.items()
        },
    }


def plain(queries):
    """Return the queries, whatever block they are in, with their answers."""
    return sorted(
        (str(query), sorted(easy.tolist()), sorted(hard.tolist())) for query, easy, hard in queries
    )


# ---- in memory ----------------------------------------------------------------------------------


def test_a_set_yields_its_queries(queries, world):
    rows = list(queries)
    assert len(rows) == len(queries) == 12 * (len(STRUCTURES) + 2)
    for query, easy, hard in rows:
        assert resolve(query, world) == query
        assert set(hard.tolist()).isdisjoint(easy.tolist())
        assert len(hard) > 0
    for query, easy, hard in rows[::9]:
        known, full = (set(answers(world, query, edges)) for edges in ("train+valid", "all"))
        assert (known, full - known) == (set(easy), set(hard))
    first = queries.blocks["1p"]
    assert rows[0][0] == first.query(0) == fill(STRUCTURES["1p"], first.symbols[0].tolist())
    assert repr(queries).startswith("QuerySet(test: 12 1p, 12 2p, ")


def test_take_some_of_a_block(queries):
    block = queries.blocks["pni"]
    some = block.take(np.array([5, 0]))
    assert len(some) == 2
    for row, original in enumerate((5, 0)):
        assert some.query(row) == block.query(original)
        assert some.easy[row].tolist() == block.easy[original].tolist()
        assert some.hard[row].tolist() == block.hard[original].tolist()


def test_a_set_belongs_to_its_graph(queries, world, toy_graph):
    queries.check_graph(world)
    with pytest.raises(InvalidArgument, match="another graph") as info:
        queries.check_graph(toy_graph)
    for graph in (world, toy_graph):
        assert graph.fingerprint[:12] in str(info.value)


# ---- on disk ------------------------------------------------------------------------------------


def test_save_and_open(queries, world, tmp_path):
    queries.save(tmp_path / "set")
    opened = QuerySet.open(tmp_path / "set")
    assert content(opened) == content(queries)
    assert list(opened.blocks) == list(queries.blocks)
    opened.check_graph(world)
    assert plain(opened) == plain(queries)


@examples(40)
@given(st.data())
def test_any_set_comes_back(tmp_path_factory, data):
    """Also with empty answers, empty blocks and a split of training."""
    ids = st.lists(st.integers(0, 2**31 - 1), max_size=4)
    blocks = {}
    for name in data.draw(
        st.lists(st.sampled_from(list(STRUCTURES)), min_size=1, max_size=3, unique=True)
    ):
        width, height = num_symbols(STRUCTURES[name]), data.draw(st.integers(0, 4))
        rows = st.lists(ids, min_size=height, max_size=height)
        blocks[name] = QueryBlock(
            STRUCTURES[name],
            np.arange(width * height, dtype=np.int32).reshape(height, width),
            Ragged.from_rows(data.draw(rows)),
            Ragged.from_rows(data.draw(rows)),
        )
    split = data.draw(st.sampled_from(["train", "valid", "test"]))
    queries = QuerySet(split, blocks, "0" * 64, {"source": "a test", "seed": 3})
    folder = tmp_path_factory.mktemp("sets") / "set"
    queries.save(folder)
    assert content(QuerySet.open(folder)) == content(queries)


def test_a_block_without_queries(toy_graph, tmp_path):
    """A structure that the graph could not fill is a part of the set all the same."""
    none = "?X . in(_, ?X) & friend(_, ?X)"
    queries = sample_queries(toy_graph, {none: 5, "1p": 5})
    assert [len(block) for block in queries.blocks.values()] == [0, 5]
    queries.save(tmp_path / "set")
    opened = QuerySet.open(tmp_path / "set")
    assert content(opened) == content(queries)
    assert len(opened) == 5
    assert opened.origin["report"][none]["sampled"] == 0


def test_the_folder_can_be_read_without_betae(queries, world, tmp_path):
    queries.save(tmp_path / "set")
    manifest = json.loads((tmp_path / "set" / "manifest.json").read_text("utf-8"))
    assert manifest["kind"] == "query set"
    assert manifest["graph"] == world.fingerprint
    assert manifest["split"] == "test"
    assert manifest["origin"]["seed"] == 0
    assert (manifest["origin"]["max_answers"], manifest["origin"]["rules"]) == (50, "release")
    assert manifest["structures"]["2in"] == "?X . _(_, ?X) & !_(_, ?X)"
    assert manifest["counts"] == dict.fromkeys(queries.blocks, 12)
    frame = pl.read_parquet(tmp_path / "set" / "queries.parquet")
    assert frame.columns == ["structure", "symbols", "easy", "hard"]
    rows = frame.filter(pl.col("structure") == "3in")
    assert rows["symbols"].to_list() == queries.blocks["3in"].symbols.tolist()
    assert rows["hard"].to_list() == [row.tolist() for row in queries.blocks["3in"].hard]


def cut(content):
    return content[: len(content) // 2]


def change_a_byte(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "truncated"),
        (lambda _: b"", "truncated"),
        (change_a_byte, "damaged"),
        (lambda content: content + b"x", "changed"),
        (None, "missing"),
    ],
)
def test_a_damaged_set(damage, message, queries, tmp_path):
    queries.save(tmp_path / "set")
    path = tmp_path / "set" / "queries.parquet"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=message):
        QuerySet.open(tmp_path / "set")


def test_what_is_no_query_set(toy_store, tmp_path, queries):
    with pytest.raises(StoreError, match="manifest"):
        QuerySet.open(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="not a query set"):
        QuerySet.open(toy_store)
    queries.save(tmp_path / "set")
    manifest = tmp_path / "set" / "manifest.json"
    manifest.write_text(re.sub(r'"version": \d+', '"version": 99', manifest.read_text("utf-8")))
    with pytest.raises(StoreError, match="Upgrade"):
        QuerySet.open(tmp_path / "set")


def test_a_changed_byte_in_the_manifest_is_noticed(world, tmp_path):
    """Without its `!`, 2in would be 2i under the answers of 2in."""
    sample_queries(world, {"2in": 5}, "test").save(tmp_path / "set")
    manifest = tmp_path / "set" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("!", " "))
    with pytest.raises(StoreError, match=r"manifest\.json is damaged: its checksum"):
        QuerySet.open(tmp_path / "set")


def rewrite(folder, change):
    """Change the table of a set on disk, and its checksum with it."""
    path = folder / "queries.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    approve_parts(folder)


@pytest.mark.parametrize("column", ["anchor", "relation", "easy", "hard"])
@pytest.mark.parametrize("is_too_large", [True, False])
def test_ids_that_the_graph_does_not_have(column, is_too_large, world, tmp_path):
    queries = sample_queries(world, {"2in": 5, "2p": 5}, "test")
    block = queries.blocks["2p"]
    places = {
        "anchor": block.symbols[:, 0],
        "relation": block.symbols[:, 1],
        "easy": block.easy.values,
        "hard": block.hard.values,
    }
    limit = world.num_relations if column == "relation" else world.num_entities
    places[column][-1] = limit if is_too_large else -1
    queries.save(tmp_path / "set")
    opened = QuerySet.open(tmp_path / "set")
    with pytest.raises(InvalidArgument, match="queries 2p of the set have ids that the graph does"):
        opened.check_graph(world)


@pytest.mark.parametrize("structure", [ANY[99999], Entity(99999)[PLACEHOLDER]], ids=str)
def test_fixed_ids_have_limits_too(structure, world):
    name = str(structure)
    none = Ragged.from_rows([()])
    block = QueryBlock(structure, np.zeros((1, 1), np.int32), none, none)
    with pytest.raises(InvalidArgument, match="ids that the graph does not have"):
        QuerySet("train", {name: block}, world.fingerprint).check_graph(world)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.with_columns(pl.col("symbols").list.head(1)),
        lambda frame: frame.with_columns(pl.col("symbols").list.concat([1])),
        lambda frame: frame.drop("hard"),
        lambda frame: frame.head(3),
        lambda frame: frame.with_columns(structure=pl.lit("3p")),
        lambda frame: frame.with_columns(easy=pl.lit("a")),
    ],
)
def test_a_table_that_does_not_fit_its_manifest(change, world, tmp_path):
    sample_queries(world, {"2p": 5}).save(tmp_path / "set")
    rewrite(tmp_path / "set", change)
    with pytest.raises(StoreError, match=r"set is damaged \(.*Make the query set again"):
        QuerySet.open(tmp_path / "set")


@pytest.mark.parametrize(
    "change",
    [
        {"split": "dev"},
        {"structures": {"2p": "?X . _(_, "}},
        {"structures": {"2p": "?X . _(_, ?X)"}},
        {"structures": ["2p"]},
        {"counts": {"2p": 4}},
    ],
    ids=str,
)
def test_a_manifest_that_does_not_fit_its_table(change, world, tmp_path):
    sample_queries(world, {"2p": 5}).save(tmp_path / "set")
    edit_manifest(tmp_path / "set", lambda manifest: manifest.update(change))
    with pytest.raises(StoreError, match=r"set\S* is damaged"):
        QuerySet.open(tmp_path / "set")


def test_an_existing_folder_is_kept(queries, world, tmp_path):
    queries.save(tmp_path / "set")
    other = sample_queries(world, {"1p": 3})
    with pytest.raises(StoreError, match="already exists"):
        other.save(tmp_path / "set")
    assert content(QuerySet.open(tmp_path / "set")) == content(queries)
    other.save(tmp_path / "set", overwrite=True)
    assert content(QuerySet.open(tmp_path / "set")) == content(other)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(StoreError, match="left alone"):
        other.save(tmp_path / "mine", overwrite=True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


# ---- the release's pickles ----------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_pickles_and_back(split, world, tmp_path):
    queries = sample_queries(world, dict.fromkeys([*STRUCTURES, OWN], 15), split)
    write_release_queries(queries, tmp_path / "pickles")
    again = read_release_queries(world, tmp_path / "pickles", split)
    again.check_graph(world)
    assert again.split == split
    assert plain(again) == plain(queries)
    assert len(again) == 15 * (len(STRUCTURES) + 1)
    assert set(again.blocks) == {*STRUCTURES, str(queries.blocks[OWN].structure)}
    again.save(tmp_path / "set")
    assert content(QuerySet.open(tmp_path / "set")) == content(again)


def test_the_pickles_are_laid_out_as_the_release_s(queries, tmp_path):
    only = QuerySet("test", {"2in": queries.blocks["2in"]}, queries.graph_fingerprint)
    write_release_queries(only, tmp_path / "pickles")
    files = {path.name: pickle.loads(path.read_bytes()) for path in tmp_path.glob("pickles/*.pkl")}
    assert set(files) == {"test-queries.pkl", "test-easy-answers.pkl", "test-hard-answers.pkl"}
    ((key, written),) = files["test-queries.pkl"].items()
    assert key == (("e", ("r",)), ("e", ("r", "n")))
    assert written == {to_tuple(query) for query, _, _ in only}
    for query, easy, hard in only:
        (one, (first,)), (two, (second, complement)) = nested = to_tuple(query)
        assert query == Entity(one)[first] & Not(Entity(two)[second])
        assert complement == -2
        assert files["test-easy-answers.pkl"][nested] == set(easy.tolist())
        assert files["test-hard-answers.pkl"][nested] == set(hard.tolist())


def test_the_pickles_of_training_queries(world, tmp_path):
    write_release_queries(sample_queries(world, {"2p": 5}), tmp_path / "pickles")
    names = {path.name for path in tmp_path.glob("pickles/*.pkl")}
    assert names == {"train-queries.pkl", "train-answers.pkl"}


def test_easy_answers_that_are_not_stored_are_computed(queries, world, tmp_path):
    write_release_queries(
        QuerySet("test", {"2u": queries.blocks["2u"]}, world.fingerprint), tmp_path / "pickles"
    )
    with_easy = read_release_queries(world, tmp_path / "pickles")
    (tmp_path / "pickles" / "test-easy-answers.pkl").unlink()
    assert plain(read_release_queries(world, tmp_path / "pickles")) == plain(with_easy)


def test_pickles_of_a_structure_with_fixed_names(queries, world, tmp_path):
    only = QuerySet("test", {FIXED: queries.blocks[FIXED]}, world.fingerprint)
    write_release_queries(only, tmp_path / "pickles")
    assert plain(read_release_queries(world, tmp_path / "pickles")) == plain(only)


def test_pickles_of_one_structure_under_two_names(world, tmp_path):
    one, two = (sample_queries(world, {"2p": 5}, "test", seed=seed) for seed in (1, 2))
    both = QuerySet("test", {"2p": one.blocks["2p"], "more": two.blocks["2p"]}, world.fingerprint)
    write_release_queries(both, tmp_path / "pickles")
    assert plain(read_release_queries(world, tmp_path / "pickles")) == plain(both)


def test_pickles_overwrite_pickles(world, tmp_path):
    queries = sample_queries(world, {"2p": 5})
    write_release_queries(queries, tmp_path / "pickles")
    with pytest.raises(StoreError, match="already exists"):
        write_release_queries(queries, tmp_path / "pickles")
    write_release_queries(sample_queries(world, {"1p": 4}), tmp_path / "pickles", overwrite=True)
    assert len(read_release_queries(world, tmp_path / "pickles", "train")) == 4


@pytest.mark.parametrize(
    ("content", "error"),
    [(None, TripleError), (b"", TripleError), ({("e", ("x",)): {(1, (2,))}}, TripleError)],
)
def test_pickles_that_cannot_be_read(content, error, world, tmp_path):
    if content is not None:
        content = content if isinstance(content, bytes) else pickle.dumps(content)
        (tmp_path / "test-queries.pkl").write_bytes(content)
        (tmp_path / "test-hard-answers.pkl").write_bytes(pickle.dumps({}))
    with pytest.raises(error):
        read_release_queries(world, tmp_path, "test")
