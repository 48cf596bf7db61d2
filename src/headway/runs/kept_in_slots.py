"""Whether a user's slot keeps in itself what a run computes: the next seed would begin with it, a resume without."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping

import numpy as np
from torch import Tensor

from headway.errors import UserError
from headway.methods.method import Method
from headway.methods.parts import plain_function
from headway.vectors import Vector

WHERE = {
    "server": "server_state(model, population), and return it from update",
    "broadcast": "server_state(model, population) of a server slot",
    "local": "client_state(model), and return it from finish",
    "objective": "client_state(model) of a local slot",
}
"""Where a value of a slot keeps what it needs in the next round."""


class KeptInSlots:
    """What the user's slots hold, as it was after a round.

    What a slot computes once and keeps is no state. So what changes is looked for between two rounds, and the first
    of a process does not count.
    """

    def __init__(self, method: Method) -> None:
        own = ((name, _innermost(part)) for name, part in method.parts())
        self._own = [(name, part) for name, part in own if not type(part).__module__.startswith("headway.")]
        self._before: dict[tuple[str, str], object] | None = None

    def check(self, round: int) -> None:
        """Refuse a slot in which numbers are others than after the round before."""
        if not self._own:
            return
        now = {(name, word): value for name, part in self._own for word, value in _numbers(part)}
        before, self._before = self._before, now
        changed = () if before is None else (one for one, value in now.items() if not _same(before.get(one), value))
        for name, word in changed:
            slot, _, called = name.partition(".")
            raise UserError(
                f"round {round}: '{called}' of the {slot} slot keeps '{word}' in itself; the next seed would begin "
                f"with it, and a run that goes on would begin without. Keep it in {WHERE.get(slot, WHERE['server'])}"
            )


def _innermost(part: object) -> object:
    """The user's own function or object, without what stands around it."""
    while isinstance(part, plain_function | functools.partial):
        part = part.function if isinstance(part, plain_function) else part.func
    return part


def _numbers(part: object) -> Iterator[tuple[str, object]]:
    """Attributes and closed-over variables that hold numbers, themselves or in a dictionary."""
    held = dict(getattr(part, "__dict__", {}))
    if isinstance(part, types.FunctionType):
        for word, cell in zip(part.__code__.co_freevars, part.__closure__ or (), strict=True):
            held[word] = cell.cell_contents if cell != types.CellType() else None
    for word, value in held.items():
        if isinstance(value, Mapping):
            yield from ((f"{word}[{key!r}]", _now(one)) for key, one in value.items() if _is_number(one))
        elif _is_number(value):
            yield word, _now(value)


def _is_number(value: object) -> bool:
    return isinstance(value, Tensor | Vector | np.ndarray | float | int) and not isinstance(value, bool)


def _now(value: object) -> object:
    """A value, with what says later whether it was written to."""
    if isinstance(value, Tensor):
        return value, None if value.is_inference() else value._version
    return value.copy() if isinstance(value, np.ndarray) else value


def _same(one: object, other: object) -> bool:
    """Whether a slot holds what it held: the same tensors, not written to since, and equal numbers."""
    match one, other:
        case (Tensor() as then, int(version)), (Tensor() as now, int(latest)):
            return then is now and version == latest
        case np.ndarray(), np.ndarray():
            return np.array_equal(one, other, equal_nan=True)
        case float() | int(), float() | int():
            return one == other or (one != one and other != other)
    return one is other
