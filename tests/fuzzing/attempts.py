"""What a fuzzer is: a kind of cases drawn from a seed, how a case is played, and what is counted."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from fuzzing.limits import limited


class Finding(AssertionError):
    """A case that did not end as promised."""


@dataclass(frozen=True)
class Attempt:
    """One case: what is done, in words, and the doing, which returns the outcome or raises."""

    words: str
    play: Callable[[], str]


class Kind(Protocol):
    """A kind of cases. The same draw gives the same case."""

    def attempt(self, draw: random.Random) -> Attempt: ...


@dataclass
class Tally:
    """How the cases of one kind ended."""

    name: str
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.outcomes.total()

    def line(self) -> str:
        ends = ", ".join(f"{count:,} {outcome}" for outcome, count in self.outcomes.most_common())
        return f"{self.name:<10} {self.count:>6,} cases: {ends}"


def played(
    name: str, kind: Kind, seed: int, numbers: Iterable[int], tell: Callable[[str], object] = lambda line: None
) -> Tally:
    """Play the cases of these numbers; a case depends on the seed and its number only."""
    tally = Tally(name)
    for number in numbers:
        attempt = kind.attempt(random.Random(f"{name} {seed} {number}"))
        try:
            with limited():
                outcome = attempt.play()
        except BaseException as fault:
            if isinstance(fault, KeyboardInterrupt):
                raise
            outcome = "FOUND"
            tally.findings.append(_report(name, seed, number, attempt, fault))
            tell(tally.findings[-1])
        tally.outcomes[outcome] += 1
    return tally


def _report(name: str, seed: int, number: int, attempt: Attempt, fault: BaseException) -> str:
    """What was done, what came of it, and the command that does it again."""
    trace = traceback.format_exception(fault, chain=False)[-8:]
    cause = str(fault) if isinstance(fault, Finding) else "".join(trace)
    again = f"PYTHONPATH=tests python -m fuzzing {name} --seed {seed} --case {number}"
    return f"{again}\n  {attempt.words[:2000]}\n  {cause[-4000:].rstrip()}"
