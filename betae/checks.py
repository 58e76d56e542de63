"""Checks of settings: each raises InvalidArgument with the name, the value and what is allowed."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from betae.errors import InvalidArgument


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise unless `value` is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgument(f"{name} is {value!r}; choose one of {', '.join(choices)}.")


def check_positive(name: str, value: Any, *, whole: bool = False, or_zero: bool = False) -> None:
    """Raise unless `value` is a number above zero (`or_zero`: not below it), whole if asked."""
    kinds = int if whole else (int, float)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    is_in_range = is_number and math.isfinite(value) and (value > 0 or (or_zero and value == 0))
    if not is_in_range:
        kind = "whole number" if whole else "number"
        bound = "at least 0" if or_zero else "above 0"
        raise InvalidArgument(f"{name} is {value!r}; it must be a {kind} {bound}.")


def check_keys(where: str, values: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise for a setting that does not exist, naming the closest that does."""
    from rapidfuzz import process

    for name in values:
        if name not in known:
            closest = process.extractOne(name, list(known))
            hint = f" Did you mean {closest[0]!r}?" if closest else ""
            raise InvalidArgument(f"{where} has no setting {name!r}.{hint}")
