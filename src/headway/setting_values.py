"""Values of settings: checked against their type, and written as TOML."""

from __future__ import annotations

import json
import math
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

from headway.errors import UserError, nearest, shown
from headway.scenario_names import Value


def in_type(name: str, given: object, kind: type[Value]) -> Value:
    """The value in the declared type, or a `UserError`; a number is finite, and a text can be written."""
    value = _converted(given, kind)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UserError(f"{name} is {shown(value)}; it must be of type {kind.__name__}")
    if isinstance(value, str) and not is_text(value):
        raise UserError(f"{name} is {shown(value)}; it must be UTF-8 text")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{name} is {value}; it must be a finite number")
    return value


def _converted(value: object, kind: type[Value]) -> object:
    """NumPy's numbers as Python's, and whole numbers as floats where those are due; all else as it is."""
    numpy = sys.modules.get("numpy")  # a program that has not imported NumPy has no NumPy numbers
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return value


_LIMITS: tuple[tuple[str, Callable[[Value, Value], bool], str], ...] = (
    ("least", operator.ge, "at least"),
    ("most", operator.le, "at most"),
    ("above", operator.gt, "above"),
    ("below", operator.lt, "below"),
)


def in_limits(name: str, value: Value, limits: Mapping[str, Any]) -> Value:
    """The value inside of what a setting allows (`among`, `least`, `most`, `above`, `below`), or a `UserError`."""
    if "among" in limits and value not in limits["among"]:
        allowed = ", ".join(limits["among"])
        raise UserError(f"{name} is {shown(value)}; allowed: {allowed}{nearest(str(value), limits['among'])}")
    for limit, allows, words in _LIMITS:
        if limit in limits and not allows(value, limits[limit]):
            raise UserError(f"{name} is {shown(value)}; it must be {words} {limits[limit]}")
    return value


def is_text(value: str) -> bool:
    """Whether a text can be written as UTF-8; the name of a file, which the system gives in bytes, may not be."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def toml_value(value: object) -> str:
    """A value as TOML writes it; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
