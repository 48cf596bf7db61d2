"""Which number a run or a table leads with: the smoothed accuracy, the last one where runs are short, or the loss."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_MEMORIES = 5
"""A smoothed curve leads after this many times its memory of 1/(1 − keep) evaluations: after 50 with 0.9."""


@dataclass(frozen=True)
class Headline:
    """A number of the summary, and how it is written."""

    key: str
    words: str
    higher_is_better: bool = True
    scale: float = 100
    digits: int = 2


SMOOTHED = Headline("smoothed_accuracy", "smoothed accuracy %")
LAST = Headline("last_accuracy", "last accuracy %")
LOSS = Headline("loss", "loss", higher_is_better=False, scale=1, digits=4)
HEADLINES = {one.key: one for one in (SMOOTHED, LOSS, LAST)}
"""By the key that a summary has; of several runs' the first of these leads."""


def is_settled(evaluations: float, keep: float) -> bool:
    """Whether a smoothed curve has forgotten how it began.

    After fewer evaluations it is mostly a mean of the first rounds, and far behind a curve that rises.
    """
    return evaluations * (1 - keep) >= _MEMORIES - 1e-9


def headline_of(evaluations: int, keep: float, numeric: bool) -> Headline:
    """Of one run; `numeric`: its targets are numbers, so that it has a loss and no accuracy."""
    if numeric:
        return LOSS
    return SMOOTHED if keep > 0 and is_settled(evaluations, keep) else LAST


def common_headline(keys: Iterable[str]) -> Headline:
    """What several runs lead with together: one that ended early does not decide."""
    given = set(keys)
    return next(one for one in HEADLINES.values() if one.key in given)
