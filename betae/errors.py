"""Every error that `betae` raises on purpose, in one tree.

BetaeError
├── InvalidArgument       a value out of range: names it and the range
├── TripleError           an input file of triples, labels or queries: names the file, the line
├── StoreError            a folder of betae's that is missing, damaged, too new or in the way
├── QueryError
│   ├── QuerySyntaxError  puts a caret under the column
│   └── UnsupportedQuery  says which part cannot be done, and what to do instead
├── ClusterError          a Ray cluster that cannot be joined, or a node of it that cannot work
├── ProcessLost           another process of a torchrun has ended: says what to do
├── TrainingStopped       training cannot continue: says at which step, and what is kept
└── UnresolvedName        a name that does not lead to one thing in the graph
    ├── UnknownEntity     offers the closest names
    ├── UnknownRelation   offers the closest names
    └── AmbiguousName     a label that several entities share: lists their ids

The command line prints the message without a traceback and exits with 2.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class BetaeError(Exception):
    """Base of all errors that betae raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is, not by its constructor's arguments: it may have to cross to another process.
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[BetaeError], args: tuple[Any, ...]) -> BetaeError:
    error = kind.__new__(kind)
    error.args = args
    return error


class InvalidArgument(BetaeError):
    """A value that is out of range."""


class TripleError(BetaeError):
    """An input file (triples, labels, queries) that cannot be read; `file`, `line` say where.

    What has no lines, such as a Parquet file, has rows: `unit` is the word for them.
    """

    def __init__(self, message: str, file: Path | str, line: int | None = None, unit: str = "line"):
        self.file, self.line = Path(file), line
        place = f"{file}" if line is None else f"{file}, {unit} {line}"
        super().__init__(f"{place}: {message}")


class StoreError(BetaeError):
    """A folder written by betae that cannot be opened, or one that cannot be written."""


class QueryError(BetaeError):
    """A question that cannot be asked as it stands."""


class QuerySyntaxError(QueryError):
    """A query text that cannot be read; `column` (from 1) says where."""

    def __init__(self, message: str, text: str, position: int):
        before, after = text[:position], text[position:]
        line = before.rpartition("\n")[2] + after.partition("\n")[0]
        self.column = len(before.rpartition("\n")[2]) + 1
        self.line = before.count("\n") + 1
        where = f"Line {self.line}: " if "\n" in text.strip() else ""
        super().__init__(f"{where}{message}\n  {line}\n  {' ' * (self.column - 1)}^")


class UnsupportedQuery(QueryError):
    """A query that is well written but that this form, model or graph cannot answer."""


class ClusterError(BetaeError):
    """A Ray cluster that cannot be joined, or one of whose nodes cannot do its part."""


class ProcessLost(BetaeError):
    """Another of the processes that torchrun started has ended."""


class TrainingStopped(BetaeError):
    """Training that cannot continue; the last good checkpoint is kept."""


class UnresolvedName(BetaeError):
    """A name that does not lead to exactly one entity or relation."""


class _UnknownName(UnresolvedName):
    kind = "name"

    def __init__(self, name: str, closest: Sequence[str] = ()):
        self.name, self.closest = name, tuple(closest)
        hint = f" Closest: {', '.join(map(repr, closest))}." if closest else ""
        super().__init__(f"The graph has no {self.kind} {name!r}.{hint}")


class UnknownEntity(_UnknownName):
    """No entity has this name or label."""

    kind = "entity"


class UnknownRelation(_UnknownName):
    """No relation has this name."""

    kind = "relation"


class AmbiguousName(UnresolvedName):
    """Several entities share this label; use one of their ids."""

    def __init__(self, label: str, ids: Sequence[str]):
        self.label, self.ids = label, tuple(ids)
        shown = ", ".join(ids[:10]) + (", …" if len(ids) > 10 else "")
        super().__init__(f"{label!r} is the label of {len(ids)} entities: {shown}. Use an id.")
