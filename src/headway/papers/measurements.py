"""The measures of a table's column, such as accuracy@1000 or rounds_to_81, and how each is read from a run's rounds.

Accuracies are percentages, as the papers print them; targets too. Smoothed is what the scenario's `smoothing` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.errors import UserError
from headway.measure.curves import crossing, level_at, top
from headway.records import RoundRecord
from headway.scenario import Scenario

Records = Sequence[RoundRecord]
"""The records of a run's rounds, in order."""


@dataclass(frozen=True)
class Measurement:
    """What one run gave for a measure."""

    value: float | None
    """None where the run is too short, or did not reach the target."""
    bytes: int | None = None
    """Traffic down and up until the target was reached."""
    lower_bound: float | None = None
    """Where the target was not reached: how many rounds or iterations the run had."""

    @property
    def at_least(self) -> float | None:
        """The value or, where the target was not reached, its lower bound; None where the run is too short."""
        return self.lower_bound if self.value is None else self.value


@dataclass(frozen=True)
class Measure:
    """A kind of measure; its name has at most one number, such as a round or a target."""

    pattern: str
    """A regular expression of its names."""
    words: str
    """Its heading in a table."""
    higher_is_better: bool
    read: Callable[[float, Records, Scenario], Measurement]
    """(The number in its name, a run's records, its scenario) → what the run gave."""
    counts: bool = False
    """Whether it counts rounds or iterations until a target."""
    at_round: bool = False
    """Whether the number in its name is a round."""


def _level(curve: str, scale: float) -> Callable[[float, Records, Scenario], Measurement]:
    """Reads `scale` times the last value of a curve at or before a round."""

    def read(round: float, records: Records, scenario: Scenario) -> Measurement:
        if not records or records[-1]["round"] < round:
            return Measurement(None)
        level = level_at(records, curve, int(round))
        return Measurement(None if level is None else scale * level)

    return read


def _megabytes(round: float, records: Records, scenario: Scenario) -> Measurement:
    """Traffic down and up until a round, in 10⁶ bytes."""
    sent = [one["bytes_down_total"] + one["bytes_up_total"] for one in records if one["round"] == round]
    return Measurement(sent[0] / 1e6 if sent else None)


def _top(_: float, records: Records, scenario: Scenario) -> Measurement:
    highest = top(records)
    return Measurement(None if highest is None else 100 * highest)


def _rounds_to(target: float, records: Records, scenario: Scenario) -> Measurement:
    """The first round whose smoothed accuracy is at least the target, and the bytes until then."""
    found = crossing(records, "accuracy_smoothed", target / 100)
    if found is None:
        last = records[-1] if records else {"round": 0}
        return Measurement(None, None, last["round"])
    return Measurement(found.round, found.bytes)


def _iterations_to(target: float, records: Records, scenario: Scenario) -> Measurement:
    return _in_iterations(_rounds_to(target, records, scenario), scenario)


def _iterations_to_loss(target: float, records: Records, scenario: Scenario) -> Measurement:
    """The first evaluation whose global loss is at most the target."""
    for record in records:
        if record.get("global_loss", float("inf")) <= target:
            return _in_iterations(Measurement(record["round"]), scenario)
    return _in_iterations(Measurement(None, None, records[-1]["round"] if records else 0), scenario)


def _in_iterations(rounds: Measurement, scenario: Scenario) -> Measurement:
    """A number of rounds as local iterations, τ to a round."""
    assert scenario.steps is not None, "iterations are counted where a round has a fixed number of them"
    value, bound = (None if part is None else scenario.steps * part for part in (rounds.value, rounds.lower_bound))
    return Measurement(value, rounds.bytes, bound)


def target_crossings(name: str, records: Records, scenario: Scenario) -> list[float]:
    """Every iteration at which an oscillating curve crosses the target of `iterations_to_…`, in either direction.

    A crossing is counted at the first evaluation on the other side; the table prints the first one.
    """
    _, target = parse_measure(name)
    assert scenario.steps is not None, "iterations are counted where a round has a fixed number of them"
    if name.startswith("iterations_to_loss_"):
        reached = {one["round"]: one["global_loss"] <= target for one in records if "global_loss" in one}
    else:
        reached = {
            one["round"]: one["accuracy_smoothed"] >= target / 100 for one in records if "accuracy_smoothed" in one
        }
    before = (False, *reached.values())
    return [scenario.steps * round for (round, now), then in zip(reached.items(), before, strict=False) if now != then]


def moving_average(curve: Sequence[float], window: int) -> list[float]:
    """ā_t, the mean of the last `window` values; at the start, of as many as there are."""
    return [sum(curve[max(at - window + 1, 0) : at + 1]) / min(at + 1, window) for at in range(len(curve))]


def _sma_variance(window: float, records: Records, scenario: Scenario) -> Measurement:
    """1/T Σ_t (a_t − ā_t)² with ā_t the moving average of the accuracy in percent (Kim et al. 2024, FedACG)."""
    curve = [100 * record["accuracy"] for record in records if "accuracy" in record]
    if not curve:
        return Measurement(None)
    means = moving_average(curve, int(window))
    return Measurement(sum((value - mean) ** 2 for value, mean in zip(curve, means, strict=True)) / len(curve))


_NUMBER = r"(?P<number>\d+(?:\.\d+)?)"
MEASURES = (
    Measure(rf"accuracy@{_NUMBER}", "acc@{}", True, _level("accuracy_smoothed", 100), at_round=True),
    Measure(rf"global_loss@{_NUMBER}", "loss@{}", False, _level("global_loss", 1), at_round=True),
    Measure(rf"bits@{_NUMBER}", "bits@{}", False, _level("bits_per_character", 1), at_round=True),
    Measure(
        rf"received_bits@{_NUMBER}", "bits of φ@{}", False, _level("received_bits_per_character", 1), at_round=True
    ),
    Measure(rf"megabytes@{_NUMBER}", "MB@{}", False, _megabytes, at_round=True),
    Measure(r"top_accuracy", "top acc", True, _top),
    Measure(rf"rounds_to_{_NUMBER}", "rounds to {} %", False, _rounds_to, counts=True),
    Measure(rf"iterations_to_{_NUMBER}", "iterations to {} %", False, _iterations_to, counts=True),
    Measure(rf"iterations_to_loss_{_NUMBER}", "iterations to loss {}", False, _iterations_to_loss, counts=True),
    Measure(rf"sma_variance@{_NUMBER}", "deviation²@{}", False, _sma_variance),
)


def parse_measure(name: str) -> tuple[Measure, float]:
    """The kind of measure that a name such as `rounds_to_81` has, and the number in it (0 where there is none)."""
    for measure in MEASURES:
        found = re.fullmatch(measure.pattern, name)
        if found:
            return measure, float(found.groupdict().get("number") or 0)
    raise UserError(f"there is no measure '{name}'; known: {', '.join(each.pattern for each in MEASURES)}")


def heading(name: str) -> str:
    """A measure as the heading of a column: `rounds to 81 %`."""
    measure, number = parse_measure(name)
    return measure.words.format(f"{number:g}")


def at_scale(name: str, share: float) -> str:
    """The measure for a run with this share of the rounds: accuracy@500 is accuracy@20 with a share of 0.04."""
    measure, number = parse_measure(name)
    return f"{name.split('@')[0]}@{max(round(number * share), 1)}" if measure.at_round else name


def measure_run(name: str, records: Records, scenario: Scenario) -> Measurement:
    """What one run gave for the measure of this name."""
    measure, number = parse_measure(name)
    return measure.read(number, records, scenario)
