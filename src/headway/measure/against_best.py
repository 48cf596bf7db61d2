"""Whether a method differs from the best one by more than seeds explain.

Runs with the same seed have the same cohorts and batches whatever the method is, so values of one seed are a pair: the
paired t gives the mean difference and its interval (95 %, of each difference by itself). A difference is
"distinguishable" where p, raised by Holm's rule for all methods that are compared with the best, is below 0.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.measure.headline import common_headline
from headway.measure.intervals import CONFIDENCE, LEAST_PAIRS, Difference, holm, paired
from headway.measure.numbers import BesideBest, MethodNumbers, RunNumbers, Verdict, number_of

BySeed = Mapping[int, float]
"""A number of one method, for each of its seeds."""


@dataclass(frozen=True)
class Against:
    """One method beside the best."""

    best: str
    word: Verdict
    difference: Difference | None = None
    """Method − best; None for the best itself, and where no seed is common."""
    adjusted: float | None = None
    """p after Holm's rule."""

    def plain(self) -> BesideBest:
        """The numbers and the verdict as JSON has them."""
        found = self.difference
        if found is None:
            return {"best": self.best, "verdict": self.word, "pairs": 0}
        return {
            "best": self.best,
            "verdict": self.word,
            "pairs": found.pairs,
            "difference": found.mean,
            "low": found.low,
            "high": found.high,
            "p": found.p,
            "p_adjusted": self.adjusted,
        }


def against_best(methods: Mapping[str, BySeed], higher_is_better: bool) -> dict[str, Against]:
    """Each method against the one with the best mean over its own seeds; every method has at least one seed."""
    sign = 1 if higher_is_better else -1
    best = max(methods, key=lambda name: sign * sum(methods[name].values()) / len(methods[name]))
    differences = {name: _difference(values, methods[best]) for name, values in methods.items() if name != best}
    tested = {name: one.p for name, one in differences.items() if one is not None and one.p is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    found = {best: Against(best, "best")}
    for name, one in differences.items():
        found[name] = Against(best, _word(one, adjusted.get(name)), one, adjusted.get(name))
    return {name: found[name] for name in methods}


def _difference(values: BySeed, best: BySeed) -> Difference | None:
    common = sorted(values.keys() & best.keys())
    return paired([(values[seed], best[seed]) for seed in common]) if common else None


def _word(one: Difference | None, adjusted: float | None) -> Verdict:
    if one is None or one.pairs < LEAST_PAIRS:
        return "needs 3 seeds"
    if adjusted is None:
        return "same in every seed"
    return "distinguishable" if adjusted < 1 - CONFIDENCE else "not distinguishable"


def beside_best(rows: Sequence[MethodNumbers], each: Mapping[str, Mapping[int, RunNumbers]]) -> list[MethodNumbers]:
    """The rows of a table with what their headline, and their rounds to the target, are against the best.

    `each` has the summaries of every seed, by method, of those that may be compared: a run that did not come to its
    end is not among them. A method is left out where some seed of it has no such number.
    """
    lead = common_headline(rows)
    scores = _against(each, lead.key, lead.higher_is_better)
    rounds = _against(each, "rounds_to_target", higher_is_better=False)
    return [
        {
            **row,
            "headline": lead.key,
            "against_best": scores.get(row["name"]),
            "rounds_against_best": rounds.get(row["name"]),
        }
        for row in rows
    ]


def _against(each: Mapping[str, Mapping[int, RunNumbers]], key: str, higher_is_better: bool) -> dict[str, BesideBest]:
    known: dict[str, BySeed] = {}
    for name, seeds in each.items():
        values = {seed: number_of(numbers, key) for seed, numbers in seeds.items()}
        there = {seed: value for seed, value in values.items() if value is not None}
        if len(there) == len(values):
            known[name] = there
    if len(known) < 2:
        return {}
    return {name: one.plain() for name, one in against_best(known, higher_is_better).items()}
