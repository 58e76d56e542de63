"""Literals: what entities have besides edges, such as numbers, dates and text.

A row says that a subject has a value of a property. The value is its lexical form, kept to the
byte, with an RDF datatype and a language; numbers and times are there as such too, to be compared.
In a store, the rows lie in Parquet files, sorted by property, which are scanned when they are
needed.
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import polars as pl

from betae.errors import UnsupportedQuery
from betae.graph.names import ALTERNATIVE, Label, Names, Vocabulary, local_name
from betae.graph.values import COMPARED, CONTAINS, EXAMPLES, Value, kind_of, spell_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
ALT_LABEL = "http://www.w3.org/2004/02/skos/core#altLabel"
LABELS = {  # property -> rank of the label, the best is 0
    RDFS_LABEL: 0,
    "http://www.w3.org/2004/02/skos/core#prefLabel": 0,
    "http://xmlns.com/foaf/0.1/name": 1,
    "label": 0,  # of a node table
    "name": 1,
    "http://schema.org/name": 1,
    "https://schema.org/name": 1,
    ALT_LABEL: ALTERNATIVE,
}

RDF_TYPE = RDF + "type"
NAME = ""  # the datatype of what is no literal, but the name of a class
STRING = XSD + "string"
LANG_STRING = RDF + "langString"
INTEGERS = {
    XSD + name
    for name in (
        *("integer", "long", "int", "short", "byte", "nonNegativeInteger", "positiveInteger"),
        *("nonPositiveInteger", "negativeInteger"),
        *("unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"),
    )
}
NUMBERS = INTEGERS | {XSD + name for name in ("decimal", "double", "float")}
DATES = {XSD + name for name in ("date", "dateTime", "dateTimeStamp", "gYear", "gYearMonth")}
BOOLEAN, TIME, YEAR = XSD + "boolean", XSD + "time", XSD + "gYear"

# Literals as they are read: by name. A row without a property says that there is such an entity.
NAMED = dict.fromkeys(("subject", "property", "text", "datatype", "language"), pl.String())
# Literals as they are stored: by id. A relation's subject is ~id, which is negative.
STORED = {
    "property": pl.Int32(),
    "subject": pl.Int32(),
    "text": pl.String(),
    "datatype": pl.String(),
    "language": pl.String(),
    "number": pl.Float64(),  # of numbers; 0 and 1 of booleans
    "time": pl.Datetime("us"),  # of dates and times, in UTC; a time of day is on 1970-01-01
}
ORDER = ("property", "subject", "text", "datatype", "language")
ROWS_PER_PART = 2**18
PART = "literals.{:05}.parquet"


class Literal(NamedTuple):
    """A value of an entity or a relation."""

    property: str
    text: str
    datatype: str
    language: str  # "" if none is stated


@dataclass(frozen=True)
class PropertyDescription:
    """A property: how many values of how many entities, of which types, in which range."""

    values: int
    entities: int
    datatypes: dict[str, int]  # most frequent first
    least: str | None  # of numbers or times; None if it has none
    greatest: str | None


class Literals:
    """The literals of a graph: rows of `STORED`, in memory or in the files of a store."""

    def __init__(self, properties: Names, source: pl.DataFrame | Sequence[Path]):
        self.properties, self._source = Vocabulary(properties), source

    @classmethod
    def of(cls, named: pl.DataFrame, entities: Sequence[str], relations: Sequence[str]) -> Literals:
        """Number the subjects and properties of rows of `NAMED`, and sort them.

        Subjects that are neither entities nor relations are left out.
        """
        named = named.drop_nulls("property")
        names = named["property"].unique().sort().to_list()
        found = (
            named.lazy()
            .unique()
            .join(_ids(entities, "subject", "entity"), on="subject", how="left")
            .join(_ids(relations, "subject", "relation"), on="subject", how="left")
            .join(_ids(names, "property", "number"), on="property")
            .with_columns(subject=pl.coalesce("entity", -1 - pl.col("relation")), property="number")
            .drop_nulls("subject")
            .select(ORDER)
            .sort(ORDER)
        )
        return cls(Names.from_strings(names), typed(found.collect()))

    def scan(self) -> pl.LazyFrame:
        """Return the rows, to be filtered before they are read."""
        if isinstance(self._source, pl.DataFrame):
            return self._source.lazy()
        return pl.scan_parquet([*self._source], schema=STORED)

    def named(self, entities: Sequence[str], relations: Sequence[str]) -> pl.DataFrame:
        """Return the rows by name: the columns of `NAMED`."""
        return named_rows(self.scan().collect(), self.properties, entities, relations)

    def parts(self) -> Iterator[pl.DataFrame]:
        """Iterate over the rows as the files of a store hold them."""
        if isinstance(self._source, pl.DataFrame):
            yield from self._source.iter_slices(ROWS_PER_PART)
        else:
            yield from map(pl.read_parquet, self._source)

    @cached_property
    def size(self) -> int:
        """Number of rows."""
        return int(self.scan().select(pl.len()).collect().item())

    def of_subject(self, subject: int) -> list[Literal]:
        """Return the values of an entity, or of the relation ~subject, by property."""
        rows = self.scan().filter(pl.col("subject") == subject).select(ORDER).collect()
        return [Literal(self.properties[number], *rest) for number, _, *rest in rows.iter_rows()]

    def of_property(self, property: int) -> pl.DataFrame:
        """Return the rows of entities with a property."""
        return self._rows(property).collect()

    def _rows(self, property: int) -> pl.LazyFrame:
        """Return the rows of entities with a property, not yet read."""
        return self.scan().filter(pl.col("property") == property, pl.col("subject") >= 0)

    def where(
        self, property: int, operator: str, value: Value, language: str | None = None
    ) -> NDArray[np.int32]:
        """Return the entities with a value of a property that compares so, ascending.

        A value of another kind is not equal. Raises UnsupportedQuery if all values are.
        """
        rows = self._matching(property, operator, value, language)
        return _distinct_subjects(rows)

    def matching_value(
        self, subject: int, property: int, operator: str, value: Value, language: str | None = None
    ) -> str | None:
        """Return the lexical form of a value of an entity that compares so, if it has one."""
        rows = self._matching(property, operator, value, language)
        found = rows.filter(pl.col("subject") == subject).select("text").head(1).collect()["text"]
        return found[0] if len(found) else None

    def having(self, property: int, value: Value | None = None) -> NDArray[np.int32]:
        """Return the entities with a value of a property that can be compared with `value`."""
        rows = self._rows(property) if value is None else self._comparable(property, value)[0]
        return _distinct_subjects(rows)

    def _matching(
        self, property: int, operator: str, value: Value, language: str | None
    ) -> pl.LazyFrame:
        rows, value = self._comparable(property, value)
        matching = rows.filter(_holds(operator, value, language))
        if operator != "!=":
            return matching
        of_other_kinds = self._rows(property).filter(kind_of(value) != KIND)
        return pl.concat([matching, of_other_kinds])

    def _comparable(self, property: int, value: Value) -> tuple[pl.LazyFrame, Value]:
        """Return the rows of a property that can be compared with a value, and the value."""
        rows, kind, is_year = self._rows(property), kind_of(value), pl.col("datatype") == YEAR
        kinds = rows.select(kind=KIND, is_year=is_year).unique().drop_nulls().sort("kind").collect()
        found = kinds["kind"].unique(maintain_order=True).to_list()
        has_only_years = kind not in found and kinds["is_year"].any()
        if has_only_years and type(value) is int and 0 < value <= dt.MAXYEAR:
            return rows.filter(is_year), dt.date(value, 1, 1)
        if found and kind not in found:
            holds = " and ".join(f"{each}s".removesuffix("texts") or "text" for each in found)
            shown = spell_value(value)
            remedy = f'"{shown}", in quotes' if "text" in found else EXAMPLES[found[0]]
            raise UnsupportedQuery(
                f"{local_name(self.properties[property])} holds {holds}, which {shown} cannot be "
                f"compared with: write {remedy}."
            )
        return rows.filter(kind == KIND), value

    def values(self, property: int, entities: Sequence[str]) -> pl.DataFrame:
        """Return entity, value, datatype and language; values of one kind have its type."""
        rows = self.of_property(property)
        name = pl.Series([*entities], dtype=pl.String)[rows["subject"].to_numpy()]
        return rows.select(name.alias("entity"), _value(rows), "datatype", "language")

    def classes(self) -> list[str]:
        """Return the names of the classes of node tables, sorted."""
        rows = self.scan().filter(pl.col("datatype") == NAME)
        return rows.select(pl.col("text").unique().sort()).collect()["text"].to_list()

    def members(self, name: str) -> NDArray[np.int32]:
        """Return the entities of a class of node tables, ascending."""
        is_member = (pl.col("datatype") == NAME) & (pl.col("text") == name)
        rows = self.scan().filter(is_member & (pl.col("subject") >= 0))
        return rows.select(pl.col("subject").unique().sort()).collect()["subject"].to_numpy()

    def types(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the classes of node tables, and (n, 2): entities, and the numbers of classes."""
        is_class = (pl.col("datatype") == NAME) & (pl.col("subject") >= 0)
        rows = self.scan().filter(is_class).select("subject", "text").collect()
        names = rows["text"].unique().sort()
        numbers = names.search_sorted(rows["text"])
        return names.to_list(), np.column_stack([rows["subject"], numbers]).astype(np.int64)

    def describe(self) -> dict[str, PropertyDescription]:
        """Describe every property of entities, the most frequent first."""
        of_entities = self.scan().filter(pl.col("subject") >= 0)
        # The lexical forms of the smallest and the largest, whichever they are compared by.
        value = pl.coalesce("number", pl.col("time").cast(pl.Int64).cast(pl.Float64))
        has_value = pl.col("text").filter(value.is_not_nan())
        rows = (
            of_entities.group_by("property")
            .agg(
                pl.len().alias("values"),
                pl.col("subject").n_unique().alias("entities"),
                pl.col("datatype").value_counts(sort=True).alias("datatypes"),
                has_value.sort_by(value.filter(value.is_not_nan())).first().alias("least"),
                has_value.sort_by(value.filter(value.is_not_nan())).last().alias("greatest"),
            )
            .sort([-pl.col("values").cast(pl.Int64), "property"])
            .collect()
        )
        return {
            self.properties[number]: PropertyDescription(
                values,
                entities,
                {each["datatype"]: each["count"] for each in datatypes},
                least,
                greatest,
            )
            for number, values, entities, datatypes, least, greatest in rows.iter_rows()
        }

    # ---- disk -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the parts of a store that are arrays, by name."""
        return self.properties.names.arrays("properties") if len(self.properties) else {}

    def write(self, folder: Path) -> None:
        """Write the rows to the files of a store."""
        for number, part in enumerate(self.parts()):
            write_part(part, folder, number)

    @classmethod
    def open(
        cls, folder: Path, parts: Iterable[str], arrays: Mapping[str, NDArray[Any]]
    ) -> Literals:
        """Open the literals of a store; raise KeyError if a part is missing."""
        files = sorted(folder / name for name in parts if name.endswith(".parquet"))
        if not files:
            return NO_LITERALS
        return cls(Names.from_arrays(arrays, "properties"), files)

    def fault(self, num_entities: int, num_relations: int) -> str | None:
        """Describe the first fault in the files: a right checksum does not prove sound content."""
        if fault := self.properties.names.fault("properties", len(self.properties)):
            return fault
        for file in () if isinstance(self._source, pl.DataFrame) else self._source:
            try:
                if pl.read_parquet_schema(file) != STORED:
                    return f"{file.name} has other columns than literals"
            except (pl.exceptions.PolarsError, OSError) as error:
                return f"{file.name} is not a Parquet file ({str(error).splitlines()[0]})"
        subject, number = pl.col("subject"), pl.col("property")
        is_wrong = ~(
            subject.is_between(-num_relations, num_entities - 1)
            & number.is_between(0, len(self.properties) - 1)
        )
        wrong = self.scan().select(is_wrong.fill_null(True).any()).collect().item()
        return "the literals have an id that is not in the graph" if wrong else None


def write_part(part: pl.DataFrame, folder: Path, number: int) -> None:
    """Write rows of `STORED` to a file of a store; a full disk is an OSError."""
    buffer = io.BytesIO()  # polars' errors do not tell a full disk from any other
    part.write_parquet(buffer, compression="zstd", statistics=True, row_group_size=2**17)
    (folder / PART.format(number)).write_bytes(buffer.getbuffer())


def _ids(names: Sequence[str], key: str, column: str) -> pl.LazyFrame:
    """Return names with their ids, for a join."""
    return pl.LazyFrame(
        {
            key: pl.Series(list(names), dtype=pl.String),
            column: np.arange(len(names), dtype=np.int32),
        }
    )


def named_rows(
    rows: pl.DataFrame,
    properties: Sequence[str],
    entities: Sequence[str],
    relations: Sequence[str],
) -> pl.DataFrame:
    """Return rows of `STORED` by name: the columns of `NAMED`."""
    subjects, numbers = rows["subject"].to_numpy(), rows["property"].to_numpy()
    by_id = pl.Series([*entities, *reversed(relations)], dtype=pl.String)  # ~id counts from the end
    places = np.where(subjects < 0, subjects + len(by_id), subjects)
    return rows.select(
        by_id[places].alias("subject"),
        pl.Series([*properties], dtype=pl.String)[numbers].alias("property"),
        "text",
        "datatype",
        "language",
    )


def _distinct_subjects(rows: pl.LazyFrame) -> NDArray[np.int32]:
    """Return the subjects of rows of `STORED`, ascending."""
    return rows.select(pl.col("subject").unique().sort()).collect()["subject"].to_numpy()


KIND = (  # of a row of `STORED`; null if its text is no value of its datatype
    pl.when(pl.col("datatype").is_in([*NUMBERS]))
    .then(pl.when(pl.col("number").is_not_null()).then(pl.lit("number")))
    .when(pl.col("datatype") == BOOLEAN)
    .then(pl.when(pl.col("number").is_not_null()).then(pl.lit("boolean")))
    .when(pl.col("datatype").is_in([*DATES]))
    .then(pl.when(pl.col("time").is_not_null()).then(pl.lit("date")))
    .when(pl.col("datatype") == TIME)
    .then(pl.when(pl.col("time").is_not_null()).then(pl.lit("time")))
    .otherwise(pl.lit("text"))
)
LARGEST_EXACT = 2**53  # integers above it are not all in float64
LARGEST_INTEGER = 2**127


def _holds(sign: str, value: Value, language: str | None) -> pl.Expr:
    """Compare rows of `STORED` with a value of their kind."""
    if isinstance(value, str):
        holds = pl.col("text").str.to_lowercase().str.contains(value.lower(), literal=True)
        if sign != CONTAINS:
            holds = COMPARED[sign](pl.col("text"), value)
        if language is None:
            return holds
        is_tagged = pl.col("language").fill_null("").str.to_lowercase() == language
        return holds | ~is_tagged if sign == "!=" else holds & is_tagged
    compared = COMPARED[sign]
    if isinstance(value, dt.datetime):
        return cast(pl.Expr, compared(pl.col("time"), _in_utc(value)))
    if isinstance(value, dt.date):  # a time stamp counts as its day
        is_stamp = pl.col("datatype").is_in([XSD + "dateTime", XSD + "dateTimeStamp"])
        day = pl.when(is_stamp).then(pl.col("time").dt.truncate("1d")).otherwise("time")
        return cast(pl.Expr, compared(day, dt.datetime.combine(value, dt.time())))
    if isinstance(value, dt.time):
        first_day = dt.datetime.combine(dt.date(1970, 1, 1), value)
        return cast(pl.Expr, compared(pl.col("time"), _in_utc(first_day)))
    number = pl.col("number")
    holds = compared(number, float(value)) & ((sign == "!=") | number.is_not_nan())
    if LARGEST_EXACT < abs(value) < LARGEST_INTEGER and isinstance(value, int):
        digits = pl.col("text").str.strip_chars().str.strip_prefix("+")
        exactly = compared(digits.cast(pl.Int128, strict=False), pl.lit(value, pl.Int128))
        holds = pl.when(pl.col("datatype").is_in([*INTEGERS])).then(exactly).otherwise(holds)
    return holds


def _in_utc(value: dt.datetime) -> dt.datetime:
    """Return a time in UTC, which is also that of a time without a zone."""
    return value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)


def _value(rows: pl.DataFrame) -> pl.Series:
    """Return the values of rows of `STORED`: typed if all are of one kind, else as written."""
    kinds, value = {*rows["datatype"]}, None
    if kinds <= INTEGERS:
        value = rows["text"].str.strip_chars().str.strip_prefix("+").cast(pl.Int64, strict=False)
    elif kinds <= NUMBERS:
        value = rows["number"]
    elif kinds == {BOOLEAN}:
        value = rows["number"].cast(pl.Boolean)
    elif kinds <= {XSD + "date"}:
        value = rows["text"].str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
    elif kinds == {TIME}:
        value = rows["time"].dt.time()
    elif kinds <= DATES:
        value = rows["time"].dt.replace_time_zone("UTC")
    is_whole = value is not None and not value.has_nulls()
    return (value if value is not None and is_whole else rows["text"]).alias("value")


def literals_of_labels(labels: Mapping[str, Sequence[Label]]) -> pl.DataFrame:
    """Return labels as literals by name: the one to show is `rdfs:label`."""
    rows = [
        (
            name,
            ALT_LABEL if number else RDFS_LABEL,
            label.text,
            LANG_STRING if label.language else STRING,
            label.language,
        )
        for name, listed in labels.items()
        for number, label in enumerate(listed)
    ]
    return pl.DataFrame(rows, schema=NAMED, orient="row")


NO_LITERALS = Literals(Names.from_strings([]), pl.DataFrame(schema=STORED))


# ---- lexical forms -> numbers and times ---------------------------------------------------------

NUMBER_PATTERN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
TIME_PATTERN = (
    r"^(?:(?P<date>\d{4}(?:-\d\d(?:-\d\d)?)?)T?)?(?P<clock>\d\d:\d\d:\d\d)?(?:\.(?P<part>\d+))?"
    r"(?P<zone>Z|[+-]\d\d:\d\d)?$"
)


def typed(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the columns `number` and `time` to rows with `text` and `datatype`.

    They are null where the text is no number or time, or its datatype is of another kind.
    """
    text, datatype = pl.col("text").str.strip_chars(), pl.col("datatype")
    special = {"INF": np.inf, "+INF": np.inf, "-INF": -np.inf, "NaN": np.nan}
    number = (
        pl.when(datatype.is_in([*NUMBERS]) & text.str.contains(NUMBER_PATTERN))
        .then(text.str.strip_prefix("+").cast(pl.Float64, strict=False))
        .when(datatype.is_in([XSD + "double", XSD + "float"]) & text.is_in([*special]))
        .then(text.replace_strict(special, default=None, return_dtype=pl.Float64))
        .when((datatype == BOOLEAN) & text.is_in(["true", "1"]))
        .then(1.0)
        .when((datatype == BOOLEAN) & text.is_in(["false", "0"]))
        .then(0.0)
    )
    has_time = datatype.is_in([*DATES, TIME])
    groups = pl.when(has_time).then(text).str.extract_groups(TIME_PATTERN)
    date = groups.struct["date"]
    whole = (  # a year or a month is its first day; a time of day is on the first day of 1970
        pl.when(date.is_null() & (datatype == TIME))
        .then(pl.lit("1970-01-01"))
        .otherwise(date + pl.lit("-01-01").str.slice(date.str.len_bytes() - 4))
    )
    clock = groups.struct["clock"].fill_null("00:00:00")
    fraction = groups.struct["part"].fill_null("0").str.slice(0, 6).str.pad_end(6, "0")
    zone = groups.struct["zone"].replace("Z", "+00:00").fill_null("+00:00")
    minutes = zone.str.slice(1, 2).cast(pl.Int64) * 60 + zone.str.slice(4, 2).cast(pl.Int64)
    sign = pl.when(zone.str.starts_with("-")).then(-1).otherwise(1)
    time = (whole + "T" + clock + "." + fraction).str.to_datetime(
        "%Y-%m-%dT%H:%M:%S%.6f", strict=False, time_unit="us"
    ) - pl.duration(minutes=sign * minutes)
    return rows.with_columns(number.alias("number"), time.alias("time")).cast(
        {"number": pl.Float64, "time": pl.Datetime("us")}
    )
