"""Folders of memory-mapped arrays that are written whole or not at all.

A store is a folder of `.npy` files and a `manifest.json` that says what it is (`kind`, `version`),
whatever its writer adds, the size and sha256 of every part, and a sha256 of the manifest itself.
Nothing here knows about graphs.
"""

import errno
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from betae.errors import StoreError

Array = NDArray[Any]
MANIFEST = "manifest.json"
CHECKSUM = "sha256"  # key of the manifest's own checksum
LARGE = 64 * 2**20  # bytes; a larger store is not read through each time it is opened
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def writing_folder(target: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` on success and vanishes on any error."""
    check_writable(target, overwrite)
    with explaining_disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target, "partial")
        partial = Path(tempfile.mkdtemp(prefix=_hidden_name(target, "partial"), dir=target.parent))
        try:
            yield partial
            partial.chmod(0o755)
            _replace(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        # Not before: the old store may be all there is, if its writer was killed between two moves.
        _remove_leftovers(target, "old")


@contextmanager
def writing_file(target: Path) -> Iterator[Path]:
    """Yield a path whose file becomes `target` on success and vanishes on any error."""
    partial = target.with_name(_hidden_name(target, "partial"))
    with explaining_disk_errors(target):
        _remove_leftovers(target, "partial")
        try:
            yield partial
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _hidden_name(target: Path, kind: str) -> str:
    """Return how names of hidden files beside `target` begin: they tell who is writing."""
    return f".{target.name}.{kind}-{platform.node()}-{os.getpid()}-"


def _remove_leftovers(target: Path, kind: str) -> None:
    """Remove what writers of `target` on this machine left behind when they were killed."""
    if not target.parent.is_dir():
        return
    by_anyone_here = _hidden_name(target, kind).removesuffix(f"{os.getpid()}-")
    for path in target.parent.iterdir():
        process, _, _ = path.name.removeprefix(by_anyone_here).partition("-")
        if not path.name.startswith(by_anyone_here) or not process.isdecimal():
            continue
        if _is_running(int(process)):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if sys.platform == "win32":  # there, signal 0 is not a harmless question
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@contextmanager
def explaining_disk_errors(target: Path) -> Iterator[None]:
    """Turn an error of the file system into a StoreError that says what was not written."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise StoreError(f"Cannot write {target}: {error.strerror or error}.") from error
        raise StoreError(
            f"The disk is full: {target} was not written and nothing else was changed. "
            "Free some space or choose another place."
        ) from error


def check_writable(target: Path, overwrite: bool = False) -> None:
    """Raise StoreError now, before any work, if `target` cannot or must not be (over)written."""
    check_place(target)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise StoreError(f"{target} already exists. Choose another folder or overwrite it.")
    try:
        _load_manifest(target / MANIFEST)
    except (OSError, ValueError):
        raise StoreError(
            f"{target} is not a folder that betae wrote, so it is left alone: move it away first."
        ) from None


def check_place(target: Path) -> None:
    """Raise StoreError now, before any work, if nothing can be written where `target` shall be."""
    with explaining_disk_errors(target), tempfile.TemporaryFile(dir=existing_folder(target)):
        pass


def existing_folder(target: Path) -> Path:
    """Return the nearest folder above `target` that is there."""
    return next(folder for folder in target.absolute().parents if folder.exists())


def check_file(target: Path) -> None:
    """Raise StoreError now, before any work, if no file can be written to `target`."""
    if target.is_dir():
        raise StoreError(f"{target} is a folder. Choose the name of a file.")
    with explaining_disk_errors(target), tempfile.TemporaryFile(dir=target.parent):
        pass


def _replace(new: Path, target: Path) -> None:
    if not target.exists():
        new.rename(target)
        return
    # A folder cannot be renamed over a full one: move the old one aside, then delete it.
    old = Path(tempfile.mkdtemp(prefix=_hidden_name(target, "old"), dir=target.parent))
    target.rename(old)  # over the empty folder just made
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_arrays(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write each array to its own file in a folder that `writing_folder` gave."""
    for name, array in arrays.items():
        array = np.ascontiguousarray(array)
        header = np.lib.format.header_data_from_array_1_0(array)
        with (folder / f"{name}.npy").open("wb") as file:
            # Not np.save: its error does not tell a full disk from any other.
            np.lib.format.write_array_header_1_0(file, header)
            file.write(array.data)


class ArrayWriter:
    """Writes an array to a `.npy` file piece by piece, for arrays that are larger than memory.

    The file is the same, to the bit, as the one that `write_arrays` makes of the whole array.
    """

    def __init__(self, folder: Path, name: str, dtype: type[np.generic], width: int | None = None):
        self._file = (folder / f"{name}.npy").open("w+b")
        self._dtype, self._width = np.dtype(dtype), width  # `width` columns, or one dimension
        self._length = 0
        self._write_header()

    def _write_header(self) -> None:
        shape = (self._length,) if self._width is None else (self._length, self._width)
        descr = np.lib.format.dtype_to_descr(self._dtype)
        # numpy leaves room in the header for a length of any number of digits.
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, piece: Array) -> None:
        """Append a piece."""
        self._file.write(np.ascontiguousarray(piece, dtype=self._dtype).data)
        self._length += len(piece)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.seek(0)
            self._write_header()


def describe_part(path: Path) -> dict[str, Any]:
    """Flush a file to disk, and return what a manifest says of it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def write_manifest(
    folder: Path,
    kind: str,
    version: int,
    facts: Mapping[str, Any],
    described: Mapping[str, Any] | None = None,
) -> None:
    """Make a store of the files in `folder`: flush them, and write their sizes and checksums.

    Those that their writers have `described` are not read again.
    """
    described = described or {}
    parts = {
        path.name: described.get(path.name) or describe_part(path)
        for path in sorted(folder.iterdir())
    }
    manifest = {"kind": kind, "version": version, **facts, "parts": parts}
    manifest[CHECKSUM] = manifest_checksum(manifest)
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())


def manifest_checksum(manifest: Mapping[str, Any]) -> str:
    """Return the sha256 of what a manifest says, its own checksum aside, however it is spaced."""
    content = json.loads(json.dumps(manifest))  # as it will be read: lists, string keys
    content.pop(CHECKSUM, None)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_manifest(folder: Path, kind: str, version: int) -> dict[str, Any]:
    """Return the manifest of a store, once it is whole, of this kind and not above `version`."""
    path = folder / MANIFEST
    try:
        manifest = _load_manifest(path)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{folder} is not a betae {kind}: it has no {MANIFEST}.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}). Make the {kind} again.") from error
    if manifest["kind"] != kind:
        raise StoreError(f"{folder} holds a {manifest['kind']}, not a {kind}.")
    if manifest["version"] > version:
        raise StoreError(
            f"{folder} has format version {manifest['version']}; this betae reads up to "
            f"{version}. Upgrade it: pip install --upgrade betae"
        )
    if manifest.get(CHECKSUM) != manifest_checksum(manifest):
        raise StoreError(
            f"{path} is damaged: its checksum does not match its content. Make the {kind} again."
        )
    return manifest


def _load_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest; raise ValueError if it is not one of betae's."""
    manifest = json.loads(path.read_text(encoding="utf-8"))
    shape = {"kind": str, "version": int, "parts": dict}
    for key, kind in shape.items():
        if not isinstance(manifest, dict) or not isinstance(manifest.get(key), kind):
            raise ValueError(f"it has no proper {key!r}")
    for name, part in manifest["parts"].items():
        if not isinstance(part, dict) or not {"bytes", "sha256"} <= part.keys():
            raise ValueError(f"it does not describe {name!r}")
    return manifest  # type: ignore[no-any-return]


def check_parts(folder: Path, manifest: Mapping[str, Any], verify: bool | None = None) -> None:
    """Check the sizes of the parts of a store, and the checksums of all (`verify`) or none.

    By default, all checksums of a store up to 64 MiB are checked, and of a larger one those of the
    parts that were modified after its manifest. The manifest is written last, so there are none
    such unless the store was changed, or copied without its times.
    """
    again = f"Make the {manifest['kind']} again."
    parts = manifest["parts"].items()
    is_large = sum(expected["bytes"] for _, expected in parts) > LARGE
    written = (folder / MANIFEST).stat().st_mtime_ns
    for name, expected in parts:
        path = folder / name
        if not path.is_file():
            raise StoreError(f"{path} is missing. {again}")
        size, modified = path.stat().st_size, path.stat().st_mtime_ns
        is_suspect = not is_large or modified > written
        if size != expected["bytes"]:
            raise StoreError(
                f"{path} is truncated or changed: {size} bytes, {expected['bytes']} expected. "
                + again
            )
        if (is_suspect if verify is None else verify) and _sha256(path) != expected["sha256"]:
            raise StoreError(
                f"{path} is damaged: its checksum does not match the manifest. {again}"
            )


def read_arrays(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Array]:
    """Memory-map the arrays of a store, read-only."""
    arrays: dict[str, Array] = {}
    for name in manifest["parts"]:
        try:
            array = np.load(folder / name, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise StoreError(f"{folder / name} is damaged: {error}.") from error
        except OSError as error:
            raise StoreError(f"{folder / name} cannot be read: {error.strerror}.") from error
        # A plain array over the mapped memory: an item of a memmap costs several times as much.
        arrays[name.removesuffix(".npy")] = np.asarray(array)
    return arrays


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error
