"""Where triples come from: a file or standard input, opened, unzipped, and of which format."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from betae.errors import InvalidArgument, TripleError
from betae.graph.columns import Columns, check_columns

STANDARD_INPUT = "-"
EMPTY = "the file is empty: it has no rows."
TRUNCATED = "the gzip file is truncated. Download or copy it again."
GZIP_MAGIC = b"\x1f\x8b"
UTF_16 = "the text is UTF-16, not UTF-8. Convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW"


@dataclass(frozen=True)
class Reading:
    """How to read files of triples, where their names and first lines do not say it.

    `columns` says where head, relation and tail stand: by name, and the first line is a header; or
    by number from 1, and it is a row. `delimiter` stands between columns. Lines that begin with
    `comment` are skipped. `format` is a file ending ("csv", "nt", ...) that counts instead of the
    file's own.
    """

    columns: Columns | None = None
    delimiter: str | None = None
    comment: str | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            check_columns(self.columns)
        if self.delimiter is not None and (
            len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n'
        ):
            raise InvalidArgument(
                f"The delimiter must be one ASCII character other than a quote or a line break, "
                f"not {self.delimiter!r}."
            )
        if self.comment == "":
            raise InvalidArgument("What a comment begins with must not be empty.")


DEFAULT = Reading()


@dataclass(frozen=True)
class Source:
    """One file, or what standard input or a pipe held."""

    path: Path | str  # as messages name it
    suffix: str  # of the format: ".tsv", ".nt", ...
    content: bytes | None = None  # unzipped, of what can be read only once
    is_zipped: bool = False
    copy: Path | None = None  # of what had to be fetched or unzipped first

    @classmethod
    def of(cls, path: Path, reading: Reading = DEFAULT) -> Source:
        """Find out the format; `-` is standard input. That and pipes are read whole."""
        asked = None if reading.format is None else f".{reading.format.lower().lstrip('.')}"
        if str(path) == STANDARD_INPUT:
            name = Path("standard input")
            if sys.stdin is None:
                raise TripleError("it is closed.", name)
            return cls._once(sys.stdin.buffer.read(), name, asked, reading)
        if path.is_dir():
            raise TripleError("this is a folder. Name the files of triples.", path)
        if not path.exists():
            raise TripleError("there is no such file.", path)
        suffix = asked or suffix_of(path)
        if not path.is_file():  # a pipe, such as <(zcat facts.gz) in a shell, or a device
            return cls._once(path.read_bytes(), path, suffix, reading)
        with path.open("rb") as file:
            beginning = file.read(64)
        is_zipped = path.suffix.lower() == ".gz" or beginning.startswith(GZIP_MAGIC)
        _refuse_utf_16(beginning, path)
        return cls(path, suffix, is_zipped=is_zipped)

    @classmethod
    def _once(cls, content: bytes, name: Path, suffix: str | None, reading: Reading) -> Source:
        if content.startswith(GZIP_MAGIC):
            content = _unzip(content, name)
        _refuse_utf_16(content[:64], name)
        return cls(name, suffix or _guess(content, name, reading.delimiter), content)

    @property
    def place(self) -> Path:
        """The file to read."""
        return Path(self.path) if self.copy is None else self.copy

    def open(self) -> IO[bytes]:
        """Open it for reading, unzipped."""
        if self.content is not None:
            return io.BytesIO(self.content)
        return gzip.open(self.place) if self.is_zipped else self.place.open("rb")  # type: ignore[return-value]

    def whole(self) -> Path | io.BytesIO:
        """Return what polars reads: the file, or its unzipped content."""
        if self.content is None and not self.is_zipped:
            return self.place
        with self.open() as file:
            return io.BytesIO(file.read())

    def lines(self) -> Generator[str]:
        """Yield the decoded lines; errors name the line."""
        number = 0
        try:
            with self.open() as file:
                for number, line in enumerate(file, 1):
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise TripleError(f"not valid UTF-8 ({error.reason}).", self.path, number) from error
        except EOFError as error:
            raise TripleError(TRUNCATED, self.path, number + 1) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TripleError(f"not a valid gzip file ({error}).", self.path, number + 1) from error


def suffix_of(path: Path) -> str:
    """Return the ending that tells the format: `.nt` of `facts.nt.gz`."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def _refuse_utf_16(beginning: bytes, name: Path) -> None:
    """Raise if a file begins as UTF-16 does: with its mark, or each other byte 0."""
    halves = (beginning[::2], beginning[1::2])
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")) or (
        len(beginning) >= 4 and any(beginning) and not all(map(any, halves))
    ):
        raise TripleError(UTF_16, name)


def _unzip(content: bytes, name: Path) -> bytes:
    try:
        return gzip.decompress(content)
    except EOFError as error:
        raise TripleError(TRUNCATED, name) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TripleError(f"not a valid gzip file ({error}).", name) from error


def _guess(content: bytes, name: Path, delimiter: str | None) -> str:
    """Tell the format of what has no file name by how it begins."""
    if not content.strip():
        raise TripleError(EMPTY, name)
    if content.startswith(b"PAR1"):
        return ".parquet"
    text = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    line = text.split(b"\n", 1)[0].rstrip()
    begins = line.lower()
    if begins.startswith((b"@prefix", b"@base", b"prefix ", b"base ")):
        return ".ttl"
    if begins.startswith(b"<?xml"):
        return ".rdf"
    if line.startswith((b"<", b"_:")) and line.endswith(b".") and b"\t<" not in line[:-1]:
        return ".nt"
    if text.startswith((b"{", b"[")):
        return ".jsonld"
    if b"\t" in line or delimiter is not None:
        return ".tsv"
    if b"," in line:
        return ".csv"
    raise TripleError(
        "its format cannot be told from how it begins. Name it: --format tsv, csv, nt, ttl, ...",
        name,
    )
