"""`Sampling`: what chooses the clients of a round, and the check of one that is an object of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from headway.errors import UserError, shown

Answer = TypeVar("Answer")


class Sampling(Protocol):
    """Which clients are invited in each round.

    `draw` may be called for any round, more than once and in any order: it gives the same clients each time.
    """

    def draw(self, round: int) -> Sequence[int]:
        """The clients invited in a round, as numbers from 0 on; rounds are counted from 1.

        A user's own names at least one. A client that is named twice trains twice.
        """

    def most(self, rounds: int) -> int:
        """The largest number of clients that `draw` gives in rounds 1 to `rounds`, or a number above it."""


@dataclass(frozen=True)
class OwnSampling:
    """A sampling object of the user's, whose answers are checked."""

    given: Sampling
    population: int
    rounds: int

    def __post_init__(self) -> None:
        given = self.given
        if isinstance(given, str | type) or not all(callable(getattr(given, name, None)) for name in ("draw", "most")):
            raise UserError(
                f"sampling is {shown(given)}; give a name such as 'cyclic:4' or an object with the methods "
                "draw(round), the clients of a round, and most(rounds), the largest number of them"
            )

    @cached_property
    def _limit(self) -> int:
        return self.most(self.rounds)

    def draw(self, round: int) -> list[int]:
        where = f"draw({round}) of the own sampling"
        found = _answer(where, lambda: list(self.given.draw(round)))
        for client in found:
            if not _is_whole(client) or not 0 <= client < self.population:
                raise UserError(
                    f"{where} names {shown(client)}; clients are whole numbers from 0 to {self.population - 1}"
                )
        if not 0 < len(found) <= self._limit:
            raise UserError(
                f"{where} names {len(found)} clients; it must name at least one, and at most the {self._limit} that "
                f"most({self.rounds}) says"
            )
        return [int(client) for client in found]

    def most(self, rounds: int) -> int:
        where = f"most({rounds}) of the own sampling"
        found = _answer(where, lambda: self.given.most(rounds))
        if not _is_whole(found) or found < 1:
            raise UserError(f"{where} is {shown(found)}; it must be a whole number from 1 on")
        return int(found)


def _answer(where: str, call: Callable[[], Answer]) -> Answer:
    """What the user's method returns; what it raises, in one line."""
    try:
        return call()
    except UserError:
        raise
    except Exception as fault:
        raise UserError(f"{where} raised {type(fault).__name__}: {fault}") from fault


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
