"""A condition of a theorem, checked for numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from headway.errors import UserError, shown


@dataclass(frozen=True)
class Condition:
    """What a theorem asks for: `name` as it is written there, the value found, and the limit it is held against."""

    name: str
    value: float
    holds: bool
    advice: str = ""
    """What may make it hold."""

    @property
    def words(self) -> str:
        return f"{self.name} {'holds' if self.holds else 'does not hold'}: {self.value:.4g}"


def refuse(theorem: str, conditions: Iterable[Condition]) -> None:
    """An error that names the first condition that does not hold."""
    broken = next((one for one in conditions if not one.holds), None)
    if broken is not None:
        advice = f"; {broken.advice}" if broken.advice else ""
        raise UserError(f"{theorem} says nothing here: it needs {broken.name}, and this is {broken.value:.4g}{advice}")


def check_number(name: str, value: object, *, least: float = 0.0, above: bool = False, below: float = math.inf) -> None:
    """Refuse a constant that is not a finite number in its range."""
    plain = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    fits = plain and isinstance(value, int | float) and (value > least if above else value >= least) and value < below
    if not fits:
        limit = f"{'above' if above else 'at least'} {least:g}" + (f" and below {below:g}" if below < math.inf else "")
        raise UserError(f"{name} is {shown(value)}; it must be a number {limit}")
