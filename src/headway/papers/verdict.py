"""Whether seeds explain the gap between what was measured and what a paper prints.

The rule, for n seeds with mean x and sample deviation s, and a printed number P whose last digit is worth u:

    within    |x − P| ≤ T + u/2
    outside   |x − P| > T + u/2

P without ± is taken to be one run with another seed: T = t · s · √(1 + 1/n), with n − 1 degrees of freedom.
P with ± d over m seeds: T = t · √(s²/n + d²/m), with Welch's degrees of freedom. Each t is the 97.5 % quantile, so
that one gap in twenty is outside where print and program are the same. With two seeds t is 12.7 and nearly every gap
is within: the words say that there are two.

One seed has no deviation: "one seed". Seeds that all gave the same number have none either: a gap of more than u/2
is then "unknown". A bound such as 1000+ says that the number is larger. Where the paper prints one, seeds that are
all beyond it or did not get there are "within", a mean that is below it by more than T is "outside", and a nearer one
"unknown". Where some seed did not reach the target and the paper did, it is "unknown".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from headway.measure.intervals import next_mean, next_value
from headway.papers.measurements import Measurement
from headway.papers.published import Published

Word = Literal["within", "outside", "one seed", "unknown"]

_FLOAT = 1 + 1e-9
"""Room for rounding: in floating point 83.66 − 83.65 is a little more than 0.01."""


@dataclass(frozen=True)
class Verdict:
    """Whether seeds explain a gap, and how large a gap they would explain."""

    word: Word
    seeds: int
    tolerance: float | None = None
    """T + u/2, the largest gap that is within."""

    def written(self, digits: int) -> str:
        """`within ±2.31`, `outside ±0.40`, `one seed`; with two seeds it says so."""
        known = self.tolerance is not None and self.word != "unknown"
        reach = f" ±{self.tolerance:.{digits}f}" if known else ""
        return f"{self.word}{reach}{' (two seeds)' if self.seeds == 2 else ''}"


def verdict(measured: Sequence[Measurement], published: Published | None) -> Verdict | None:
    """The verdict on the gap between a cell's seeds and the printed number.

    None where nothing is printed, and where some run was too short.

    >>> verdict([Measurement(84.2), Measurement(85.1), Measurement(84.7)], Published(85.13, digits=2)).word
    'within'
    """
    if published is None or published.value is None or not measured:
        return None
    bounds = _known(one.at_least for one in measured)
    if len(bounds) < len(measured):
        return None
    if len(measured) == 1:
        return Verdict("one seed", 1)
    values = _known(one.value for one in measured)
    if len(values) < len(measured):
        return Verdict(_unfinished_word(min(bounds) - published.value, published.bound), len(measured))
    explained = _tolerance(values, published)
    tolerance = explained + 0.5 * 10.0**-published.digits
    word = _word(statistics.fmean(values) - published.value, tolerance, published.bound, explained > 0)
    return Verdict(word, len(values), tolerance)


def _unfinished_word(gap: float, bound: bool) -> Word:
    """Where some seed did not reach the target: `gap` is what the seeds took at least, beyond what is printed."""
    return "within" if bound and gap >= 0 else "unknown"


def _known(numbers: Iterable[float | None]) -> list[float]:
    """The numbers without the gaps among them."""
    return [number for number in numbers if number is not None]


def _tolerance(values: Sequence[float], published: Published) -> float:
    """T: the largest gap that differences from seed to seed explain."""
    if published.std is None or published.seeds < 2:
        return next_value(values)
    return next_mean(values, published.std, published.seeds)


def _word(gap: float, tolerance: float, bound: bool, spread: bool) -> Word:
    near = abs(gap) <= tolerance * _FLOAT
    if bound:
        return "within" if gap >= 0 else "unknown" if near or not spread else "outside"
    return "within" if near else "outside" if spread else "unknown"
