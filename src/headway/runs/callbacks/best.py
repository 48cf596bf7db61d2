"""The best evaluation so far: what early stopping and keeping the best model both go by. It is made of the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from headway.engine.experiment import Experiment
from headway.errors import UserError, nearest, shown
from headway.records import RoundRecord

_DIRECTIONS = {
    "loss": False,
    "train_loss": False,
    "global_loss": False,
    "client_std": False,
    "client_accuracy_std": False,
    "client_accuracy_low": True,
}
"""Whether larger is better, for numbers that are not metrics of the task."""


@dataclass(frozen=True)
class Watched:
    """A number of the rounds' records, and in which direction it is better."""

    name: str
    higher_is_better: bool
    expected: bool
    """Whether every evaluation has it. Whether a round has another number, which a method measures, is seen then."""

    def of(self, record: RoundRecord) -> float | None:
        """The number in a record; None where the round does not have it."""
        value = cast(Mapping[str, object], record).get(self.name)
        return float(value) if isinstance(value, int | float) else None

    def check(self, record: RoundRecord) -> None:
        """Refuse a name that a whole round does not have: one with clients, which was evaluated."""
        whole = "loss" in record and record.get("clients")
        if whole and not self.expected and self.of(record) is None:
            numbers = [name for name, value in record.items() if isinstance(value, float)]
            raise UserError(f"a round has no '{self.name}'{nearest(self.name, numbers)} ({', '.join(numbers)})")


def watched(experiment: Experiment, metric: str | None, higher_is_better: bool | None) -> Watched:
    """The number of a run that is watched: its headline where no metric is named."""
    headline = experiment.task.headline
    name = headline.name if metric is None else metric
    of_headline = (f"{headline.name}_smoothed", "client_mean", "client_worst")
    known = {one.name: one.higher_is_better for one in experiment.task.metrics}
    known |= dict.fromkeys(of_headline, headline.higher_is_better) | _DIRECTIONS
    if name == "train_loss" and experiment.method.guards:
        raise UserError("train_loss is not recorded with +dp, as it has no noise; watch a number of the test set")
    direction = known.get(name) if higher_is_better is None else higher_is_better
    if direction is None:
        raise UserError(
            f"is a larger '{name}' better? say it: higher_is_better=True or False{nearest(name, known)} (known: "
            f"{', '.join(known)})"
        )
    return Watched(name, direction, name in known)


@dataclass(frozen=True)
class Best:
    """The best value of some evaluations."""

    round: int | None = None
    value: float | None = None
    since: int = 0
    """How many evaluations came after it."""

    def then(self, number: Watched, record: RoundRecord, least: float = 0.0) -> Best:
        """The best after one more round, in which a value must be better by more than `least` to count."""
        value = number.of(record)
        if value is None:
            return self
        gain = 0.0 if self.value is None else (value - self.value) * (1 if number.higher_is_better else -1)
        if self.value is None or gain > least:
            return Best(record["round"], value)
        return Best(self.round, self.value, self.since + 1)


def best_of(number: Watched, records: Iterable[RoundRecord], least: float = 0.0) -> Best:
    """The best of these rounds."""
    best = Best()
    for record in records:
        best = best.then(number, record, least)
    return best


def check_metric(metric: object, higher_is_better: object) -> bool | None:
    """The direction; what is not the name of a number, or no direction, is refused."""
    if metric is not None and (not isinstance(metric, str) or not metric):
        raise UserError(f"metric is {shown(metric)}; it must be the name of a number of the records, such as 'loss'")
    if isinstance(higher_is_better, np.bool_):
        return bool(higher_is_better)
    if higher_is_better is not None and not isinstance(higher_is_better, bool):
        raise UserError(f"higher_is_better is {shown(higher_is_better)}; it must be True or False")
    return higher_is_better
