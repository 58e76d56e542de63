import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from betae import BetaConfig, KnowledgeGraph, QuerySet, storage
from betae.errors import StoreError
from betae.models.store import build_model, load_model
from betae.querysets.sample import sample_queries
from betae.storage import (
    CHECKSUM,
    ArrayWriter,
    check_writable,
    manifest_checksum,
    write_arrays,
    writing_file,
    writing_folder,
)
from tests.cli.test_cli import run
from tests.manifests import approve_parts, edit_manifest
from tests.models.reference import save_model


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# ---- damage -------------------------------------------------------------------------------------


def test_a_flipped_byte_in_any_part_is_noticed(toy_store):
    parts = sorted(toy_store.glob("*.[np]*"))
    assert len(parts) == 29  # 3 of each table of names, 4 of each edges, 3 splits, labels, literals
    for part in parts:
        sound = part.read_bytes()
        for place in (0, len(sound) // 2, len(sound) - 1):
            damaged = bytearray(sound)
            damaged[place] ^= 1
            part.write_bytes(damaged)
            with pytest.raises(StoreError, match="checksum") as info:
                KnowledgeGraph.open(toy_store)
            assert str(part) in str(info.value)
        part.write_bytes(sound)
    KnowledgeGraph.open(toy_store)


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_part_is_noticed(toy_store, verify):
    for part in toy_store.glob("*.[np]*"):
        sound = part.read_bytes()
        part.write_bytes(sound[:-1])
        with pytest.raises(StoreError, match=re.escape(f"{part.name} is truncated or changed")):
            KnowledgeGraph.open(toy_store, verify=verify)
        part.write_bytes(sound)


@pytest.mark.parametrize("verify", [True, False])
def test_a_missing_part_is_noticed(toy_store, verify):
    (toy_store / "train.tails.npy").unlink()
    with pytest.raises(StoreError, match=r"train\.tails\.npy is missing"):
        KnowledgeGraph.open(toy_store, verify=verify)


def test_a_damaged_header_is_noticed_without_checksums(toy_store):
    part = toy_store / "train.npy"
    part.write_bytes(b"\0" + part.read_bytes()[1:])
    with pytest.raises(StoreError, match="damaged"):
        KnowledgeGraph.open(toy_store, verify=False)


@pytest.mark.parametrize(
    "text", ["", "{", "not json", "[]", "3", "null", "{}", '{"kind": "graph"}', b"\xff\xfe"]
)
def test_a_manifest_that_is_no_manifest(toy_store, text):
    (toy_store / "manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        KnowledgeGraph.open(toy_store)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 4}, "format version 4; this betae reads up to 3.*pip install --upgrade"),
        ({"version": "2"}, "damaged"),
        ({"kind": "checkpoint"}, "holds a checkpoint, not a graph"),
        ({"entities": 13}, "counts"),
        ({"relations": ...}, "lacks 'relations'"),
        ({"edges": {"train": 14, "valid": 2, "test": 3}}, "counts"),
        ({"parts": {}}, "lacks"),
        ({"parts": ...}, "damaged"),
        ({"parts": ["train.npy"]}, "damaged"),
        ({"fingerprint": ...}, "lacks 'fingerprint'"),
    ],
    ids=str,
)
def test_a_manifest_that_is_wrong(toy_store, changes, words):
    def change(manifest):
        manifest |= changes
        for key in [key for key, value in manifest.items() if value is ...]:
            del manifest[key]

    edit_manifest(toy_store, change)
    with pytest.raises(StoreError, match=words):
        KnowledgeGraph.open(toy_store)


def wrong_types(manifest):
    """Yield each key, at the top or in a dictionary there, with values of every other type."""
    for outer in (manifest, *(value for value in manifest.values() if isinstance(value, dict))):
        for key, sound in list(outer.items()):
            for value in (None, True, "x", 1.5, -7, 10**30, [], [7], [None], {}, {"x": None}):
                if not isinstance(value, type(sound)) or isinstance(sound, dict):
                    outer[key] = value
                    yield f"{key} = {value!r}"
                    outer[key] = sound


def save_a_graph(folder, graph):
    graph.save(folder)


def save_queries(folder, graph):
    sample_queries(graph, {"1p": 2}, "test").save(folder)


def save_a_model(folder, graph):
    config = BetaConfig(dim=4, hidden=4, layers=1)
    save_model(build_model(config, graph.num_entities, graph.num_relations), folder)


@pytest.mark.parametrize(
    ("save", "read"),
    [
        (save_a_graph, KnowledgeGraph.open),
        (save_queries, QuerySet.open),
        (save_a_model, load_model),
    ],
)
def test_a_manifest_with_a_wrong_type_anywhere(toy_graph, tmp_path, save, read):
    save(tmp_path / "store", toy_graph)
    path = tmp_path / "store" / "manifest.json"
    manifest, messages = json.loads(path.read_text()), []
    for _ in wrong_types(manifest):
        path.write_text(json.dumps(manifest | {CHECKSUM: manifest_checksum(manifest)}))
        try:
            read(tmp_path / "store")
        except StoreError as error:
            messages.append(str(error))
    assert len(messages) > 40
    assert all(str(tmp_path / "store") in message for message in messages)


NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "change",
    [
        lambda text: NESTED,
        lambda text: text.replace('"ancestors": []', f'"ancestors": {NESTED}'),
        lambda text: text.replace('"entities": 12', '"entities": ' + "9" * 10_000),
        lambda text: text.replace('"train.npy"', '"../train.npy"'),
        lambda text: text.replace('"train.npy"', r'"\ud800.npy"'),
        lambda text: text.replace('"train.npy"', r'"\u0000.npy"'),
    ],
)
def test_a_manifest_that_no_writer_makes(toy_store, change):
    path = toy_store / "manifest.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        KnowledgeGraph.open(toy_store)
    with pytest.raises(StoreError, match="not a folder that betae wrote"):
        check_writable(toy_store, overwrite=True)


def npy(header: str) -> bytes:
    """A file of numpy's with such a header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(96)


def header_of(shape: str, descr: str = "'<i4'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        npy(""),
        npy('{"descr": """'),
        npy("(" * 9000),
        npy("-" * 9000 + "1"),
        npy("{[]: 1}"),
        npy(header_of("(2**62,)")),
        npy(header_of("(-1,)")),
        npy(header_of("(True, 3)")),
        npy(header_of("(0, 3)", "[('a', 'O')]")),
        npy(header_of("(0, 3)", "'<i4,<i4'")),
        npy(header_of("(0, 3)", "'V999999999999999999'")),
        npy(header_of("(0, 3)", order="1")),
        npy(header_of("(" + "1, " * 100 + ")")),
    ],
    ids=lambda content: repr(content[10:60]),
)
def test_a_crafted_array(toy_store, content):
    (toy_store / "train.npy").write_bytes(content)
    approve_parts(toy_store)
    with pytest.raises(StoreError, match="damaged") as info:
        KnowledgeGraph.open(toy_store)
    assert "train" in str(info.value)
    assert len(str(info.value)) < 1000


def test_names_that_are_not_utf8(toy_store):
    path = toy_store / "entities.text.npy"
    sound = np.load(path)
    for changed in (sound | 0x80, np.where(np.arange(len(sound)) == 0, 0xC3, sound)):
        np.save(path, changed.astype(np.uint8))
        approve_parts(toy_store)
        with pytest.raises(StoreError, match=r"entities\.text is not valid UTF-8"):
            KnowledgeGraph.open(toy_store)


def test_a_table_without_its_text(toy_store):
    def forget(manifest):
        del manifest["parts"]["entity_labels.text.npy"]

    edit_manifest(toy_store, forget)
    with pytest.raises(StoreError, match=r"lacks 'entity_labels\.text'"):
        KnowledgeGraph.open(toy_store)


def test_a_manifest_needs_its_checksum_and_may_be_spaced_anew(toy_store):
    path = toy_store / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest))
    KnowledgeGraph.open(toy_store)
    del manifest["sha256"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=r"manifest\.json is damaged: its checksum"):
        KnowledgeGraph.open(toy_store)
    edit_manifest(toy_store, lambda manifest: manifest.update(fingerprint="0" * 64))
    assert KnowledgeGraph.open(toy_store).fingerprint == "0" * 64


def test_what_is_not_a_store(tmp_path, write):
    for path in (tmp_path, tmp_path / "nowhere", write("file.tsv", "a\tr\tb\n")):
        with pytest.raises(StoreError, match=r"is not a betae graph: it has no manifest\.json"):
            KnowledgeGraph.open(path)


# ---- large stores: what is read at each opening ------------------------------------------------


def age(path: Path, seconds: float) -> None:
    """Set when a file was modified, against now."""
    moment = time.time_ns() + int(seconds * 1e9)
    os.utime(path, ns=(moment, moment))


def damage(path: Path) -> None:
    """Change the last byte."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.fixture
def hashed(monkeypatch):
    """Take every store for a large one, and note which parts are read through."""
    read_through = []

    def spy(path):
        read_through.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(storage, "LARGE", 0)
    monkeypatch.setattr(storage, "_sha256", spy)
    return read_through


def test_a_large_store_is_read_through_only_if_asked(toy_store, hashed):
    KnowledgeGraph.open(toy_store)
    assert hashed == []
    KnowledgeGraph.open(toy_store, verify=True)
    assert sorted(hashed) == sorted(path.name for path in toy_store.glob("*.[np]*"))


def test_a_part_of_a_large_store_that_is_newer_than_its_manifest_is_read_through(toy_store, hashed):
    age(toy_store / "manifest.json", -60)
    for part in toy_store.glob("*.[np]*"):
        age(part, -61)
    age(toy_store / "test.npy", 0)
    KnowledgeGraph.open(toy_store)
    assert hashed == ["test.npy"]
    damage(toy_store / "entities.text.npy")
    with pytest.raises(StoreError, match=r"entities\.text\.npy is damaged"):
        KnowledgeGraph.open(toy_store)


def test_a_silent_change_in_a_large_store_is_found_by_a_full_check(toy_store, hashed):
    part = toy_store / "entities.text.npy"
    damage(part)
    age(part, -60)
    KnowledgeGraph.open(toy_store)
    assert hashed == []
    with pytest.raises(StoreError, match="checksum"):
        KnowledgeGraph.open(toy_store, verify=True)
    assert run("info", toy_store).exit_code == 0
    assert "checksum" in str(run("info", toy_store, "--verify").exception)


# ---- what is in the way -------------------------------------------------------------------------


def test_an_existing_target_is_left_untouched(toy_graph, toy_store):
    before = contents(toy_store.parent)
    with pytest.raises(StoreError, match="already exists"):
        toy_graph.save(toy_store)
    assert contents(toy_store.parent) == before


def test_overwrite_replaces_a_store(toy_store, write):
    from betae.graph.triples import read_triples

    (toy_store / "leftover").write_text("of the old store")
    other = KnowledgeGraph.from_triples(read_triples(write("facts.tsv", "a\tr\tb\n")))
    other.save(toy_store, overwrite=True)
    assert list(KnowledgeGraph.open(toy_store).entities) == ["a", "b"]
    assert not (toy_store / "leftover").exists()
    assert [path.name for path in toy_store.parent.iterdir()] == ["toy"]


@pytest.mark.parametrize("held", ["thesis.tex", "manifest.json"])
def test_a_folder_that_is_not_ours_is_never_overwritten(toy_graph, tmp_path, held):
    """Many programs have a manifest.json: that name alone does not make a folder betae's."""
    target = tmp_path / "mine"
    target.mkdir()
    (target / held).write_text('{"name": "my web page"}')
    for overwrite in (False, True):
        with pytest.raises(StoreError):
            toy_graph.save(target, overwrite=overwrite)
    assert contents(target) == {held: b'{"name": "my web page"}'}


def test_a_file_is_never_overwritten_by_a_store(toy_graph, write):
    target = write("file", "precious")
    for overwrite in (False, True):
        with pytest.raises(StoreError):
            toy_graph.save(target, overwrite=overwrite)
    assert target.read_text() == "precious"


def test_an_empty_folder_may_be_filled_and_parents_are_made(toy_graph, tmp_path):
    target = tmp_path / "deep" / "er" / "graph"
    toy_graph.save(target)
    empty = tmp_path / "empty"
    empty.mkdir()
    toy_graph.save(empty)
    assert KnowledgeGraph.open(target).fingerprint == KnowledgeGraph.open(empty).fingerprint
    assert not list(tmp_path.glob(".*"))


def test_a_target_below_a_file_is_refused(toy_graph, write):
    with pytest.raises(StoreError, match="Cannot write"):
        toy_graph.save(write("file", "") / "graph")


def test_check_writable_says_so_before_any_work(toy_store):
    check_writable(toy_store.with_name("new"))
    check_writable(toy_store, overwrite=True)
    with pytest.raises(StoreError):
        check_writable(toy_store)


# ---- whole or not at all ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_of_a_failed_write(tmp_path, error):
    def fail_in_a_folder():
        with writing_folder(tmp_path / "graph") as partial:
            (partial / "half.npy").write_text("half")
            raise error

    def fail_in_a_file():
        with writing_file(tmp_path / "facts.tsv") as partial:
            partial.write_text("half")
            raise error

    for fail in (fail_in_a_folder, fail_in_a_file):
        with pytest.raises(error):
            fail()
    assert list(tmp_path.iterdir()) == []


def test_the_store_appears_only_when_complete(tmp_path):
    target = tmp_path / "graph"
    with writing_folder(target) as partial:
        assert partial.parent == tmp_path  # on the same disk, so that renaming is enough
        assert not target.exists()
        (partial / "x").write_text("x")
    assert contents(target) == {"x": b"x"}


KILLED = """
import os, signal, sys
from pathlib import Path
from betae.storage import writing_file, writing_folder
target = Path(sys.argv[1])
writing = writing_file(target) if sys.argv[2] == "file" else writing_folder(target)
with writing as partial:
    (partial / "half.npy" if partial.is_dir() else partial).write_text("half")
    print("writing", flush=True)
    sys.stdin.read() if sys.argv[3] == "wait" else os.kill(os.getpid(), signal.SIGKILL)
"""


def start_writing(target, kind, then):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, target, kind, then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_write_left_is_removed_by_the_next(tmp_path, kind):
    writing = writing_file if kind == "file" else writing_folder
    target, other = tmp_path / "it", tmp_path / "it.other"
    alive = start_writing(target, kind, "wait")
    for place in (target, other):
        start_writing(place, kind, "die").communicate()
    assert len(list(tmp_path.glob(".it*"))) == 3
    with writing(target) as partial:
        (partial / "x" if kind == "folder" else partial).write_text("x")
    left = sorted(path.name for path in tmp_path.glob(".it*"))
    assert len(left) == 2  # that of the living one, and that of another target
    assert [name.startswith(".it.other.partial-") for name in left] == [True, False]
    assert f"-{alive.pid}-" in left[1]
    assert (target / "x" if kind == "folder" else target).is_file()
    alive.communicate()
    assert alive.returncode == 0  # what it was writing was there to the end


def test_an_old_store_is_removed_only_when_there_is_a_new_one(toy_store, toy_graph):
    """As if a write had been killed between moving the old store away and the new one in."""
    print_pid = [sys.executable, "-c", "import os; print(os.getpid())"]
    dead = subprocess.run(print_pid, capture_output=True, text=True, check=True).stdout.strip()
    name = storage._hidden_name(toy_store, "old").replace(f"{os.getpid()}", dead)
    old = toy_store.with_name(f"{name}x")
    toy_store.rename(old)
    with pytest.raises(RuntimeError), writing_folder(toy_store):
        raise RuntimeError
    assert (old / "manifest.json").is_file()
    toy_graph.save(toy_store)
    assert [path.name for path in toy_store.parent.iterdir()] == ["toy"]


FULL_DISK = """
import resource, signal, sys
from betae import KnowledgeGraph
from betae.errors import StoreError
from betae.graph.triples import read_triples
graph = KnowledgeGraph.from_triples(read_triples(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
try:
    {action}
except StoreError as error:
    print(error)
"""


def run_on_a_full_disk(tmp_path, action, *arguments):
    facts = tmp_path / "facts.tsv"
    facts.write_text("".join(f"entity {i}\tr\tentity {i + 1}\n" for i in range(2000)))
    return subprocess.run(
        [sys.executable, "-c", FULL_DISK.format(action=action), facts, *arguments],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_a_full_disk_is_told_and_nothing_is_left(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    said = run_on_a_full_disk(tmp_path, "graph.save(sys.argv[2])", out / "graph")
    assert "The disk is full" in said
    assert str(out / "graph") in said
    assert list(out.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
def test_an_old_store_survives_a_full_disk(tmp_path, toy_store):
    before = contents(toy_store.parent)
    said = run_on_a_full_disk(tmp_path, "graph.save(sys.argv[2], overwrite=True)", toy_store)
    assert "The disk is full" in said
    assert contents(toy_store.parent) == before
    assert [path.name for path in toy_store.parent.iterdir()] == ["toy"]
    KnowledgeGraph.open(toy_store)


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".parquet"])
def test_a_full_disk_leaves_no_half_export(tmp_path, suffix):
    out = tmp_path / "out"
    out.mkdir()
    said = run_on_a_full_disk(tmp_path, "graph.export(sys.argv[2])", out / f"facts{suffix}")
    assert "The disk is full" in said
    assert list(out.iterdir()) == []


# ---- sharing ------------------------------------------------------------------------------------


def test_arrays_are_mapped_and_read_only(toy_store):
    for verify in (True, False):
        graph = KnowledgeGraph.open(toy_store, verify=verify)
        for array in graph._arrays().values():
            assert isinstance(array.base, np.memmap)
            assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            graph.written_ids["train"][0, 0] = 1


def test_a_store_may_be_moved(toy_store, toy_graph):
    moved = toy_store.with_name("moved")
    shutil.move(toy_store, moved)
    assert KnowledgeGraph.open(moved).fingerprint == toy_graph.fingerprint


def test_a_store_is_readable_by_others(toy_store):
    assert toy_store.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.int32).reshape(4, 3),
        np.arange(100_000, dtype=np.int64),
        np.empty((0, 3), dtype=np.int32),
        np.frombuffer(b"text", dtype=np.uint8),
    ],
    ids=lambda array: f"{array.shape}",
)
def test_an_array_in_pieces_is_the_file_of_numpy(tmp_path, array):
    np.save(tmp_path / "whole.npy", array)
    write_arrays(tmp_path, {"written": array})
    with ArrayWriter(tmp_path, "pieces", array.dtype, *array.shape[1:]) as writer:
        for piece in np.array_split(array, 3):
            writer.write(piece)
    for name in ("written", "pieces"):
        assert (tmp_path / f"{name}.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
