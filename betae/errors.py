"""All errors that `betae` raises on purpose.

BetaeError
├── InvalidArgument       a value out of range: names it and the range
├── TripleError           an input file of triples, labels or queries: names the file, the line
├── StoreError            a store that is missing, damaged or too new, or a folder in the way
├── QueryError
│   ├── QuerySyntaxError  puts a caret under the column
│   └── UnsupportedQuery  names the unsupported part, and what to do instead
├── ClusterError          a Ray cluster that cannot be joined, or a node that failed
├── ProcessLost           another process of torchrun has ended
├── TrainingStopped       training cannot continue: names the step and the checkpoint kept
└── UnresolvedName        a name that does not identify one entity or relation
    ├── UnknownEntity     suggests the closest names
    ├── UnknownRelation   suggests the closest names
    ├── UnknownProperty   suggests the closest names
    ├── UnknownClass      suggests the closest names
    ├── UnknownName       of SPARQL, where it may be any of these
    └── AmbiguousName     a label that several share: lists their names

The command line prints the message without a traceback and exits with 2.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class BetaeError(Exception):
    """Base of all errors that betae raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by the constructor's arguments: errors cross to other processes.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(kind: type[BetaeError], args: tuple[Any, ...]) -> BetaeError:
    error = kind.__new__(kind)
    error.args = args
    return error


class InvalidArgument(BetaeError):
    """A value that is out of range."""


class TripleError(BetaeError):
    """An input file (triples, labels, queries) that cannot be read.

    `unit` is "row" where there are no lines, as in Parquet files.
    """

    def __init__(self, message: str, file: Path | str, line: int | None = None, unit: str = "line"):
        self.file, self.line = Path(file), line
        where = f"{file}" if line is None else f"{file}, {unit} {line}"
        super().__init__(f"{where}: {message}")


class StoreError(BetaeError):
    """A store that cannot be opened, or a folder that cannot be written."""


class QueryError(BetaeError):
    """A query that is invalid or unsupported."""


class QuerySyntaxError(QueryError):
    """A query text that cannot be parsed; `line` and `column` count from 1.

    A `hint` is what was probably meant.
    """

    def __init__(self, message: str, text: str, position: int, hint: str = ""):
        before, after = text[:position], text[position:]
        line = before.rpartition("\n")[2] + after.partition("\n")[0]
        self.column = len(before.rpartition("\n")[2]) + 1
        self.line = before.count("\n") + 1
        where = f"Line {self.line}: " if "\n" in text.strip() else ""
        shown = f"{where}{message}\n  {line}\n  {' ' * (self.column - 1)}^"
        super().__init__(f"{shown}\n{hint}" if hint else shown)


class UnsupportedQuery(QueryError):
    """A valid query that this form, model or graph cannot answer."""


class ClusterError(BetaeError):
    """A Ray cluster that cannot be joined, or a node that failed."""


class ProcessLost(BetaeError):
    """Another process of torchrun has ended."""


class TrainingStopped(BetaeError):
    """Training cannot continue; the last good checkpoint is kept."""


class UnresolvedName(BetaeError):
    """A name that does not identify exactly one entity or relation."""


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
    """No relation has this name or label."""

    kind = "relation"


class UnknownProperty(_UnknownName):
    """No entity has a value of a property of this name."""

    kind = "property"


class UnknownClass(_UnknownName):
    """No entity is of a class of this name."""

    kind = "class"


class UnknownName(_UnknownName):
    """Nothing in the graph has this name or label."""

    kind = "entity, relation or property"


class AmbiguousName(UnresolvedName):
    """Several entities, relations or properties share this label; `ids` are their names."""

    def __init__(self, label: str, ids: Sequence[str], kind: str):
        self.label, self.ids = label, tuple(ids)
        shown = ", ".join(ids[:10]) + (", …" if len(ids) > 10 else "")
        super().__init__(f"{label!r} may be any of {len(ids)} {kind}: {shown}. Use an id.")
