"""What a user waits for before the first round, in parts that have names: timed where somebody measures, else nothing.

Parts lie inside of each other: an executor that is chosen may be compiled meanwhile. Every second counts for the
innermost part, so that the parts add up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

Part = Literal["data", "model", "choosing the executor", "compiling and capturing", "first round"]
PARTS: tuple[Part, ...] = get_args(Part)


class Clock:
    """The seconds that each part took so far."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """By part."""
        self._inside: list[Part] = []
        self._since = time.perf_counter()

    def enter(self, name: Part) -> None:
        """A part begins; the one around it waits."""
        self._count()
        self._inside.append(name)

    def leave(self) -> None:
        """The innermost part is over; the one around it goes on."""
        self._count()
        self._inside.pop()

    def _count(self) -> None:
        now = time.perf_counter()
        if self._inside:
            name = self._inside[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


_RUNNING: ContextVar[Clock | None] = ContextVar("_RUNNING", default=None)
"""The clock of whoever measures the work that runs now."""


@contextmanager
def measured() -> Iterator[Clock]:
    """Time the parts of what is called inside."""
    clock = Clock()
    before = _RUNNING.set(clock)
    try:
        yield clock
    finally:
        _RUNNING.reset(before)


@contextmanager
def part(name: Part) -> Iterator[None]:
    """A part of what is waited for."""
    clock = _RUNNING.get()
    if clock is None:
        yield
        return
    clock.enter(name)
    try:
        yield
    finally:
        clock.leave()
