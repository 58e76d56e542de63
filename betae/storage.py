"""Folders of memory-mapped arrays that are written whole or not at all.

A store is a folder of files and a `manifest.json` with its `kind` and `version`, fields of that
kind, the size and sha256 of every file, and a sha256 of the manifest itself.
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
from typing import Any, Self, TypedDict

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from betae.errors import StoreError

Array = NDArray[Any]
MANIFEST = "manifest.json"
CHECKSUM = "sha256"  # key of the manifest's own checksum
LARGE = 64 * 2**20  # bytes; checksums of a larger store are not compared at each opening
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Format versions of the kinds of stores. Version 1 of graphs had one label for each entity and no
# prefixes, version 2 no literals but labels.
VERSIONS = {
    "graph": 3,
    "query set": 1,
    "release queries": 1,
    "rules": 1,
    "model": 1,
    "index": 1,
    "report": 1,
}
_Part = TypedDict("_Part", {"bytes": int, "sha256": str})  # noqa: UP013
_Shard = TypedDict("_Shard", {"file": str, "start": int, "stop": int})  # noqa: UP013
# Fields of manifests and their types. Those with a ? may be missing.
ALL_MANIFESTS = {"kind": str, "version": int, "parts": dict[str, _Part]}
MANIFESTS: dict[str, dict[str, Any]] = {
    "graph": {
        "entities": int,
        "relations": int,
        "edges": dict[str, int],
        "fingerprint": str,
        "ancestors?": list[str],
        "held_out_of?": str,
        "prefixes?": dict[str, str],
    },
    "query set": {
        "split": str,
        "graph": str,
        "structures": dict[str, str],
        "counts": dict[str, int],
        "origin": dict,
    },
    "release queries": {"origin?": dict},
    "rules": {"graph": str, "relations?": int, "edges?": int},
    "model": {
        "model": dict,
        "entities": int,
        "relations": int,
        "graph": str,
        "progress?": dict,
        "shards?": list[_Shard],
        "stamp?": str,
    },
    "report": {},
    "index": {"index_kind": str, "index_model": str, "index_effort": int, "index_recall": float},
}


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
        # Clean up last: after a crash the old store may be the only copy.
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
    """Return the prefix of temporary files beside `target`; it names this process."""
    return f".{target.name}.{kind}-{platform.node()}-{os.getpid()}-"


def _remove_leftovers(target: Path, kind: str) -> None:
    """Remove temporary files of killed writers of `target` on this machine."""
    if not target.parent.is_dir():
        return
    prefix = _hidden_name(target, kind).removesuffix(f"{os.getpid()}-")
    for path in target.parent.iterdir():
        process, _, _ = path.name.removeprefix(prefix).partition("-")
        is_ours = path.name.startswith(prefix) and process.isdecimal()
        if not is_ours or _is_running(int(process)):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if sys.platform == "win32":  # signal 0 is not harmless there
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


@contextmanager
def explaining_disk_errors(target: Path) -> Iterator[None]:
    """Turn an error of the file system into a StoreError that names `target`."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise StoreError(f"Cannot write {target}: {error.strerror or error}.") from error
        raise StoreError(
            f"The disk is full: {target} was not written and nothing else was changed. "
            "Free some space or choose another folder."
        ) from error


def check_writable(target: Path, overwrite: bool = False) -> None:
    """Raise StoreError, before any work, if `target` cannot or must not be (over)written."""
    check_parent(target)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise StoreError(
            f"{target} already exists. Choose another folder, or replace it: --overwrite, in "
            "Python overwrite=True."
        )
    try:
        is_store = _load_manifest(target / MANIFEST) is not None
    except StoreError:
        is_store = False
    if not is_store:
        raise StoreError(
            f"{target} is not a folder that betae wrote, so it is left alone: move it away first."
        )


def check_parent(target: Path) -> None:
    """Raise StoreError, before any work, if nothing can be written beside `target`."""
    with explaining_disk_errors(target), tempfile.TemporaryFile(dir=existing_folder(target)):
        pass


def existing_folder(target: Path) -> Path:
    """Return the nearest existing folder above `target`."""
    return next(folder for folder in target.absolute().parents if folder.exists())


def check_file(target: Path) -> None:
    """Raise StoreError, before any work, if no file can be written to `target`."""
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
    """Write each array to a file of its own in a folder from `writing_folder`."""
    for name, array in arrays.items():
        with ArrayWriter(folder, name, array.dtype, *array.shape[1:]) as writer:
            writer.write(array)


class ArrayWriter:
    """Write an array that may be larger than memory to a `.npy` file in batches.

    Not `np.save`: its errors do not tell a full disk from any other.
    """

    def __init__(self, folder: Path, name: str, dtype: DTypeLike, width: int | None = None):
        self._file = (folder / f"{name}.npy").open("w+b")
        self._dtype, self._width = np.dtype(dtype), width  # `width` columns, or one dimension
        self.length = 0
        self._write_header()

    def _write_header(self) -> None:
        shape = (self.length,) if self._width is None else (self.length, self._width)
        descr = np.lib.format.dtype_to_descr(self._dtype)
        # numpy pads the header, so that a length of any number of digits fits.
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, batch: Array) -> None:
        """Append a batch of items or rows."""
        self._file.write(np.ascontiguousarray(batch, dtype=self._dtype).data)
        self.length += len(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.seek(0)
            self._write_header()


def describe_part(path: Path) -> dict[str, Any]:
    """Flush a file to disk, and return its size and checksum for a manifest."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def write_manifest(
    folder: Path,
    kind: str,
    facts: Mapping[str, Any],
    described: Mapping[str, Any] | None = None,
) -> None:
    """Make a store of the files in `folder`: flush them, and write their sizes and checksums.

    `described` has those of files that need not be read again (`describe_part`).
    """
    described = described or {}
    parts = {
        path.name: described.get(path.name) or describe_part(path)
        for path in sorted(folder.iterdir())
    }
    manifest = {"kind": kind, "version": VERSIONS[kind], **facts, "parts": parts}
    manifest[CHECKSUM] = manifest_checksum(manifest)
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())


def manifest_checksum(manifest: Mapping[str, Any]) -> str:
    """Return the sha256 of a manifest's content, whatever its spacing, without the checksum."""
    content = json.loads(json.dumps(manifest))  # as read: lists for tuples, keys as strings
    content.pop(CHECKSUM, None)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def write_checked_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with a checksum of its own, whole or not at all."""
    with writing_file(path) as partial:
        checked = {**content, CHECKSUM: manifest_checksum(content)}
        partial.write_text(json.dumps(checked, indent=2), encoding="utf-8")


def read_checked_json(path: Path, remedy: str) -> dict[str, Any] | None:
    """Read what `write_checked_json` wrote; None if there is no file, or one without checksum.

    A file whose checksum does not match is an error, which names the remedy.
    """
    content = _load_object(path, f": {remedy}.")
    if content is None or CHECKSUM not in content:
        return None
    if content.pop(CHECKSUM) != manifest_checksum(content):
        raise StoreError(f"{path} is damaged: its checksum does not match: {remedy}.")
    return content


def _load_object(path: Path, remedy: str) -> dict[str, Any] | None:
    """Read a JSON object; None if there is no file. `remedy` ends the message of an error."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False).encode()  # raises for half a surrogate pair
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}){remedy}") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged (it is not a JSON object){remedy}")
    return content


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """Read and check the manifest of a store of this kind.

    Raises StoreError unless its checksum is right and every field has its type (`MANIFESTS`).
    """
    remedy = f". Make the {kind} again."
    manifest = _load_manifest(folder / MANIFEST, remedy)
    if manifest is None:
        raise StoreError(f"{folder} is not a betae {kind}: it has no {MANIFEST}.")
    if manifest["kind"] != kind:
        raise StoreError(f"{folder} holds a {manifest['kind']}, not a {kind}.")
    if manifest["version"] > VERSIONS[kind]:
        raise StoreError(
            f"{folder} has format version {manifest['version']}; this betae reads up to "
            f"{VERSIONS[kind]}. Upgrade it: pip install --upgrade betae"
        )
    wrong = _wrong_field(manifest, MANIFESTS[kind])
    if manifest.get(CHECKSUM) != manifest_checksum(manifest):
        wrong = "its checksum does not match its content"
    if wrong:
        raise StoreError(f"{folder / MANIFEST} is damaged: {wrong}{remedy}")
    return manifest


def _load_manifest(path: Path, remedy: str = ".") -> dict[str, Any] | None:
    """Read a manifest and check the fields that all manifests have; None if there is no file."""
    manifest = _load_object(path, remedy)
    if manifest is None:
        return None
    wrong = _wrong_field(manifest, ALL_MANIFESTS)
    for name in () if wrong else manifest["parts"]:
        if name != Path(name).name or "\0" in name:
            wrong = f"{name!r} is not the name of a file in its folder"
    if wrong:
        raise StoreError(f"{path} is damaged: {wrong}{remedy}")
    return manifest


def _wrong_field(values: Mapping[str, Any], fields: Mapping[str, Any]) -> str | None:
    """Name the first field that is missing or of another type."""
    for field, kind in fields.items():
        name = field.removesuffix("?")
        try:
            if name in values:
                msgspec.convert(values[name], kind)
            elif name == field:
                return f"it lacks {name!r}"
        except msgspec.ValidationError:
            return f"{name!r} has the wrong type"
    return None


def check_parts(folder: Path, manifest: Mapping[str, Any], verify: bool | None = None) -> None:
    """Check the sizes of the parts of a store, and all (`verify=True`) or no checksums.

    By default, all checksums of a store up to 64 MiB are checked, and of a larger one those of
    parts modified after the manifest, which is written last: none, unless the store was changed or
    copied without its times.
    """
    parts = manifest["parts"].items()
    is_large = sum(expected["bytes"] for _, expected in parts) > LARGE
    written = (folder / MANIFEST).stat().st_mtime_ns
    for name, expected in parts:
        path, fault = folder / name, None
        if not path.is_file():
            fault = "missing"
        elif (size := path.stat().st_size) != expected["bytes"]:
            fault = f"truncated or changed: {size} bytes, {expected['bytes']} expected"
        else:
            is_suspect = not is_large or path.stat().st_mtime_ns > written
            is_checked = is_suspect if verify is None else verify
            if is_checked and _sha256(path) != expected["sha256"]:
                fault = "damaged: its checksum does not match the manifest"
        if fault:
            raise StoreError(f"{path} is {fault}. Make the {manifest['kind']} again.")


def read_arrays(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Array]:
    """Memory-map the arrays of a store, read-only."""
    return {
        name.removesuffix(".npy"): read_array(folder / name)
        for name in manifest["parts"]
        if name.endswith(".npy")
    }


def read_array(path: Path) -> Array:
    """Memory-map a `.npy` file, read-only."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # numpy parses the header as Python, which can raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise StoreError(f"{path} is damaged: {reason}.") from error
    # A plain array over the mapped memory: an item of a memmap costs several times as much.
    return np.asarray(array)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error
