"""The curves of a study as plain data for the page's script: means, deviations and single seeds, rounded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from headway.measure.curves import common
from headway.measure.headline import headline, metrics_of
from headway.records import MetricRecord, RoundRecord, value_of
from headway.report.figures import most_sent
from headway.report.units import Unit, unit_of_axis
from headway.runs.result import Result
from headway.runs.study import Study


class Grid(TypedDict):
    """Where points of a curve are: their rounds, and the bytes sent up to these, in the unit of all curves."""

    round: list[int]
    sent: list[float]


class Curve(TypedDict):
    """Means and deviations over seeds at the points of a grid, which is named by its place in the list of grids."""

    grid: int
    mean: list[float | None]
    std: list[float | None] | None
    seeds: list[list[float | None]] | None
    """The values of each seed; None where there is one, which is the mean."""


class MethodCurves(TypedDict):
    """The curves of one method, by what they measure."""

    name: str
    note: str
    seeds: list[int]
    curves: dict[str, Curve]
    time: dict[str, list[float]]
    """At the points of each grid that its curves use, by its place: the time up to there, in the unit of all curves."""


class Measure(TypedDict):
    """What can be drawn: its names, and how its numbers are written."""

    key: str
    short: str
    label: str
    digits: int
    share: bool
    """Whether it is a percentage."""
    higher: bool
    """Whether higher is better."""
    targeted: bool
    """Whether the target is one of it."""


class Curves(TypedDict):
    """All that page.js reads."""

    target: float | None
    unit: str
    """The unit of what was sent."""
    clock: str
    """The unit of time."""
    measures: list[Measure]
    grids: list[Grid]
    methods: list[MethodCurves]


POINTS = 1000
"""Where there are more evaluations than this, every second, third, … is drawn, and the last."""


@dataclass(frozen=True)
class _Drawn:
    """What is drawn: its key in a round's record, its names with {} for what it was measured on, and how it is read."""

    key: str
    short: str
    label: str
    share: bool = False
    higher: bool = False
    targeted: bool = False

    def measure(self, judged: str) -> Measure:
        return {
            "key": self.key,
            "short": self.short.format(judged),
            "label": self.label.format(judged) + (", %" if self.share else ""),
            "digits": 2 if self.share else 4,
            "share": self.share,
            "higher": self.higher,
            "targeted": self.targeted,
        }


def _of_metric(metric: MetricRecord, leads: bool) -> list[_Drawn]:
    """A metric as it is, and the headline smoothed too."""
    one = headline(metric, smoothed=True)
    name = one.name.replace("{", "{{").replace("}", "}}")
    read = (one.percent, one.higher_is_better, leads)
    raw = _Drawn(one.metric, f"raw {name}" if leads else f"{{}} {name}", f"{{}} {name}", *read)
    return [_Drawn(one.curve, f"smoothed {name}", f"{{}} {name}, smoothed", *read), raw] if leads else [raw]


def _over_clients(metric: MetricRecord) -> list[_Drawn]:
    """What is measured over clients, where it is."""
    one = headline(metric, smoothed=True)
    name = one.name.replace("{", "{{").replace("}", "}}")
    read = (one.percent, one.higher_is_better)
    return [
        _Drawn("client_mean", "mean of clients", f"mean {name} of clients, measured", *read),
        _Drawn("client_worst", "worst tenth", f"{name} of the worst tenth of clients, measured", *read),
    ]


_OF_TRAINING = (
    _Drawn("global_loss", "loss on all clients' data", "loss on all clients' data"),
    _Drawn("train_loss", "train loss", "mean loss of the clients' local steps"),
    _Drawn("update_norm", "update norm", "norm of the server's update, ‖θₜ₊₁ − θₜ‖"),
)
"""What rounds record of training, whatever the task is."""


def _drawn(study: Study) -> list[_Drawn]:
    """All that can be drawn. The page shows the first one, which is the raw headline where runs are short."""
    first, *others = metrics_of([record for seeds in study.runs.values() for one in seeds for record in one.records])
    smoothed, raw = _of_metric(first, leads=True)
    found = [smoothed, raw] if study.headline.smoothed else [raw, smoothed]
    found += [one for metric in others for one in _of_metric(metric, leads=False)]
    found += _over_clients(first)
    found += [_Drawn("loss", "{} loss", "{} loss")] if all(one.key != "loss" for one in found) else []
    return [*found, *_OF_TRAINING]


def _rounded(values: np.ndarray, share: bool) -> list[float | None]:
    """Shares in hundredths of a percent, all else to five digits; JSON has no infinity."""
    return [
        None if not math.isfinite(value) else round(100 * value, 2) if share else float(f"{value:.5g}")
        for value in values.tolist()
    ]


def stride(evaluations: int) -> int:
    return max(math.ceil(evaluations / POINTS), 1)


def _thinned(points: list[list[RoundRecord]]) -> list[list[RoundRecord]]:
    step = stride(len(points))
    return points[::step] + (points[-1:] if (len(points) - 1) % step else [])


def _sent(records: Sequence[RoundRecord], unit: Unit) -> float:
    sent = sum(record["bytes_down_total"] + record["bytes_up_total"] for record in records) / len(records)
    return float(f"{sent / unit.bytes:.6g}")


_CLOCK = (("h", 3600.0, 4 * 3600.0), ("min", 60.0, 600.0), ("s", 1.0, 0.0))
"""Units of time, how many seconds they have, and from how many seconds on they are used."""


def _clocks(seeds: Sequence[Result]) -> list[dict[int, float]]:
    """Of each seed, by round: the seconds from its first round's beginning to the end of this one."""
    found = []
    for one in seeds:
        spent = (record["seconds_training"] + record["seconds_evaluation"] for record in one.records)
        found.append(dict(zip((record["round"] for record in one.records), itertools.accumulate(spent), strict=True)))
    return found


def _times(seeds: Sequence[Result], grid: Grid, unit: float) -> list[float]:
    """The mean time of the seeds at the points of a grid, in four digits: more would only make pages longer."""
    clocks = _clocks(seeds)
    return [float(f"{sum(clock[round] for clock in clocks) / len(clocks) / unit:.4g}") for round in grid["round"]]


def _longest(study: Study) -> float:
    """The seconds of the longest run."""
    every = (clock for seeds in study.runs.values() for clock in _clocks(seeds))
    return max((max(clock.values(), default=0.0) for clock in every), default=0.0)


def _curve(seeds: Sequence[Result], drawn: _Drawn, grids: list[Grid], unit: Unit) -> Curve | None:
    points = _thinned(common([one.records for one in seeds], drawn.key))
    if not points:
        return None
    grid: Grid = {
        "round": [records[0]["round"] for records in points],
        "sent": [_sent(records, unit) for records in points],
    }
    if grid not in grids:
        grids.append(grid)
    values = np.array([[value_of(record, drawn.key) for record in records] for records in points], dtype=float)
    curve: Curve = {
        "grid": grids.index(grid),
        "mean": _rounded(values.mean(1), drawn.share),
        "std": None,
        "seeds": None,
    }
    if len(seeds) > 1:
        curve["std"] = _rounded(values.std(1, ddof=1), drawn.share)
        curve["seeds"] = [_rounded(column, drawn.share) for column in values.T]
    return curve


def _drawn_of(seeds: Sequence[Result], drawn: Sequence[_Drawn], grids: list[Grid], unit: Unit) -> dict[str, Curve]:
    """The curves that a method has; new places are added to `grids`."""
    return {what.key: one for what in drawn if (one := _curve(seeds, what, grids, unit)) is not None}


def curves(study: Study, notes: dict[str, str]) -> Curves:
    """What page.js reads: the measures there are, the places they are drawn at, and each method's curves."""
    scenario = next(iter(study.runs.values()))[0].scenario
    judged = "test" if scenario.validation is None else "validation"
    grids: list[Grid] = []
    drawn, unit, longest = _drawn(study), unit_of_axis(most_sent(study)), _longest(study)
    clock, second = next((name, second) for name, second, least in _CLOCK if longest >= least)
    methods: list[MethodCurves] = []
    for name, seeds in study.runs.items():
        found = _drawn_of(seeds, drawn, grids, unit)
        used = sorted({curve["grid"] for curve in found.values()})
        methods.append(
            {
                "name": name,
                "note": notes.get(name, ""),
                "seeds": [one.scenario.seed for one in seeds],
                "curves": found,
                "time": {str(place): _times(seeds, grids[place], second) for place in used},
            }
        )
    there = {key for method in methods for key in method["curves"]}
    return {
        "target": None if study.target is None else study.headline.scale * study.target,
        "unit": unit.name,
        "clock": clock,
        "measures": [what.measure(judged) for what in drawn if what.key in there],
        "grids": grids,
        "methods": methods,
    }
