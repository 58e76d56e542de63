"""Folders in an object store, or at any other fsspec address, copied once to each machine.

A copy is kept under `$XDG_CACHE_HOME/betae` (`~/.cache/betae`), named by the address and the
versions of its files: once they have changed, they are copied again. Only evaluations are written
back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from betae.errors import InvalidArgument, StoreError
from betae.storage import explaining_disk_errors, writing_folder

NOT_COPIED = ("evaluations/", "tensorboard/")  # of a run: nothing reads them on the way
# What tells two versions of a file apart, as the file systems of fsspec call it.
VERSIONS = ("ETag", "etag", "generation", "LastModified", "mtime", "created")

_copies: dict[Path, str] = {}  # the copies that this process uses, and their addresses


def is_address(place: Path | str) -> bool:
    """Tell an address such as `s3://bucket/run` from a path."""
    return "://" in str(place)


def local_folder(place: Path | str) -> Path:
    """Return a folder on this machine: the path as it is, or the copy of an address."""
    if not is_address(place):
        return Path(place)
    address = str(place).rstrip("/")
    system, root = _open(address)
    try:
        files = {
            name.removeprefix(root.rstrip("/") + "/"): facts
            for name, facts in system.find(root, detail=True).items()
        }
    except Exception as error:  # each file system has errors of its own
        raise StoreError(f"{address} cannot be read: {_first_line(error)}.") from error
    files = {name: facts for name, facts in files.items() if not name.startswith(NOT_COPIED)}
    if not files:
        raise StoreError(f"There is nothing at {address}.")
    if outside := [name for name in files if ".." in Path(name).parts]:
        raise StoreError(f"{address} has a file that lies outside of it: {outside[0]}.")
    version = hashlib.sha256(repr((address, _state(files))).encode()).hexdigest()[:32]
    target = _cache() / version / (address.rpartition("/")[2] or "copy")  # a run is known by it
    _copy_once(system, root, sorted(files), target, address)
    _copies[target.resolve()] = address
    return target


def address_of(folder: Path) -> str:
    """Return where other machines find a folder: the address it was copied from, or its path."""
    path = folder.resolve()
    for copy, address in _copies.items():
        if path.is_relative_to(copy):
            return "/".join([address, *path.relative_to(copy).parts])
    return str(path)


def write_back(file: Path) -> None:
    """Write a file of a copy to its address; any other file is in its place already."""
    address = address_of(file)
    if not is_address(address):
        return
    system, place = _open(address)
    try:
        system.makedirs(place.rpartition("/")[0], exist_ok=True)
        system.pipe_file(place, file.read_bytes())
    except Exception as error:
        raise StoreError(f"{address} cannot be written: {_first_line(error)}.") from error


def _open(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise InvalidArgument(
            f"{address} needs fsspec, and the package of its file system, such as s3fs: "
            "pip install 'betae[ray]' s3fs"
        ) from error
    try:
        system, root = fsspec.core.url_to_fs(address, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise InvalidArgument(f"{address} cannot be opened: {_first_line(error)}.") from error
    return system, root


def _state(files: dict[str, dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return what changes when the files do."""
    return [
        (name, str(facts.get("size")), *(str(facts[key]) for key in VERSIONS if key in facts))
        for name, facts in sorted(files.items())
    ]


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "betae"


def _copy_once(system: Any, root: str, names: list[str], target: Path, address: str) -> None:
    """Copy the files once; other processes of this machine wait for the one that does."""
    with explaining_disk_errors(target), _locked(target.with_suffix(".lock")):
        if target.is_dir():
            return
        with writing_folder(target) as partial:
            for name in names:
                place = partial / name
                place.parent.mkdir(parents=True, exist_ok=True)
                try:
                    system.get_file(f"{root.rstrip('/')}/{name}", str(place))
                except Exception as error:
                    raise StoreError(
                        f"{address}/{name} cannot be copied: {_first_line(error)}."
                    ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep out the other processes of this machine, where there is flock (not on Windows)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
