"""Schedules: the course of the local rate over a run, written as `cosine:end=0.1,warmup=5`.

A schedule gives a share of the rate at a time x, which is counted in rounds from 0: round t begins at x = t − 1, and
step k of K in it is at x = t − 1 + k/K where the schedule goes over the steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headway.errors import UserError, nearest

if TYPE_CHECKING:
    import numpy as np

KINDS: dict[str, tuple[str, ...]] = {
    "exponential": (),
    "constant": (),
    "cosine": ("end", "rounds"),
    "linear": ("end", "rounds"),
    "step": ("every", "factor"),
}
"""The options of each kind, beside those of all: `warmup`, `start` and `over`."""
_OF_ALL = ("warmup", "start", "over")
FORMS = "exponential, constant, cosine[:end=0,rounds=T], linear[:end=0,rounds=T], step:every=N[,factor=0.1]"


@dataclass(frozen=True)
class Schedule:
    """The course of a rate. Times are in rounds and need not be whole; shares are of the rate that is set."""

    kind: str = "exponential"
    over: str = "rounds"
    """Whether the rate changes with every round, or with every local step too."""
    warmup: float = 0.0
    """How long the rate rises along a line, from the share `start` to 1; the course proper begins after it."""
    start: float = 0.01
    end: float = 0.0
    """The share at the end of `cosine` and `linear`."""
    rounds: float = 0.0
    """When these two end, the warm-up included; 0: with the run."""
    every: float = 0.0
    factor: float = 0.1
    """Of `step`: the rate is multiplied by `factor` after each `every` rounds."""

    @property
    def follows_run(self) -> bool:
        """Whether rates depend on how many rounds the run has, so that a longer run is another one from its start."""
        return self.kind in ("cosine", "linear") and not self.rounds

    def share(self, at: float, rounds: int, decay: float) -> float:
        """The share of the rate at a time, in a run of this many rounds; `decay` is the factor of `exponential`."""
        if at < self.warmup:
            return self.start + (1 - self.start) * at / self.warmup
        after = at - self.warmup if self.warmup else at
        if self.kind == "exponential":
            return float(decay**after)
        if self.kind == "step":
            falls = min(after / self.every + 1e-9, 1e18)  # an `every` near 0 is as good as no rate at all
            return float(self.factor ** math.floor(falls))
        if self.kind == "constant":
            return 1.0
        done = min(after / ((self.rounds or rounds) - self.warmup), 1.0)
        left = (1 + math.cos(math.pi * done)) / 2 if self.kind == "cosine" else 1 - done
        return self.end + (1 - self.end) * left

    def shares(self, round: int, steps: int, rounds: int, decay: float) -> np.ndarray:
        """Shape (K,): the share at each of a round's K steps."""
        import numpy as np  # not above: the command line reads settings before it can answer Ctrl-C

        if self.over == "rounds":
            return np.full(steps, self.share(round - 1, rounds, decay))
        return np.array([self.share(round - 1 + step / steps, rounds, decay) for step in range(steps)])

    def check(self, rounds: int, decay: float) -> None:
        """Refuse what gives no rate somewhere in a run of this many rounds, or leaves the decay unread."""
        length = self.rounds or rounds
        if self.kind in ("cosine", "linear") and self.warmup >= length:
            raise UserError(
                f"schedule: warmup is {self.warmup:g}; it must be below the {length:g} rounds of {self.kind}"
            )
        if self.kind in ("cosine", "linear") and length < rounds and not self.end:
            raise UserError(
                f"schedule: {self.kind} is at rate 0 after {length:g} of {rounds} rounds; give it an end above 0, such "
                "as end=0.01"
            )
        if self.kind != "exponential" and decay not in (1.0, DEFAULT_DECAY):
            raise UserError(f"rate_decay is {decay:g}, which schedule '{self.kind}' does not use; leave it out")


DEFAULT_DECAY = 0.998
"""The decay where none is given: schedules that do not use it leave it alone."""


def _positive(value: float) -> bool:
    return value > 0


def _not_negative(value: float) -> bool:
    return value >= 0


_ALLOWED: dict[str, tuple[Callable[[float], bool], str]] = {
    "warmup": (_not_negative, "at least 0"),
    "start": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "end": (lambda value: 0 <= value <= 1, "at least 0 and at most 1"),
    "rounds": (_positive, "above 0"),
    "every": (_positive, "above 0"),
    "factor": (lambda value: 0 < value <= 1, "above 0 and at most 1"),
}


@lru_cache(64)
def schedule(text: str) -> Schedule:
    """The schedule that a text names."""
    kind, colon, options = text.partition(":")
    if kind not in KINDS:
        raise UserError(f"schedule is '{text}'; allowed: {FORMS}{nearest(kind, KINDS)}")
    known, found = (*KINDS[kind], *_OF_ALL), dict[str, float | str]()
    for option in options.split(",") if colon else ():
        name, _, value = (part.strip() for part in option.partition("="))
        if name not in known:
            raise UserError(
                f"schedule '{kind}' has no option '{name}'{nearest(name, known)} (its options: {', '.join(known)})"
            )
        if name in found:
            raise UserError(f"schedule: option '{name}' is given twice")
        found[name] = _over(value) if name == "over" else _number(name, value)
    if kind == "step" and "every" not in found:
        raise UserError("schedule 'step' needs its length: step:every=30")
    return dataclasses.replace(Schedule(kind), **found)  # type: ignore[arg-type]


def _over(value: str) -> str:
    if value not in ("rounds", "steps"):
        raise UserError(f"schedule: over is '{value}'; allowed: rounds, steps")
    return value


def _number(name: str, text: str) -> float:
    allows, words = _ALLOWED[name]
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"schedule: {name} is '{text}'; it must be a number") from None
    if not math.isfinite(value) or not allows(value):
        raise UserError(f"schedule: {name} is {text}; it must be {words}")
    return value
