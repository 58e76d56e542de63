"""Folders in an object store, or at any other fsspec address, cached on each machine.

A copy is kept under `$XDG_CACHE_HOME/betae` (`~/.cache/betae`), named by the address and the
versions of its files, so files that have changed are copied again. Only evaluations are written
back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from betae.checks import needing
from betae.errors import InvalidArgument, StoreError
from betae.storage import explaining_disk_errors, writing_folder

NOT_COPIED = ("evaluations/", "tensorboard/")  # parts of a run that are only written
# Facts that change with a file's content, as fsspec's file systems name them.
VERSION_KEYS = ("ETag", "etag", "generation", "LastModified", "mtime", "created")

_copies: dict[Path, str] = {}  # copy -> address, for those used by this process


def is_address(location: Path | str) -> bool:
    """Tell an address such as `s3://bucket/run` from a path."""
    return "://" in str(location)


def local_folder(location: Path | str) -> Path:
    """Return a folder on this machine: the path as it is, or the copy of an address."""
    if not is_address(location):
        return Path(location)
    address = str(location).rstrip("/")
    system, root = open_address(address)
    root = root.rstrip("/")
    try:
        files = {
            name.removeprefix(f"{root}/"): facts
            for name, facts in sorted(system.find(root, detail=True).items())
        }
    except Exception as error:  # each file system has errors of its own
        raise StoreError(f"{address} cannot be read: {_first_line(error)}.") from error
    files = {name: facts for name, facts in files.items() if not name.startswith(NOT_COPIED)}
    if not files:
        raise StoreError(f"There is nothing at {address}.")
    if outside := [name for name in files if ".." in Path(name).parts]:
        raise StoreError(f"{address} lists a file outside of it: {outside[0]}.")
    state = [
        (name, str(facts.get("size")), *(str(facts[key]) for key in VERSION_KEYS if key in facts))
        for name, facts in files.items()
    ]
    version = hashlib.sha256(repr((address, state)).encode()).hexdigest()[:32]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "betae"
    target = cache / version / (address.rpartition("/")[2] or "copy")  # the run's name
    with explaining_disk_errors(target), _locked(target.with_suffix(".lock")):
        if not target.is_dir():  # another process of this machine may have copied it
            _copy(system, root, files, target, address)
    _copies[target.resolve()] = address
    return target


def address_of(folder: Path) -> str:
    """Return the address that a folder was copied from, or its path."""
    path = folder.resolve()
    for copy, address in _copies.items():
        if path.is_relative_to(copy):
            return "/".join([address, *path.relative_to(copy).parts])
    return str(path)


def write_back(file: Path) -> None:
    """Upload a file of a copy to its address; do nothing for other files."""
    address = address_of(file)
    if not is_address(address):
        return
    system, path = open_address(address)
    try:
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
        system.pipe_file(path, file.read_bytes())
    except Exception as error:
        raise StoreError(f"{address} cannot be written: {_first_line(error)}.") from error


def open_address(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    with needing("fsspec", "ingest"):
        import fsspec
    try:
        system, root = fsspec.core.url_to_fs(address, use_listings_cache=False)
    except (ImportError, ValueError) as error:  # the package of the file system may be missing
        raise InvalidArgument(f"{address} cannot be opened: {_first_line(error)}.") from error
    return system, root


def _copy(system: Any, root: str, names: Iterable[str], target: Path, address: str) -> None:
    with writing_folder(target) as partial:
        for name in names:
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                system.get_file(f"{root}/{name}", str(path))
            except Exception as error:
                raise StoreError(
                    f"{address}/{name} cannot be copied: {_first_line(error)}."
                ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file against other processes of this machine (not on Windows, without flock)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
