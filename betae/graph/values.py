"""Values that literals are compared with: numbers, dates, times, booleans and text.

They are Python's own types. `read_value` and `spell_value` are their notation in a question.
"""

from __future__ import annotations

import datetime as dt
import json
import operator
import re
from collections.abc import Callable
from typing import Any, Literal

Value = bool | int | float | str | dt.date | dt.time  # a datetime is a date
Kind = Literal["boolean", "number", "date", "time", "text"]

CONTAINS = "~"
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATORS = (*COMPARED, CONTAINS)
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}  # the other signs stay
EXAMPLES: dict[Kind, str] = {  # text is in quotes
    "boolean": "true",
    "number": "200",
    "date": "1975-01-31",
    "time": "12:30:00",
}
NUMBER = re.compile(r"-?\d+(?P<rest>(\.\d*)?([eE][+-]?\d+)?)")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?P<clock>T.*)?")
TIME = re.compile(r"\d\d:\d\d(:\d\d.*)?")


def kind_of(value: Value) -> Kind:
    """Return the kind of a value: values of different kinds are not compared."""
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case dt.date():
            return "date"
        case dt.time():
            return "time"
    return "text"


def read_value(text: str) -> Value:
    """Read a word without quotes: a number, a date, a time, true or false; else it is text.

    Raises ValueError for what looks like a value but is none, such as 1975-02-30.
    """
    if text in ("true", "false"):
        return text == "true"
    if number := NUMBER.fullmatch(text):
        return float(text) if number["rest"] else int(text)
    if date := DATE.fullmatch(text):
        return dt.datetime.fromisoformat(text) if date["clock"] else dt.date.fromisoformat(text)
    return dt.time.fromisoformat(text) if TIME.fullmatch(text) else text


def spell_value(value: Value) -> str:
    """Write a value; text is in quotes."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dt.date() | dt.time():
            return value.isoformat()
    return repr(value)
