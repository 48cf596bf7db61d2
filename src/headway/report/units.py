"""Bytes in the unit in which they are easily read: one unit for all numbers of a column or of an axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """A unit of bytes."""

    name: str
    bytes: float


UNITS = (Unit("TB", 1e12), Unit("GB", 1e9), Unit("MB", 1e6), Unit("kB", 1e3))
"""The largest first."""


def unit_of_column(bytes: Iterable[float], digits: int) -> Unit:
    """The largest unit in which each number has two digits that say something, with `digits` after the point."""
    known = [value for value in bytes if value > 0]
    return _largest(min(known, default=0.0) * 10 ** (digits - 1))


def unit_of_axis(most: float) -> Unit:
    """The unit of an axis that goes from 0 to a number of bytes."""
    return _largest(most)


def _largest(bytes: float) -> Unit:
    return next((unit for unit in UNITS if bytes >= unit.bytes), UNITS[-1] if bytes else UNITS[-2])
