"""DuckDB, which joins, groups and sorts in bounded memory and spills to disk what does not fit."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from betae.errors import InvalidArgument
from betae.parallel import num_threads

MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?)B?|B)?", re.IGNORECASE)
LEAST_MEMORY = "512MB"
OWN_MEMORY = 150 * 10**6  # of Python, polars and numpy
SHARE = 0.75  # of the rest is for the engine, and what it does not count; pieces of arrays
MEMORY_OF_A_THREAD = 128 * 2**20
INTERRUPTED = "Query interrupted"  # by Ctrl-C, as a RuntimeError
NO_SPACE = ("No space left", "File too large", "quota", "max_temp_directory_size")


def parse_memory(text: str) -> int:
    """Read `4GB`, `512 MiB` or a number of bytes."""
    found = MEMORY.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(f"The memory is {text!r}; write it as 4GB, 500MB or 2GiB.")
    number, unit, is_binary = found.groups()
    power = " KMGT".index((unit or " ").upper())
    num_bytes = int(float(number) * (1024 if is_binary else 1000) ** power)
    if text != LEAST_MEMORY and num_bytes < parse_memory(LEAST_MEMORY):
        raise InvalidArgument(f"The memory is {text}; it must be at least {LEAST_MEMORY}.")
    return num_bytes


class Engine:
    """Tables in DuckDB; what does not fit in `memory` is in `folder`. Use it in a `with`."""

    def __init__(self, folder: Path, memory: str):
        self.memory, limit = memory, int(SHARE * (parse_memory(memory) - OWN_MEMORY))
        self._errors = duckdb = _import_duckdb()
        config: dict[str, Any] = {
            "memory_limit": f"{limit}B",
            "temp_directory": str(folder),
            "threads": max(1, min(num_threads(), limit // MEMORY_OF_A_THREAD)),
            "autoinstall_known_extensions": False,
        }
        self._connection = duckdb.connect(":memory:", config=config)
        self._connection.execute("SET enable_progress_bar = false")  # whoever calls has their own

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run(self, sql: str) -> None:
        """Execute a statement."""
        with self._explaining():
            self._connection.execute(sql)

    def row(self, sql: str) -> tuple[Any, ...]:
        """Return the one row of a query."""
        return self.rows(sql)[0]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the few rows of a query."""
        with self._explaining():
            found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
        return found

    def size(self, table: str) -> int:
        """Return the number of rows of a table."""
        return int(self.row(f"SELECT count(*) FROM {table}")[0])

    def pieces(
        self, select: str, table: str, rows_at_once: int
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield columns of a table piece by piece, in the order in which its rows were inserted."""
        for first in range(0, self.size(table), rows_at_once):
            bounds = f"rowid >= {first} AND rowid < {first + rows_at_once}"
            with self._explaining():
                found = self._connection.execute(f"SELECT {select} FROM {table} WHERE {bounds}")
                piece = found.fetchnumpy()
            yield piece

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Tell too little memory and a full disk from other errors, which are `EngineError`s."""
        try:
            yield
        except (self._errors.Error, MemoryError, RuntimeError) as error:
            if str(error) == INTERRUPTED or isinstance(error, self._errors.InterruptException):
                raise KeyboardInterrupt from error
            if any(words in str(error) for words in NO_SPACE):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            if isinstance(error, MemoryError | self._errors.OutOfMemoryException):
                raise too_little(self.memory) from error
            raise EngineError(str(error).partition("\n")[0]) from error


def too_little(memory: str) -> InvalidArgument:
    """Return the error that says so."""
    return InvalidArgument(
        f"{memory} of memory is too little for these triples. Allow more: --memory with a larger "
        "number."
    )


def _import_duckdb() -> Any:
    """Import DuckDB so that what it frees goes back to the system.

    Its allocator would keep the addresses, which count where the system limits a process.
    """
    os.environ.setdefault("DUCKDB_JE_MALLOC_CONF", "retain:false")  # it is read but once
    try:
        import duckdb
    except ImportError:
        raise InvalidArgument(
            "To ingest in bounded memory, install DuckDB: pip install 'betae[ingest]'"
        ) from None
    return duckdb


class EngineError(Exception):
    """Something that DuckDB could not do, such as reading a damaged file."""


def table_of_parquet(files: Sequence[Path]) -> str:
    """Return how SQL names the rows of Parquet files that have the same columns."""
    paths = ", ".join(quoted(glob.escape(str(file.absolute())), "'") for file in files)
    return f"read_parquet([{paths}], hive_partitioning = false)"


def quoted(text: str, mark: str = '"') -> str:
    """Return text between quotes: `"` for the name of a column, `'` for a string."""
    return mark + text.replace(mark, 2 * mark) + mark
