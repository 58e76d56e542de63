"""Sources of triples: which files a name means, how to open and unzip them, and their format.

Addresses (`s3://`, `gs://`, `https://`, ...) go through fsspec; their files are copied first.
"""

from __future__ import annotations

import glob
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, TypedDict, Union

from betae.errors import InvalidArgument, TripleError
from betae.remote import is_address, open_address
from betae.storage import DISK_FULL, MANIFEST

if TYPE_CHECKING:
    import polars as pl

STANDARD_INPUT = "-"
EMPTY = "the file is empty: it has no rows."
GZIP_MAGIC = b"\x1f\x8b"
GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
NO_SUCH_FILE = "there is no such file."
NO_MATCH = "no file matches the pattern."
SUFFIXES = (
    *(".parquet", ".tsv", ".txt", ".csv"),
    *(".nt", ".ttl", ".nq", ".trig", ".n3", ".rdf", ".xml", ".jsonld", ".jsonl", ".ndjson"),
)
SQL_ADDRESSES = ("postgresql://", "postgres://")
BOLT_ADDRESSES = tuple(
    f"{scheme}{security}://" for scheme in ("bolt", "neo4j") for security in ("", "+s", "+ssc")
)
DATABASES = (*SQL_ADDRESSES, *BOLT_ADDRESSES)
HIDDEN = (".", "_")  # first characters of files that hold no data, such as _SUCCESS
PATTERN = "*?["
COLUMNS = ("head", "relation", "tail")
ENDS = ("head", "tail")  # the columns of a file of one relation
Column = str | int  # a name, or a number from 1
TripleColumns = Mapping[str, Column] | Sequence[Column]
# A file or a table: see `betae.read`.
TripleSource = Union[str, Path, "pl.LazyFrame", Iterable[object]]
FileOrFraction = TripleSource | float
Notify = Callable[[str], None]  # called with a line of text at each step


class ReadOptions(TypedDict, total=False):
    """The options of `betae.read` and `betae.ingest`; `betae.read` describes them."""

    valid: FileOrFraction
    test: FileOrFraction
    labels: Path | str | None
    nodes: TripleSource | Sequence[TripleSource]
    seed: int
    columns: TripleColumns | None
    relation: str | None
    header: bool | None
    delimiter: str | None
    comment: str | None
    format: str | None
    tables: Sequence[str]
    node_tables: Sequence[str]
    sql: str | None
    key: str | None
    user: str | None
    password: str | None
    database: str | None
    notify: Notify


@dataclass(frozen=True)
class Reading:
    """What to read, and how: the values of `ReadOptions`."""

    valid: FileOrFraction = 0.0
    test: FileOrFraction = 0.0
    labels: Path | str | None = None
    nodes: TripleSource | Sequence[TripleSource] = ()
    seed: int = 0
    columns: TripleColumns | None = None
    relation: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    comment: str | None = None
    format: str | None = None
    tables: Sequence[str] = ()
    node_tables: Sequence[str] = ()
    sql: str | None = None
    key: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    notify: Notify = lambda _: None

    def __post_init__(self) -> None:
        if self.columns is not None:
            self._check_columns(self.roles)
        if self.relation == "":
            raise InvalidArgument("The name of the relation is empty.")
        if self.delimiter is not None and (
            len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n'
        ):
            raise InvalidArgument(
                f"The delimiter must be one ASCII character other than a quote or a line break, "
                f"not {self.delimiter!r}."
            )
        if self.comment == "":
            raise InvalidArgument("The comment prefix must not be empty.")
        if self.seed < 0:
            raise InvalidArgument(f"The seed must be at least 0, not {self.seed}.")

    def _check_columns(self, roles: Mapping[str, Column]) -> None:
        wanted = [*roles.values()]
        kinds = {type(column) for column in wanted}
        is_named = "" not in wanted and len({*wanted}) == len(wanted) and len(kinds) == 1
        is_complete = {*roles} in ({*COLUMNS}, {*ENDS}) and len(roles) == len(self.columns or ())
        if not is_named or not is_complete:
            raise InvalidArgument(
                "Columns are given as HEAD,RELATION,TAIL or HEAD,TAIL, or as head=..., "
                "relation=..., tail=...: different ones, all by name or all by number, not "
                f"{self.columns}."
            )
        if "relation" in roles and self.relation is not None:
            raise InvalidArgument(
                f"The relation is {self.relation!r}, but {roles['relation']!r} is given as its "
                "column: leave one out."
            )
        if self.header is False and kinds == {str}:
            raise InvalidArgument("Without a header, columns are given by number: 1,2.")

    @property
    def roles(self) -> dict[str, Column]:
        """The columns by what they hold: head, tail and perhaps relation."""
        if self.columns is None or isinstance(self.columns, Mapping):
            return dict(self.columns or {})
        order = ENDS if len(self.columns) == len(ENDS) else COLUMNS
        return dict(zip(order, self.columns, strict=False))


DEFAULT = Reading()


@dataclass
class ReadReport:
    """Counts of what was read, skipped and dropped."""

    read: int = 0
    blank_lines_skipped: int = 0
    comments_skipped: int = 0
    duplicates: int = 0  # the same triple again in the same split
    repeated_across_splits: int = 0  # dropped from valid or test: in an earlier split too
    literals: int = 0  # numbers, dates, texts of entities and relations
    quoted_triples_skipped: int = 0  # RDF statements about statements
    labels_unused: int = 0  # labels of names that are in no triple
    unseen_in_train: int = 0  # entities and relations that only valid or test mention
    headers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # file -> its header's cells
    notes: list[str] = field(default_factory=list)  # on cells of node tables
    doubtful_rows: dict[str, tuple[str, ...]] = field(default_factory=dict)  # read, but a header?


@dataclass
class Content:
    """What sources hold beside triples; readers add to it.

    `literals` are frames of `betae.graph.literals.NAMED`.
    """

    prefixes: dict[str, str] = field(default_factory=dict)  # the first file wins
    literals: list[pl.DataFrame] = field(default_factory=list)
    blank_nodes: set[str] = field(default_factory=set)
    report: ReadReport = field(default_factory=ReadReport)


@dataclass(frozen=True)
class Source:
    """One file, or the content of standard input or a pipe."""

    path: Path | str  # shown in messages
    suffix: str  # of the format: ".tsv", ".nt", ...
    content: bytes | None = None  # of standard input or a pipe, unzipped
    is_zipped: bool = False
    copy: Path | None = None  # local, if the file had to be fetched or unzipped

    @classmethod
    def of(cls, path: Path, reading: Reading = DEFAULT) -> Source:
        """Detect the format; `-` is standard input, which like a pipe is read whole."""
        suffix = "" if reading.format is None else f".{reading.format.lower().lstrip('.')}"
        if str(path) == STANDARD_INPUT:
            path = Path("standard input")
            if sys.stdin is None:
                raise TripleError("it is closed.", path)
            content = sys.stdin.buffer.read()
        elif path.is_dir():
            raise TripleError("this is a folder. Name the files of triples.", path)
        elif not path.exists():
            raise TripleError(NO_SUCH_FILE, path)
        else:
            suffix = suffix or suffix_of(path)
            if path.is_file():
                with path.open("rb") as file:
                    start = file.read(64)
                _refuse_utf_16(start, path)
                is_zipped = path.suffix.lower() == ".gz" or start.startswith(GZIP_MAGIC)
                return cls(path, suffix, is_zipped=is_zipped)
            content = path.read_bytes()  # a device, or a pipe: <(zcat facts.gz) in a shell
        if content.startswith(GZIP_MAGIC):
            with explaining_gzip(path):
                content = gzip.decompress(content)
        _refuse_utf_16(content[:64], path)
        return cls(path, suffix or _guess(content, path, reading.delimiter), content)

    @property
    def local_path(self) -> Path:
        """The file to read, here."""
        return Path(self.path) if self.copy is None else self.copy

    def open(self) -> IO[bytes]:
        """Open for reading, unzipped."""
        if self.content is not None:
            return io.BytesIO(self.content)
        if self.is_zipped:
            return gzip.open(self.local_path)  # type: ignore[return-value]
        return self.local_path.open("rb")

    def whole(self) -> Path | bytes:
        """Return the file, or its unzipped content, for polars."""
        if self.content is None and not self.is_zipped:
            return self.local_path
        with self.open() as file:
            return file.read()

    def lines(self) -> Generator[str]:
        """Yield decoded lines; errors name the line."""
        number = 0
        try:
            with self.open() as file:
                for number, line in enumerate(file, 1):
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise TripleError(f"not valid UTF-8 ({error.reason}).", self.path, number) from error
        except GZIP_ERRORS as error:
            raise _gzip_error(error, self.path, number + 1) from error


def suffix_of(path: Path) -> str:
    """Return the file ending without .gz: `.nt` of `facts.nt.gz`."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def _refuse_utf_16(beginning: bytes, name: Path) -> None:
    """Raise if a file begins with the UTF-16 mark, or with every other byte 0."""
    halves = (beginning[::2], beginning[1::2])
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")) or (
        len(beginning) >= 4 and any(beginning) and not all(map(any, halves))
    ):
        raise TripleError(
            "the text is UTF-16, not UTF-8. Convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW", name
        )


@contextmanager
def explaining_gzip(name: Path | str) -> Iterator[None]:
    """Turn errors of gzip into a TripleError."""
    try:
        yield
    except GZIP_ERRORS as error:
        raise _gzip_error(error, name) from error


def _gzip_error(error: Exception, name: Path | str, line: int | None = None) -> TripleError:
    if isinstance(error, EOFError):
        return TripleError("the gzip file is truncated. Download or copy it again.", name, line)
    return TripleError(f"not a valid gzip file ({error}).", name, line)


def _guess(content: bytes, name: Path, delimiter: str | None) -> str:
    """Detect the format of content without a file name."""
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
        is_lines = line.startswith(b"{") and line.endswith(b"}") and b'"@context"' not in line
        return ".jsonl" if is_lines else ".jsonld"
    if b"\t" in line or delimiter is not None:
        return ".tsv"
    if b"," in line:
        return ".csv"
    raise TripleError("unknown format. Name it: --format tsv, csv, nt, ttl, ...", name)


# ---- files of a source --------------------------------------------------------------------------


def find_files(source: str | Path) -> list[str]:
    """Return the files of triples in a folder, those that match a pattern, or the file, sorted.

    Folders are searched recursively; hidden files are skipped.
    """
    if not str(source):
        raise InvalidArgument("The name of a file of triples is empty.")
    if str(source).startswith(DATABASES):
        return [str(source)]
    if is_address(source):
        return _find_at_address(str(source))
    path = Path(source)
    if (path / MANIFEST).is_file():
        raise TripleError("the folder has no files of triples: betae wrote it.", path)
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
    """Return the names with known endings that are not hidden, sorted."""
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
        system, path = open_address(address)
        if "*" in path:  # not ?, which begins the query of an http address
            found = sorted(system.glob(path))
        # Asking whether an http address is a folder fetches it, so look at its ending first.
        elif suffix_of(Path(path.partition("?")[0])) in SUFFIXES or not system.isdir(path):
            return [address]
        else:
            root = path.rstrip("/") + "/"
            inside = [each.removeprefix(root) for each in system.find(path)]
            found = [root + each for each in _of_triples(inside, address)]
    if not found:
        raise TripleError(NO_MATCH, address)
    return [system.unstrip_protocol(each) for each in found]


def local_source(file: str | Path, reading: Reading, folder: Path) -> Source:
    """Return the source of a file; one at an address is first copied into `folder`."""
    if not is_address(file):
        return Source.of(Path(file), reading)
    address = str(file)
    endings = "".join(PurePosixPath(address.partition("?")[0]).suffixes[-2:])
    copy = folder / f"fetched{endings}"
    with _explaining(address):
        system, path = open_address(address)
        system.get_file(path, str(copy))
    return replace(Source.of(copy, reading), path=address, copy=copy)


@contextmanager
def _explaining(address: str) -> Iterator[None]:
    """Turn the errors of fsspec's backends, of any kind, into one that names the address."""
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
