"""Folders behind addresses, copied once; file:// and memory:// stand for any object store."""

import pytest

from betae.errors import InvalidArgument, StoreError
from betae.remote import address_of, local_folder, write_back

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "betae"


@pytest.fixture
def store():
    """A folder in fsspec's file system in memory."""
    system = fsspec.filesystem("memory")
    files = {"config.json": b"{}", "best-1/weights": b"abc", "evaluations/old.json": b"[]"}
    for name, content in files.items():
        system.pipe_file(f"/bucket/run/{name}", content)
    yield system
    system.rm("/bucket", recursive=True)


def copies(cache):
    return [path for path in cache.glob("*/*") if path.is_dir()]


def test_a_path_is_as_it_is(tmp_path):
    assert local_folder(tmp_path) == tmp_path
    assert address_of(tmp_path / "run") == str(tmp_path / "run")


def test_an_address_is_copied_once_and_again_when_it_changes(store, cache):
    folder = local_folder("memory://bucket/run/")
    assert (folder / "best-1" / "weights").read_bytes() == b"abc"
    assert not (folder / "evaluations").exists()
    assert local_folder("memory://bucket/run") == folder
    assert copies(cache) == [folder]
    assert folder.name == "run"
    store.pipe_file("/bucket/run/best-1/weights", b"abd")  # as long as before
    newer = local_folder("memory://bucket/run")
    assert (newer / "best-1" / "weights").read_bytes() == b"abd"
    assert len(copies(cache)) == 2


@pytest.mark.usefixtures("store")
def test_parts_of_a_copy_have_addresses():
    folder = local_folder("memory://bucket/run")
    assert address_of(folder) == "memory://bucket/run"
    assert address_of(folder / "best-1") == "memory://bucket/run/best-1"


def test_what_is_written_back_does_not_cost_another_copy(store):
    folder = local_folder("memory://bucket/run")
    (folder / "evaluations").mkdir()
    (folder / "evaluations" / "new.json").write_text("{}")
    write_back(folder / "evaluations" / "new.json")
    assert store.cat_file("/bucket/run/evaluations/new.json") == b"{}"
    assert local_folder("memory://bucket/run") == folder


def test_a_copy_that_fails_leaves_nothing(store, cache, monkeypatch):
    def fail(*_):
        raise OSError("the line is cut")

    monkeypatch.setattr(type(store), "get_file", fail)
    with pytest.raises(StoreError, match=r"memory://bucket/run/.* cannot be copied: the line is"):
        local_folder("memory://bucket/run")
    assert copies(cache) == []


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("memory://nowhere/run", StoreError, "There is nothing at memory://nowhere/run."),
        ("nonsense://bucket/run", InvalidArgument, "nonsense://bucket/run cannot be opened"),
    ],
)
def test_addresses_that_lead_nowhere(address, error, message):
    with pytest.raises(error, match=message):
        local_folder(address)


def test_no_file_is_copied_outside(store, cache):
    store.pipe_file("/bucket/run/../../evil", b"x")
    with pytest.raises(StoreError, match=r"outside of it: \.\./\.\./evil"):
        local_folder("memory://bucket/run")
    assert not cache.exists()


@pytest.mark.usefixtures("store")
def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"Cannot write .*: Not a directory"):
        local_folder("memory://bucket/run")
