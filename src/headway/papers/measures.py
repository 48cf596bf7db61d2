"""What a table's column says of one run, from its rounds. Accuracies are in percent, as the papers print them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.errors import UserError
from headway.measure.curves import crossing, level_at, top
from headway.records import RoundRecord
from headway.scenario import Scenario

Records = Sequence[RoundRecord]


@dataclass(frozen=True)
class Measured:
    """A number of one run."""

    value: float | None
    bytes: int | None = None
    """Traffic until then, for a number of rounds."""
    least: float | None = None
    """Where a target was not reached: it takes more than this."""


@dataclass(frozen=True)
class Measure:
    """A column of a table."""

    pattern: str
    words: str
    higher_is_better: bool
    read: Callable[[float, Records, Scenario], Measured]
    counts: bool = False
    """Rounds or iterations until a target."""
    place: bool = False
    """Its number is a round."""


def _level(curve: str, scale: float) -> Callable[[float, Records, Scenario], Measured]:
    def read(round: float, records: Records, scenario: Scenario) -> Measured:
        if not records or records[-1]["round"] < round:
            return Measured(None)
        level = level_at(records, curve, int(round))
        return Measured(None if level is None else scale * level)

    return read


def _top(_: float, records: Records, scenario: Scenario) -> Measured:
    highest = top(records)
    return Measured(None if highest is None else 100 * highest)


def _rounds_to(target: float, records: Records, scenario: Scenario) -> Measured:
    """The first round whose smoothed accuracy is at least the target, and the bytes until then."""
    found = crossing(records, "accuracy_smoothed", target / 100)
    if found is None:
        last = records[-1] if records else {"round": 0}
        return Measured(None, None, last["round"])
    return Measured(found.round, found.bytes)


def _iterations_to(target: float, records: Records, scenario: Scenario) -> Measured:
    return _iterations(_rounds_to(target, records, scenario), scenario)


def _iterations_to_loss(target: float, records: Records, scenario: Scenario) -> Measured:
    """The first evaluation whose global loss is at most the target."""
    for record in records:
        if record.get("global_loss", float("inf")) <= target:
            return _iterations(Measured(record["round"]), scenario)
    return _iterations(Measured(None, None, records[-1]["round"] if records else 0), scenario)


def _iterations(rounds: Measured, scenario: Scenario) -> Measured:
    assert scenario.steps is not None, "iterations are counted where a round has a fixed number of them"
    value, least = (None if part is None else scenario.steps * part for part in (rounds.value, rounds.least))
    return Measured(value, rounds.bytes, least)


def meetings(name: str, records: Records, scenario: Scenario) -> list[float]:
    """Every iteration at which a curve that oscillates meets the target of `iterations_to_…`, from either side.

    It is the evaluation that is on the other side than the one before; the first of all is what the table prints.
    """
    _, target = named(name)
    assert scenario.steps is not None, "iterations are counted where a round has a fixed number of them"
    if name.startswith("iterations_to_loss_"):
        met = {one["round"]: one["global_loss"] <= target for one in records if "global_loss" in one}
    else:
        met = {one["round"]: one["accuracy_smoothed"] >= target / 100 for one in records if "accuracy_smoothed" in one}
    before = (False, *met.values())
    return [scenario.steps * round for (round, now), then in zip(met.items(), before, strict=False) if now != then]


def moving_average(curve: Sequence[float], window: int) -> list[float]:
    """ā_t: the mean of the last `window` values, fewer at the start."""
    return [sum(curve[max(at - window + 1, 0) : at + 1]) / min(at + 1, window) for at in range(len(curve))]


def _sma_variance(window: float, records: Records, scenario: Scenario) -> Measured:
    """1/T Σ_t (a_t − ā_t)², ā_t the mean of the last `window` accuracies in percent."""
    curve = [100 * record["accuracy"] for record in records if "accuracy" in record]
    if not curve:
        return Measured(None)
    means = moving_average(curve, int(window))
    return Measured(sum((value - mean) ** 2 for value, mean in zip(curve, means, strict=True)) / len(curve))


_NUMBER = r"(?P<number>\d+(?:\.\d+)?)"
MEASURES = (
    Measure(rf"accuracy@{_NUMBER}", "acc@{}", True, _level("accuracy_smoothed", 100), place=True),
    Measure(rf"global_loss@{_NUMBER}", "loss@{}", False, _level("global_loss", 1), place=True),
    Measure(r"top_accuracy", "top acc", True, _top),
    Measure(rf"rounds_to_{_NUMBER}", "rounds to {} %", False, _rounds_to, counts=True),
    Measure(rf"iterations_to_{_NUMBER}", "iterations to {} %", False, _iterations_to, counts=True),
    Measure(rf"iterations_to_loss_{_NUMBER}", "iterations to loss {}", False, _iterations_to_loss, counts=True),
    Measure(rf"sma_variance@{_NUMBER}", "deviation²@{}", False, _sma_variance),
)


def named(name: str) -> tuple[Measure, float]:
    """The measure that a name spells, and its number."""
    for measure in MEASURES:
        found = re.fullmatch(measure.pattern, name)
        if found:
            return measure, float(found.groupdict().get("number") or 0)
    raise UserError(f"there is no measure '{name}'; known: {', '.join(each.pattern for each in MEASURES)}")


def heading(name: str) -> str:
    measure, number = named(name)
    return measure.words.format(f"{number:g}")


def at_scale(name: str, share: float) -> str:
    """The measure at the same share of a shorter run: accuracy@500 of 1000 is accuracy@20 of 40."""
    measure, number = named(name)
    return f"{name.split('@')[0]}@{max(round(number * share), 1)}" if measure.place else name


def measured(name: str, records: Records, scenario: Scenario) -> Measured:
    measure, number = named(name)
    return measure.read(number, records, scenario)
