"""Which files a source stands for: a folder, a pattern such as `parts/*.parquet`, an address.

Addresses (`s3://`, `gs://`, `https://`, ...) go through fsspec; their files are fetched, one by
one, to be read here.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from betae.errors import InvalidArgument, TripleError
from betae.graph.source import Reading, Source, suffix_of
from betae.storage import DISK_FULL

NO_SUCH_FILE = "there is no such file."
NO_MATCH = "no file matches the pattern."
SUFFIXES = (
    *(".parquet", ".tsv", ".txt", ".csv"),
    *(".nt", ".ttl", ".nq", ".trig", ".n3", ".rdf", ".xml", ".jsonld"),
)
HIDDEN = (".", "_")  # how names begin of what is no data, such as _SUCCESS
PATTERN = "*?["


def is_address(source: str | Path) -> bool:
    """Tell whether a source is on another machine, or what fsspec takes for one."""
    return "://" in str(source)


def find_files(source: str | Path) -> list[str]:
    """Return the files of triples in a folder, those that match a pattern, or the file, sorted.

    What is within folders of a folder counts too; hidden files do not.
    """
    if not str(source):
        raise InvalidArgument("The name of a file of triples is empty.")
    if is_address(source):
        return _find_at_address(str(source))
    path = Path(source)
    if path.is_dir():
        inside = [each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file()]
        return [str(path / each) for each in _of_triples(inside, path)]
    if not path.exists() and any(mark in str(source) for mark in PATTERN):
        matches = map(Path, glob.glob(str(source), recursive=True))  # noqa: PTH207  # absolute ones
        found = sorted(str(each) for each in matches if each.is_file())
        if not found:
            raise TripleError(NO_MATCH, path)
        return found
    return [str(source)]


def _of_triples(names: list[str], folder: Path | str) -> list[str]:
    """Return the names whose endings are known and that are not hidden, sorted."""
    found = [
        name
        for name in names
        if suffix_of(Path(name)) in SUFFIXES
        and not any(part.startswith(HIDDEN) for part in PurePosixPath(name).parts)
    ]
    if not found:
        raise TripleError(
            f"the folder has no files of triples ({', '.join(SUFFIXES)}). Name the files.", folder
        )
    return sorted(found)


# ---- addresses ----------------------------------------------------------------------------------


def _find_at_address(address: str) -> list[str]:
    with _explaining(address):
        system, path = _system_of(address)
        if "*" in path:  # not ?, which begins the query of an http address
            if not (found := sorted(system.glob(path))):
                raise TripleError(NO_MATCH, address)
            return [system.unstrip_protocol(each) for each in found]
        # To ask whether an http address is a folder is to fetch it, so its ending is asked first.
        is_file = suffix_of(Path(path.partition("?")[0])) in SUFFIXES
        if is_file or not system.isdir(path):
            return [address]
        root = path.rstrip("/") + "/"
        inside = [each.removeprefix(root) for each in system.find(path)]
        return [system.unstrip_protocol(root + each) for each in _of_triples(inside, address)]
    raise AssertionError  # `_explaining` lets no error pass silently


def open_source(file: str | Path, reading: Reading, folder: Path) -> Source:
    """Find out the format of a file; what is at an address is copied into `folder` first."""
    if not is_address(file):
        return Source.of(Path(file), reading)
    copy = _fetch(str(file), folder)
    return replace(Source.of(copy, reading), path=str(file), copy=copy)


def _fetch(address: str, folder: Path) -> Path:
    """Copy the file at an address into `folder`, and return the copy; its ending is the same."""
    endings = "".join(PurePosixPath(address.partition("?")[0]).suffixes[-2:])
    copy = folder / f"fetched-{sum(1 for _ in folder.iterdir())}{endings}"
    with _explaining(address):
        system, path = _system_of(address)
        system.get_file(path, str(copy))
    return copy


def _system_of(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise InvalidArgument(
            f"To read {address}, install fsspec: pip install 'betae[ingest]'"
        ) from None
    try:
        system, path = fsspec.core.url_to_fs(address)
    except ImportError as error:  # fsspec says what to install: "Install s3fs to access S3"
        raise InvalidArgument(f"{address} cannot be read: {error}. Use pip install.") from error
    except ValueError as error:
        raise InvalidArgument(f"{address} cannot be read: {error}.") from error
    return system, path


@contextmanager
def _explaining(address: str) -> Iterator[None]:
    """Say which address failed; each backend of fsspec raises errors of its own kind."""
    try:
        yield
    except (InvalidArgument, TripleError):
        raise
    except FileNotFoundError as error:
        raise TripleError(NO_SUCH_FILE, address) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise
        why = str(error).partition("\n")[0] or type(error).__name__
        raise TripleError(f"it cannot be read ({why}).", address) from error
