"""Checks of settings: each raises InvalidArgument with the name, value and allowed range."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from betae.errors import InvalidArgument


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise unless `value` is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgument(f"{name} is {value!r}; choose one of {', '.join(choices)}.")


def check_positive(name: str, value: Any, *, whole: bool = False, or_zero: bool = False) -> None:
    """Raise unless `value` is a finite number above zero (`or_zero`: or zero), `whole` if asked."""
    kinds = int if whole else (int, float)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    is_in_range = is_number and math.isfinite(value) and (value > 0 or (or_zero and value == 0))
    if not is_in_range:
        kind = "whole number" if whole else "number"
        bound = "at least 0" if or_zero else "above 0"
        raise InvalidArgument(f"{name} is {value!r}; it must be a {kind} {bound}.")


@dataclass(frozen=True)
class Settings:
    """Base of configs: checks every int, float, bool and Literal field by its annotation.

    Numbers must be above zero; those in `or_zero` may be zero.
    """

    or_zero: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if kind in (int, float):
                check_positive(name, value, whole=kind is int, or_zero=name in self.or_zero)
            elif kind is bool and not isinstance(value, bool):
                raise InvalidArgument(f"{name} is {value!r}; it must be true or false.")
            elif get_origin(kind) is Literal:
                check_choice(name, value, get_args(kind))


def check_keys(where: str, values: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise for an unknown setting, suggesting the closest known one."""
    from rapidfuzz import process

    for name in values:
        if name not in known:
            closest = process.extractOne(name, list(known))
            hint = f" Did you mean {closest[0]!r}?" if closest else ""
            raise InvalidArgument(f"{where} has no setting {name!r}.{hint}")


@contextmanager
def needing(package: str, extra: str) -> Iterator[None]:
    """Explain a failed import of an optional package with the pip command for its extra."""
    try:
        yield
    except ImportError as error:
        raise InvalidArgument(
            f"{package} is not installed: pip install 'betae[{extra}]'."
        ) from error
