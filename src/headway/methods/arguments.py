"""The arguments of slots and methods: each range is written once, checked at construction and printed by `show`.

λ is `Momentum` wherever it stands, so `lookahead(1.2)` and `fedacg:lam=1.2` fail with the same words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar, cast, dataclass_transform, get_args, get_origin, get_type_hints

import numpy as np

from headway.errors import UserError, shown


@dataclass(frozen=True)
class Within:
    """An interval of allowed values; `open_right` leaves the upper end out, `open_left` the lower."""

    low: float = -math.inf
    high: float = math.inf
    open_left: bool = False
    open_right: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_left else value >= self.low
        below = value < self.high if self.open_right else value <= self.high
        return above and below

    def check(self, owner: str, name: str, value: object) -> None:
        """Refuse what is not a number of the interval."""
        endless = isinstance(value, int) and value.bit_length() > 1000
        if isinstance(value, bool) or not isinstance(value, int | float) or endless:
            raise UserError(f"{owner}: {name} is {shown(value)}; it must be a number with {self}")
        if not math.isfinite(value) or value not in self:
            raise UserError(f"{owner}: {name} is {value:g}; allowed: {str(self).replace('value', name)}")

    def __str__(self) -> str:
        lower = "" if self.low == -math.inf else f"{self.low:g} {'<' if self.open_left else '≤'} "
        upper = "" if self.high == math.inf else f" {'<' if self.open_right else '≤'} {self.high:g}"
        return f"{lower}value{upper}"


@dataclass(frozen=True, init=False)
class Among:
    """A few allowed words."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)

    def __contains__(self, value: object) -> bool:
        return value in self.words

    def check(self, owner: str, name: str, value: object) -> None:
        """Refuse what is not one of the words."""
        if value not in self:
            raise UserError(f"{owner}: {name} is '{value}'; allowed: {', '.join(self.words)}")

    def __str__(self) -> str:
        return "value in " + ", ".join(self.words)


Limit = Within | Among

Momentum = Annotated[float, Within(0, 1, open_right=True)]
Weight = Annotated[float, Within(0)]
Rate = Annotated[float, Within(0, open_left=True)]


def ranges(of: Callable[..., object]) -> dict[str, Limit]:
    """What each annotated argument of a slot or of a catalogue entry allows."""
    found: dict[str, Limit] = {}
    for name, hint in get_type_hints(of, include_extras=True).items():
        for option in (hint, *get_args(hint)):  # also `Weight | None`
            if get_origin(option) is Annotated:
                limits = [extra for extra in get_args(option)[1:] if isinstance(extra, Within | Among)]
                found |= {name: limits[0]} if limits else {}
    return found


def check(owner: str, of: Callable[..., object], values: Mapping[str, object]) -> None:
    """Refuse a value outside its interval, naming owner, argument, value and what is allowed."""
    hints = get_type_hints(of)
    for name, allowed in ranges(of).items():
        if values[name] is not None or type(None) not in get_args(hints[name]):
            allowed.check(owner, name, values[name])


Slot = TypeVar("Slot", bound=type)


@dataclass_transform(frozen_default=True)
def slot(cls: Slot) -> Slot:
    """A frozen dataclass that checks its arguments' ranges when it is made, and what its `_check` says of them."""
    agree = getattr(cls, "_check", None)

    def validate(self: object) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, np.generic):  # of a grid by NumPy: as Python's own numbers
                object.__setattr__(self, name, value.item())
        check(cls.__name__, cls, vars(self))
        if agree is not None:
            agree(self)

    cls.__post_init__ = validate  # type: ignore[attr-defined]
    return cast(Slot, dataclass(frozen=True)(cls))
