"""What the spread over seeds says of a difference: intervals of Student's t, from a few values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import scipy

CONFIDENCE = 0.95
"""The confidence of every interval, two-sided."""
LEAST_PAIRS = 3
"""With two seeds an interval of the difference is wider than anything it could be used for."""
_ROUNDING = 1e-9
"""A spread below this share of the values is rounding; t needs a spread to go by."""


def _quantile(freedom: float) -> float:
    """t with this many degrees of freedom is between −q and q in 95 % of all cases."""
    return float(scipy.special.stdtrit(freedom, (1 + CONFIDENCE) / 2))


def spread(values: Sequence[float]) -> float:
    """The sample deviation (n − 1); 0 where the values differ by rounding only."""
    found = statistics.stdev(values)
    return found if found > _ROUNDING * max(map(abs, values)) else 0.0


def next_value(values: Sequence[float]) -> float:
    """How far one further value may be from the mean of these: t · s · √(1 + 1/n), a prediction interval.

    `values` are at least two, from the same distribution as the further one.
    """
    count = len(values)
    return _quantile(count - 1) * spread(values) * math.sqrt(1 + 1 / count)


def next_mean(values: Sequence[float], deviation: float, count: int) -> float:
    """How far the mean of `count` other values may be, of which the sample deviation is known (Welch 1947).

    t · √(s²/n + d²/m), with Welch's degrees of freedom: neither deviation has to be the other.
    """
    one, other = spread(values) ** 2 / len(values), deviation**2 / count
    if one + other == 0:
        return 0.0
    freedom = (one + other) ** 2 / (one**2 / (len(values) - 1) + other**2 / (count - 1))
    return _quantile(freedom) * math.sqrt(one + other)


@dataclass(frozen=True)
class Difference:
    """The mean difference of values that belong together in pairs."""

    pairs: int
    mean: float
    low: float | None = None
    """The interval of 95 %; None with fewer than three pairs, and where all differences are equal."""
    high: float | None = None
    p: float | None = None
    """How often chance alone gives a difference as far from 0, were there none."""


def paired(values: Sequence[tuple[float, float]]) -> Difference:
    """One − other over at least one pair, by the paired t: what both values of a pair share has no weight."""
    differences = [one - other for one, other in values]
    count, mean = len(values), statistics.fmean(differences)
    if count < LEAST_PAIRS:
        return Difference(count, mean)
    deviation = statistics.stdev(differences)
    if deviation <= _ROUNDING * max(abs(value) for pair in values for value in pair):
        return Difference(count, mean)
    error = deviation / math.sqrt(count)
    half = _quantile(count - 1) * error
    return Difference(
        count, mean, mean - half, mean + half, 2 * float(scipy.special.stdtr(count - 1, -abs(mean) / error))
    )


def holm(probabilities: Sequence[float]) -> list[float]:
    """Each p raised so that all p below 0.05 are together wrong at most once in twenty (Holm 1979).

    The least is multiplied by the number of tests, the next by one less, and none gets below the one before.
    """
    adjusted, highest = [0.0] * len(probabilities), 0.0
    order = sorted(range(len(probabilities)), key=lambda place: probabilities[place])
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * probabilities[place]))
        adjusted[place] = highest
    return adjusted
