"""Nodes and edges as objects: JSON Lines, one object a line.

An edge has a head, a relation and a tail: {"head": "a", "relation": "knows", "tail": "b"}. A node
has an id, perhaps a type, and properties: {"id": "a", "type": "Person", "age": 30}. Lines as Neo4j
exports them with APOC are read too. A value is a number, true, false, text, or an object of JSON-LD
that says more: {"@value": "1943", "@type": "http://www.w3.org/2001/XMLSchema#gYear"}.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import IO, Any

import msgspec
import polars as pl

from betae.errors import TripleError
from betae.graph.delimited import (
    ROWS_PER_BATCH,
    STRINGS,
    find_columns,
    may_be_header,
    relation_of,
)
from betae.graph.literals import BOOLEAN, LANG_STRING, NAME, NAMED, RDF_TYPE, STRING, TIME, XSD
from betae.graph.names import printable
from betae.graph.source import COLUMNS, EMPTY, ENDS, Content, Reading, Source
from betae.graph.tables import DATE, DATE_TIME, DOUBLE, INTEGER, matcher

JSON_LINES = (".jsonl", ".ndjson")
KINDS = {  # what a value is called in a note, by its datatype
    **dict.fromkeys((INTEGER, XSD + "decimal", DOUBLE), "a number"),
    **dict.fromkeys((DATE, DATE_TIME), "a date"),
    BOOLEAN: "true or false",
    TIME: "a time",
}
TEXT_DATATYPES = (DATE, DATE_TIME, TIME)
OF_TEXT = {each: matcher([each]) for each in TEXT_DATATYPES}
OF_NUMBERS = {each: matcher([each]) for each in (INTEGER, XSD + "decimal", DOUBLE)}


class Number(str):
    """A JSON number as it is written."""


def datatype_of_text(text: str) -> str:
    """Return the datatype of plain text: that of dates and times, if it is one, or a string."""
    if not text[:2].isdigit():
        return STRING
    return next((each for each, is_one in OF_TEXT.items() if is_one.match(text)), STRING)


class Objects:
    """Collects the edges and the literals of nodes, and what is to be said about them."""

    def __init__(self, name: Path | str, content: Content, unit: str = "line"):
        self.name, self.content, self.unit = name, content, unit
        self.edges: list[tuple[str, str, str]] = []
        self._literals: list[tuple[str, str | None, str | None, str, str]] = []
        # property -> what its values are called -> how many, the first one's line, and itself
        self._kinds: dict[str, dict[str, list[Any]]] = {}
        self._not_kept: dict[str, None] = {}  # properties of edges

    def __len__(self) -> int:
        return len(self.edges) + len(self._literals)

    def add_edge(self, head: str, relation: str, tail: str, others: Iterable[str] = ()) -> None:
        """Add an edge; its other properties are not kept, but named in a note."""
        self.edges.append((head, relation, tail))
        self._not_kept.update(dict.fromkeys(others))

    def add_node(
        self, name: str, classes: Iterable[str], properties: Mapping[str, Any], place: int
    ) -> None:
        """Add a node; `place` is its line or row."""
        self._literals.append((name, None, None, NAME, ""))  # says that there is the entity
        for each in classes:
            self._literals.append((name, RDF_TYPE, each, NAME, ""))
        for key, value in properties.items():
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    self._add(name, key, each, place)

    def _add(self, name: str, key: str, value: Any, place: int) -> None:
        text, datatype, language = _literal(value)
        self._literals.append((name, key, text, datatype, language))
        kinds = self._kinds.setdefault(key, {})
        kind = KINDS.get(datatype, "text")
        if kind in kinds:
            kinds[kind][0] += 1
        else:
            kinds[kind] = [1, place, text]

    def take(self) -> pl.DataFrame:
        """Return the edges so far, and move the literals to the content."""
        if self._literals:
            frame = pl.DataFrame(self._literals, schema=NAMED, orient="row")
            self.content.literals.append(frame)
            self.content.report.literals += len(frame.drop_nulls("property"))
        frame = pl.DataFrame(self.edges, schema=STRINGS, orient="row")
        self.edges, self._literals = [], []
        return frame

    def note(self) -> None:
        """Note what was not kept, and values of another kind than most of their property."""
        notes = self.content.report.notes
        if self._not_kept:
            listed = printable(", ".join(self._not_kept))
            notes.append(f"{self.name}: properties of edges are not kept: {listed}.")
        for key, kinds in self._kinds.items():
            most = max(kinds, key=lambda kind: kinds[kind][0])
            for kind, (count, place, text) in kinds.items():
                if kind != most:
                    others = f", like {count - 1:,} more values" if count > 1 else ""
                    said = f"{key} is {text!r}{others}, {kind}, but {most} elsewhere"
                    notes.append(printable(f"{self.name}, {self.unit} {place}: {said}."))


def _literal(value: Any) -> tuple[str, str, str]:
    """Return the text, datatype and language of a value."""
    if isinstance(value, Number):
        return value, next(each for each, is_one in OF_NUMBERS.items() if is_one.match(value)), ""
    if isinstance(value, str):
        return value, datatype_of_text(value), ""
    if isinstance(value, bool):
        return str(value).lower(), BOOLEAN, ""
    if isinstance(value, int):
        return str(value), INTEGER, ""
    if isinstance(value, float):
        return repr(value), DOUBLE, ""
    if isinstance(value, dict) and isinstance(value.get("@value"), str):
        language = str(value.get("@language", ""))
        return value["@value"], value.get("@type", LANG_STRING if language else STRING), language
    if hasattr(value, "iso_format"):  # dates and times of the neo4j driver
        return (text := value.iso_format()), datatype_of_text(text), ""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode(), STRING, ""
    return str(value), STRING, ""


# ---- reading ------------------------------------------------------------------------------------


def is_json_lines(source: Source) -> bool:
    """Tell whether a JSON file has one object a line, and is not JSON-LD."""
    with closing(source.lines()) as lines:
        line = next(lines, "").strip()
    return line.startswith("{") and line.endswith("}") and '"@context"' not in line


def read_objects(source: Source, content: Content, reading: Reading) -> Iterator[pl.DataFrame]:
    """Yield the edges of a file in batches; the content gets the literals of its nodes."""
    decoder = msgspec.json.Decoder(float_hook=Number)
    found, keys_of = Objects(source.path, content), _Keys(source, reading, content)
    number, is_empty = 0, True
    for number, line in enumerate(source.lines(), 1):
        if not line.strip():
            content.report.blank_lines_skipped += 1
            continue
        if reading.comment is not None and line.startswith(reading.comment):
            content.report.comments_skipped += 1
            continue
        try:
            value = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise TripleError(f"not valid JSON: {error}.", source.path, number) from error
        if not isinstance(value, dict):
            raise TripleError("not a JSON object.", source.path, number)
        try:
            keys_of.add(value, found, number)
        except ValueError as error:
            raise TripleError(str(error), source.path, number) from error
        is_empty = False
        if len(found) >= ROWS_PER_BATCH:
            yield found.take()
    if is_empty:
        raise TripleError(EMPTY, source.path)
    yield found.take()
    found.note()


class _Keys:
    """Which keys of an object say what it is."""

    def __init__(self, source: Source, reading: Reading, content: Content):
        self.source, self.reading, self.content = source, reading, content
        self.ends_of = cache(self._ends_of)

    def _ends_of(self, keys: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the keys of head, relation and tail, or of head and tail, in an edge."""
        if roles := self.reading.roles:
            names = [str(roles[column]) for column in COLUMNS if column in roles]
            return tuple(names) if all(name in keys for name in names) else None
        columns = COLUMNS if self.reading.relation is None else ENDS
        indices = find_columns(keys, columns) or find_columns(keys, ENDS)
        return None if indices is None else tuple(keys[i] for i in indices)

    def add(self, value: dict[str, Any], found: Objects, number: int) -> None:
        """Add an object; a ValueError says what is wrong with it."""
        if value.get("type") == "relationship" and isinstance(value.get("start"), dict):
            ends = (value["start"].get("id"), value.get("label"), value.get("end", {}).get("id"))
            head, relation, tail = _names(ends, ("start", "label", "end"))
            found.add_edge(head, relation, tail, value.get("properties", ()))
        elif value.get("type") == "node" and "labels" in value | {"labels": 0} and "id" in value:
            rest = value.get("properties", {})
            (name,) = _names([value["id"]], ["id"])
            found.add_node(name, _classes(value.get("labels")), rest, number)
        elif keys := self.ends_of(tuple(value)):
            names = _names([value[key] for key in keys], keys)
            if len(names) == len(ENDS):
                names.insert(1, relation_of(self.source, self.reading, self.content.report))
            head, relation, tail = names
            found.add_edge(head, relation, tail, (key for key in value if key not in keys))
        elif "id" in value:
            self._add_node(value, found, number)
        else:
            columns = ", ".join(value)
            hint = " Name its keys: --columns HEAD,RELATION,TAIL" if may_be_header([*value]) else ""
            raise ValueError(
                f"neither an edge (head, relation, tail) nor a node (id): its keys are "
                f"{printable(columns)}.{hint}"
            )

    def _add_node(self, value: dict[str, Any], found: Objects, number: int) -> None:
        (name,) = _names([value["id"]], ["id"])
        rest = {key: each for key, each in value.items() if key not in ("id", "type", "labels")}
        nested = rest.pop("properties", {})
        if not isinstance(nested, dict):
            raise ValueError("the properties are not an object.")
        classes = [*_classes(value.get("type")), *_classes(value.get("labels"))]
        found.add_node(name, classes, {**rest, **nested}, number)


def _names(values: Sequence[Any], keys: Sequence[str]) -> list[str]:
    for key, value in zip(keys, values, strict=True):
        if value is None or value == "":
            raise ValueError(f"the {key} is empty.")
        if isinstance(value, bool | dict | list):
            raise ValueError(f"the {key} is {msgspec.json.encode(value).decode()}, not a name.")
    return [str(value) for value in values]


def _classes(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [str(each) for each in listed if each is not None and each != ""]


# ---- writing ------------------------------------------------------------------------------------


def write_objects(
    edges: pl.DataFrame, file: IO[bytes], literals: pl.DataFrame, alone: Iterable[str]
) -> None:
    """Write edges, nodes with literals (by name), and those that have nothing (`alone`)."""
    encoder = msgspec.json.Encoder()
    for name, rows in _by_subject(literals):
        node: dict[str, Any] = {"id": name}
        properties: dict[str, Any] = {}
        for key, text, datatype, language in rows:
            if datatype == NAME:
                node.setdefault("type", []).append(text)
            else:
                properties.setdefault(key, []).append(_value(text, datatype, language))
        for key, values in properties.items():
            properties[key] = values[0] if len(values) == 1 else values
        if properties:
            node["properties"] = properties
        file.write(encoder.encode(node) + b"\n")
    for name in alone:
        file.write(encoder.encode({"id": name}) + b"\n")
    buffer = io.BytesIO()  # polars' errors do not tell a full disk from any other
    edges.write_ndjson(buffer)
    file.write(buffer.getbuffer())


def _by_subject(
    literals: pl.DataFrame,
) -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    last: str | None = None
    rows: list[tuple[str, str, str, str]] = []
    for subject, *rest in literals.sort("subject", maintain_order=True).iter_rows():
        if subject != last and last is not None:
            yield last, rows
            rows = []
        last = subject
        rows.append(tuple(rest))
    if last is not None:
        yield last, rows


JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
FEW_DIGITS = 18  # of an integer that JSON readers keep


def _value(text: str, datatype: str, language: str) -> Any:
    """Return the JSON value that is read as this literal."""
    if datatype in OF_NUMBERS and JSON_NUMBER.fullmatch(text) and OF_NUMBERS[datatype].match(text):
        is_exact = datatype != INTEGER or (len(text) <= FEW_DIGITS and text != "-0")
        if is_exact:
            return msgspec.Raw(text.encode())
    if datatype == BOOLEAN and text in ("true", "false"):
        return text == "true"
    if (
        not language
        and datatype in (STRING, *TEXT_DATATYPES)
        and datatype_of_text(text) == datatype
    ):
        return text
    return {"@value": text, **({"@language": language} if language else {"@type": datatype})}
