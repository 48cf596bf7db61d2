"""The curves of a study as plain data for the page's script: means and deviations over seeds, rounded."""

from __future__ import annotations

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


class MethodCurves(TypedDict):
    """The curves of one method, by what they measure."""

    name: str
    note: str
    curves: dict[str, Curve]


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


def _drawn(study: Study) -> list[_Drawn]:
    """All that can be drawn. The page shows the first one, which is the raw headline where runs are short."""
    first, *others = metrics_of([record for seeds in study.runs.values() for one in seeds for record in one.records])
    smoothed, raw = _of_metric(first, leads=True)
    found = [smoothed, raw] if study.headline.smoothed else [raw, smoothed]
    found += [one for metric in others for one in _of_metric(metric, leads=False)]
    found += _over_clients(first)
    found += [_Drawn("loss", "{} loss", "{} loss")] if all(one.key != "loss" for one in found) else []
    return [*found, _Drawn("global_loss", "loss on all clients' data", "loss on all clients' data")]


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
    return {
        "grid": grids.index(grid),
        "mean": _rounded(values.mean(1), drawn.share),
        "std": _rounded(values.std(1, ddof=1), drawn.share) if len(seeds) > 1 else None,
    }


def curves(study: Study, notes: dict[str, str]) -> Curves:
    """What page.js reads: the measures there are, the places they are drawn at, and each method's curves."""
    scenario = next(iter(study.runs.values()))[0].scenario
    judged = "test" if scenario.validation is None else "validation"
    grids: list[Grid] = []
    drawn, unit = _drawn(study), unit_of_axis(most_sent(study))
    methods: list[MethodCurves] = [
        {
            "name": name,
            "note": notes.get(name, ""),
            "curves": {what.key: one for what in drawn if (one := _curve(seeds, what, grids, unit)) is not None},
        }
        for name, seeds in study.runs.items()
    ]
    there = {key for method in methods for key in method["curves"]}
    return {
        "target": None if study.target is None else study.headline.scale * study.target,
        "unit": unit.name,
        "measures": [what.measure(judged) for what in drawn if what.key in there],
        "grids": grids,
        "methods": methods,
    }
